//! `remote_session_control` and `remote_handle_control`: what is asked of sessions and of the DSP. And the
//! two functions by which a test steers the stand-in.

use std::ffi::{CStr, c_char, c_void};

use hexflash_fastrpc::aee;
use hexflash_fastrpc::config::Config;

use crate::plan;
use crate::state::{Context, state, violation};

/// The compute DSP.
pub(crate) const CDSP: i32 = 3;
const CDSP_NAME: &str = "cdsp";
/// Sessions that a host process may have, unless configured.
const SESSIONS: u64 = 2;

/// What became of a process.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Status {
    Exit = 1,
    Exception = 3,
}

type NotifierFn = unsafe extern "C" fn(*mut c_void, i32, i32, u32) -> i32;

/// Whom to tell of a process's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notifier {
    context: Context,
    function: NotifierFn,
}

impl Notifier {
    pub(crate) fn tell(&self, domain: i32, status: Status) {
        let session = session_of(domain).unwrap_or(0);
        // SAFETY: the host has registered `function` for being told of this, with this context.
        unsafe { (self.function)(self.context.0, domain, session as i32, status as u32) };
    }
}

/// The domain that stands for a session. Not what one would compute: hosts must ask.
pub(crate) fn domain_of(session: u32) -> i32 {
    CDSP + 24 * session as i32
}

fn session_of(domain: i32) -> Option<u32> {
    let session = u32::try_from((domain - CDSP) / 24).ok()?;
    (domain_of(session) == domain).then_some(session)
}

#[repr(C)]
struct UnsignedModule {
    domain: i32,
    enable: i32,
}

#[repr(C)]
struct ProcessKill {
    domain: i32,
}

#[repr(C)]
struct NotifyRegister {
    context: *mut c_void,
    domain: i32,
    function: Option<NotifierFn>,
}

#[repr(C)]
struct ReserveSession {
    domain_name: *const c_char,
    domain_name_length: u32,
    session_name: *const c_char,
    session_name_length: u32,
    effective_domain_id: u32,
    session_id: u32,
}

#[repr(C)]
struct EffectiveDomain {
    domain_name: *const c_char,
    domain_name_length: u32,
    session_id: u32,
    effective_domain_id: u32,
}

#[repr(C)]
struct GetUri {
    domain_name: *const c_char,
    domain_name_length: u32,
    session_id: u32,
    module_uri: *const c_char,
    module_uri_length: u32,
    uri: *mut c_char,
    uri_length: u32,
}

const _: () = assert!(size_of::<ReserveSession>() == 40 && size_of::<EffectiveDomain>() == 24);
const _: () = assert!(size_of::<GetUri>() == 48 && size_of::<NotifyRegister>() == 24);

/// A text of the host's, as the library reads it: up to its NUL, and nothing where the length is 0.
///
/// A host that means another text than that is told so: without a NUL behind it, what the heap holds there is
/// part of the text on some days.
///
/// # Safety
/// `at` is null, or the host's text. Where that has no NUL, bytes behind it are read, as the library does it.
unsafe fn text<'a>(what: &str, at: *const c_char, length: u32) -> Option<&'a str> {
    if at.is_null() || length == 0 {
        return None;
    }
    // SAFETY: `at` is not null, by the check above, and so is the host's text (the caller's contract).
    let text = unsafe { CStr::from_ptr(at) };
    // Some count the NUL, some do not.
    let found = text.to_bytes_with_nul().len();
    if ![found, found - 1].contains(&(length as usize)) {
        violation(&format!("{what}: no NUL ends the text of {length} bytes that {text:?} begins with"));
    }
    text.to_str().ok()
}

/// What is asked of a session.
///
/// # Safety
/// `data` points to the struct of `request`, which has `bytes` bytes, and its addresses are what they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_session_control(request: u32, data: *mut c_void, bytes: u32) -> i32 {
    match request {
        // SAFETY: `data` points to the struct of `request`, of `bytes` bytes, whose addresses are what they
        // say (the caller's contract); this is the function for that struct.
        2 => unsafe { checked(data, bytes, unsigned_module) },
        // SAFETY: `data` points to the struct of `request`, of `bytes` bytes, whose addresses are what they
        // say (the caller's contract); this is the function for that struct.
        6 => unsafe { checked(data, bytes, process_kill) },
        // SAFETY: `data` points to the struct of `request`, of `bytes` bytes, whose addresses are what they
        // say (the caller's contract); this is the function for that struct.
        11 => unsafe { checked(data, bytes, register) },
        // SAFETY: `data` points to the struct of `request`, of `bytes` bytes, whose addresses are what they
        // say (the caller's contract); this is the function for that struct.
        13 => unsafe { checked(data, bytes, reserve) },
        // SAFETY: `data` points to the struct of `request`, of `bytes` bytes, whose addresses are what they
        // say (the caller's contract); this is the function for that struct.
        14 => unsafe { checked(data, bytes, effective_domain) },
        // SAFETY: `data` points to the struct of `request`, of `bytes` bytes, whose addresses are what they
        // say (the caller's contract); this is the function for that struct.
        15 => unsafe { checked(data, bytes, get_uri) },
        _ => aee::UNSUPPORTED,
    }
}

/// # Safety
/// `data` is null or points to `bytes` bytes; if these are as many as T has, they are a T, whose addresses
/// are what they say.
unsafe fn checked<T>(data: *mut c_void, bytes: u32, then: unsafe fn(&mut T) -> i32) -> i32 {
    if data.is_null() || bytes as usize != size_of::<T>() || !data.cast::<T>().is_aligned() {
        return aee::BAD_PARAMETER;
    }
    // SAFETY: `data` points to `bytes` bytes (the caller's contract), which are the size of T, by the check
    // above, and it is aligned. They are a T as the host made it, and its addresses are what they say, which
    // is what `then` asks for.
    unsafe { then(&mut *data.cast()) }
}

unsafe fn unsigned_module(data: &mut UnsignedModule) -> i32 {
    plan!("UNSIGNED_MODULE");
    if !known(data.domain) {
        return aee::BAD_PARAMETER;
    }
    let mut state = state();
    if state.config.number("unsigned") == Some(0) {
        return aee::UNSUPPORTED;
    }
    let session = state.sessions.entry(data.domain).or_default();
    if session.process.is_some() {
        // It must be said before the process is there.
        return aee::BAD_STATE;
    }
    session.unsigned = data.enable == 1;
    0
}

unsafe fn process_kill(data: &mut ProcessKill) -> i32 {
    plan!("PROCESS_KILL");
    let process = state().sessions.get(&data.domain).and_then(|session| session.process.clone());
    let Some(process) = process else { return aee::BAD_STATE };
    process.kill();
    0
}

unsafe fn register(data: &mut NotifyRegister) -> i32 {
    plan!("REGISTER_STATUS_NOTIFICATIONS");
    let Some(function) = data.function else { return aee::BAD_PARAMETER };
    let notifier = Notifier { context: Context(data.context), function };
    if !known(data.domain) {
        return aee::BAD_PARAMETER;
    }
    state().sessions.entry(data.domain).or_default().notifier = Some(notifier);
    0
}

/// Whether the domain stands for a session that was reserved, or for the one that needs no reserving.
fn known(domain: i32) -> bool {
    match session_of(domain) {
        Some(0) => true,
        Some(_) => state().sessions.get(&domain).is_some_and(|session| session.reserved),
        None => false,
    }
}

unsafe fn reserve(data: &mut ReserveSession) -> i32 {
    plan!("RESERVE_NEW_SESSION");
    // SAFETY: both are null or texts (the contract of `remote_session_control`).
    let (domain, name) = unsafe {
        (
            text("RESERVE_NEW_SESSION", data.domain_name, data.domain_name_length),
            text("RESERVE_NEW_SESSION", data.session_name, data.session_name_length),
        )
    };
    let (Some(CDSP_NAME), Some(name)) = (domain, name) else { return aee::BAD_PARAMETER };
    // The library copies the name into as many bytes, the last of which is a NUL.
    if name.len() >= data.session_name_length as usize {
        violation(&format!("RESERVE_NEW_SESSION: the library keeps {name:?} without its last character"));
    }
    let mut state = state();
    let limit = state.config.number("sessions").unwrap_or(SESSIONS) as u32;
    let free = (1..limit).find(|&id| !state.sessions.get(&domain_of(id)).is_some_and(|s| s.reserved));
    let Some(id) = free else { return aee::BUSY };
    state.sessions.entry(domain_of(id)).or_default().reserved = true;
    (data.session_id, data.effective_domain_id) = (id, domain_of(id) as u32);
    0
}

unsafe fn effective_domain(data: &mut EffectiveDomain) -> i32 {
    plan!("GET_EFFECTIVE_DOMAIN_ID");
    // SAFETY: the name is null or a text (the contract of `remote_session_control`).
    let name = unsafe { text("GET_EFFECTIVE_DOMAIN_ID", data.domain_name, data.domain_name_length) };
    if name != Some(CDSP_NAME) {
        return aee::BAD_PARAMETER;
    }
    data.effective_domain_id = domain_of(data.session_id) as u32;
    0
}

unsafe fn get_uri(data: &mut GetUri) -> i32 {
    plan!("GET_URI");
    // SAFETY: name and module are null or texts (the contract of `remote_session_control`).
    let (name, module) = unsafe {
        (
            text("GET_URI", data.domain_name, data.domain_name_length),
            text("GET_URI", data.module_uri, data.module_uri_length),
        )
    };
    let (Some(CDSP_NAME), Some(module)) = (name, module) else { return aee::BAD_PARAMETER };
    let session = data.session_id;
    let uri = format!(
        "{module}&_dom={CDSP_NAME}{}\0",
        if session > 0 { format!("&_session={session}") } else { String::new() }
    );
    if data.uri.is_null() || uri.len() > data.uri_length as usize {
        return aee::BAD_PARAMETER;
    }
    // SAFETY: `data.uri` is not null and has `uri_length` writable bytes (the contract of
    // `remote_session_control`), which `uri` does not exceed, by the check above.
    unsafe { std::ptr::copy_nonoverlapping(uri.as_ptr().cast(), data.uri, uri.len()) };
    0
}

#[repr(C)]
struct Capability {
    domain: u32,
    attribute: u32,
    capability: u32,
}

/// What is asked of the DSP.
///
/// # Safety
/// `data` is null or points to the struct of `request`, which has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remote_handle_control(request: u32, data: *mut c_void, bytes: u32) -> i32 {
    const GET_DSP_INFO: u32 = 2;
    if request != GET_DSP_INFO {
        return aee::UNSUPPORTED;
    }
    // SAFETY: `data` is null or points to `bytes` bytes, a `Capability` for this request (the caller's
    // contract).
    unsafe { checked(data, bytes, dsp_info) }
}

/// What VTCM consists of, and how much there is unless the settings say otherwise.
const VTCM_PAGE: u32 = 64 << 10;
const VTCM_BYTES: u64 = 8 << 20;

unsafe fn dsp_info(data: &mut Capability) -> i32 {
    plan!("GET_DSP_INFO");
    if data.domain != CDSP as u32 {
        return aee::BAD_PARAMETER;
    }
    let state = state();
    data.capability = match data.attribute {
        0 => 1,
        1 => u32::from(state.config.number("unsigned") != Some(0)),
        // Pages of VTCM, as few as it takes, and how many.
        4 => VTCM_PAGE,
        5 => (state.config.number("vtcm").unwrap_or(VTCM_BYTES) / u64::from(VTCM_PAGE)) as u32,
        // Above the version there are other bits.
        6 => 0x8c00 | state.config.arch(),
        _ => return aee::UNSUPPORTED,
    };
    0
}

/// Replaces the settings: a line of [`hexflash_fastrpc::config`]. Not 0 if it cannot be read.
///
/// # Safety
/// `line` is a text that ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_standin_configure(line: *const c_char) -> i32 {
    // SAFETY: `line` is a text that ends with 0 (the caller's contract).
    let line = unsafe { CStr::from_ptr(line) };
    match line.to_str().map(Config::parse) {
        Ok(Ok(config)) => {
            state().reconfigure(config);
            0
        }
        _ => aee::BAD_PARAMETER,
    }
}

/// Messages that were sent since the settings were made.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_standin_messages() -> u64 {
    crate::state::MESSAGES.load(std::sync::atomic::Ordering::SeqCst)
}

/// Counts what is left: memory, mappings, handles, queues, processes.
///
/// # Safety
/// `out` has room for five words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_standin_census(out: *mut [u32; 5]) {
    let state = state();
    let maps = state.sessions.values().map(|session| session.maps.len()).sum::<usize>();
    let processes = state.sessions.values().filter(|session| session.process.is_some()).count();
    // SAFETY: `out` is valid for writing five words (the caller's contract).
    unsafe {
        out.write([
            state.blocks.len() as u32,
            maps as u32,
            state.handles.len() as u32,
            state.queues,
            processes as u32,
        ]);
    }
}

//! A session: a process on the DSP that has loaded our library and serves our queue.
//!
//! The order of calls is that of clients known to work: domain, unsigned libraries, URI, open, quality of
//! service, queue, start. Closing reverses it. If a call fails, the calls before it are undone.

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use hexflash_abi::{ABI_VERSION, LAYOUT_HASH};

use super::super::limits::{CHIPS, Chip};
use super::error::{Call, HtpError, check};
use super::ffi::{
    self, ARCH_VERSION, CDSP, CDSP_NAME, CONTROL_LATENCY, Capability, EffectiveDomain, GET_DSP_INFO, GetUri,
    Latency, ProcessKill, RemoteArg, ReserveSession, UnsignedModule, VTCM_COUNT, VTCM_PAGE, session,
};
use super::library::Library;
use super::queue::Queue;
use super::watch::Watch;

/// How long a call of the library on the DSP may take before its process is ended by force.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a session is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionRequest {
    /// Kernel threads.
    pub threads: u32,
    /// Bytes of VTCM.
    pub vtcm_bytes: u32,
    /// Number of the power profile.
    pub power: u32,
    /// Number of the DMA mode.
    pub dma: u32,
    /// Whether to ask for the matrix unit.
    pub matrix_unit: bool,
    /// Whether the domain's own session is taken, and another is to be reserved.
    pub reserve: bool,
}

/// Calls `remote_session_control`.
pub(super) fn control<T>(library: &Library, request: u32, data: &mut T) -> c_int {
    let bytes = size_of::<T>() as u32;
    // SAFETY: the struct of this request, per the callers here; its addresses live through the call.
    unsafe { (library.functions().remote_session_control)(request, (&raw mut *data).cast(), bytes) }
}

/// Asks what the DSP has; the library's code where it does not say.
fn capability(library: &Library, attribute: u32) -> Result<u32, c_int> {
    let mut query = Capability { domain: CDSP as u32, attribute, capability: 0 };
    let bytes = size_of_val(&query) as u32;
    // SAFETY: GET_DSP_INFO takes a `Capability`, of `bytes` bytes, which lives through the call and is
    // exclusive to it.
    let code =
        unsafe { (library.functions().remote_handle_control)(GET_DSP_INFO, (&raw mut query).cast(), bytes) };
    if code == 0 { Ok(query.capability) } else { Err(code) }
}

/// The version of the DSP, 0x68 and up.
pub(super) fn arch(library: &Library) -> Result<u32, HtpError> {
    let found = capability(library, ARCH_VERSION).map_err(|code| HtpError::call(Call::Arch, code))?;
    // Other bits lie above.
    let found = found & 0xff;
    if found < CHIPS[0].arch { Err(HtpError::TooOld { found }) } else { Ok(found) }
}

/// Bytes of the DSP's VTCM, where the library knows: v68 and v69 may have less than later versions.
pub(super) fn vtcm_bytes(library: &Library) -> Option<usize> {
    let [page, count] = [VTCM_PAGE, VTCM_COUNT].map(|attribute| capability(library, attribute).ok());
    (page? as usize).checked_mul(count? as usize).filter(|bytes| *bytes > 0)
}

/// Which session of the DSP, as the library names it.
#[derive(Clone, Copy, Debug)]
struct SessionAddress {
    domain: c_int,
    session: u32,
}

impl SessionAddress {
    fn find(library: &Library, reserve: bool) -> Result<Self, HtpError> {
        let (domain_name, domain_name_length) = ffi::text(CDSP_NAME);
        if reserve {
            let (session_name, length) = ffi::text(c"hexflash");
            let mut request = ReserveSession {
                domain_name,
                domain_name_length,
                session_name,
                // The library copies one byte less than this: it counts the NUL.
                session_name_length: length + 1,
                effective_domain_id: 0,
                session_id: 0,
            };
            check(Call::ReserveSession, control(library, session::RESERVE_NEW_SESSION, &mut request))?;
            return Ok(Self { domain: request.effective_domain_id as c_int, session: request.session_id });
        }
        let mut request =
            EffectiveDomain { domain_name, domain_name_length, session_id: 0, effective_domain_id: 0 };
        // Older libraries do not know the request. Whatever they answer, the first session is the domain
        // itself: clients that are known to work never ask.
        let domain = match control(library, session::GET_EFFECTIVE_DOMAIN_ID, &mut request) {
            0 => request.effective_domain_id as c_int,
            code => {
                tracing::debug!("{}; domain {CDSP} is taken", HtpError::call(Call::EffectiveDomain, code));
                CDSP
            }
        };
        Ok(Self { domain, session: 0 })
    }

    /// The URI of our library in this session.
    fn uri(self, library: &Library, arch: u32) -> CString {
        let module = format!(
            "file:///libhexflash_skel_v{:x}.so?hexflash_skel_handle_invoke&_modver=1.0",
            Chip::for_arch(arch).arch
        );
        let mut uri = vec![0u8; module.len() + 64];
        let module_text = c_text(&module);
        let (domain_name, domain_name_length) = ffi::text(CDSP_NAME);
        let (module_uri, module_uri_length) = ffi::text(&module_text);
        let mut request = GetUri {
            domain_name,
            domain_name_length,
            session_id: self.session,
            module_uri,
            module_uri_length,
            uri: uri.as_mut_ptr().cast(),
            uri_length: uri.len() as u32,
        };
        let given = control(library, session::GET_URI, &mut request) == 0;
        let given = given.then(|| std::ffi::CStr::from_bytes_until_nul(&uri).ok()).flatten();
        // Older libraries do not know the request; this is what newer ones say.
        let made = || match self.session {
            0 => format!("{module}&_dom=cdsp"),
            session => format!("{module}&_dom=cdsp&_session={session}"),
        };
        given.map_or_else(|| c_text(&made()), CString::from)
    }
}

/// A text of ours with its NUL. There is none within: it is made of constants and numbers.
fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A running session.
pub(super) struct RpcSession {
    vendor: Arc<Library>,
    place: SessionAddress,
    handle: u64,
    /// `None` before it is made, and after it is closed.
    queue: Option<Queue>,
    started: bool,
    watch: Option<&'static Watch>,
    /// The process does not answer: it is not asked any more, but ended.
    stuck: bool,
}

/// Arguments of `start` and answer of `info`, as the library on the DSP has them.
#[derive(zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Start {
    queue: u64,
    threads: u32,
    vtcm_bytes: u32,
    power: u32,
    dma: u32,
    matrix_unit: u32,
    reserved: u32,
}

#[derive(Default, zerocopy::FromBytes, zerocopy::IntoBytes)]
#[repr(C)]
struct Info {
    abi_version: u32,
    arch: u32,
    layout_hash: u64,
    power: i32,
    matrix_unit: i32,
}

const START: u32 = 2 << 24 | 1 << 16;
const STOP: u32 = 3 << 24;
const INFO: u32 = 4 << 24 | 1 << 8;

impl RpcSession {
    /// Opens a session and starts serving.
    pub(super) fn open(library: &Arc<Library>, arch: u32, wanted: SessionRequest) -> Result<Self, HtpError> {
        let place = SessionAddress::find(library, wanted.reserve)?;
        let mut unsigned = UnsignedModule { domain: place.domain, enable: 1 };
        check(Call::UnsignedModule, control(library, session::UNSIGNED_MODULE, &mut unsigned))?;
        // Without it, the end of the process shows when a call fails or times out.
        let watch = match Watch::register(library, place.domain) {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::warn!("{error}");
                None
            }
        };
        let uri = place.uri(library, arch);
        let mut handle = 0;
        // SAFETY: `uri` is a text that ends with 0, and the handle is written to `handle`; both live through
        // the call.
        check(Call::Open, unsafe {
            (library.functions().remote_handle64_open)(uri.as_ptr(), &raw mut handle)
        })?;
        let vendor = Arc::clone(library);
        // From here on, dropping it closes what is open.
        let mut session = Self { vendor, place, handle, queue: None, started: false, watch, stuck: false };
        session.set_latency();
        session.check_build(arch)?;
        let queue = Queue::create(&session.vendor, place.domain)?;
        let id = session.queue.insert(queue).export()?;
        session.start(id, wanted)?;
        Ok(session)
    }

    /// The domain that stands for the session.
    pub(super) fn domain(&self) -> c_int {
        self.place.domain
    }

    /// The queue.
    ///
    /// # Panics
    /// If the session was stopped.
    #[expect(clippy::expect_used, reason = "the device drops a session right after it has stopped it")]
    pub(super) fn queue(&mut self) -> &mut Queue {
        self.queue.as_mut().expect("a session that was not stopped")
    }

    /// What has become of the process, if it has ended.
    pub(super) fn end(&self) -> Option<&'static str> {
        self.watch?.end()
    }

    /// The process does not answer any more.
    pub(super) fn give_up(&mut self) {
        self.stuck = true;
    }

    /// Keeps the CPU from dozing while the DSP works; without it messages only take longer.
    fn set_latency(&self) {
        let Some(control) = self.vendor.functions().remote_handle64_control else { return };
        let mut latency = Latency { enable: 1, latency: 0 };
        let bytes = size_of_val(&latency) as u32;
        // SAFETY: `self.handle` is open until `self` is dropped. CONTROL_LATENCY takes a `Latency`, of
        // `bytes` bytes, which lives through the call.
        let code = unsafe { control(self.handle, CONTROL_LATENCY, (&raw mut latency).cast(), bytes) };
        if code != 0 {
            tracing::warn!(
                "remote_handle64_control(CONTROL_LATENCY) gave {}: messages may take longer",
                super::aee::AeeCode(code)
            );
        }
    }

    /// Calls a method. A process that does not answer is ended, which ends the call.
    fn invoke(&self, scalars: u32, args: &mut [RemoteArg]) -> c_int {
        let (done, waiting) = channel::<()>();
        let (library, domain) = (&self.vendor, self.place.domain);
        std::thread::scope(|scope| {
            let watchdog = std::thread::Builder::new().name("hexflash-call".to_owned());
            let watchdog = watchdog.spawn_scoped(scope, move || {
                if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    kill(library, domain);
                }
            });
            if let Err(error) = watchdog {
                tracing::warn!("no thread to watch a call of the DSP: {error}");
            }
            // SAFETY: `args` has as many arguments as `scalars` says: each caller gives a constant with the
            // arguments that it names. Each is of its own length and lives through the call.
            let code = unsafe {
                (library.functions().remote_handle64_invoke)(self.handle, scalars, args.as_mut_ptr())
            };
            drop(done);
            code
        })
    }

    fn info(&self) -> Result<Info, HtpError> {
        let mut info = Info::default();
        let data = (&raw mut info).cast::<c_void>();
        check(Call::Info, self.invoke(INFO, &mut [RemoteArg { data, bytes: size_of::<Info>() }]))?;
        Ok(info)
    }

    /// Refuses a library of another build or for a newer DSP.
    fn check_build(&self, arch: u32) -> Result<(), HtpError> {
        let info = self.info()?;
        if (info.abi_version, info.layout_hash) != (ABI_VERSION, LAYOUT_HASH) {
            return Err(HtpError::OtherBuild { version: info.abi_version, layout: info.layout_hash as u32 });
        }
        if info.arch > arch {
            return Err(HtpError::OtherArch { library: info.arch, found: arch });
        }
        Ok(())
    }

    fn start(&mut self, queue: u64, wanted: SessionRequest) -> Result<(), HtpError> {
        let SessionRequest { threads, vtcm_bytes, power, dma, matrix_unit, .. } = wanted;
        let matrix_unit = matrix_unit.into();
        let mut start = Start { queue, threads, vtcm_bytes, power, dma, matrix_unit, reserved: 0 };
        let data = (&raw mut start).cast::<c_void>();
        check(Call::Start, self.invoke(START, &mut [RemoteArg { data, bytes: size_of::<Start>() }]))?;
        self.started = true;
        let Info { power, matrix_unit, .. } = self.info()?;
        if power != 0 {
            tracing::warn!(
                "the DSP refused a vote for power with {}: it may run slower",
                super::aee::AeeCode(power)
            );
        }
        if matrix_unit != 0 {
            tracing::warn!("the DSP does not lend its matrix unit: {}", super::aee::AeeCode(matrix_unit));
        }
        Ok(())
    }

    /// Ends serving; the process has nothing mapped afterwards. Does nothing the second time.
    pub(super) fn stop(&mut self) {
        if std::mem::take(&mut self.started) {
            if self.stuck || self.end().is_some() {
                kill(&self.vendor, self.place.domain);
            } else {
                let code = self.invoke(STOP, &mut []);
                if code != 0 {
                    tracing::debug!("stop gave {}", super::aee::AeeCode(code));
                    kill(&self.vendor, self.place.domain);
                }
            }
        }
        self.queue = None;
    }
}

/// Ends the process by force.
fn kill(library: &Library, domain: c_int) {
    let mut request = ProcessKill { domain };
    let code = control(library, session::PROCESS_KILL, &mut request);
    if code != 0 {
        tracing::debug!("REMOTE_PROCESS_KILL gave {}", super::aee::AeeCode(code));
    }
}

impl Drop for RpcSession {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: `open` has opened the handle, and this is the last use of it, for `self` is being dropped.
        let code = unsafe { (self.vendor.functions().remote_handle64_close)(self.handle) };
        if code != 0 {
            tracing::debug!("remote_handle64_close gave {}", super::aee::AeeCode(code));
        }
    }
}

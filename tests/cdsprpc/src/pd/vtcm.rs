//! The resource manager: one scratchpad and one matrix unit, granted, held, lent to others. Whoever touches
//! the scratchpad without holding it crashes. `hmx=0` in the settings is a DSP without a matrix unit.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use hexflash_fastrpc::aee;
use rustix::mm::{MprotectFlags, ProtFlags};

use crate::plan;
use crate::qurt::{FASTRPC_PRIORITY, is_missing};
use crate::state::{CONFIG, planned, violation};
use crate::{guest, hap, views};

const CONTEXT: u32 = 0x77;
/// Bytes, unless configured.
const BYTES: u64 = 8 << 20;

/// Who is told that somebody else wants the scratchpad: a function and its argument, addresses of the
/// process that registered it.
type Callback = (u64, u64);

/// What a request asks for, in the words that its owner must not look at.
#[repr(C)]
pub(crate) struct Attributes {
    magic: u64,
    bytes: u64,
    cached: u64,
    callback: Callback,
    matrix_unit: u64,
    rest: [u64; 2],
}
const _: () = assert!(size_of::<Attributes>() == 64);

const MAGIC: u64 = 0x7265_736f_7572_6365;

struct Grant {
    base: usize,
    bytes: usize,
    held: bool,
    matrix_unit: Option<Unit>,
    callback: Option<Callback>,
    /// Whether its priority was set since it is held.
    has_priority: bool,
}

/// The matrix unit of a grant: the thread that has locked it.
type Unit = Option<ThreadId>;

static GRANT: Mutex<Option<Grant>> = Mutex::new(None);

fn grant() -> std::sync::MutexGuard<'static, Option<Grant>> {
    GRANT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn protect(base: usize, bytes: usize, open: bool) {
    let flags = if open { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::empty() };
    let at = std::ptr::with_exposed_provenance_mut::<c_void>(base);
    // SAFETY: `base` and `bytes` are the scratchpad's, which this process mapped. Who touches it while it is
    // closed is meant to crash.
    unsafe { rustix::mm::mprotect(at, bytes, flags) }.expect("the scratchpad's pages");
}

/// Whether `compute_resource_attr_init_v2` has refused, so that the older call may be tried.
static V2_REFUSED: AtomicBool = AtomicBool::new(false);

/// Prepares the 64 bytes that older callers have, which is for images that do not know the larger attributes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_init(attributes: *mut Attributes) -> i32 {
    plan!("dsp.compute_resource_attr_init");
    if !is_missing("compute_resource_attr_init_v2") && !V2_REFUSED.load(Ordering::SeqCst) {
        violation("attributes of 64 bytes were asked for, and the image has those of 160");
    }
    // SAFETY: `attributes` is valid for writing 64 bytes, the size of `Attributes`, as the interface asks of
    // its callers.
    unsafe { attributes.write(FRESH) };
    0
}

/// Attributes that ask for nothing.
const FRESH: Attributes =
    Attributes { magic: MAGIC, bytes: 0, cached: 0, callback: (0, 0), matrix_unit: 0, rest: [0; 2] };

/// Prepares attributes for a caller that says how many bytes it has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_init_v2(
    attributes: *mut Attributes,
    bytes: u32,
    version: u32,
) -> i32 {
    V2_REFUSED.store(true, Ordering::SeqCst);
    plan!("dsp.compute_resource_attr_init_v2");
    if (bytes, version) != (160, 0x300) {
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    V2_REFUSED.store(false, Ordering::SeqCst);
    // SAFETY: `attributes` is valid for writing `bytes` bytes, as the interface asks of its callers.
    unsafe {
        attributes.cast::<u8>().write_bytes(0, bytes as usize);
        attributes.write(FRESH);
    }
    0
}

/// # Safety
/// `attributes` points to [`Attributes`], 64 bytes that nobody else uses meanwhile.
unsafe fn set(attributes: *mut Attributes, set: impl FnOnce(&mut Attributes)) -> i32 {
    // SAFETY: `attributes` points to `Attributes`, which nobody else uses meanwhile (the caller's contract).
    let attributes = unsafe { &mut *attributes };
    if attributes.magic != MAGIC {
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    set(attributes);
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_set_serialize(
    attributes: *mut Attributes,
    _on: u8,
) -> i32 {
    // SAFETY: `attributes` points to `Attributes`, which nobody else uses meanwhile, as the interface asks of
    // its callers.
    unsafe { set(attributes, |_| {}) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_set_cache_mode(
    attributes: *mut Attributes,
    on: u8,
) -> i32 {
    // SAFETY: `attributes` points to `Attributes`, which nobody else uses meanwhile, as the interface asks of
    // its callers.
    unsafe { set(attributes, |a| a.cached = on.into()) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_set_vtcm_param_v2(
    attributes: *mut Attributes,
    bytes: u32,
    page: u32,
    least: u32,
) -> i32 {
    if bytes == 0 || page > bytes || least > bytes {
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    // SAFETY: `attributes` points to `Attributes`, which nobody else uses meanwhile, as the interface asks of
    // its callers.
    unsafe { set(attributes, |a| a.bytes = bytes.into()) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_set_hmx_param(
    attributes: *mut Attributes,
    on: u8,
) -> i32 {
    plan!("dsp.compute_resource_attr_set_hmx_param");
    // SAFETY: `attributes` points to `Attributes`, which nobody else uses meanwhile, as the interface asks of
    // its callers.
    unsafe { set(attributes, |a| a.matrix_unit = on.into()) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_set_release_callback(
    attributes: *mut Attributes,
    callback: *const c_void,
    argument: *mut c_void,
) -> i32 {
    let callback = (callback.expose_provenance() as u64, argument.expose_provenance() as u64);
    // SAFETY: `attributes` points to `Attributes`, which nobody else uses meanwhile, as the interface asks of
    // its callers.
    unsafe { set(attributes, |a| a.callback = callback) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_acquire(
    attributes: *mut Attributes,
    _timeout_us: u32,
) -> u32 {
    if planned("dsp.compute_resource_acquire").is_some() {
        return 0;
    }
    // SAFETY: `attributes` points to `Attributes`, which nobody else uses meanwhile, as the interface asks of
    // its callers.
    let attributes = unsafe { &mut *attributes };
    let mut grant = grant();
    let bytes = attributes.bytes;
    if attributes.magic != MAGIC || grant.is_some() || bytes > CONFIG.number("vtcm").unwrap_or(BYTES) {
        return 0;
    }
    let matrix_unit = (attributes.matrix_unit != 0).then_some(None);
    if matrix_unit.is_some() && !has_matrix_unit() {
        return 0;
    }
    let Some(base) = views::low(bytes as usize, ProtFlags::empty()) else { return 0 };
    let callback = Some(attributes.callback).filter(|(function, _)| *function != 0);
    let held = attributes.cached == 0;
    protect(base, bytes as usize, held);
    *grant = Some(Grant { base, bytes: bytes as usize, held, matrix_unit, callback, has_priority: false });
    CONTEXT
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn compute_resource_attr_get_vtcm_ptr_v2(
    _attributes: *mut Attributes,
    address: *mut *mut u8,
    bytes: *mut u32,
) -> i32 {
    let Some((base, granted)) = place() else { return aee::on_dsp(aee::BAD_STATE) };
    // SAFETY: `address` and `bytes` are valid for writing, as the interface asks of its callers.
    unsafe {
        address.write(std::ptr::with_exposed_provenance_mut(base));
        bytes.write(granted as u32);
    }
    0
}

/// Whether this DSP has a matrix unit.
pub(crate) fn has_matrix_unit() -> bool {
    CONFIG.number("hmx") != Some(0)
}

/// Whether a thread has the matrix unit locked.
pub(crate) fn unit_is_locked() -> bool {
    grant().as_ref().and_then(|grant| grant.matrix_unit).is_some_and(|unit| unit.is_some())
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn compute_resource_hmx_lock(context: u32) -> i32 {
    plan!("dsp.compute_resource_hmx_lock");
    if !hap::unit_has_power() {
        violation("the matrix unit was locked without power: an instruction of it would stop the DSP");
    }
    let mut grant = grant();
    let unit = grant.as_mut().filter(|grant| context == CONTEXT && grant.held);
    match unit.and_then(|grant| grant.matrix_unit.as_mut()) {
        Some(free @ None) => {
            *free = Some(thread::current().id());
            0
        }
        _ => {
            violation("a matrix unit was locked that is not held, or is locked already");
            aee::on_dsp(aee::BAD_STATE)
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn compute_resource_hmx_unlock(context: u32) -> i32 {
    let mut grant = grant();
    let unit = grant.as_mut().filter(|_| context == CONTEXT).and_then(|grant| grant.matrix_unit.as_mut());
    match unit {
        Some(unit) if *unit == Some(thread::current().id()) => {
            *unit = None;
            0
        }
        _ => {
            violation("a matrix unit was unlocked by a thread that has not locked it");
            aee::on_dsp(aee::BAD_STATE)
        }
    }
}

/// Address and bytes of what is granted.
pub(crate) fn place() -> Option<(usize, usize)> {
    grant().as_ref().map(|grant| (grant.base, grant.bytes))
}

/// Whether it is held.
pub(crate) fn is_held() -> bool {
    grant().as_ref().is_some_and(|grant| grant.held)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn compute_resource_release(context: u32) -> i32 {
    let Some(old) = grant().take().filter(|_| context == CONTEXT) else {
        violation("a scratchpad was released that is not granted");
        return aee::on_dsp(aee::BAD_PARAMETER);
    };
    views::free_low(old.base, old.bytes);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn compute_resource_acquire_cached(context: u32, _timeout_us: u32) -> i32 {
    plan!("dsp.compute_resource_acquire_cached");
    let mut grant = grant();
    let Some(grant) = grant.as_mut().filter(|grant| context == CONTEXT && !grant.held) else {
        return aee::on_dsp(aee::BAD_STATE);
    };
    protect(grant.base, grant.bytes, true);
    grant.held = true;
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn compute_resource_update_priority(context: u32, priority: u32) -> i32 {
    // Also if it is refused: the client has asked.
    if let Some(grant) = &mut *grant() {
        grant.has_priority = true;
    }
    plan!("dsp.compute_resource_update_priority");
    if context != CONTEXT || !is_held() || priority != FASTRPC_PRIORITY {
        violation(&format!(
            "the priority {priority} was set for a scratchpad that is not held, or is not FastRPC's"
        ));
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn compute_resource_release_cached(context: u32) -> i32 {
    let mut grant = grant();
    let Some(grant) = grant.as_mut().filter(|grant| context == CONTEXT && grant.held) else {
        violation("a scratchpad was lent that is not held");
        return aee::on_dsp(aee::BAD_STATE);
    };
    if grant.matrix_unit.is_some_and(|unit| unit.is_some()) {
        violation("the matrix unit was lent while a thread has it locked");
    }
    let has_priority = std::mem::take(&mut grant.has_priority);
    if !has_priority && !is_missing("compute_resource_update_priority") {
        violation(
            "a scratchpad was held without FastRPC's priority: others of it wait until their time is up",
        );
    }
    // Others use it.
    let at = std::ptr::with_exposed_provenance_mut::<u8>(grant.base);
    // SAFETY: the scratchpad has `grant.bytes` bytes at `grant.base`, which are open as long as it is held.
    // Who lends it uses it no more.
    unsafe { at.write_bytes(0xa5, grant.bytes) };
    protect(grant.base, grant.bytes, false);
    grant.held = false;
    0
}

/// Whether so many bytes at an address are the scratchpad, and it is held.
pub(crate) fn has(address: usize, bytes: usize) -> bool {
    let grant = grant();
    grant.as_ref().is_some_and(|g| g.held && g.base <= address && address + bytes <= g.base + g.bytes)
}

/// Somebody else asks for the scratchpad: who has it is told.
pub(crate) fn somebody_wants_it() {
    let Some((function, argument)) = grant().as_ref().and_then(|grant| grant.callback) else { return };
    if guest::call_later(function as u32, [CONTEXT, argument as u32]) {
        return;
    }
    let function = std::ptr::with_exposed_provenance::<()>(function as usize);
    // SAFETY: the client, in this process, has registered a function of this type, and this argument for it.
    unsafe {
        let function =
            std::mem::transmute::<*const (), unsafe extern "C" fn(u32, *mut c_void) -> i32>(function);
        function(CONTEXT, std::ptr::with_exposed_provenance_mut(argument as usize));
    }
}

/// It must have been given back at the end.
pub(crate) fn check_end() {
    if grant().is_some() {
        violation("the scratchpad was not released");
    }
}

//! HAP: votes for power, mappings.

use std::ffi::{CStr, c_char, c_long, c_void};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use hexflash_fastrpc::{aee, report};

use crate::plan;
use crate::qurt::is_missing;
use crate::state::{CONFIG, planned, violation};
use crate::{views, vtcm};

/// What is voted for: core, bus, vectors, the matrix unit.
static VOTES: Mutex<[u8; 4]> = Mutex::new([0; 4]);

/// Whether there is a vote for the matrix unit.
pub(crate) fn unit_has_power() -> bool {
    VOTES.lock().unwrap_or_else(PoisonError::into_inner)[3] != 0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn HAP_power_set(context: *mut c_void, request: *mut [u8; 120]) -> i32 {
    plan!("dsp.HAP_power_set");
    if context.is_null() || request.is_null() {
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    // SAFETY: `request` is not null, by the check above, and valid for reading 120 bytes, as the interface
    // asks of its callers.
    let request = unsafe { request.read() };
    let body = &request[8..];
    let mut votes = VOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if CONFIG.text("forget") == Some("power") && request[0] == 2 && body[0] == 0 {
        return 0;
    }
    match request[0] {
        2 => votes[2] = body[0],
        3 if body[0] == 4 => {}
        12 => {
            let corners = |at: usize| (body[at] == 1).then_some(&body[at + 4..at + 7]);
            let (Some(core), Some(bus)) = (corners(8), corners(28)) else {
                return aee::on_dsp(aee::BAD_PARAMETER);
            };
            for corners in [core, bus] {
                if !(corners[1] <= corners[0] && corners[0] <= corners[2]) {
                    return aee::on_dsp(aee::BAD_PARAMETER);
                }
            }
            (votes[0], votes[1]) = (core[0], bus[0]);
            let asked = PROTECTED.swap(false, Ordering::SeqCst);
            if !asked && CONFIG.arch() >= 0x79 && !is_missing("sysmon_set_dcvs_v3_protected_bus_corners") {
                violation("a vote for clocks without protected bus corners, which v79 and later have");
            }
        }
        // The matrix unit; from v75 on with its own clock, whose corners have 16 bits.
        kind @ (13 | 14) if vtcm::has_matrix_unit() && (kind == 13 || CONFIG.arch() >= 0x75) => {
            let up = if kind == 13 { body[0] } else { body[1] };
            let corners = |at: usize| u16::from_le_bytes([body[at], body[at + 1]]);
            let [target, least, most] = [4, 6, 8].map(corners);
            let sound = up <= 1
                && (kind == 13
                    || body[0] == 1
                        && body[2] <= 1
                        && least <= target
                        && target <= most
                        && (body[2] == 1) == (target != 0));
            if !sound {
                return aee::on_dsp(aee::BAD_PARAMETER);
            }
            if up == 0 && vtcm::unit_is_locked() {
                violation("the matrix unit lost its power while a thread has it locked");
            }
            votes[3] = up;
        }
        _ => return aee::on_dsp(aee::UNSUPPORTED),
    }
    0
}

/// Whether the next vote for clocks was asked to have protected bus corners.
static PROTECTED: AtomicBool = AtomicBool::new(false);

/// Lets the corners of a vote for the bus reach the protected ones, from v79 on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sysmon_set_dcvs_v3_protected_bus_corners(
    request: *mut [u8; 120],
    on: u32,
) -> i32 {
    // Also if it is refused: the client has asked.
    PROTECTED.store(true, Ordering::SeqCst);
    plan!("dsp.sysmon_set_dcvs_v3_protected_bus_corners");
    // SAFETY: `request` is valid for reading 120 bytes, as the interface asks of its callers.
    if unsafe { request.read() }[0] != 12 || on != 1 {
        violation("protected bus corners were asked for in something that is no vote for clocks");
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    0
}

/// The DSP's log. (The real one takes any number of arguments; ours are the format and one text, which are
/// passed in the same way.)
#[unsafe(no_mangle)]
unsafe extern "C" fn HAP_debug_v2(
    _level: i32,
    _file: *const c_char,
    _line: i32,
    format: *const c_char,
    text: *const c_char,
) {
    // SAFETY: both are texts that end with 0, as the interface asks of its callers.
    let (format, text) = unsafe { (CStr::from_ptr(format), CStr::from_ptr(text)) };
    log(format, text);
}

/// Takes a line of the DSP's log.
pub(crate) fn log(format: &CStr, text: &CStr) {
    if format != c"%s" {
        violation(&format!("a line of the log has the format {format:?}"));
    }
    if let Some(file) = CONFIG.file("log") {
        report::violation(Some(&file), &text.to_string_lossy());
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn HAP_mmap2(
    address: *mut c_void,
    bytes: usize,
    access: i32,
    flags: i32,
    fd: i32,
    offset: c_long,
) -> *mut u8 {
    let failed = std::ptr::without_provenance_mut(usize::MAX);
    if planned("dsp.HAP_mmap2").is_some() || !address.is_null() || access != 3 || flags != 0 || offset != 0 {
        return failed;
    }
    views::map(fd, bytes).unwrap_or(failed)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn HAP_munmap2(address: *mut c_void, bytes: usize) -> i32 {
    views::unmap(address.addr(), bytes)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn HAP_mmap(
    address: *mut c_void,
    bytes: i32,
    access: i32,
    flags: i32,
    fd: i32,
    offset: i32,
) -> *mut u8 {
    match usize::try_from(bytes) {
        Ok(bytes) => HAP_mmap2(address, bytes, access, flags, fd, offset.into()),
        Err(_) => std::ptr::without_provenance_mut(usize::MAX),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn HAP_munmap(address: *mut c_void, bytes: i32) -> i32 {
    usize::try_from(bytes).map_or(aee::on_dsp(aee::BAD_PARAMETER), |bytes| HAP_munmap2(address, bytes))
}

/// Number of the operation for all that the caches hold.
const WHOLE_CACHE: u32 = 4;

#[unsafe(no_mangle)]
pub(crate) extern "C" fn qurt_mem_cache_clean(address: usize, bytes: usize, op: u32, kind: u32) -> i32 {
    /// Bytes of a range above which ggml-hexagon, on phones, has the whole cache looked after.
    const LONGEST_RANGE: usize = 4 << 20;
    if op != WHOLE_CACHE && bytes > LONGEST_RANGE {
        violation(&format!("the caches were walked through line by line for {bytes} bytes"));
    }
    let forget = CONFIG.text("forget");
    let (flush, invalidate) = (op != 1 && forget != Some("flush"), op != 0 && forget != Some("invalidate"));
    match op {
        0..=2 if kind == 1 => views::clean(address, bytes, flush, invalidate),
        // All that the caches hold.
        WHOLE_CACHE if kind == 1 && address == 0 && bytes == 0 => views::clean_all(flush, invalidate),
        _ => return aee::on_dsp(aee::BAD_PARAMETER),
    }
    0
}

/// Votes must have been withdrawn at the end.
pub(crate) fn check_end() {
    let votes = *VOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if votes != [0; 4] {
        violation(&format!("votes for power were not withdrawn: {votes:?}"));
    }
}

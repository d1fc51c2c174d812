//! QuRT: threads on given stacks, futexes, vector contexts, the timer.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hexflash_fastrpc::aee;
use rustix::thread::futex;

use crate::plan;
use crate::state::{CONFIG, planned, violation};

#[repr(C)]
pub(crate) struct ThreadAttributes {
    name: [c_char; 16],
    tcb_partition: u8,
    stid: u8,
    priority: u16,
    autostack: u8,
    bus_priority: u8,
    timetest_id: u16,
    stack_bytes: u32,
    stack: *mut c_void,
    detach_state: u16,
}

/// A thread: the stack that it was given, and what waits for its end; `false` if that was no good one.
struct Thread {
    stack: Stack,
    wait: Box<dyn FnOnce() -> bool + Send>,
}

/// Address and bytes.
pub(crate) type Stack = (usize, usize);

static THREADS: LazyLock<Mutex<(u32, HashMap<u32, Thread>)>> =
    LazyLock::new(|| Mutex::new((0x100, HashMap::new())));

/// The priority of the threads that FastRPC calls on.
pub(crate) const FASTRPC_PRIORITY: u32 = 192;

struct Argument(*mut c_void);
// SAFETY: the creator promises that the entry may run elsewhere with it.
unsafe impl Send for Argument {}

/// Highest priority that a thread may have, unless configured: that of ggml-hexagon's threads on phones. The
/// lower the number, the higher the priority.
const HIGHEST_PRIORITY: u32 = FASTRPC_PRIORITY - 10;

/// Holds the stack and the priority of a new thread to the rules: whole, of a sensible size, nobody else's;
/// above FastRPC's priority where it may be. Gives its number, with which it is started; that gives what
/// waits for its end.
pub(crate) fn create(
    stack: Stack,
    priority: u16,
    start: impl FnOnce(u32) -> Option<Box<dyn FnOnce() -> bool + Send>>,
) -> Result<u32, i32> {
    if let Some(code) = planned("dsp.qurt_thread_create") {
        return Err(code);
    }
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let highest = CONFIG.number("highest").map_or(HIGHEST_PRIORITY, |highest| highest as u32);
    let may_have = (highest..=FASTRPC_PRIORITY).contains(&u32::from(priority));
    if stack.0 == 0 || !stack.0.is_multiple_of(8) || stack.1 < 4096 || !may_have {
        return Err(aee::on_dsp(aee::BAD_PARAMETER));
    }
    let meets = |other: &Thread| stack.0 < other.stack.0 + other.stack.1 && other.stack.0 < stack.0 + stack.1;
    if threads.1.values().any(meets) {
        violation("two threads were given the same stack");
    }
    let number = threads.0 + 1;
    let wait = start(number).ok_or(aee::on_dsp(aee::FAILED))?;
    threads.0 = number;
    threads.1.insert(number, Thread { stack, wait });
    Ok(number)
}

/// Waits until a thread has ended; the code.
pub(crate) fn join(number: u32) -> i32 {
    let thread = THREADS.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
    let Some(thread) = thread else {
        violation("a thread was joined twice");
        return aee::on_dsp(aee::FAILED);
    };
    if !(thread.wait)() {
        // A panic on a DSP ends the process.
        std::process::abort();
    }
    0
}

/// A thread ends, which must have nothing left.
pub(crate) fn check_thread() {
    if HVX.replace(false) {
        violation("a thread ended with a vector context");
    }
}

/// Threads have stacks of this machine's size: code for it needs more than the DSP's.
#[unsafe(no_mangle)]
unsafe extern "C" fn qurt_thread_create(
    id: *mut u32,
    attributes: *const ThreadAttributes,
    entry: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> i32 {
    // SAFETY: `attributes` points to a `ThreadAttributes` that lives through the call, as QuRT asks of its
    // callers.
    let attributes = unsafe { &*attributes };
    let stack = (attributes.stack.addr(), attributes.stack_bytes as usize);
    let argument = Argument(argument);
    let created = create(stack, attributes.priority, |_| {
        let spawned = std::thread::Builder::new().spawn(move || {
            let argument = argument;
            // SAFETY: the creator allows `entry` to be called with this argument on another thread, as QuRT
            // asks of it.
            unsafe { entry(argument.0) };
            crate::dma::check_thread();
            check_thread();
        });
        let join = spawned.ok()?;
        Some(Box::new(move || join.join().is_ok()))
    });
    match created {
        Ok(number) => {
            // SAFETY: `id` is valid for writing, as QuRT asks of its callers.
            unsafe { id.write(number) };
            0
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
extern "C" fn qurt_thread_join(id: u32, _status: *mut i32) -> i32 {
    join(id)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn qurt_futex_wait(word: *const u32, value: i32) -> i32 {
    // SAFETY: `word` is aligned and lives through the call, as QuRT asks of its callers, who access it by
    // atomics.
    let word = unsafe { AtomicU32::from_ptr(word.cast_mut()) };
    // Whatever ends the sleep, the caller looks again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value as u32, None);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn qurt_futex_wake(word: *const u32, threads: i32) -> i32 {
    // SAFETY: `word` is aligned and lives through the call, as QuRT asks of its callers, who access it by
    // atomics.
    let word = unsafe { AtomicU32::from_ptr(word.cast_mut()) };
    let _ = futex::wake(word, futex::Flags::PRIVATE, threads as u32);
    0
}

thread_local! {
    /// Whether this thread holds a vector context.
    static HVX: Cell<bool> = const { Cell::new(false) };
}

static UNITS: AtomicU32 = AtomicU32::new(0);

/// Waits for a vector context, of which there are few.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn qurt_hvx_lock(mode: u32) -> i32 {
    plan!("dsp.qurt_hvx_lock");
    let most = CONFIG.number("hvx").unwrap_or(10) as u32;
    if mode != 1 || HVX.get() {
        return aee::on_dsp(aee::BAD_PARAMETER);
    }
    let start = Instant::now();
    let take = |held: u32| (held < most).then_some(held + 1);
    while UNITS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
        if start.elapsed() > Duration::from_secs(20) {
            violation("a thread waits for a vector context that nobody gives back");
            return aee::on_dsp(aee::FAILED);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    HVX.set(true);
    0
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn qurt_hvx_unlock() -> i32 {
    if !HVX.replace(false) {
        violation("a vector context was given back that the thread does not hold");
        return aee::on_dsp(aee::BAD_STATE);
    }
    UNITS.fetch_sub(1, Ordering::SeqCst);
    0
}

#[unsafe(no_mangle)]
extern "C" fn qurt_thread_get_id() -> u32 {
    1
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn qurt_thread_get_priority(_id: u32) -> i32 {
    plan!("dsp.qurt_thread_get_priority");
    FASTRPC_PRIORITY as i32
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn qurt_sleep(us: u64) {
    std::thread::sleep(Duration::from_micros(us));
}

/// Whether the image that is played lacks a function that libraries can do without.
pub(crate) fn is_missing(name: &str) -> bool {
    CONFIG.lists("without", name)
}

/// The address of a function that images may lack, or null.
#[unsafe(no_mangle)]
unsafe extern "C" fn hexflash_standin_weak(name: *const c_char) -> *const c_void {
    // SAFETY: the name ends with 0, as the skel's contract has it.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap_or_default();
    if is_missing(name) {
        return std::ptr::null();
    }
    macro_rules! function {
        ($($symbol:ident)+) => {{
            unsafe extern "C" {
                $(safe fn $symbol();)+
            }
            match name {
                $(stringify!($symbol) => $symbol as *const c_void,)+
                _ => std::ptr::null(),
            }
        }};
    }
    function! {
        HAP_debug_v2 HAP_mmap HAP_mmap2 HAP_munmap HAP_munmap2 compute_resource_attr_init_v2
        compute_resource_attr_set_hmx_param compute_resource_hmx_lock compute_resource_hmx_unlock
        compute_resource_update_priority qurt_hvx_lock qurt_hvx_unlock
        sysmon_set_dcvs_v3_protected_bus_corners
    }
}

#[unsafe(no_mangle)]
extern "C" fn hexflash_standin_ticks() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    (START.elapsed().as_nanos() * 12 / 625) as u64
}

#[unsafe(no_mangle)]
extern "C" fn hexflash_standin_arch() -> u16 {
    CONFIG.arch() as u16
}

/// Nothing may be left at the end.
pub(crate) fn check_end() {
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner).1.len();
    if threads > 0 {
        violation(&format!("{threads} threads were not joined"));
    }
    let units = UNITS.load(Ordering::SeqCst);
    if units > 0 {
        violation(&format!("{units} vector contexts were not given back"));
    }
}

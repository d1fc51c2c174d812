//! The scratchpad and the matrix unit: asked for once, held while there is work, lent to others in between.
//!
//! A process gets both by one request. The unit belongs to the thread that has locked it, which is the one
//! that holds the scratchpad here.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use super::sys::{self, ResourceAttributes};
use super::{Priority, log};

/// How long the first grant may take: somebody else may hold the scratchpad.
const ACQUIRE_US: u32 = 1_000_000;
/// How long getting it back may take.
pub(in super::super) const HOLD_US: u32 = 5_000_000;

/// Set by the resource manager when somebody else waits for the scratchpad. (One grant per process.)
static WANTED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn wanted(_context: u32, _argument: *mut c_void) -> i32 {
    // Relaxed: a hint, looked at between two messages.
    WANTED.store(true, Ordering::Relaxed);
    0
}

/// A scratchpad, until it is dropped. Its address stays the same through all of that; what lies in it does
/// not.
pub(in super::super) struct VtcmGrant {
    context: u32,
    held: bool,
    /// How the matrix unit is locked and unlocked, if it was granted, too.
    matrix_unit: Option<UnitLock>,
    /// Whether this thread has locked it.
    locked: bool,
    /// FastRPC's: others of that priority are heard when they ask for the scratchpad.
    priority: Priority,
    pub(in super::super) base: NonNull<u8>,
    pub(in super::super) bytes: usize,
}

/// Calls that lock the matrix unit, and unlock it.
#[derive(Clone, Copy)]
struct UnitLock {
    lock: unsafe extern "C" fn(u32) -> i32,
    unlock: unsafe extern "C" fn(u32) -> i32,
}

impl UnitLock {
    /// Adds the unit to a request; `None` where the image does not know it.
    fn request(attributes: *mut ResourceAttributes) -> Option<Self> {
        let ask = sys::compute_resource_attr_set_hmx_param()?;
        let lock = sys::compute_resource_hmx_lock()?;
        let unlock = sys::compute_resource_hmx_unlock()?;
        // SAFETY: `attributes` lives through the call, which takes nothing else.
        (unsafe { ask(attributes, 1) } == 0).then_some(Self { lock, unlock })
    }
}

/// Makes attributes a request: of all that they have room for where the manager knows how, else of the first
/// 64 bytes.
///
/// # Safety
/// `attributes` is valid for reading and writing.
unsafe fn prepare(attributes: *mut ResourceAttributes) -> bool {
    const VERSION: u32 = 0x300;
    if let Some(init) = sys::compute_resource_attr_init_v2() {
        // SAFETY: the caller's contract; the size is that of the attributes.
        if unsafe { init(attributes, size_of::<ResourceAttributes>() as u32, VERSION) } == 0 {
            return true;
        }
    }
    // SAFETY: the caller's contract; this one writes 64 bytes.
    unsafe { sys::compute_resource_attr_init(attributes) == 0 }
}

impl VtcmGrant {
    /// Asks the resource manager for exactly `bytes`, and holds them. With `matrix_unit` it asks for the
    /// matrix unit as well, and does without where that is not granted.
    pub(in super::super) fn acquire(bytes: u32, matrix_unit: bool, priority: Priority) -> Option<Self> {
        let with_unit = if matrix_unit { Self::ask(bytes, true, priority) } else { None };
        with_unit.or_else(|| Self::ask(bytes, false, priority))
    }

    /// Whether the matrix unit is granted: this thread has it locked while it holds the scratchpad.
    pub(in super::super) fn has_matrix_unit(&self) -> bool {
        self.matrix_unit.is_some()
    }

    fn ask(bytes: u32, matrix_unit: bool, priority: Priority) -> Option<Self> {
        WANTED.store(false, Ordering::Relaxed);
        let mut attributes = ResourceAttributes([0; 20]);
        let attributes = &raw mut attributes;
        let (mut base, mut granted) = (core::ptr::null_mut(), 0);
        // SAFETY: `attributes` lives through the calls, the callback for ever, and the results go to the
        // variables above. Not serialised with other clients; cached, so that the grant can be lent.
        let (context, matrix_unit) = unsafe {
            if !prepare(attributes)
                || sys::compute_resource_attr_set_serialize(attributes, 0) != 0
                || sys::compute_resource_attr_set_cache_mode(attributes, 1) != 0
                || sys::compute_resource_attr_set_vtcm_param_v2(attributes, bytes, bytes, bytes) != 0
                || sys::compute_resource_attr_set_release_callback(attributes, wanted, core::ptr::null_mut())
                    != 0
            {
                log::error(format_args!(
                    "the resource manager does not take a request for {bytes} bytes of VTCM"
                ));
                return None;
            }
            let unit = if matrix_unit { Some(UnitLock::request(attributes)?) } else { None };
            match sys::compute_resource_acquire(attributes, ACQUIRE_US) {
                0 => {
                    log::error(format_args!(
                        "the resource manager gave no {bytes} bytes of VTCM (with a matrix unit: {matrix_unit})"
                    ));
                    return None;
                }
                context => {
                    sys::compute_resource_attr_get_vtcm_ptr_v2(attributes, &raw mut base, &raw mut granted);
                    (context, unit)
                }
            }
        };
        match NonNull::new(base) {
            Some(base) if granted >= bytes => {
                let mut grant = Self {
                    context,
                    held: false,
                    matrix_unit,
                    locked: false,
                    priority,
                    base,
                    bytes: bytes as usize,
                };
                // Dropped, and thereby released, if others do not let go of it.
                if grant.hold() { Some(grant) } else { None }
            }
            _ => {
                // SAFETY: `compute_resource_acquire` gave `context` above, and nothing else names it.
                unsafe { sys::compute_resource_release(context) };
                None
            }
        }
    }

    /// Takes the scratchpad: in cached mode a grant only names the memory, and this gives the right to touch
    /// it. Locks the matrix unit, if that was granted. `false` if others do not give them back in time.
    pub(in super::super) fn hold(&mut self) -> bool {
        if !self.held {
            // SAFETY: `compute_resource_acquire` gave `context` in `ask`, and it is released when `self` is
            // dropped.
            self.held = unsafe { sys::compute_resource_acquire_cached(self.context, HOLD_US) == 0 };
            if let (true, Some(update)) = (self.held, sys::compute_resource_update_priority()) {
                // Without it, clients of the same priority wait for each other until their time is up.
                // SAFETY: the call takes two numbers, the first of which is a context of ours. A refusal
                // changes nothing.
                unsafe { update(self.context, self.priority.number()) };
            }
        }
        if let (true, false, Some(unit)) = (self.held, self.locked, self.matrix_unit) {
            // SAFETY: `context` has the unit, and is held, by the line above. The calling thread is the one
            // that dispatches, which drives the unit.
            self.locked = unsafe { (unit.lock)(self.context) == 0 };
            if !self.locked {
                self.give_back();
            }
        }
        self.held
    }

    /// Gives back what is held.
    fn give_back(&mut self) {
        if let (true, Some(unit)) = (core::mem::take(&mut self.locked), self.matrix_unit) {
            // SAFETY: the thread that holds this grant has locked the unit, in `hold`.
            unsafe { (unit.unlock)(self.context) };
        }
        // SAFETY: `context` is held: both callers have looked. They are at work between two messages, at the
        // start and at the end, when no kernel runs, so that nobody touches the scratchpad.
        unsafe { sys::compute_resource_release_cached(self.context) };
        self.held = false;
    }

    /// Lets others have it, if they want it or `idle`: there is nothing to do for us.
    pub(in super::super) fn lend(&mut self, idle: bool) {
        if self.held && (WANTED.swap(false, Ordering::Relaxed) || idle) {
            self.give_back();
        }
    }
}

impl Drop for VtcmGrant {
    fn drop(&mut self) {
        self.lend(true);
        // SAFETY: `compute_resource_acquire` gave `context` in `ask`, and this is the last use of it, for
        // `self` is being dropped.
        unsafe { sys::compute_resource_release(self.context) };
    }
}

//! The scratchpad: asked for once, held while there is work, lent to others in between.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use super::sys::{self, ResourceAttributes};

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
    pub(in super::super) base: NonNull<u8>,
    pub(in super::super) bytes: usize,
}

impl VtcmGrant {
    /// Asks the resource manager for exactly `bytes`, and holds them.
    pub(in super::super) fn acquire(bytes: u32) -> Option<Self> {
        WANTED.store(false, Ordering::Relaxed);
        let mut attributes = ResourceAttributes([0; 8]);
        let attributes = &raw mut attributes;
        let (mut base, mut granted) = (core::ptr::null_mut(), 0);
        // SAFETY: `attributes` lives through the calls, the callback for ever, and the results go to the
        // variables above. Not serialised with other clients; cached, so that the grant can be lent.
        let context = unsafe {
            if sys::compute_resource_attr_init(attributes) != 0
                || sys::compute_resource_attr_set_serialize(attributes, 0) != 0
                || sys::compute_resource_attr_set_cache_mode(attributes, 1) != 0
                || sys::compute_resource_attr_set_vtcm_param_v2(attributes, bytes, bytes, bytes) != 0
                || sys::compute_resource_attr_set_release_callback(attributes, wanted, core::ptr::null_mut())
                    != 0
            {
                return None;
            }
            match sys::compute_resource_acquire(attributes, ACQUIRE_US) {
                0 => return None,
                context => {
                    sys::compute_resource_attr_get_vtcm_ptr_v2(attributes, &raw mut base, &raw mut granted);
                    context
                }
            }
        };
        match NonNull::new(base) {
            Some(base) if granted >= bytes => {
                let mut grant = Self { context, held: false, base, bytes: bytes as usize };
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
    /// it. `false` if others do not give it back in time.
    pub(in super::super) fn hold(&mut self) -> bool {
        // SAFETY: `compute_resource_acquire` gave `context` in `acquire`, and it is released when `self` is
        // dropped.
        self.held = self.held || unsafe { sys::compute_resource_acquire_cached(self.context, HOLD_US) == 0 };
        self.held
    }

    /// Lets others have it, if they want it or `idle`: there is nothing to do for us.
    pub(in super::super) fn lend(&mut self, idle: bool) {
        if self.held && (WANTED.swap(false, Ordering::Relaxed) || idle) {
            // SAFETY: `context` is held, by the line above. This is called between two messages and at the
            // end, when no kernel runs, so that nobody touches the scratchpad.
            unsafe { sys::compute_resource_release_cached(self.context) };
            self.held = false;
        }
    }
}

impl Drop for VtcmGrant {
    fn drop(&mut self) {
        self.lend(true);
        // SAFETY: `compute_resource_acquire` gave `context` in `acquire`, and this is the last use of it, for
        // `self` is being dropped.
        unsafe { sys::compute_resource_release(self.context) };
    }
}

//! Requests to the vendor's library about a process on the DSP.

use std::ffi::c_int;

use super::library::Library;

/// Calls `remote_session_control`.
pub(super) fn control<T>(library: &Library, request: u32, data: &mut T) -> c_int {
    let bytes = size_of::<T>() as u32;
    // SAFETY: the struct of this request, per the callers here; its addresses live through the call.
    unsafe { (library.functions().remote_session_control)(request, (&raw mut *data).cast(), bytes) }
}

//! FastRPC's interface on the host: types, numbers and structs, from the public sources.

use std::ffi::{CStr, c_char, c_int, c_void};

/// The compute DSP, which is the default domain.
pub(super) const CDSP: i32 = 3;
/// The name of the compute DSP.
pub(super) const CDSP_NAME: &CStr = c"cdsp";

/// Shared memory comes from this heap, cached.
pub(super) const HEAP_SYSTEM: c_int = 25;
pub(super) const CACHED: u32 = 1;
/// The DSP maps the memory itself, by its fd.
pub(super) const MAP_FD_DELAYED: u32 = 3;

/// Requests of `remote_session_control`.
pub(super) mod session {
    pub const UNSIGNED_MODULE: u32 = 2;
    pub const PROCESS_KILL: u32 = 6;
    pub const REGISTER_STATUS_NOTIFICATIONS: u32 = 11;
    pub const RESERVE_NEW_SESSION: u32 = 13;
    pub const GET_EFFECTIVE_DOMAIN_ID: u32 = 14;
    pub const GET_URI: u32 = 15;
}

/// Request of `remote_handle_control`.
pub(super) const GET_DSP_INFO: u32 = 2;
/// Its attribute: the version, with other bits above the low byte.
pub(super) const ARCH_VERSION: u32 = 6;
/// Its attributes: bytes of the largest page of VTCM, and how many such pages there are.
pub(super) const VTCM_PAGE: u32 = 4;
pub(super) const VTCM_COUNT: u32 = 5;
/// Request of `remote_handle64_control`: keep the CPU awake while calls are under way.
pub(super) const CONTROL_LATENCY: u32 = 1;

/// A text as the library takes it: where it begins, and its bytes without the NUL.
///
/// The library only asks whether the length is 0, and reads up to the NUL (qualcomm/fastrpc,
/// `fastrpc_apps_user.c`: `snprintf` with `%s`, `strncmp`, `strlcpy`), so that every text has one.
pub(super) fn text(text: &CStr) -> (*const c_char, u32) {
    // Our texts are literals and a URI of a few dozen bytes.
    (text.as_ptr(), text.count_bytes() as u32)
}

/// A queue.
pub(super) type RawQueue = *mut c_void;

#[derive(Debug)]
#[repr(C)]
pub(super) struct UnsignedModule {
    pub domain: c_int,
    pub enable: c_int,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct ProcessKill {
    pub domain: c_int,
}

/// Called on a thread of the library's: context, domain, session, status.
pub(super) type Notify = unsafe extern "C" fn(*mut c_void, c_int, c_int, u32) -> c_int;

#[derive(Debug)]
#[repr(C)]
pub(super) struct NotifyRegister {
    pub context: *mut c_void,
    pub domain: c_int,
    pub notify: Notify,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct ReserveSession {
    pub domain_name: *const c_char,
    pub domain_name_length: u32,
    pub session_name: *const c_char,
    pub session_name_length: u32,
    pub effective_domain_id: u32,
    pub session_id: u32,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct EffectiveDomain {
    pub domain_name: *const c_char,
    pub domain_name_length: u32,
    pub session_id: u32,
    pub effective_domain_id: u32,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct GetUri {
    pub domain_name: *const c_char,
    pub domain_name_length: u32,
    pub session_id: u32,
    pub module_uri: *const c_char,
    pub module_uri_length: u32,
    pub uri: *mut c_char,
    pub uri_length: u32,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Capability {
    pub domain: u32,
    pub attribute: u32,
    pub capability: u32,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Latency {
    pub enable: u32,
    pub latency: u32,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ReserveSession>() == 40 && size_of::<EffectiveDomain>() == 24);
    assert!(size_of::<GetUri>() == 48 && size_of::<NotifyRegister>() == 24);
};

/// An argument of a call: a buffer. (Methods of ours have no others.)
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct RemoteArg {
    pub data: *mut c_void,
    pub bytes: usize,
}
const _: () = assert!(size_of::<RemoteArg>() == 2 * size_of::<usize>());

impl RemoteArg {
    /// Bytes to read or to write.
    pub(super) fn of(bytes: &mut [u8]) -> Self {
        Self { data: bytes.as_mut_ptr().cast(), bytes: bytes.len() }
    }
}

/// A buffer of a packet. Ours have none, but packets of the DSP are read with room for them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct QueueBuffer {
    pub fd: u32,
    pub size: u32,
    pub offset: u32,
    pub flags: u32,
    pub address: u64,
}
const _: () = assert!(size_of::<QueueBuffer>() == 24);

/// Buffers of a packet at most.
pub(super) const MAX_QUEUE_BUFFERS: usize = 64;

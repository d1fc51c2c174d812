//! The stand-in keeps to the rules of FastRPC, and reports who does not.

use std::ffi::{c_int, c_void};

use cdsprpc::standin::StandIn;

type Alloc = unsafe extern "C" fn(c_int, u32, c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type ToFd = unsafe extern "C" fn(*mut c_void) -> c_int;
type Map = unsafe extern "C" fn(c_int, c_int, *mut c_void, c_int, usize, u32) -> c_int;
type Unmap = unsafe extern "C" fn(c_int, c_int, *mut c_void, usize) -> c_int;

const BAD_STATE: c_int = 0xd;
const BAD_PARAMETER: c_int = 0xe;
const ALREADY: c_int = 0x1a;
const NO_SUCH_MAP: c_int = 0x48;
const NO_MEMORY: c_int = 2;
const CDSP: c_int = 3;

#[test]
fn memory_is_mapped_once_within_limits_and_unmapped_before_it_is_freed() {
    let standin = StandIn::new("mapping=12288");
    let device = standin.open().unwrap();
    // SAFETY: the functions of the interface, with memory of their own.
    unsafe {
        let (alloc, free, to_fd): (Alloc, Free, ToFd) =
            (standin.symbol("rpcmem_alloc"), standin.symbol("rpcmem_free"), standin.symbol("rpcmem_to_fd"));
        let (map, unmap): (Map, Unmap) = (standin.symbol("fastrpc_mmap"), standin.symbol("fastrpc_munmap"));
        assert!(alloc(25, 0, 100).is_null(), "uncached");
        let a = alloc(25, 1, 8192);
        let b = alloc(25, 1, 20_000);
        let (fd, fd_b) = (to_fd(a), to_fd(b));
        assert!(fd > 0 && to_fd(std::ptr::without_provenance_mut(8)) == -1);
        assert_eq!(map(CDSP, 12345, a, 0, 8192, 3), BAD_PARAMETER, "not an fd of its own");
        assert_eq!(map(CDSP, fd, a, 0, 8193, 3), BAD_PARAMETER, "more than there is");
        assert_eq!(map(CDSP, fd, a, 4096, 4096, 3), BAD_PARAMETER, "an offset");
        assert_eq!(map(CDSP, fd, a, 0, 8192, 5), BAD_PARAMETER, "flags");
        assert_eq!(map(CDSP + 8, fd, a, 0, 8192, 3), BAD_PARAMETER, "a domain that was computed");
        assert_eq!(unmap(CDSP, fd, a, 8192), NO_SUCH_MAP);
        assert_eq!(map(CDSP, fd, a, 0, 8192, 3), 0);
        assert_eq!(map(CDSP, fd, a, 0, 8192, 3), ALREADY);
        assert_eq!(map(CDSP, fd_b, b, 0, 20_000, 3), NO_MEMORY, "more than one mapping may have");
        assert_eq!(unmap(CDSP, fd, a, 4096), NO_SUCH_MAP, "another length");
        free(b);
        assert_eq!(standin.violations().len(), 1, "uncached memory: {:?}", standin.violations());
        free(a);
        let found = standin.violations();
        assert!(found[1].contains("still mapped"), "{found:?}");
        assert_eq!(unmap(CDSP, fd, a, 8192), 0);
        drop(device);
        assert_eq!(map(CDSP, fd, std::ptr::null_mut(), 0, 8192, 3), BAD_PARAMETER);
    }
    assert_eq!(standin.census(), [0; 5]);
}

#[test]
fn sessions_are_limited_and_unsigned_libraries_are_announced_before_the_process() {
    let standin = StandIn::new("sessions=3");
    let mut options = standin.options();
    if let Some(htp) = options.htp.as_deref_mut() {
        htp.reserve = true;
    }
    let open = || hexflash::device::htp::Htp::open(&options);
    let (first, second) = (open().unwrap(), open().unwrap());
    let error = open().err().unwrap().to_string();
    assert!(error.contains("RESERVE_NEW_SESSION") && error.contains("EBUSY"), "{error}");
    let own = standin.open().unwrap();
    let mut request = [CDSP, 1];
    // SAFETY: request 2 takes a domain and a flag, two words, which live through the call, and the type is
    // that of the function.
    let code = unsafe {
        let control: unsafe extern "C" fn(u32, *mut [c_int; 2], u32) -> c_int =
            standin.symbol("remote_session_control");
        control(2, &raw mut request, 8)
    };
    assert_eq!(code, BAD_STATE);
    drop((first, own));
    // What was given back can be had again.
    let third = open().unwrap();
    drop((second, third));
    standin.is_clean();
}

/// A library whose vendor left functions out: the optional one is done without, the other is named.
#[test]
fn functions_may_be_missing() {
    let without = |name: &'static str| {
        move |file: &mut Vec<u8>| {
            let wanted: Vec<u8> = [b"\0", name.as_bytes(), b"\0"].concat();
            let at: Vec<usize> =
                (0..file.len() - wanted.len()).filter(|&i| file[i..].starts_with(&wanted)).collect();
            assert!(!at.is_empty(), "{name}");
            for at in at {
                file[at + 1] = b'X';
            }
        }
    };
    for name in ["rpcmem_alloc2", "remote_handle64_control"] {
        let standin = StandIn::changed("", without(name));
        drop(standin.open().unwrap_or_else(|error| panic!("{name}: {error}")));
        standin.is_clean();
    }
    let standin = StandIn::changed("", without("dspqueue_export"));
    let error = standin.open().err().unwrap();
    assert!(error.is_absence());
    let error = error.to_string();
    assert!(error.contains("has no function dspqueue_export") && error.contains("name another"), "{error}");
}

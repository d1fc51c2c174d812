//! The vendor's library, opened at run time, once per process.
//!
//! It stays open until the process ends: it has threads and thread-specific data of its own, ends the process
//! where it counts too many instances of itself, and no other client closes it.
//!
//! hexflash is not linked with it: the same program runs where there is none. Its path differs from system to
//! system, and what it exports from release to release.

use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

use super::error::HtpError;
use super::ffi::{QueueBuffer, RawQueue, RemoteArg};

/// Where the library is looked for. Without a folder, the loader decides, which on Android is what works:
/// programs may not open the vendor's folders themselves.
const PATHS: &[&str] = &[
    "libcdsprpc.so",
    "libcdsprpc.so.1",
    "/vendor/lib64/libcdsprpc.so",
    "/system/vendor/lib64/libcdsprpc.so",
    "/usr/lib/libcdsprpc.so",
    "/usr/lib/aarch64-linux-gnu/libcdsprpc.so",
];

macro_rules! symbols {
    (
        required { $($name:ident: fn($($argument:ty),* $(,)?) -> $result:ty;)+ }
        optional { $($extra:ident: fn($($extra_argument:ty),* $(,)?) -> $extra_result:ty;)+ }
    ) => {
        /// The library's functions.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)+
            $(pub(super) $extra: Option<unsafe extern "C" fn($($extra_argument),*) -> $extra_result>,)+
        }

        impl Functions {
            fn find(handle: &Handle, library: &Path) -> Result<Self, HtpError> {
                // SAFETY: the types are those of the published interface, and the library is never closed.
                unsafe {
                    Ok(Self {
                        $($name: *handle.get(concat!(stringify!($name), "\0").as_bytes()).map_err(|_| {
                            HtpError::NoSymbol { library: library.to_owned(), symbol: stringify!($name) }
                        })?,)+
                        $($extra: handle
                            .get(concat!(stringify!($extra), "\0").as_bytes())
                            .ok()
                            .map(|symbol| *symbol),)+
                    })
                }
            }
        }
    };
}

symbols! {
    required {
        rpcmem_alloc: fn(c_int, u32, c_int) -> *mut c_void;
        rpcmem_free: fn(*mut c_void) -> ();
        rpcmem_to_fd: fn(*mut c_void) -> c_int;
        fastrpc_mmap: fn(c_int, c_int, *mut c_void, c_int, usize, u32) -> c_int;
        fastrpc_munmap: fn(c_int, c_int, *mut c_void, usize) -> c_int;
        remote_session_control: fn(u32, *mut c_void, u32) -> c_int;
        remote_handle_control: fn(u32, *mut c_void, u32) -> c_int;
        remote_handle64_open: fn(*const c_char, *mut u64) -> c_int;
        remote_handle64_invoke: fn(u64, u32, *mut RemoteArg) -> c_int;
        remote_handle64_close: fn(u64) -> c_int;
        dspqueue_create: fn(
            c_int, u32, u32, u32, *const c_void, *const c_void, *mut c_void, *mut RawQueue,
        ) -> c_int;
        dspqueue_close: fn(RawQueue) -> c_int;
        dspqueue_export: fn(RawQueue, *mut u64) -> c_int;
        dspqueue_write: fn(RawQueue, u32, u32, *mut QueueBuffer, u32, *const u8, u32) -> c_int;
        dspqueue_read: fn(
            RawQueue, *mut u32, u32, *mut u32, *mut QueueBuffer, u32, *mut u32, *mut u8, u32,
        ) -> c_int;
    }
    optional {
        rpcmem_alloc2: fn(c_int, u32, usize) -> *mut c_void;
        remote_handle64_control: fn(u64, u32, *mut c_void, u32) -> c_int;
    }
}

/// The library.
#[derive(Debug)]
pub(super) struct Library {
    functions: Functions,
    path: PathBuf,
}

/// Libraries that were opened, by the name that was asked for.
static OPEN: Mutex<Vec<(Option<PathBuf>, Arc<Library>)>> = Mutex::new(Vec::new());

impl Library {
    /// The library: the one that is named, or the first of those that systems have.
    pub(super) fn open(named: Option<&Path>) -> Result<Arc<Self>, HtpError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, library)) = open.iter().find(|(name, _)| name.as_deref() == named) {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Self::load(named)?);
        open.push((named.map(Path::to_owned), Arc::clone(&library)));
        Ok(library)
    }

    fn load(named: Option<&Path>) -> Result<Self, HtpError> {
        let paths = match named {
            Some(path) => vec![path.to_owned()],
            None => PATHS.iter().map(PathBuf::from).collect(),
        };
        let mut failure = None;
        for path in paths {
            // Opening a pipe would wait for its writer. A name without a folder is the loader's business.
            if path.metadata().is_ok_and(|about| !about.is_file()) {
                failure = Some((path, "is not a file".to_owned()));
                continue;
            }
            // SAFETY: the vendor's library, or the one that the user names: what it does when it is opened is
            // up to it.
            match unsafe { Handle::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(handle) => {
                    // Never closed: see above.
                    let handle = ManuallyDrop::new(handle);
                    let functions = Functions::find(&handle, &path)?;
                    if functions.rpcmem_alloc2.is_none() {
                        tracing::debug!("{} has no rpcmem_alloc2: no buffer has 2 GiB", path.display());
                    }
                    return Ok(Self { functions, path });
                }
                Err(error) => {
                    let reason = reason(&error);
                    tracing::debug!("{}: {reason}", path.display());
                    // A library that is there and cannot be opened says more than all that are not there.
                    if failure.is_none() && !is_absence(&reason) {
                        failure = Some((path, format!("cannot be opened ({reason})")));
                    }
                }
            }
        }
        let (library, why) = failure
            .unwrap_or_else(|| (named.unwrap_or(Path::new(PATHS[0])).to_owned(), "was not found".to_owned()));
        Err(HtpError::NoLibrary { library, why })
    }

    /// Its functions.
    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Where it was found.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether the loader says that there is no such library, in the words of glibc and musl, or of Android.
fn is_absence(reason: &str) -> bool {
    reason.contains("No such file or directory") || reason.ends_with("not found")
}

/// The loader's words, on one line.
fn reason(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string).replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceError;

    /// Messages of the loaders of glibc and musl, and of Android 9 and 14.
    #[test]
    fn a_library_that_is_not_there_is_told_from_one_that_the_system_keeps_to_itself() {
        for absent in [
            "libcdsprpc.so: cannot open shared object file: No such file or directory",
            "Error loading shared library libcdsprpc.so: No such file or directory",
            "dlopen failed: library \"libcdsprpc.so\" not found",
        ] {
            assert!(is_absence(absent), "{absent}");
        }
        let kept = "dlopen failed: library \"/vendor/lib64/libcdsprpc.so\" needed or dlopened by \
                    \"/data/data/x/hexflash\" is not accessible for the namespace \"(default)\"";
        assert!(!is_absence(kept));
        let error = |why: &str| {
            let error =
                HtpError::NoLibrary { library: PATHS[2].into(), why: format!("cannot be opened ({why})") };
            DeviceError::from(error).to_string()
        };
        let text = error(kept);
        assert!(text.contains("uses-native-library") && !text.contains("Snapdragon"), "{text}");
        let text = error("wrong ELF class");
        assert!(text.contains("run on a Snapdragon device"), "{text}");
    }
}

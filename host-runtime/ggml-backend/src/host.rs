//! The ggml that has loaded this library: its functions, and whether its numbers are those that we know.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Display;
use std::sync::OnceLock;

use hexflash::gguf::GgmlType;
use libloading::os::unix::Library;

use crate::abi::{ApiVersion, Buffer, BufferInterface, BufferType};
use crate::loaded;
use crate::op::{GluOp, Op, UnaryOp};

type Version = unsafe extern "C" fn() -> *const c_char;
type NameOf = unsafe extern "C" fn(c_int) -> *const c_char;
type BufferInit = unsafe extern "C" fn(*mut BufferType, BufferInterface, *mut c_void, usize) -> *mut Buffer;
/// Numbers and their names.
type Names<'n> = Vec<(c_int, &'n str)>;
type Log = unsafe extern "C" fn(c_int, *const c_char, ...);

/// `GGML_LOG_LEVEL_INFO`.
const INFO: c_int = 2;
/// `GGML_LOG_LEVEL_ERROR`.
const ERROR: c_int = 4;

/// What is called in the host.
struct Host {
    buffer_init: BufferInit,
    log: Option<Log>,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// Finds the host's functions and compares its numbers with ours; gives the version of its interface.
///
/// # Errors
/// In one line: what is missing, or which number differs.
pub fn find() -> Result<ApiVersion, String> {
    let process = Library::this();
    let private = loaded::base();
    macro_rules! function {
        ($name:literal as $kind:ty) => {{
            let name = concat!($name, "\0").as_bytes();
            let found = [Some(&process), private.as_ref()].into_iter().flatten().find_map(|library| {
                // SAFETY: ggml's headers declare the function of this name with this type, from 0.9 on.
                unsafe { library.get::<$kind>(name) }.ok().map(|symbol| *symbol)
            });
            found.ok_or_else(|| {
                format!("{} is not found: load ggml with global symbols, or as libggml-base", $name)
            })
        }};
    }
    let log = function!("ggml_log_internal" as Log).ok();
    let buffer_init = function!("ggml_backend_buffer_init" as BufferInit)?;
    // Also where the comparison fails: the message goes the host's way.
    HOST.get_or_init(|| Host { buffer_init, log });
    let version = function!("ggml_version" as Version)?;
    // SAFETY: it takes nothing, and gives a string that lives as long as ggml.
    let version = unsafe { text(version()) };
    let Some(interface) = interface_of(&version) else {
        return Err(format!("ggml {version} has another backend interface than ggml 0.25 to 0.27"));
    };
    let lists: [(&str, NameOf, Names<'_>); 4] = [
        ("op", function!("ggml_op_name" as NameOf)?, Op::NAMES.to_vec()),
        ("unary op", function!("ggml_unary_op_name" as NameOf)?, UnaryOp::NAMES.to_vec()),
        ("GLU op", function!("ggml_glu_op_name" as NameOf)?, GluOp::NAMES.to_vec()),
        ("type", function!("ggml_type_name" as NameOf)?, type_names()),
    ];
    for (what, name_of, known) in lists {
        for (number, name) in known {
            // SAFETY: ggml 0.26 and later have ops and types of at least these numbers, and look the name up
            // in a table that lives as long as ggml.
            let found = unsafe { text(name_of(number)) };
            if !found.eq_ignore_ascii_case(name) {
                return Err(format!("{what} {number} of ggml {version} is {found:?}, not {name:?}"));
            }
        }
    }
    Ok(interface)
}

/// The interface that a version of ggml, such as `0.27.0`, has; `None` if it is not one of [`crate::abi`].
/// What is before 0.25 has version 2, too, but perhaps not all else that this library relies on.
fn interface_of(version: &str) -> Option<ApiVersion> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next()??, parts.next()??) {
        (0, 25) => Some(ApiVersion::Two),
        (0, 26..) => Some(ApiVersion::Three),
        _ => None,
    }
}

/// The types that this library handles, by number. Those that it does not know it never touches.
fn type_names() -> Vec<(c_int, &'static str)> {
    let tiled = hexflash::weights::tiles::TILED.iter().copied();
    let plain = [GgmlType::I32, GgmlType::I64];
    tiled.chain(plain).map(|ty| (ty.id() as c_int, ty.name())).collect()
}

/// # Safety
/// `name` is null or a string that lives as long as this process uses ggml.
unsafe fn text(name: *const c_char) -> String {
    if name.is_null() {
        return "nothing".to_owned();
    }
    // SAFETY: not null, and so a string (the caller's contract).
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// A buffer object of the host's for memory of ours; null before [`find`] was called.
///
/// # Safety
/// `ty` is one of our buffer types, and `context` is what the functions of `interface` expect.
pub unsafe fn new_buffer(
    ty: *mut BufferType,
    interface: BufferInterface,
    context: *mut c_void,
    bytes: usize,
) -> *mut Buffer {
    match HOST.get() {
        // SAFETY: the tables have the host's layout, which `find` has made sure of; the rest is the caller's
        // contract.
        Some(host) => unsafe { (host.buffer_init)(ty, interface, context, bytes) },
        None => std::ptr::null_mut(),
    }
}

/// Prints an error as the host prints its own.
pub fn report(error: impl Display) {
    print(ERROR, error);
}

/// Prints a line as the host prints what is no error.
pub fn tell(line: impl Display) {
    print(INFO, line);
}

fn print(level: c_int, line: impl Display) {
    let line = format!("hexflash: {line}\n");
    let log = HOST.get().and_then(|host| host.log);
    match (log, CString::new(line.as_str())) {
        // SAFETY: a format that takes one string, and that string.
        (Some(log), Ok(line)) => unsafe { log(level, c"%s".as_ptr(), line.as_ptr()) },
        _ => {
            use std::io::Write;
            // There is nobody to tell of a failure here.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::interface_of;
    use crate::abi::ApiVersion;

    #[test]
    fn versions_have_their_interface() {
        assert!(["0.26.0", "0.27.1"].into_iter().all(|new| interface_of(new) == Some(ApiVersion::Three)));
        assert_eq!(interface_of("0.25.1"), Some(ApiVersion::Two));
        assert!(
            ["0.24.9", "0.9.4", "1.0.0", "", "b1234"].into_iter().all(|other| interface_of(other).is_none())
        );
    }
}

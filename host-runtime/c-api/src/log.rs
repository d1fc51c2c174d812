//! The log: lines of the library to a function of the program, which is all that is global here.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;

use crate::boundary::{call, given};
use crate::failure::{Failure, HEXFLASH_OK, Status};

/// No lines.
pub const HEXFLASH_LOG_OFF: c_int = 0;
/// Failures that no call returns.
pub const HEXFLASH_LOG_ERROR: c_int = 1;
/// Warnings for users, such as of a cache of weights that cannot be written.
pub const HEXFLASH_LOG_WARN: c_int = 2;
/// Events that come once for a model or a device.
pub const HEXFLASH_LOG_INFO: c_int = 3;
/// Details that help to find a fault.
pub const HEXFLASH_LOG_DEBUG: c_int = 4;

/// Function that gets a line of the log, with one of `HEXFLASH_LOG_ERROR` to `HEXFLASH_LOG_DEBUG`. The line
/// ends with a zero byte, without a line break, and is good until the function returns. It comes on any
/// thread, one line at a time. The function must not call this library.
pub type OnLine = Option<extern "C" fn(level: c_int, line: *const c_char, user_data: *mut c_void)>;

/// Function of the program, and what it gets.
struct Listener {
    on_line: extern "C" fn(c_int, *const c_char, *mut c_void),
    /// Address of the user's data, which nobody here follows.
    user_data: usize,
}

/// Listener to the log.
static LISTENER: Mutex<Option<Listener>> = Mutex::new(None);
/// Handle by which the level is changed; `None` where a log could not be set up.
static LEVEL: OnceLock<Option<reload::Handle<LevelFilter, Registry>>> = OnceLock::new();

/// Line that is being written.
struct Line(c_int);

impl io::Write for Line {
    /// Hands on a line, which comes in one piece.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).trim().replace('\0', "\u{fffd}");
        // It is held while the function runs, so that it is not called any more once another has taken its
        // place.
        let listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(listener), Ok(line)) = (&*listener, CString::new(text)) {
            (listener.on_line)(
                self.0,
                line.as_ptr(),
                std::ptr::with_exposed_provenance_mut(listener.user_data),
            );
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Maker of lines.
struct Lines;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(HEXFLASH_LOG_INFO)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        Line(match *meta.level() {
            Level::ERROR => HEXFLASH_LOG_ERROR,
            Level::WARN => HEXFLASH_LOG_WARN,
            Level::INFO => HEXFLASH_LOG_INFO,
            Level::DEBUG | Level::TRACE => HEXFLASH_LOG_DEBUG,
        })
    }
}

/// Sets up the log of this library, without lines.
fn set_up() -> Option<reload::Handle<LevelFilter, Registry>> {
    let (filter, handle) = reload::Layer::new(LevelFilter::OFF);
    let lines = fmt::layer()
        .with_writer(Lines)
        .with_ansi(false)
        .with_target(false)
        .with_level(false)
        .without_time()
        .log_internal_errors(false);
    let log = tracing_subscriber::registry().with(filter).with(lines);
    tracing::subscriber::set_global_default(log).ok().map(|()| handle)
}

/// Sends lines of the log to `on_line`, up to a level from `HEXFLASH_LOG_OFF` to `HEXFLASH_LOG_DEBUG`;
/// without this call, there is no log. The last call counts, for the whole process. When it has returned, the
/// function before is not called any more. `user_data` may be NULL, and `on_line`, too, with
/// `HEXFLASH_LOG_OFF`.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_set_log(level: c_int, on_line: OnLine, user_data: *mut c_void) -> Status {
    call(|| {
        let filter = match level {
            HEXFLASH_LOG_OFF => LevelFilter::OFF,
            HEXFLASH_LOG_ERROR => LevelFilter::ERROR,
            HEXFLASH_LOG_WARN => LevelFilter::WARN,
            HEXFLASH_LOG_INFO => LevelFilter::INFO,
            HEXFLASH_LOG_DEBUG => LevelFilter::DEBUG,
            _ => return Err(Failure::input(format!("there is no level {level} of the log; give 0 to 4"))),
        };
        let listener = match level {
            HEXFLASH_LOG_OFF => None,
            _ => {
                let user_data = user_data.expose_provenance();
                Some(Listener { on_line: given(on_line, "on_line")?, user_data })
            }
        };
        let handle = LEVEL.get_or_init(set_up).as_ref();
        let failed = || Failure::system("the log cannot be set up: this process has another one");
        handle.ok_or_else(failed)?.reload(filter).map_err(|_| failed())?;
        *LISTENER.lock().unwrap_or_else(PoisonError::into_inner) = listener;
        Ok(HEXFLASH_OK)
    })
}

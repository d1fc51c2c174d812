//! The end of a connection over adb. Where adb is killed or its cable is pulled, no signal reaches a program
//! on the device that has no terminal: nobody reads its output any more, and one that prints nothing, such as
//! a server, would run on for ever.

use std::io::stdout;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::SIGHUP;
use signal_hook::low_level;

/// Variable that `hexflash deploy` sets for the program on the device.
pub(super) const OVER_ADB: &str = "HEXFLASH_OVER_ADB";

/// Bytes of the stack of a thread that waits.
const STACK: usize = 64 << 10;

/// Over adb, has this process get a SIGHUP as soon as nobody reads its standard output any more.
pub(super) fn watch() {
    if std::env::var_os(OVER_ADB).is_none() {
        return;
    }
    let thread = thread::Builder::new().name("hexflash-output".to_owned()).stack_size(STACK).spawn(wait);
    if let Err(error) = thread {
        tracing::debug!("a connection that ends will not end the program: {error}");
    }
}

/// Waits until the other end of standard output is closed. A file or a terminal has none, and the thread then
/// ends with the process.
fn wait() {
    let output = stdout();
    // Errors and hang-ups are told without being asked for.
    let mut files = [PollFd::new(&output, PollFlags::empty())];
    while poll(&mut files, None) == Err(Errno::INTR) {}
    if files[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
        // It fails only for signals that do not exist.
        let _ = low_level::raise(SIGHUP);
    }
}

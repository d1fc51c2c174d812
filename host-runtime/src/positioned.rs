//! Reading and writing of files at a place, from any thread and without a mapping.
//!
//! A mapped file that somebody shortens ends the process with SIGBUS at the next touch; a read that finds too
//! little is an error like any other. So whatever others could change is read, not mapped.

use std::fs::File;
use std::io;

/// Fills `out` with the bytes from `at` on.
///
/// # Errors
/// The system's, or [`io::ErrorKind::UnexpectedEof`] where the file ends before.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

/// Writes all of `bytes` from `at` on.
///
/// # Errors
/// The system's.
#[cfg(unix)]
pub(crate) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => (out, at) = (&mut out[n..], at + n as u64),
        }
    }
    Ok(())
}

#[cfg(windows)]
pub(crate) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, at)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => (bytes, at) = (&bytes[n..], at + n as u64),
        }
    }
    Ok(())
}

//! Standard input and output, for the parts of the image that answer records.

use hexflash_dsp::platform::linux::Stream;
use hexflash_dsp::platform::linux::sys::{self, Call};

use super::Failure;
use super::serve::failed;

/// Reads standard input until `to` is full or the input ends; gives the bytes read.
pub(super) fn read(to: &mut [u8]) -> Result<usize, Failure> {
    let mut done = 0;
    while done < to.len() {
        let rest = &mut to[done..];
        let a = [0, rest.as_mut_ptr() as u32, rest.len() as u32, 0, 0, 0];
        // SAFETY: the system writes at most `rest.len()` bytes at `rest.as_mut_ptr()`, which are those of a
        // slice.
        match unsafe { sys::call(Call::Read, a) }.map_err(failed("cannot read"))? {
            0 => break,
            n => done += n as usize,
        }
    }
    Ok(done)
}

/// Writes all bytes to standard output.
pub(super) fn write(mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let a = [Stream::Out as u32, bytes.as_ptr() as u32, bytes.len() as u32, 0, 0, 0];
        // SAFETY: the system reads `bytes.len()` bytes at `bytes.as_ptr()`, which are those of a slice.
        let n = unsafe { sys::call(Call::Write, a) }.map_err(failed("cannot write"))? as usize;
        bytes = bytes.get(n.max(1)..).unwrap_or(&[]);
    }
    Ok(())
}

//! Questions of the host's library: memory, queues, and calls of the skel's methods.

use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use hexflash_fastrpc::aee;
use hexflash_fastrpc::frame::{self, Ask, Cursor, Words};
use hexflash_image::rpc::RemoteArg;
use hexflash_image::skel::hexflash_skel_handle_invoke;

use crate::argument::Argument;
use crate::state::violation;
use crate::{guest, queue, qurt, views, vtcm};

/// Answers until the host is gone, or says that this is the end.
pub(crate) fn serve() -> io::Result<()> {
    // SAFETY: standard input is the socket that the host's library gave to this process, and used by nobody
    // else.
    let mut socket = unsafe { UnixStream::from_raw_fd(0) };
    loop {
        let (ask, mut words) = match frame::question(&mut socket) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            question => question?,
        };
        let (code, answer) = match ask {
            Ask::Announce => {
                views::announce(words.number()? as i32, words.number()? as usize);
                (0, Words::default())
            }
            Ask::Withdraw => (views::withdraw(words.number()? as i32), Words::default()),
            Ask::Queue => {
                let (id, fd, bytes) = (words.number()?, words.number()?, words.number()?);
                queue::announce(id, fd as i32, bytes as usize)?;
                (0, Words::default())
            }
            Ask::CloseQueue => (i32::from(queue::withdraw(words.number()?)), Words::default()),
            Ask::Open => open(words.bytes()?)?,
            Ask::Invoke => invoke(&mut words)?,
            Ask::End => {
                views::check_end();
                queue::check_end();
                qurt::check_end();
                vtcm::check_end();
                crate::hap::check_end();
                guest::end();
                frame::send(&mut socket, 0, Words::default())?;
                return Ok(());
            }
        };
        frame::send(&mut socket, code as u32, answer)?;
    }
}

/// Calls a method of the library that is loaded: with buffers, first those for input, and with handles, which
/// are as many as the scalars say.
fn call(handle: u64, scalars: u32, buffers: &mut [Vec<u8>], handles: &mut [u64]) -> i32 {
    if guest::is_on() {
        return guest::invoke(handle, scalars, buffers, handles);
    }
    let mut arguments: Vec<_> = buffers.iter().map(|bytes| Argument::new(bytes)).collect();
    let mut args: Vec<_> = arguments.iter_mut().map(|one| RemoteArg::buffer(one.bytes_mut())).collect();
    args.extend(handles.iter().map(|&handle| RemoteArg::of_handle(handle)));
    // SAFETY: `args` has as many valid arguments as the scalars say, which nobody else touches: their memory
    // is borrowed exclusively.
    let code = unsafe { hexflash_skel_handle_invoke(handle, scalars, args.as_mut_ptr()) };
    for (to, from) in buffers.iter_mut().zip(&mut arguments) {
        to.copy_from_slice(from.bytes_mut());
    }
    for (to, from) in handles.iter_mut().zip(&args[buffers.len()..]) {
        // SAFETY: this argument was made as a handle, and a call writes it as nothing else.
        *to = unsafe { from.as_handle() };
    }
    code
}

/// FastRPC calls method 0 with the URI.
fn open(uri: Vec<u8>) -> io::Result<(i32, Words)> {
    const OPEN: u32 = 2 << 16 | 1;
    if guest::is_on() {
        guest::start(&uri)?;
    }
    let mut uri = uri;
    uri.push(0);
    let length = (uri.len() as u32).to_le_bytes().to_vec();
    let mut handle = [0];
    let code = call(0, OPEN, &mut [length, uri], &mut handle);
    Ok((code, Words::default().number(handle[0])))
}

fn invoke(words: &mut Cursor) -> io::Result<(i32, Words)> {
    let (handle, scalars) = (words.number()?, words.number()? as u32);
    let (inputs, outputs) = (scalars >> 16 & 0xff, scalars >> 8 & 0xff);
    let mut buffers = Vec::new();
    for _ in 0..inputs {
        buffers.push(words.bytes()?);
    }
    for _ in 0..outputs {
        buffers.push(vec![0; words.number()? as usize]);
    }
    // The host's library asks for no output handles here.
    let mut handles = Vec::new();
    for _ in 0..scalars >> 4 & 0xf {
        handles.push(words.number()?);
    }
    const RUN: u32 = 5;
    let is_message = scalars >> 24 & 0x1f == RUN;
    if is_message {
        queue::after_reading();
    }
    let code = call(handle, scalars, &mut buffers, &mut handles);
    if is_message {
        queue::before_answering();
    }
    if code != 0 && (code as u32) < aee::DSP_OFFSET {
        violation(&format!("method {} gave {code:#x}: codes of a DSP have an offset", scalars >> 24));
    }
    let outputs = buffers.iter().skip(inputs as usize);
    Ok((code, outputs.fold(Words::default(), |words, bytes| words.bytes(bytes))))
}

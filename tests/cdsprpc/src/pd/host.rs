//! Questions of the host's library: memory, queues, and calls of the skel's methods.

use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use hexflash_fastrpc::aee;
use hexflash_fastrpc::frame::{self, Ask, Cursor, Words};
use hexflash_image::rpc::{self, RemoteArg};
use hexflash_image::skel::hexflash_skel_handle_invoke;

use crate::state::{CONFIG, violation};
use crate::{emulated, queue, qurt, views, vtcm};

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
            Ask::Open => open(words.bytes()?),
            Ask::Invoke => invoke(&mut words)?,
            Ask::End => {
                views::check_end();
                queue::check_end();
                qurt::check_end();
                vtcm::check_end();
                crate::hap::check_end();
                frame::send(&mut socket, 0, Words::default())?;
                return Ok(());
            }
        };
        frame::send(&mut socket, code as u32, answer)?;
    }
}

/// Calls a method of the library that is loaded.
///
/// # Safety
/// As many valid arguments as the scalars say.
unsafe fn call(handle: u64, scalars: u32, args: &mut [RemoteArg]) -> i32 {
    let args = args.as_mut_ptr();
    if CONFIG.text("dsp") == Some("qemu") {
        // SAFETY: `args` has as many valid arguments as the scalars say (the caller's contract), and nobody
        // else touches them, for they are borrowed exclusively.
        let outcome = unsafe { rpc::invoke(&mut *emulated::library(), handle, scalars, args) };
        return outcome.map_or_else(rpc::AeeError::code, |()| 0);
    }
    // SAFETY: `args` has as many valid arguments as the scalars say (the caller's contract), and nobody else
    // touches them, for they are borrowed exclusively.
    unsafe { hexflash_skel_handle_invoke(handle, scalars, args) }
}

/// FastRPC calls method 0 with the URI.
fn open(uri: Vec<u8>) -> (i32, Words) {
    const OPEN: u32 = 2 << 16 | 1;
    let mut uri = uri;
    uri.push(0);
    let mut length = (uri.len() as u32).to_le_bytes();
    let mut args = [RemoteArg::buffer(&mut length), RemoteArg::buffer(&mut uri), RemoteArg::of_handle(0)];
    // SAFETY: OPEN names two input buffers and an output handle, which are the three arguments; their memory
    // lives through the call.
    let code = unsafe { call(0, OPEN, &mut args) };
    // SAFETY: the third argument was made as a handle, and the call writes it as nothing else.
    (code, Words::default().number(unsafe { args[2].as_handle() }))
}

fn invoke(words: &mut Cursor) -> io::Result<(i32, Words)> {
    let (handle, scalars) = (words.number()?, words.number()? as u32);
    let (inputs, outputs) = (scalars >> 16 & 0xff, scalars >> 8 & 0xff);
    let handles = scalars >> 4 & 0xf;
    let mut memory = Vec::new();
    for _ in 0..inputs {
        memory.push(words.bytes()?);
    }
    for _ in 0..outputs {
        memory.push(vec![0; words.number()? as usize]);
    }
    let mut args: Vec<_> = memory.iter_mut().map(|bytes| RemoteArg::buffer(bytes)).collect();
    for _ in 0..handles {
        args.push(RemoteArg::of_handle(words.number()?));
    }
    // SAFETY: there are as many arguments as the scalars say: `inputs` and `outputs` buffers, each of the
    // length of its own memory, and `handles` input handles. The host's library asks for no output handles
    // here.
    let code = unsafe { call(handle, scalars, &mut args) };
    if code != 0 && (code as u32) < aee::DSP_OFFSET {
        violation(&format!("method {} gave {code:#x}: codes of a DSP have an offset", scalars >> 24));
    }
    let outputs = memory.iter().skip(inputs as usize);
    Ok((code, outputs.fold(Words::default(), |words, bytes| words.bytes(bytes))))
}

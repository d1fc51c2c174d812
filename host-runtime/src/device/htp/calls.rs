//! Messages as calls of the method `run`: a message goes in, and the call returns with the response.
//!
//! A thread of its own calls, so that a message can be sent while the one before it is answered, and a wait
//! can end before the call does.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use hexflash_abi::message::Response;
use hexflash_abi::queue::MAX_MESSAGE;

use super::aee::AeeCode;
use super::error::{Call, HtpError};
use super::failure::TransportFailure;
use super::ffi::RemoteArg;
use super::library::Library;

/// Method 5 with one buffer in and one out.
const RUN: u32 = 5 << 24 | 1 << 16 | 1 << 8;
/// Messages that may wait for the one before them, as many as a queue has room for at least.
const WAITING: usize = 64;

/// A message, and its length.
type Letter = ([u8; MAX_MESSAGE], usize);
/// Outcome of a call: the response, or the library's code.
type Answer = Result<[u8; size_of::<Response>()], i32>;

/// The calling thread, which ends when this is dropped and its call has returned.
pub(super) struct Calls {
    /// `None` once it is dropped.
    requests: Option<SyncSender<Letter>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Calls {
    /// Starts the thread for a session's handle, which stays open until this is dropped.
    pub(super) fn new(library: &Arc<Library>, handle: u64) -> Result<Self, HtpError> {
        let (requests, asked) = sync_channel::<Letter>(WAITING);
        let (give, answers) = sync_channel(WAITING + 1);
        let vendor = Arc::clone(library);
        let run = move || {
            for (mut request, bytes) in asked {
                let mut response = [0; size_of::<Response>()];
                let mut args = [RemoteArg::of(&mut request[..bytes]), RemoteArg::of(&mut response)];
                // SAFETY: `args` has one buffer in and one out, as `RUN` says, each of its own length, and
                // they live through the call. The handle is open: `Calls` is dropped before it is closed.
                let code =
                    unsafe { (vendor.functions().remote_handle64_invoke)(handle, RUN, args.as_mut_ptr()) };
                if give.send(if code == 0 { Ok(response) } else { Err(code) }).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("hexflash-calls".to_owned()).spawn(run);
        let thread = thread.map_err(|error| HtpError::no_thread(&error))?;
        Ok(Self { requests: Some(requests), answers, thread: Some(thread) })
    }

    /// Sends a message.
    pub(super) fn write(&mut self, message: &[u8]) -> Result<(), TransportFailure> {
        let mut letter = ([0; MAX_MESSAGE], message.len());
        match letter.0.get_mut(..message.len()) {
            Some(room) => room.copy_from_slice(message),
            None => return Err(lost(AeeCode::BAD_PARAMETER as i32)),
        }
        let Some(requests) = &self.requests else { return Err(lost(AeeCode::BAD_STATE as i32)) };
        match requests.try_send(letter) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(TransportFailure::NotYet),
            Err(TrySendError::Disconnected(_)) => Err(lost(AeeCode::BAD_STATE as i32)),
        }
    }

    /// Receives a response; gives its length.
    pub(super) fn read(&mut self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportFailure> {
        match self.answers.recv_timeout(timeout) {
            Ok(Ok(response)) => match message.get_mut(..response.len()) {
                Some(room) => {
                    room.copy_from_slice(&response);
                    Ok(response.len())
                }
                None => Err(lost(AeeCode::BAD_STATE as i32)),
            },
            Ok(Err(code)) => Err(lost(code)),
            Err(RecvTimeoutError::Timeout) => Err(TransportFailure::NotYet),
            Err(RecvTimeoutError::Disconnected) => Err(lost(AeeCode::BAD_STATE as i32)),
        }
    }
}

fn lost(code: i32) -> TransportFailure {
    TransportFailure::Lost(HtpError::call(Call::Run, code))
}

impl Drop for Calls {
    fn drop(&mut self) {
        // The thread ends with what it does: `RpcSession::stop` has ended the session, or its process.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

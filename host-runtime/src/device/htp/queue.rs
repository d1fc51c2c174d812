//! The message queue, the host's end.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::aee::AeeCode;
use super::error::{Call, HtpError, check};
use super::failure::TransportFailure;
use super::ffi::{MAX_QUEUE_BUFFERS, QueueBuffer, RawQueue};
use super::library::Library;

/// Bytes of the two rings: dozens of messages with their buffers.
const REQUESTS: u32 = 16 << 10;
const RESPONSES: u32 = 16 << 10;
/// How long a request may wait for room. The DSP reads a request when it has answered the one before it.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);
/// The time-out that means to wait without end.
const FOREVER: u32 = u32::MAX;

/// A queue, closed when it is dropped.
pub(super) struct Queue {
    vendor: Arc<Library>,
    queue: RawQueue,
    /// Time for which a read looks before it sleeps.
    poll: Duration,
}

// SAFETY: the library's queues may be used by any thread, one at a time per end; `Queue` is used by `&mut`.
unsafe impl Send for Queue {}

impl Queue {
    /// Creates a queue. Without callbacks: we wait in calls, and the library starts no threads.
    pub(super) fn create(library: &Arc<Library>, domain: c_int, poll: Duration) -> Result<Self, HtpError> {
        let mut queue = std::ptr::null_mut();
        let (null, context) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: `library` is loaded, so its function is there. It writes the handle to `queue`, which lives
        // through the call; callbacks, which may be null, are not used.
        let code = unsafe {
            (library.functions().dspqueue_create)(
                domain,
                0,
                REQUESTS,
                RESPONSES,
                null,
                null,
                context,
                &raw mut queue,
            )
        };
        check(Call::QueueCreate, code)?;
        Ok(Self { vendor: Arc::clone(library), queue, poll })
    }

    /// Its name for the DSP.
    pub(super) fn export(&self) -> Result<u64, HtpError> {
        let mut id = 0;
        // SAFETY: `dspqueue_create` made the queue, which is open until `self` is dropped. The name is
        // written to `id`, which lives through the call.
        let code = unsafe { (self.vendor.functions().dspqueue_export)(self.queue, &raw mut id) };
        check(Call::QueueExport, code)?;
        Ok(id)
    }

    /// Sends a message. It names no buffers: the library does nothing for them, and firmware looks them up in
    /// a table in which memory that our library maps itself is not.
    pub(super) fn write(&mut self, message: &[u8]) -> Result<(), TransportFailure> {
        // SAFETY: `dspqueue_create` made the queue, which is open until `self` is dropped. The message is a
        // slice, given with its length, which lives through the call; there are no buffers.
        let code = unsafe {
            (self.vendor.functions().dspqueue_write)(
                self.queue,
                0,
                0,
                std::ptr::null_mut(),
                message.len() as u32,
                message.as_ptr(),
                WRITE_TIMEOUT.as_micros() as u32,
            )
        };
        outcome(Call::QueueWrite, code)
    }

    /// Receives a message; gives its length.
    pub(super) fn read(&mut self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportFailure> {
        let start = Instant::now();
        while start.elapsed() < self.poll.min(timeout) {
            match self.read_within(message, Duration::ZERO) {
                Err(TransportFailure::NotYet) => std::hint::spin_loop(),
                outcome => return outcome,
            }
        }
        self.read_within(message, timeout)
    }

    fn read_within(&mut self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportFailure> {
        let mut buffers = [QueueBuffer::default(); MAX_QUEUE_BUFFERS];
        let (mut flags, mut count, mut bytes) = (0, 0, 0);
        let timeout = u32::try_from(timeout.as_micros()).unwrap_or(FOREVER - 1);
        // SAFETY: `dspqueue_create` made the queue, which is open until `self` is dropped. Results go to the
        // variables above, buffers and message to slices whose lengths are given as limits.
        let code = unsafe {
            (self.vendor.functions().dspqueue_read)(
                self.queue,
                &raw mut flags,
                buffers.len() as u32,
                &raw mut count,
                buffers.as_mut_ptr(),
                message.len() as u32,
                &raw mut bytes,
                message.as_mut_ptr(),
                timeout,
            )
        };
        outcome(Call::QueueRead, code)?;
        Ok(bytes as usize)
    }
}

fn outcome(call: Call, code: c_int) -> Result<(), TransportFailure> {
    match AeeCode(code).base() {
        0 => Ok(()),
        AeeCode::EXPIRED | AeeCode::WOULD_BLOCK => Err(TransportFailure::NotYet),
        _ => Err(TransportFailure::Lost(HtpError::call(call, code))),
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: `dspqueue_create` made the queue, and this is the last use of it, for `self` is being
        // dropped.
        let code = unsafe { (self.vendor.functions().dspqueue_close)(self.queue) };
        if code != 0 {
            tracing::debug!("dspqueue_close gave {}", AeeCode(code));
        }
    }
}

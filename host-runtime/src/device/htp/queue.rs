//! The message queue, the host's end.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use super::aee::AeeCode;
use super::error::{Call, HtpError, check};
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
}

// SAFETY: the library's queues may be used by any thread, one at a time per end; `Queue` is used by `&mut`.
unsafe impl Send for Queue {}

/// Why a message was not sent or received.
#[derive(Debug)]
pub(super) enum QueueFailure {
    /// There is no room, or nothing came in time.
    NotYet,
    /// The queue is of no use any more.
    Lost(HtpError),
}

impl Queue {
    /// Creates a queue. Without callbacks: we wait in calls, and the library starts no threads.
    pub(super) fn create(library: &Arc<Library>, domain: c_int) -> Result<Self, HtpError> {
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
        Ok(Self { vendor: Arc::clone(library), queue })
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

    /// Sends a message with buffers.
    pub(super) fn write(&mut self, message: &[u8], buffers: &mut [QueueBuffer]) -> Result<(), QueueFailure> {
        // SAFETY: `dspqueue_create` made the queue, which is open until `self` is dropped. Buffers and
        // message are slices, given with their lengths, which live through the call.
        let code = unsafe {
            (self.vendor.functions().dspqueue_write)(
                self.queue,
                0,
                buffers.len() as u32,
                buffers.as_mut_ptr(),
                message.len() as u32,
                message.as_ptr(),
                WRITE_TIMEOUT.as_micros() as u32,
            )
        };
        outcome(Call::QueueWrite, code)
    }

    /// Receives a message; gives its length. `told` gets the buffers that the DSP has written.
    pub(super) fn read(
        &mut self,
        message: &mut [u8],
        timeout: Duration,
        told: impl FnMut(&QueueBuffer),
    ) -> Result<usize, QueueFailure> {
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
        // The library has already done the cache maintenance on this side that the buffers ask for.
        buffers.iter().take(count as usize).for_each(told);
        Ok(bytes as usize)
    }
}

fn outcome(call: Call, code: c_int) -> Result<(), QueueFailure> {
    match AeeCode(code).base() {
        0 => Ok(()),
        AeeCode::EXPIRED | AeeCode::WOULD_BLOCK => Err(QueueFailure::NotYet),
        _ => Err(QueueFailure::Lost(HtpError::call(call, code))),
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

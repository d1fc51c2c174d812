//! The message queue.

use hexflash_abi::queue::MAX_MESSAGE;
use hexflash_dsp::session::HostRange;

use super::sys::{self, QueueBuffer, RawQueue};

/// How long a read waits before its caller looks at whether to stop, or to save power.
pub(in super::super) const TIMEOUT_IDLE_US: u32 = 50_000;
/// How long a response may wait for room.
const WRITE_TIMEOUT_US: u32 = 1_000_000;
/// Buffers that a packet may name.
const MAX_BUFFERS: usize = 64;

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum QueueEnd {
    /// None came in time.
    Idle,
    /// The host is gone, or wrote nonsense into the queue's memory.
    Lost,
}

/// An imported queue, until it is dropped.
pub(in super::super) struct Queue(RawQueue);

impl Queue {
    /// Opens the queue that the host exported as `id`. Without callbacks, so that the library starts no
    /// threads, and reads block.
    pub(in super::super) fn import(id: u64) -> Option<Self> {
        let mut queue = core::ptr::null_mut();
        let (null, context) = (core::ptr::null(), core::ptr::null_mut());
        // SAFETY: the handle is written to `queue`, which lives through the call; callbacks, which may be
        // null, are not used.
        let error = unsafe { sys::dspqueue_import(id, null, null, context, &raw mut queue) };
        (error == 0 && !queue.is_null()).then(|| Self(queue))
    }

    /// The next message: its length. What its buffers say to the caches, the queue's library does.
    pub(in super::super) fn read(&mut self, message: &mut [u8; MAX_MESSAGE]) -> Result<usize, QueueEnd> {
        const AEE_EXPIRED: u32 = 0xc;
        const AEE_OFFSET: u32 = 0x8000_0400;
        let (mut flags, mut count, mut bytes) = (0, 0, 0);
        let mut buffers = [QueueBuffer::default(); MAX_BUFFERS];
        // SAFETY: the queue is open, results go to the variables above, buffers and message to memory of the
        // sizes that are given.
        let error = unsafe {
            sys::dspqueue_read(
                self.0,
                &raw mut flags,
                MAX_BUFFERS as u32,
                &raw mut count,
                buffers.as_mut_ptr(),
                MAX_MESSAGE as u32,
                &raw mut bytes,
                message.as_mut_ptr(),
                TIMEOUT_IDLE_US,
            )
        };
        match error {
            0 if bytes as usize <= MAX_MESSAGE => Ok(bytes as usize),
            error if error as u32 == AEE_OFFSET + AEE_EXPIRED => Err(QueueEnd::Idle),
            _ => Err(QueueEnd::Lost),
        }
    }

    /// Sends a response, naming the memory that the session has written back for the host to read.
    pub(in super::super) fn write(&mut self, message: &[u8], told: &[HostRange]) -> Result<(), QueueEnd> {
        const INVALIDATE_RECIPIENT: u32 = 0x80;
        let mut buffers: heapless::Vec<QueueBuffer, MAX_BUFFERS> = heapless::Vec::new();
        for range in told {
            // Memory of more than 4 GiB cannot be here.
            let (offset, size, fd) = (range.offset as u32, range.bytes as u32, range.fd.0 as u32);
            let _ = buffers.push(QueueBuffer { fd, size, offset, flags: INVALIDATE_RECIPIENT, address: 0 });
        }
        // SAFETY: `import` has opened the queue, which stays open until `self` is dropped. Buffers and
        // message are read, from slices whose lengths are given.
        let error = unsafe {
            let (count, bytes) = (buffers.len() as u32, message.len() as u32);
            sys::dspqueue_write(
                self.0,
                0,
                count,
                buffers.as_mut_ptr(),
                bytes,
                message.as_ptr(),
                WRITE_TIMEOUT_US,
            )
        };
        if error == 0 { Ok(()) } else { Err(QueueEnd::Lost) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: `import` has opened the queue, and this is the last use of it, for `self` is being dropped.
        unsafe { sys::dspqueue_close(self.0) };
    }
}

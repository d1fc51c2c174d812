//! The message queue.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, Ordering};

use hexflash_abi::queue::MAX_MESSAGE;

use super::sys::{self, QueueBuffer, RawQueue};
use super::{Idle, MessageEnd, log, news};

/// How long a response may wait for room.
const WRITE_TIMEOUT_US: u32 = 1_000_000;
/// Buffers that a packet may name. Ours name none: the session looks after its caches itself, and firmware
/// looks for buffers in a table of its own, in which memory that libraries map themselves is not.
const MAX_BUFFERS: usize = 64;

/// Code that an error callback has reported, or 0. (One queue per process.)
static REPORTED: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" fn packet_came(_: RawQueue, _: i32, _: *mut c_void) {
    news::tell();
}

unsafe extern "C" fn queue_failed(_: RawQueue, error: i32, _: *mut c_void) {
    // Release: pairs with the load in `Queue::look`. An error without a number is one, too.
    REPORTED.store(if error == 0 { -1 } else { error }, Ordering::Release);
    news::tell();
}

/// An imported queue, until it is dropped.
pub(in super::super) struct Queue {
    queue: RawQueue,
    /// Whether callbacks announce packets. The library has a thread for them then, and no call may wait for a
    /// packet.
    announced: bool,
}

/// Whether a code says that there is no packet: nothing in time, or nothing there. Images give these codes
/// with and without the DSP's offset.
fn is_idle(code: i32) -> bool {
    const EXPIRED: u32 = 0xc;
    const WOULD_BLOCK: u32 = 0x204;
    const OFFSET: u32 = 0x8000_0400;
    [EXPIRED, WOULD_BLOCK].iter().any(|idle| [*idle, OFFSET + idle].contains(&(code as u32)))
}

impl Queue {
    /// Opens the queue that the host exported as `id`: without callbacks, so that the library starts no
    /// thread and a call can wait for packets; with them where the image wants that, as some do ("Queue
    /// Monitor supported. Importing Queue … requires packet_callback").
    ///
    /// # Errors
    /// The code of the second attempt.
    pub(in super::super) fn import(id: u64) -> Result<Self, i32> {
        let mut queue = core::ptr::null_mut();
        let context = core::ptr::null_mut();
        REPORTED.store(0, Ordering::Relaxed);
        // SAFETY: the handle is written to `queue`, which lives through the call; callbacks may be null.
        let without = unsafe { sys::dspqueue_import(id, None, None, context, &raw mut queue) };
        if without == 0 && !queue.is_null() {
            return Ok(Self { queue, announced: false });
        }
        // SAFETY: the handle is written to `queue`, which lives through the call; the callbacks are there for
        // ever, touch nothing but atomics, and may be called on any thread.
        let with = unsafe {
            sys::dspqueue_import(id, Some(packet_came), Some(queue_failed), context, &raw mut queue)
        };
        if with == 0 && !queue.is_null() {
            log::error(format_args!(
                "dspqueue_import gave {without:#x} without callbacks, and the queue with them"
            ));
            return Ok(Self { queue, announced: true });
        }
        log::error(format_args!("dspqueue_import gave {without:#x}, and {with:#x} with callbacks"));
        Err(with)
    }

    /// The next message: its length.
    ///
    /// # Errors
    /// [`MessageEnd::Idle`] if none came as long as `idle` says.
    pub(in super::super) fn read(
        &mut self,
        message: &mut [u8; MAX_MESSAGE],
        idle: Idle,
    ) -> Result<usize, MessageEnd> {
        let seen = news::seen();
        if !self.announced {
            self.peek()?;
        }
        match self.look(message) {
            Err(MessageEnd::Idle) if self.announced => {
                news::wait(seen, idle.most_us());
                self.look(message)
            }
            outcome => outcome,
        }
    }

    /// Waits for a packet.
    fn peek(&self) -> Result<(), MessageEnd> {
        let (mut flags, mut count, mut bytes) = (0, 0, 0);
        // SAFETY: `import` has opened the queue, which stays open until `self` is dropped; results go to the
        // variables above.
        let code = unsafe {
            sys::dspqueue_peek(
                self.queue,
                &raw mut flags,
                &raw mut count,
                &raw mut bytes,
                super::TIMEOUT_IDLE_US,
            )
        };
        read_outcome("dspqueue_peek", code)
    }

    /// Reads a packet, if there is one.
    fn look(&self, message: &mut [u8; MAX_MESSAGE]) -> Result<usize, MessageEnd> {
        let reported = REPORTED.load(Ordering::Acquire);
        if reported != 0 {
            return Err(lost("the queue", reported));
        }
        let (mut flags, mut count, mut bytes) = (0, 0, 0);
        let mut buffers = [QueueBuffer::default(); MAX_BUFFERS];
        // SAFETY: `import` has opened the queue, which stays open until `self` is dropped. Results go to the
        // variables above, buffers and message to memory of the sizes that are given.
        let code = unsafe {
            sys::dspqueue_read_noblock(
                self.queue,
                &raw mut flags,
                MAX_BUFFERS as u32,
                &raw mut count,
                buffers.as_mut_ptr(),
                MAX_MESSAGE as u32,
                &raw mut bytes,
                message.as_mut_ptr(),
            )
        };
        read_outcome("dspqueue_read_noblock", code)?;
        match bytes as usize {
            bytes if bytes <= MAX_MESSAGE => Ok(bytes),
            _ => Err(MessageEnd::Lost),
        }
    }

    /// Sends a response.
    pub(in super::super) fn write(&mut self, message: &[u8]) -> Result<(), MessageEnd> {
        // SAFETY: `import` has opened the queue, which stays open until `self` is dropped. The message is
        // read, from a slice whose length is given; there are no buffers.
        let code = unsafe {
            let bytes = message.len() as u32;
            sys::dspqueue_write(
                self.queue,
                0,
                0,
                core::ptr::null_mut(),
                bytes,
                message.as_ptr(),
                WRITE_TIMEOUT_US,
            )
        };
        if code == 0 { Ok(()) } else { Err(lost("dspqueue_write", code)) }
    }
}

fn read_outcome(call: &str, code: i32) -> Result<(), MessageEnd> {
    match code {
        0 => Ok(()),
        code if is_idle(code) => Err(MessageEnd::Idle),
        code => Err(lost(call, code)),
    }
}

fn lost(what: &str, code: i32) -> MessageEnd {
    log::error(format_args!("{what} gave {code:#x}: the session ends"));
    MessageEnd::Lost
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: `import` has opened the queue, and this is the last use of it, for `self` is being dropped.
        unsafe { sys::dspqueue_close(self.queue) };
    }
}

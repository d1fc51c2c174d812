//! How messages reach the DSP: as packets of a queue, or as calls.

use std::time::Duration;

use super::calls::Calls;
use super::error::HtpError;
use super::failure::TransportFailure;
use super::queue::Queue;

/// A session's way to the DSP.
pub(super) enum Transport {
    /// Packets.
    Queue(Queue),
    /// Calls.
    Calls(Calls),
}

impl Transport {
    /// Number of the queue in `start` of the library on the DSP.
    const QUEUE: u32 = 0;
    /// Number of calls there.
    const CALLS: u32 = 1;

    /// The transport's number in `start`, and the queue's name on the DSP; 0 without a queue.
    pub(super) fn on_dsp(&self) -> Result<(u32, u64), HtpError> {
        match self {
            Self::Queue(queue) => Ok((Self::QUEUE, queue.export()?)),
            Self::Calls(_) => Ok((Self::CALLS, 0)),
        }
    }

    /// Sends a message.
    pub(super) fn write(&mut self, message: &[u8]) -> Result<(), TransportFailure> {
        match self {
            Self::Queue(queue) => queue.write(message),
            Self::Calls(calls) => calls.write(message),
        }
    }

    /// Receives a message; gives its length.
    pub(super) fn read(&mut self, message: &mut [u8], timeout: Duration) -> Result<usize, TransportFailure> {
        match self {
            Self::Queue(queue) => queue.read(message, timeout),
            Self::Calls(calls) => calls.read(message, timeout),
        }
    }
}

//! How messages reach the DSP: as packets of a queue, or as calls.

use std::time::Duration;

use super::calls::Calls;
use super::error::HtpError;
use super::queue::Queue;

/// The way of messages between host and DSP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The queue; calls where no queue can be made, or the DSP stays silent on it.
    #[default]
    Auto,
    /// `dspqueue`: about 60 us there and back.
    Queue,
    /// A call of FastRPC's for each message, about 300 us: for systems whose DSP sees no packets, as with the
    /// driver of mainline Linux (qualcomm/fastrpc#377).
    Calls,
}

/// The reason why a message was not sent or received.
#[derive(Debug)]
pub(super) enum TransportFailure {
    /// No room for a message, or none that came in time.
    NotYet,
    /// The way is of no use any more.
    Lost(HtpError),
}

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

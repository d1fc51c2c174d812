//! Where messages come from: packets of a queue, or calls.

use hexflash_abi::queue::MAX_MESSAGE;

use super::{Mailbox, Queue};
use crate::rpc::Start;

/// How long a read waits before its caller looks at whether to save power.
pub(in super::super) const TIMEOUT_IDLE_US: u32 = 50_000;

/// How a read waits where nothing comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Idle {
    /// A wait of [`TIMEOUT_IDLE_US`]: there is something to give up afterwards.
    Briefly,
    /// Until there are news: nothing is held.
    Resting,
}

impl Idle {
    /// Microseconds, if it ends.
    pub(super) fn most_us(self) -> Option<u32> {
        match self {
            Self::Briefly => Some(TIMEOUT_IDLE_US),
            Self::Resting => None,
        }
    }
}

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum MessageEnd {
    /// None came in time.
    Idle,
    /// The host is gone, or wrote nonsense into the queue's memory.
    Lost,
}

/// The session's way to the host.
pub(in super::super) enum Transport {
    /// Packets.
    Queue(Queue),
    /// Calls of the method `run`.
    Calls(Mailbox),
}

impl Transport {
    /// Opens the one that the host has chosen.
    ///
    /// # Errors
    /// The code with which the queue was refused.
    pub(in super::super) fn open(kind: u32, queue: u64) -> Result<Self, i32> {
        match kind {
            Start::CALLS => Ok(Self::Calls(Mailbox::open())),
            _ => Queue::import(queue).map(Self::Queue),
        }
    }

    /// The next message: its length.
    pub(in super::super) fn read(
        &mut self,
        message: &mut [u8; MAX_MESSAGE],
        idle: Idle,
    ) -> Result<usize, MessageEnd> {
        match self {
            Self::Queue(queue) => queue.read(message, idle),
            Self::Calls(mailbox) => mailbox.read(message, idle),
        }
    }

    /// Sends a response.
    pub(in super::super) fn write(&mut self, message: &[u8]) -> Result<(), MessageEnd> {
        match self {
            Self::Queue(queue) => queue.write(message),
            Self::Calls(mailbox) => mailbox.write(message),
        }
    }
}

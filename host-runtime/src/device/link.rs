//! Links: how the bytes of messages get to a session of the DSP side, and memory that both sides see.

use std::sync::Arc;
use std::time::Duration;

use hexflash_abi::forms::{Given, Operands};
use hexflash_abi::message::{MapFlags, Response};
use hexflash_abi::{Fd, ProgramId};

use super::{DeviceError, DeviceInfo, DeviceOptions, KeptAccess, SharedMemory, Source};
use crate::record::Site;

/// A way to a session of the DSP side. What is said there is the same for all: [`Client`](super::Client).
pub trait Link: Send + Sized {
    /// Memory that the DSP side can map.
    type Memory: Clone + Send;
    /// The right of the DSP side to use such memory, until it is dropped.
    type Mapping: Send;

    /// Opens the way to session `number`, counted from 0, with what is known of it before it is asked.
    ///
    /// # Errors
    /// A setting out of range, or a session that does not start.
    fn open(options: &DeviceOptions, number: usize) -> Result<(Self, DeviceInfo), DeviceError>;

    /// Sends the bytes of a request.
    ///
    /// # Errors
    /// [`DeviceError::QueueFull`], or the session is gone.
    fn send(&mut self, request: &[u8]) -> Result<(), DeviceError>;

    /// The next response.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`], or the session is gone.
    fn receive(&mut self, timeout: Duration) -> Result<Response, DeviceError>;

    /// Zeroed memory of `bytes` bytes.
    ///
    /// # Errors
    /// There is none.
    fn zeroed(&mut self, bytes: u64) -> Result<Self::Memory, DeviceError>;

    /// Memory with these bytes, which the DSP side only reads: the source's own where that can be mapped.
    ///
    /// # Errors
    /// There is none, or the bytes cannot be read.
    fn holding(&mut self, source: Arc<dyn Source>) -> Result<Self::Memory, DeviceError>;

    /// Memory that [`zeroed`](Self::zeroed) gave, from the host's handle on it.
    ///
    /// # Errors
    /// [`DeviceError::Lost`]: it is another device's.
    fn recognise(&self, memory: &SharedMemory) -> Result<Self::Memory, DeviceError>;

    /// The host's handle on memory.
    fn handle(memory: &Self::Memory) -> SharedMemory;

    /// Prepares memory for a request that maps it.
    ///
    /// # Errors
    /// The session is gone, or may not map it.
    fn offer(&mut self, memory: Self::Memory) -> Result<Offer<Self::Mapping>, DeviceError>;

    /// Takes back the name of an offer, once the request that has it was answered.
    fn answered(&mut self, name: Fd) {
        let _ = name;
    }

    /// The memory of a mapping.
    fn memory(mapping: &Self::Mapping) -> Self::Memory;

    /// Ends serving: nothing is mapped or used by the DSP side afterwards. Does nothing the second time.
    fn stop(&mut self);

    /// Starts a new session, in which nothing is mapped, after [`stop`](Self::stop).
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self) -> Result<(), DeviceError>;

    /// How long the DSP side may take for a message that runs no program.
    fn quick(&self) -> Duration;

    /// How long the DSP side may take for the very first message.
    fn first_patience(&self) -> Duration {
        self.quick()
    }

    /// Whether the next session goes another way, after this one left the very first message unanswered.
    fn tries_another_way(&mut self) -> bool {
        false
    }

    /// Whether [`holding`](Self::holding) copies the bytes.
    fn copies_imports(&self) -> bool;

    /// Times of [`Device::kept_access`](super::Device::kept_access).
    fn kept_access(&self) -> KeptAccess {
        KeptAccess::Always
    }

    /// Names of ops, as [`Device::name_ops`](super::Device::name_ops) gives them.
    fn name_ops(&mut self, program: ProgramId, sites: &[Site]) {
        let _ = (program, sites);
    }

    /// Version of [`Device::hexagon`](super::Device::hexagon).
    fn hexagon(&self) -> Option<u32> {
        None
    }

    /// Result of [`Device::form`](super::Device::form).
    ///
    /// # Errors
    /// The session is gone, perhaps over this.
    fn form(&mut self, operands: &Operands) -> Result<Option<Given>, DeviceError> {
        let _ = operands;
        Ok(None)
    }

    /// Time of [`Device::patience`](super::Device::patience).
    fn patience(&self) -> Duration {
        Duration::from_secs(600)
    }
}

/// Memory that is ready to be mapped.
#[derive(Debug)]
pub struct Offer<M> {
    /// Name under which the session finds it.
    pub name: Fd,
    /// Number of bytes.
    pub bytes: u64,
    /// Whether it may be written.
    pub flags: MapFlags,
    /// Keeps it there.
    pub mapping: M,
}

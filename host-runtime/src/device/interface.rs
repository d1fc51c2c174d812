//! The interface of devices: one trait for all of them, and what it gives.

use std::sync::Arc;
use std::time::Duration;

use hexflash_abi::forms::{Given, Operands};
use hexflash_abi::message::{Load, MatrixUnit, Message, PingInfo, Response};
use hexflash_abi::{BufferId, ProgramId, Seq};

use super::error::DeviceError;
use super::memory::{SharedMemory, Source};
use crate::record::{SessionSet, Site};

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DeviceInfo {
    /// Name, as [`open`](super::open) takes it.
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// Threads that run kernels.
    pub threads: u32,
    /// Bytes of VTCM.
    pub vtcm_bytes: u32,
    /// Sessions that programs are split over.
    pub sessions: u32,
    /// Bytes for loaded programs.
    pub arena_bytes: u32,
    /// What there is of a matrix unit (HMX), by its name.
    #[serde(serialize_with = "by_name")]
    pub matrix_unit: MatrixUnit,
    /// Unit of the costs of a program's parts.
    pub cost_unit: CostUnit,
}

impl DeviceInfo {
    /// Takes over what a new session says of itself.
    pub(crate) fn learn(&mut self, ping: &PingInfo) {
        self.arena_bytes = ping.arena_bytes;
        // A number that this host does not know cannot come from a session with the same layout.
        self.matrix_unit = MatrixUnit::parse(ping.matrix_unit).unwrap_or(MatrixUnit::None);
    }
}

fn by_name<S: serde::Serializer>(unit: &MatrixUnit, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(unit.name())
}

/// Unit in which a device measures the parts of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostUnit {
    /// Nanoseconds.
    Nanoseconds,
    /// Packets of the dispatching thread, which are all of them where there is one thread. Under emulation,
    /// time means nothing.
    Packets,
}

impl CostUnit {
    /// The name of a thousand of these units.
    pub const fn thousands(self) -> &'static str {
        match self {
            Self::Nanoseconds => "microseconds",
            Self::Packets => "thousand packets",
        }
    }
}

/// A mapped buffer: its id on the device, its memory on the host.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Id in programs and messages.
    pub id: BufferId,
    /// The memory, as the host sees it.
    pub memory: SharedMemory,
}

/// A place where programs run.
///
/// Requests are answered in order. A device that failed fatally answers nothing more until
/// [`reset`](Self::reset).
pub trait Device: Send {
    /// The properties of the device.
    fn info(&self) -> &DeviceInfo;

    /// Allocates zeroed memory that both sides see, and maps it.
    ///
    /// # Errors
    /// No memory, no free buffer id, or a refusal of the device.
    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError>;

    /// Allocates memory as [`allocate`](Self::allocate) does, with contents that programs only read: they are
    /// there before the device maps it, so that no cache of the device holds what was there before.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn allocate_filled(
        &mut self,
        bytes: u64,
        fill: &mut dyn FnMut(&SharedMemory),
    ) -> Result<Buffer, DeviceError> {
        let buffer = self.allocate(bytes)?;
        fill(&buffer.memory);
        Ok(buffer)
    }

    /// Maps bytes that the host already has, for reading only: weights.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and if they cannot be read.
    fn import(&mut self, source: Arc<dyn Source>) -> Result<Buffer, DeviceError>;

    /// Whether [`import`](Self::import) copies the bytes, so that they need not be in memory of this process
    /// before.
    fn copies_imports(&self) -> bool {
        false
    }

    /// Allocates memory as [`allocate`](Self::allocate) does, for some of the sessions only.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate) or [`import`](Self::import).
    fn allocate_in(&mut self, sessions: SessionSet, bytes: u64) -> Result<Buffer, DeviceError> {
        let _ = sessions;
        self.allocate(bytes)
    }

    /// Maps bytes as [`import`](Self::import) does, for some of the sessions only.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate) or [`import`](Self::import).
    fn import_in(&mut self, sessions: SessionSet, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        let _ = sessions;
        self.import(source)
    }

    /// Loads the part of a program that session `session` runs. `Exec` runs all parts, one after the other.
    ///
    /// # Errors
    /// The device failed, or refuses the program.
    fn load_in(&mut self, session: usize, load: &Load) -> Result<(), DeviceError> {
        let _ = session;
        let patience = self.patience();
        call(self, &Message::Load(*load), patience).map(drop)
    }

    /// What the ops of session `session`'s part of a program are, for messages of a device that knows which
    /// of them ran last.
    fn name_ops(&mut self, session: usize, program: ProgramId, sites: &[Site]) {
        let _ = (session, program, sites);
    }

    /// Maps memory that [`allocate`](Self::allocate) gave before a [`reset`](Self::reset), with what the host
    /// has in it: for those who cannot do with other memory.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`DeviceError::Lost`] where memory is not this device's.
    fn map_again(&mut self, memory: &SharedMemory) -> Result<Buffer, DeviceError> {
        let reason = format!("its {} bytes of memory cannot be mapped again", memory.len());
        Err(DeviceError::Lost { reason })
    }

    /// Unmaps a buffer. Its memory is dropped with the last handle on the host.
    ///
    /// # Errors
    /// The buffer is unknown, or a loaded program uses it.
    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError>;

    /// Sends a request without waiting for its response.
    ///
    /// # Errors
    /// The session is gone, or too many requests are in flight.
    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError>;

    /// The next response, in the order of the requests.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`], or the session is gone.
    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError>;

    /// The session that gave the last answer of [`wait`](Self::wait). A fault in that answer names an op of
    /// this session's part of the program.
    fn answered(&self) -> usize {
        0
    }

    /// When the host sees what programs keep on the device from one step to the next, and may write it.
    fn kept_access(&self) -> KeptAccess {
        KeptAccess::Always
    }

    /// The version of the Hexagon whose code it executes, as the vendor's library gives it: 0x73; `None`
    /// where it executes that of another processor, or code without HVX float.
    fn hexagon(&self) -> Option<u32> {
        None
    }

    /// Executes a form of float instruction; `None` where its code has no such form.
    ///
    /// # Errors
    /// The session is gone, perhaps over this.
    fn form(&mut self, operands: &Operands) -> Result<Option<Given>, DeviceError> {
        let _ = operands;
        Ok(None)
    }

    /// How long a step may take before the device counts as hung.
    fn patience(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// Ends the session and starts a new one with nothing mapped or loaded.
    ///
    /// # Errors
    /// The device cannot be started.
    fn reset(&mut self) -> Result<(), DeviceError>;
}

/// When the host sees what programs keep on a device from one step to the next, and may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAccess {
    /// Between two steps.
    Always,
    /// Between a program that names it for the host and the next step: until then it may be in caches of the
    /// device alone.
    AfterRun,
    /// Never: caches of several sessions may hold it.
    Never,
}

impl dyn Device + '_ {
    /// Sends a request and waits for its answer, which must be a success.
    ///
    /// # Errors
    /// The device failed, or the response carries a fault.
    pub fn call(&mut self, message: &Message, timeout: Duration) -> Result<Response, DeviceError> {
        call(self, message, timeout)
    }
}

fn call<D: Device + ?Sized>(
    device: &mut D,
    message: &Message,
    timeout: Duration,
) -> Result<Response, DeviceError> {
    let seq = device.submit(message)?;
    let response = device.wait(timeout)?;
    if response.seq != seq {
        return Err(DeviceError::OutOfOrder { expected: seq, found: response.seq });
    }
    match response.outcome() {
        Ok(()) => Ok(response),
        Err((status, fault)) => Err(DeviceError::fault(message.kind(), status, fault)),
    }
}

/// Asks a new session for its properties, and refuses one that was built for another ABI.
pub(super) fn handshake(device: &mut dyn Device, timeout: Duration) -> Result<PingInfo, DeviceError> {
    use hexflash_abi::message::Ping;
    let response = device.call(&Message::Ping(Ping::OURS), timeout)?;
    Ok(response.ping_info())
}

//! `htp`: the Hexagon processor of a Snapdragon, through the vendor's FastRPC library.
//!
//! The queue is the vendor's `dspqueue`, shared memory is FastRPC's, and the other side is our library on the
//! DSP (`libhexflash_skel_vNN.so`). Nothing of this has run on a phone yet; tests run it against a stand-in
//! for the vendor's library (tests/cdsprpc).

pub mod aee;
mod calls;
pub mod error;
mod ffi;
pub mod forms;
mod library;
mod memory;
mod queue;
mod session;
mod transport;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hexflash_abi::forms::{Given, Operands};
use hexflash_abi::message::{Map, MapFlags, MatrixUnit, Message, PingInfo, Response, Unmap};
use hexflash_abi::{BufferId, Fd, Seq};
use zerocopy::{FromZeros, IntoBytes};

use self::error::HtpError;
use self::library::Library;
use self::memory::{Mapped, RpcMemory};
use self::session::{RpcSession, SessionRequest};
pub use self::transport::TransportChoice;
use self::transport::TransportFailure;
use super::limits::Chip;
use super::sessions::not_mapped;
use super::slots::BufferIds;
use super::{
    Buffer, CostUnit, Device, DeviceError, DeviceInfo, DeviceOptions, KeptAccess, Memory, SharedMemory,
    Source, handshake, inproc,
};

/// Threads where the user names no number: every DSP from v73 on has as many vector contexts. What v68 and
/// v69 have is not known of each chip; a session that gets fewer says so.
const THREADS: usize = 4;
/// What the DSP's answer about VTCM is rounded down to, and less than what cannot be meant.
const VTCM_UNIT: usize = 4096;
const VTCM_LEAST: usize = 64 << 10;
/// Least VTCM that is taken where the user did not ask for so little: with less, kernels wait for DMA.
const VTCM_HALVED: u32 = 1 << 20;
/// How long the DSP may take for a message that runs no program.
const QUICK: Duration = Duration::from_secs(20);
/// Longest silence of the DSP on a new queue: an answer takes less than a millisecond.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a step may take, unless the user says otherwise: a prefill step of a large model takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait between two looks at whether the process still lives.
const LOOK: Duration = Duration::from_millis(100);

/// The clocks that a session asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerProfile {
    /// The highest clocks, and no sleep between messages.
    #[default]
    Burst,
    /// High clocks that adapt.
    Balanced,
    /// Low clocks that adapt.
    Efficient,
}

/// Who moves data between memory and VTCM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DmaBy {
    /// The DSP's user-DMA engines, for each op by itself.
    #[default]
    Engine,
    /// The kernel threads themselves.
    Threads,
    /// The DSP's user-DMA engines, which also fetch weights ahead of the ops that read them. Threads then
    /// sleep while transfers that they started are under way, and whether QuRT lets these go on is not known.
    EngineAhead,
}

/// Settings of the device `htp`.
#[derive(Clone, Debug, Default)]
pub struct HtpOptions {
    /// The vendor's library; `None` to look where systems have it.
    pub vendor_library: Option<PathBuf>,
    /// Clocks while there is work.
    pub power: PowerProfile,
    /// Who moves data between memory and VTCM.
    pub dma: DmaBy,
    /// How long a step may take before the DSP counts as hung; `None` for half a minute.
    pub patience: Option<Duration>,
    /// The way of messages.
    pub transport: TransportChoice,
    /// Time for which a wait looks for an answer before the thread sleeps.
    pub poll: Duration,
    /// Whether to reserve a session other than the first, which other libraries in this process may use.
    pub reserve: bool,
}

/// The device `htp`.
pub struct Htp {
    info: DeviceInfo,
    wanted: SessionRequest,
    arch: u32,
    vendor: Arc<Library>,
    /// `None` if it could not be started again.
    session: Option<RpcSession>,
    /// Dropped before the session that they are mapped in is closed, see [`Htp::close`].
    buffers: BufferIds<Mapped>,
    /// Memory of which it is not known whether the DSP has it mapped: kept until the session ends.
    unsure: Vec<Mapped>,
    next_seq: u64,
    patience: Duration,
}

impl From<HtpError> for DeviceError {
    fn from(error: HtpError) -> Self {
        match error {
            // Not a failure where there is no such hardware.
            HtpError::NoLibrary { .. } | HtpError::NoSymbol { .. } | HtpError::TooOld { .. } => {
                Self::NoHardware(error)
            }
            error => Self::Htp(error),
        }
    }
}

/// The version of the DSP that the options lead to.
pub(super) fn arch(options: &DeviceOptions) -> Result<u32, DeviceError> {
    let vendor = options.htp.as_deref().and_then(|htp| htp.vendor_library.as_deref());
    Ok(session::arch(&*Library::open(vendor)?)?)
}

/// Opens a session. Where the user names no VTCM and not all is to be had, half of it may be: some chips have
/// less than others of their version (an SM8635 half of what other v73 have), and other programs use it, too.
fn first_session(
    library: &Arc<Library>,
    arch: u32,
    wanted: &mut SessionRequest,
    halve: bool,
) -> Result<RpcSession, HtpError> {
    let whole = wanted.vtcm_bytes;
    loop {
        match RpcSession::open(library, arch, wanted) {
            Err(error) if halve && error.is_of_vtcm() && wanted.vtcm_bytes / 2 >= VTCM_HALVED => {
                wanted.vtcm_bytes /= 2;
            }
            Ok(session) if wanted.vtcm_bytes < whole => {
                let [got, whole] = [wanted.vtcm_bytes, whole].map(|bytes| bytes >> 10);
                tracing::warn!("the DSP lends {got} KiB of VTCM and not {whole}: it may run slower");
                return Ok(session);
            }
            outcome => return outcome,
        }
    }
}

impl Htp {
    /// Opens the device.
    ///
    /// # Errors
    /// A setting out of range, or [`HtpError`].
    pub fn open(options: &DeviceOptions) -> Result<Self, DeviceError> {
        let htp = options.htp.as_deref().cloned().unwrap_or_default();
        let mut checked = DeviceOptions { threads: options.threads.or(Some(THREADS)), ..options.clone() };
        // Before the library is looked for: a mistake of the user's is told on any machine.
        inproc::Settings::from_options(&checked)?;
        let library = Library::open(htp.vendor_library.as_deref())?;
        let arch = session::arch(&library)?;
        checked.vtcm_bytes = options.vtcm_bytes.or_else(|| {
            let whole = session::vtcm_bytes(&library)? / VTCM_UNIT * VTCM_UNIT;
            (whole >= VTCM_LEAST).then_some(whole.min(inproc::VTCM_BYTES))
        });
        let inproc::Settings { threads, vtcm_bytes, .. } = inproc::Settings::from_options(&checked)?;
        let mut wanted = SessionRequest {
            threads: threads as u32,
            vtcm_bytes: vtcm_bytes as u32,
            power: htp.power as u32,
            dma: htp.dma as u32,
            matrix_unit: options.matrix_unit,
            reserve: htp.reserve,
            transport: htp.transport,
            poll: htp.poll,
            refused: None,
        };
        let patience = htp.patience.unwrap_or(PATIENCE);
        let session = Some(first_session(&library, arch, &mut wanted, options.vtcm_bytes.is_none())?);
        let newest = Chip::for_arch(arch).arch;
        if arch > newest {
            tracing::warn!(
                "Hexagon v{arch:x} is not known to this release: it runs the library of v{newest:x}"
            );
        }
        let mut description = format!("Hexagon v{arch:x}, through {}", library.path().display());
        if let Some(refused) = &wanted.refused {
            description.push_str(&format!(
                "; with the plain library, as it refuses {} ({})",
                refused.group(),
                refused.form
            ));
        }
        let info = DeviceInfo {
            name: "htp".to_owned(),
            description,
            threads: wanted.threads,
            vtcm_bytes: wanted.vtcm_bytes,
            sessions: 1,
            arena_bytes: 0,
            matrix_unit: MatrixUnit::None,
            cost_unit: CostUnit::Nanoseconds,
        };
        let mut device = Self {
            info,
            wanted,
            arch,
            vendor: library,
            session,
            buffers: BufferIds::new(),
            unsure: Vec::new(),
            next_seq: 0,
            patience,
        };
        let ping = device.greet()?;
        device.info.learn(&ping);
        Ok(device)
    }

    /// Exchanges the first message. Where the DSP is silent on a queue that need not be one, the session
    /// starts again without; the queue is not tried again.
    fn greet(&mut self) -> Result<PingInfo, DeviceError> {
        let may_change = self.wanted.transport == TransportChoice::Auto
            && self.session.as_ref().is_some_and(RpcSession::has_queue);
        match handshake(self, if may_change { SILENCE } else { QUICK }) {
            Err(DeviceError::Timeout(silence)) if may_change => {
                tracing::warn!(
                    "the DSP answers no packet within {} s; messages go to it as calls, which take longer",
                    silence.as_secs()
                );
                self.wanted.transport = TransportChoice::Calls;
                self.restart()?;
                handshake(self, QUICK)
            }
            outcome => outcome,
        }
    }

    fn session(&mut self) -> Result<&mut RpcSession, DeviceError> {
        self.session.as_mut().ok_or_else(gone)
    }

    /// Sends bytes, which need not be a request: tests see what comes of that.
    pub(crate) fn submit_bytes(&mut self, request: &[u8]) -> Result<(), DeviceError> {
        let session = self.session()?;
        if let Some(reason) = session.end() {
            return Err(DeviceError::Lost { reason: reason.to_owned() });
        }
        match session.transport().write(request) {
            Ok(()) => Ok(()),
            Err(TransportFailure::NotYet) => Err(DeviceError::QueueFull),
            Err(TransportFailure::Lost(error)) => Err(self.lost(error)),
        }
    }

    /// What is known of a session whose queue failed.
    fn lost(&mut self, error: HtpError) -> DeviceError {
        if let Some(session) = &mut self.session {
            session.give_up();
        }
        // The news of the process's end may come a moment after the queue's.
        let patience = Instant::now() + LOOK;
        let mut end = None;
        while end.is_none() && Instant::now() < patience {
            end = self.session.as_ref().and_then(RpcSession::end);
            if end.is_none() {
                std::thread::sleep(LOOK / 20);
            }
        }
        let reason = end.map_or_else(|| error.to_string(), |end| format!("{end}; {error}"));
        DeviceError::Lost { reason }
    }

    fn map(&mut self, memory: Arc<RpcMemory>, flags: MapFlags) -> Result<BufferId, DeviceError> {
        let id = self.buffers.free()?;
        let mapped = Mapped::new(Arc::clone(&memory), self.session()?.domain(), flags)?;
        let (fd, size) = (Fd(memory.fd()), memory.len() as u64);
        let map = Map { buffer: id, fd, size, flags: flags.bits(), reserved: 0 };
        match (self as &mut dyn Device).call(&Message::Map(map), QUICK) {
            Ok(_) => {}
            Err(refused @ DeviceError::Fault { .. }) => return Err(refused),
            Err(error) => {
                self.unsure.push(mapped);
                return Err(error);
            }
        }
        self.buffers.take(id, mapped);
        Ok(id)
    }

    /// Ends the session: serving first, then what is mapped, then the process.
    fn close(&mut self) {
        if let Some(session) = &mut self.session {
            session.stop();
        }
        self.buffers.clear();
        self.unsure.clear();
        self.session = None;
    }

    /// Ends the session and opens another one, in which nothing is mapped.
    fn restart(&mut self) -> Result<(), HtpError> {
        self.close();
        self.session = Some(RpcSession::open(&self.vendor, self.arch, &mut self.wanted)?);
        self.next_seq = 0;
        Ok(())
    }
}

fn gone() -> DeviceError {
    DeviceError::Lost { reason: "it could not be started again".to_owned() }
}

impl super::DeviceSession for Htp {
    fn open_session(options: &DeviceOptions, number: usize) -> Result<Self, DeviceError> {
        let mut htp = options.htp.as_deref().cloned().unwrap_or_default();
        // The first session is the domain's own, unless that is taken.
        htp.reserve |= number > 0;
        Self::open(&DeviceOptions { htp: Some(Box::new(htp)), ..options.clone() })
    }

    fn share(&mut self, of: &Self, id: BufferId) -> Result<(), DeviceError> {
        let mapped = of.buffers.get(id).ok_or_else(|| not_mapped(id))?;
        self.map(Arc::clone(mapped.memory()), mapped.flags()).map(drop)
    }

    fn reserve(&mut self) -> Result<(), DeviceError> {
        self.buffers.reserve()
    }

    fn release(&mut self, id: BufferId) {
        self.buffers.give_back(id);
    }
}

impl Device for Htp {
    /// Programs write back only what they name for the host.
    fn kept_access(&self) -> KeptAccess {
        KeptAccess::AfterRun
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.allocate_filled(bytes, &mut |_| {})
    }

    fn allocate_filled(
        &mut self,
        bytes: u64,
        fill: &mut dyn FnMut(&SharedMemory),
    ) -> Result<Buffer, DeviceError> {
        let fresh = Arc::new(RpcMemory::zeroed(&self.vendor, bytes)?);
        let memory = SharedMemory::new(Arc::clone(&fresh) as Arc<_>);
        fill(&memory);
        Ok(Buffer { id: self.map(fresh, MapFlags::empty())?, memory })
    }

    fn import(&mut self, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        // The DSP maps nothing but FastRPC's own memory: a copy.
        let bytes = source.bytes();
        let copy = RpcMemory::zeroed(&self.vendor, bytes)?;
        // SAFETY: at least that many bytes, zeroed, which nobody else has yet: the DSP gets them below.
        let place = unsafe { std::slice::from_raw_parts_mut(copy.base().as_ptr(), bytes as usize) };
        source.copy_to(place).map_err(|io| DeviceError::of_weights(bytes, io))?;
        let copy = Arc::new(copy);
        let id = self.map(Arc::clone(&copy), MapFlags::READ_ONLY)?;
        Ok(Buffer { id, memory: SharedMemory::new(copy) })
    }

    fn copies_imports(&self) -> bool {
        true
    }

    fn map_again(&mut self, memory: &SharedMemory) -> Result<Buffer, DeviceError> {
        let id = self.map(memory.shared_as()?, MapFlags::empty())?;
        Ok(Buffer { id, memory: memory.clone() })
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        let unmap = Message::Unmap(Unmap { buffer: buffer.id });
        (self as &mut dyn Device).call(&unmap, QUICK)?;
        self.buffers.give_back(buffer.id);
        Ok(())
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        let seq = Seq(self.next_seq);
        self.submit_bytes(message.encode(seq).as_bytes())?;
        self.next_seq += 1;
        Ok(seq)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        let deadline = Instant::now() + timeout;
        let mut response = Response::new_zeroed();
        loop {
            let session = self.session.as_mut().ok_or_else(gone)?;
            // Looked up before the queue is: the last response may have come just before the end.
            let end = session.end();
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if end.is_some() { Duration::ZERO } else { left.min(LOOK) };
            match session.transport().read(response.as_mut_bytes(), patience) {
                Ok(len) if len == size_of::<Response>() => return Ok(response),
                Ok(len) => {
                    session.give_up();
                    return Err(DeviceError::Lost { reason: format!("a response of {len} bytes") });
                }
                Err(TransportFailure::Lost(error)) => return Err(self.lost(error)),
                Err(TransportFailure::NotYet) => {}
            }
            if let Some(reason) = end {
                return Err(DeviceError::Lost { reason: reason.to_owned() });
            }
            if left.is_zero() {
                session.give_up();
                return Err(DeviceError::Timeout(timeout));
            }
        }
    }

    fn hexagon(&self) -> Option<u32> {
        Some(Chip::for_arch(self.arch).arch)
    }

    fn form(&mut self, operands: &Operands) -> Result<Option<Given>, DeviceError> {
        let session = self.session()?;
        let given = session.form(operands);
        if given.is_err() {
            session.give_up();
        }
        Ok(given?)
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.restart()?;
        let ping = self.greet()?;
        self.info.learn(&ping);
        Ok(())
    }
}

impl Drop for Htp {
    fn drop(&mut self) {
        self.close();
    }
}

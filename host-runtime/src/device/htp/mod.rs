//! `htp`: the Hexagon processor of a Snapdragon, through the vendor's FastRPC library.
//!
//! The queue is the vendor's `dspqueue`, shared memory is FastRPC's, and the other side is our library on the
//! DSP (`libhexflash_skel_vNN.so`). Nothing of this has run on a phone yet; tests run it against a stand-in
//! for the vendor's library (tests/cdsprpc).

mod calls;
mod control;
mod failure;
mod ffi;
mod library;
mod memory;
mod queue;
mod session;
mod transport;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hexflash_abi::Fd;
use hexflash_abi::forms::{Given, Operands};
use hexflash_abi::message::{MapFlags, MatrixUnit, Response};
use zerocopy::{FromZeros, IntoBytes};

use self::error::HtpError;
use self::failure::TransportFailure;
use self::library::Library;
use self::memory::{Mapped, RpcMemory};
use self::session::{RpcSession, SessionRequest};
use super::client::Client;
pub use super::fastrpc::{aee, error, forms};
use super::inproc;
use super::limits::Chip;
use super::link::{Link, Offer};
pub use super::options::{DmaBy, HtpOptions, PowerProfile, TransportChoice};
use super::{CostUnit, DeviceError, DeviceInfo, DeviceOptions, KeptAccess, Memory, SharedMemory, Source};

/// The device in one line.
pub(super) const ABOUT: &str = "the Hexagon processor of a Snapdragon, through the vendor's libcdsprpc.so";
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

/// The device `htp`.
pub type Htp = Client<HtpLink>;

/// The link to a process on the DSP.
pub struct HtpLink {
    wanted: SessionRequest,
    arch: u32,
    vendor: Arc<Library>,
    /// `None` if it could not be started again.
    session: Option<RpcSession>,
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

impl Link for HtpLink {
    type Memory = (Arc<RpcMemory>, MapFlags);
    type Mapping = Mapped;

    fn open(options: &DeviceOptions, number: usize) -> Result<(Self, DeviceInfo), DeviceError> {
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
            // The first session is the domain's own, unless that is taken.
            reserve: htp.reserve || number > 0,
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
        Ok((Self { wanted, arch, vendor: library, session, patience }, info))
    }

    fn send(&mut self, request: &[u8]) -> Result<(), DeviceError> {
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

    fn receive(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
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

    fn zeroed(&mut self, bytes: u64) -> Result<Self::Memory, DeviceError> {
        Ok((Arc::new(RpcMemory::zeroed(&self.vendor, bytes)?), MapFlags::empty()))
    }

    fn holding(&mut self, source: Arc<dyn Source>) -> Result<Self::Memory, DeviceError> {
        // The DSP maps nothing but FastRPC's own memory: a copy.
        let bytes = source.bytes();
        let copy = RpcMemory::zeroed(&self.vendor, bytes)?;
        // SAFETY: at least that many bytes, zeroed, which nobody else has yet: the DSP gets them later.
        let place = unsafe { std::slice::from_raw_parts_mut(copy.base().as_ptr(), bytes as usize) };
        source.copy_to(place).map_err(|io| DeviceError::of_weights(bytes, io))?;
        Ok((Arc::new(copy), MapFlags::READ_ONLY))
    }

    fn recognise(&self, memory: &SharedMemory) -> Result<Self::Memory, DeviceError> {
        Ok((memory.shared_as()?, MapFlags::empty()))
    }

    fn handle((memory, _): &Self::Memory) -> SharedMemory {
        SharedMemory::new(Arc::clone(memory) as Arc<_>)
    }

    fn offer(&mut self, (memory, flags): Self::Memory) -> Result<Offer<Mapped>, DeviceError> {
        let (name, bytes) = (Fd(memory.fd()), memory.len() as u64);
        let mapping = Mapped::new(memory, self.session()?.domain(), flags)?;
        Ok(Offer { name, bytes, flags, mapping })
    }

    fn memory(mapping: &Mapped) -> Self::Memory {
        (Arc::clone(mapping.memory()), mapping.flags())
    }

    fn stop(&mut self) {
        if let Some(session) = &mut self.session {
            session.stop();
        }
    }

    fn start(&mut self) -> Result<(), DeviceError> {
        // The process of the one before ends first.
        self.session = None;
        self.session = Some(RpcSession::open(&self.vendor, self.arch, &mut self.wanted)?);
        Ok(())
    }

    fn quick(&self) -> Duration {
        QUICK
    }

    fn first_patience(&self) -> Duration {
        if self.may_change_way() { SILENCE } else { QUICK }
    }

    fn tries_another_way(&mut self) -> bool {
        let may_change = self.may_change_way();
        if may_change {
            tracing::warn!(
                "the DSP answers no packet within {} s; messages go to it as calls, which take longer",
                SILENCE.as_secs()
            );
            self.wanted.transport = TransportChoice::Calls;
        }
        may_change
    }

    fn copies_imports(&self) -> bool {
        true
    }

    /// Programs write back only what they name for the host.
    fn kept_access(&self) -> KeptAccess {
        KeptAccess::AfterRun
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
}

impl HtpLink {
    /// Whether a queue on which the DSP is silent need not be one: then the session starts again without, and
    /// the queue is not tried again.
    fn may_change_way(&self) -> bool {
        self.wanted.transport == TransportChoice::Auto
            && self.session.as_ref().is_some_and(RpcSession::has_queue)
    }

    fn session(&mut self) -> Result<&mut RpcSession, DeviceError> {
        self.session.as_mut().ok_or_else(gone)
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
}

fn gone() -> DeviceError {
    DeviceError::Lost { reason: "it could not be started again".to_owned() }
}

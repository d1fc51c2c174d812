//! `qemu`: the DSP runtime as Hexagon machine code, under qemu-hexagon in user mode.
//!
//! The image is that of v67, which computes as `inproc` does, to the bit, or of one of the versions that
//! phones have.
//!
//! The queue, the messages and the programs are those of every device. Shared memory is files without a name;
//! the doorbells are futexes in them. Weights are copied into such a file, sealed against writing.

mod executables;
mod file;
mod places;
mod process;
mod trace;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hexflash_abi::forms::{Given, Operands};
use hexflash_abi::guest::{GUEST_MAGIC, GUEST_VERSION, GuestConfig, QUEUE_OFFSET};
use hexflash_abi::message::{MapFlags, MatrixUnit, Response};
use hexflash_abi::queue::{QueueMemory, Reader, Writer};
use hexflash_abi::{Fd, ProgramId};
use hexflash_dsp::dma::DmaMode;
use rustix::thread::futex;

use self::executables::Executables;
use self::file::{Backing, SealedFile, SharedFile};
use self::process::Process;
use self::trace::Ops;
pub use self::trace::Tracer;
use super::client::Client;
use super::inproc;
use super::link::{Link, Offer};
use super::queue_ends;
use super::{Arch, CostUnit, DeviceError, DeviceInfo, DeviceOptions, Memory, SharedMemory, Source};
use crate::record::Site;

/// The device in one line.
pub(super) const ABOUT: &str = "the DSP runtime as Hexagon machine code, under qemu-hexagon";
/// Bytes for loaded programs, as on `inproc`.
const ARENA_BYTES: u32 = 8 << 20;
const REQUEST_BYTES: u32 = 4096;
const RESPONSE_BYTES: u32 = 8192;
/// How long the emulator may take to start, or to map a buffer.
const START: Duration = Duration::from_secs(20);
/// The same where the emulator waits for a debugger.
const DEBUGGED: Duration = Duration::from_secs(24 * 3600);
/// The emulator's own variable: the port at which it waits for a debugger before it runs anything.
const DEBUGGER: &str = "QEMU_GDB";
/// How long the image may take to end by itself when told to.
const STOP: Duration = Duration::from_millis(300);
/// Longest sleep between two looks at whether the emulator still lives.
const LOOK: Duration = Duration::from_millis(100);

/// All settings, including those that only tests change.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Kernel threads.
    pub threads: usize,
    /// Bytes of VTCM.
    pub vtcm_bytes: usize,
    /// When the software DMA engine executes; or that the processor's own engines do: v67 has none.
    pub dma: DmaMode,
    /// What the image must be built for; `None` for v67, or whatever the image is that the environment names.
    pub arch: Option<Arch>,
    /// Who gets a line for each op that begins, and each transfer of the engines; `None` for no trace.
    pub trace: Option<Tracer>,
}

impl Settings {
    /// Checks the options and fills in what they leave open, as `inproc` does.
    ///
    /// # Errors
    /// [`DeviceError::Setting`].
    pub fn from_options(options: &DeviceOptions) -> Result<Self, DeviceError> {
        let inproc::Settings { threads, vtcm_bytes, dma, .. } = inproc::Settings::from_options(options)?;
        // As a phone does, where there are engines.
        let dma = if options.arch.is_some_and(Arch::has_engines) { DmaMode::Engine } else { dma };
        Ok(Self { threads, vtcm_bytes, dma, arch: options.arch, trace: options.trace })
    }

    fn config(self) -> GuestConfig {
        GuestConfig {
            magic: GUEST_MAGIC,
            version: GUEST_VERSION,
            request_bytes: REQUEST_BYTES,
            response_bytes: RESPONSE_BYTES,
            threads: self.threads as u32,
            vtcm_bytes: self.vtcm_bytes as u32,
            arena_bytes: ARENA_BYTES,
            dma: match self.dma {
                DmaMode::AtOnce => 0,
                DmaMode::AtWait => 1,
                DmaMode::OutOfOrder => 2,
                // For counting, in the guest alone: it refuses to serve with it.
                DmaMode::Never => 3,
                // On processors that have engines.
                DmaMode::Engine => 4,
            },
            stop: 0,
            trace: self.trace.is_some().into(),
            place: 0,
        }
    }
}

/// A running image. Fields are dropped in this order: the queue's memory goes last.
struct Running {
    process: Process,
    requests: Writer<'static>,
    responses: Reader<'static>,
    shared: SharedFile,
}

/// The emulated device.
pub type Qemu = Client<QemuLink>;

/// The link to an emulator.
pub struct QemuLink {
    settings: Settings,
    programs: Executables,
    running: Running,
    ops: Ops,
}

/// What the image is built for that these settings start.
///
/// # Errors
/// No emulator or image.
pub fn arch(settings: Settings) -> Result<Arch, DeviceError> {
    Ok(Executables::find(settings.arch)?.arch)
}

/// Runs the image's check of its vector operations against their definitions.
///
/// # Errors
/// No emulator or image, or an operation that differs.
pub fn check() -> Result<(), DeviceError> {
    let unavailable = |reason| DeviceError::Unavailable {
        device: "qemu",
        reason,
        remedy: "the emulator or the image is broken: build it again, or use another qemu-hexagon".to_owned(),
    };
    let outcome =
        Executables::find(Some(Arch::V67))?.check().map_err(|error| unavailable(error.to_string()))?;
    outcome.map_err(unavailable)
}

impl Qemu {
    /// Starts a session with exactly these settings.
    ///
    /// # Errors
    /// No emulator or image, or one that does not start.
    pub fn with_settings(settings: Settings) -> Result<Self, DeviceError> {
        Self::greeted(QemuLink::start_session(settings)?)
    }

    /// The emulator's process id.
    pub fn process_id(&self) -> u32 {
        self.link().running.process.id()
    }
}

impl QemuLink {
    fn start_session(settings: Settings) -> Result<(Self, DeviceInfo), DeviceError> {
        let programs = Executables::find(settings.arch)?;
        if settings.dma == DmaMode::Engine && !programs.arch.has_engines() {
            return Err(DeviceError::Unavailable {
                device: "qemu",
                reason: format!("{} has no DMA engines", programs.arch),
                remedy: "choose v73 or a later version, or DMA in software".to_owned(),
            });
        }
        let info = DeviceInfo {
            name: "qemu".to_owned(),
            description: format!("{}, {}", ABOUT, programs.arch),
            threads: settings.threads as u32,
            vtcm_bytes: settings.vtcm_bytes as u32,
            sessions: 1,
            arena_bytes: ARENA_BYTES,
            matrix_unit: MatrixUnit::None,
            cost_unit: CostUnit::Packets,
        };
        let running = Running::start(settings, &programs)?;
        Ok((Self { settings, programs, running, ops: Ops::default() }, info))
    }

    /// How the emulator ended, if it has: where the image was, or else its last words.
    fn end(&self) -> Option<String> {
        let (reason, words) = self.running.process.end()?;
        let place = self.ops.end(&self.programs.image, &words, self.running.place());
        let said: Vec<_> = words
            .lines()
            .map(|line| self.ops.line(line.trim()))
            // The place says it better, or the trace has said it.
            .filter(|line| !line.is_empty() && !line.starts_with("fault: ") && self.settings.trace.is_none())
            .collect();
        let said = Some(said.join(" / ")).filter(|said| !said.is_empty());
        Some([Some(reason), said, place].into_iter().flatten().collect::<Vec<_>>().join(": "))
    }

    /// Passes on what the image and its emulator have written, if somebody wants it.
    fn tell(&mut self) {
        if let Some(tracer) = self.settings.trace {
            let ops = &self.ops;
            self.running.process.lines(|line| tracer(&ops.line(line)));
        }
    }
}

impl Link for QemuLink {
    type Memory = Backing;
    type Mapping = Backing;

    fn open(options: &DeviceOptions, _number: usize) -> Result<(Self, DeviceInfo), DeviceError> {
        Self::start_session(Settings::from_options(options)?)
    }

    fn send(&mut self, request: &[u8]) -> Result<(), DeviceError> {
        if let Some(reason) = self.end() {
            return Err(DeviceError::Lost { reason });
        }
        let running = &mut self.running;
        if queue_ends::send(&mut running.requests, request)? {
            ring(running.requests.doorbell());
        }
        Ok(())
    }

    fn receive(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        let deadline = Instant::now() + timeout;
        loop {
            // Looked up before the queue is: the last response may have come just before the end.
            let end = self.end();
            let response = queue_ends::receive(&mut self.running.responses)?;
            self.tell();
            if let Some(response) = response {
                return Ok(response);
            }
            if let Some(reason) = end {
                return Err(DeviceError::Lost { reason });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DeviceError::Timeout(timeout));
            }
            let responses = &mut self.running.responses;
            responses.set_waiting(true);
            sleep(responses.doorbell(), responses.seen(), left.min(LOOK));
            responses.set_waiting(false);
        }
    }

    fn zeroed(&mut self, bytes: u64) -> Result<Backing, DeviceError> {
        let file = SharedFile::zeroed(bytes).map_err(|source| DeviceError::Memory { bytes, source })?;
        Ok(Backing::Shared(Arc::new(file)))
    }

    fn holding(&mut self, source: Arc<dyn Source>) -> Result<Backing, DeviceError> {
        let file = SealedFile::of(&*source).map_err(|io| DeviceError::of_weights(source.bytes(), io))?;
        Ok(Backing::Sealed(Arc::new(file)))
    }

    fn recognise(&self, memory: &SharedMemory) -> Result<Backing, DeviceError> {
        memory.shared_as().map(Backing::Shared)
    }

    fn handle(memory: &Backing) -> SharedMemory {
        match memory {
            Backing::Shared(file) => SharedMemory::new(Arc::clone(file) as Arc<_>),
            Backing::Sealed(file) => SharedMemory::new(Arc::clone(file) as Arc<_>),
        }
    }

    fn offer(&mut self, memory: Backing) -> Result<Offer<Backing>, DeviceError> {
        let (fd, bytes, flags) = match &memory {
            Backing::Shared(file) => (file.fd(), file.len() as u64, MapFlags::empty()),
            Backing::Sealed(file) => (file.fd(), file.len() as u64, MapFlags::READ_ONLY),
        };
        Ok(Offer { name: Fd(fd), bytes, flags, mapping: memory })
    }

    fn memory(mapping: &Backing) -> Backing {
        mapping.clone()
    }

    fn stop(&mut self) {
        self.running.stop();
    }

    fn start(&mut self) -> Result<(), DeviceError> {
        self.running = Running::start(self.settings, &self.programs)?;
        Ok(())
    }

    fn quick(&self) -> Duration {
        if std::env::var_os(DEBUGGER).is_some() { DEBUGGED } else { START }
    }

    fn copies_imports(&self) -> bool {
        true
    }

    fn name_ops(&mut self, program: ProgramId, sites: &[Site]) {
        self.ops.name(program, sites);
    }

    fn hexagon(&self) -> Option<u32> {
        self.programs.arch.has_float().then_some(self.programs.arch.number())
    }

    fn form(&mut self, operands: &Operands) -> Result<Option<Given>, DeviceError> {
        match self.programs.form(operands) {
            Ok(Ok(given)) => Ok(given),
            Ok(Err(reason)) => Err(DeviceError::Lost { reason }),
            Err(error) => {
                Err(DeviceError::Lost { reason: format!("the emulator cannot be started ({error})") })
            }
        }
    }

    fn patience(&self) -> Duration {
        // Under emulation a step takes minutes at most.
        if std::env::var_os(DEBUGGER).is_some() { DEBUGGED } else { Duration::from_secs(600) }
    }
}

impl Running {
    fn start(settings: Settings, programs: &Executables) -> Result<Self, DeviceError> {
        let config = settings.config();
        let bytes = config.file_bytes();
        let shared = SharedFile::zeroed(bytes).map_err(|source| DeviceError::Memory { bytes, source })?;
        let base = shared.base();
        // SAFETY: the start of a new mapping of at least this size, which nobody else has yet.
        unsafe { base.cast::<GuestConfig>().write(config) };
        // SAFETY: (1) page-aligned and inside the file, which `Running` drops after both ends; (2) the ends
        // are made once, here for the host and in the image for the DSP; (3) `SharedFile` gives out no
        // references.
        let queue: QueueMemory<'static> = unsafe { QueueMemory::new(base.add(QUEUE_OFFSET), config.queue()) };
        queue.initialise();
        let (requests, responses) = queue.host_ends();
        let process = Process::start(programs, shared.fd(), settings.trace.is_some())?;
        Ok(Self { process, requests, responses, shared })
    }

    /// The word in which the image says which op runs.
    fn place(&self) -> u32 {
        // SAFETY: `PLACE` is the offset of a word in the `GuestConfig` at the start of the mapping, which is
        // page-aligned and lives as long as `self`. The word is accessed by atomics only, for the image
        // writes it.
        let place =
            unsafe { AtomicU32::from_ptr(self.shared.base().as_ptr().add(GuestConfig::PLACE).cast()) };
        // Relaxed: what it says is for people.
        place.load(Ordering::Relaxed)
    }

    /// Ends the image and the emulator.
    fn stop(&mut self) {
        // SAFETY: `STOP` is the offset of a word in the `GuestConfig` at the start of the mapping, which is
        // page-aligned and lives as long as `self`. The word is accessed by atomics only, for the image reads
        // it.
        let stop = unsafe { AtomicU32::from_ptr(self.shared.base().as_ptr().add(GuestConfig::STOP).cast()) };
        // SeqCst: ordered before the check for sleepers.
        stop.store(1, Ordering::SeqCst);
        ring(self.requests.doorbell());
        self.process.stop(STOP);
    }
}

/// Wakes all threads that sleep on the word, in this process or in the emulator.
fn ring(word: &AtomicU32) {
    // It cannot fail on a word that exists.
    let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
}

/// Sleeps while the word is `seen`, for no longer than `timeout`.
fn sleep(word: &AtomicU32, seen: u32, timeout: Duration) {
    let timeout =
        rustix::fs::Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    // The result is not needed: the caller checks its condition again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

//! `inproc`: the DSP runtime on threads of this process, behind the same queue and messages as on a device.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hexflash_abi::Fd;
use hexflash_abi::message::{MapFlags, MatrixUnit, Response};
use hexflash_abi::queue::{QueueLayout, QueueMemory, Reader, Writer};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::platform::Platform;
use hexflash_dsp::platform::host::{HostPlatform, kernel_thread, processors};
use hexflash_dsp::pool::MAX_WORKERS;
use hexflash_dsp::program::Arena;
use hexflash_dsp::serve::host::{SessionError, Workers, run_session};
use hexflash_dsp::vtcm::Vtcm;

use super::client::Client;
use super::link::{Link, Offer};
use super::memory::Pages;
use super::queue_ends;
use super::{CostUnit, DeviceError, DeviceInfo, DeviceOptions, Memory, SharedMemory, Source};
use crate::setting::Setting;

/// The device in one line.
pub(super) const ABOUT: &str = "the DSP runtime on this machine's own processor, in this process";
/// Default VTCM: what v73 to v81 have.
pub(super) const VTCM_BYTES: usize = 8 << 20;
/// Bytes for loaded programs: a 64-layer model needs about a megabyte.
const ARENA_BYTES: usize = 8 << 20;
/// Rings as ggml-hexagon sizes them: dozens of messages.
const QUEUE: QueueLayout = QueueLayout::new(4096, 8192);
/// How long opening may take; it is microseconds unless the machine is overloaded.
const START: Duration = Duration::from_secs(10);
/// How long the host sleeps before it looks whether the session still lives.
const LOOK: Duration = Duration::from_millis(100);
/// How long it waits for a session to stop before it wakes it again.
const STOPPING: Duration = Duration::from_micros(200);
/// Turns of the wait loop before the host sleeps. Short: on few cores a spinning host takes time from
/// kernels.
const SPINS: u32 = 200;
/// Turns after that in which the host yields its core instead of sleeping, where kernels leave a core free.
/// They take some milliseconds. An answer is seen at once meanwhile, and waking a sleeper takes as long as a
/// small op.
const YIELDS: u32 = 10_000;
/// A turn that takes longer has given the core to another program; on an idle core a turn takes less than a
/// microsecond.
const TAKEN: Duration = Duration::from_micros(50);
/// How many waits sleep without yielding after another program took the core: about a tenth of a second of
/// tokens. The scheduler runs a thread that has slept before programs that compute all the time, and one that
/// yields after them.
const WITHOUT_YIELDS: u32 = 128;

/// A session's thread and what it runs on.
struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    requests: Writer<'static>,
    responses: Reader<'static>,
}

/// What the host and the session's threads share. Fields are dropped after the thread has ended.
struct Shared {
    platform: HostPlatform,
    stop: AtomicU32,
    ended: AtomicBool,
    /// Why the session ended by itself, if it could tell.
    failure: Mutex<Option<SessionError>>,
    queue: Pages,
    vtcm: Pages,
    arena: Pages,
}

/// The in-process device.
pub type Inproc = Client<InprocLink>;

/// The link to a session in this process.
pub struct InprocLink {
    settings: Settings,
    running: Running,
    /// Whether kernels leave a core free, on which the host can wait without sleeping.
    core_free: bool,
    /// Number of coming waits in which the host sleeps although a core is free, because another program
    /// wanted that core.
    sleepy_waits: u32,
    next_fd: i32,
}

/// All settings, including those that only tests change.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Kernel threads.
    pub threads: usize,
    /// Bytes of VTCM.
    pub vtcm_bytes: usize,
    /// When the software DMA engine executes.
    pub dma: DmaMode,
    /// Vector back end.
    pub isa: Isa,
}

impl Settings {
    /// Checks the options and fills in what they leave open.
    ///
    /// # Errors
    /// [`DeviceError::Setting`], or float arithmetic that was not built in.
    pub fn from_options(options: &DeviceOptions) -> Result<Self, DeviceError> {
        let threads = options.threads.unwrap_or(processors().min(8));
        if !(1..=MAX_WORKERS).contains(&threads) {
            let allowed = format!("1 to {MAX_WORKERS}");
            return Err(DeviceError::Setting { setting: Setting::Threads, allowed, found: threads });
        }
        let vtcm_bytes = options.vtcm_bytes.unwrap_or(VTCM_BYTES);
        if !(64 << 10..=256 << 20).contains(&vtcm_bytes) || !vtcm_bytes.is_multiple_of(4096) {
            let allowed = "a multiple of 4096 from 65536 (64 KiB) to 268435456 (256 MiB)".to_owned();
            return Err(DeviceError::Setting { setting: Setting::Vtcm, allowed, found: vtcm_bytes });
        }
        Ok(Self { threads, vtcm_bytes, dma: DmaMode::AtOnce, isa: options.float.isa()? })
    }
}

impl Inproc {
    /// Starts a session with exactly these settings.
    ///
    /// # Errors
    /// No memory or threads.
    pub fn with_settings(settings: Settings) -> Result<Self, DeviceError> {
        Self::greeted(InprocLink::start_session(settings)?)
    }
}

impl InprocLink {
    fn start_session(settings: Settings) -> Result<(Self, DeviceInfo), DeviceError> {
        let info = DeviceInfo {
            name: "inproc".to_owned(),
            description: format!("{}, vectors: {}", ABOUT, settings.isa.name()),
            threads: settings.threads as u32,
            vtcm_bytes: settings.vtcm_bytes as u32,
            sessions: 1,
            arena_bytes: ARENA_BYTES as u32,
            matrix_unit: MatrixUnit::None,
            cost_unit: CostUnit::Nanoseconds,
        };
        let running = Running::start(settings)?;
        Ok((Self { settings, running, core_free: false, sleepy_waits: 0, next_fd: 0 }, info))
    }
}

impl Link for InprocLink {
    type Memory = SharedMemory;
    type Mapping = SharedMemory;

    fn open(options: &DeviceOptions, _number: usize) -> Result<(Self, DeviceInfo), DeviceError> {
        let settings = Settings::from_options(options)?;
        if let Some(vectors) = Isa::left_out() {
            tracing::warn!(
                "this processor has {vectors}, which hexflash was compiled without: HEXFLASH_VECTORS=all cargo \
                 build --release makes a program for all processors"
            );
        }
        let (mut link, info) = Self::start_session(settings)?;
        link.core_free = settings.threads < processors();
        Ok((link, info))
    }

    fn send(&mut self, request: &[u8]) -> Result<(), DeviceError> {
        let running = &mut self.running;
        if queue_ends::send(&mut running.requests, request)? {
            running.shared.platform.futex_wake(running.requests.doorbell());
        }
        Ok(())
    }

    fn receive(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        let mut deadline = None;
        let mut turns = 0;
        let mut yields = if self.core_free && self.sleepy_waits == 0 { YIELDS } else { 0 };
        self.sleepy_waits = self.sleepy_waits.saturating_sub(1);
        loop {
            // Read before `ended` is looked at: the last response may have come just before the end.
            let ended = self.running.shared.ended.load(Ordering::SeqCst);
            match queue_ends::receive(&mut self.running.responses)? {
                Some(response) => return Ok(response),
                None if ended => {
                    return Err(self.running.shared.end());
                }
                None if turns < SPINS => {
                    turns += 1;
                    std::hint::spin_loop();
                }
                None if turns < SPINS + yields => {
                    turns += 1;
                    let start = Instant::now();
                    std::thread::yield_now();
                    if start.elapsed() > TAKEN {
                        (yields, self.sleepy_waits) = (0, WITHOUT_YIELDS);
                    }
                }
                None => {
                    let now = Instant::now();
                    let deadline = *deadline.get_or_insert(now + timeout);
                    let left = deadline.saturating_duration_since(now);
                    if left.is_zero() {
                        return Err(DeviceError::Timeout(timeout));
                    }
                    let (shared, responses) = (&self.running.shared, &self.running.responses);
                    responses.set_waiting(true);
                    if !shared.ended.load(Ordering::SeqCst) {
                        shared.platform.futex_wait_for(
                            responses.doorbell(),
                            responses.seen(),
                            left.min(LOOK),
                        );
                    }
                    responses.set_waiting(false);
                }
            }
        }
    }

    fn zeroed(&mut self, bytes: u64) -> Result<SharedMemory, DeviceError> {
        let pages = usize::try_from(bytes).map_err(std::io::Error::other).and_then(Pages::zeroed);
        let pages = pages.map_err(|source| DeviceError::Memory { bytes, source })?;
        Ok(SharedMemory::new(Arc::new(pages)))
    }

    fn holding(&mut self, source: Arc<dyn Source>) -> Result<SharedMemory, DeviceError> {
        let memory = source.in_memory().map_err(|io| DeviceError::of_weights(source.bytes(), io))?;
        Ok(SharedMemory::new(memory))
    }

    fn recognise(&self, memory: &SharedMemory) -> Result<SharedMemory, DeviceError> {
        Ok(memory.clone())
    }

    fn handle(memory: &SharedMemory) -> SharedMemory {
        memory.clone()
    }

    fn offer(&mut self, memory: SharedMemory) -> Result<Offer<SharedMemory>, DeviceError> {
        let name = Fd(self.next_fd);
        self.next_fd += 1;
        let bytes = memory.len() as u64;
        // SAFETY: (1) `Memory` promises address and validity while the handle in the offer lives, which the
        // client keeps until the session has unmapped it or has ended; (2) `Memory` excludes references.
        unsafe { self.running.shared.platform.share(name, memory.memory().base(), bytes) };
        let flags = if memory.memory().writable() { MapFlags::empty() } else { MapFlags::READ_ONLY };
        Ok(Offer { name, bytes, flags, mapping: memory })
    }

    fn answered(&mut self, name: Fd) {
        // The session keeps its own mapping; the name is not needed again.
        self.running.shared.platform.revoke(name);
    }

    fn memory(mapping: &SharedMemory) -> SharedMemory {
        mapping.clone()
    }

    fn stop(&mut self) {
        self.running.stop();
    }

    fn start(&mut self) -> Result<(), DeviceError> {
        self.running = Running::start(self.settings)?;
        Ok(())
    }

    fn quick(&self) -> Duration {
        START
    }

    fn copies_imports(&self) -> bool {
        false
    }
}

impl Shared {
    fn failure(&self) -> MutexGuard<'_, Option<SessionError>> {
        // The value is only ever replaced as a whole, so it is sound even if a thread panicked.
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a session that has ended.
    fn end(&self) -> DeviceError {
        match self.failure().take() {
            Some(SessionError::Thread(source)) => DeviceError::Thread { source },
            Some(error) => DeviceError::Lost { reason: error.to_string() },
            None => DeviceError::Lost { reason: "its thread ended".to_owned() },
        }
    }
}

impl Running {
    fn start(settings: Settings) -> Result<Self, DeviceError> {
        let pages = |bytes| Pages::zeroed(bytes).map_err(|source| memory_error(bytes, source));
        let shared = Arc::new(Shared {
            platform: HostPlatform::new().with_matrix_unit(),
            stop: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            failure: Mutex::new(None),
            queue: pages(QUEUE.bytes())?,
            vtcm: pages(settings.vtcm_bytes)?,
            arena: pages(ARENA_BYTES)?,
        });
        // SAFETY: (1) page-aligned memory of that size; `Shared` outlives both ends, since the thread and
        // this value each hold it; (2) the ends are made once per session, here for the host and below for
        // the DSP; (3) `Pages` gives out no references.
        let queue: QueueMemory<'static> = unsafe { QueueMemory::new(shared.queue.base(), QUEUE) };
        queue.initialise();
        let (requests, responses) = queue.host_ends();
        let (dsp_requests, dsp_responses) = queue.dsp_ends();
        let session = Arc::clone(&shared);
        let thread = kernel_thread("hexflash-dsp")
            .spawn(move || dsp_main(&session, settings, dsp_requests, dsp_responses))
            .map_err(|source| DeviceError::Thread { source })?;
        Ok(Self { shared, thread: Some(thread), requests, responses })
    }

    fn stop(&mut self) {
        self.shared.stop.store(1, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Repeated, because the session may have read `stop` just before it was set, and be about to
            // sleep on a word that a stop does not change.
            loop {
                self.shared.platform.futex_wake(self.requests.doorbell());
                if self.shared.ended.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(STOPPING);
            }
            // A thread that panicked has set `ended`; there is nothing more to learn from it.
            let _ = thread.join();
        }
    }
}

fn memory_error(bytes: usize, source: std::io::Error) -> DeviceError {
    DeviceError::Memory { bytes: bytes as u64, source }
}

/// Runs when a scope ends, by return or by panic.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The session's thread.
fn dsp_main(shared: &Shared, settings: Settings, requests: Reader<'_>, responses: Writer<'_>) {
    let _ended = OnDrop(|| {
        shared.ended.store(true, Ordering::SeqCst);
        shared.platform.wake_all();
    });
    // SAFETY: `pages` made `settings.vtcm_bytes` zeroed bytes at the start of a page. `Shared` keeps them as
    // long as the session runs, and this session alone uses them.
    let vtcm = unsafe { Vtcm::new(shared.vtcm.base(), settings.vtcm_bytes) };
    // SAFETY: `pages` made `ARENA_BYTES` zeroed bytes at the start of a page. `Shared` keeps them as long as
    // the session runs, and this session alone uses them: the host maps them under no name.
    let arena = unsafe { Arena::new(shared.arena.base(), ARENA_BYTES) };
    let workers = Workers { threads: settings.threads, isa: settings.isa, dma: settings.dma };
    let outcome = run_session(&shared.platform, vtcm, arena, workers, requests, responses, &shared.stop);
    *shared.failure() = outcome.err();
}

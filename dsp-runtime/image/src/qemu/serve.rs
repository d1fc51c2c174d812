//! A session under qemu: the same pool, session and message loop as everywhere, on the `linux` platform.

use core::sync::atomic::AtomicU32;

use hexflash_abi::Fd;
use hexflash_abi::guest::{GUEST_MAGIC, GUEST_VERSION, GuestConfig, QUEUE_OFFSET};
use hexflash_abi::queue::QueueMemory;
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hmx;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::platform::Platform;
use hexflash_dsp::platform::linux::{Errno, LinuxPlatform, guarded, hold_matrix_unit, spawn};
use hexflash_dsp::pool::{MAX_WORKERS, Pool};
use hexflash_dsp::program::Arena;
use hexflash_dsp::session::Session;
use hexflash_dsp::vtcm::Vtcm;

use super::{Failure, end, unusable};

/// What a worker's thread is given.
pub(super) struct Start<'a, P: Platform> {
    pub pool: &'a Pool<'a, P>,
    pub id: usize,
}

/// The life of a worker's thread, for `spawn`: `start` is a [`Start`] of the same platform that lives until
/// the process ends.
pub(super) extern "C" fn worker<P: Platform>(start: *mut ()) {
    // SAFETY: `start` is a `Start` of the same platform that lives until the process ends: `spawn` is given
    // it together with this function.
    let start = unsafe { &*start.cast::<Start<'_, P>>() };
    start.pool.serve(start.id);
}

pub(super) fn failed(what: &'static str) -> impl Fn(Errno) -> Failure {
    move |Errno(errno)| Failure { code: 1, what, errno }
}

/// The system, with the processor's engines.
#[cfg(target_feature = "hvx-qfloat")]
fn platform(files: &str) -> LinuxPlatform<'_> {
    use crate::user_dma::{UserDma, channel};
    use hexflash_dsp::platform::linux::now_ns;
    static ENGINE: UserDma = UserDma { now_us: || now_ns() / 1000 };
    LinuxPlatform::new(files).with_engines(|worker| channel(&ENGINE, worker))
}

/// The system alone: this processor has no engines.
#[cfg(not(target_feature = "hvx-qfloat"))]
fn platform(files: &str) -> LinuxPlatform<'_> {
    LinuxPlatform::new(files)
}

/// Serves until the host says stop, and then ends the process; returns only what is wrong before that.
pub(super) fn run(files: &str, fd: &str) -> Result<(), Failure> {
    let platform = platform(files);
    let fd = Fd(fd.parse().map_err(|_| unusable("the file's number is not a number"))?);
    let file =
        platform.map_file(fd, QUEUE_OFFSET as u64).map_err(failed("cannot map the first shared file"))?;
    // SAFETY: the mapping is page-aligned, at least this long, and plain data. Volatile: it is the host's
    // memory too; read once, then checked, then used.
    let config = unsafe { file.cast::<GuestConfig>().read_volatile() };
    if config.magic != GUEST_MAGIC || config.version != GUEST_VERSION {
        return Err(unusable("host and image are of different releases: build both from the same source"));
    }
    let dma = match config.dma {
        0 => DmaMode::AtOnce,
        1 => DmaMode::AtWait,
        2 => DmaMode::OutOfOrder,
        4 if cfg!(target_feature = "hvx-qfloat") => DmaMode::Engine,
        _ => return Err(unusable("no such DMA mode")),
    };
    let workers = config.threads as usize;
    if !(1..=MAX_WORKERS).contains(&workers) {
        return Err(unusable("too few or too many threads"));
    }
    let file = platform.map_file(fd, config.file_bytes()).map_err(failed("cannot map the queue"))?;
    let (vtcm_bytes, arena_bytes) = (config.vtcm_bytes as usize, config.arena_bytes as usize);
    let vtcm = guarded(vtcm_bytes).map_err(failed("no memory for VTCM"))?;
    // This thread dispatches. The unit's instructions are those of v73, and an emulator may have none.
    let has_matrix_unit = hmx::IS_THERE && hold_matrix_unit(vtcm, vtcm_bytes).is_ok();
    let platform = if has_matrix_unit { platform.with_matrix_unit() } else { platform };
    let arena = guarded(arena_bytes).map_err(failed("no memory for programs"))?;
    // SAFETY: `guarded` has made so many bytes for each, zeroed and aligned to vectors. Nobody else knows
    // them, the host has no mapping of them, and they stay until the process ends.
    let (vtcm, arena) = unsafe { (Vtcm::new(vtcm, vtcm_bytes), Arena::new(arena, arena_bytes)) };
    // SAFETY: (1) page-aligned, in the file; (2) the host made its own ends, and only this process the
    // others; (3) no reference is made to the memory.
    let queue = unsafe { QueueMemory::new(file.add(QUEUE_OFFSET), config.queue()) };
    if !queue.is_initialised() {
        return Err(unusable("the queue is not initialised"));
    }
    let (mut requests, mut responses) = queue.dsp_ends();
    // SAFETY: as for the word `stop` below: it lies inside the mapped file, which stays until the process
    // ends, at a multiple of 4 bytes; any bits are a value, and both sides access it atomically.
    let place = unsafe { AtomicU32::from_ptr(file.as_ptr().add(GuestConfig::PLACE).cast()) };
    let platform = platform.watched(place, config.trace != 0);
    // SAFETY: the word lies inside the mapped file, which stays until the process ends. `GuestConfig` aligns
    // it to 4 bytes, any bits are a value, and both sides access it atomically.
    let stop = unsafe { AtomicU32::from_ptr(file.as_ptr().add(GuestConfig::STOP).cast()) };

    let pool = Pool::new(&platform, Isa::Hexagon, vtcm, workers, dma);
    let starts: [Start<'_, LinuxPlatform<'_>>; MAX_WORKERS] =
        core::array::from_fn(|id| Start { pool: &pool, id });
    for start in &starts[1..workers] {
        // SAFETY: a thread of its own may use the pool. Pool and starts live until the process ends: from
        // here on this function does not return.
        let started = unsafe { spawn(worker::<LinuxPlatform<'_>>, (&raw const *start).cast_mut().cast()) };
        if let Err(error) = started {
            end(Err(failed("cannot start a thread")(error)));
        }
    }
    let Some(dispatcher) = pool.dispatcher() else { end(Err(unusable("the pool is taken"))) };
    let mut session = Session::new(&platform, dispatcher, arena, crate::arch());
    let served = hexflash_dsp::serve::serve(&mut session, &platform, &mut requests, &mut responses, stop);
    end(served.map_err(|_| Failure { code: 1, what: "the request queue is corrupt", errno: 0 }))
}

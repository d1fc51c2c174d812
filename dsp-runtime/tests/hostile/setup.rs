//! A session in guarded memory.

use std::borrow::Borrow;

use hexflash_abi::message::{Map, Message, Range};
use hexflash_abi::{BufferId, Fd};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::platform::host::{HostPlatform, worker_thread};
use hexflash_dsp::pool::Pool;
use hexflash_dsp::program::Arena;
use hexflash_dsp::session::Session;
use hexflash_dsp::vtcm::Vtcm;

use crate::memory::Guarded;
use crate::model::FIRST_FD;
use crate::random::Random;

/// Sizes of the memories; odd ones, so that ends are not page ends.
pub const SIZES: [usize; 4] = [160 * 1024 + 4, 96 * 1024 + 2, 128 * 1024, 24 * 1024];
/// Ids under which they are usually mapped.
pub const IDS: [BufferId; 4] = [BufferId(3), BufferId(0), BufferId(17), BufferId(63)];
/// The memory that is usually read-only, and the one for blocks and registers.
pub const READ_ONLY: usize = 2;
pub const CONTROL: usize = 3;
/// Places in the control memory: register blocks (one more than a step may have), the word that a receipt
/// copies, the receipt.
pub const REGISTERS: usize = 64;
pub const NONCE: usize = 4352;
pub const RECEIPT: usize = 4480;
pub const BLOCK: usize = 4608;
const _: () = assert!(REGISTERS + 65 * 64 <= NONCE);

/// How a session is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub isa: Isa,
    pub workers: usize,
    pub dma: DmaMode,
    pub vtcm_bytes: usize,
    pub arena_bytes: usize,
}

impl Setup {
    pub fn random(seed: u64, random: &mut Random) -> Self {
        Self {
            isa: if random.chance(15) { Isa::Portable } else { Isa::detect() },
            workers: if seed.is_multiple_of(8) { 3 } else { 1 },
            dma: random.pick(&[DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder]),
            vtcm_bytes: random.pick(&[64 << 10, 256 << 10, 1 << 20]),
            arena_bytes: random.pick(&[4 << 10, 16 << 10, 64 << 10]),
        }
    }
}

/// Memory that a session is built on.
pub struct Memories {
    pub shared: Vec<Guarded>,
    arena: Guarded,
    vtcm: Guarded,
}

impl Memories {
    pub fn new(setup: &Setup, random: &mut Random) -> Self {
        let mut memories = Self::blank(setup);
        memories.shared.iter_mut().for_each(|memory| memory.fill(random));
        memories
    }

    /// Memory with nothing in it yet.
    pub fn blank(setup: &Setup) -> Self {
        let shared = SIZES.iter().map(|&size| Guarded::new(size)).collect();
        Self { shared, arena: Guarded::new(setup.arena_bytes), vtcm: Guarded::new(setup.vtcm_bytes) }
    }

    pub fn guarded(&self) -> bool {
        self.shared.iter().chain([&self.arena, &self.vtcm]).all(Guarded::guarded)
    }
}

/// Runs `work` with a session on these memories, and with the memories: a reference to them, shared or not.
pub fn with_session<M: Borrow<Memories>, T>(
    setup: Setup,
    memories: M,
    work: impl FnOnce(&mut Session<'_, '_, HostPlatform>, M) -> T,
) -> T {
    let platform = HostPlatform::new();
    let Memories { shared, vtcm, arena, .. } = memories.borrow();
    for (i, memory) in shared.iter().enumerate() {
        // SAFETY: aligned to 128; it outlives the session; the tests make references to the bytes between
        // messages only.
        unsafe { platform.share(Fd(FIRST_FD + i as i32), memory.base(), memory.size() as u64) };
    }
    // SAFETY: `Guarded` memories begin at a multiple of 128, have these bytes, written once, and outlive the
    // session, which alone uses them.
    let (vtcm, arena) =
        unsafe { (Vtcm::new(vtcm.base(), setup.vtcm_bytes), Arena::new(arena.base(), setup.arena_bytes)) };
    let pool = Pool::new(&platform, setup.isa, vtcm, setup.workers, setup.dma).sharing_all();
    std::thread::scope(|scope| {
        for id in 1..setup.workers {
            let pool = &pool;
            worker_thread(id).spawn_scoped(scope, move || pool.serve(id)).unwrap();
        }
        // Also when an assertion fails: the scope waits for the workers.
        let _stop = Stop(&pool);
        let dispatcher = pool.dispatcher().unwrap();
        work(&mut Session::new(&platform, dispatcher, arena, 0), memories)
    })
}

struct Stop<'a, 'p>(&'a Pool<'p, HostPlatform>);

impl Drop for Stop<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The usual mappings.
pub fn usual_maps() -> impl Iterator<Item = Message> {
    IDS.iter().enumerate().map(|(i, &buffer)| {
        let flags = u32::from(i == READ_ONLY);
        Message::Map(Map { buffer, fd: Fd(FIRST_FD + i as i32), size: SIZES[i] as u64, flags, reserved: 0 })
    })
}

pub fn control(offset: usize, len: usize) -> Range {
    Range { buffer: IDS[CONTROL], len: len as u32, offset: offset as u64 }
}

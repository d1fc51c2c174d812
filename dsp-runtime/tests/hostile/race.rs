//! The host changes blocks, registers and data while the DSP side looks at them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hexflash_abi::message::{Exec, Load, Message, Run, Unload};
use hexflash_abi::{ErrorCode, ProgramId, Seq, Status};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use zerocopy::IntoBytes;

use crate::memory::Guarded;
use crate::mutate::{self, Bounds};
use crate::random::Random;
use crate::setup::{BLOCK, Memories, REGISTERS, Setup, control, usual_maps, with_session};
use crate::world::valid_program;

/// Overwrites words of a memory while others read them, as hardware would: word by word.
struct Vandal<'m> {
    words: &'m [AtomicU32],
    random: Random,
}

impl<'m> Vandal<'m> {
    fn new(memory: &'m Guarded, seed: u64) -> Self {
        let words = memory.base().cast::<AtomicU32>();
        // SAFETY: whole words inside the memory, aligned, alive for 'm.
        let words = unsafe { std::slice::from_raw_parts(words.as_ptr(), memory.size() / 4) };
        Self { words, random: Random::new(seed) }
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        for (word, value) in self.words[at / 4..].iter().zip(bytes.chunks_exact(4)) {
            word.store(u32::from_le_bytes(value.try_into().unwrap()), Ordering::Relaxed);
        }
    }

    /// Flips between a valid program and damaged ones, as fast as it can.
    fn programs(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let (valid, _) = valid_program(&mut self.random);
            self.put(BLOCK, &valid);
            for _ in 0..20 {
                let mut damaged = valid.clone();
                mutate::block(&mut self.random, &mut damaged);
                self.put(BLOCK, &damaged);
                self.put(BLOCK, &valid);
                let bounds = Bounds { max_tokens: 4, n_ctx: 40, n_slots: 2 };
                let registers = mutate::row_table(&mut self.random, bounds);
                self.put(REGISTERS, registers.as_bytes());
            }
        }
    }

    fn data(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let at = self.random.below(self.words.len());
            let value =
                if self.random.chance(50) { self.random.float() } else { self.random.below(4) as u32 };
            self.words[at].store(value, Ordering::Relaxed);
        }
    }
}

/// Least time of a race, and messages that must succeed in it, however little of a processor its threads get.
const DURATION: Duration = Duration::from_millis(600);
const SUCCEED: u64 = 13;
/// A race in which hardly anything succeeds is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// One session, two threads that change what it reads.
fn race(seed: u64) {
    let mut random = Random::new(seed);
    let setup = Setup {
        isa: Isa::detect(),
        workers: if seed.is_multiple_of(2) { 1 } else { 3 },
        dma: random.pick(&[DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder]),
        vtcm_bytes: 1 << 20,
        arena_bytes: 64 << 10,
    };
    let memories = Memories::new(&setup, &mut random);
    let read_only = memories.shared[2].bytes().to_vec();
    let stop = AtomicBool::new(false);
    let mut ran = 0;
    std::thread::scope(|scope| {
        let (stop, shared) = (&stop, &memories.shared);
        scope.spawn(move || Vandal::new(&shared[3], seed + 1).programs(stop));
        scope.spawn(move || Vandal::new(&shared[0], seed + 2).data(stop));
        let _stop = Stop(stop);
        with_session(setup, &memories, |session, _| {
            let mut send = |message: Message| session.handle(message.encode(Seq(7)).as_bytes());
            usual_maps().for_each(|map| assert!(send(map).outcome().is_ok()));
            let start = Instant::now();
            while start.elapsed() < DURATION || ran < SUCCEED {
                assert!(start.elapsed() < PATIENCE, "only {ran} messages succeeded");
                let program = ProgramId(random.below(4) as u32);
                let registers = control(REGISTERS, 64 * random.pick(&[1, 1, 2, 3]));
                // Lengths of likely blocks: a header, three buffers, some tensors and ops.
                let (tensors, ops) = (random.below(12), random.below(6));
                let block = control(BLOCK, 64 + 3 * 8 + 48 * tensors + 96 * ops);
                let response = send(match random.below(10) {
                    0..5 => Message::Run(Run { block, registers }),
                    5..7 => Message::Load(Load { program, reserved: 0, block }),
                    7..9 => Message::Exec(Exec { program, reserved: 0, registers }),
                    _ => Message::Unload(Unload { program }),
                });
                match response.outcome() {
                    Ok(()) => ran += 1,
                    Err((Status::Refused, fault)) => assert_ne!(fault.code, ErrorCode::Internal),
                    Err((status, fault)) => {
                        assert_eq!(status, Status::Failed);
                        let data = [ErrorCode::BadRowIndex, ErrorCode::BadRegister, ErrorCode::NotFinite];
                        // A chain of drafts is one sequence's.
                        let several = fault.code == ErrorCode::BadCount;
                        assert!(several || data.contains(&fault.code), "{fault}");
                    }
                }
            }
        });
    });
    assert!(memories.guarded());
    assert!(memories.shared[2].bytes() == read_only, "read-only memory was written");
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn memory_changes_under_the_session() {
    (0..8).for_each(race);
}

//! Hostile messages: whatever arrives gets one right answer, writes only what it may, and ends soon.
//!
//! A *world* is a session in guarded memory and a stream of some hundred messages, all from one seed: valid
//! programs of every op, damaged in ways that often leave them valid, under all kinds of messages in any
//! order. Every answer is compared with a model of the session, and every byte of every buffer with what the
//! program may have written.
//!
//! `HOSTILE_SEED=n` replays world n. `HOSTILE_WORLDS=n` sets how many there are.

mod build;
mod counting;
mod course;
mod memory;
mod model;
mod mutate;
mod race;
mod random;
mod setup;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hexflash_abi::op::Op;
use random::Random;
use setup::{Memories, Setup, with_session};
use world::{Tally, World};

/// Steps of a world, and worlds: with these, more than 100,000 messages.
const STEPS: usize = 240;
const WORLDS: u64 = 1300;
/// A world that is still there after so many looks hangs: 20 s, not counting what a machine sleeps.
const HANGS: u32 = 1000;
const LOOK: Duration = Duration::from_millis(20);

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Runs a world.
fn world(seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let setup = Setup::random(seed, &mut random);
    let mut memories = Memories::new(&setup, &mut random);
    with_session(setup, &mut memories, |session, memories| {
        let mut world = World::new(session, memories, random);
        let capacity = world.capacity();
        for _ in 0..STEPS {
            world.step();
        }
        let (tally, after) = world.finish();
        assert_eq!(capacity, after, "the arena has leaked");
        tally
    })
}

/// A world whose seed is printed if it fails.
fn watched(seed: u64, since: &AtomicU64, start: Instant) -> Tally {
    since.store(start.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| world(seed)));
    since.store(0, Ordering::Relaxed);
    outcome.unwrap_or_else(|panic| {
        eprintln!("replay with HOSTILE_SEED={seed}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn hostile_messages() {
    let start = Instant::now();
    let seeds = match setting("HOSTILE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("HOSTILE_WORLDS").unwrap_or(WORLDS),
    };
    let (next, done) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let total = Mutex::new(Tally::default());
    // Per thread: since when it has been in a world, and in which.
    let since: [[AtomicU64; 2]; 2] = Default::default();
    std::thread::scope(|scope| {
        for [since, at] in &since {
            let (next, done, total, end) = (&next, &done, &total, seeds.end);
            scope.spawn(move || {
                let _done = Count(done);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    at.store(seed, Ordering::Relaxed);
                    let tally = watched(seed, since, start);
                    total.lock().unwrap().add(&tally);
                }
            });
        }
        // Per thread: the world that the last look found, and how often it has been found.
        let mut looks = [(0, 0); 2];
        while done.load(Ordering::Acquire) < since.len() as u64 {
            std::thread::sleep(LOOK);
            for ([since, at], (world, found)) in since.iter().zip(&mut looks) {
                let began = since.load(Ordering::Relaxed);
                *found = if began > 0 && began == *world { *found + 1 } else { 0 };
                *world = began;
                if *found > HANGS {
                    eprintln!("hangs: replay with HOSTILE_SEED={}", at.load(Ordering::Relaxed));
                    std::process::abort();
                }
            }
        }
    });
    let total = total.into_inner().unwrap();
    println!("{total:?} in {:?}", start.elapsed());
    if setting("HOSTILE_SEED").is_none() && setting("HOSTILE_WORLDS").is_none() {
        assert!(total.messages >= 100_000 && total.programs >= 70_000, "{total:?}");
        let often = |op: &Op| total.ops.get(&op.wire()).is_some_and(|&n| n > 500);
        assert!(Op::ALL.iter().all(often), "an op is hardly ever run: {total:?}");
        assert!(total.halted > 500 && total.ended > 200, "hardly a program ends early: {total:?}");
        assert!(total.together > 1_000, "hardly a step has several sequences: {total:?}");
        assert!(total.answered > 200, "hardly a question is sound: {total:?}");
        // The damage is not so bad that everything is refused.
        assert!(total.sound * 4 > total.programs && total.ran * 5 > total.programs, "{total:?}");
    }
}

/// Counts when dropped, panicking or not.
struct Count<'a>(&'a AtomicU64);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        // Release, for who acquires the last count: what this thread did is done.
        self.0.fetch_add(1, Ordering::Release);
    }
}

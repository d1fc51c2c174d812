//! Units, faults, panics and the lives of workers.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use hexflash_abi::ErrorCode;

use super::*;
use crate::platform::host::HostPlatform;

/// Counts how often each unit is claimed, and which workers took part.
struct Tally {
    units: Vec<AtomicU32>,
    work: usize,
    workers: AtomicU32,
    /// How many workers must have come before any of them claims a unit.
    quorum: u32,
    /// Units that fail, and units that panic.
    fail: fn(usize) -> Option<Fault>,
    panic: fn(usize) -> bool,
}

impl Tally {
    fn new(units: usize, work: usize) -> Self {
        let units = (0..units).map(|_| AtomicU32::new(0)).collect();
        Self { units, work, workers: AtomicU32::new(0), quorum: 0, fail: |_| None, panic: |_| false }
    }

    fn each_once(&self) -> bool {
        self.units.iter().all(|n| n.load(Ordering::Relaxed) == 1)
    }
}

impl Kernel for Tally {
    fn units(&self) -> usize {
        self.units.len()
    }

    fn work(&self) -> usize {
        self.work
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.workers.fetch_or(1 << worker.id, Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(60);
        while self.workers.load(Ordering::Relaxed).count_ones() < self.quorum {
            if Instant::now() > end {
                return Err(Fault::new(ErrorCode::Internal, line!()));
            }
            std::thread::yield_now();
        }
        while let Some(unit) = worker.claim() {
            self.units[unit].fetch_add(1, Ordering::Relaxed);
            assert!(!(self.panic)(unit));
            if let Some(fault) = (self.fail)(unit) {
                return Err(fault);
            }
        }
        Ok(())
    }
}

struct StopOnDrop<'a, 'p>(&'a Pool<'p, HostPlatform>);

impl Drop for StopOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `work` with a pool, and ends the pool.
fn with_pool(workers: usize, work: impl FnOnce(&mut Dispatcher<'_, '_, HostPlatform>)) {
    let platform = HostPlatform::new();
    // SAFETY: no kernel here has a plan, so nobody touches it.
    let vtcm = unsafe { Vtcm::new(NonNull::dangling(), 0) };
    let pool = Pool::new(&platform, Isa::Portable, vtcm, workers, DmaMode::AtWait);
    std::thread::scope(|scope| {
        // Also when an assertion fails: the scope waits for all threads.
        let _stop = StopOnDrop(&pool);
        for id in 1..workers {
            let pool = &pool;
            scope.spawn(move || pool.serve(id));
        }
        work(&mut pool.dispatcher().unwrap());
    });
}

const PLAN: VtcmPlan = VtcmPlan { shared: 0, own: 0 };

#[test]
fn every_unit_is_claimed_once() {
    for workers in 1..=4 {
        with_pool(workers, |pool| {
            for units in [0, 1, 2, 3, 7, 1000] {
                let tally = Tally::new(units, ALONE);
                assert_eq!(pool.run(&tally, PLAN), Ok(()));
                assert!(tally.each_once(), "{workers} workers, {units} units");
            }
        });
        // All at once, and for many time slices, so that they meet on a busy machine too. The pool is another
        // one, because helpers that lost their processor in a job before would be left alone in this one.
        with_pool(workers, |pool| {
            let tally = Tally { quorum: workers as u32, ..Tally::new(2_000_000, ALONE) };
            assert_eq!(pool.run(&tally, PLAN), Ok(()));
            assert!(tally.each_once(), "{workers} workers");
        });
    }
}

#[test]
fn ten_thousand_jobs() {
    // With more workers than processors a job may take a scheduler's turn: fewer of them.
    for (workers, jobs) in [(1, 10_000), (2, 10_000), (3, 500)] {
        with_pool(workers, |pool| {
            for job in 0..jobs {
                let tally = Tally::new(1 + job % 9, ALONE);
                assert_eq!(pool.run(&tally, PLAN), Ok(()));
                assert!(tally.each_once(), "{workers} workers, job {job}");
            }
        });
    }
}

#[test]
fn large_jobs_are_shared_with_all_workers() {
    with_pool(3, |pool| {
        let tally = Tally { quorum: 3, ..Tally::new(2, ALONE) };
        assert_eq!(pool.run(&tally, PLAN), Ok(()));
    });
}

#[test]
fn small_jobs_stay_with_the_dispatcher() {
    with_pool(3, |pool| {
        for (units, work) in [(100, ALONE - 1), (1, usize::MAX)] {
            let tally = Tally::new(units, work);
            assert_eq!(pool.run(&tally, PLAN), Ok(()));
            assert_eq!(tally.workers.load(Ordering::Relaxed), 0b001, "{units} units, {work}");
        }
    });
}

/// Two threads with one number would share a DMA queue.
#[test]
#[should_panic(expected = "a worker has one thread")]
fn a_worker_has_one_thread() {
    let platform = HostPlatform::new();
    // SAFETY: no kernel runs here, so no region of VTCM is used.
    let vtcm = unsafe { Vtcm::new(NonNull::dangling(), 0) };
    let pool = Pool::new(&platform, Isa::Portable, vtcm, 2, DmaMode::AtWait);
    pool.stop();
    pool.serve(1);
    pool.serve(1);
}

/// On a busy machine a helper may get no processor for a long time; here it never gets one.
#[test]
fn nobody_waits_for_a_helper_that_has_not_begun() {
    let platform = HostPlatform::new();
    // SAFETY: no kernel here has a plan, so nobody touches it.
    let vtcm = unsafe { Vtcm::new(NonNull::dangling(), 0) };
    let pool = Pool::new(&platform, Isa::Portable, vtcm, 2, DmaMode::AtWait);
    let mut dispatcher = pool.dispatcher().unwrap();
    for _ in 0..3 {
        let tally = Tally::new(100, ALONE);
        assert_eq!(dispatcher.run(&tally, PLAN), Ok(()));
        assert!(tally.each_once());
    }
}

/// A job is over when all who began have left, however long that takes them.
#[test]
fn a_job_ends_with_the_last_of_its_helpers() {
    /// The dispatcher's unit ends when the helper's has begun; the helper's takes much longer.
    struct Late {
        begun: AtomicBool,
        done: AtomicU32,
    }
    impl Kernel for Late {
        fn units(&self) -> usize {
            2
        }
        fn work(&self) -> usize {
            ALONE
        }
        #[inline(always)]
        fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
            while worker.claim().is_some() {
                if worker.id == 0 {
                    while !self.begun.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                } else {
                    self.begun.store(true, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    }
    with_pool(2, |pool| {
        let late = Late { begun: AtomicBool::new(false), done: AtomicU32::new(0) };
        assert_eq!(pool.run(&late, PLAN), Ok(()));
        assert_eq!(late.done.load(Ordering::Relaxed), 2);
    });
}

/// A helper that is kept from going on costs more than it saved: for a while nobody shares jobs with it.
#[test]
fn helpers_that_keep_the_dispatcher_waiting_are_left_alone() {
    /// A job whose helper ends long after the dispatcher, whenever either of them gets a processor.
    #[derive(Default)]
    struct Slow {
        /// Whether the dispatcher has done a unit.
        done: AtomicBool,
        helpers: AtomicU32,
    }
    impl Kernel for Slow {
        fn units(&self) -> usize {
            2
        }
        fn work(&self) -> usize {
            ALONE
        }
        #[inline(always)]
        fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
            while worker.claim().is_some() {
                if worker.id > 0 {
                    self.helpers.fetch_add(1, Ordering::Relaxed);
                    // The other unit is the dispatcher's, because this helper has no time for it until then.
                    while !self.done.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(3));
                } else {
                    std::thread::sleep(Duration::from_micros(300));
                    self.done.store(true, Ordering::Relaxed);
                }
            }
            Ok(())
        }
    }
    // So many jobs and so much time that most of both are within pauses, which grow to a quarter of a second.
    let begin = Instant::now();
    let (mut jobs, mut helped) = (0, 0);
    with_pool(2, |pool| {
        while jobs < 100 || begin.elapsed() < Duration::from_millis(300) {
            let job = Slow::default();
            assert_eq!(pool.run(&job, PLAN), Ok(()));
            helped += job.helpers.into_inner();
            jobs += 1;
        }
    });
    // With every job shared there would be a helper in nearly all of them.
    assert!(helped * 3 < jobs, "helpers took part in {helped} of {jobs} jobs");
}

#[test]
fn a_fault_ends_its_job_only() {
    with_pool(3, |pool| {
        for work in [0, ALONE] {
            let mut tally = Tally::new(100, work);
            tally.fail = |unit| (unit >= 3).then_some(Fault::new(ErrorCode::BadRowIndex, unit as u32));
            let fault = pool.run(&tally, PLAN).unwrap_err();
            // Three workers fail at most once each; one of their faults is reported, whole.
            assert_eq!(fault.code, ErrorCode::BadRowIndex);
            assert!((3..6).contains(&fault.detail), "{fault}");
            assert_eq!(pool.run(&Tally::new(5, work), PLAN), Ok(()));
        }
    });
}

#[test]
fn the_first_fault_wins() {
    with_pool(1, |pool| {
        let mut tally = Tally::new(10, 0);
        tally.fail = |unit| (unit == 4).then_some(Fault::new(ErrorCode::BadRowIndex, 4));
        assert_eq!(pool.run(&tally, PLAN), Err(Fault::new(ErrorCode::BadRowIndex, 4)));
        assert_eq!(tally.units.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u32>(), 5);
    });
}

#[test]
fn a_panic_is_an_internal_error_and_the_pool_lives_on() {
    for workers in [1, 2, 4] {
        with_pool(workers, |pool| {
            for work in [0, ALONE] {
                let mut tally = Tally::new(50, work);
                tally.panic = |unit| unit % 10 == 7;
                assert_eq!(pool.run(&tally, PLAN).unwrap_err().code, ErrorCode::Internal);
                let tally = Tally::new(50, work);
                assert_eq!(pool.run(&tally, PLAN), Ok(()));
                assert!(tally.each_once());
            }
        });
    }
}

/// Transfers that a failed kernel leaves behind are over when its job is.
#[test]
fn transfers_do_not_outlive_their_job() {
    struct Leaves<'a>(&'a [AtomicU32; 2]);
    impl Kernel for Leaves<'_> {
        fn units(&self) -> usize {
            1
        }
        fn work(&self) -> usize {
            0
        }
        #[inline(always)]
        fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
            let [from, to] = self.0.each_ref().map(|word| word.as_ptr().cast::<u8>());
            // SAFETY: both words outlive the job, and nobody else touches them during it.
            let _ticket = unsafe { worker.dma.push(crate::dma::Transfer::linear(from, to, 4)) };
            Err(Fault::new(ErrorCode::BadRowIndex, 1))
        }
    }
    let words = [AtomicU32::new(5), AtomicU32::new(0)];
    with_pool(1, |pool| {
        assert!(pool.run(&Leaves(&words), PLAN).is_err());
        assert_eq!(words[1].load(Ordering::Relaxed), 5);
        assert_eq!(pool.take_moved(), 4);
    });
}

#[test]
fn one_dispatcher_at_a_time() {
    let platform = HostPlatform::new();
    // SAFETY: nothing runs.
    let vtcm = unsafe { Vtcm::new(NonNull::dangling(), 0) };
    let pool = Pool::new(&platform, Isa::Portable, vtcm, 100, DmaMode::AtOnce);
    assert_eq!(pool.workers(), MAX_WORKERS);
    let first = pool.dispatcher();
    assert!(first.is_some() && pool.dispatcher().is_none());
    drop(first);
    assert!(pool.dispatcher().is_some());
}

/// Workers end when told to: at once, and after they have fallen asleep.
#[test]
fn idle_workers_stop() {
    for idle in [Duration::ZERO, Duration::from_millis(50)] {
        with_pool(4, |pool| {
            std::thread::sleep(idle);
            assert_eq!(pool.run(&Tally::new(9, ALONE), PLAN), Ok(()));
            std::thread::sleep(idle);
        });
        with_pool(4, |_| std::thread::sleep(idle));
    }
}

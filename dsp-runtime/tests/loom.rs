//! The worker pool, and the sleep of the message loop, in all orders that threads may take:
//! `cargo xtask loom`.
#![cfg(loom)]

use std::ptr::NonNull;

use hexflash_abi::queue::{QueueLayout, QueueMemory};
use hexflash_abi::sync::{AtomicBool, AtomicU32, Ordering, UnsafeCell};
use hexflash_abi::{ErrorCode, Fault};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::{Hvx, Isa};
use hexflash_dsp::platform::Platform;
use hexflash_dsp::platform::host::HostPlatform;
use hexflash_dsp::pool::{Kernel, Pool, Worker, Workers};
use hexflash_dsp::serve::sleep;
use hexflash_dsp::stream::{Matrices, RingLayout, Stream, StreamedMatrix};
use hexflash_dsp::vtcm::{Vtcm, VtcmPlan};
use loom::thread;

fn model(preemptions: usize, work: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(work);
}

/// Nobody gives it back: a model runs in one process thousands of times, and is small.
fn forever<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// A pool of two workers, one of them on a thread of its own, that shares every job.
fn pool() -> (&'static Pool<'static, HostPlatform>, thread::JoinHandle<()>) {
    // SAFETY: no kernel here has a plan, so nobody touches it.
    let vtcm = unsafe { Vtcm::new(NonNull::dangling(), 0) };
    let pool = Pool::new(forever(HostPlatform::new()), Isa::Portable, vtcm, 2, DmaMode::AtOnce);
    let pool = forever(pool.sharing_all());
    (pool, thread::spawn(move || pool.serve(1)))
}

/// Counts how often each of two units was done, in cells that loom watches.
struct Tally {
    units: [UnsafeCell<u32>; 2],
    fails: bool,
}

// SAFETY: what the models are about: a unit is one worker's, and the dispatcher looks when the job is over.
unsafe impl Sync for Tally {}

impl Tally {
    fn new(fails: bool) -> Self {
        Self { units: [UnsafeCell::new(0), UnsafeCell::new(0)], fails }
    }

    fn counts(&self) -> [u32; 2] {
        // SAFETY: the models call this when the job is over, so that no worker writes the counts. Loom checks
        // it.
        [0, 1].map(|unit| self.units[unit].with(|count| unsafe { *count }))
    }
}

impl Kernel for Tally {
    fn units(&self) -> usize {
        self.units.len()
    }

    fn work(&self) -> usize {
        usize::MAX
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            // SAFETY: `claim` gave this unit to this worker alone, so that nobody else uses its count. Loom
            // checks it.
            self.units[unit].with_mut(|count| unsafe { *count += 1 });
            if self.fails {
                return Err(Fault::new(ErrorCode::BadRowIndex, unit as u32));
            }
        }
        Ok(())
    }
}

const PLAN: VtcmPlan = VtcmPlan { shared: 0, own: 0 };

#[test]
fn jobs_end_before_the_next_begins() {
    model(2, || {
        let (pool, worker) = pool();
        let mut dispatcher = pool.dispatcher().unwrap();
        for _ in 0..2 {
            let tally = Tally::new(false);
            assert_eq!(dispatcher.run(&tally, PLAN), Ok(()));
            assert_eq!(tally.counts(), [1, 1]);
        }
        pool.stop();
        worker.join().unwrap();
    });
}

#[test]
fn a_fault_of_any_worker_arrives_whole() {
    model(2, || {
        let (pool, worker) = pool();
        let mut dispatcher = pool.dispatcher().unwrap();
        let fault = dispatcher.run(&Tally::new(true), PLAN).unwrap_err();
        assert_eq!(fault.code, ErrorCode::BadRowIndex);
        assert!(fault.detail < 2, "{fault}");
        pool.stop();
        worker.join().unwrap();
    });
}

/// Two matrices of two units of a vector each.
struct Two(RingLayout, *const u8);

// SAFETY: the vectors behind the pointer stay for ever, and nobody writes them.
unsafe impl Sync for Two {}

impl Matrices for Two {
    fn holding(&self, unit: u32) -> Option<StreamedMatrix> {
        (unit < 4).then(|| StreamedMatrix::new(self.1, [2, 1], 1, 128, 2 + unit / 2 * 2))
    }
}

/// Counts the units of the weight stream before `end`.
struct Product<'a> {
    stream: &'a Stream<'a>,
    units: &'a [UnsafeCell<u32>; 4],
    end: u32,
}

// SAFETY: what the model is about: a unit is one worker's, and the dispatcher looks when the job is over.
unsafe impl Sync for Product<'_> {}

impl Kernel for Product<'_> {
    fn units(&self) -> usize {
        2
    }

    fn work(&self) -> usize {
        usize::MAX
    }

    fn stream_end(&self) -> u32 {
        self.end
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let mut multiplied = false;
        while let Some(staged) = worker.next_piece(self.stream, multiplied, self.end) {
            worker.dma.wait(staged.ticket)?;
            // SAFETY: the unit was claimed by this worker alone, so that nobody else uses its count. Loom
            // checks it.
            self.units[staged.piece.unit as usize].with_mut(|count| unsafe { *count += 1 });
            multiplied = true;
        }
        Ok(())
    }
}

/// Whoever has fetched a unit of a later job takes part in it, and what a run leaves is given up.
#[test]
fn units_that_were_fetched_ahead_are_done_in_their_job() {
    #[repr(align(128))]
    struct Vectors([u8; 512]);
    model(2, || {
        let memory = Box::leak(Box::new(Vectors([0; 512])));
        // SAFETY: two rings of two vectors, aligned and for ever, which only the pool uses.
        let vtcm = unsafe { Vtcm::new(NonNull::from(&mut memory.0).cast(), 512) };
        let pool = Pool::new(forever(HostPlatform::new()), Isa::Portable, vtcm, 2, DmaMode::AtOnce);
        let pool = forever(pool.sharing_all());
        let worker = thread::spawn(move || pool.serve(1));
        let mut dispatcher = pool.dispatcher().unwrap();
        let weights =
            Two(RingLayout { base: 0, bytes: 256, units: 4 }, forever(Vectors([0; 512])).0.as_ptr());
        // SAFETY: the weights are readable for ever, and nobody writes them. The rings lie in VTCM that only
        // the pool uses.
        let stream = unsafe { Stream::new(&weights, weights.0) };
        let units: [UnsafeCell<u32>; 4] = std::array::from_fn(|_| UnsafeCell::new(0));
        // SAFETY: called when no job runs, so that no worker writes the counts. Loom checks it.
        let counts = || [0, 1, 2, 3].map(|unit: usize| units[unit].with(|count| unsafe { *count }));
        assert_eq!(dispatcher.run(&Product { stream: &stream, units: &units, end: 2 }, PLAN), Ok(()));
        assert_eq!(counts(), [1, 1, 0, 0]);
        assert_eq!(dispatcher.run(&Product { stream: &stream, units: &units, end: 4 }, PLAN), Ok(()));
        assert_eq!(counts(), [1; 4]);
        assert_eq!(dispatcher.drain(), Ok(()));
        pool.stop();
        worker.join().unwrap();
    });
}

/// A run that ends early: what was fetched for later jobs is over when the stream is drained.
#[test]
fn a_stream_that_is_drained_leaves_nothing() {
    #[repr(align(128))]
    struct Vectors([u8; 512]);
    model(2, || {
        let memory = Box::leak(Box::new(Vectors([0; 512])));
        // SAFETY: two rings of two vectors, aligned and for ever, which only the pool uses.
        let vtcm = unsafe { Vtcm::new(NonNull::from(&mut memory.0).cast(), 512) };
        let pool = Pool::new(forever(HostPlatform::new()), Isa::Portable, vtcm, 2, DmaMode::AtWait);
        let pool = forever(pool.sharing_all());
        let worker = thread::spawn(move || pool.serve(1));
        let mut dispatcher = pool.dispatcher().unwrap();
        let weights =
            Two(RingLayout { base: 0, bytes: 256, units: 4 }, forever(Vectors([0; 512])).0.as_ptr());
        let units: [UnsafeCell<u32>; 4] = std::array::from_fn(|_| UnsafeCell::new(0));
        for _ in 0..2 {
            // SAFETY: the weights are readable for ever, and nobody writes them. The rings lie in VTCM that
            // only the pool uses.
            let stream = unsafe { Stream::new(&weights, weights.0) };
            assert_eq!(dispatcher.run(&Product { stream: &stream, units: &units, end: 2 }, PLAN), Ok(()));
            assert_eq!(dispatcher.drain(), Ok(()));
        }
        // SAFETY: no job runs, so that no worker writes the counts. Loom checks it.
        assert_eq!([0, 1].map(|unit: usize| units[unit].with(|count| unsafe { *count })), [2, 2]);
        pool.stop();
        worker.join().unwrap();
    });
}

#[test]
fn workers_without_jobs_stop() {
    model(3, || {
        let (pool, worker) = pool();
        pool.stop();
        worker.join().unwrap();
    });
}

/// The ends of a queue that nobody gives back.
fn queue() -> QueueMemory<'static> {
    const LAYOUT: QueueLayout = QueueLayout::new(256, 256);
    let words: Vec<_> = (0..LAYOUT.bytes() / 4).map(|_| AtomicU32::new(0)).collect();
    // SAFETY: an array of as many words as the layout has, for ever, with one writer and one reader per ring.
    let queue = unsafe { QueueMemory::new(NonNull::from(words.leak()).cast(), LAYOUT) };
    queue.initialise();
    queue
}

/// The DSP side does not sleep over a request.
#[test]
fn the_message_loop_wakes() {
    model(3, || {
        let queue = queue();
        let ((mut writer, _), (mut reader, _)) = (queue.host_ends(), queue.dsp_ends());
        let (platform, stop) = (forever(HostPlatform::new()), AtomicU32::new(0));
        let host = thread::spawn(move || {
            if writer.write(&[7; 8]).unwrap() {
                platform.futex_wake(writer.doorbell());
            }
        });
        let mut message = [0; 8];
        while reader.read(&mut message).unwrap().is_none() {
            sleep(platform, &reader, &stop);
        }
        assert_eq!(message, [7; 8]);
        host.join().unwrap();
    });
}

/// Nor over its end, if it is told more than once: a single ring may come between its last look and its
/// sleep.
#[test]
fn the_message_loop_ends() {
    model(3, || {
        let queue = queue();
        let ((writer, _), (reader, _)) = (queue.host_ends(), queue.dsp_ends());
        let platform = forever(HostPlatform::new());
        let (stop, ended) = (forever(AtomicU32::new(0)), forever(AtomicBool::new(false)));
        let host = thread::spawn(move || {
            stop.store(1, Ordering::SeqCst);
            loop {
                platform.futex_wake(writer.doorbell());
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                thread::yield_now();
            }
        });
        while stop.load(Ordering::Acquire) == 0 {
            sleep(platform, &reader, stop);
        }
        ended.store(true, Ordering::SeqCst);
        host.join().unwrap();
    });
}

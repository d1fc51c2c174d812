//! What a decode step and a speculative round cost: one message, no allocation on either side, a few
//! microseconds of the host's time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hexflash::device::inproc::Inproc;
use hexflash::device::{Buffer, Device, DeviceError, DeviceInfo, Source};
use hexflash::engine::{Engine, EngineOptions, RoundLimits};
use hexflash::generate::{Event, Generation, Limits, Request, step_together};
use hexflash::model::MAX_PENDING;
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{self, DraftLength, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_abi::Seq;
use hexflash_abi::message::{Message, MessageKind, Response};
use hexflash_abi::registers::Halt;
use hexflash_e2e::{Draft, Model, assistant, eagle3, inproc, report, settings};

/// Steps before anything is counted, and steps that count.
const WARM_UP: u32 = 8;
const STEPS: u32 = 64;

/// Counts what any thread of the process allocates while `COUNTING`. The in-process DSP side is threads of
/// this process, so its allocations count too.
struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    if COUNTING.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: `layout` is one that an allocator may be given, not of size zero (the caller's contract,
        // which the system's allocator has too).
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: `layout` is one that an allocator may be given, not of size zero (the caller's contract,
        // which the system's allocator has too).
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: `at` was allocated by this allocator, which is the system's, with this layout (the caller's
        // contract), and `size` is not zero.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // Freeing means that something was allocated before, so it counts as much.
        count();
        // SAFETY: `at` was allocated by this allocator, which is the system's, with this layout (the caller's
        // contract).
        unsafe { System.dealloc(at, layout) }
    }
}

/// Messages and responses that passed a [`Tap`].
#[derive(Default)]
struct Traffic {
    execs: AtomicU64,
    others: AtomicU64,
    responses: AtomicU64,
}

impl Traffic {
    fn take(&self) -> [u64; 3] {
        [&self.execs, &self.others, &self.responses].map(|count| count.swap(0, Ordering::Relaxed))
    }
}

/// The in-process device, with its traffic counted.
struct Tap {
    device: Inproc,
    traffic: Arc<Traffic>,
}

impl Device for Tap {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.device.allocate(bytes)
    }

    fn import(&mut self, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        self.device.import(source)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        self.device.free(buffer)
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        let exec = message.kind() == MessageKind::Exec;
        let count = if exec { &self.traffic.execs } else { &self.traffic.others };
        count.fetch_add(1, Ordering::Relaxed);
        self.device.submit(message)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        self.traffic.responses.fetch_add(1, Ordering::Relaxed);
        self.device.wait(timeout)
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.device.reset()
    }
}

/// Allocations, and their ends, that any thread makes during `work`.
fn allocations_during(work: impl FnOnce()) -> u64 {
    ALLOCATIONS.store(0, Ordering::SeqCst);
    COUNTING.store(true, Ordering::SeqCst);
    work();
    COUNTING.store(false, Ordering::SeqCst);
    ALLOCATIONS.load(Ordering::SeqCst)
}

/// The only test of this binary: others would allocate beside it.
#[test]
fn steps_and_rounds_are_one_message_and_no_allocation() {
    let elsewhere = || drop(std::thread::spawn(|| std::hint::black_box(vec![1u8; 100])).join());
    assert!(allocations_during(elsewhere) >= 2, "the counter sees other threads");
    decode_steps();
    rounds();
    generations();
    together();
}

/// Steps that four generations share: one message for all of them.
fn together() {
    let text = TextModel::read(&Model::Q8_0.gguf()).unwrap();
    let traffic = Arc::new(Traffic::default());
    let device = Tap { device: inproc(settings()), traffic: Arc::clone(&traffic) };
    let options = EngineOptions { sequences: 4, ..EngineOptions::default() };
    let mut engine = Model::Q8_0.engine(device, &options);
    let params = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let limits = Limits { max_tokens: Some(400), ignore_eos: true, ..Limits::default() };
    let generation = |id| {
        let prompt = text.encode("def __repr__(self):\n        return ").unwrap();
        let sampler = Sampler::new(params.clone()).unwrap();
        let request = Request::new(prompt, sampler).limits(limits.clone()).sequence(id);
        Generation::new(text.tokenizer.clone(), request)
    };
    let mut generations: Vec<_> = engine.sequences().map(generation).collect();
    let mut together: Vec<_> = generations.iter_mut().collect();
    let mut step = || {
        step_together(&mut engine, &mut together, |_, event| {
            assert!(!matches!(event.unwrap(), Event::Done(_)));
        });
    };
    (0..160).for_each(|_| step());
    traffic.take();
    let allocations = allocations_during(|| (0..STEPS).for_each(|_| step()));
    let steps = u64::from(STEPS);
    assert_eq!(allocations, 0, "allocations in steps of four texts");
    assert_eq!(traffic.take(), [steps, 0, steps], "Exec, other messages, responses");
}

/// A generation's steps, from when it has found its stride: each token at most one message, and nothing
/// allocated for it.
fn generations() {
    let text = TextModel::read(&Model::Q8_0.gguf()).unwrap();
    let prompt = text.encode("def __repr__(self):\n        return ").unwrap();
    let drafts = |source| Speculation::new(source, DraftLength::Fixed(7));
    for (name, speculation) in
        [("plain", Speculation::off()), ("rounds", drafts(speculation::DraftSource::Model))]
    {
        let traffic = Arc::new(Traffic::default());
        let device = Tap { device: inproc(settings()), traffic: Arc::clone(&traffic) };
        let mut engine = Draft::engine(Some(Draft::Q8_0), Model::Q8_0, device, None);
        let params = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let limits = Limits { max_tokens: Some(400), ignore_eos: true, ..Limits::default() };
        let request =
            Request::new(&*prompt, Sampler::new(params).unwrap()).limits(limits).speculation(speculation);
        let mut generation = Generation::new(text.tokenizer.clone(), request);
        let mut step = || assert!(!matches!(generation.step(&mut engine).unwrap(), Event::Done(_)));
        (0..160).for_each(|_| step());
        traffic.take();
        let allocations = allocations_during(|| (0..STEPS).for_each(|_| step()));
        let [execs, others, _] = traffic.take();
        assert_eq!((allocations, others), (0, 0), "{name}: allocations, other messages");
        // Plain steps hand features to the draft now and then.
        let most = u64::from(STEPS) + u64::from(STEPS / MAX_PENDING) + 1;
        assert!(execs > 0 && execs <= most, "{name}: {execs} messages for {STEPS} tokens");
        assert!(name == "plain" || execs < u64::from(STEPS) / 2, "{name}: {execs} rounds");
        report(format!("{name}: {execs} messages for {STEPS} tokens of a generation"));
    }
}

/// Rounds on the device, with lengths that change; blocks that the host checks; plain steps between them.
fn rounds() {
    let load = |device| Draft::engine(Some(Draft::Q8_0), Model::Q8_0, device, None);
    rounds_with(load);
    let dir = tempfile::tempdir().unwrap();
    let pair = assistant::Pair::new(dir.path(), assistant::USUAL);
    rounds_with(|device| pair.engine(true, device, &EngineOptions::default()));
    let target = Model::Q8_0.gguf();
    let draft = eagle3::write(&target, eagle3::Tables::Shared, &[], &dir.path().join("eagle3.gguf"));
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    rounds_with(|device| {
        Engine::load_with(&target, Some(&draft), Box::new(device), &EngineOptions::default(), &image).unwrap()
    });
}

fn rounds_with(load: impl FnOnce(Tap) -> Engine) {
    let traffic = Arc::new(Traffic::default());
    let device = Tap { device: inproc(settings()), traffic: Arc::clone(&traffic) };
    let mut engine = load(device);
    engine.prefill(&[585, 1525, 1361], |_| {}).unwrap();
    let mut last = engine.argmax(0);
    let warm = turn(&mut engine, &mut last, 4);
    let before = traffic.take();
    assert!(warm > 0 && before[1] > 0, "programs were loaded through the tap: {before:?}");

    let mut messages = 0;
    let allocations = allocations_during(|| messages = turn(&mut engine, &mut last, 24));
    assert_eq!(allocations, 0, "allocations in rounds");
    assert_eq!(traffic.take(), [messages, 0, messages], "Exec, other messages, responses");
}

/// `n` rounds with their first block, `n` plain steps and `n` blocks checked by the host; the messages that
/// this takes.
fn turn(engine: &mut Engine, last: &mut u32, n: u32) -> u64 {
    let limits = RoundLimits { draft_max: 7, tokens: 1000, stops: &[4095] };
    let mut rounds = engine.rounds(*last, &limits).unwrap().unwrap();
    for i in 0..n {
        let mut margins = [f32::NAN; 7];
        let mut idle = rounds.idle().unwrap();
        idle.margins(&mut margins);
        assert!(margins.iter().all(|&margin| margin >= 0.0), "{margins:?}");
        let drafts = 1 + i % 7;
        idle.set_drafts(drafts, 7).unwrap();
        rounds.submit().unwrap();
        let report = rounds.next().unwrap().unwrap();
        assert_eq!((report.drafted, report.halt), (drafts, Halt::Running));
        *last = *report.tokens.last().unwrap();
    }
    drop(rounds);
    for _ in 0..n {
        engine.decode(*last).unwrap();
        *last = engine.argmax(0);
    }
    // Hands what plain steps kept to the draft.
    engine.catch_up().unwrap();
    for _ in 0..n {
        let drafts = engine.draft(*last, 3).unwrap();
        engine.verify(&[*last, drafts[0], drafts[1], drafts[2]]).unwrap();
        *last = engine.argmax(0);
        engine.commit(1).unwrap();
    }
    u64::from(1 + n + n + 1 + 2 * n)
}

fn decode_steps() {
    for model in Model::ALL {
        let traffic = Arc::new(Traffic::default());
        let device = Tap { device: inproc(settings()), traffic: Arc::clone(&traffic) };
        let mut engine = model.engine(device, &EngineOptions::default());
        engine.prefill(&[585, 1525, 1361], |_| {}).unwrap();
        for _ in 0..WARM_UP {
            let token = engine.argmax(0);
            engine.decode(token).unwrap();
        }
        let loading = traffic.take();
        assert!(loading[1] > 0, "programs were loaded through the tap: {loading:?}");

        engine.reset_stats();
        let allocations = allocations_during(|| {
            for _ in 0..STEPS {
                let token = engine.argmax(0);
                let _ = engine.logits(0);
                engine.decode(token).unwrap();
            }
        });
        let steps = u64::from(STEPS);

        assert_eq!(allocations, 0, "{model:?}: allocations in {STEPS} steps");
        assert_eq!(traffic.take(), [steps, 0, steps], "{model:?}: Exec, other messages, responses");
        let stats = engine.stats();
        assert_eq!(
            (stats.steps, stats.messages),
            (steps, steps),
            "{model:?}: what the engine says of itself"
        );
        assert!(stats.dma_bytes > 0, "{model:?}: weights come through DMA");
        report(format!(
            "{model:?}: host {:.2} us/step, {} KiB by DMA per step",
            stats.host.as_secs_f64() * 1e6 / f64::from(STEPS),
            stats.dma_bytes / steps / 1024
        ));
    }
}

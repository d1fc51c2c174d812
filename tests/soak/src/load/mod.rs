//! The server under load: eight clients at once, well and badly behaved, on a device whose process is killed
//! twice.
//!
//! Every text that a client gets must be that of plain decoding; afterwards all sequences are free, memory
//! has not grown, and the device leaves nothing behind.

pub(crate) mod client;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hexflash::cancel::Cancel;
use hexflash::device;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::Limits;
use hexflash::sampler::{Sampler, SamplerOverrides};
use hexflash::speculation::{DraftLength, DraftSource, NGram, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::{Model, generate, inproc, reference, settings};
use hexflash_server::{Card, Options, RunError, Served, Server};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::resources::{Memory, children, resident};
use crate::run::Wrong;
use cdsprpc::standin::StandIn;
use client::Client;

/// Clients at once, and sequences.
const CLIENTS: usize = 8;
/// Kinds of the clients' first requests, as [`Client::ask`] numbers them: all that must have been tried,
/// however few requests there are in the time.
const FIRST: [u32; CLIENTS] = [0, 10, 12, 14, 17, 19, 0, 12];
/// Tokens of each context.
const CONTEXT: u32 = 256;
/// Different requests.
const WISHES: usize = 48;
/// How often the device's process is killed.
const CRASHES: u32 = 2;
/// A client that has not read for so long is given up.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long the model may load, and clients take to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Looks at memory in the course of a run.
const LOOKS: u32 = 200;

/// A request whose text is known.
pub(crate) struct Wish {
    prompt: Vec<u32>,
    tokens: usize,
    /// `None` takes the best token.
    seed: Option<u64>,
    /// What plain decoding gives.
    text: String,
}

/// What has become of all requests.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// Texts that came to their end, and were right.
    pub(crate) complete: u64,
    /// Of them, those whose client read slowly.
    pub(crate) slow: u64,
    /// Texts whose client went away in the middle; they were right so far.
    pub(crate) cancelled: u64,
    /// Requests that were cut off before their end.
    pub(crate) broken: u64,
    /// Requests that made no sense, and were told so.
    pub(crate) malformed: u64,
    /// Tokens of the complete texts.
    pub(crate) tokens: u64,
    /// The longest time that a client waited for something to read.
    pub(crate) longest_wait_seconds: f64,
}

impl Counts {
    /// Whether there was a request of each kind.
    fn are_complete(&self) -> bool {
        ![self.complete, self.cancelled, self.broken, self.malformed, self.slow].contains(&0)
    }
}

/// The end of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    seed: u64,
    minutes: f64,
    crashes: u32,
    #[serde(flatten)]
    counts: Counts,
    /// Resident bytes: median of the second and of the last quarter of the run.
    memory_before: u64,
    memory_after: u64,
}

/// What clients share.
pub(crate) struct Shared {
    address: SocketAddr,
    wishes: Vec<Wish>,
    over: AtomicBool,
    counts: Mutex<Counts>,
    /// The first thing that was wrong; everything ends with it.
    wrong: Mutex<Option<Wrong>>,
}

impl Shared {
    fn is_over(&self) -> bool {
        // Relaxed: what clients do in addition does no harm.
        self.over.load(Ordering::Relaxed)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn is_wrong(&self, wrong: Wrong) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(wrong);
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Runs the server for so many minutes.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn run(minutes: f64, seed: u64) -> Result<Report, Wrong> {
    let standin = StandIn::new("");
    let wishes = wishes(seed)?;
    let options = Options { port: 0, metrics: true, timeout: TIMEOUT, ..Options::default() };
    let server = Server::bind(options).map_err(|error| error.to_string())?;
    let shared = Arc::new(Shared {
        address: server.address(),
        wishes,
        over: AtomicBool::new(false),
        counts: Mutex::default(),
        wrong: Mutex::default(),
    });
    let (cancel, device) = (Cancel::default(), standin.options());
    let serving = std::thread::spawn({
        let cancel = cancel.clone();
        move || server.run(&cancel, move |_| load(&device))
    });
    let outcome = clients(&shared, Duration::from_secs_f64(60.0 * minutes), seed);
    cancel.cancel();
    let served = serving.join().map_err(|_| "the server panicked".to_owned())?;
    let (crashes, memory) = outcome?;
    served.map_err(|error: RunError<hexflash::Error>| error.to_string())?;
    if standin.census() != [0; 5] || !standin.violations().is_empty() {
        return Err(format!("the stand-in has {:?} left, and {:?}", standin.census(), standin.violations()));
    }
    let (memory_before, memory_after) = memory.quarters().ok_or("the run was too short to see memory")?;
    if !memory.is_flat() {
        return Err(format!("memory grows from {} to {} MiB", memory_before >> 20, memory_after >> 20));
    }
    let counts = shared.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if !counts.are_complete() {
        return Err(format!("not everything was tried: {counts:?}"));
    }
    Ok(Report { seed, minutes, crashes, counts, memory_before, memory_after })
}

/// The model on the stand-in, with drafts from n-grams and few snapshots.
fn load(device: &device::DeviceOptions) -> Result<Served, hexflash::Error> {
    let gguf = Model::Q8_0.gguf();
    let options = EngineOptions {
        n_ctx: Some(CONTEXT),
        batch: 64,
        sequences: CLIENTS as u32,
        snapshot_bytes: 8 << 20,
        speculate: true,
        ..EngineOptions::default()
    };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let engine = Engine::load_with(&gguf, None, device::open("htp", device)?, &options, &image)?;
    let drafts = || Speculation::new(DraftSource::Host(Box::new(NGram::default())), DraftLength::Fixed(4));
    Ok(Served::texts(Card::read(&gguf)?, engine, drafts))
}

/// Requests drawn from the texts of the repository, and what plain decoding on another device gives for each.
fn wishes(seed: u64) -> Result<Vec<Wish>, Wrong> {
    let mut rng = StdRng::seed_from_u64(seed);
    let gguf = Model::Q8_0.gguf();
    let text = TextModel::read(&gguf).map_err(|error| error.to_string())?;
    let cases = reference::greedy(Model::Q8_0).cases;
    let all: Vec<u32> = cases.into_iter().flat_map(|case| [case.prompt_ids, case.ids].concat()).collect();
    let options = EngineOptions { n_ctx: Some(CONTEXT), ..EngineOptions::default() };
    let mut engine = Model::Q8_0.engine(inproc(settings()), &options);
    let wish = |_| {
        let n = if rng.random_bool(0.2) { rng.random_range(60..150) } else { rng.random_range(1..20) };
        let start = rng.random_range(0..all.len() - n);
        let prompt = all[start..start + n].to_vec();
        let tokens = rng.random_range(5..80);
        let seed = rng.random_bool(0.5).then(|| rng.random_range(0..1000));
        let temperature = Some(if seed.is_some() { 0.9 } else { 0.0 });
        let overrides = SamplerOverrides { temperature, seed, ..SamplerOverrides::default() };
        let params = text.sampling.clone().overridden_by(&overrides);
        let mut sampler = Sampler::new(params).map_err(|error| error.to_string())?;
        let limits = Limits { ignore_eos: true, ..Limits::tokens(tokens) };
        engine.reset();
        let parties = (&mut sampler, &mut Speculation::off());
        let plain = generate(&mut engine, &text.tokenizer, parties, &prompt, &limits, |_| true);
        Ok(Wish { prompt, tokens, seed, text: plain.map_err(|error| error.to_string())?.text })
    };
    (0..WISHES).map(wish).collect()
}

/// Lets clients ask until the time is over; how often the device was killed, and the memory meanwhile.
fn clients(shared: &Arc<Shared>, time: Duration, seed: u64) -> Result<(u32, Memory), Wrong> {
    client::wait_until_ready(shared.address, PATIENCE)?;
    let threads: Vec<_> = (0..)
        .zip(FIRST)
        .map(|(number, first)| {
            let shared = Arc::clone(shared);
            let mut client = Client::new(StdRng::seed_from_u64(seed ^ (number + 1)));
            std::thread::spawn(move || {
                let mut kind = Some(first);
                while !shared.is_over() {
                    if let Err(wrong) = client.ask(&shared, kind.take()) {
                        shared.is_wrong(wrong);
                    }
                }
            })
        })
        .collect();
    let watched = watch(shared, time);
    shared.over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a client panicked".to_owned())?;
    }
    if let Some(wrong) = shared.wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(wrong);
    }
    let watched = watched?;
    client::wait_until_idle(shared.address, PATIENCE)?;
    // No sequence is lost: there are as many texts at once as before.
    std::thread::scope(|scope| {
        let ask = |number| {
            let mut client = Client::new(StdRng::seed_from_u64(number));
            scope.spawn(move || client.complete(shared))
        };
        let asked: Vec<_> = (0..CLIENTS as u64).map(ask).collect();
        asked.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned())))
    })?;
    Ok(watched)
}

/// Watches memory, and kills the device's process now and then: for `time`, and where there is other work
/// until everything was tried.
fn watch(shared: &Shared, time: Duration) -> Result<(u32, Memory), Wrong> {
    let (start, mut memory) = (Instant::now(), Memory::default());
    let mut crashes = 0;
    let is_enough = |crashes: u32| {
        let has_tried = shared.counts.lock().unwrap_or_else(PoisonError::into_inner).are_complete();
        crashes == CRASHES && has_tried || start.elapsed() > time + PATIENCE
    };
    while (start.elapsed() < time || !is_enough(crashes)) && !shared.is_over() {
        std::thread::sleep(time / LOOKS);
        memory.push(resident());
        if crashes < CRASHES && start.elapsed() > time * (crashes + 1) / (CRASHES + 1) {
            crashes += 1;
            crash()?;
        }
    }
    Ok((crashes, memory))
}

/// Kills the device's process, and waits until there is another one.
fn crash() -> Result<(), Wrong> {
    let before: HashSet<i32> = children().into_iter().collect();
    if before.is_empty() {
        return Err("the device has no process".to_owned());
    }
    for pid in before.iter().filter_map(|&pid| Pid::from_raw(pid)) {
        kill_process(pid, Signal::KILL).map_err(|error| error.to_string())?;
    }
    let start = Instant::now();
    while children().iter().all(|pid| before.contains(pid)) {
        if start.elapsed() > PATIENCE {
            return Err("the device was not started again".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

impl Report {
    /// The report for people.
    pub(crate) fn print(&self) {
        let Counts { complete, slow, cancelled, broken, malformed, tokens, longest_wait_seconds } =
            self.counts;
        println!("{:.1} minutes, seed {}: nothing wrong", self.minutes, self.seed);
        println!(
            "texts         {complete} equal to plain decoding, {slow} of them read slowly; {tokens} tokens"
        );
        println!("others        {cancelled} cancelled, {broken} cut off, {malformed} malformed");
        println!(
            "crashes       {}; the longest wait of a client was {longest_wait_seconds:.1} s",
            self.crashes
        );
        println!(
            "memory        {} MiB, {} MiB in the second quarter",
            self.memory_after >> 20,
            self.memory_before >> 20
        );
    }
}

//! What the server costs: decoding through it and without it by turns, and eight streams against one.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hexflash::cancel::Cancel;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Generation, Limits, Request};
use hexflash::gguf::Gguf;
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::Speculation;
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::{inproc, settings};
use hexflash_server::{Card, Options, Served, Server};
use serde::Serialize;

use crate::load::client::{read_stream, wait_until_ready};
use crate::run::Wrong;

/// Streams at once, and sequences of the server.
const STREAMS: u32 = 8;
/// Turns of each way.
const ROUNDS: usize = 9;
/// What the names of the device's threads begin with.
const DEVICE_THREADS: [&str; 2] = ["hexflash-dsp", "hexflash-hvx"];
const PROMPT: &str = "def push(self, value):\n";
/// A large model may take its time to load.
const PATIENCE: Duration = Duration::from_secs(600);

/// What was measured: medians of all turns.
#[derive(Serialize)]
pub(crate) struct Report {
    model: PathBuf,
    tokens: usize,
    /// Tokens per second of an engine with one sequence, and of one stream of the server.
    engine_per_second: f64,
    server_per_second: f64,
    /// The second over the first, of each two turns.
    server_over_engine: f64,
    /// Time on processors that a token of the server takes more, without the threads of device and client.
    cpu_us_per_token: f64,
    /// Tokens per second of all streams, and how often that is one stream's.
    streams_per_second: f64,
    streams_over_one: f64,
}

/// Measures with a model, `tokens` tokens each time.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn run(model: &Path, tokens: usize) -> Result<Report, Wrong> {
    let text = TextModel::read(&Gguf::open(model).map_err(words)?).map_err(words)?;
    let prompt = text.encode(PROMPT).map_err(words)?;
    let n_ctx = u32::try_from(prompt.len() + tokens + 1).map_err(words)?;
    let mut engine = load(model, n_ctx, 1).map_err(words)?;
    let server = Server::bind(Options { port: 0, ..Options::default() }).map_err(words)?;
    let (address, cancel) = (server.address(), Cancel::default());
    let serving = std::thread::spawn({
        let (cancel, model) = (cancel.clone(), model.to_owned());
        move || {
            server.run(&cancel, move |_| {
                let engine = load(&model, n_ctx, STREAMS)?;
                let card = Card::read(&Gguf::open(&model)?)?;
                Ok::<_, hexflash::Error>(Served::texts(card, engine, Speculation::off))
            })
        }
    });
    let measured = measure(&mut engine, &text, &prompt, address, tokens);
    cancel.cancel();
    serving.join().map_err(|_| "the server panicked".to_owned())?.map_err(words)?;
    Ok(Report { model: model.to_owned(), ..measured? })
}

fn words(error: impl std::fmt::Display) -> Wrong {
    error.to_string()
}

fn load(model: &Path, n_ctx: u32, sequences: u32) -> Result<Engine, hexflash::Error> {
    let options = EngineOptions { n_ctx: Some(n_ctx), sequences, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    Ok(Engine::load(&Gguf::open(model)?, Box::new(inproc(settings())), &options, &image)?)
}

fn measure(
    engine: &mut Engine,
    text: &TextModel,
    prompt: &[u32],
    address: SocketAddr,
    tokens: usize,
) -> Result<Report, Wrong> {
    wait_until_ready(address, PATIENCE)?;
    let (mut engines, mut servers, mut ratios, mut cpus) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut streams, mut gains) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let before = cpu();
        engine.reset();
        let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let limits = Limits { ignore_eos: true, ..Limits::tokens(tokens) };
        let request = Request::new(prompt, Sampler::new(greedy).map_err(words)?).limits(limits);
        let ended = Generation::new(text.tokenizer.clone(), request).run(engine, |_| {}).map_err(words)?;
        let direct = ended.generated.stats.generated_per_second;
        let direct_cpu = cpu() - before;

        // Reading is the client's, and it is this thread that does it.
        let (before, own_before) = (cpu(), own_cpu());
        let (times, _) = stream(address, 0, tokens)?;
        let served_cpu = (cpu() - before).saturating_sub(own_cpu() - own_before);
        let served = (tokens - 1) as f64 / (times.1 - times.0).as_secs_f64();

        let start = Instant::now();
        std::thread::scope(|scope| {
            let open = |number| scope.spawn(move || stream(address, number, tokens));
            let opened: Vec<_> = (0..STREAMS).map(open).collect();
            opened.into_iter().try_for_each(|one| one.join().map_err(|_| "a panic".to_owned())?.map(drop))
        })?;
        let all = f64::from(STREAMS) * tokens as f64 / start.elapsed().as_secs_f64();
        engines.push(direct);
        servers.push(served);
        ratios.push(served / direct);
        cpus.push((served_cpu.as_secs_f64() - direct_cpu.as_secs_f64()) * 1e6 / tokens as f64);
        streams.push(all);
        gains.push(all / served);
    }
    Ok(Report {
        model: PathBuf::new(),
        tokens,
        engine_per_second: median(engines),
        server_per_second: median(servers),
        server_over_engine: median(ratios),
        cpu_us_per_token: median(cpus),
        streams_per_second: median(streams),
        streams_over_one: median(gains),
    })
}

/// Reads a stream; when its first and its last piece came, and its text.
fn stream(address: SocketAddr, number: u32, tokens: usize) -> Result<((Instant, Instant), String), Wrong> {
    // Each stream has a text of its own.
    let prompt = if number == 0 { PROMPT.to_owned() } else { format!("# {number}\n{PROMPT}") };
    let body = serde_json::json!({
        "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true, "stream": true,
        // Else the second time has no prompt to read.
        "cache_prompt": false,
    });
    let mut times = None;
    let text = read_stream(address, body.to_string().as_bytes(), |_| {
        let now = Instant::now();
        times = Some((times.map_or(now, |(first, _)| first), now));
        true
    })?;
    Ok((times.ok_or("a stream without text")?, text))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Time on a processor of a thread, of which this is the folder in `/proc`.
fn of_thread(folder: &Path) -> Option<Duration> {
    let stat = fs::read_to_string(folder.join("schedstat")).ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Time on a processor of the calling thread.
fn own_cpu() -> Duration {
    of_thread(Path::new("/proc/thread-self")).unwrap_or_default()
}

/// Time on a processor of all threads of this process, without those of the device: what these do is the
/// DSP's work elsewhere.
fn cpu() -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|thread| thread.path());
    let is_host = |folder: &PathBuf| {
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        !DEVICE_THREADS.iter().any(|device| name.starts_with(device))
    };
    threads.filter(is_host).filter_map(|folder| of_thread(&folder)).sum()
}

impl Report {
    /// The report for people.
    pub(crate) fn print(&self) {
        println!("{}, {} tokens, medians of {ROUNDS} turns", self.model.display(), self.tokens);
        println!("engine        {:.1} tokens/s", self.engine_per_second);
        println!(
            "one stream    {:.1} tokens/s, {:.3} of the engine; {:.0} us of CPU more per token",
            self.server_per_second, self.server_over_engine, self.cpu_us_per_token
        );
        println!(
            "{STREAMS} streams     {:.1} tokens/s in all, {:.2} times one stream",
            self.streams_per_second, self.streams_over_one
        );
    }
}

//! Many small requests on many connections: memory and descriptors of the server stay level.
//!
//! Clients come and go, most ask for little, some make no sense, and some leave in the middle. What each
//! leaves behind, if it leaves anything, has added up by the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hexflash::cancel::Cancel;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::speculation::Speculation;
use hexflash::text::CHATML;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::{Model, inproc, settings};
use hexflash_server::{Card, Options, RunError, Served, Server};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use serde_json::{Value, json};

use crate::load::client::wait_until_ready;
use crate::resources::{Memory, descriptors, resident};
use crate::run::Wrong;

/// Clients at once.
const CLIENTS: u64 = 8;
/// Sequences of the server.
const SEQUENCES: u32 = 4;
/// Tokens of each context.
const CONTEXT: u32 = 256;
/// Requests on a connection that ends well.
const REQUESTS: u64 = 4;
/// One connection of so many is none that asks something and waits for it.
const ODD: u32 = 5;
/// Looks at memory and descriptors in the course of a run.
const LOOKS: u64 = 200;
/// How long the model may load, and connections take to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Silence after which a request counts as lost.
const SILENCE: Duration = Duration::from_secs(60);

/// The end of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    seed: u64,
    connections: u64,
    /// Requests that were answered as they should be.
    requests: u64,
    minutes: f64,
    /// Resident bytes: median of the second and of the last quarter of the run.
    memory_before: u64,
    memory_after: u64,
    /// Descriptors of the process before the first connection and after the last.
    descriptors_before: usize,
    descriptors_after: usize,
}

/// A server with so many connections, one after the other from a few clients at once.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn run(connections: u64, seed: u64) -> Result<Report, Wrong> {
    let server =
        Server::bind(Options { port: 0, ..Options::default() }).map_err(|error| error.to_string())?;
    let (address, cancel) = (server.address(), Cancel::default());
    let serving = std::thread::spawn({
        let cancel = cancel.clone();
        move || server.run(&cancel, |_| load())
    });
    let outcome = crowd(address, connections, seed);
    cancel.cancel();
    let served = serving.join().map_err(|_| "the server panicked".to_owned())?;
    served.map_err(|error: RunError<hexflash::Error>| error.to_string())?;
    outcome
}

fn load() -> Result<Served, hexflash::Error> {
    let gguf = Model::Q8_0.gguf();
    let mut card = Card::read(&gguf)?;
    card.set_template(CHATML.to_owned())?;
    let options = EngineOptions {
        n_ctx: Some(CONTEXT),
        batch: 64,
        sequences: SEQUENCES,
        snapshot_bytes: 8 << 20,
        ..EngineOptions::default()
    };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let engine = Engine::load_with(&gguf, None, Box::new(inproc(settings())), &options, &image)?;
    Ok(Served::texts(card, engine, Speculation::off))
}

fn crowd(address: SocketAddr, connections: u64, seed: u64) -> Result<Report, Wrong> {
    wait_until_ready(address, PATIENCE)?;
    let (start, before) = (Instant::now(), descriptors_at_rest());
    let (begun, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let (memory, most) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (begun, answered) = (&begun, &answered);
                let mut rng = StdRng::seed_from_u64(seed ^ (number + 1));
                scope.spawn(move || {
                    // Relaxed: a number for each, and nothing else that they share.
                    while begun.fetch_add(1, Ordering::Relaxed) < connections {
                        answered.fetch_add(come_and_go(address, &mut rng)?, Ordering::Relaxed);
                    }
                    Ok::<_, Wrong>(())
                })
            })
            .collect();
        let (mut memory, mut most) = (Memory::default(), 0);
        let mut looks = 0;
        while !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            if begun.load(Ordering::Relaxed) * LOOKS >= connections * looks {
                looks += 1;
                memory.push(resident());
                most = most.max(descriptors());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for client in clients {
            client.join().map_err(|_| "a client panicked".to_owned())??;
        }
        Ok::<_, Wrong>((memory, most))
    })?;
    // Connections that clients have left are seen a moment later.
    let waited = Instant::now();
    while descriptors() > before {
        if waited.elapsed() > PATIENCE {
            return Err(format!("{} descriptors are open, {before} were, and {most} at once", descriptors()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let (memory_before, memory_after) = memory.quarters().ok_or("the run was too short to see memory")?;
    if !memory.is_flat() {
        return Err(format!("memory grows from {} to {} MiB", memory_before >> 20, memory_after >> 20));
    }
    Ok(Report {
        seed,
        connections,
        requests: answered.into_inner(),
        minutes: start.elapsed().as_secs_f64() / 60.0,
        memory_before,
        memory_after,
        descriptors_before: before,
        descriptors_after: descriptors(),
    })
}

/// The least number of descriptors in a moment: the connection that asked whether the server is ready is seen
/// to be closed a little later.
fn descriptors_at_rest() -> usize {
    const TIMES: usize = 25;
    let look = |_| {
        std::thread::sleep(Duration::from_millis(10));
        descriptors()
    };
    (0..TIMES).map(look).min().unwrap_or_default()
}

/// A connection from its beginning to its end; how many requests were answered on it.
fn come_and_go(address: SocketAddr, rng: &mut StdRng) -> Result<u64, Wrong> {
    let failed = |error: std::io::Error| format!("a connection: {error}");
    let mut socket = TcpStream::connect(address).map_err(failed)?;
    socket.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    if rng.random_range(0..ODD) == 0 {
        let request = request("/v1/completions", &completion(rng, true).to_string());
        let part = match rng.random_range(0..3) {
            0 => "",
            1 => &request[..rng.random_range(0..request.len())],
            _ => &request,
        };
        socket.write_all(part.as_bytes()).map_err(failed)?;
        if part.len() == request.len() {
            // It leaves with the first words.
            let mut some = [0; 64];
            let _ = socket.read(&mut some).map_err(failed)?;
        }
        return Ok(0);
    }
    let mut lines = BufReader::new(socket);
    for _ in 0..REQUESTS {
        let (text, expected) = match rng.random_range(0..8) {
            0 => ("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), 200),
            1 => ("GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), 200),
            2 => (request("/tokenize", r#"{"content": "def push(self, item):"}"#), 200),
            3 => (request("/apply-template", &chat(rng).to_string()), 200),
            4 => (request("/v1/completions", r#"{"prompt": "x", "max_tokens": "many"}"#), 400),
            5 => (request("/nowhere", "{}"), 404),
            6 => (request("/v1/chat/completions", &chat(rng).to_string()), 200),
            _ => (request("/v1/completions", &completion(rng, false).to_string()), 200),
        };
        lines.get_mut().write_all(text.as_bytes()).map_err(failed)?;
        let (status, body) = answer(&mut lines).map_err(|error| format!("{error}, after {text}"))?;
        if status != expected {
            return Err(format!("{status} and not {expected}: {body}, after {text}"));
        }
    }
    Ok(REQUESTS)
}

fn request(path: &str, body: &str) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// A text of a token or two after a prompt that is new most of the time.
fn completion(rng: &mut StdRng, stream: bool) -> Value {
    let prompt = format!("def f{}(", rng.random_range(0..1000));
    json!({ "prompt": prompt, "max_tokens": rng.random_range(1..3), "temperature": 0, "stream": stream })
}

fn chat(rng: &mut StdRng) -> Value {
    let messages = [json!({ "role": "user", "content": format!("{}?", rng.random_range(0..1000)) })];
    json!({ "messages": messages, "max_tokens": 1 })
}

/// An answer of a given length.
fn answer(lines: &mut BufReader<TcpStream>) -> Result<(u16, String), Wrong> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).map_err(|error| format!("an answer fell silent: {error}"))? == 0 {
            return Err(format!("a connection has ended after {head:?}"));
        }
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).ok_or("no length")?;
    let mut body = vec![0; length.parse().map_err(|_| "no length")?];
    lines.read_exact(&mut body).map_err(|error| format!("an answer was cut off: {error}"))?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

impl Report {
    /// The report for people.
    pub(crate) fn print(&self) {
        println!("{:.1} minutes, seed {}: nothing wrong", self.minutes, self.seed);
        println!("requests      {} answered, on {} connections", self.requests, self.connections);
        println!(
            "memory        {} MiB, {} MiB in the second quarter",
            self.memory_after >> 20,
            self.memory_before >> 20
        );
        println!("descriptors   {}, {} before", self.descriptors_after, self.descriptors_before);
    }
}

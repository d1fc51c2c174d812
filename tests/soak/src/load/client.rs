//! A client of the server: what it asks, how it reads, and when it goes away.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::{Shared, Wish};
use crate::run::Wrong;

/// Silence after which a request counts as lost.
const SILENCE: Duration = Duration::from_secs(60);

/// Bodies that make no sense.
const NONSENSE: [&[u8]; 8] = [
    b"",
    b"{",
    b"[1, 2]",
    b"\xff\xfe",
    br#"{"prompt": {"a": 1}}"#,
    br#"{"prompt": "x", "max_tokens": "many"}"#,
    br#"{"prompt": "x", "temperature": -3}"#,
    br#"{"prompt": [99999999]}"#,
];

pub(super) struct Client {
    rng: StdRng,
}

/// A socket that does not wait for ever.
fn connect(address: SocketAddr) -> Result<TcpStream, Wrong> {
    let socket = TcpStream::connect(address).map_err(|error| format!("no connection: {error}"))?;
    let limited =
        socket.set_read_timeout(Some(SILENCE)).and_then(|()| socket.set_write_timeout(Some(SILENCE)));
    limited.map(|()| socket).map_err(|error| error.to_string())
}

fn head(method: &str, path: &str, length: usize) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
}

/// A request and its whole answer: status and body.
fn exchange(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), Wrong> {
    let mut socket = connect(address)?;
    let mut all = Vec::new();
    let sent =
        socket.write_all(head(method, path, body.len()).as_bytes()).and_then(|()| socket.write_all(body));
    sent.and_then(|()| socket.read_to_end(&mut all)).map_err(|error| format!("{method} {path}: {error}"))?;
    let text = String::from_utf8_lossy(&all);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    let body = text.split_once("\r\n\r\n").map_or(0, |(head, _)| head.len() + 4);
    Ok((status, all.split_off(body)))
}

/// Waits until the model is loaded.
pub(crate) fn wait_until_ready(address: SocketAddr, patience: Duration) -> Result<(), Wrong> {
    wait(patience, "the model is not loaded", || Ok(exchange(address, "GET", "/health", b"")?.0 == 200))
}

/// Waits until no sequence is writing and no request waits.
pub(super) fn wait_until_idle(address: SocketAddr, patience: Duration) -> Result<(), Wrong> {
    wait(patience, "sequences are busy, and nobody reads", || {
        let (_, slots) = exchange(address, "GET", "/slots", b"")?;
        let slots: Vec<Value> = serde_json::from_slice(&slots).map_err(|error| error.to_string())?;
        Ok(slots.iter().all(|slot| slot["is_processing"] == false))
    })
}

fn wait(patience: Duration, what: &str, is_so: impl Fn() -> Result<bool, Wrong>) -> Result<(), Wrong> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > patience {
            return Err(what.to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Sends the body of a completion that streams, and reads what comes; `go_on` gets each piece of text, and
/// says whether to read another one. The text that was read.
///
/// # Errors
/// The stream has no end, or ends with an error.
pub(crate) fn read_stream(
    address: SocketAddr,
    body: &[u8],
    mut go_on: impl FnMut(&str) -> bool,
) -> Result<String, Wrong> {
    let mut socket = connect(address)?;
    let request = [head("POST", "/v1/completions", body.len()).as_bytes(), body].concat();
    socket.write_all(&request).map_err(|error| error.to_string())?;
    let (mut lines, mut text) = (BufReader::new(socket), String::new());
    loop {
        let mut line = String::new();
        let read = lines.read_line(&mut line).map_err(|error| format!("a stream fell silent: {error}"))?;
        if read == 0 {
            return Err(format!("a stream has ended after {text:?}, without an end"));
        }
        let Some(data) = line.trim_end().strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            return Ok(text);
        }
        let event: Value = serde_json::from_str(data).map_err(|error| format!("{error}: {data}"))?;
        if !event["error"].is_null() {
            return Err(format!("a stream has ended with {event}"));
        }
        let piece = event["choices"][0]["text"].as_str().unwrap_or_default();
        text.push_str(piece);
        if !go_on(piece) {
            return Ok(text);
        }
    }
}

impl Client {
    pub(super) fn new(rng: StdRng) -> Self {
        Self { rng }
    }

    /// One request to its end, of the kind with this number below 20 or of any kind.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn ask(&mut self, shared: &Shared, kind: Option<u32>) -> Result<(), Wrong> {
        match kind.unwrap_or_else(|| self.rng.random_range(0..20)) {
            0..10 => self.stream(shared, None, Duration::ZERO),
            10..12 => self.complete(shared),
            12..14 => {
                let pause = Duration::from_millis(self.rng.random_range(5..60));
                self.stream(shared, None, pause)
            }
            14..17 => {
                let events = self.rng.random_range(0..20);
                self.stream(shared, Some(events), Duration::ZERO)
            }
            17 | 18 => self.break_off(shared),
            _ => self.make_no_sense(shared),
        }
    }

    fn body(&mut self, wish: &Wish, stream: bool) -> Vec<u8> {
        let mut body = json!({
            "prompt": wish.prompt,
            "max_tokens": wish.tokens,
            "temperature": if wish.seed.is_some() { 0.9 } else { 0.0 },
            "ignore_eos": true,
            "stream": stream,
            "cache_prompt": self.rng.random_bool(0.8),
        });
        if let Some(seed) = wish.seed {
            body["seed"] = seed.into();
        }
        body.to_string().into_bytes()
    }

    fn wish<'s>(&mut self, shared: &'s Shared) -> &'s Wish {
        // There are some.
        shared.wishes.choose(&mut self.rng).unwrap_or(&shared.wishes[0])
    }

    /// A text that is sent as a whole.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn complete(&mut self, shared: &Shared) -> Result<(), Wrong> {
        let wish = self.wish(shared);
        let start = Instant::now();
        let (status, answer) = exchange(shared.address, "POST", "/v1/completions", &self.body(wish, false))?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let text = answer["choices"][0]["text"].as_str();
        if status != 200 || text != Some(&wish.text) {
            return Err(format!("{answer}, where plain decoding gives {:?}", wish.text));
        }
        let waited = start.elapsed().as_secs_f64();
        shared.count(|counts| {
            counts.complete += 1;
            counts.tokens += wish.tokens as u64;
            counts.longest_wait_seconds = counts.longest_wait_seconds.max(waited);
        });
        Ok(())
    }

    /// A stream. Its client goes away after so many events if that is said, and pauses after each.
    fn stream(&mut self, shared: &Shared, events: Option<usize>, pause: Duration) -> Result<(), Wrong> {
        let wish = self.wish(shared);
        let body = self.body(wish, true);
        let (mut seen, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
        let mut is_complete = true;
        let text = if events == Some(0) {
            // It goes away before anything has come.
            is_complete = false;
            let request = [head("POST", "/v1/completions", body.len()).as_bytes(), &body].concat();
            connect(shared.address)?.write_all(&request).map_err(|error| error.to_string())?;
            String::new()
        } else {
            read_stream(shared.address, &body, |_| {
                longest = longest.max(last.elapsed());
                seen += 1;
                std::thread::sleep(pause);
                last = Instant::now();
                is_complete = events != Some(seen);
                is_complete
            })?
        };
        if !wish.text.starts_with(&text) || is_complete && text != wish.text {
            return Err(format!("{text:?}, where plain decoding gives {:?}", wish.text));
        }
        shared.count(|counts| {
            counts.cancelled += u64::from(!is_complete);
            counts.complete += u64::from(is_complete);
            counts.slow += u64::from(is_complete && !pause.is_zero());
            counts.tokens += if is_complete { wish.tokens as u64 } else { 0 };
            counts.longest_wait_seconds = counts.longest_wait_seconds.max(longest.as_secs_f64());
        });
        Ok(())
    }

    /// A request that ends before its end, or is none at all.
    fn break_off(&mut self, shared: &Shared) -> Result<(), Wrong> {
        let wish = self.wish(shared);
        let body = self.body(wish, true);
        let mut request = [head("POST", "/v1/completions", body.len()).as_bytes(), &body].concat();
        request.truncate(self.rng.random_range(0..request.len()));
        if self.rng.random_bool(0.3) {
            request.iter_mut().for_each(|byte| *byte = self.rng.random());
        }
        let mut socket = connect(shared.address)?;
        // The server may have had enough of it before.
        let _ = socket.write_all(&request);
        if self.rng.random_bool(0.5) {
            let _ = socket.shutdown(Shutdown::Write);
            let mut rest = Vec::new();
            let _ = socket.read_to_end(&mut rest);
        }
        shared.count(|counts| counts.broken += 1);
        Ok(())
    }

    /// A request that makes no sense is told so.
    fn make_no_sense(&mut self, shared: &Shared) -> Result<(), Wrong> {
        let body = NONSENSE.choose(&mut self.rng).copied().unwrap_or_default();
        let (status, answer) = exchange(shared.address, "POST", "/v1/completions", body)?;
        if status != 400 {
            let (body, answer) = (String::from_utf8_lossy(body), String::from_utf8_lossy(&answer));
            return Err(format!("{body} was answered with {status}: {answer}"));
        }
        shared.count(|counts| counts.malformed += 1);
        Ok(())
    }
}

//! A server with few descriptors and little memory, which strangers attack in all ways at once: others do not
//! notice.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::hostile::{HEAD, ambiguous};
use crate::support::{Setup, Stream, TestServer, Value, greedy, json};

/// What the server's process may have: open files, and KiB of addresses.
const DESCRIPTORS: u32 = 256;
const ADDRESSES_KIB: u32 = 1 << 20;
/// How long `/health` may take, and how much longer a stream may pause than it does alone. On an idle machine
/// it is tenths of a second; a server that an attacker can keep busy takes until the attack is over.
const HEALTH: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_secs(4);
/// How long a request may wait for a place among others.
const BEGINS: Duration = Duration::from_secs(60);
/// How long the attack goes on.
const ATTACK: Duration = Duration::from_secs(12);
/// What begins the line in which the server's process tells its address.
const SERVES: &str = "serves at ";

/// Runs in a process of its own, with limits: the server under attack.
#[test]
#[ignore = "it is run by another test, with limits"]
fn serves_within_limits() {
    let server = TestServer::start(Setup { parallel: 4, ..Setup::default() });
    println!("{SERVES}{}", server.address);
    // Whoever has started this closes its input.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A process with a server, which ends with this value.
struct Besieged {
    child: Child,
    server: TestServer,
}

impl Besieged {
    fn start() -> Self {
        let limited = format!(
            "ulimit -n {DESCRIPTORS} && ulimit -v {ADDRESSES_KIB} && \
             exec \"$0\" --exact siege::serves_within_limits --ignored --nocapture"
        );
        let mut command = Command::new("sh");
        command.arg("-c").arg(limited).arg(std::env::current_exe().unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| Some(line.split_once(SERVES)?.1.parse()));
        let server = TestServer::elsewhere(address.expect("the server did not start").unwrap());
        Self { child, server }
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Besieged {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How late this process itself is: on a machine with other work nobody is on time, which no server can help.
#[derive(Default)]
struct Lateness(Mutex<Vec<(Instant, Duration)>>);

impl Lateness {
    /// Sleeps again and again, and writes down how much too long.
    fn watch(&self, over: &AtomicBool) {
        const NAP: Duration = Duration::from_millis(5);
        while !over.load(Ordering::Relaxed) {
            let start = Instant::now();
            thread::sleep(NAP);
            let late = start.elapsed().saturating_sub(NAP);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((start, late));
        }
    }

    /// How late it was altogether in the time that ends now.
    fn since(&self, start: Instant) -> Duration {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().take_while(|(at, late)| *at + *late >= start).map(|(_, late)| *late).sum()
    }
}

/// The longest time between two events of a stream, less what this process was late.
fn longest_pause(stream: &mut Stream, lateness: &Lateness, over: &dyn Fn() -> bool) -> Duration {
    let (mut longest, mut before) = (Duration::ZERO, Instant::now());
    while stream.next().is_some() && !over() {
        longest = longest.max(before.elapsed().saturating_sub(lateness.since(before)));
        before = Instant::now();
    }
    longest
}

/// A stream of a client who behaves well, from its first event on. He asks again where others were so fast
/// that his connection gave way before its request had come; once it is there, nothing may end it.
fn well_behaved(server: &TestServer) -> Stream {
    let mut body = greedy("def push(self, item):\n", 480);
    body["stream"] = true.into();
    let start = Instant::now();
    loop {
        let opened = server.try_open("/v1/completions", &body);
        if let Ok(mut stream) = opened
            && stream.try_next().is_ok_and(|first| first.is_some())
        {
            return stream;
        }
        assert!(start.elapsed() < BEGINS, "no stream begins");
    }
}

/// How long `/health` takes, asked again as above.
fn health(address: SocketAddr, lateness: &Lateness) -> Duration {
    let start = Instant::now();
    let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    while !send(address, request).starts_with("HTTP/1.1 200") {
        assert!(start.elapsed() < BEGINS, "/health does not answer");
    }
    start.elapsed().saturating_sub(lateness.since(start))
}

/// Sends bytes and gives what comes back, if anything does: a server may close at once what is too much.
fn send(address: SocketAddr, request: &str) -> String {
    let mut text = Vec::new();
    if let Ok(mut socket) = TcpStream::connect(address) {
        let _ = socket.set_read_timeout(Some(Duration::from_secs(20)));
        let _ = socket.write_all(request.as_bytes()).and_then(|()| socket.read_to_end(&mut text).map(drop));
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn post(address: SocketAddr, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}");
    send(address, &format!("{head}content-length: {length}\r\n\r\n{body}"))
}

const JSON: &str = "content-type: application/json\r\n";

/// Numbers that would size memory.
fn large_numbers(address: SocketAddr, _: &AtomicBool) {
    for n in ["100000000000", "30000000", "1152921504606846977"] {
        let more = format!(r#""n": {n}, "max_tokens": 1"#);
        post(address, "/v1/completions", JSON, &format!(r#"{{"prompt": "x", {more}}}"#));
        let messages = r#""messages": [{"role": "user", "content": "x"}]"#;
        post(address, "/v1/chat/completions", JSON, &format!("{{{messages}, {more}}}"));
    }
    let text = "ab c".repeat(1 << 20);
    post(address, "/tokenize", JSON, &json!({ "content": text }).to_string());
    post(address, "/v1/completions", JSON, &json!({ "prompt": text }).to_string());
}

/// Connections with nothing, a part of a head, or a part of a body, as many as the server may have files.
fn half_open(address: SocketAddr, over: &AtomicBool) {
    let part = format!("{HEAD}content-length: 99\r\n\r\n{{\"prompt\"");
    let mut held: Vec<TcpStream> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        for beginning in ["", HEAD, &part] {
            if let Ok(mut socket) = TcpStream::connect(address) {
                let _ = socket.write_all(beginning.as_bytes());
                held.push(socket);
            }
        }
        if held.len() > 300 {
            held.drain(..30);
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Streams that nobody reads.
fn unread(server: &TestServer) -> Vec<Stream> {
    let body = |prompt: &str| {
        let mut body = greedy(prompt, 480);
        body["stream"] = true.into();
        body["n_probs"] = 100.into();
        body
    };
    ["import ", "class ", "for "].map(|prompt| server.open_narrow("/completion", &body(prompt))).into()
}

/// Grammars, schemas and patterns that take long.
fn slow_grammars(address: SocketAddr, _: &AtomicBool) {
    let mut body = greedy("a a a a", 50);
    body["grammar"] = ambiguous().into();
    post(address, "/v1/completions", JSON, &body.to_string());
    for pattern in ["(a{1,1000}){1,1000}", "(.*a){500}"] {
        let mut body = greedy("x", 4);
        body["json_schema"] = json!({ "type": "string", "pattern": pattern });
        post(address, "/v1/completions", JSON, &body.to_string());
    }
}

/// Pages of strangers, and names of them.
fn foreign(address: SocketAddr, _: &AtomicBool) {
    let body = greedy("x", 400).to_string();
    let headers =
        ["origin: https://evil.example\r\ncontent-type: text/plain\r\n", "content-type: text/plain\r\n"];
    for headers in headers {
        let answer = post(address, "/v1/completions", headers, &body);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let get = "GET /slots HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    let answer = send(address, get);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 403"), "{answer}");
}

/// The ways to attack, each again and again until the flag says that it is over.
const ATTACKS: [fn(SocketAddr, &AtomicBool); 4] = [large_numbers, half_open, slow_grammars, foreign];

#[test]
fn others_do_not_notice_an_attack() {
    let besieged = Besieged::start();
    let (server, address) = (&besieged.server, besieged.server.address);
    let (lateness, over) = (Lateness::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| lateness.watch(&over));
        // Whatever fails in here ends all threads.
        let ends = Ends(&over);
        let alone = longest_pause(&mut well_behaved(server), &lateness, &|| false);
        let descriptors = besieged.descriptors();

        let mut stream = well_behaved(server);
        let silent = unread(server);
        let begin = Instant::now();
        let is_over = move || begin.elapsed() > ATTACK;
        for attack in ATTACKS {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    attack(address, over);
                }
            });
        }
        let lateness = &lateness;
        let health = scope.spawn(move || {
            let mut longest = Duration::ZERO;
            while !is_over() {
                longest = longest.max(health(address, lateness));
                thread::sleep(Duration::from_millis(50));
            }
            longest
        });
        // One stream after the other, each behind those that wait for a sequence.
        let mut longest = Duration::ZERO;
        while !is_over() {
            longest = longest.max(longest_pause(&mut stream, lateness, &is_over));
            stream = well_behaved(server);
        }
        let health = health.join().unwrap();
        println!("health after {health:?} at most; pauses of {longest:?}, alone of {alone:?}");
        assert!(health < HEALTH, "/health took {health:?}");
        assert!(longest < alone + PAUSE, "a stream paused for {longest:?}, and alone for {alone:?}");
        drop((ends, silent));
        // What the attack held is free again.
        let answer = server.post("/v1/completions", &greedy("import ", 4)).fine();
        assert_eq!(answer["usage"]["completion_tokens"], 4);
        server.wait_for_busy(0);
        let start = Instant::now();
        while besieged.descriptors() > descriptors + 8 {
            assert!(start.elapsed() < Duration::from_secs(60), "{} descriptors", besieged.descriptors());
            thread::sleep(Duration::from_millis(50));
        }
    });
    let _: Value = server.get("/props").fine();
}

/// Sets its flag at its end.
struct Ends<'f>(&'f AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

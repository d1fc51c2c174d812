//! `hexflash serve`: its flags, its variables, and how it ends. What it answers is tested with its crate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::signalled::Running;
use crate::support::{command, hexflash};

/// A server under way, and what it says.
pub struct Serving {
    pub running: Running,
    stderr: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl Serving {
    /// Waits until it is ready: its model is loaded, or it has several and none yet.
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        let mut running = Running::start_with(command);
        let mut stderr = BufReader::new(running.child().stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("is ready") && !said.contains("loaded at once]") {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "it ended: {said}");
        }
        let (_, rest) = said.split_once("listening on http://").unwrap();
        let address = rest.split(']').next().unwrap().parse().unwrap();
        Self { running, stderr, address }
    }

    pub fn ask(&self, path: &str, key: &str) -> (u16, Value) {
        let request = agent().get(self.url(path));
        answer(request.header("authorization", format!("Bearer {key}")).call().unwrap())
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = agent().post(self.url(path)).header("content-type", "application/json");
        answer(request.send(body.to_string()).unwrap())
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a signal; the exit code, and what it said since it was ready.
    pub fn end(mut self, signal: Signal) -> (Result<i32, i32>, String) {
        self.running.send(signal);
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.running.end(signal).code, said)
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).build().into()
}

fn answer(mut response: ureq::http::Response<ureq::Body>) -> (u16, Value) {
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap())
}

pub fn serve(arguments: &[&str]) -> Command {
    command(&[&["serve", "--no-repack-cache", "-c", "128"], arguments].concat())
}

#[test]
fn flags_and_variables_reach_the_server() {
    let mut command = serve(&["-np", "3", "--api-key", "one,two", "--chat-template", "chatml"]);
    command.env("LLAMA_ARG_PORT", "0").env("LLAMA_ARG_ALIAS", "small,mine").env("LLAMA_ARG_TEMP", "0.25");
    command.env("LLAMA_ARG_N_PARALLEL", "2");
    command.args(["--tags", "code", "-n", "9", "--slots", "--jinja"]);
    let serving = Serving::start(command);
    assert_eq!(serving.ask("/props", "three").0, 401);
    let (status, props) = serving.ask("/props", "two");
    assert_eq!(status, 200);
    assert_eq!((&props["model_alias"], &props["total_slots"]), (&"small".into(), &3.into()), "flags win");
    let (_, models) = serving.ask("/v1/models", "two");
    assert_eq!(models["data"][0]["aliases"], serde_json::json!(["small", "mine"]));
    assert_eq!(models["data"][0]["tags"], serde_json::json!(["code"]));
    let settings = &props["default_generation_settings"];
    assert_eq!(settings["params"]["n_predict"], 9);
    assert_eq!((&settings["n_ctx"], &settings["params"]["temperature"]), (&128.into(), &0.25.into()));
    assert!(props["chat_template"].as_str().unwrap().contains("<|im_start|>"));
    assert_eq!(serving.ask("/metrics", "one").0, 501, "it was not switched on");
    let (code, said) = serving.end(Signal::TERM);
    assert_eq!((code, said.as_str()), (Ok(0), "[ended]\n"));
}

#[test]
fn a_server_that_nobody_asks_ends_at_once() {
    let serving = Serving::start(serve(&["--port", "0"]));
    assert_eq!(serving.end(Signal::INT), (Ok(0), "[ended]\n".to_owned()));
}

/// Whoever holds more connections than the process has descriptors, and sends nothing, keeps nobody out.
#[test]
fn half_open_connections_do_not_take_all_descriptors() {
    let hexflash = serve(&["--port", "0"]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256 && exec \"$0\" \"$@\""]).arg(hexflash.get_program());
    command.args(hexflash.get_args());
    for (name, value) in hexflash.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(folder) = hexflash.get_current_dir() {
        command.current_dir(folder);
    }
    let serving = Serving::start(command);
    let body = r#"{"prompt": "def push(", "max_tokens": 100, "ignore_eos": true, "stream": true}"#;
    let mut stream = TcpStream::connect(serving.address).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length:";
    write!(stream, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert!(line.contains("200"), "{line}");
    let held: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut socket = TcpStream::connect(serving.address).unwrap();
            // It may be closed already.
            let _ = socket.write_all(b"GET /health HTTP/1.1\r\n");
            socket
        })
        .collect();
    let took = [(); 3].map(|()| {
        let start = Instant::now();
        assert_eq!(serving.ask("/health", "").0, 200);
        start.elapsed()
    });
    // Other tests may want the processor for one of them.
    assert!(took.iter().min() < Some(&Duration::from_secs(10)), "{took:?}");
    println!("/health after {took:?}");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    drop(held);
    let (code, said) = serving.end(Signal::TERM);
    assert_eq!(code, Ok(0));
    assert!(said.contains("connections were closed because there were too many"), "{said}");
}

#[test]
fn files_of_keys_have_comments() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "# for the team\n  # old\nsecret\n\n").unwrap();
    let serving = Serving::start(serve(&["--port", "0", "--api-key-file", file.to_str().unwrap()]));
    assert_eq!(serving.ask("/props", "secret").0, 200);
    for comment in ["# for the team", "# old", "#"] {
        assert_eq!(serving.ask("/props", comment).0, 401, "{comment}");
    }
}

/// A server over adb ends with its connection: it prints nothing, and no signal tells it.
#[test]
fn without_a_reader_of_its_output_a_server_over_adb_ends() {
    let with = |over_adb: bool| {
        let mut command = serve(&["--port", "0"]);
        if over_adb {
            command.env("HEXFLASH_OVER_ADB", "1");
        }
        let mut serving = Serving::start(command);
        drop(serving.running.child().stdout.take());
        serving
    };
    let mut serving = with(true);
    let mut said = String::new();
    serving.stderr.read_to_string(&mut said).unwrap();
    assert_eq!(serving.running.end(Signal::HUP).code, Ok(0), "{said}");
    // Elsewhere nobody may want to read it.
    assert_eq!(with(false).ask("/health", "").0, 200);
}

/// Time that a server gives to what is under way when it gets a signal.
const GRACE: Duration = Duration::from_secs(120);

/// A server whose only request is under way after a signal: its client has read the beginning.
fn signalled_while_it_serves() -> (Serving, BufReader<TcpStream>) {
    let mut command = command(&["serve", "--no-repack-cache", "-c", "512", "-np", "1", "--port", "0"]);
    command.args(["-v", "--grace", &GRACE.as_secs().to_string()]);
    let serving = Serving::start(command);
    // Lists of probabilities fill all buffers on the way, so that the text waits for its client.
    let body =
        r#"{"prompt": "def push(", "max_tokens": 480, "ignore_eos": true, "stream": true, "logprobs": 100}"#;
    let mut client = TcpStream::connect(serving.address).unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length:";
    write!(client, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
    let mut client = BufReader::new(client);
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(client.read_line(&mut line).unwrap() > 0, "the stream has no event");
    }
    serving.running.send(Signal::TERM);
    let start = Instant::now();
    // Two signals within a moment count as one.
    std::thread::sleep(Duration::from_millis(400));
    // What listens looks for signals now and then. The text ends only when its client reads on.
    while TcpStream::connect(serving.address).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing more is to be accepted");
        std::thread::sleep(Duration::from_millis(10));
    }
    (serving, client)
}

#[test]
fn after_a_signal_what_is_under_way_is_finished() {
    let (mut serving, mut client) = signalled_while_it_serves();
    assert!(serving.running.child().try_wait().unwrap().is_none());
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    // A stream that is broken off has no such end.
    assert!(rest.contains("data: [DONE]"), "{}", &rest[rest.len().saturating_sub(1000)..]);
    let mut said = String::new();
    serving.stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("POST /v1/completions 200") && said.ends_with("[ended]\n"), "{said}");
    assert_eq!(serving.running.end(Signal::TERM).code, Ok(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let (serving, client) = signalled_while_it_serves();
    let start = Instant::now();
    let (code, _) = serving.end(Signal::TERM);
    assert_eq!(code, Ok(128 + Signal::TERM.as_raw()));
    assert!(start.elapsed() < GRACE / 2, "it waited for the text that is under way");
    drop(client);
}

#[test]
fn what_keeps_it_from_serving_is_said_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let cases = [
        (vec!["--port", &port], 2, "choose another address with --host, or another port with --port"),
        (vec!["--port", "0", "-m", "no-such-file.gguf"], 2, "no-such-file.gguf"),
        (vec!["--port", "0", "-np", "0"], 2, "--parallel"),
        (vec!["--port", "0", "--api-key", ""], 2, "a key cannot be empty"),
        (vec!["--port", "0", "--api-key-file", "/dev/null"], 2, "there is no key in it"),
        (vec!["--port", "0", "--chat-template-kwargs", "[]"], 2, "give a JSON object"),
        (vec!["--port", "0", "--cors-origins", "example"], 2, "is no origin"),
        (vec!["--port", "0", "--slot-save-path", "/dev/null"], 2, "this is no folder"),
        (vec!["--port", "0", "--reasoning-format", "aside"], 2, "is none of auto, deepseek, none"),
        (vec!["--port", "0", "--temp", "nan"], 2, "temperature"),
    ];
    for (arguments, code, says) in cases {
        let outcome = hexflash(&[&["serve", "--no-repack-cache"], &arguments[..]].concat());
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        let error = outcome.stderr.lines().last().unwrap();
        assert!(error.starts_with("error: ") && error.contains(says), "{outcome:?}");
    }
}

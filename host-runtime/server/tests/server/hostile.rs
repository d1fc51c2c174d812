//! Requests of strangers that want to harm: to fill memory, to hold what others need, to act for somebody
//! else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Drafter, Setup, Stream, TestServer, Value, greedy, json};

/// Long enough for any answer that costs nothing, on a machine whose processors have other work; what is not
/// bounded takes minutes.
const AT_ONCE: Duration = Duration::from_secs(20);

/// Sends `fields` beside what the route needs: a 400 at once that names `name`.
#[track_caller]
fn is_refused(path: &str, name: &str, fields: &str) {
    let server = TestServer::shared();
    let body = match path {
        "/v1/messages" => r#""max_tokens": 4, "messages": [{"role": "user", "content": "x"}]"#,
        "/v1/responses" => r#""input": "x""#,
        "/v1/chat/completions" => r#""messages": [{"role": "user", "content": "x"}]"#,
        _ => r#""prompt": "x""#,
    };
    let start = Instant::now();
    let reply = server.request("POST", path, &[], &format!("{{{body}, {fields}}}"));
    let took = start.elapsed();
    assert_eq!(reply.status, 400, "{path} {fields:.60}: {reply:?}");
    assert!(reply.text.contains(name), "{path} {fields:.60}: {}", reply.text);
    assert!(took < AT_ONCE, "{path} {fields:.60}: {took:?}");
}

#[test]
fn numbers_that_size_memory_are_bounded_first() {
    const N: [&str; 5] = ["69", "30000000", "100000000000", "1152921504606846977", "18446744073709551615"];
    for path in ["/v1/completions", "/completion", "/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        for n in N {
            is_refused(path, "n:", &format!(r#""n": {n}"#));
        }
        is_refused(path, "n_cmpl", r#""n_cmpl": 100000000000"#);
    }
    for path in ["/v1/completions", "/completion", "/v1/chat/completions"] {
        for n in ["1e300", "-1", "123456789012345678901234567890"] {
            is_refused(path, "n:", &format!(r#""n": {n}"#));
        }
        is_refused(path, "best_of", r#""best_of": 100000000000"#);
        is_refused(path, "repeat_last_n", r#""repeat_last_n": 100000000000"#);
        is_refused(path, "max_tokens", r#""max_tokens": 1e300"#);
    }
    is_refused("/v1/completions", "logprobs", r#""logprobs": 100000000000"#);
    is_refused("/completion", "n_probs", r#""n_probs": 100000000000"#);
    is_refused("/v1/chat/completions", "top_logprobs", r#""logprobs": true, "top_logprobs": 100000000000"#);
}

#[test]
fn lists_are_bounded_before_they_are_read() {
    let list = |item: &str, n: usize| format!("[{}{item}]", format!("{item},").repeat(n - 1));
    for path in ["/v1/completions", "/completion"] {
        is_refused(path, "stop", &format!(r#""stop": {}"#, list(r#""""#, 200_000)));
        is_refused(path, "logit_bias", &format!(r#""logit_bias": {}"#, list("[5,1]", 200_000)));
        let text = "a".repeat(4 << 20);
        is_refused(path, "logit_bias", &format!(r#""logit_bias": [["{text}", 1]]"#));
        // Of two fields of a name, the second one holds.
        is_refused(path, "prompt: ", &format!(r#""prompt": {}"#, list(r#""some words""#, 400_000)));
        let one = list(r#""some words", 5"#, 400_000);
        is_refused(path, "the prompt has", &format!(r#""prompt": {one}"#));
    }
    let wanted = list(r#""prompt""#, 400_000);
    is_refused("/completion", "response_fields", &format!(r#""response_fields": {wanted}"#));
}

#[test]
fn twenty_megabytes_to_tokenize_are_refused_at_once() {
    let server = TestServer::shared();
    for unit in ["a", " ", "ab c", "<|im_start|>"] {
        let text = unit.repeat((20 << 20) / unit.len());
        let start = Instant::now();
        let reply = server.post("/tokenize", &json!({ "content": text, "with_pieces": true }));
        assert_eq!(reply.error(), (400, "invalid_request_error".to_owned()));
        assert!(reply.text.contains("content: ") && start.elapsed() < 2 * AT_ONCE, "{:?}", start.elapsed());
        // The most that is split takes a while, and ends.
        let start = Instant::now();
        let reply = server.post("/tokenize", &json!({ "content": unit.repeat((4 << 20) / unit.len()) }));
        // The words of some texts cannot be told apart with the tokenizer's bounds.
        assert!([200, 400].contains(&reply.status), "{unit:?}: {:.300}", reply.text);
        println!("4 MiB of {unit:?}: {} after {:?}", reply.status, start.elapsed());
        assert!(start.elapsed() < 3 * AT_ONCE, "{:?}", start.elapsed());
    }
    let reply = server.post("/detokenize", &json!({ "tokens": vec![5; 3 << 20] }));
    assert_eq!(reply.status, 413);
}

/// Sends the beginning of a request, and no more.
fn half_open(address: SocketAddr, beginning: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(beginning.as_bytes()).unwrap();
    socket
}

/// A stream that comes to its end only when its client reads it: long lists of probabilities fill all buffers
/// on the way.
fn endless(server: &TestServer) -> Stream {
    let mut body = greedy("def push(", 480);
    body["stream"] = true.into();
    body["n_probs"] = 100.into();
    server.open_narrow("/completion", &body)
}

pub const HEAD: &str =
    "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

#[test]
fn half_open_connections_keep_nobody_out() {
    let mut setup = Setup { parallel: 2, ..Setup::default() };
    setup.options.connections = 40;
    setup.options.client_connections = 30;
    let server = TestServer::start(setup);
    let mut stream = endless(&server);
    assert!(stream.next().is_some());
    // Nothing, a part of a head, and a part of a body.
    for beginning in ["", HEAD, &format!("{HEAD}content-length: 99\r\n\r\n{{\"prompt\"")] {
        let held: Vec<_> = (0..100).map(|_| half_open(server.address, beginning)).collect();
        let start = Instant::now();
        assert_eq!(server.get("/health").status, 200);
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        assert!(stream.next().is_some(), "a request under way is not ended for others");
        drop(held);
    }
    assert!(stream.rest().last().is_some_and(|end| end.contains("\"stop\":true")));
}

#[test]
fn heads_and_bodies_have_to_come_in_time() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.idle = Duration::from_millis(500);
    let server = TestServer::start(setup);
    let body = format!("{HEAD}content-length: 99\r\n\r\n{{\"prompt\"");
    let save = "POST /slots/0?action=erase HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
    for (beginning, answer) in [("", ""), (HEAD, ""), (&body, "HTTP/1.1 408"), (save, "HTTP/1.1 408")] {
        let start = Instant::now();
        let mut socket = half_open(server.address, beginning);
        let mut text = Vec::new();
        // It may be reset.
        let _ = socket.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        assert!(text.starts_with(answer) && start.elapsed() < 2 * AT_ONCE, "{beginning}: {text}");
        assert_eq!(text.is_empty(), answer.is_empty(), "{text}");
    }
}

#[test]
fn who_does_not_read_gives_way_to_those_who_wait() {
    let server = TestServer::start(Setup { parallel: 2, ..Setup::default() });
    let mut silent = [(); 2].map(|()| endless(&server));
    // Until nothing more has room.
    std::thread::sleep(Duration::from_secs(2));
    server.wait_for_busy(2);
    let start = Instant::now();
    let answer = server.post("/v1/completions", &greedy("import ", 4)).fine();
    assert_eq!(answer["usage"]["completion_tokens"], 4);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    // One of them, or both, was ended, and whoever reads on learns why.
    let ends: Vec<String> = silent.iter_mut().filter_map(|stream| stream.rest().pop()).collect();
    let errors = ends.iter().filter(|end| {
        let code = serde_json::from_str::<Value>(end).map(|event| event["error"]["code"].clone());
        code.is_ok_and(|code| code == 408)
    });
    assert!(errors.count() > 0, "{ends:?}");
}

#[test]
fn who_reads_a_little_now_and_then_gives_way_too() {
    let server = TestServer::start(Setup { parallel: 1, ..Setup::default() });
    let mut slow = endless(&server);
    assert!(slow.next().is_some());
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.post("/v1/completions", &greedy("import ", 4)).fine());
        let start = Instant::now();
        while !asked.is_finished() {
            assert!(start.elapsed() < Duration::from_secs(60), "it still has its sequence");
            std::thread::sleep(Duration::from_millis(500));
            slow.next();
        }
        assert_eq!(asked.join().unwrap()["usage"]["completion_tokens"], 4);
    });
}

#[test]
fn pages_of_strangers_do_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.cors = "https://a.example".parse().unwrap();
    setup.options.slot_save_path = Some(folder.path().to_owned());
    let server = TestServer::start(setup);
    let body = greedy("x", 2).to_string();
    let save = json!({ "filename": "a.bin" }).to_string();
    let asks = [
        ("/v1/completions", &body),
        ("/completion", &body),
        ("/slots/0?action=save", &save),
        ("/slots/0?action=erase", &save),
    ];
    for (path, body) in asks {
        let ask = |headers: &[(&str, &str)]| server.request("POST", path, headers, body).status;
        assert_eq!(ask(&[("origin", "https://b.example"), ("content-type", "text/plain")]), 403, "{path}");
        assert_eq!(ask(&[("origin", "https://b.example")]), 403, "{path}");
        assert_eq!(ask(&[("origin", "null")]), 403, "{path}");
        assert_eq!(ask(&[("origin", "https://a.example"), ("content-type", "text/plain")]), 415, "{path}");
        assert_eq!(ask(&[("content-type", "text/plain")]), 415, "{path}");
        assert_eq!(ask(&[("host", "evil.example")]), 403, "{path}");
        assert_eq!(ask(&[("origin", "https://a.example")]), 200, "{path}");
    }
    assert_eq!(server.request("GET", "/slots", &[("host", "evil.example")], "").status, 403);
    assert_eq!(server.metric("tokens_predicted_total"), 4.0, "what was refused has generated nothing");
}

#[cfg(unix)]
#[test]
fn saved_sequences_are_for_their_owner_and_pipes_are_no_files() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.slot_save_path = Some(folder.path().to_owned());
    let server = TestServer::start(setup);
    server.post("/v1/completions", &greedy("def push(", 4)).fine();
    let act = |action: &str, name: &str| {
        server.post(&format!("/slots/0?action={action}"), &json!({ "filename": name }))
    };
    act("save", "a.bin").fine();
    let mode = folder.path().join("a.bin").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reply = act("restore", "pipe");
    assert_eq!(reply.error(), (400, "invalid_request_error".to_owned()));
    assert!(reply.text.contains("no regular file"), "{}", reply.text);
}

#[test]
fn errors_of_forms_have_their_cause() {
    let server = TestServer::shared();
    let form = |schema: Value| {
        let mut body = greedy("x", 4);
        body["json_schema"] = schema;
        let reply = server.post("/completion", &body);
        assert_eq!(reply.error(), (400, "invalid_request_error".to_owned()));
        reply.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    let text = form(json!({ "type": "string", "pattern": "(abc" }));
    assert!(text.contains("unclosed group"), "{text}");
    let text = form(json!({ "type": "integer", "minimum": 1e25 }));
    assert!(text.contains("minimum") && text.contains("64 bits"), "{text}");
}

/// Whoever has left does not have his texts prepared.
#[test]
fn what_nobody_waits_for_is_not_begun() {
    let server = TestServer::start(Setup { parallel: 1, ..Setup::default() });
    let body = json!({ "content": "ab c".repeat(1 << 20) });
    let gone: Vec<Stream> = (0..40).map(|_| server.open("/tokenize", &body)).collect();
    drop(gone);
    let start = Instant::now();
    server.post("/tokenize", &json!({ "content": "x" })).fine();
    // All of them would take a minute.
    assert!(start.elapsed() < 5 * AT_ONCE, "{:?}", start.elapsed());
}

/// A grammar of which one mask takes seconds: two hundred rules that each begin with any number of others.
pub fn ambiguous() -> String {
    let names: Vec<String> = (0..200).map(|i| format!("r{i}")).collect();
    let rules: String = names.iter().map(|name| format!("{name}: s \"a\" | \"a\"\n")).collect();
    format!("%llguidance {{}}\nstart: s\ns: s s | {}\n{rules}", names.join(" | "))
}

#[test]
fn a_grammar_that_takes_long_is_waited_for_by_its_own_text_alone() {
    for drafter in [Drafter::Nobody, Drafter::NGrams] {
        let server = TestServer::start(Setup { parallel: 2, drafter, ..Setup::default() });
        let mut body = greedy("a a a a a a a a", 200);
        body["grammar"] = ambiguous().into();
        body["stream"] = true.into();
        let slow = server.open("/v1/completions", &body);
        server.wait_for_busy(1);
        let mut body = greedy("def push(", 300);
        body["stream"] = true.into();
        // The longest pause of a text: other work of the machine may make one of three longer.
        let pauses = [(); 3].map(|()| {
            let mut quick = server.open("/v1/completions", &body);
            let (mut longest, mut before) = (Duration::ZERO, Instant::now());
            while quick.next().is_some() {
                longest = longest.max(before.elapsed());
                before = Instant::now();
            }
            longest
        });
        println!("{drafter:?}: at most {pauses:?} between two tokens");
        assert!(pauses.iter().min() < Some(&Duration::from_secs(2)), "{drafter:?}: {pauses:?}");
        // Whoever leaves ends the computation, too.
        drop(slow);
        server.wait_for_busy(0);
    }
}

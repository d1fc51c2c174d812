//! Many clients at once, and clients that behave badly.

use std::time::{Duration, Instant};

use crate::support::{Drafter, Setup, TestServer, Value, greedy, joined, json};

/// Eight requests: greedy and seeded, short and long, some with penalties.
fn wishes() -> Vec<Value> {
    let prompts = [
        "def push(",
        "impl fmt::Display for ",
        "for i in ",
        "use std::",
        "class A:\n",
        "match self {",
        "import ",
        "# The ",
    ];
    prompts
        .iter()
        .enumerate()
        .map(|(i, prompt)| {
            let prompt = prompt.repeat(1 + 5 * (i % 3));
            let mut body = greedy(&prompt, 20 + 4 * i);
            if i % 2 == 1 {
                body["temperature"] = 0.9.into();
                body["seed"] = i.into();
            }
            if i % 3 == 0 {
                body["repeat_penalty"] = 1.1.into();
            }
            // What another request has left must not matter here.
            body["cache_prompt"] = false.into();
            body
        })
        .collect()
}

fn text(answer: &Value) -> String {
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn eight_requests_at_once_have_the_texts_that_each_has_alone() {
    let alone = TestServer::start(Setup { parallel: 1, ..Setup::default() });
    let expected: Vec<_> =
        wishes().iter().map(|body| text(&alone.post("/v1/completions", body).fine())).collect();
    for drafter in [Drafter::Nobody, Drafter::NGrams, Drafter::Model] {
        let server = TestServer::start(Setup { parallel: 8, drafter, ..Setup::default() });
        let at_once = || -> Vec<String> {
            std::thread::scope(|scope| {
                let ask = |(i, mut body): (usize, Value)| {
                    let server = &server;
                    scope.spawn(move || {
                        if i % 2 == 0 {
                            body["stream"] = true.into();
                            return joined(&server.events("/v1/completions", &body));
                        }
                        text(&server.post("/v1/completions", &body).fine())
                    })
                };
                let threads: Vec<_> = wishes().into_iter().enumerate().map(ask).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            })
        };
        // Where there is other work, one client may have its answer before the next one gets to ask.
        let has_shared = (0..10).any(|_| {
            assert_eq!(at_once(), expected, "{drafter:?}");
            server.metric("n_busy_slots_per_decode") > 1.5
        });
        assert!(has_shared, "they did not share steps");
        assert_eq!(server.metric("spec_decode_num_drafts_total") > 0.0, drafter != Drafter::Nobody);
    }
}

/// A stream that comes to its end only when its client reads it: long lists of probabilities fill all buffers
/// on the way.
fn endless() -> Value {
    let mut body = greedy("def push(", 480);
    body["stream"] = true.into();
    body["logprobs"] = 100.into();
    body
}

/// Streams without end, whose readers go away.
#[test]
fn a_client_that_goes_away_frees_its_place() {
    // An answer as a whole takes a while as well.
    let server = TestServer::start(Setup { parallel: 2, drafter: Drafter::Unhurried, ..Setup::default() });
    let endless = endless();
    for round in 0..3 {
        let mut streams = [(); 2].map(|()| server.open("/v1/completions", &endless));
        assert!(streams.iter_mut().all(|stream| stream.next().is_some()));
        server.wait_for_busy(2);
        drop(streams);
        server.wait_for_busy(0);
        let generated = server.metric("tokens_predicted_total");
        assert!(generated < 480.0 * 2.0 * f64::from(round + 1), "{generated} tokens: nobody was stopped");
    }
    // Whoever waits for a place and goes away does not get one.
    let mut first = [(); 2].map(|()| server.open("/v1/completions", &endless));
    assert!(first.iter_mut().all(|stream| stream.next().is_some()));
    let waiting = server.open("/v1/completions", &endless);
    server.wait_for_deferred(1);
    drop(waiting);
    server.wait_for_deferred(0);
    drop(first);
    server.wait_for_busy(0);
    // And who does not stream: the answer is nobody's.
    let whole = server.open("/v1/completions", &greedy("def push(", 480));
    server.wait_for_busy(1);
    drop(whole);
    server.wait_for_busy(0);
    assert_eq!(server.post("/v1/completions", &greedy("x", 3)).fine()["usage"]["completion_tokens"], 3);
}

#[test]
fn more_requests_than_may_wait_are_told_to_come_again() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.queue = 1;
    let server = TestServer::start(setup);
    let mut running = server.open("/v1/completions", &endless());
    assert!(running.next().is_some());
    let waiting = server.open("/v1/completions", &greedy("import ", 4));
    server.wait_for_deferred(1);
    let refused = server.post("/v1/completions", &greedy("x", 1));
    assert_eq!(refused.error(), (503, "unavailable_error".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(server.metric("requests_processing"), 1.0);
    drop(running);
    assert!(waiting.all().contains("\"completion_tokens\":4"), "whoever waited has its turn");
    assert_eq!(server.post("/v1/completions", &greedy("x", 1)).status, 200);
}

/// A client that reads nothing holds up nobody, and loses nothing.
#[test]
fn a_slow_reader_does_not_stall_the_others() {
    let server = TestServer::start(Setup { parallel: 2, ..Setup::default() });
    let expected = text(&server.post("/v1/completions", &greedy("def push(", 480)).fine());
    let mut stream = server.open("/v1/completions", &endless());
    assert!(stream.next().is_some_and(|event| event.contains("text_completion")));
    let quick = server.post("/v1/completions", &greedy("import ", 40)).fine();
    assert_eq!(quick["usage"]["completion_tokens"], 40);
    // The rest is the text without its first piece.
    let events = stream.rest();
    let read = joined(&events);
    assert!(expected.ends_with(&read) && read.len() + 20 > expected.len(), "{read}");
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
}

#[test]
fn a_client_that_never_reads_is_given_up() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    // Long enough to be seen at work, whoever else wants the processor.
    setup.options.timeout = Duration::from_secs(3);
    let server = TestServer::start(setup);
    let silent = server.open("/v1/completions", &endless());
    server.wait_for_busy(1);
    server.wait_for_busy(0);
    drop(silent);
    assert_eq!(server.post("/v1/completions", &greedy("x", 2)).status, 200);
}

#[test]
fn a_server_that_ends_finishes_what_is_under_way() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.grace = Duration::from_secs(60);
    let mut server = TestServer::start(setup);
    let mut running = server.open("/v1/completions", &endless());
    assert!(running.next().is_some());
    let waiting = server.open("/v1/completions", &{
        let mut body = greedy("import ", 5);
        body["stream"] = true.into();
        body
    });
    server.wait_for_deferred(1);
    server.cancel();
    let events = running.rest();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let waited = waiting.all();
    assert!(waited.contains("[DONE]"), "{waited}");
    server.join().unwrap();
}

#[test]
fn a_server_that_ends_waits_no_longer_than_its_grace() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.grace = Duration::from_millis(100);
    let mut server = TestServer::start(setup);
    let mut endless = greedy("def push(", 480);
    endless["stream"] = true.into();
    let mut running = server.open("/v1/completions", &endless);
    assert!(running.next().is_some());
    server.cancel();
    let start = Instant::now();
    server.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let events = running.rest();
    let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    // On a quick machine it may have come to its end.
    assert!(last["error"]["code"] == 503 || events.last().unwrap() == "[DONE]", "{last}");
}

#[test]
fn figures_count_what_was_done() {
    let server = TestServer::start(Setup { parallel: 1, ..Setup::default() });
    let first = server.post("/v1/completions", &greedy("def push(self, value):", 12)).fine();
    let second = server.post("/v1/completions", &greedy("def push(self, value):", 8)).fine();
    let sum = |part: &str, name: &str| {
        [&first, &second].iter().map(|answer| answer[part][name].as_f64().unwrap()).sum::<f64>()
    };
    assert_eq!(server.metric("prompt_tokens_total"), sum("timings", "prompt_n"));
    assert_eq!(server.metric("prompt_tokens_cached_total"), sum("timings", "cache_n"));
    assert!(sum("timings", "cache_n") > 0.0);
    assert_eq!(server.metric("tokens_predicted_total"), 20.0);
    assert!(server.metric("n_decode_total") >= 20.0);
    assert!(server.metric("prompt_seconds_total") > 0.0 && server.metric("n_tokens_max") > 12.0);
    assert_eq!((server.metric("requests_processing"), server.metric("requests_deferred")), (0.0, 0.0));
    let reply = server.get("/metrics");
    assert!(reply.header("process-start-time-unix").is_some() && reply.text.contains("_total counter\n"));
    assert_eq!(first["choices"][0]["finish_reason"], json!("length"));
}

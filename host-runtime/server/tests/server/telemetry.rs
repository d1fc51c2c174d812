//! What a stream tells beside its text: how far the prompt was read, and the times so far.

use crate::support::{TestServer, Value, greedy, json};

/// The events of a stream that wants to be told everything, `[DONE]` left out.
fn told(server: &TestServer, path: &str, mut body: Value) -> Vec<Value> {
    for name in ["stream", "return_progress", "timings_per_token"] {
        body[name] = true.into();
    }
    let events = server.events(path, &body);
    events
        .iter()
        .filter(|event| *event != "[DONE]")
        .map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// A prompt of several pieces that no other test has.
fn long(word: &str) -> String {
    format!("fn {word}(&mut self) {{ self.").repeat(24)
}

#[test]
fn progress_begins_with_what_was_there_and_ends_with_the_whole_prompt() {
    let server = TestServer::shared();
    let message = json!([{ "role": "user", "content": long("read") }]);
    let chat = json!({ "messages": message, "max_tokens": 3, "temperature": 0 });
    let native = json!({ "prompt": long("native"), "n_predict": 3, "temperature": 0 });
    let responses = json!({ "input": long("answer"), "max_output_tokens": 3, "temperature": 0 });
    for (path, body) in [
        ("/v1/chat/completions", chat),
        ("/v1/completions", greedy(&long("complete"), 3)),
        ("/completion", native),
        ("/v1/responses", responses),
    ] {
        for again in [false, true] {
            let events = told(server, path, body.clone());
            let progress: Vec<&Value> =
                events.iter().map(|event| &event["prompt_progress"]).filter(|one| !one.is_null()).collect();
            let [first, .., last] = progress[..] else { panic!("{path}: {events:?}") };
            assert_eq!(first["processed"], first["cache"], "{path}");
            assert_eq!((first["cache"] != 0, number(first, "time_ms")), (again, 0.0), "{path}");
            assert_eq!(last["processed"], last["total"], "{path}");
            for pair in progress.windows(2) {
                assert!(number(pair[0], "processed") < number(pair[1], "processed"), "{path}: {progress:?}");
                assert!(number(pair[0], "time_ms") <= number(pair[1], "time_ms"), "{path}: {progress:?}");
                assert_eq!((&pair[0]["total"], &pair[0]["cache"]), (&pair[1]["total"], &pair[1]["cache"]));
            }
        }
    }
}

#[test]
fn times_stand_at_every_piece_and_only_where_they_are_wanted() {
    let server = TestServer::shared();
    let body = json!({ "prompt": long("time"), "n_predict": 12, "temperature": 0, "ignore_eos": true });
    let events = told(server, "/completion", body.clone());
    assert!(events.len() > 12, "{events:?}");
    for pair in events.windows(2) {
        let (before, after) = (&pair[0]["timings"], &pair[1]["timings"]);
        for name in ["prompt_n", "prompt_ms", "predicted_n", "predicted_ms"] {
            assert!(number(before, name) <= number(after, name), "{name}: {before} {after}");
        }
    }
    let timings = |at: usize| (&events[at]["timings"]["prompt_n"], &events[at]["timings"]["predicted_n"]);
    assert_eq!(timings(0), (&json!(0), &json!(0)));
    assert_eq!(timings(events.len() - 1).1, &json!(12));

    let mut plain = body;
    plain["stream"] = true.into();
    let plain = server.events("/completion", &plain);
    assert!(plain.iter().all(|event| !event.contains("prompt_progress")));
    let timed = plain.iter().filter(|event| event.contains("timings")).count();
    assert_eq!(timed, 1, "only the end has times: {plain:?}");
}

#[test]
fn a_whole_answer_has_no_progress() {
    let server = TestServer::shared();
    let mut body = greedy(&long("whole"), 3);
    for name in ["return_progress", "timings_per_token"] {
        body[name] = true.into();
    }
    let answer = server.post("/v1/completions", &body).fine();
    assert!(answer.get("prompt_progress").is_none());
    assert_eq!(answer["timings"]["predicted_n"], 3);
}

//! Conversations go on without computing again what a sequence has, and with the same text.

use crate::support::{CONTEXT, Drafter, Setup, TestServer, Value, json};

/// Tokens that may be computed again, beside those that are new.
const REMAINDER: u64 = 64;
/// Tokens of an answer.
const ANSWER: usize = 20;

/// A conversation with a server, and with one that computes everything.
struct Talk<'s> {
    server: &'s TestServer,
    cold: &'s TestServer,
    messages: Vec<Value>,
    /// Tokens of the context after the last answer.
    known: Vec<u64>,
    /// How answers are sampled.
    sampling: Value,
}

impl<'s> Talk<'s> {
    fn new(server: &'s TestServer, cold: &'s TestServer, system: &str, sampling: Value) -> Self {
        let messages = vec![json!({ "role": "system", "content": system })];
        Self { server, cold, messages, known: Vec::new(), sampling }
    }

    fn tokens(&self, messages: &[Value], add_generation_prompt: bool) -> Vec<u64> {
        let body = json!({ "messages": messages, "add_generation_prompt": add_generation_prompt });
        let prompt = self.server.post("/apply-template", &body).fine()["prompt"].clone();
        let tokens = self.server.post("/tokenize", &json!({ "content": prompt })).fine();
        serde_json::from_value(tokens["tokens"].clone()).unwrap()
    }

    /// Says something, and checks what that took.
    #[track_caller]
    fn say(&mut self, text: &str) {
        self.messages.push(json!({ "role": "user", "content": text }));
        self.answer();
    }

    #[track_caller]
    fn answer(&mut self) {
        let prompt = self.tokens(&self.messages, true);
        assert!(prompt.len() + ANSWER < CONTEXT as usize, "the conversation is too long: {}", prompt.len());
        let mut body = json!({ "messages": self.messages, "max_tokens": ANSWER, "ignore_eos": true });
        body.as_object_mut().unwrap().extend(self.sampling.as_object().unwrap().clone());
        let answer = self.server.post("/v1/chat/completions", &body).fine();
        let (cached, computed) = (&answer["timings"]["cache_n"], &answer["timings"]["prompt_n"]);
        let (cached, computed) = (cached.as_u64().unwrap(), computed.as_u64().unwrap());
        assert_eq!(cached + computed, prompt.len() as u64);
        let common = self.known.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
        let new = (prompt.len() - common) as u64;
        assert!(computed <= new + REMAINDER, "{computed} tokens were computed, and {new} are new");
        assert!(self.known.is_empty() || cached > 0 || common < REMAINDER as usize);

        body["cache_prompt"] = false.into();
        let cold = self.cold.post("/v1/chat/completions", &body).fine();
        assert_eq!(cold["timings"]["cache_n"], 0);
        assert_eq!(answer["choices"], cold["choices"], "after {cached} tokens that were there already");
        let message = &answer["choices"][0]["message"];
        self.messages.push(json!({ "role": "assistant", "content": message["content"] }));
        self.known = self.tokens(&self.messages, false);
    }
}

fn greedy() -> Value {
    json!({ "temperature": 0 })
}

/// Penalties look at tokens that were not computed, too.
fn seeded() -> Value {
    json!({ "temperature": 0.8, "seed": 3, "repeat_penalty": 1.2, "logprobs": true, "top_logprobs": 2 })
}

const LINES: [&str; 7] = [
    "def push(self, value): append the value",
    "impl Iterator for Numbers { type Item = u32; }",
    "what does sorted(list, key=len) give?",
    "raise ValueError(message) from error",
    "pub fn len(&self) -> usize",
    "for line in file: print(line.strip())",
    "use std::collections::HashMap;",
];

/// Turns, an edit in the middle, and turns after it.
#[track_caller]
fn converse_and_edit(server: &TestServer, cold: &TestServer, sampling: Value) {
    let mut talk = Talk::new(server, cold, "You write programs.", sampling);
    LINES.iter().for_each(|line| talk.say(line));
    // The fourth turn is edited: what follows it is gone.
    talk.messages.truncate(1 + 2 * 3);
    talk.say("raise KeyError(name) instead");
    talk.say(LINES[0]);
    // The answer before the last question is shortened, as templates do with thoughts.
    let answer = talk.messages.len() - 1;
    talk.messages[answer]["content"] = "short".into();
    talk.say(LINES[1]);
    // The last answer is not liked.
    talk.messages.pop();
    talk.answer();
}

#[test]
fn a_hybrid_goes_back_to_where_a_conversation_was_edited() {
    let server = TestServer::start(Setup { parallel: 2, ..Setup::default() });
    let cold = TestServer::start(Setup { parallel: 1, snapshot_bytes: 0, ..Setup::default() });
    for sampling in [greedy(), seeded()] {
        converse_and_edit(&server, &cold, sampling);
    }
    let ratio = server.metric("prompt_tokens_cached_total") / server.metric("prompt_tokens_total");
    assert!(ratio > 2.0, "{ratio}");
}

#[test]
fn a_dense_model_goes_back_to_any_token() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dense.gguf");
    crate::dense::write(&path);
    let setup = Setup { parallel: 1, model: Some(path), ..Setup::default() };
    let [server, cold] = [0; 2].map(|_| TestServer::start(setup.clone()));
    converse_and_edit(&server, &cold, greedy());
}

/// Tokens that were drafted and taken back leave nothing behind, neither in states nor in what is reused.
#[test]
fn drafts_do_not_matter() {
    let cold = TestServer::start(Setup { parallel: 1, snapshot_bytes: 0, ..Setup::default() });
    for drafter in [Drafter::NGrams, Drafter::Model] {
        let server = TestServer::start(Setup { parallel: 2, drafter, ..Setup::default() });
        converse_and_edit(&server, &cold, greedy());
        assert!(server.metric("spec_decode_num_accepted_tokens_total") > 0.0, "{drafter:?}");
    }
}

/// Two conversations that begin alike take turns: neither makes the server forget the other.
#[test]
fn conversations_keep_sequences_of_their_own() {
    let server = TestServer::start(Setup { parallel: 2, ..Setup::default() });
    let cold = TestServer::start(Setup { parallel: 1, snapshot_bytes: 0, ..Setup::default() });
    let system = "You write programs.";
    let mut talks = [0; 2].map(|_| Talk::new(&server, &cold, system, greedy()));
    for turn in 0..3 {
        for (i, talk) in talks.iter_mut().enumerate() {
            talk.say(LINES[2 * turn + i]);
        }
    }
}

/// A device that is lost again and again: clients do not notice.
#[test]
fn a_lost_device_is_hidden_from_clients() {
    let server = TestServer::start(Setup { parallel: 2, losses: Some(50), ..Setup::default() });
    let cold = TestServer::start(Setup { parallel: 1, snapshot_bytes: 0, ..Setup::default() });
    // Snapshots are lost with the device, so that nothing can be said of what is computed again.
    let ask = |server: &TestServer, text: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": text }],
            "max_tokens": 60, "temperature": 0,
            "ignore_eos": true });
        server.post("/v1/chat/completions", &body).fine()["choices"].clone()
    };
    let expected: Vec<_> = LINES[..4].iter().map(|line| ask(&cold, line)).collect();
    let found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = LINES[..4].iter().map(|line| scope.spawn(|| ask(&server, line))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(found, expected);
}

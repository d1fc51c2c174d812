//! Conversations whose sequence was needed by others, kept in memory of the host.

use crate::dense;
use crate::support::{Drafter, Setup, TestServer, Value, greedy, json};

/// Room for all texts of a test.
const ROOM: usize = 64 << 20;

/// Two conversations that have nothing in common, and the next turn of the first one.
const FIRST: &str =
    "impl Stack {\n    pub fn push(&mut self, value: u32) {\n        self.items.push(value);\n    }\n\n";
const OTHER: &str =
    "def sorted_by_length(words):\n    return sorted(words, key=lambda word: len(word))\n\n\n";

fn run(server: &TestServer, prompt: &str) -> Value {
    let mut body = greedy(prompt, 24);
    body["return_tokens"] = true.into();
    server.post("/completion", &body).fine()
}

fn cached(answer: &Value) -> u64 {
    answer["timings"]["cache_n"].as_u64().unwrap()
}

/// A server of one sequence, with so many bytes for others.
fn start(change: &impl Fn(&mut Setup), bytes: usize) -> TestServer {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.cache_ram = Some(bytes);
    change(&mut setup);
    TestServer::start(setup)
}

/// A conversation goes on after another one had its sequence, with the text of a server that knows nothing.
#[track_caller]
fn goes_on_after_another(change: impl Fn(&mut Setup)) -> TestServer {
    let (server, cold) = (start(&change, ROOM), start(&change, 0));
    let first = run(&server, FIRST);
    run(&server, OTHER);
    let next = format!("{FIRST}{}    pub fn pop(", first["content"].as_str().unwrap());
    let warm = run(&server, &next);
    run(&cold, OTHER);
    let expected = run(&cold, &next);
    assert_eq!(warm["tokens"], expected["tokens"]);
    assert_eq!(cached(&expected), 0, "without the cache all is computed again");
    let computed = warm["timings"]["prompt_n"].as_u64().unwrap();
    assert!(computed < 16, "{computed} tokens were computed after {}", cached(&warm));
    assert_eq!(server.metric("cache_ram_hits_total"), 1.0);
    assert!(server.metric("cache_ram_bytes") > 0.0 && server.metric("cache_ram_sequences") >= 1.0);
    server
}

#[test]
fn a_hybrid_conversation_goes_on_after_another() {
    let server = goes_on_after_another(|_| ());
    // The other one gave way in its turn. Its own prompt again needs a snapshot, which came along.
    assert!(cached(&run(&server, OTHER)) > 16);
}

#[test]
fn a_conversation_with_drafts_goes_on_after_another() {
    goes_on_after_another(|setup| setup.drafter = Drafter::Model);
}

#[test]
fn a_dense_conversation_goes_on_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("dense.gguf");
    dense::write(&model);
    goes_on_after_another(|setup| setup.model = Some(model.clone()));
}

#[test]
fn a_conversation_goes_on_after_another_and_a_lost_device() {
    goes_on_after_another(|setup| setup.losses = Some(40));
}

#[test]
fn the_budget_is_kept() {
    let server = start(&|_| (), ROOM);
    run(&server, FIRST);
    run(&server, OTHER);
    let one = server.metric("cache_ram_bytes") as usize;
    // Room for one text, and not for two.
    let server = start(&|_| (), one + one / 2);
    let texts = [FIRST, OTHER, "for (let i = 0; i < numbers.length; i += 1) {\n  total += numbers[i];\n}\n"];
    for text in texts {
        run(&server, text);
        assert!(server.metric("cache_ram_bytes") as usize <= one + one / 2);
    }
    assert_eq!(server.metric("cache_ram_sequences"), 1.0);
    assert_eq!(cached(&run(&server, FIRST)), 0, "it was the oldest");
    assert_eq!(server.get("/props").fine()["cache_ram_bytes"], json!(one + one / 2));
}

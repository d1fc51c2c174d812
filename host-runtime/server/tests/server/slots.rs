//! Sequences that are saved to files, restored from them, and erased.

use std::path::Path;

use crate::dense;
use crate::support::{Drafter, Reply, Setup, TestServer, Value, greedy, json};

/// A server that saves into `folder`.
fn setup(folder: &Path) -> Setup {
    let mut setup = Setup { parallel: 2, ..Setup::default() };
    setup.options.slot_save_path = Some(folder.to_owned());
    setup
}

fn act(server: &TestServer, slot: usize, action: &str, name: &str) -> Reply {
    server.post(&format!("/slots/{slot}?action={action}"), &json!({ "filename": name }))
}

/// A text on a sequence: its answer.
fn run(server: &TestServer, slot: usize, prompt: &str) -> Value {
    let mut body = greedy(prompt, 24);
    body["id_slot"] = slot.into();
    body["return_tokens"] = true.into();
    server.post("/completion", &body).fine()
}

const PROMPT: &str =
    "impl Stack {\n    pub fn push(&mut self, value: u32) {\n        self.items.push(value);\n    }\n\n";

/// Through a file, into another sequence of another server: the text goes on as if it had always been there.
#[track_caller]
fn goes_on_elsewhere(change: impl Fn(&mut Setup)) {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = setup(folder.path());
    change(&mut setup);
    let first = TestServer::start(setup.clone());
    let text = run(&first, 1, PROMPT)["content"].as_str().unwrap().to_owned();
    let saved = act(&first, 1, "save", "a.bin").fine();
    let bytes = std::fs::metadata(folder.path().join("a.bin")).unwrap().len();
    assert_eq!(
        (&saved["id_slot"], &saved["filename"], &saved["n_written"]),
        (&json!(1), &json!("a.bin"), &json!(bytes))
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    drop(first);

    let (second, cold) = (TestServer::start(setup.clone()), TestServer::start(setup));
    let restored = act(&second, 0, "restore", "a.bin").fine();
    assert_eq!((&restored["n_restored"], &restored["n_read"]), (&saved["n_saved"], &json!(bytes)));
    let next = format!("{PROMPT}{text}");
    let (warm, cold) = (run(&second, 0, &next), run(&cold, 0, &next));
    assert_eq!(warm["tokens"], cold["tokens"]);
    assert_eq!(cold["timings"]["cache_n"], 0);
    let (cached, computed) = (&warm["timings"]["cache_n"], warm["timings"]["prompt_n"].as_u64().unwrap());
    assert!(computed < 8, "{computed} tokens were computed after {cached}");
}

#[test]
fn a_saved_hybrid_goes_on_elsewhere() {
    goes_on_elsewhere(|_| ());
}

#[test]
fn a_saved_text_with_drafts_goes_on_elsewhere() {
    goes_on_elsewhere(|setup| setup.drafter = Drafter::Model);
}

#[test]
fn a_saved_dense_text_goes_on_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("dense.gguf");
    dense::write(&model);
    goes_on_elsewhere(|setup| setup.model = Some(model.clone()));
}

#[test]
fn an_erased_sequence_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(setup(folder.path()));
    let first = run(&server, 1, PROMPT);
    let erased = server.post("/slots/1?action=erase", &json!({})).fine();
    assert_eq!(erased["n_erased"], server_tokens(&first));
    let again = run(&server, 1, PROMPT);
    assert_eq!((&again["timings"]["cache_n"], &again["tokens"]), (&json!(0), &first["tokens"]));
}

/// Tokens of the context after a text: the last one is not in it.
fn server_tokens(answer: &Value) -> u64 {
    answer["tokens_evaluated"].as_u64().unwrap() + answer["tokens_predicted"].as_u64().unwrap() - 1
}

#[test]
fn what_cannot_be_restored_is_refused_and_harms_nothing() {
    // What is outside of the folder belongs to this test, too.
    let outer = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir_in(outer.path()).unwrap();
    let server = TestServer::start(setup(folder.path()));
    let before = run(&server, 0, PROMPT);
    act(&server, 0, "save", "fine.bin").fine();
    let bytes = std::fs::read(folder.path().join("fine.bin")).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    put("damaged.bin", &damaged);
    put("short.bin", &bytes[..bytes.len() - 1]);
    put("other.bin", b"GGUF and more");
    std::fs::write(folder.path().join("../outside.bin"), &bytes).unwrap();
    for name in
        ["damaged.bin", "short.bin", "other.bin", "none.bin", "../outside.bin", "/etc/hosts", "", "a/b", ".."]
    {
        let reply = act(&server, 0, "restore", name);
        assert_eq!(reply.error(), (400, "invalid_request_error".to_owned()), "{name}");
        assert!(reply.json()["error"]["message"].as_str().unwrap().lines().count() == 1);
    }
    std::fs::remove_file(folder.path().join("../outside.bin")).unwrap();
    for (path, status) in [
        ("/slots/2?action=save", 400),
        ("/slots/x?action=save", 400),
        ("/slots/0", 400),
        ("/slots/0?action=burn", 400),
    ] {
        assert_eq!(server.post(path, &json!({ "filename": "x" })).status, status, "{path}");
    }
    // The sequence has what it had.
    let after = run(&server, 0, PROMPT);
    assert_eq!(after["tokens"], before["tokens"]);
    assert!(after["timings"]["cache_n"].as_u64().unwrap() > 0);

    // Another model, with the same tokenizer.
    let model = folder.path().join("dense.gguf");
    dense::write(&model);
    let other = TestServer::start(Setup { model: Some(model), ..setup(folder.path()) });
    let reply = act(&other, 0, "restore", "fine.bin");
    assert_eq!(reply.error(), (400, "invalid_request_error".to_owned()));
    assert!(reply.text.contains("another model"), "{}", reply.text);
    // Without a folder there is nothing of this.
    let reply = act(TestServer::shared(), 0, "save", "x");
    assert_eq!(reply.error(), (501, "not_supported_error".to_owned()));
}

/// Who asks while a text is being written gets the sequence as it is afterwards.
#[test]
fn a_sequence_is_saved_when_it_is_at_rest() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(Setup { parallel: 1, ..setup(folder.path()) });
    let mut stream = server.open("/v1/completions", &{
        let mut body = greedy(PROMPT, 60);
        body["stream"] = true.into();
        body
    });
    stream.next().unwrap();
    let saved = act(&server, 0, "save", "a.bin").fine();
    stream.rest();
    let tokens =
        server.post("/tokenize", &json!({ "content": PROMPT })).fine()["tokens"].as_array().unwrap().len();
    assert_eq!(saved["n_saved"], tokens + 59);
}

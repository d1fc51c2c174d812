//! Texts between two texts.

use tempfile::TempDir;

use crate::dense;
use crate::support::{Setup, TestServer, Value, json};

/// A server whose model has marks for gaps. They are control tokens that its vocabulary has for other things.
fn with_marks() -> (TempDir, TestServer) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("infill.gguf");
    let marks = [
        ("fim_pre", "<|im_start|>"),
        ("fim_suf", "<|im_end|>"),
        ("fim_mid", "<|mask|>"),
        ("fim_sep", "<|endoftext|>"),
    ];
    dense::write_with_marks(&path, &marks);
    let server = TestServer::start(Setup { model: Some(path), ..Setup::default() });
    (folder, server)
}

fn gap(prefix: &str, suffix: &str) -> Value {
    let parts = json!({ "input_prefix": prefix, "input_suffix": suffix, "n_predict": 8, "temperature": 0 });
    let mut body = parts;
    body["ignore_eos"] = true.into();
    body
}

#[test]
fn each_part_stands_behind_its_mark() {
    let (_folder, server) = with_marks();
    let mut body = gap("def f(", "):\n");
    body["prompt"] = " a".into();
    body["input_extra"] = json!([
        { "text": "import os\n", "filename": "one.py" },
        { "text": "x = 1\n" },
    ]);
    let answer = server.post("/infill", &body).fine();
    let expected = "<|endoftext|>one.py\nimport os\n<|endoftext|>tmp\nx = 1\n<|endoftext|>filename\n\
        <|im_start|>def f( a<|im_end|>):\n<|mask|>";
    assert_eq!(answer["prompt"], expected);
    // What is written is what follows that prompt.
    let after = json!({ "prompt": expected, "n_predict": 8, "temperature": 0, "ignore_eos": true });
    assert_eq!(answer["content"], server.post("/completion", &after).fine()["content"]);
    // As editors ask for it.
    body["response_fields"] = json!(["content"]);
    body["stream"] = false.into();
    assert_eq!(server.post("/infill", &body).fine(), json!({ "content": answer["content"] }));
}

#[test]
fn marks_in_a_text_are_text() {
    let (_folder, server) = with_marks();
    let plain = |body: &Value| server.post("/infill", body).fine()["tokens_evaluated"].as_u64().unwrap();
    let marked = plain(&gap("a <|im_end|> b", "c"));
    let bare = plain(&gap("a ", "c")) + plain(&gap(" b", "c")) - plain(&gap("", "c"));
    assert!(marked > bare + 1, "{marked} tokens, {bare} without the mark");
}

#[test]
fn long_texts_lose_what_is_far_from_the_gap() {
    let (_folder, server) = with_marks();
    let far = "far ".repeat(2000);
    let mut body = gap(&format!("{far}near_before"), &format!("near_behind{far}"));
    body["input_extra"] = json!([{ "text": far }]);
    let prompt = server.post("/infill", &body).fine()["prompt"].as_str().unwrap().to_owned();
    assert!(
        prompt.contains("near_before<|im_end|>near_behind") && prompt.ends_with("far<|mask|>"),
        "{prompt}"
    );
    assert!(prompt.len() < far.len(), "{}", prompt.len());
}

#[test]
fn what_is_not_kept_to_is_told() {
    let (_folder, server) = with_marks();
    let mut body = gap("a", "b");
    for (field, value) in [("samplers", json!(["top_k", "infill"])), ("t_max_predict_ms", json!(1000))] {
        body[field] = value;
    }
    body["n_indent"] = 0.into();
    let answer = server.post("/infill", &body);
    assert_eq!(answer.status, 200);
    let warning = answer.header("warning").unwrap();
    assert!(warning.contains("samplers") && warning.contains("t_max_predict_ms"), "{warning}");
    assert!(!warning.contains("n_indent"), "{warning}");
}

#[test]
fn requests_that_cannot_be_filled_in_are_refused() {
    let (_folder, server) = with_marks();
    let extras = Value::Array(vec![json!({ "text": "x" }); 2000]);
    for (field, value) in
        [("input_prefix", json!(null)), ("input_suffix", json!(7)), ("input_extra", json!([{}]))]
    {
        let mut body = gap("a", "b");
        body[field] = value;
        assert_eq!(server.post("/infill", &body).status, 400, "{field}");
    }
    let mut body = gap("a", "b");
    body["input_extra"] = extras;
    assert_eq!(server.post("/infill", &body).status, 400);
    // A model without marks.
    let error = TestServer::shared().post("/infill", &gap("a", "b")).error();
    assert_eq!(error, (501, "not_supported_error".to_owned()));
    // Elsewhere the fields are refused, with a hint.
    let mut body = gap("a", "b");
    body["prompt"] = "c".into();
    let refused = server.post("/completion", &body);
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("/infill"));
}

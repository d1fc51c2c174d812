//! Ollama's interface.

use crate::support::{Reply, TestServer, Value, json};

/// The objects of a stream, and the last of them.
fn lines(reply: &Reply) -> (Vec<Value>, Value) {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")));
    let mut lines: Vec<Value> = reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.pop().unwrap();
    assert!(last["done"] == true && lines.iter().all(|line| line["done"] == false), "{lines:?}");
    (lines, last)
}

fn chat(stream: Option<bool>) -> Value {
    let mut body = json!({
        "model": "any",
        "messages": [{ "role": "user", "content": "def push(" }],
        "options": { "num_predict": 12, "temperature": 0, "num_ctx": 4096 },
        "keep_alive": "5m",
    });
    if let Some(stream) = stream {
        body["stream"] = stream.into();
    }
    body
}

#[test]
fn a_chat_is_that_of_openai_in_lines() {
    let server = TestServer::shared();
    let messages = json!([{ "role": "user", "content": "def push(" }]);
    let body = json!({ "messages": messages, "max_tokens": 12, "temperature": 0 });
    let expected = &server.post("/v1/chat/completions", &body).fine()["choices"][0]["message"]["content"];
    let whole = server.post("/api/chat", &chat(Some(false))).fine();
    assert_eq!(whole["message"], json!({ "role": "assistant", "content": expected }));
    assert_eq!((&whole["done"], &whole["done_reason"]), (&json!(true), &json!("length")));
    assert_eq!(whole["eval_count"], 12);
    for field in ["total_duration", "prompt_eval_count", "eval_duration"] {
        assert!(whole[field].as_u64().unwrap() > 0, "{field}: {whole}");
    }
    // Streams are usual.
    let (pieces, last) = lines(&server.post("/api/chat", &chat(None)));
    let text: String = pieces.iter().map(|piece| piece["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(&json!(text), expected);
    assert!(pieces.len() > 1);
    assert_eq!((&last["done_reason"], &last["eval_count"]), (&json!("length"), &json!(12)));
    assert!(last["created_at"].as_str().unwrap().ends_with('Z'), "{last}");
}

#[test]
fn prompts_are_messages_or_go_on() {
    let server = TestServer::shared();
    let options = json!({ "num_predict": 12, "temperature": 0 });
    let asked = json!({ "prompt": "def push(", "stream": false, "options": options });
    let chat = server.post("/api/chat", &chat(Some(false))).fine();
    assert_eq!(server.post("/api/generate", &asked).fine()["response"], chat["message"]["content"]);
    let mut raw = asked;
    raw["raw"] = true.into();
    let plain = json!({ "prompt": "def push(", "n_predict": 12, "temperature": 0 });
    let expected = &server.post("/completion", &plain).fine()["content"];
    assert_eq!(&server.post("/api/generate", &raw).fine()["response"], expected);
    raw["stream"] = true.into();
    let (pieces, _) = lines(&server.post("/api/generate", &raw));
    let text: String = pieces.iter().map(|piece| piece["response"].as_str().unwrap()).collect();
    assert_eq!(&json!(text), expected);
}

#[test]
fn an_answer_keeps_to_a_format() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "maximum": 9 } },
        "required": ["n"] });
    let mut body = chat(Some(false));
    body["format"] = schema;
    body["options"]["num_predict"] = 60.into();
    let answer = TestServer::shared().post("/api/chat", &body).fine();
    let value: Value = serde_json::from_str(answer["message"]["content"].as_str().unwrap()).unwrap();
    assert!(value["n"].is_i64(), "{value}");
}

#[test]
fn nothing_asked_is_answered_by_what_is_there() {
    let server = TestServer::shared();
    for (path, field) in [("/api/chat", "message"), ("/api/generate", "response")] {
        let answer = server.post(path, &json!({ "model": "any" })).fine();
        assert_eq!((&answer["done_reason"], &answer["done"]), (&json!("load"), &json!(true)));
        assert!(!answer[field].is_null(), "{answer}");
    }
}

#[test]
fn the_model_is_told_of() {
    let server = TestServer::shared();
    let tags = server.get("/api/tags").fine();
    let model = &tags["models"][0];
    assert_eq!((&model["model"], &model["details"]["family"]), (&model["name"], &json!("qwen35")));
    assert_eq!(server.get("/api/ps").fine()["models"][0]["name"], model["name"]);
    let shown = server.post("/api/show", &json!({ "model": model["name"] })).fine();
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("completion")), "{shown}");
    assert_eq!(shown["model_info"]["general.architecture"], "qwen35");
    assert!(shown["model_info"]["qwen35.context_length"].as_u64().unwrap() > 0);
    assert!(server.get("/api/version").fine()["version"].is_string());
}

#[test]
fn errors_are_a_text() {
    let server = TestServer::shared();
    let mut body = chat(None);
    body["messages"][0]["images"] = json!(["AAAA"]);
    for (path, body) in [
        ("/api/chat", body),
        ("/api/chat", json!({ "messages": "a" })),
        ("/api/chat", json!({ "messages": [{ "role": "user", "content": "a" }], "format": "xml" })),
        ("/api/generate", json!({ "prompt": "a", "suffix": "b" })),
        ("/api/generate", json!({ "prompt": "a", "options": { "mirostat": 2 } })),
        ("/api/embed", json!({ "input": 7 })),
    ] {
        let reply = server.post(path, &body);
        assert!((400..=501).contains(&reply.status), "{body}: {}", reply.text);
        assert!(reply.json()["error"].is_string(), "{}", reply.text);
    }
}

//! Requests that make no sense, and those that ask for what is not there.

use crate::support::{CONTEXT, Setup, TestServer, greedy, json};

const CHAT: &str = "/v1/chat/completions";
const INVALID: &str = "invalid_request_error";

#[track_caller]
fn refused(server: &TestServer, path: &str, body: &str, status: u16, kind: &str) -> String {
    let reply = server.request("POST", path, &[], body);
    assert_eq!(reply.error(), (status, kind.to_owned()), "{body:.100}: {reply:?}");
    reply.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let server = TestServer::shared();
    let deep = format!(r#"{{"messages": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for body in ["", "{", "[]", "7", "\"x\"", "{\"messages\": [}", "{\"a\": \"\\ud800\"}", &deep] {
        refused(server, CHAT, body, 400, INVALID);
    }
}

#[test]
fn fields_of_the_wrong_kind_are_named() {
    let server = TestServer::shared();
    let message = r#""messages": [{"role": "user", "content": "x"}]"#;
    for (field, value) in [
        ("temperature", "\"hot\""),
        ("temperature", "1e9"),
        ("top_p", "2"),
        ("top_k", "1.5"),
        ("max_tokens", "-3"),
        ("max_tokens", "\"many\""),
        ("seed", "1.5"),
        ("n", "0"),
        ("n", "1000000"),
        ("stream", "\"yes\""),
        ("stop", "7"),
        ("model", "7"),
        ("logit_bias", "7"),
        ("logit_bias", "{\"5\": \"x\"}"),
        ("logit_bias", "{\"999999\": 1}"),
        ("logit_bias", "[[1]]"),
        ("top_logprobs", "5"),
        ("chat_template_kwargs", "[]"),
    ] {
        let body = format!("{{{message}, \"{field}\": {value}}}");
        let text = refused(server, CHAT, &body, 400, INVALID);
        assert!(text.contains(field), "{text}");
    }
    for messages in [
        "null",
        "[]",
        "7",
        "[7]",
        r#"[{"content": "x"}]"#,
        r#"[{"role": "user", "content": 7}]"#,
        r#"[{"role": "user", "content": [{"type": "text"}]}]"#,
    ] {
        let text = refused(server, CHAT, &format!(r#"{{"messages": {messages}}}"#), 400, INVALID);
        assert!(text.contains("messages"), "{text}");
    }
    for prompt in ["null", "{}", "[]", "[[]]", "[-1]", "[1.5]", "[4096]", "\"\""] {
        refused(server, "/v1/completions", &format!(r#"{{"prompt": {prompt}}}"#), 400, INVALID);
    }
    refused(server, "/detokenize", r#"{"tokens": [999999]}"#, 400, INVALID);
    refused(server, "/tokenize", "{}", 400, INVALID);
}

#[test]
fn what_is_not_supported_is_refused_and_not_ignored() {
    let server = TestServer::shared();
    for field in [
        r#""images": ["x"]"#,
        r#""functions": [{"name": "f"}]"#,
        r#""structural_tag": {"type": "object"}"#,
        r#""mirostat": 2"#,
        r#""echo": true"#,
    ] {
        let body = format!(r#"{{"messages": [{{"role": "user", "content": "x"}}], {field}}}"#);
        refused(server, CHAT, &body, 400, "unsupported");
    }
    let image =
        r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}"#;
    refused(server, CHAT, image, 400, "unsupported");
}

#[test]
fn what_does_not_change_the_text_is_ignored() {
    let server = TestServer::shared();
    let plain = server.post("/v1/completions", &greedy("def f(", 8)).fine();
    let mut body = greedy("def f(", 8);
    for (field, value) in [
        ("model", json!("gpt-4o")),
        ("user", json!("somebody")),
        ("store", json!(true)),
        ("metadata", json!({ "a": "b" })),
        ("service_tier", json!("auto")),
        ("tools", json!([])),
        ("response_format", json!({ "type": "text" })),
        ("top_p", json!(null)),
        ("no_such_field", json!([1, 2])),
    ] {
        body[field] = value;
    }
    let answer = server.post("/v1/completions", &body).fine();
    assert_eq!(answer["choices"], plain["choices"]);
}

#[test]
fn prompts_that_are_too_long_say_by_how_much() {
    let server = TestServer::shared();
    let ids: Vec<u32> = vec![5; CONTEXT as usize];
    let reply = server.post("/v1/completions", &json!({ "prompt": ids }));
    assert_eq!(reply.error(), (400, "exceed_context_size_error".to_owned()));
    let error = &reply.json()["error"];
    assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(CONTEXT), &json!(CONTEXT)));
    // One less leaves room for an answer, which ends with the context.
    let reply =
        server.post("/v1/completions", &json!({ "prompt": ids[1..], "ignore_eos": true, "temperature": 0 }));
    let answer = reply.fine();
    assert_eq!(
        (&answer["choices"][0]["finish_reason"], &answer["usage"]["completion_tokens"]),
        (&json!("length"), &json!(2))
    );
}

/// Texts that are far too long are not even split into tokens.
#[test]
fn prompts_that_cannot_fit_are_refused_at_once() {
    let server = TestServer::shared();
    let text = "def push(self, value): ".repeat(1_000_000);
    let reply = server.post("/v1/completions", &json!({ "prompt": text }));
    assert_eq!(reply.error(), (400, "exceed_context_size_error".to_owned()));
    // What is told is the least that so many bytes can be, and far less than what counting would give.
    let told = reply.json()["error"]["n_prompt_tokens"].as_u64().unwrap();
    let line = server.post("/tokenize", &json!({ "content": &text[..23] })).fine();
    let counted = 1_000_000 * line["tokens"].as_array().unwrap().len() as u64;
    assert!(told >= u64::from(CONTEXT) && told < counted / 2, "{told}, and counted {counted}");
}

#[test]
fn huge_requests_are_refused_soon() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.body_bytes = 200_000;
    let server = TestServer::start(setup);
    let huge = format!(r#"{{"prompt": "{}"}}"#, "x".repeat(3_000_000));
    refused(&server, "/v1/completions", &huge, 413, INVALID);
    let stops: Vec<String> = (0..10_000).map(|i| format!("stop {i}")).collect();
    let body = json!({ "prompt": "x", "stop": stops });
    refused(&server, "/v1/completions", &body.to_string(), 400, INVALID);
    let biases: serde_json::Map<_, _> = (0..4000).map(|i| (i.to_string(), json!(1))).collect();
    refused(
        &server,
        "/v1/completions",
        &json!({ "prompt": "x", "logit_bias": biases }).to_string(),
        400,
        INVALID,
    );
}

#[test]
fn routes_and_methods_that_are_not_there_say_so() {
    let server = TestServer::shared();
    assert_eq!(server.get("/v1/files").error(), (404, "not_found_error".to_owned()));
    assert_eq!(server.get(CHAT).error(), (405, INVALID.to_owned()));
    assert_eq!(server.post("/health", &json!({})).error(), (405, INVALID.to_owned()));
}

#[test]
fn a_key_is_needed_where_there_are_keys() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.api_keys = vec!["first".to_owned(), "second".to_owned()];
    let server = TestServer::start(setup);
    let body = greedy("x", 1).to_string();
    let ask = |headers: &[(&str, &str)]| server.request("POST", "/v1/completions", headers, &body);
    for wrong in
        [&[][..], &[("authorization", "Bearer third")], &[("authorization", "second")], &[("x-api-key", "")]]
    {
        let reply = ask(wrong);
        assert_eq!(reply.error(), (401, "authentication_error".to_owned()));
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    for right in
        [("authorization", "Bearer first"), ("authorization", "Bearer second"), ("x-api-key", "second")]
    {
        ask(&[right]).fine();
    }
    assert_eq!(server.get("/props").status, 401);
    assert_eq!((server.get("/health").status, server.get("/v1/models").status), (200, 200));
}

//! Routes that tell of the server, the model and its texts.

use std::sync::mpsc;

use crate::support::{CONTEXT, Setup, TestServer, Value, json};

#[test]
fn health_tells_loading_from_ready() {
    let (go, wait) = mpsc::channel::<()>();
    let options = Setup::default().options;
    let mut server = TestServer::start_with(options, move |cancel| {
        let _ = wait.recv();
        cancel.check()?;
        unreachable!("it is cancelled by then")
    });
    let health = server.get("/health");
    assert_eq!(health.error(), (503, "unavailable_error".to_owned()));
    assert_eq!(server.get("/v1/models").status, 503);
    let chat = server.post("/v1/chat/completions", &json!({ "messages": [] }));
    assert_eq!((chat.status, chat.header("retry-after")), (503, Some("1")));
    server.cancel();
    go.send(()).unwrap();
    let error = server.join().unwrap_err();
    assert!(error.to_string().contains("interrupted"), "{error}");

    let health = TestServer::shared().get("/health").fine();
    assert_eq!(health, json!({ "status": "ok" }));
}

#[test]
fn the_model_is_described() {
    let server = TestServer::shared();
    let models = server.get("/v1/models").fine();
    let model = &models["data"][0];
    assert_eq!((models["object"].as_str(), &model["id"]), (Some("list"), &json!("tiny-hybrid-q8_0")));
    assert_eq!((&model["meta"]["n_ctx"], &model["meta"]["n_vocab"]), (&json!(CONTEXT), &json!(4096)));
    let params = model["meta"]["n_params"].as_u64().unwrap();
    assert!((9_000_000..10_000_000).contains(&params), "{params}");

    // By its name, and not by another one.
    for path in ["/v1/models/tiny-hybrid-q8_0", "/models/tiny-hybrid-q8_0"] {
        assert_eq!(server.get(path).fine()["id"], model["id"]);
    }
    let error = server.get("/v1/models/org/other");
    assert_eq!(error.error(), (404, "not_found_error".to_owned()));
    assert!(error.text.contains("org/other") && error.text.contains("tiny-hybrid-q8_0"), "{error:?}");

    let props = server.get("/props").fine();
    assert_eq!((&props["total_slots"], &props["is_sleeping"]), (&json!(4), &json!(false)));
    assert_eq!(props["default_generation_settings"]["n_ctx"], CONTEXT);
    assert!(props["chat_template"].as_str().unwrap().contains("im_start"));

    let slots = server.get("/slots").fine();
    let ids: Vec<_> = slots.as_array().unwrap().iter().map(|slot| slot["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
}

#[test]
fn texts_become_tokens_and_tokens_texts() {
    let server = TestServer::shared();
    let text = "def héllo(self): 🦀";
    let tokens = server.post("/tokenize", &json!({ "content": text })).fine();
    let back = server.post("/detokenize", &tokens).fine();
    assert_eq!(back["content"], text);
    let pieces = server.post("/tokenize", &json!({ "content": text, "with_pieces": true })).fine();
    let ids: Vec<_> = pieces["tokens"].as_array().unwrap().iter().map(|piece| &piece["id"]).collect();
    assert_eq!(ids, tokens["tokens"].as_array().unwrap().iter().collect::<Vec<_>>());
    let bytes: Vec<u8> = pieces["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|piece| match &piece["piece"] {
            Value::String(text) => text.as_bytes().to_vec(),
            bytes => serde_json::from_value(bytes.clone()).unwrap(),
        })
        .collect();
    assert_eq!(bytes, text.as_bytes());
}

#[test]
fn templates_are_applied_with_their_arguments() {
    let server = TestServer::shared();
    let body = json!({ "messages": [
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
    ] });
    let prompt = server.post("/apply-template", &body).fine();
    let expected =
        "<|im_start|>system\nBe brief.<|im_end|><|im_start|>user\na\nb<|im_end|><|im_start|>assistant\n";
    assert_eq!(prompt["prompt"], expected);
    let mut without = body;
    without["add_generation_prompt"] = false.into();
    let prompt = server.post("/apply-template", &without).fine();
    assert_eq!(prompt["prompt"], expected.strip_suffix("<|im_start|>assistant\n").unwrap());
}

#[test]
fn browsers_may_ask_from_the_pages_that_are_named() {
    let preflight = |server: &TestServer, origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "authorization,content-type"),
        ];
        let reply = server.request("OPTIONS", "/v1/chat/completions", &headers, "");
        assert_eq!(reply.status, 200);
        let allowed = reply.header("access-control-allow-headers").unwrap();
        assert!(allowed.contains("authorization"), "{allowed}");
        reply.header("access-control-allow-origin").map(str::to_owned)
    };
    assert_eq!(preflight(TestServer::shared(), "https://a.example").as_deref(), Some("*"));
    let mut setup = Setup::default();
    setup.options.cors = "https://a.example, https://b.example".parse().unwrap();
    setup.options.metrics = false;
    setup.options.slots = false;
    let server = TestServer::start(setup);
    assert_eq!(preflight(&server, "https://b.example").as_deref(), Some("https://b.example"));
    assert_eq!(preflight(&server, "https://c.example"), None);
    // What is not switched on says so.
    for path in ["/metrics", "/slots"] {
        assert_eq!(server.get(path).error(), (501, "not_supported_error".to_owned()));
    }
}

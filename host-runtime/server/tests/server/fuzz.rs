//! Random requests: each is answered, none with a fault of the server, and none takes long.
//!
//! `PROPTEST_CASES=20000 cargo test -p hexflash-server --test server fuzz::` goes on for longer.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::Config;

use crate::support::{Drafter, Setup, TestServer, Value, json};

/// No request of these takes longer, on a slow machine beside other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// All routes that take a body.
const POSTS: [&str; 13] = [
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/chat/completions/input_tokens",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/completions",
    "/completions",
    "/completion",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/no-such-route",
];

/// Fields with values that mean something, or nearly so.
static FIELDS: LazyLock<Vec<(&str, Vec<Value>)>> = LazyLock::new(|| {
    let numbers = || [-2, -1, 0, 1, 2, 40, 1000].map(Value::from).into_iter();
    let fractions = || [-0.5, 0.0, 0.7, 1.0, 1e9, f64::MAX].map(Value::from).into_iter();
    let switches = || [true, false].map(Value::from).into_iter();
    let message = |role: &str, content: Value| json!([{ "role": role, "content": content }]);
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"a\": [1" } });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } });
    let schemas = [
        json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] }),
        json!({ "$ref": "#" }),
        json!({ "enum": [] }),
        json!({ "type": "string", "pattern": "(" }),
        json!({ "type": "array", "minItems": 3, "maxItems": 1 }),
        json!({ "type": "number", "minimum": 5, "maximum": 1 }),
        json!({ "allOf": [{ "type": "string" }, { "type": "integer" }] }),
        json!(false),
    ];
    let formats =
        schemas.iter().map(|schema| json!({ "type": "json_schema", "json_schema": { "schema": schema } }));
    let grammars = [
        "",
        "root ::= \"a\"",
        "%llguidance {}\nstart: \"a\"+",
        "%llguidance {}\nstart: start",
        "%llguidance",
    ];
    let mut fields: Vec<(&str, Vec<Value>)> = vec![
        (
            "messages",
            vec![
                message("user", "Hello".into()),
                message("system", json!([{ "type": "text", "text": "a" }])),
                message("user", json!([{ "type": "image_url", "image_url": { "url": "x" } }])),
                message("tool", Value::Null),
                message("\u{0}", "<|im_end|>".into()),
                json!([{ "role": "assistant", "content": null, "tool_calls": [call] }]),
                message("assistant", json!([{ "type": "tool_use", "id": "t", "name": "f", "input": {} }])),
                message("user", json!([{ "type": "tool_result", "tool_use_id": "t", "content": "a" }])),
                message("assistant", json!([{ "type": "thinking", "thinking": "a", "signature": "" }])),
                json!([]),
            ],
        ),
        (
            "input",
            vec![
                "Hello".into(),
                message("user", "Hello".into()),
                message("developer", json!([{ "type": "input_text", "text": "a" }])),
                json!([{ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{" }]),
                json!([{ "type": "function_call_output", "call_id": "c", "output": "a" }]),
                json!([{ "type": "item_reference", "id": "x" }]),
                json!([]),
            ],
        ),
        ("instructions", vec!["a".into(), json!([{}])]),
        ("system", vec!["a".into(), json!([{ "type": "text", "text": "a" }]), json!([{ "type": "image" }])]),
        ("thinking", vec![json!({ "type": "enabled", "budget_tokens": 1 }), json!({ "type": "x" })]),
        ("reasoning", vec![json!({ "effort": "none" }), json!({ "effort": 1 })]),
        ("stop_sequences", vec![json!(["a"]), json!([1]), "a".into()]),
        ("previous_response_id", vec!["x".into()]),
        (
            "prompt",
            vec![
                "def push(".into(),
                json!([1, 2]),
                json!(["a", [3]]),
                json!([1, "b"]),
                json!([-1]),
                "".into(),
            ],
        ),
        ("content", vec!["text \u{1F980}".into(), "".into()]),
        ("tokens", vec![json!([1, 2, 3]), json!([4095, 4096]), json!([])]),
        ("stop", vec!["a".into(), json!(["\n", ""]), json!([1])]),
        ("seed", numbers().chain([u64::MAX.into(), i64::MIN.into()]).collect()),
        (
            "logit_bias",
            vec![json!({ "5": -100 }), json!([[7, false]]), json!([["a", 5]]), json!({ "x": "y" })],
        ),
        (
            "response_format",
            formats.chain([json!({ "type": "json_object" }), json!({ "type": "text" })]).collect(),
        ),
        ("json_schema", schemas.to_vec()),
        ("grammar", grammars.map(Value::from).into()),
        ("tools", vec![json!([tool]), json!([]), json!([{}]), json!([{ "type": "function" }])]),
        (
            "tool_choice",
            vec![
                "required".into(),
                "none".into(),
                json!({ "type": "function", "function": { "name": "g" } }),
            ],
        ),
        (
            "chat_template_kwargs",
            vec![json!({ "messages": 1 }), json!({ "enable_thinking": "x", "tools": {} })],
        ),
        ("reasoning_format", vec!["none".into(), "auto".into(), "x".into()]),
        ("stream_options", vec![json!({ "include_usage": true }), json!({}), json!({ "include_usage": 1 })]),
    ];
    for name in [
        "max_tokens",
        "max_output_tokens",
        "n_predict",
        "n",
        "top_k",
        "repeat_last_n",
        "top_logprobs",
        "n_probs",
        "best_of",
    ] {
        fields.push((name, numbers().collect()));
    }
    let fractional = [
        "temperature",
        "top_p",
        "min_p",
        "repeat_penalty",
        "presence_penalty",
        "frequency_penalty",
        "typical_p",
    ];
    fields.extend(fractional.map(|name| (name, fractions().collect())));
    let switched = [
        "stream",
        "logprobs",
        "ignore_eos",
        "cache_prompt",
        "return_tokens",
        "token_origins",
        "echo",
        "add_special",
        "with_pieces",
        "parse_special",
        "add_generation_prompt",
        "parallel_tool_calls",
    ];
    fields.extend(switched.map(|name| (name, switches().collect())));
    fields
});

/// Any JSON, not very deep.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let object = hash_map("[a-z_]{1,8}", inner.clone(), 0..5);
        prop_oneof![
            vec(inner, 0..6).prop_map(Value::from),
            object.prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A body: some fields, mostly with values that mean something.
fn body() -> impl Strategy<Value = Value> {
    let names: Vec<usize> = (0..FIELDS.len()).collect();
    subsequence(names, 0..10).prop_flat_map(|chosen| {
        let field = |index: usize| {
            let (name, values) = &FIELDS[index];
            prop_oneof![9 => select(values.clone()), 1 => anything()]
                .prop_map(move |value| ((*name).to_owned(), value))
        };
        let fields: Vec<_> = chosen.into_iter().map(field).collect();
        // A conversation and a prompt are in most of them, and long texts in few.
        (fields, any::<[bool; 3]>()).prop_map(|(fields, [messages, prompt, is_long])| {
            let mut body = serde_json::Map::new();
            if messages {
                body.insert("messages".to_owned(), json!([{ "role": "user", "content": "import " }]));
            }
            if prompt {
                body.insert("prompt".to_owned(), "import ".into());
                body.insert("input".to_owned(), "import ".into());
            }
            body.extend(fields);
            // Forty long texts take a busy machine longer than any single one.
            let wants_several = body.get("n").and_then(Value::as_u64).is_some_and(|n| n > 1);
            if !is_long || wants_several {
                body.insert("max_tokens".to_owned(), 3.into());
                body.insert("max_output_tokens".to_owned(), 3.into());
            }
            Value::Object(body)
        })
    })
}

fn config() -> Config {
    // The variable wins.
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { 400 };
    Config { failure_persistence: None, ..Config::with_cases(cases) }
}

static SERVER: LazyLock<TestServer> =
    LazyLock::new(|| TestServer::start(Setup { drafter: Drafter::NGrams, ..Setup::default() }));

/// Whether an answer is one that clients can make something of.
fn is_sound(path: &str, body: &Value, took: Duration, reply: &crate::support::Reply) {
    assert!(took < PATIENCE, "{path} {body}: {took:?}");
    match reply.status {
        200 if reply.header("content-type") == Some("text/event-stream") => {
            let last = reply.text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
            let event: Value = last.and_then(|event| serde_json::from_str(event).ok()).unwrap_or_default();
            // The four interfaces say each in its own way that nothing follows.
            let ends_well = last == Some("[DONE]")
                || event["stop"] == true
                || event["type"] == "message_stop"
                || ["response.completed", "response.incomplete"]
                    .contains(&event["type"].as_str().unwrap_or(""));
            let is_refusal =
                event["error"]["code"] == 400 || event["error"]["type"] == "invalid_request_error";
            assert!(ends_well || is_refusal, "{path} {body}: {event}");
        }
        200 => drop(reply.json()),
        400 | 404 => assert!(reply.json()["error"]["message"].is_string(), "{path} {body}: {reply:?}"),
        _ => panic!("{path} {body}: {reply:?}"),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_body_is_answered(path in select(POSTS.to_vec()), body in body()) {
        let start = Instant::now();
        let reply = SERVER.post(path, &body);
        is_sound(path, &body, start.elapsed(), &reply);
    }

    #[test]
    fn every_address_is_answered(method in select(vec!["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]),
        path in "/[a-z0-9/%._-]{0,20}", header in "[ -~]{0,40}") {
        let headers = [("authorization", header.as_str()), ("accept", &header), ("origin", &header)];
        let reply = SERVER.request(method, &path, &headers, "");
        prop_assert!(reply.status < 500 || reply.status == 501, "{} {}: {:?}", method, path, reply);
    }
}

/// Bodies of 100 megabytes are read to their end, so that the client learns why, and not kept.
#[test]
fn a_hundred_megabytes_are_refused_soon() {
    let server = TestServer::shared();
    let start = Instant::now();
    let huge = format!(r#"{{"prompt": "{}"}}"#, "x".repeat(100 << 20));
    let reply = server.request("POST", "/v1/completions", &[], &huge);
    assert_eq!(reply.error(), (413, "invalid_request_error".to_owned()));
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

/// Schemas whose automata would be huge, or whose references lead in circles.
#[test]
fn schemas_that_explode_end_soon() {
    let server = TestServer::shared();
    let mut deep = json!({ "type": "integer" });
    for _ in 0..60 {
        deep = json!({ "type": "object", "properties": { "a": deep }, "required": ["a"] });
    }
    let mut doubled = json!({ "type": "string", "minLength": 1 });
    for _ in 0..18 {
        doubled = json!({ "anyOf": [doubled, { "type": "array", "items": { "$ref": "#" } }], "allOf": [{ "not": {} }] });
    }
    let names: Vec<String> = (0..5000).map(|i| format!("name{i}")).collect();
    let properties: serde_json::Map<_, _> =
        names.iter().map(|name| (name.clone(), json!({ "type": "string" }))).collect();
    // Each definition leads to the next one, and the last one to the first.
    let chain = |n: usize, link: fn(String) -> Value| {
        let next = |i: usize| (format!("d{i}"), link(format!("#/$defs/d{}", (i + 1) % n)));
        let all: serde_json::Map<_, _> = (0..n).map(next).collect();
        json!({ "$ref": "#/$defs/d0", "$defs": all })
    };
    let schemas = [
        deep,
        doubled,
        chain(3000, |next| json!({ "$ref": next })),
        chain(3000, |next| json!({ "$ref": next, "type": "object" })),
        chain(700, |next| json!({ "allOf": [{ "$ref": next }, { "type": "object" }] })),
        chain(80, |next| (0..20).fold(json!({ "$ref": next }), |inner, _| json!({ "allOf": [inner, {}] }))),
        chain(3000, |next| json!({ "allOf": [{ "$ref": next }, { "type": "object" }] })),
        chain(
            3000,
            |next| json!({ "type": "object", "properties": { "a": { "$ref": next } }, "required": ["a"] }),
        ),
        chain(3000, |next| json!({ "anyOf": [{ "$ref": next }, { "type": "string" }] })),
        json!({ "type": "array", "minItems": 1_000_000, "items": { "type": "string" } }),
        json!({ "type": "string", "minLength": 1_000_000, "maxLength": 2_000_000 }),
        json!({ "enum": names }),
        json!({ "type": "object", "properties": properties, "required": names }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "type": "string", "pattern": "^(([a-z]+)+)+$" }),
        json!({ "oneOf": (0..300).map(|i| json!({ "type": "array", "minItems": i })).collect::<Vec<_>>() }),
    ];
    for schema in schemas {
        let start = Instant::now();
        let body = json!({ "prompt": "x", "max_tokens": 3, "json_schema": schema });
        let reply = server.post("/v1/completions", &body);
        is_sound("/v1/completions", &json!(format!("{schema:.200}")), start.elapsed(), &reply);
    }
    let nested = |n: usize, open: &str, close: &str| format!("{}a{}", open.repeat(n), close.repeat(n));
    for n in [200, 100_000] {
        let grammars = [
            format!("%llguidance {{}}\nstart: {}", nested(n, "(", ")").replace('a', "\"a\"")),
            format!("%llguidance {{}}\nstart: /{}/", nested(n, "(", ")")),
            format!("%llguidance {{}}\nstart: %json {}", nested(n, "[", "]").replace('a', "{}")),
        ];
        let bodies = grammars.map(|grammar| json!({ "prompt": "x", "max_tokens": 3, "grammar": grammar }));
        let pattern = json!({ "type": "string", "pattern": nested(n, "(", ")") });
        let pattern = json!({ "prompt": "x", "max_tokens": 3, "json_schema": pattern });
        for body in bodies.iter().chain([&pattern]) {
            let start = Instant::now();
            let reply = server.post("/v1/completions", body);
            is_sound("/v1/completions", &json!(format!("{body:.200}")), start.elapsed(), &reply);
        }
    }
    server.post("/v1/completions", &json!({ "prompt": "x", "max_tokens": 1 })).fine();
}

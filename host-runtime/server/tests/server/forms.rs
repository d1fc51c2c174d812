//! Answers of a form.

use std::time::{Duration, Instant};

use crate::support::{Drafter, Setup, TestServer, Value, joined, json};

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 12 },
            "count": { "type": "integer", "minimum": 10, "maximum": 99 },
            "kind": { "$ref": "#/$defs/kind" },
            "sizes": { "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": 999 }, "minItems": 2, "maxItems": 3 },
        },
        "required": ["name", "count", "kind", "sizes"],
        "additionalProperties": false,
        // The model is fond of blanks.
        "x-guidance": { "whitespace_flexible": false },
        "$defs": { "kind": { "enum": ["list", "dict"] } },
    })
}

/// A request for an answer of that form.
fn asking(seed: u64) -> Value {
    json!({
        "prompt": "def describe(self):\n    return ", "max_tokens": 300, "temperature": 1.2, "seed": seed,
        "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema() } },
    })
}

#[track_caller]
fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

#[track_caller]
fn fits(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(value.as_object().unwrap().len(), 4, "{text}");
    assert!(value["name"].as_str().unwrap().chars().count() <= 12, "{text}");
    assert!((10..=99).contains(&value["count"].as_i64().unwrap()), "{text}");
    assert!(value["kind"] == "list" || value["kind"] == "dict", "{text}");
    let sizes = value["sizes"].as_array().unwrap();
    assert!((2..=3).contains(&sizes.len()) && sizes.iter().all(Value::is_u64), "{text}");
}

#[test]
fn answers_fit_their_schema_however_they_are_made() {
    let server = TestServer::shared();
    let ngrams = TestServer::start(Setup { parallel: 4, drafter: Drafter::NGrams, ..Setup::default() });
    for seed in 0..4 {
        let mut body = asking(seed);
        let answer = server.post("/v1/completions", &body).fine();
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        fits(text(&answer));
        body["stream"] = true.into();
        assert_eq!(joined(&server.events("/v1/completions", &body)), text(&answer));
        assert_eq!(joined(&ngrams.events("/v1/completions", &body)), text(&answer), "with drafts");
    }
    // Several answers to one request have a place of their own in the grammar.
    let mut several = asking(0);
    several["n"] = 3.into();
    let all = server.post("/v1/completions", &several).fine();
    assert_eq!(
        all["choices"][0]["text"],
        server.post("/v1/completions", &asking(0)).fine()["choices"][0]["text"]
    );
    all["choices"].as_array().unwrap().iter().for_each(|choice| fits(choice["text"].as_str().unwrap()));
}

#[test]
fn all_fields_for_forms_are_understood() {
    let server = TestServer::shared();
    let ask = |field: &str, value: Value| {
        let mut body = asking(1);
        body.as_object_mut().unwrap().remove("response_format");
        body[field] = value;
        server.post("/v1/completions", &body).fine()
    };
    let expected = server.post("/v1/completions", &asking(1)).fine();
    assert_eq!(text(&ask("json_schema", schema())), text(&expected));
    let beside = json!({ "type": "json_object", "schema": schema() });
    assert_eq!(text(&ask("response_format", beside)), text(&expected));
    assert!(text(&ask("response_format", json!({ "type": "json_object" }))).trim_start().starts_with('{'));
    let yes_or_no = ask("grammar", json!("%llguidance {}\nstart: \"yes\" | \"no\""));
    assert!(matches!(text(&yes_or_no), "yes" | "no"), "{yes_or_no}");
    // GBNF, with a rule that names itself. How deep the model goes, and whether it comes back, is up to it.
    let gbnf = "root ::= \"(\" (root | [0-9]{1,3} ws) \")\" ws\nws ::= \" \"?  # a blank";
    let answer = ask("grammar", json!(gbnf));
    let nested = text(&answer).trim_end();
    let (open, rest) = nested.split_at(nested.rfind('(').expect("it begins with one") + 1);
    assert!(open.chars().all(|c| c == '('), "{nested}");
    let number = rest.trim_end_matches([' ', ')']);
    let closed = rest.matches(')').count();
    if answer["choices"][0]["finish_reason"] == "stop" {
        assert!(number.parse::<u32>().is_ok_and(|n| n < 1000) && closed == open.len(), "{nested}");
    } else {
        assert!(number.len() <= 3 && number.bytes().all(|c| c.is_ascii_digit()), "{nested}");
        assert!(closed <= open.len(), "{nested}");
    }
    // A token by its name, which is no text.
    assert_eq!(text(&ask("grammar", json!("root ::= <|im_start|> \"yes\""))), "yes");
}

#[test]
fn forms_that_make_no_sense_are_refused() {
    let server = TestServer::shared();
    let refused = |field: &str, value: Value, kind: &str| {
        let reply = server.post("/v1/completions", &json!({ "prompt": "x", field: value }));
        assert_eq!(reply.error(), (400, kind.to_owned()), "{reply:?}");
        assert_eq!(reply.json()["error"]["param"], field);
    };
    let invalid = "invalid_request_error";
    refused("json_schema", json!({ "type": "nonsense" }), invalid);
    refused("json_schema", json!(7), invalid);
    refused("json_schema", json!({ "$ref": "#/$defs/nowhere" }), invalid);
    refused("json_schema", json!({ "type": "integer", "minimum": 5, "maximum": 4 }), invalid);
    refused("response_format", json!({ "type": "json_schema" }), invalid);
    refused("response_format", json!({ "type": "xml" }), "unsupported");
    refused("response_format", json!("json"), invalid);
    refused("grammar", json!("%llguidance {}\nstart: nowhere"), invalid);
    refused("grammar", json!("root ::= \"a"), invalid);
    refused("grammar", json!("root ::= nowhere"), invalid);
    refused("grammar", json!(format!("root ::= {}", "(".repeat(1 << 20))), invalid);
    let both = json!({ "prompt": "x", "json_schema": {}, "grammar": "%llguidance {}\nstart: \"a\"" });
    assert_eq!(server.post("/v1/completions", &both).error().0, 400);
}

/// Forms that would take forever, or all memory, take neither.
#[test]
fn forms_that_explode_end_soon() {
    let server = TestServer::shared();
    for pattern in ["(a{1,1000}){1,1000}", "((a|b|c|d){0,500}(e|f|g){0,500}){0,500}", "(.*a){500}"] {
        let start = Instant::now();
        let body = json!({ "prompt": "x", "max_tokens": 4, "json_schema": { "type": "string", "pattern": pattern } });
        let reply = server.post("/v1/completions", &body);
        assert!(matches!(reply.status, 200 | 400), "{reply:?}");
        assert!(start.elapsed() < Duration::from_secs(50), "{pattern}: {:?}", start.elapsed());
    }
    server.post("/v1/completions", &json!({ "prompt": "x", "max_tokens": 1 })).fine();
}

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

/// Schemas with words that the compiler does not know.
#[test]
fn what_a_form_is_not_kept_to_is_told() {
    let server = TestServer::shared();
    let ask = |schema: Value, strict: bool| {
        server.post(
            "/v1/completions",
            &json!({ "prompt": "x = ", "max_tokens": 60, "seed": 3, "response_format": {
            "type": "json_schema", "json_schema": { "name": "x", "schema": schema, "strict": strict } } }),
        )
    };
    let short = json!({ "type": "string", "maxLength": 4 });
    let with = |name: &str, value: Value| {
        let mut schema = short.clone();
        schema[name] = value;
        schema
    };
    // Annotations, what is there anyway, and what can be said in another way.
    for (schema, fits) in [
        (with("format", json!("phone-number")), None),
        (json!({ "type": "string", "pattern": "^\\bab\\b$" }), Some(vec![json!("ab")])),
        (
            json!({ "type": "array", "items": { "enum": [1, 2] }, "uniqueItems": true, "minItems": 2 }),
            Some(vec![json!([1, 2]), json!([2, 1])]),
        ),
        (json!({ "enum": ["a", "b"], "not": { "const": "a" } }), Some(vec![json!("b")])),
        (json!({ "$ref": "#/$defs/a~1b", "$defs": { "a/b": { "const": 7 } } }), Some(vec![json!(7)])),
    ] {
        let reply = ask(schema.clone(), true);
        let answer = reply.fine();
        assert_eq!(reply.header("warning"), None, "{reply:?}");
        let value: Value = serde_json::from_str(text(&answer)).unwrap();
        assert!(fits.is_none_or(|all| all.contains(&value)), "{schema}: {value}");
    }
    for name in ["not", "if", "contains", "unevaluatedProperties"] {
        let schema = with(name, json!({ "const": "abc" }));
        let reply = ask(schema.clone(), false);
        reply.fine();
        assert!(reply.header("warning").is_some_and(|text| text.contains(name)), "{reply:?}");
        assert_eq!(ask(schema, true).error(), (400, "unsupported".to_owned()));
    }
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

/// vLLM's names of the same forms.
#[test]
fn structured_outputs_are_forms() {
    let server = TestServer::shared();
    let ask = |field: &str, value: Value| {
        let mut body = asking(1);
        body.as_object_mut().unwrap().remove("response_format");
        body[field] = value;
        server.post("/v1/completions", &body)
    };
    let expected = server.post("/v1/completions", &asking(1)).fine();
    for (field, value) in [
        ("structured_outputs", json!({ "json": schema() })),
        ("structured_outputs", json!({ "json": schema().to_string(), "regex": null })),
        ("guided_json", schema()),
    ] {
        assert_eq!(text(&ask(field, value).fine()), text(&expected), "{field}");
    }
    for (field, key) in [("structured_outputs", "regex"), ("guided_regex", "")] {
        let pattern = json!("^[0-9]{3}-[a-c]$");
        let value = if key.is_empty() { pattern } else { json!({ key: pattern }) };
        let answer = ask(field, value).fine();
        let (digits, letter) = text(&answer).split_once('-').unwrap();
        assert!(digits.len() == 3 && digits.bytes().all(|c| c.is_ascii_digit()), "{answer}");
        assert!(["a", "b", "c"].contains(&letter), "{answer}");
    }
    let choice = ["yes \"x\"", "no\n"];
    let answer = ask("structured_outputs", json!({ "choice": choice })).fine();
    assert!(choice.contains(&text(&answer)), "{answer}");
    let many: Vec<String> = (0..4096).map(|n| format!("no. {n}")).collect();
    let answer = ask("structured_outputs", json!({ "choice": many })).fine();
    assert!(many.iter().any(|one| one == text(&answer)), "{answer}");
    let answer = ask("guided_choice", json!(["up", "down"])).fine();
    assert!(["up", "down"].contains(&text(&answer)), "{answer}");
    let grammar = json!({ "grammar": "root ::= \"a\" | \"b\"" });
    let answer = ask("structured_outputs", grammar).fine();
    assert!(["a", "b"].contains(&text(&answer)), "{answer}");
    let object = ask("structured_outputs", json!({ "json_object": true })).fine();
    assert!(text(&object).trim_start().starts_with('{'), "{object}");
    // What asks for nothing, for two forms, or for what cannot be.
    assert_eq!(ask("structured_outputs", json!({ "choice": [] })).status, 200);
    for value in [
        json!({ "regex": "a", "choice": ["a"] }),
        json!({ "json": "{" }),
        json!({ "regex": "(" }),
        json!({ "choice": "a" }),
        json!({ "choice": vec!["a"; 5000] }),
        json!({ "structural_tag": { "a": 1 } }),
    ] {
        assert_eq!(ask("structured_outputs", value.clone()).status, 400, "{value}");
    }
}

/// Pydantic's schemas, and those of most others, do not say whether objects have further properties.
#[test]
fn objects_have_no_properties_but_those_that_are_listed() {
    let server = TestServer::shared();
    let ask = |schema: Value, seed: u64| {
        let answer = server
            .post(
                "/v1/completions",
                &json!({
                    "prompt": "x = ", "max_tokens": 300, "seed": seed, "temperature": 1.2,
                    "json_schema": schema,
                }),
            )
            .fine();
        serde_json::from_str::<Value>(text(&answer)).unwrap_or_else(|error| panic!("{error}: {answer}"))
    };
    let n = json!({ "type": "integer", "minimum": 0, "maximum": 9 });
    let inner = json!({ "type": "object", "properties": { "n": n }, "required": ["n"] });
    for seed in 0..4 {
        let plain = json!({ "type": "object", "properties": { "a": n, "b": { "$ref": "#/$defs/b" } },
            "required": ["a", "b"], "$defs": { "b": inner }, "x-guidance": { "whitespace_flexible": false } });
        let value = ask(plain, seed);
        assert_eq!(value.as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "b"], "{value}");
        assert_eq!(value["b"].as_object().unwrap().keys().collect::<Vec<_>>(), ["n"], "{value}");
        let joined = json!({
            "allOf": [{ "$ref": "#/$defs/b" }, { "properties": { "m": n }, "required": ["m"] }],
            "$defs": { "b": inner }, "x-guidance": { "whitespace_flexible": false },
        });
        let value = ask(joined, seed);
        let mut keys: Vec<_> = value.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, ["m", "n"], "{value}");
    }
}

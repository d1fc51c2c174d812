//! Calls of tools. The model knows none, so that a grammar makes it call them, or a template says what it
//! would.

use crate::support::{Setup, TestServer, Value, json};

/// A template with tools and earlier calls, as those of Qwen3 have them.
pub const TEMPLATE: &str = "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}\
Answer with <tool_call></tool_call>.<|im_end|>\n{% endif %}{%- for m in messages -%}<|im_start|>{{ m.role }}\n\
{{ m.content }}{% for call in m.tool_calls %}<tool_call>{{ call.function.name }} {% for k, v in \
call.function.arguments | items %}{{ k }}={{ v }};{% endfor %}</tool_call>{% endfor %}<|im_end|>\n{%- endfor -%}\
{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}";

fn server() -> TestServer {
    TestServer::start(Setup { template: TEMPLATE, ..Setup::default() })
}

fn tools() -> Value {
    let function = |name: &str, properties: Value| {
        json!({ "type": "function", "function": { "name": name, "description": "a tool", "parameters": {
            "type": "object", "properties": properties, "required": ["n"], "additionalProperties": false } } })
    };
    json!([
        function("count", json!({ "n": { "type": "integer", "minimum": 0, "maximum": 99 } })),
        function("name", json!({ "n": { "enum": ["one", "two"] } })),
    ])
}

fn asking(choice: Value) -> Value {
    json!({
        "messages": [{ "role": "user", "content": "How many?" }], "max_tokens": 200, "temperature": 0.8, "seed": 4,
        "tools": tools(), "tool_choice": choice,
    })
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_call_that_is_required_is_made() {
    let server = server();
    let by_name = |name: &str| json!({ "type": "function", "function": { "name": name } });
    for (choice, names) in [
        (json!("required"), &["count", "name"][..]),
        (by_name("count"), &["count"]),
        (by_name("name"), &["name"]),
    ] {
        let mut body = asking(choice);
        let answer = server.post(CHAT, &body).fine();
        let choice = &answer["choices"][0];
        assert_eq!(
            (&choice["finish_reason"], &choice["message"]["content"]),
            (&json!("tool_calls"), &Value::Null),
            "{answer}"
        );
        let [call] = &choice["message"]["tool_calls"].as_array().unwrap()[..] else { panic!("{answer}") };
        let function = &call["function"];
        assert!(names.contains(&function["name"].as_str().unwrap()), "{answer}");
        let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        let n = &arguments["n"];
        assert!(
            if function["name"] == "count" { n.as_u64() <= Some(99) } else { n == "one" || n == "two" },
            "{n}"
        );

        body["stream"] = true.into();
        let events = server.events(CHAT, &body);
        let events: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        let calls: Vec<&Value> = events
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array())
            .flatten()
            .collect();
        let [streamed] = calls[..] else { panic!("{events:?}") };
        assert_eq!((&streamed["index"], &streamed["function"]), (&json!(0), function));
        assert!(
            events.iter().all(|event| !event["choices"][0]["delta"]["content"]
                .as_str()
                .unwrap_or("")
                .contains("tool"))
        );
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    }
}

#[test]
fn tools_and_earlier_calls_reach_the_template() {
    let server = server();
    let body = json!({ "tools": tools(), "messages": [
        { "role": "user", "content": "How many?" },
        { "role": "assistant", "content": null, "tool_calls": [
            { "id": "x", "type": "function", "function": { "name": "count", "arguments": "{\"n\": 3}" } }] },
        { "role": "tool", "tool_call_id": "x", "content": "three" },
    ] });
    let prompt = server.post("/apply-template", &body).fine()["prompt"].as_str().unwrap().to_owned();
    assert!(
        prompt.contains("\"minimum\": 0") && prompt.contains("<tool_call>count n=3;</tool_call>"),
        "{prompt}"
    );
    assert!(prompt.contains("<|im_start|>tool\nthree<|im_end|>"), "{prompt}");
    // Without tools after all, the model does not see them, and nothing is read as a call.
    let mut none = asking(json!("none"));
    let without = server.post("/apply-template", &none).fine()["prompt"].clone();
    assert!(!without.as_str().unwrap().contains("tool"), "{without}");
    none["max_tokens"] = 3.into();
    assert_eq!(server.post(CHAT, &none).fine()["choices"][0]["finish_reason"], "length");
}

#[test]
fn tools_that_make_no_sense_are_refused() {
    let server = server();
    let refused = |server: &TestServer, field: &str, value: Value, kind: &str| {
        let mut body = asking(json!("auto"));
        body[field] = value;
        let reply = server.post(CHAT, &body);
        assert_eq!(reply.error(), (400, kind.to_owned()), "{reply:?}");
    };
    let invalid = "invalid_request_error";
    refused(&server, "tools", json!([{ "type": "function" }]), invalid);
    refused(&server, "tools", json!("count"), invalid);
    refused(&server, "tools", json!(vec![tools()[0].clone(); 200]), invalid);
    refused(&server, "tool_choice", json!("maybe"), invalid);
    refused(&server, "tool_choice", json!({ "type": "function", "function": { "name": "other" } }), invalid);
    let mut without = asking(json!("required"));
    without["tools"] = json!([]);
    assert_eq!(server.post(CHAT, &without).error(), (400, invalid.to_owned()));
    let mut both = asking(json!("required"));
    both["grammar"] = json!("root ::= \"a\"");
    assert_eq!(server.post(CHAT, &both).error(), (400, invalid.to_owned()));
    // A schema that must be kept to, and cannot be.
    let mut strict = asking(json!("required"));
    strict["tools"][0]["function"]["strict"] = true.into();
    strict["tools"][0]["function"]["parameters"]["contains"] = json!({});
    let reply = server.post(CHAT, &strict);
    assert_eq!(reply.error(), (400, "unsupported".to_owned()), "{reply:?}");
    strict["tools"][0]["function"]["strict"] = false.into();
    let reply = server.post(CHAT, &strict);
    assert!(reply.header("warning").is_some_and(|text| text.contains("contains")), "{reply:?}");
}

/// OpenAI's form is that of an answer in words; a call has its own.
#[test]
fn a_form_for_texts_stands_beside_calls() {
    let server = server();
    let form = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": {
        "type": "object", "properties": { "yes": { "type": "boolean" } }, "required": ["yes"] } } });
    let mut body = asking(json!("required"));
    body["response_format"] = form.clone();
    let message = server.post(CHAT, &body).fine()["choices"][0]["message"].clone();
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1, "{message}");
    // Where the model may choose, its answer is one of both.
    let (mut calls, mut texts) = (0, 0);
    for seed in 0..12 {
        let mut body = asking(json!("auto"));
        body["response_format"] = form.clone();
        body["seed"] = seed.into();
        let choice = server.post(CHAT, &body).fine()["choices"][0].clone();
        let message = &choice["message"];
        if message["tool_calls"].is_array() {
            calls += 1;
            assert_eq!(choice["finish_reason"], "tool_calls");
        } else if choice["finish_reason"] == "stop" {
            texts += 1;
            let value: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
            assert!(value["yes"].is_boolean() && value.as_object().unwrap().len() == 1, "{value}");
        }
    }
    assert!(calls + texts > 6, "{calls} calls and {texts} texts");
}

#[test]
fn tools_of_servers_are_left_out() {
    let server = server();
    let others = [
        json!({ "type": "web_search" }),
        json!({ "type": "namespace", "name": "agents", "tools": [{ "type": "function", "name": "spawn" }] }),
        json!({ "type": "custom", "custom": { "name": "patch" } }),
        json!({ "type": "web_search" }),
    ];
    let mut body = asking(json!("required"));
    body["tools"].as_array_mut().unwrap().extend(others.clone());
    let reply = server.post(CHAT, &body);
    assert_eq!(reply.fine()["choices"][0]["finish_reason"], "tool_calls");
    let warning = reply.header("warning").unwrap();
    assert!(warning.contains("left out: custom, namespace, web_search"), "{warning}");
    // The template sees none of them, whether others are left or not.
    let prompt = |tools: Value| {
        let mut body = asking(json!("auto"));
        body["tools"] = tools;
        server.post("/apply-template", &body).fine()["prompt"].as_str().unwrap().to_owned()
    };
    assert!(!prompt(body["tools"].clone()).contains("web_search"));
    assert_eq!(prompt(json!(others)), prompt(json!([])));
    let mut none = asking(json!("required"));
    none["tools"] = json!(others);
    assert_eq!(server.post(CHAT, &none).error().0, 400);
    // In the other interfaces, too.
    for (path, tool) in [
        ("/v1/responses", json!({ "type": "local_shell" })),
        ("/v1/messages", json!({ "type": "web_search_20250305", "name": "web_search" })),
    ] {
        let body = json!({ "input": "x", "messages": [{ "role": "user", "content": "x" }],
            "max_tokens": 3, "tools": [tool] });
        let body = match path {
            "/v1/responses" => json!({ "input": "x", "max_output_tokens": 3, "tools": body["tools"] }),
            _ => json!({ "messages": body["messages"], "max_tokens": 3, "tools": body["tools"] }),
        };
        let reply = server.post(path, &body);
        reply.fine();
        assert!(reply.header("warning").is_some_and(|text| text.contains("left out")), "{reply:?}");
    }
}

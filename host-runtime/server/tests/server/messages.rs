//! `/v1/messages`: Anthropic's interface. The texts are those of `/v1/chat/completions`.

use crate::support::{Options, Setup, TestServer, Value, json};
use crate::tools::TEMPLATE;

const PATH: &str = "/v1/messages";

/// A chat's answer to the same conversation.
fn chat(server: &TestServer, messages: &Value, max: usize) -> (String, Value) {
    let body = json!({ "messages": messages, "max_tokens": max, "temperature": 0 });
    let answer = server.post("/v1/chat/completions", &body).fine();
    (answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned(), answer["usage"].clone())
}

/// The events of a stream, each of which has its type as its name.
fn stream(server: &TestServer, body: &Value) -> Vec<Value> {
    let text = server.post(PATH, body).text;
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    let event = |block: &str| {
        let (name, data) = block.split_once("\ndata: ").unwrap();
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), event["type"].as_str(), "{block}");
        event
    };
    blocks.map(event).collect()
}

#[test]
fn a_message_has_the_text_of_a_chat() {
    let server = TestServer::shared();
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "Tell me of the sea." },
    ]);
    let (text, usage) = chat(server, &messages, 12);
    let body = json!({
        "max_tokens": 12, "temperature": 0, "system": "Be brief.",
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Tell me of the sea." }] }],
    });
    let answer = server.post(PATH, &body).fine();
    assert_eq!(answer["content"], json!([{ "type": "text", "text": text }]));
    assert_eq!((&answer["type"], &answer["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("max_tokens"), &Value::Null));
    let found = &answer["usage"];
    let input = found["input_tokens"].as_u64().unwrap() + found["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(usage["prompt_tokens"], input);
    assert_eq!(found["output_tokens"], 12);

    let counted = server.post("/v1/messages/count_tokens", &body).fine();
    assert_eq!(counted, json!({ "input_tokens": input }));
}

#[test]
fn a_stream_is_the_message_in_pieces() {
    let server = TestServer::shared();
    let mut body = json!({
        "max_tokens": 12, "temperature": 0, "messages": [{ "role": "user", "content": "Tell me of the sea." }],
    });
    let whole = server.post(PATH, &body).fine();
    body["stream"] = true.into();
    let events = stream(server, &body);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["message_start", "ping", "content_block_start"]);
    assert_eq!(kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(events[0]["message"]["content"], json!([]));
    assert!(events[0]["message"]["usage"]["input_tokens"].as_u64() > Some(0));
    let deltas = &events[3..events.len() - 3];
    let text: String = deltas.iter().map(|event| event["delta"]["text"].as_str().unwrap()).collect();
    assert!(deltas.len() > 1);
    assert_eq!(whole["content"][0]["text"], text);
    assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "max_tokens");
    assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], 12);
}

#[test]
fn a_stop_sequence_is_named() {
    let server = TestServer::shared();
    let messages = json!([{ "role": "user", "content": "Tell me of the sea." }]);
    let (text, _) = chat(server, &messages, 12);
    let word = text.split_whitespace().nth(2).unwrap();
    let body = json!({
        "max_tokens": 12, "temperature": 0, "messages": messages, "stop_sequences": ["never", word],
    });
    let answer = server.post(PATH, &body).fine();
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("stop_sequence"), &json!(word)));
    assert_eq!(answer["content"][0]["text"], text[..text.find(word).unwrap()]);
}

#[test]
fn tools_are_used_and_their_results_are_read() {
    let server = TestServer::start(Setup { template: TEMPLATE, ..Setup::default() });
    // Each number that this allows has two digits at most, so that no answer is cut amid one.
    let n = json!({ "type": "integer", "minimum": 0, "maximum": 99 });
    let schema = json!({ "type": "object", "properties": { "n": n }, "required": ["n"],
        "additionalProperties": false });
    let mut body = json!({
        "max_tokens": 200, "seed": 4, "messages": [{ "role": "user", "content": "How many?" }],
        "tools": [{ "name": "count", "description": "a tool", "input_schema": schema }],
        "tool_choice": { "type": "tool", "name": "count" },
    });
    let answer = server.post(PATH, &body).fine();
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let [block] = &answer["content"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("count")));
    assert!(block["input"]["n"].as_i64() <= Some(99) && block["id"].as_str().unwrap().starts_with("toolu_"));

    body["stream"] = true.into();
    let events = stream(&server, &body);
    let start = &events[2]["content_block"];
    assert_eq!((&start["type"], &start["name"]), (&json!("tool_use"), &json!("count")));
    let json: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), block["input"]);

    // The next turn, with the result: the prompt is that of the same turns in a chat.
    let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "three" });
    let call = json!({ "type": "tool_use", "id": "t", "name": "count", "input": { "n": 3 } });
    let turns = json!([
        { "role": "user", "content": "How many?" },
        { "role": "assistant", "content": [call] },
        { "role": "user", "content": [result] },
    ]);
    let next = server.post("/v1/messages/count_tokens", &json!({ "messages": turns })).fine();
    let function = json!({ "name": "count", "arguments": "{\"n\": 3}" });
    let chat = json!({ "messages": [
        { "role": "user", "content": "How many?" },
        { "role": "assistant", "content": "",
          "tool_calls": [{ "id": "t", "type": "function", "function": function }] },
        { "role": "tool", "tool_call_id": "t", "content": "three" },
    ] });
    let prompt = server.post("/apply-template", &chat).fine()["prompt"].clone();
    let body = json!({ "content": prompt });
    let tokens = server.post("/tokenize", &body).fine()["tokens"].as_array().unwrap().len();
    assert_eq!(next["input_tokens"], tokens);
}

#[test]
fn thoughts_are_blocks_of_their_own() {
    let template = "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
        {%- endfor -%}\
        {%- if add_generation_prompt -%}<|im_start|>assistant\n{% if enable_thinking is false %}<think>\n\n\
        </think>\n\n{% else %}<think>\n{% endif %}{% endif -%}";
    let server = TestServer::start(Setup { template, ..Setup::default() });
    let mut body = json!({ "max_tokens": 12, "temperature": 0,
        "messages": [{ "role": "user", "content": "Think." }] });
    let answer = server.post(PATH, &body).fine();
    assert_eq!(answer["content"][0]["type"], "thinking", "{answer}");
    assert!(!answer["content"][0]["thinking"].as_str().unwrap().is_empty());
    body["thinking"] = json!({ "type": "disabled" });
    let answer = server.post(PATH, &body).fine();
    assert_eq!(answer["content"][0]["type"], "text", "{answer}");
}

#[test]
fn errors_have_anthropics_shape() {
    #[track_caller]
    fn refused(server: &TestServer, body: &str, word: &str) {
        let reply = server.request("POST", PATH, &[], body);
        let error = reply.json();
        assert_eq!((reply.status, &error["type"]), (400, &json!("error")), "{reply:?}");
        assert_eq!(error["error"]["type"], "invalid_request_error", "{reply:?}");
        assert!(error["error"]["message"].as_str().unwrap().contains(word), "{reply:?}");
    }
    let server = TestServer::shared();
    let message = r#""messages": [{"role": "user", "content": "x"}]"#;
    refused(server, "{", "JSON");
    refused(server, r#"{"max_tokens": 5}"#, "messages");
    refused(server, &format!("{{{message}}}"), "max_tokens");
    refused(server, &format!(r#"{{{message}, "max_tokens": 0}}"#), "max_tokens");
    refused(server, &format!(r#"{{{message}, "max_tokens": 5, "n": 2}}"#), "n is not supported");
    refused(
        server,
        r#"{"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]}"#,
        "image",
    );
    let reply = server.get(PATH);
    assert_eq!((reply.status, &reply.json()["type"]), (405, &json!("error")));

    let options = Options { port: 0, api_keys: vec!["secret".to_owned()], ..Options::default() };
    let server = TestServer::start(Setup { options, ..Setup::default() });
    let body = format!(r#"{{{message}, "max_tokens": 2}}"#);
    let reply = server.request("POST", PATH, &[], &body);
    assert_eq!((reply.status, &reply.json()["error"]["type"]), (401, &json!("authentication_error")));
    server.request("POST", PATH, &[("x-api-key", "secret")], &body).fine();
}

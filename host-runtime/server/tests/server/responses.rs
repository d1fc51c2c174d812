//! `/v1/responses`: OpenAI's newer interface. The texts are those of `/v1/chat/completions`.

use crate::support::{Setup, TestServer, Value, json};
use crate::tools::TEMPLATE;

const PATH: &str = "/v1/responses";

/// The events of a stream, numbered, each of which has its type as its name.
fn stream(server: &TestServer, body: &Value) -> Vec<Value> {
    let text = server.post(PATH, body).text;
    let blocks = text.split("\n\n").filter(|block| !block.is_empty()).enumerate();
    let event = |(i, block): (usize, &str)| {
        let (name, data) = block.split_once("\ndata: ").unwrap();
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), event["type"].as_str(), "{block}");
        assert_eq!(event["sequence_number"], i, "{block}");
        event
    };
    blocks.map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

#[test]
fn a_response_has_the_text_of_a_chat() {
    let server = TestServer::shared();
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "Tell me of the sea." },
    ]);
    let chat = json!({ "messages": messages, "max_tokens": 12, "temperature": 0 });
    let chat = server.post("/v1/chat/completions", &chat).fine();
    let body = json!({ "instructions": "Be brief.", "input": "Tell me of the sea.", "max_output_tokens": 12,
        "temperature": 0, "metadata": { "a": "b" } });
    let answer = server.post(PATH, &body).fine();
    let [message] = &answer["output"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(message["content"][0]["text"], chat["choices"][0]["message"]["content"]);
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!((&answer["status"], &message["status"]), (&json!("incomplete"), &json!("incomplete")));
    assert_eq!(answer["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(answer["usage"]["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(answer["usage"]["output_tokens"], 12);
    assert_eq!((&answer["metadata"], &answer["store"]), (&json!({ "a": "b" }), &json!(false)));
    // The same as items.
    let body = json!({ "input": messages, "max_output_tokens": 12, "temperature": 0 });
    let items = server.post(PATH, &body).fine();
    assert_eq!(items["output"][0]["content"], message["content"]);
}

#[test]
fn a_stream_is_the_response_in_pieces() {
    let server = TestServer::shared();
    let body = json!({ "input": "Tell me of the sea.", "max_output_tokens": 12, "temperature": 0,
        "stream": true, "include": ["message.output_text.logprobs"], "top_logprobs": 2 });
    let events = stream(server, &body);
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    let deltas: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "response.output_text.delta").collect();
    let text: String = deltas.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    let response = &events.last().unwrap()["response"];
    let message = &response["output"][0];
    assert_eq!(message["content"][0]["text"], text);
    let told: Vec<&Value> = deltas.iter().flat_map(|event| event["logprobs"].as_array().unwrap()).collect();
    assert_eq!(told.len(), 12);
    assert!(told.iter().all(|token| token["top_logprobs"].as_array().unwrap().len() == 2));
    assert_eq!(message["content"][0]["logprobs"].as_array().unwrap().iter().collect::<Vec<_>>(), told);
    for event in &events[3..events.len() - 2] {
        assert_eq!((&event["item_id"], &event["output_index"]), (&message["id"], &json!(0)), "{event}");
    }
    assert_eq!(events[events.len() - 2]["item"]["id"], message["id"]);
}

#[test]
fn functions_are_called_and_forms_are_kept() {
    let server = TestServer::start(Setup { template: TEMPLATE, ..Setup::default() });
    // Each number that this allows has two digits at most, so that no answer is cut amid one.
    let n = json!({ "type": "integer", "minimum": 0, "maximum": 99 });
    let schema = json!({ "type": "object", "properties": { "n": n }, "required": ["n"],
        "additionalProperties": false });
    let mut body = json!({
        "input": "How many?", "max_output_tokens": 200, "seed": 4, "tool_choice": "required",
        "tools": [{ "type": "function", "name": "count", "parameters": schema }],
    });
    let answer = server.post(PATH, &body).fine();
    let [call] = &answer["output"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("count")));
    assert!(call["call_id"].as_str().unwrap().starts_with("call_"));
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["n"].as_i64() <= Some(99), "{answer}");

    body["stream"] = true.into();
    let events = stream(&server, &body);
    assert_eq!(
        kinds(&events)[2..],
        [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(events.last().unwrap()["response"]["output"][0]["arguments"], call["arguments"]);

    // The model is fond of blanks, which could be all that an answer has.
    let mut schema = schema;
    schema["x-guidance"] = json!({ "whitespace_flexible": false });
    let format = json!({ "type": "json_schema", "name": "x", "strict": true, "schema": schema });
    let body = json!({ "input": "How many?", "max_output_tokens": 200, "text": { "format": format } });
    let answer = server.post(PATH, &body).fine();
    let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["n"].as_i64() <= Some(99), "{text}");
}

#[test]
fn what_is_not_kept_is_refused() {
    let server = TestServer::shared();
    for (name, value) in [
        ("previous_response_id", json!("resp_1")),
        ("store", json!(true)),
        ("input", json!([{ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] }])),
    ] {
        let mut body = json!({ "input": "x" });
        body[name] = value;
        let reply = server.post(PATH, &body);
        assert_eq!(reply.error(), (400, "unsupported".to_owned()), "{reply:?}");
        assert_eq!(reply.json()["error"]["param"], name);
    }
    assert_eq!(server.post(PATH, &json!({})).error(), (400, "invalid_request_error".to_owned()));
}

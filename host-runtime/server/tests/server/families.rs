//! Calls in the forms of model families. The model knows none of them, so that grammars make it call, and
//! prompts show what its template is given.

use crate::support::{Setup, TestServer, Value, json};

const CHAT: &str = "/v1/chat/completions";

/// A template with the marks of a family, which tells all that it is given of messages.
fn template(marks: &str, open: &str) -> &'static str {
    let template = format!(
        "{{%- if tools %}}{{{{ tools | length }}}} tools {marks}\n{{% endif %}}{{%- for m in messages -%}}\
         <|im_start|>{{{{ m | tojson }}}}<|im_end|>\n{{%- endfor -%}}\
         {{%- if add_generation_prompt -%}}{open}{{%- endif -%}}"
    );
    template.leak()
}

fn server(marks: &str, open: &str) -> TestServer {
    TestServer::start(Setup { template: template(marks, open), ..Setup::default() })
}

fn asking(choice: Value) -> Value {
    let function = |name: &str, properties: Value| {
        json!({ "type": "function", "function": { "name": name, "parameters": {
            "type": "object", "properties": properties, "required": ["n"], "additionalProperties": false } } })
    };
    json!({
        "messages": [{ "role": "user", "content": "How many?" }], "max_tokens": 200, "temperature": 0.8, "seed": 4,
        "tool_choice": choice, "tools": [
            function("count", json!({ "n": { "type": "integer", "minimum": 0, "maximum": 99 } })),
            function("name", json!({ "n": { "enum": ["one", "two"] } })),
        ],
    })
}

#[test]
fn a_call_that_is_required_is_made_in_the_form_of_each_family() {
    for (marks, open) in [
        ("<|start_header_id|>ipython<|end_header_id|>", "assistant\n"),
        ("<|tool_list_start|>", "<|im_start|>assistant\n"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]", "[/INST]"),
        ("[TOOL_CALLS] [ARGS]", "[/INST]"),
        ("<|channel|> <|message|>", "<|start|>assistant"),
    ] {
        let server = server(marks, open);
        let by_name = json!({ "type": "function", "function": { "name": "count" } });
        for (choice, names) in [(json!("required"), &["count", "name"][..]), (by_name, &["count"])] {
            let mut body = asking(choice);
            let answer = server.post(CHAT, &body).fine();
            let choice = &answer["choices"][0];
            let [call] = &choice["message"]["tool_calls"].as_array().unwrap()[..] else { panic!("{answer}") };
            let function = &call["function"];
            assert!(names.contains(&function["name"].as_str().unwrap()), "{marks}: {answer}");
            let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
            let n = &arguments["n"];
            let fits =
                if function["name"] == "count" { n.as_u64() <= Some(99) } else { n == "one" || n == "two" };
            assert!(fits, "{marks}: {answer}");
            assert_eq!(
                (&choice["finish_reason"], &choice["message"]["content"]),
                (&json!("tool_calls"), &Value::Null),
                "{marks}: {answer}"
            );

            body["stream"] = true.into();
            let events = server.events(CHAT, &body);
            let deltas = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
            let deltas: Vec<Value> = deltas.map(|event| event["choices"][0]["delta"].clone()).collect();
            let calls: Vec<&Value> =
                deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
            let [streamed] = calls[..] else { panic!("{marks}: {events:?}") };
            assert_eq!(&streamed["function"], function, "{marks}");
            assert!(
                deltas.iter().all(|delta| delta["content"].as_str().unwrap_or("").is_empty()),
                "{events:?}"
            );
        }
        // A text that is no call stays one.
        let mut body = asking(json!("auto"));
        body["max_tokens"] = 12.into();
        let message = server.post(CHAT, &body).fine()["choices"][0]["message"].clone();
        assert!(message["content"] != "" && message.get("tool_calls").is_none(), "{marks}: {message}");
    }
}

#[test]
fn calls_that_are_no_json_cannot_be_enforced() {
    for marks in ["<|tool_call>call:", "<tool_call> <function="] {
        let server = server(marks, "assistant\n");
        assert_eq!(server.post(CHAT, &asking(json!("required"))).error(), (400, "unsupported".to_owned()));
        let mut body = asking(json!("auto"));
        body["max_tokens"] = 3.into();
        server.post(CHAT, &body).fine();
    }
}

/// The messages that a template was given for this conversation.
fn given(server: &TestServer) -> Vec<Value> {
    let body = json!({ "tools": asking(json!("auto"))["tools"], "messages": [
        { "role": "user", "content": "How many?" },
        { "role": "assistant", "content": "So:", "reasoning_content": "Hm.", "tool_calls": [
            { "id": "call_1", "type": "function", "function": { "name": "count", "arguments": "{\"n\": 3}" } }] },
        { "role": "tool", "tool_call_id": "call_1", "content": "three" },
    ] });
    let prompt = server.post("/apply-template", &body).fine()["prompt"].as_str().unwrap().to_owned();
    let messages = prompt.split("<|im_start|>").skip(1).filter_map(|part| part.split("<|im_end|>").next());
    messages.map(|message| serde_json::from_str(message).unwrap()).collect()
}

#[test]
fn earlier_turns_are_as_the_templates_of_the_family_want_them() {
    // Mistral's templates refuse ids that are not nine letters and digits.
    let messages = given(&server("[TOOL_CALLS]", "[/INST]"));
    let id = messages[1]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(messages[2]["tool_call_id"], id);
    // Harmony has another name for thoughts, and one text beside a call.
    let messages = given(&server("<|channel|> <|message|>", "<|start|>assistant"));
    assert_eq!((&messages[1]["thinking"], &messages[1]["content"]), (&json!("Hm."), &json!("")));
    assert_eq!(messages[1]["tool_calls"][0]["function"]["arguments"], json!({ "n": 3 }));
    // LFM2's templates show no calls.
    let messages = given(&server("<|tool_list_start|>", "assistant\n"));
    assert_eq!(messages[1]["content"], "<|tool_call_start|>[count(n=3)]<|tool_call_end|>So:");
    // All others get them as they are.
    let messages = given(&server("<tool_call>", "assistant\n"));
    assert_eq!(messages[1]["tool_calls"][0]["id"], "call_1");
}

#[test]
fn harmony_answers_forms_and_begun_texts_in_the_final_channel() {
    let server = server("<|channel|> <|message|>", "<|start|>assistant");
    let ask = |more: Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "Well?" }], "max_tokens": 20,
            "temperature": 0, "verbose": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post(CHAT, &body).fine()
    };
    let form = ask(json!({ "json_schema": { "enum": ["yes", "no"] } }));
    assert!(form["__verbose"]["prompt"].as_str().unwrap().ends_with("<|channel|>final<|message|>"), "{form}");
    let content = &form["choices"][0]["message"]["content"];
    assert!(content == "\"yes\"" || content == "\"no\"", "{form}");
    let begun = ask(json!({ "messages": [{ "role": "user", "content": "Well?" },
        { "role": "assistant", "content": "It is" }] }));
    assert!(
        begun["__verbose"]["prompt"].as_str().unwrap().ends_with("<|channel|>final<|message|>It is"),
        "{begun}"
    );
    assert!(begun["choices"][0]["message"].get("reasoning_content").is_none(), "{begun}");
}

//! Conversations as clients send them, for templates that take less.

use crate::support::{Setup, TestServer, Value, json};

/// A template that is strict: it takes a system message at the beginning alone, texts or parts, and thinks.
const STRICT: &str = "{%- for m in messages %}{% if m.role == 'system' and not loop.first %}\
{{ raise_exception('system comes first') }}{% elif m.role not in ['system', 'user', 'assistant', 'tool'] %}\
{{ raise_exception('who is this?') }}{% endif %}{{ '<|im_start|>' + m.role + '\n' }}\
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}\
{% endif %}{% if m.tool_calls is defined %}{% for c in m.tool_calls %}\
{% for k, v in c.function.arguments | items %}{{ k }}{% endfor %}\
<tool_call>{{ c.function.name }}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}\
{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}\
{% else %}{{ '<think>\n' }}{% endif %}{% endif %}{% if tools %}{% endif %}";

/// A template without system messages, which says nothing of it.
const FORGETFUL: &str = "{%- for m in messages %}\
{% if m.role != 'system' or loop.first %}<{{ m.role }}>{{ m.content }}\
{% endif %}{% endfor %}";

/// A template that refuses system messages.
const REFUSING: &str = "{%- for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}\
{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}";

fn server(template: &'static str) -> TestServer {
    TestServer::start(Setup { template, parallel: 1, ..Setup::default() })
}

#[track_caller]
fn prompt(server: &TestServer, body: &Value) -> String {
    server.post("/apply-template", body).fine()["prompt"].as_str().unwrap().to_owned()
}

fn said(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

#[test]
fn rules_of_developers_and_in_several_places_reach_the_model() {
    let strict = server(STRICT);
    let ask = |messages: Value| prompt(&strict, &json!({ "messages": messages, "enable_thinking": false }));
    assert!(
        ask(json!([said("developer", "Be terse."), said("user", "Hi")]))
            .starts_with("<|im_start|>system\nBe terse.<|im_end|>\n<|im_start|>user\nHi<|im_end|>")
    );
    let several =
        json!([said("system", "A."), said("developer", "B."), said("user", "Hi"), said("system", "C.")]);
    assert!(ask(several.clone()).starts_with(
        "<|im_start|>system\nA.\n\nB.\n\nC.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant"
    ));
    assert_eq!(prompt(&server(FORGETFUL), &json!({ "messages": several })), "<system>A.\n\nB.\n\nC.<user>Hi");
    assert_eq!(prompt(&server(REFUSING), &json!({ "messages": several })), "<user>A.\n\nB.\n\nC.\n\nHi");
    // Whoever takes them anywhere gets them there.
    let chatml = prompt(TestServer::shared(), &json!({ "messages": several }));
    assert!(chatml.contains("Hi<|im_end|><|im_start|>system\nC."), "{chatml}");

    let codex = json!({ "instructions": "Be X.", "max_output_tokens": 2, "enable_thinking": false,
        "input": [said("developer", "Env."), { "type": "reasoning", "summary": [], "content": null },
            said("user", "Hi")] });
    strict.post("/v1/responses", &codex).fine();
    let claude = json!({ "max_tokens": 2,
        "system": [{ "type": "text", "text": "A." }, { "type": "text", "text": "B." }],
        "messages": [said("user", "Hi"), said("system", "C."), said("user", "So?")] });
    strict.post("/v1/messages", &claude).fine();
}

#[test]
fn calls_without_arguments_are_calls_of_earlier_turns() {
    let strict = server(STRICT);
    for function in [
        json!({ "name": "now" }),
        json!({ "name": "now", "arguments": null }),
        json!({ "name": "now", "arguments": "" }),
        json!({ "name": "now", "arguments": "null" }),
        json!({ "name": "now", "arguments": [] }),
        json!({ "name": "now", "arguments": {} }),
    ] {
        let call = json!({ "id": "c1", "type": "function", "function": function });
        let messages = json!([said("user", "Go"),
            { "role": "assistant", "content": null, "tool_calls": [call], "refusal": null },
            { "role": "tool", "tool_call_id": "c1", "content": "12:00" }]);
        let prompt = prompt(&strict, &json!({ "messages": messages }));
        assert!(prompt.contains("<tool_call>now<|im_end|>"), "{prompt}");
    }
}

#[test]
fn parts_are_handed_over_where_the_template_goes_through_them() {
    let parts = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
    let body = json!({ "messages": [{ "role": "user", "content": parts }] });
    let strict = prompt(&server(STRICT), &body);
    assert!(strict.contains("user\n[a][b]<|im_end|>"), "{strict}");
    let chatml = prompt(TestServer::shared(), &body);
    assert!(chatml.contains("user\na\nb<|im_end|>"), "{chatml}");
    // A template that knows nothing but parts gets texts so, too.
    let only =
        server("{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}");
    assert_eq!(prompt(&only, &json!({ "messages": [said("user", "a")] })), "[a]");
}

#[test]
fn answers_that_have_begun_go_on_behind_the_thoughts() {
    let strict = server(STRICT);
    let ask = |last: Value, more: Value| {
        let mut body = json!({ "messages": [said("user", "Go"), last] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let prompt = prompt(&strict, &body);
        prompt.split_once("assistant\n").unwrap().1.to_owned()
    };
    let closed = "<think>\n\n</think>\n\nSure, ";
    assert_eq!(ask(said("assistant", "Sure, "), json!({})), closed);
    assert_eq!(ask(said("assistant", "Sure, "), json!({ "enable_thinking": true })), closed);
    let nulls = json!({ "role": "assistant", "content": "Sure, ", "tool_calls": null, "audio": null });
    assert_eq!(ask(nulls, json!({})), closed);
    let thought =
        |content: &str| json!({ "role": "assistant", "content": content, "reasoning_content": "Hm" });
    assert_eq!(ask(thought(""), json!({})), "<think>\nHm");
    assert_eq!(ask(thought("Yes"), json!({})), "<think>\nHm\n</think>\n\nYes");
    assert_eq!(ask(said("assistant", "<think>\nHm"), json!({})), "<think>\nHm");
    // What goes on within thoughts is one.
    let body = json!({ "messages": [said("user", "Go"), thought("")], "max_tokens": 6, "ignore_eos": true,
        "temperature": 0 });
    let message = strict.post("/v1/chat/completions", &body).fine()["choices"][0]["message"].clone();
    assert!(message["content"] == "" && message["reasoning_content"] != "", "{message}");
}

#[test]
fn no_effort_is_no_thinking() {
    let strict = server(STRICT);
    for more in [
        json!({ "reasoning_effort": "none" }),
        json!({ "thinking": { "type": "disabled" } }),
        json!({ "enable_thinking": false }),
    ] {
        let mut body = json!({ "messages": [said("user", "Go")] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert!(prompt(&strict, &body).ends_with("</think>\n\n"), "{more}");
    }
}

#[test]
fn templates_without_calls_get_tools_in_a_message() {
    let shared = TestServer::shared();
    let function = json!({ "name": "count", "description": "counts", "parameters": {
        "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } }, "required": ["n"],
        "additionalProperties": false, "$defs": { "n": { "type": "integer", "minimum": 0, "maximum": 9 } } } });
    let call =
        json!({ "id": "c1", "type": "function", "function": { "name": "count", "arguments": "{\"n\": 3}" } });
    let body = json!({
        "tools": [{ "type": "function", "function": function }], "tool_choice": "required", "max_tokens": 100,
        "messages": [said("system", "Be brief."), said("user", "How many?"),
            { "role": "assistant", "content": "So:", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c1", "content": "three" }, said("user", "Again.")],
    });
    let prompt = prompt(shared, &body);
    assert!(
        prompt.starts_with("<|im_start|>system\nBe brief.\n\n") && prompt.contains("\"counts\""),
        "{prompt}"
    );
    for part in [
        "assistant\nSo:\n<tool_call>\n{\"name\":\"count\",\"arguments\":{\"n\":3}}\n</tool_call><|im_end|>",
        "user\n<tool_response>\nthree\n</tool_response>\nAgain.<|im_end|>",
    ] {
        assert!(prompt.contains(part), "{prompt}");
    }
    let answer = shared.post("/v1/chat/completions", &body).fine();
    let called = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    let arguments: Value = serde_json::from_str(called["arguments"].as_str().unwrap()).unwrap();
    assert!(called["name"] == "count" && arguments["n"].as_u64().is_some_and(|n| n < 10), "{answer}");
}

#[test]
fn a_budget_of_no_tokens_reads_the_prompt() {
    let server = server(STRICT);
    let mut body = json!({ "messages": [said("user", "How many are there, and why?")], "max_tokens": 0 });
    let answer = server.post("/v1/chat/completions", &body).fine();
    let (choice, usage) = (&answer["choices"][0], &answer["usage"]);
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!(""), &json!("length")),
        "{answer}"
    );
    assert!(usage["completion_tokens"] == 0 && usage["prompt_tokens"].as_u64() > Some(5), "{usage}");
    // The next one need not, and numbers of JavaScript are numbers.
    body["max_tokens"] = json!(2.0);
    body["seed"] = json!(5.0);
    let usage = &server.post("/v1/chat/completions", &body).fine()["usage"];
    assert!(usage["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(5), "{usage}");
}

/// Probabilities are of all tokens, also of those without text, in pieces and in one.
#[test]
fn all_tokens_have_probabilities() {
    let server = TestServer::shared();
    let ends_at_once = json!({ "grammar": "%llguidance {}\nstart: \"\"" });
    let has_text = json!({ "grammar": "%llguidance {}\nstart: \"é yes\"" });
    for form in [ends_at_once, has_text] {
        let ask = |path: &str, more: &Value, stream: bool| {
            let mut body = json!({ "messages": [said("user", "x")], "prompt": "x", "input": "x",
                "max_tokens": 20, "temperature": 0 });
            let wanted = match path {
                "/v1/chat/completions" => "messages",
                "/v1/responses" => "input",
                _ => "prompt",
            };
            body.as_object_mut().unwrap().retain(|name, _| {
                name == wanted || !["messages", "prompt", "input"].contains(&name.as_str())
            });
            for fields in [more, &form] {
                body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            }
            body["stream"] = stream.into();
            match stream {
                true => server
                    .events(path, &body)
                    .iter()
                    .filter_map(|event| serde_json::from_str(event).ok())
                    .collect(),
                false => vec![server.post(path, &body).fine()],
            }
        };
        let count = |answers: &[Value], at: &str| -> usize {
            answers.iter().filter_map(|answer| Some(answer.pointer(at)?.as_array()?.len())).sum()
        };
        for (path, more, used, lists) in [
            (
                "/v1/chat/completions",
                json!({ "logprobs": true, "top_logprobs": 1, "token_origins": true }),
                "/usage/completion_tokens",
                &["/choices/0/logprobs/content", "/choices/0/token_origins"][..],
            ),
            (
                "/v1/completions",
                json!({ "logprobs": 1 }),
                "/usage/completion_tokens",
                &["/choices/0/logprobs/tokens"],
            ),
            (
                "/completion",
                json!({ "n_probs": 1, "return_tokens": true }),
                "/tokens_predicted",
                &["/tokens", "/completion_probabilities"],
            ),
            (
                "/v1/responses",
                json!({ "include": ["message.output_text.logprobs"] }),
                "/usage/output_tokens",
                &["/output/0/content/0/logprobs"],
            ),
        ] {
            let whole = ask(path, &more, false);
            let n = whole[0].pointer(used).unwrap().as_u64().unwrap() as usize;
            let mut streamed = ask(path, &more, true);
            let mut at = lists.to_vec();
            if path == "/v1/responses" {
                streamed.retain(|event| event["type"] == "response.output_text.delta");
                at = vec!["/logprobs"];
            }
            for (list, at) in lists.iter().zip(at) {
                assert_eq!((count(&whole, list), count(&streamed, at)), (n, n), "{path} {list}: {whole:?}");
            }
            assert!(n > 0, "{whole:?}");
        }
    }
}

#[test]
fn pictures_outside_of_parts_and_fields_of_other_servers_are_refused_by_name() {
    let server = TestServer::shared();
    for (field, value) in [
        ("images", json!(["x"])),
        ("allowed_token_ids", json!([1])),
        ("skip_special_tokens", json!(false)),
        ("chat_template", json!("x")),
        ("system", json!("Be brief.")),
        ("documents", json!([{ "text": "x" }])),
    ] {
        let reply =
            server.post("/v1/chat/completions", &json!({ "messages": [said("user", "x")], field: value }));
        assert_eq!(reply.error(), (400, "unsupported".to_owned()), "{reply:?}");
        assert_eq!(reply.json()["error"]["param"], field);
    }
    let message = json!({ "role": "user", "content": "x", "images": ["x"] });
    let reply = server.post("/v1/chat/completions", &json!({ "messages": [message] }));
    assert_eq!(reply.error(), (400, "unsupported".to_owned()));
    // Anthropic's name of a field that is known.
    let body =
        json!({ "prompt": "x", "stop_sequences": ["yes"], "grammar": "%llguidance {}\nstart: \"no yes\"" });
    assert_eq!(server.post("/v1/completions", &body).fine()["choices"][0]["text"], "no ");
}

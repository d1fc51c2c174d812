//! Thoughts beside the answer.

use crate::support::{Setup, TestServer, Value, json};

/// A template of a model that thinks, unless it is asked not to.
const TEMPLATE: &str = "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{%- endfor -%}\
{%- if add_generation_prompt -%}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}\
<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}{%- endif -%}";

const CHAT: &str = "/v1/chat/completions";

#[test]
fn thoughts_have_a_field_of_their_own() {
    let server = TestServer::start(Setup { template: TEMPLATE, ..Setup::default() });
    let asking = |more: Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "def push(" }], "max_tokens": 12,
            "temperature": 0, "ignore_eos": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let message = |more: Value| server.post(CHAT, &asking(more)).fine()["choices"][0]["message"].clone();
    // The model never stops thinking.
    let apart = message(json!({}));
    let within = message(json!({ "reasoning_format": "none" }));
    assert_eq!((&apart["content"], &apart["reasoning_content"]), (&json!(""), &within["content"]));
    assert!(within.get("reasoning_content").is_none() && within["content"] != "");
    // Asked not to think, it answers.
    let answer = message(json!({ "chat_template_kwargs": { "enable_thinking": false } }));
    assert!(answer.get("reasoning_content").is_none() && answer["content"] != "", "{answer}");
    // What has to be JSON is an answer, whatever the template opens.
    let form = message(json!({ "json_schema": { "enum": ["yes", "no"] }, "ignore_eos": false }));
    assert!(form["content"] == "\"yes\"" || form["content"] == "\"no\"", "{form}");

    let events = server.events(CHAT, &asking(json!({ "stream": true })));
    let deltas = events.iter().filter_map(|event| serde_json::from_str::<Value>(event).ok());
    let deltas: Vec<Value> = deltas.map(|event| event["choices"][0]["delta"].clone()).collect();
    let joined = |name: &str| deltas.iter().filter_map(|delta| delta[name].as_str()).collect::<String>();
    assert_eq!(
        (json!(joined("reasoning_content")), joined("content")),
        (apart["reasoning_content"].clone(), String::new())
    );
    let odd = server.post(CHAT, &asking(json!({ "reasoning_format": "odd" })));
    assert_eq!(odd.error(), (400, "unsupported".to_owned()));
}

//! What clients of llama-server expect beyond OpenAI's interface.

use crate::support::{Setup, TestServer, Value, greedy, json};

#[test]
fn a_conversation_that_ends_with_the_assistant_goes_on_from_there() {
    let server = TestServer::shared();
    let user = json!({ "role": "user", "content": "A function that adds" });
    let begun = json!({ "role": "assistant", "content": "def add(" });
    let prompt = |body: Value| server.post("/apply-template", &body).fine()["prompt"].clone();
    let opened = prompt(json!({ "messages": [user] }));
    let expected = format!("{}def add(", opened.as_str().unwrap());
    assert_eq!(prompt(json!({ "messages": [user, begun] })), expected);
    let asked =
        json!({ "messages": [user, begun], "add_generation_prompt": false, "continue_final_message": true });
    assert_eq!(prompt(asked), expected, "as others ask for the same");
    // Who wants no answer gets the turn as it is.
    let whole = prompt(json!({ "messages": [user, begun], "add_generation_prompt": false }));
    assert!(whole.as_str().unwrap().ends_with("def add(<|im_end|>"), "{whole}");

    let body = json!({ "messages": [user, begun], "max_tokens": 8, "temperature": 0, "verbose": true });
    let answer = server.post("/v1/chat/completions", &body).fine();
    assert_eq!(answer["__verbose"]["prompt"], expected);
    let text = &answer["choices"][0]["message"]["content"];
    let alone =
        server.post("/v1/completions", &json!({ "prompt": expected, "max_tokens": 8, "temperature": 0 }));
    assert_eq!(text, &alone.fine()["choices"][0]["text"]);

    for wrong in [
        json!({ "messages": [user, begun, begun] }),
        json!({ "messages": [user, begun], "add_generation_prompt": true, "continue_final_message": true }),
        json!({ "messages": [user], "continue_final_message": true }),
    ] {
        let error = server.post("/v1/chat/completions", &wrong).error();
        assert_eq!(error, (400, "invalid_request_error".to_owned()), "{wrong}");
    }
}

#[test]
fn a_completion_tells_how_it_was_made() {
    let server = TestServer::shared();
    let mut body = greedy("def push(", 12);
    body["seed"] = 7.into();
    let whole = server.post("/completion", &body).fine();
    let settings = &whole["generation_settings"];
    assert_eq!((&settings["n_predict"], &settings["seed"]), (&json!(12), &json!(7)));
    // Tokens that may not end the text cannot come.
    let never = settings["logit_bias"].as_array().unwrap();
    assert!(!never.is_empty() && never.iter().all(|one| one["bias"].is_null() && one["token"].is_u64()));
    assert_eq!(whole["prompt"], "def push(");
    let has_line = whole["content"].as_str().unwrap().contains('\n');
    assert_eq!(whole["has_new_line"], has_line);

    body["response_fields"] = json!(["content", "generation_settings/n_predict", "no_such_field"]);
    let part = server.post("/completion", &body).fine();
    assert_eq!(part, json!({ "content": whole["content"], "generation_settings/n_predict": 12 }));
}

#[test]
fn prompts_can_be_objects_of_text() {
    let server = TestServer::shared();
    let text = |prompt: Value| {
        let body = json!({ "prompt": prompt, "n_predict": 6, "temperature": 0 });
        server.post("/completion", &body).fine()["content"].clone()
    };
    assert_eq!(text(json!({ "prompt_string": "def push(" })), text(json!("def push(")));
    let image = json!({ "prompt": { "prompt_string": "x", "multimodal_data": ["AAAA"] } });
    assert_eq!(server.post("/completion", &image).error(), (400, "unsupported".to_owned()));
}

#[test]
fn a_request_runs_on_the_sequence_that_it_names() {
    let server = TestServer::start(Setup { parallel: 3, ..Setup::default() });
    for slot in [2, 0, 1, 2] {
        let mut body = greedy("def push(", 4);
        body["id_slot"] = slot.into();
        assert_eq!(server.post("/completion", &body).fine()["id_slot"], slot);
    }
    let mut body = greedy("def push(", 4);
    body["id_slot"] = 3.into();
    assert_eq!(server.post("/completion", &body).status, 400);
    // Several texts of one request have to take turns.
    body["id_slot"] = 1.into();
    body["n"] = 3.into();
    let texts = server.post("/completion", &body).fine();
    assert!(texts.as_array().unwrap().iter().all(|text| text["id_slot"] == 1), "{texts}");
}

#[test]
fn conversations_are_counted_and_limits_have_defaults() {
    let mut setup = Setup { parallel: 1, ..Setup::default() };
    setup.options.max_tokens = Some(3);
    let server = TestServer::start(setup);
    let body = json!({ "messages": [{ "role": "user", "content": "def push(" }], "ignore_eos": true });
    let counted = server.post("/v1/chat/completions/input_tokens", &body).fine();
    let answer = server.post("/v1/chat/completions", &body).fine();
    assert_eq!(counted["input_tokens"], answer["usage"]["prompt_tokens"]);
    assert_eq!(answer["usage"]["completion_tokens"], 3);
}

//! What texts look like: whole and in pieces, in all three forms.

use crate::support::{TestServer, Value, greedy, joined, json};

fn chat(more: &Value) -> Value {
    let mut body = json!({
        "messages": [{ "role": "user", "content": "def push(self):" }],
        "max_tokens": 24, "temperature": 0, "ignore_eos": true,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn parsed(events: &[String]) -> Vec<Value> {
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

#[test]
fn a_stream_has_the_events_that_clients_wait_for() {
    let server = TestServer::shared();
    let whole = server.post("/v1/chat/completions", &chat(&json!({}))).fine();
    let mut events = server.events(
        "/v1/chat/completions",
        &chat(&json!({ "stream": true, "stream_options": { "include_usage": true } })),
    );
    assert_eq!(events.pop().as_deref(), Some("[DONE]"));
    let events = parsed(&events);
    assert!(
        events
            .iter()
            .all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"])
    );
    assert_eq!(events[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": null }));
    let [pieces @ .., end, usage] = &events[1..] else { panic!("{events:?}") };
    let text: String =
        pieces.iter().map(|event| event["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert!(pieces.len() > 5, "{} pieces", pieces.len());
    assert!(pieces.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    assert_eq!(
        (&end["choices"][0]["delta"], &end["choices"][0]["finish_reason"]),
        (&json!({}), &json!("length"))
    );
    assert_eq!(end["timings"]["predicted_n"], 24);
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(24)));

    let choice = &whole["choices"][0];
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": text, "refusal": null }));
    assert_eq!((&whole["object"], &choice["finish_reason"]), (&json!("chat.completion"), &json!("length")));
    assert_eq!(whole["usage"]["prompt_tokens"], usage["usage"]["prompt_tokens"]);
}

#[test]
fn usage_counts_the_tokens_of_prompt_and_answer() {
    let server = TestServer::shared();
    let prompt = "fn main() { let usage = ";
    let tokens = server.post("/tokenize", &json!({ "content": prompt, "add_special": true })).fine();
    let n = tokens["tokens"].as_array().unwrap().len();
    let answer = server.post("/v1/completions", &greedy(prompt, 7)).fine();
    let usage = &answer["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(n), &json!(7)));
    assert_eq!(usage["total_tokens"], n + 7);
    let timings = &answer["timings"];
    let read = timings["cache_n"].as_u64().unwrap() + timings["prompt_n"].as_u64().unwrap();
    assert_eq!((read, &timings["predicted_n"]), (n as u64, &json!(7)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], timings["cache_n"]);
    assert!(timings["predicted_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(answer["object"], "text_completion");
}

#[test]
fn a_stop_text_is_found_across_the_borders_of_pieces() {
    let server = TestServer::shared();
    let prompt = "def __init__(self, ";
    let full = server.post("/v1/completions", &greedy(prompt, 32)).fine();
    let text = full["choices"][0]["text"].as_str().unwrap().to_owned();
    let events = server.events("/v1/completions", &{
        let mut body = greedy(prompt, 32);
        body["stream"] = true.into();
        body
    });
    assert_eq!(joined(&events), text);
    // A stop text from within one token to within another one, for every such border.
    let pieces: Vec<String> = parsed(&events[..events.len() - 2])
        .iter()
        .map(|event| event["choices"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    let mut at = 0;
    for pair in pieces.windows(2).take(6) {
        at += pair[0].len();
        let begin = text[..at].char_indices().next_back().unwrap().0;
        let end = at + pair[1].chars().next().unwrap().len_utf8();
        let stop = &text[begin..end];
        let expected = &text[..text.find(stop).unwrap()];
        for stop in [json!(stop), json!(["never in the text", stop])] {
            let mut body = greedy(prompt, 32);
            body["stop"] = stop.clone();
            let answer = server.post("/v1/completions", &body).fine();
            let choice = &answer["choices"][0];
            assert_eq!(
                (choice["text"].as_str(), &choice["finish_reason"]),
                (Some(expected), &json!("stop")),
                "{stop}"
            );
            body["stream"] = true.into();
            assert_eq!(joined(&server.events("/v1/completions", &body)), expected, "{stop}");
        }
    }
}

#[test]
fn several_answers_are_those_of_several_seeds() {
    let server = TestServer::shared();
    let body = |seed: u64, n: usize| {
        json!({ "prompt": "impl Iterator for ", "max_tokens": 16, "temperature": 0.9, "seed": seed, "n": n,
            "ignore_eos": true })
    };
    let all = server.post("/v1/completions", &body(5, 3)).fine();
    let texts: Vec<_> = all["choices"].as_array().unwrap().iter().map(|choice| &choice["text"]).collect();
    assert_eq!(all["usage"]["completion_tokens"], 48);
    for (i, text) in texts.iter().enumerate() {
        let one = server.post("/v1/completions", &body(5 + i as u64, 1)).fine();
        assert_eq!(&one["choices"][0]["text"], *text, "answer {i}");
        assert_eq!(one["usage"]["prompt_tokens"], all["usage"]["prompt_tokens"], "a prompt counts once");
    }
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    let mut streamed = body(5, 3);
    streamed["stream"] = true.into();
    let mut found = [const { String::new() }; 3];
    for event in server.events("/v1/completions", &streamed) {
        let Ok(value) = serde_json::from_str::<Value>(&event) else { continue };
        let choice = &value["choices"][0];
        found[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
    }
    assert_eq!(found.each_ref().map(|text| json!(text)), [0, 1, 2].map(|i| texts[i].clone()));
}

#[test]
fn several_prompts_have_several_answers() {
    let server = TestServer::shared();
    let alone = |prompt: &Value| {
        let mut body = greedy("", 9);
        body["prompt"] = prompt.clone();
        server.post("/v1/completions", &body).fine()["choices"].clone()
    };
    let ids = server.post("/tokenize", &json!({ "content": "impl fmt" })).fine()["tokens"].clone();
    let both = alone(&json!(["def f(", ids]));
    assert_eq!(both[0]["text"], alone(&json!("def f("))[0]["text"]);
    assert_eq!(both[1]["text"], alone(&ids)[0]["text"]);
    assert_eq!(alone(&ids)[0]["text"], alone(&json!("impl fmt"))[0]["text"], "this model has no BOS");
}

#[test]
fn probabilities_are_told_in_every_form() {
    let server = TestServer::shared();
    let whole =
        server.post("/v1/chat/completions", &chat(&json!({ "logprobs": true, "top_logprobs": 3 }))).fine();
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 24);
    let text: Vec<u8> = tokens
        .iter()
        .flat_map(|token| serde_json::from_value::<Vec<u8>>(token["bytes"].clone()).unwrap())
        .collect();
    assert_eq!(String::from_utf8_lossy(&text), whole["choices"][0]["message"]["content"].as_str().unwrap());
    for token in tokens {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // The best token was taken.
        assert_eq!((&token["token"], &token["logprob"]), (&top[0]["token"], &top[0]["logprob"]));
        let logprobs: Vec<f64> = top.iter().map(|entry| entry["logprob"].as_f64().unwrap()).collect();
        assert!(logprobs.is_sorted_by(|a, b| a >= b) && logprobs.iter().all(|&logprob| logprob <= 0.0));
    }
    // They do not change the text, nor do pieces change them.
    let plain = server.post("/v1/chat/completions", &chat(&json!({}))).fine();
    assert_eq!(plain["choices"][0]["message"], whole["choices"][0]["message"]);
    let events = server.events(
        "/v1/chat/completions",
        &chat(&json!({ "logprobs": true, "top_logprobs": 3, "stream": true })),
    );
    let streamed: Vec<Value> = parsed(&events[..events.len() - 1])
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array().cloned())
        .flatten()
        .collect();
    assert_eq!(&streamed, tokens);

    let mut body = greedy("def push(self):", 5);
    body["logprobs"] = 2.into();
    let columns = server.post("/v1/completions", &body).fine()["choices"][0].clone();
    assert_eq!(columns["logprobs"]["tokens"].as_array().unwrap().len(), 5);
    assert_eq!(columns["logprobs"]["text_offset"][0], 0);
    body["n_probs"] = 2.into();
    let native = server.post("/completion", &body).fine();
    assert_eq!(native["content"], columns["text"]);
    let logprobs: Vec<_> = native["completion_probabilities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| &token["logprob"])
        .collect();
    assert_eq!(
        logprobs,
        columns["logprobs"]["token_logprobs"].as_array().unwrap().iter().collect::<Vec<_>>()
    );
}

#[test]
fn biases_forbid_and_favour_tokens() {
    let server = TestServer::shared();
    let ids = |text: &str| server.post("/tokenize", &json!({ "content": text })).fine()["tokens"].clone();
    let first = |bias: Value| {
        let mut body = greedy("def push(self):", 1);
        body["logit_bias"] = bias;
        body["return_tokens"] = true.into();
        server.post("/completion", &body).fine()["tokens"][0].clone()
    };
    let plain = first(Value::Null);
    assert_ne!(first(json!({ plain.to_string(): -100 })), plain);
    assert_ne!(first(json!([[plain, false]])), plain);
    // A text favours all of its tokens.
    let other = ids("xyz");
    assert_eq!(first(json!({ other[0].to_string(): 100 })), other[0]);
    assert!(other.as_array().unwrap().contains(&first(json!([["xyz", 100]]))));
}

#[test]
fn llama_servers_own_route_has_its_own_form() {
    let server = TestServer::shared();
    let mut body =
        json!({ "prompt": "def push(self):", "n_predict": 6, "temperature": 0, "ignore_eos": true });
    let whole = server.post("/completion", &body).fine();
    assert_eq!(
        (&whole["stop"], &whole["stop_type"], &whole["tokens_predicted"]),
        (&json!(true), &json!("limit"), &json!(6))
    );
    body["stream"] = true.into();
    let events = parsed(&server.events("/completion", &body));
    let (end, pieces) = events.split_last().unwrap();
    assert!(pieces.iter().all(|event| event["stop"] == false));
    assert_eq!((&end["stop"], &end["content"]), (&json!(true), &json!("")));
    let text: String = pieces.iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(whole["content"], text);
    let tokens: usize = pieces.iter().map(|event| event["tokens"].as_array().unwrap().len()).sum();
    assert_eq!(tokens, 6);
}

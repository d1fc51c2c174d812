//! Pictures in messages of every interface.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hexflash_e2e::encoder::SMOLVLM;

use crate::support::{Drafter, Setup, TestServer, Value, json};

/// A BMP of 60 by 40 pixels, whose colours a seed chooses, in base64.
pub fn picture(seed: u8) -> String {
    STANDARD.encode(bitmap(60, 40, seed))
}

/// The file of a BMP whose colours a seed chooses; the width is a multiple of four.
pub fn bitmap(width: u32, height: u32, seed: u8) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    let size = 3 * width * height;
    for word in [54 + size, 0, 54, 40, width, height, 1 | 24 << 16, 0, size, 2835, 2835, 0, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    let colour = |x: u32, y: u32, c: u32| (x * 3 + y * 5 + c * 40).wrapping_mul(u32::from(seed)) as u8;
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    bytes.extend(pixels.flat_map(|(x, y)| (0..3).map(move |c| colour(x, y, c))));
    bytes
}

pub fn setup() -> Setup {
    Setup { encoder: Some(SMOLVLM), ..Setup::default() }
}

fn chat(server: &TestServer, parts: Value) -> Value {
    let messages = json!([{ "role": "user", "content": parts }]);
    server
        .post("/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 8, "temperature": 0 }))
        .fine()
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

#[test]
fn every_interface_takes_pictures_and_gives_one_answer() {
    let server = TestServer::start(setup());
    let data = picture(7);
    let url = format!("data:image/bmp;base64,{data}");
    let ask = json!({ "type": "text", "text": "What is it?" });
    let answer = chat(&server, json!([{ "type": "image_url", "image_url": { "url": url } }, ask]));
    let wanted = text(&answer);
    let n = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(n > 20, "{answer}");

    let content = json!([{ "type": "image", "source": {
        "type": "base64", "media_type": "image/bmp", "data": data } }, ask]);
    let body =
        json!({ "max_tokens": 8, "temperature": 0, "messages": [{ "role": "user", "content": content }] });
    assert_eq!(server.post("/v1/messages", &body).fine()["content"][0]["text"], wanted);
    assert_eq!(server.post("/v1/messages/count_tokens", &body).fine(), json!({ "input_tokens": n }));

    let content =
        json!([{ "type": "input_image", "image_url": url }, { "type": "input_text", "text": "What is it?" }]);
    let input = json!([{ "role": "user", "content": content }]);
    let body = json!({ "input": input, "max_output_tokens": 8, "temperature": 0 });
    let answer = server.post("/v1/responses", &body).fine();
    assert_eq!(answer["output"][0]["content"][0]["text"], wanted, "{answer}");

    assert_eq!(server.get("/props").fine()["modalities"], json!({ "vision": true, "audio": false }));
    let shown = server.post("/api/show", &json!({ "model": "m" })).fine();
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("vision")), "{shown}");
    let message = json!({ "role": "user", "content": "What is it?", "images": [data] });
    let options = json!({ "num_predict": 8, "temperature": 0 });
    let body = json!({ "model": "m", "messages": [message], "stream": false, "options": options });
    assert_eq!(server.post("/api/chat", &body).fine()["message"]["content"], wanted);
}

/// The picture is a part of the prompt: another one is not taken for it, and the same one is not read again.
#[test]
fn a_conversation_about_a_picture_goes_on_where_it_was() {
    let server = TestServer::start(setup());
    let shown = |seed| json!({ "type": "image_url", "image_url": { "url": picture(seed) } });
    let ask = json!({ "type": "text", "text": "What is it?" });
    let first = chat(&server, json!([shown(7), ask]));
    let again = chat(&server, json!([shown(7), ask]));
    let other = chat(&server, json!([shown(11), ask]));
    assert_eq!(text(&first), text(&again));
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let n = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!((cached(&first), other["usage"]["prompt_tokens"].as_u64()), (0, Some(n)));
    assert!(cached(&again) > n - 20, "{again}");
    assert!(cached(&other) < n / 2, "{other}");

    let turns = json!([
        { "role": "user", "content": [shown(7), ask] },
        { "role": "assistant", "content": text(&first) },
        { "role": "user", "content": [{ "type": "text", "text": "And this?" }, shown(11)] },
    ]);
    let body = json!({ "messages": turns, "max_tokens": 4, "temperature": 0 });
    let answer = server.post("/v1/chat/completions", &body).fine();
    assert!(cached(&answer) > n / 2, "{answer}");
}

/// Texts with and without pictures share steps, n-grams draft, and the device is lost now and then: each text
/// is what it is alone.
#[test]
fn pictures_beside_texts_with_drafts_on_a_device_that_is_lost() {
    let alone = TestServer::start(setup());
    let ask = |seed: u8| {
        let part = json!({ "type": "text", "text": format!("def f{seed}(x): return x; def f") });
        match seed % 2 {
            0 => json!([part]),
            _ => json!([{ "type": "image_url", "image_url": { "url": picture(seed) } }, part]),
        }
    };
    let wanted: Vec<String> = (0..6).map(|seed| text(&chat(&alone, ask(seed))).to_owned()).collect();
    for losses in [None, Some(120)] {
        let server = TestServer::start(Setup { drafter: Drafter::NGrams, losses, ..setup() });
        std::thread::scope(|scope| {
            for (seed, wanted) in wanted.iter().enumerate() {
                let server = &server;
                scope.spawn(move || assert_eq!(text(&chat(server, ask(seed as u8))), wanted, "{losses:?}"));
            }
        });
    }
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let server = TestServer::start(setup());
    let refused = |server: &TestServer, part: Value| {
        let messages = json!([{ "role": "user", "content": [part] }]);
        let reply = server.post("/v1/chat/completions", &json!({ "messages": messages }));
        assert_eq!(reply.error().0, 400, "{reply:?}");
        reply.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    let url = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
    for (part, words) in [
        (url("https://example.com/a.png"), "not fetched"),
        (url("data:image/png;base64,aGV4"), "no picture that hexflash can read"),
        (url("data:image/png;base64,%"), "no base64"),
        (json!({ "type": "image_url" }), "has no picture"),
        (json!({ "type": "input_audio", "input_audio": {} }), "input_audio"),
    ] {
        let message = refused(&server, part);
        assert!(message.contains(words), "{message}");
    }
    // A picture that has more rows than the context.
    let tall = STANDARD.encode({
        let mut bytes = b"BM".to_vec();
        for word in [54 + 30_000u32, 0, 54, 40, 5, 1500, 1 | 24 << 16, 0, 30_000, 0, 0, 0, 0] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(54 + 30_000, 0);
        bytes
    });
    let parts: Vec<Value> = (0..12).map(|_| url(&tall)).collect();
    let messages = json!([{ "role": "user", "content": parts }]);
    let reply = server.post("/v1/chat/completions", &json!({ "messages": messages }));
    assert_eq!(reply.error(), (400, "exceed_context_size_error".to_owned()));
    // A model without an encoder says so.
    let message = refused(TestServer::shared(), url(&picture(1)));
    assert!(message.contains("--mmproj"), "{message}");
}

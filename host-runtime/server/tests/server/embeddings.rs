//! Vectors of texts over HTTP.

use std::sync::OnceLock;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hexflash::embed::{Embedder, Norm};
use hexflash::engine::EngineOptions;
use hexflash::gguf::Gguf;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::lossy::Lossy;
use hexflash_e2e::{Model, inproc, settings};
use hexflash_server::{Card, Options, Served, Work};

use crate::support::{CONTEXT, TestServer, Value, json};

const TEXTS: [&str; 3] = ["import os\n", "def push(self, x):", "a"];

/// An embedder whose device is lost after every so many steps, if it is.
fn embedder(losses: Option<u32>) -> Embedder {
    let gguf = Gguf::open(&Model::Q8_0.path()).unwrap();
    let options = EngineOptions { n_ctx: Some(CONTEXT), batch: 16, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    match losses {
        None => Embedder::load(&gguf, Box::new(inproc(settings())), &options, &image),
        Some(n) => Embedder::load(&gguf, Box::new(Lossy::new(inproc(settings()), n)), &options, &image),
    }
    .unwrap()
}

fn start(losses: Option<u32>) -> TestServer {
    let options = Options { port: 0, ..Options::default() };
    let server = TestServer::start_with(options, move |_| {
        let card = Card::read(&Gguf::open(&Model::Q8_0.path())?)?;
        Ok(Served { card, work: Work::Vectors(embedder(losses)) })
    });
    server.ready()
}

/// The server that tests share who do not mind the others.
fn shared() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| start(None))
}

/// Vectors of length 1, as the library makes them.
fn expected() -> Vec<Vec<f32>> {
    let mut embedder = embedder(None);
    let mut of = |text: &&str| {
        let mut vector = embedder.embed(text).unwrap();
        Norm::EUCLIDEAN.apply(&mut vector);
        vector
    };
    TEXTS.iter().map(&mut of).collect()
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap();
    for (i, one) in data.iter().enumerate() {
        assert_eq!((&one["object"], &one["index"]), (&json!("embedding"), &json!(i)));
    }
    data.iter().map(|one| serde_json::from_value(one["embedding"].clone()).unwrap()).collect()
}

#[test]
fn texts_and_tokens_have_the_bits_of_the_library_alone_and_together() {
    let (server, expected) = (shared(), expected());
    let all = server.post("/v1/embeddings", &json!({ "input": TEXTS, "model": "any" })).fine();
    assert_eq!(vectors(&all), expected);
    let tokens = |text: &str| {
        server.post("/tokenize", &json!({ "content": text, "add_special": true })).fine()["tokens"].clone()
    };
    let ids: Vec<Value> = TEXTS.iter().map(|text| tokens(text)).collect();
    let count: usize = ids.iter().map(|ids| ids.as_array().unwrap().len()).sum();
    assert_eq!(all["usage"], json!({ "prompt_tokens": count, "total_tokens": count }));
    assert_eq!(vectors(&server.post("/embeddings", &json!({ "input": ids })).fine()), expected);
    for (i, text) in TEXTS.iter().enumerate() {
        for input in [json!(text), json!([text]), ids[i].clone()] {
            let one = server.post("/v1/embeddings", &json!({ "input": input })).fine();
            assert_eq!(vectors(&one), expected[i..=i], "{input}");
        }
    }
}

#[test]
fn many_clients_get_their_own_vectors() {
    let (server, expected) = (shared(), expected());
    thread::scope(|scope| {
        for i in 0..9 {
            let expected = &expected;
            scope.spawn(move || {
                let body = json!({ "input": TEXTS[i % 3] });
                let one = server.post("/v1/embeddings", &body).fine();
                assert_eq!(vectors(&one), expected[i % 3..=i % 3]);
            });
        }
    });
}

#[test]
fn base64_is_the_bytes_of_the_floats() {
    let body = json!({ "input": TEXTS[1], "encoding_format": "base64" });
    let answer = shared().post("/v1/embeddings", &body).fine();
    let bytes = STANDARD.decode(answer["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert_eq!(values, expected()[1]);
}

#[test]
fn other_interfaces_have_the_same_vectors() {
    let (server, expected) = (shared(), expected());
    let all = server.post("/api/embed", &json!({ "model": "m", "input": TEXTS })).fine();
    assert_eq!(serde_json::from_value::<Vec<Vec<f32>>>(all["embeddings"].clone()).unwrap(), expected);
    let one = server.post("/api/embeddings", &json!({ "model": "m", "prompt": TEXTS[1] })).fine();
    assert_eq!(serde_json::from_value::<Vec<f32>>(one["embedding"].clone()).unwrap(), expected[1]);
    assert_eq!(server.post("/api/show", &json!({})).fine()["capabilities"], json!(["embedding"]));
}

#[test]
fn a_lost_device_costs_time_and_no_bits() {
    let server = start(Some(20));
    let long = TEXTS[1].repeat(20);
    let plain = shared().post("/v1/embeddings", &json!({ "input": [long, TEXTS[0]] })).fine();
    for _ in 0..6 {
        let again = server.post("/v1/embeddings", &json!({ "input": [long, TEXTS[0]] })).fine();
        assert_eq!(vectors(&again), vectors(&plain));
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_by_field() {
    let server = shared();
    for (field, body) in [
        ("input", json!({})),
        ("input", json!({ "input": [] })),
        ("input", json!({ "input": {} })),
        ("input", json!({ "input": ["a", 7] })),
        ("input", json!({ "input": [7, "a"] })),
        ("input", json!({ "input": [[]] })),
        ("input", json!({ "input": [1_000_000_000] })),
        ("input", json!({ "input": [-1] })),
        ("input", Value::from_iter([("input", Value::Array(vec![json!("a"); 3000]))])),
        ("encoding_format", json!({ "input": "a", "encoding_format": "hex" })),
        ("dimensions", json!({ "input": "a", "dimensions": 7 })),
    ] {
        let reply = server.post("/v1/embeddings", &body);
        assert_eq!(reply.status, 400, "{body}");
        assert_eq!(reply.json()["error"]["param"], field, "{}", reply.text);
    }
    let long = server.post("/v1/embeddings", &json!({ "input": "word ".repeat(2 * CONTEXT as usize) }));
    assert_eq!(long.error(), (400, "exceed_context_size_error".to_owned()));
    // It works as before.
    assert_eq!(vectors(&server.post("/v1/embeddings", &json!({ "input": TEXTS[0] })).fine()).len(), 1);
}

#[test]
fn a_server_writes_texts_or_makes_vectors() {
    let message = json!([{ "role": "user", "content": "a" }]);
    for (path, body) in [
        ("/v1/completions", json!({ "prompt": "a" })),
        ("/completion", json!({ "prompt": "a" })),
        ("/v1/chat/completions", json!({ "messages": message })),
        ("/v1/messages", json!({ "messages": message, "max_tokens": 3 })),
    ] {
        let refused = shared().post(path, &body);
        assert_eq!(refused.status, 501, "{path}: {}", refused.text);
        assert!(refused.text.contains("--embeddings"), "{}", refused.text);
    }
    let refused = TestServer::shared().post("/v1/embeddings", &json!({ "input": "a" }));
    assert_eq!(refused.error(), (501, "not_supported_error".to_owned()));
    assert!(refused.text.contains("--embeddings"), "{}", refused.text);
}

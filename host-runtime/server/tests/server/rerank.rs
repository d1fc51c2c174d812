//! Scores of documents over HTTP.

use std::path::Path;
use std::sync::OnceLock;

use hexflash::engine::EngineOptions;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::rerank::Reranker;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::{inproc, repo_file, reranker, settings};
use hexflash_server::{Card, Options, Served, Work};

use crate::support::{CONTEXT, TestServer, Value, json};

const QUERY: &str = "how to open a file";
const DOCUMENTS: [&str; 4] = [
    "with open(path) as file:",
    "import os\n",
    "def push(self, item):\n    pass",
    "with open(path) as file:",
];

/// The model's file, which is there as long as the tests run.
fn path() -> &'static Path {
    static FILE: OnceLock<tempfile::NamedTempFile> = OnceLock::new();
    let made = || {
        let file = tempfile::NamedTempFile::new().unwrap();
        reranker::write(&repo_file("models/tiny-dense-f16.gguf"), 2, GgmlType::F16, file.path());
        file
    };
    FILE.get_or_init(made).path()
}

fn loaded() -> Reranker {
    let gguf = Gguf::open(path()).unwrap();
    let options = EngineOptions { n_ctx: Some(CONTEXT), batch: 16, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    Reranker::load(&gguf, Box::new(inproc(settings())), &options, &image).unwrap()
}

/// The server that tests share.
fn shared() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let options = Options { port: 0, ..Options::default() };
        let load =
            |_: &_| Ok(Served { card: Card::read(&Gguf::open(path())?)?, work: Work::Scores(loaded()) });
        TestServer::start_with(options, load).ready()
    })
}

/// Places and scores of the documents as the library has them, the best first.
fn expected() -> Vec<(usize, f32)> {
    let mut reranker = loaded();
    let score = |(index, document): (usize, &&str)| (index, reranker.score(QUERY, document).unwrap());
    let mut scores: Vec<_> = DOCUMENTS.iter().enumerate().map(score).collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    assert!(scores[0].1 > scores[3].1 && scores.iter().all(|(_, score)| (0.0..=1.0).contains(score)));
    scores
}

fn ranked(results: &Value, score: &str) -> Vec<(usize, f32)> {
    let one = |it: &Value| (it["index"].as_u64().unwrap() as usize, it[score].as_f64().unwrap() as f32);
    results.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn documents_come_with_the_library_s_scores_the_best_first() {
    let (server, expected) = (shared(), expected());
    let body = json!({ "model": "any", "query": QUERY, "documents": DOCUMENTS });
    for path in ["/v1/rerank", "/rerank", "/v1/reranking", "/reranking"] {
        let answer = server.post(path, &body).fine();
        assert_eq!(ranked(&answer["results"], "relevance_score"), expected, "{path}");
        assert_eq!(answer["object"], "list");
        assert!(answer["usage"]["total_tokens"].as_u64().unwrap() > 40, "{answer}");
        assert_eq!(answer["results"][0].get("document"), None);
    }
    // Equal documents have equal scores, and stay in their order.
    let places: Vec<_> = expected.iter().map(|(index, _)| *index).collect();
    let place = |index| places.iter().position(|&one| one == index).unwrap();
    assert_eq!((expected[place(0)].1, place(0) + 1), (expected[place(3)].1, place(3)));

    let few = json!({ "query": QUERY, "documents": DOCUMENTS, "top_n": 2, "return_documents": true });
    let answer = server.post("/v1/rerank", &few).fine();
    assert_eq!(ranked(&answer["results"], "relevance_score"), expected[..2]);
    assert_eq!(answer["results"][1]["document"]["text"], DOCUMENTS[expected[1].0]);
    let objects: Vec<_> = DOCUMENTS.iter().map(|text| json!({ "text": text })).collect();
    let answer = server.post("/v1/rerank", &json!({ "query": QUERY, "documents": objects })).fine();
    assert_eq!(ranked(&answer["results"], "relevance_score"), expected);
}

#[test]
fn texts_have_the_form_of_tei() {
    let (server, expected) = (shared(), expected());
    let answer = server.post("/rerank", &json!({ "query": QUERY, "texts": DOCUMENTS })).fine();
    assert_eq!(ranked(&answer, "score"), expected);
    let body = json!({ "query": QUERY, "texts": DOCUMENTS, "return_text": true });
    assert_eq!(server.post("/rerank", &body).fine()[0]["text"], DOCUMENTS[expected[0].0]);
}

#[test]
fn requests_that_make_no_sense_are_refused_by_field() {
    let server = shared();
    for (field, body) in [
        ("query", json!({ "documents": ["a"] })),
        ("documents", json!({ "query": "a" })),
        ("documents", json!({ "query": "a", "documents": [] })),
        ("texts", json!({ "query": "a", "texts": [] })),
        ("documents", json!({ "query": "a", "documents": "b" })),
        ("top_n", json!({ "query": "a", "documents": ["b"], "top_n": -1 })),
        ("documents", json!({ "query": "a", "documents": vec!["b"; 3000] })),
    ] {
        let reply = server.post("/v1/rerank", &body);
        let param = reply.json()["error"]["param"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && param.starts_with(field), "{field}: {reply:?}");
    }
    let long = json!({ "query": "a", "documents": ["def push(self): ".repeat(200)] });
    assert_eq!(server.post("/v1/rerank", &long).error(), (400, "exceed_context_size_error".to_owned()));
}

#[test]
fn a_model_does_what_it_is_started_for() {
    let server = shared();
    for path in ["/v1/completions", "/v1/embeddings"] {
        let reply = server.post(path, &json!({ "prompt": "a", "input": "a" }));
        assert_eq!(reply.error(), (501, "not_supported_error".to_owned()), "{path}");
    }
    let reply = TestServer::shared().post("/v1/rerank", &json!({ "query": "a", "documents": ["b"] }));
    assert_eq!(reply.error(), (501, "not_supported_error".to_owned()));
    assert!(reply.text.contains("--reranking"), "{reply:?}");
}

#[test]
fn a_model_without_a_classifier_is_refused() {
    let gguf = Gguf::open(&repo_file("models/tiny-dense-f16.gguf")).unwrap();
    let error = Reranker::engine_options(&gguf, &EngineOptions::default()).unwrap_err().to_string();
    assert!(error.contains("makes no scores") && error.contains("take a reranker"), "{error}");
}

//! The comparison itself: what it must let pass, and what it must find.

use std::fs;

use hexflash::ModelOptions;
use hexflash::embed::Embedder;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::rerank::Reranker;
use hexflash::weights::CachePolicy;
use hexflash_oracle::llama::{Context, ContextOptions, Model};

use super::*;

#[path = "../../../e2e/src/reranker.rs"]
mod reranker;
use architecture::Architecture;
use random::{ModelShape, WeightType};

/// Narrow, so that many layers take no time.
const NARROW: ModelShape = ModelShape {
    architecture: Architecture::Qwen35,
    layers: 64,
    interval: 4,
    width: 128,
    ff: 256,
    heads: 2,
    kv_heads: 1,
    head: 64,
    window: 0,
    key_heads: 2,
    value_heads: 2,
    state: 64,
    taps: 4,
    vocab: 300,
    context: 16,
    weights: WeightType::Q8_0,
    embedding_type: None,
    expert_type: None,
    untied: false,
    biases: false,
    scaling: None,
    experts: 1,
    used: 1,
    expert_ff: 32,
    dense_layers: 0,
    fused_experts: false,
    shared: 0,
    per_layer: 32,
    mtp: false,
    seed: 1,
};

fn file(shape: &ModelShape) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    random::write(shape, &path).unwrap();
    (dir, path)
}

/// One chunk of the context.
fn compared(pair: &mut Pair, shape: &ModelShape) -> Outcome {
    outcome(pair, &random::tokens(shape, shape.context as usize), 0, None, false, |_| ()).unwrap()
}

#[test]
fn both_split_any_text_with_the_vocabulary_of_a_random_model() {
    for vocab in [257, 300] {
        let (_dir, path) = file(&ModelShape { layers: 2, interval: 2, vocab, ..NARROW });
        let pair = Pair::load(&path, "inproc", None, CacheType::F16).unwrap();
        let text = "Grüße, 世界!\r\n\t\0 <|endoftext|>[PAD257] don't 12345";
        let tokens = pair.tokenize(text).unwrap();
        let end = [256];
        assert!(tokens.iter().all(|&id| id <= end[0]), "{tokens:?}");
        let bytes: Vec<u8> = tokens.iter().filter_map(|&id| u8::try_from(id).ok()).collect();
        assert_eq!(bytes, text.replace("<|endoftext|>", "").as_bytes());
    }
}

#[test]
fn a_file_without_a_vocabulary_is_refused_and_ends_nothing() {
    let (_dir, path) = file(&ModelShape { layers: 2, interval: 2, ..NARROW });
    let bytes = fs::read(&path).unwrap();
    // Of the same length, so that nothing else moves.
    let at = bytes.windows(4).position(|w| w == b"gpt2").unwrap();
    fs::write(&path, [&bytes[..at], b"none", &bytes[at + 4..]].concat()).unwrap();
    let error =
        Pair::load(&path, "inproc", None, CacheType::F16).and_then(|pair| pair.tokenize("a")).unwrap_err();
    assert!(!error.contains('\n') && !error.is_empty(), "{error}");
}

/// Rounding grows from layer to layer, in llama.cpp too: what a few layers may differ by is exceeded.
#[test]
fn sixty_four_layers_may_differ_by_what_rounding_does_to_them() {
    let (_dir, path) = file(&NARROW);
    let outcome = compared(&mut Pair::load(&path, "inproc", None, CacheType::F16).unwrap(), &NARROW);
    assert!(!outcome.is_within_limits() && outcome.passes(), "{outcome}");
}

/// Vectors of all tokens, before any pooling. The norm behind the last layer has another name in LFM2.
#[test]
fn vectors_of_tokens_are_those_of_llama_cpp() {
    let dir = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let mut files = ["tiny-hybrid-f16.gguf", "tiny-dense-f16.gguf"].map(|name| shipped.join(name)).to_vec();
    for name in ["dense-lfm2-f16", "dense-gemma3-f16"] {
        let shape = shapes::SHAPES.iter().find(|shape| shape.name == name).unwrap();
        files.push(dir.path().join(name));
        random::write(&shape.model, files.last().unwrap()).unwrap();
        if shape.model.architecture == Architecture::Gemma3 {
            let around = ModelShape { architecture: Architecture::GemmaEmbedding, ..shape.model };
            files.push(dir.path().join("gemma-embedding"));
            random::write(&around, files.last().unwrap()).unwrap();
        }
    }
    for path in files {
        let tokens: Vec<i32> = (1..40).map(|i| 7 * i % 250).collect();
        let llama = Model::load(&path).unwrap();
        let expected = Context::new(&llama, ContextOptions::default()).unwrap().vectors(&tokens).unwrap();
        let ids: Vec<u32> = tokens.iter().map(|&id| id as u32).collect();
        let options = ModelOptions { cache: CachePolicy::Off, ..ModelOptions::default() };
        let found = Embedder::open_with(&path, &options).unwrap().embed_each(&ids).unwrap();
        assert_eq!(found.len(), expected.len());
        let mut worst = 0.0f64;
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let product = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
            };
            let cosine =
                product(found, expected) / (product(found, found) * product(expected, expected)).sqrt();
            worst = worst.max(1.0 - cosine);
            assert!(cosine > 1.0 - 1e-6, "{}, token {i}: 1 - {:e}", path.display(), 1.0 - cosine);
        }
        eprintln!("{}: 1 - cosine is at most {worst:.1e}", path.display());
    }
}

/// Scores of texts, by classifiers for several labels in all types.
#[test]
fn scores_are_those_of_llama_cpp() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-dense-f16.gguf");
    let path = dir.path().join("reranker.gguf");
    // Logits of about 0.3 with the error that a model's logits may have (an NMSE of 1e-6) differ from each
    // other by 1.6e-3 at four standard deviations, of which a share between two labels moves by a quarter.
    // llama.cpp rounds what it multiplies with Q8_0 to eight bits besides.
    const LIMIT: f32 = 4e-4;
    for (labels, ggml_type, limit) in
        [(2, GgmlType::F32, LIMIT), (3, GgmlType::F16, LIMIT), (2, GgmlType::Q8_0, 1e-2)]
    {
        reranker::write(&source, labels, ggml_type, &path);
        let llama = Model::load(&path).unwrap();
        let options = ModelOptions { cache: CachePolicy::Off, ..ModelOptions::default() };
        let mut found = Reranker::open_with(&path, &options).unwrap();
        for (query, document) in [("a", "b"), ("how to open a file", "with open(path) as file:"), ("", "x\n")]
        {
            let tokens = found.pairs().tokens(&found.text().tokenizer, query, document).unwrap();
            let ids: Vec<i32> = tokens.iter().map(|&id| id as i32).collect();
            let expected = Context::new(&llama, ContextOptions::default()).unwrap().scores(&ids).unwrap();
            assert_eq!(expected.len(), labels as usize);
            let score = found.score(query, document).unwrap();
            let error = (score - expected[0]).abs();
            assert!(error < limit, "{labels} labels in {ggml_type}: {score}, expected {expected:?}");
        }
    }
}

/// A byte of the tensor `name` is another in hexflash's file.
fn planted(shape: &ModelShape, name: &str, at: usize, change: impl Fn(&mut [u8])) -> Outcome {
    let (dir, path) = file(shape);
    let gguf = Gguf::open(&path).unwrap();
    let data = gguf.data(gguf.tensor(name).unwrap()).unwrap();
    drop(gguf);
    let mut bytes = fs::read(&path).unwrap();
    let start = bytes.windows(data.len()).position(|w| w == data).unwrap();
    change(&mut bytes[start + at..]);
    let wrong = dir.path().join("wrong.gguf");
    fs::write(&wrong, bytes).unwrap();
    compared(&mut Pair::load_each(&wrong, &path, "inproc", None, CacheType::F16).unwrap(), shape)
}

/// The sign of one of 64 or 128 weights of a norm.
#[test]
fn one_wrong_weight_in_sixty_four_layers_is_found() {
    for (weights, name) in [
        (WeightType::F32, "output_norm.weight"),
        (WeightType::Q8_0, "blk.5.attn_norm.weight"),
        (WeightType::Q8_0, "blk.31.attn_q_norm.weight"),
    ] {
        let shape = ModelShape { weights, ..NARROW };
        let outcome = planted(&shape, name, 4 * 7, |bytes| bytes[3] ^= 0x80);
        assert!(
            matches!(outcome.rounding, Some(Ok(_))) && !outcome.passes(),
            "{weights:?} {name}: {outcome}"
        );
    }
}

/// The trunk's logits say nothing of the head: its drafts are compared.
#[test]
fn one_wrong_weight_of_an_mtp_head_is_found() {
    let shape =
        ModelShape { layers: 2, interval: 2, context: 64, mtp: true, weights: WeightType::F32, ..NARROW };
    let (_dir, path) = file(&shape);
    let right = compared(&mut Pair::load(&path, "inproc", None, CacheType::F16).unwrap(), &shape);
    let drafts = right.chains.as_ref().map(|chains| (chains.chains, chains.same));
    assert!(drafts.is_some_and(|(chains, same)| chains >= 6 && same >= 40) && right.passes(), "{right}");
    for name in ["nextn.hnorm", "nextn.enorm", "nextn.shared_head_norm", "attn_k_norm"] {
        let wrong = planted(&shape, &format!("blk.2.{name}.weight"), 4 * 7, |bytes| bytes[3] ^= 0x80);
        assert!(wrong.is_within_limits() && !wrong.passes(), "{name}: {wrong}");
    }
}

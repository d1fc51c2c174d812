//! What smaller number formats of caches cost: perplexity on a text of this repository.

use hexflash::engine::{Engine, EngineOptions};
use hexflash::model::{CacheType, CacheTypes, MAX_VERIFY};
use hexflash::text::TextModel;
use hexflash_e2e::{Model, inproc, repo_file, report, settings};

/// Tokens of a chunk, which starts with an empty context. Those of its second half are scored.
const CHUNK: usize = 256;
/// Chunks of the text that are read.
const CHUNKS: usize = 12;

/// Perplexity over the chunks.
fn perplexity(engine: &mut Engine, tokens: &[u32]) -> f64 {
    let (mut sum, mut scored) = (0.0, 0.0);
    for chunk in tokens.chunks_exact(CHUNK).take(CHUNKS) {
        engine.reset();
        let (context, rest) = chunk.split_at(CHUNK / 2);
        engine.prefill(context, |_| ()).unwrap();
        // The logits after a token are those of the next one.
        for (n, step) in rest.chunks(MAX_VERIFY as usize).enumerate() {
            engine.decode_many(step).unwrap();
            let next = rest.iter().skip(n * MAX_VERIFY as usize + 1);
            for (row, &token) in next.take(step.len()).enumerate() {
                let logits = engine.logits(row);
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let all: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
                sum += all.ln() - f64::from(logits[token as usize] - most);
                scored += 1.0;
            }
        }
    }
    assert_eq!(scored as usize, CHUNKS * (CHUNK / 2 - 1), "the text is long enough");
    (sum / scored).exp()
}

#[test]
fn smaller_caches_cost_little_perplexity() {
    let model = Model::F16;
    let text = std::fs::read_to_string(repo_file("tests/data/compare.txt")).unwrap();
    let tokens = TextModel::read(&model.gguf()).unwrap().tokenizer.encode_prompt(&text).unwrap();
    let of = |caches| {
        let options = EngineOptions { n_ctx: Some(CHUNK as u32), caches, ..EngineOptions::default() };
        perplexity(&mut model.engine(inproc(settings()), &options), &tokens)
    };
    let plain = of(CacheTypes::default());
    // Most that they may cost, in hundredths.
    for (cache, most) in [(CacheType::Q8_0, 0.5), (CacheType::Q4R, 2.0)] {
        let found = of(CacheTypes::both(cache));
        let change = 100.0 * (found / plain - 1.0);
        report(format!("perplexity {plain:.4} with f16 caches, {found:.4} with {cache}: {change:+.2} %"));
        assert!(change < most, "{cache}: {change:.2} %");
    }
}

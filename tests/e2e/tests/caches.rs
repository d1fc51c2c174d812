//! What smaller number formats of caches cost: perplexity on a text of this repository.

use hexflash::engine::EngineOptions;
use hexflash::model::{CacheType, CacheTypes};
use hexflash::text::TextModel;
use hexflash_e2e::{Model, inproc, perplexity, repo_file, report, settings};

/// Tokens of a chunk, which starts with an empty context. Those of its second half are scored.
const CHUNK: usize = 256;
/// Chunks of the text that are read.
const CHUNKS: usize = 12;

#[test]
fn smaller_caches_cost_little_perplexity() {
    let model = Model::F16;
    let text = std::fs::read_to_string(repo_file("tests/data/compare.txt")).unwrap();
    let tokens = TextModel::read(&model.gguf()).unwrap().tokenizer.encode_prompt(&text).unwrap();
    let of = |caches| {
        let options = EngineOptions { n_ctx: Some(CHUNK as u32), caches, ..EngineOptions::default() };
        perplexity(&mut model.engine(inproc(settings()), &options), &tokens, CHUNK, CHUNKS)
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

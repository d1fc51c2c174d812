//! Generations with and without drafts.

use hexflash::device::inproc::Settings;
use hexflash::engine::Engine;
use hexflash::generate::{Generated, Limits};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, Speculation};
use hexflash::text::TextModel;
use hexflash_e2e::state::Snapshot;
use hexflash_e2e::{Model, generate, settings};

/// One thread: tests run side by side, and results do not depend on it.
pub fn quick() -> Settings {
    Settings { threads: 1, ..settings() }
}

pub fn greedy() -> SamplerParams {
    SamplerParams { temperature: 0.0, ..SamplerParams::default() }
}

pub fn limits(max_tokens: usize) -> Limits {
    Limits { max_tokens: Some(max_tokens), ignore_eos: true, ..Limits::default() }
}

pub fn model_drafts(n: u32) -> Speculation {
    Speculation::new(DraftSource::Model, DraftLength::Fixed(n))
}

pub fn text(model: Model) -> TextModel {
    TextModel::read(&model.gguf()).unwrap()
}

/// A generation from an empty context.
pub fn fresh(
    engine: &mut Engine,
    text: &TextModel,
    params: &SamplerParams,
    speculation: &mut Speculation,
    prompt: &[u32],
    limits: &Limits,
) -> Generated {
    engine.reset();
    let mut sampler = Sampler::new(params.clone()).unwrap();
    generate(engine, &text.tokenizer, (&mut sampler, speculation), prompt, limits, |_| true).unwrap()
}

/// The state after one more plain step with `token`, which folds whatever is on the tape.
pub fn closed(engine: &mut Engine, token: u32) -> Snapshot {
    engine.decode(token).unwrap();
    Snapshot::of(engine)
}

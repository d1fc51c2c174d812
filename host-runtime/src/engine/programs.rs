//! The programs of a loaded model, and the memory that they and their data take.

use hexflash_abi::BufferId;

use super::{EngineError, EngineOptions, batch, context};
use crate::device::DeviceInfo;
use crate::gguf::Gguf;
use crate::model::{
    Buffers, Config, DraftConfig, Features, IoLayout, MAX_VERIFY, Model, Rows, Shape, SpecLayout,
    StateLayout, WeightMap, WeightPlan,
};
use crate::record::Recorded;

/// Bytes that a loaded model takes, for `info`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    /// Weights as the device reads them.
    pub weights: u64,
    /// KV caches.
    pub kv: u64,
    /// Recurrent state and convolution rings.
    pub recurrent: u64,
    /// Activations, shared by all programs.
    pub activations: u64,
    /// What activations would take without reuse.
    pub activations_unshared: u64,
    /// Inputs and outputs.
    pub io: u64,
    /// What speculation takes on top of plain decoding; `None` without.
    pub speculation: Option<SpeculationMemory>,
    /// Program blocks.
    pub programs: u64,
    /// VTCM of the device.
    pub vtcm: u64,
    /// Positions of the caches.
    pub n_ctx: u32,
}

/// Bytes that speculation adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SpeculationMemory {
    /// Factor tapes of the recurrent layers.
    pub tape: u64,
    /// Rows of convolution rings beyond the history that plain decoding needs.
    pub conv_rows: u64,
    /// KV cache of the draft.
    pub draft_kv: u64,
    /// Weights of the draft.
    pub draft_weights: u64,
    /// Blocks of tokens, features that wait, tables.
    pub other: u64,
    /// What a copy of every state per token of a block would take instead (llama.cpp's scheme), for comparison.
    pub state_copies: u64,
}

impl SpeculationMemory {
    fn new(config: &Config, state: &StateLayout, spec: &SpecLayout, draft_weights: u64) -> Self {
        let l = &config.linear;
        let layers = spec.tapes.iter().flatten().count() as u64;
        let row = 4 * u64::from(l.channels());
        let history = u64::from(l.conv_kernel - 1);
        let one = 4 * u64::from(l.state) * u64::from(l.state) * u64::from(l.n_head_v) + history * row;
        Self {
            tape: spec.tape_bytes,
            conv_rows: layers * row * u64::from(state.ring_rows - l.conv_kernel),
            draft_kv: spec.draft_kv_bytes,
            draft_weights,
            other: spec.bytes - spec.tape_bytes - spec.draft_kv_bytes,
            state_copies: u64::from(MAX_VERIFY) * layers * one,
        }
    }

    /// Bytes that keep rejected tokens out of the states: what stands against [`Self::state_copies`].
    pub fn rollback(&self) -> u64 {
        self.tape + self.conv_rows
    }
}

/// A program of an engine; its number is its id on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// One token, its logits.
    Decode = 0,
    /// Up to [`MAX_VERIFY`] tokens, the logits of each; with speculation they may be taken back.
    Verify = 1,
    /// Up to a batch of tokens, the logits of the last.
    Prefill = 2,
    /// A speculative round.
    Round = 3,
    /// A block of drafts.
    Draft = 4,
    /// Features of plain steps, into the draft's caches.
    Inject = 5,
}

/// What a model's programs refer to.
#[derive(Debug)]
pub(super) struct Layouts {
    pub state: StateLayout,
    pub io: IoLayout,
    pub spec: Option<SpecLayout>,
}

impl Layouts {
    pub(super) fn new(
        config: &Config,
        draft: Option<&DraftConfig>,
        n_ctx: u32,
        options: &EngineOptions,
    ) -> Self {
        let speculate = options.speculate || draft.is_some();
        Self {
            state: StateLayout::new(config, n_ctx, speculate),
            io: IoLayout::new(config, options.batch.max(MAX_VERIFY), options.taps.len()),
            spec: speculate.then(|| SpecLayout::new(config, draft, n_ctx)),
        }
    }

    pub(super) fn model<'a>(
        &'a self,
        config: &'a Config,
        weights: &'a WeightMap,
        draft: Option<&'a DraftConfig>,
        buffers: Buffers,
    ) -> Model<'a> {
        let Self { state, io, spec } = self;
        Model { config, weights, state, io, spec: spec.as_ref(), draft, buffers }
    }
}

/// A model's programs before they are loaded: enough for a memory plan without weights.
pub(super) struct Programs {
    pub recorded: Vec<Recorded>,
}

impl Programs {
    /// Records every program that `model` has, by number.
    pub(super) fn record(model: &Model<'_>, options: &EngineOptions) -> Self {
        let all = |max_tokens, defer, features| Shape {
            max_tokens,
            rows: Rows::All,
            taps: Vec::new(),
            defer,
            features,
        };
        let prefill = Shape {
            max_tokens: options.batch,
            rows: Rows::One,
            taps: options.taps.clone(),
            defer: false,
            features: Features::Inject,
        };
        let mut recorded = vec![
            model.step(&all(1, false, Features::Keep)),
            model.step(&all(model.verify_tokens(), true, Features::Inject)),
            model.step(&prefill),
        ];
        if model.draft.is_some() {
            recorded.extend([model.round(), model.draft_block(), model.inject()]);
        }
        Self { recorded }
    }

    pub(super) fn activation_bytes(&self) -> u64 {
        self.recorded.iter().map(|r| r.activation_bytes).max().unwrap_or(0)
    }

    pub(super) fn memory(
        &self,
        config: &Config,
        layouts: &Layouts,
        (weights, draft_weights): (u64, u64),
        device: &DeviceInfo,
    ) -> MemoryPlan {
        let Layouts { state, io, spec } = layouts;
        let unshared = self.recorded.iter().map(|r| r.activation_bytes_unshared);
        MemoryPlan {
            weights,
            kv: state.kv_bytes,
            recurrent: state.recurrent_bytes,
            activations: self.activation_bytes(),
            activations_unshared: unshared.max().unwrap_or(0),
            io: io.bytes,
            speculation: spec.as_ref().map(|spec| SpeculationMemory::new(config, state, spec, draft_weights)),
            programs: self.recorded.iter().map(Recorded::block_bytes).sum(),
            vtcm: device.vtcm_bytes.into(),
            n_ctx: state.n_ctx,
        }
    }
}

/// What a model would take on a device, without loading it.
///
/// # Errors
/// As [`Engine::load`](super::Engine::load), as far as it can be known.
pub fn plan(
    gguf: &Gguf,
    draft: Option<&Gguf>,
    options: &EngineOptions,
    device: &DeviceInfo,
) -> Result<MemoryPlan, EngineError> {
    let config = &Config::read(gguf)?;
    let n_ctx = context(config, options.n_ctx)?;
    let options = &EngineOptions { batch: batch(options.batch, n_ctx)?, ..options.clone() };
    let [weight_buffer, state, io, spec, draft_buffer] = [0, 1, 2, 3, 4].map(BufferId);
    let plan = WeightPlan::of(gguf, config)?;
    let (entries, bytes) = crate::weights::layout(gguf, &plan.specs)?;
    let mut weights = WeightMap::new(plan, |label| entries.get(label).copied(), weight_buffer);
    let (mut draft_config, mut draft_bytes) = (None, 0);
    if let Some(gguf) = draft {
        let draft = DraftConfig::read(gguf, config)?;
        let plan = draft.weights(gguf, config)?;
        let (entries, bytes) = crate::weights::layout(gguf, &plan.specs)?;
        weights = weights.with(WeightMap::new(plan, |label| entries.get(label).copied(), draft_buffer));
        (draft_config, draft_bytes) = (Some(draft), bytes);
    }
    let layouts = Layouts::new(config, draft_config.as_ref(), n_ctx, options);
    let buffers = Buffers { state, io, spec };
    let programs =
        Programs::record(&layouts.model(config, &weights, draft_config.as_ref(), buffers), options);
    Ok(programs.memory(config, &layouts, (bytes, draft_bytes), device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AttentionConfig, LinearConfig, Mixer, RopeConfig};

    /// Qwen3.5-4B: 24 linear and 8 full layers, 16 key and 32 value heads of 128.
    fn qwen35_4b() -> Config {
        let rope =
            RopeConfig { n_dims: 64, freq_base: 1e7, freq_scale: 1.0, ext_factor: 0.0, n_ctx_orig: 262_144 };
        Config {
            arch: "qwen35".to_owned(),
            n_embd: 2560,
            n_ff: 9216,
            n_vocab: 248_320,
            n_ctx_train: 262_144,
            rms_eps: 1e-6,
            mixers: (1..=32).map(|i| if i % 4 == 0 { Mixer::Full } else { Mixer::Linear }).collect(),
            attention: AttentionConfig { n_head: 16, n_head_kv: 4, key_dim: 256, value_dim: 256, rope },
            linear: LinearConfig { n_head_k: 16, n_head_v: 32, state: 128, conv_kernel: 4 },
            tied: true,
        }
    }

    /// Against a copy of all states per token of a block, 804 MiB for this model.
    #[test]
    fn tapes_are_small() {
        let config = qwen35_4b();
        let state = StateLayout::new(&config, 4096, true);
        let memory = SpeculationMemory::new(&config, &state, &SpecLayout::new(&config, None, 4096), 0);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        assert_eq!(mib(memory.state_copies).round(), 804.0);
        assert!(mib(memory.tape) < 9.1, "{}", mib(memory.tape));
        assert!(mib(memory.conv_rows) < 11.3, "{}", mib(memory.conv_rows));
        assert_eq!(memory.other, 0);
        // Plain decoding has neither.
        let plain = StateLayout::new(&config, 4096, false);
        assert_eq!(state.recurrent_bytes - plain.recurrent_bytes, memory.conv_rows);
    }
}

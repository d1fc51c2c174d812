//! Settings of an engine.

use hexflash_abi::program::{MAX_SLOTS, MAX_TOKENS, Numerics};

use super::error::EngineError;
use crate::model::{CacheTypes, Decoder, DraftModel};
use crate::setting::Setting;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Positions of the caches of each sequence: `None` for the model's context length but at most 4096, 0
    /// for the model's context length.
    pub n_ctx: Option<u32>,
    /// Tokens of a prefill step.
    pub batch: u32,
    /// Number formats of the caches. Smaller ones make room for longer contexts; texts may differ a little
    /// from those of F16.
    pub caches: CacheTypes,
    /// Sequences that there is room for, at least 1.
    pub sequences: u32,
    /// Bytes for snapshots of recurrent states, with which sequences can be [rolled
    /// back](crate::engine::Sequence::roll_back) without computing their tokens again. 0 for none.
    pub snapshot_bytes: u64,
    /// Whether layers whose queries see a window keep the whole context. Otherwise they keep little more than
    /// the window, and a text that is [cut back](crate::engine::Sequence::roll_back) by more than a batch is
    /// computed again.
    pub whole_windows: bool,
    /// Layers whose input is kept for embeddings, drafts on another device, and tests (see
    /// [`StepShape::probes`](crate::model::StepShape::probes)).
    #[doc(hidden)]
    pub probes: Vec<u32>,
    /// Whether they are kept in steps of any kind, and not of prompts alone.
    #[doc(hidden)]
    pub probe_steps: bool,
    /// What the device's matrix unit (HMX) multiplies: nothing, the matrices of prompt pieces
    /// ([`fast`](Numerics::Fast)), or those of every step ([`hmx`](Numerics::Hmx)). A device that lends no
    /// unit refuses programs for one. One whose unit [failed its test](hexflash_abi::message::MatrixUnit) is
    /// used without it, with a [warning](crate::engine::Engine::warnings). Weights of types that the unit has
    /// no kernel for are multiplied as ever.
    pub numerics: Numerics,
    /// Whether to make room to take tokens back, for drafters without a model. A draft model implies it.
    pub speculate: bool,
    /// Whether steps give the vector of each token in place of logits, for [`embed`](crate::embed) and
    /// [`rerank`](crate::rerank). Then there are steps of prompts alone. Models whose tokens see later ones
    /// are refused without it, and take a text in one step, whatever [`batch`](Self::batch) says.
    #[doc(hidden)]
    pub vectors: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            n_ctx: None,
            batch: 256,
            caches: CacheTypes::default(),
            sequences: 1,
            snapshot_bytes: 0,
            whole_windows: false,
            numerics: Numerics::Exact,
            probes: Vec::new(),
            probe_steps: false,
            speculate: false,
            vectors: false,
        }
    }
}

/// Context length when the user names none: a quarter of a million positions of cache is not a sensible
/// default.
const DEFAULT_CTX: u32 = 4096;

impl EngineOptions {
    /// The context length of a model that was trained for `trained` positions.
    pub(super) fn context(&self, trained: u32) -> u32 {
        match self.n_ctx {
            None => trained.min(DEFAULT_CTX),
            Some(0) => trained,
            Some(n) => n,
        }
    }
}

/// The context length, and the options, as far as model and draft allow them.
pub(crate) fn settle(
    target: &Decoder,
    draft: Option<&dyn DraftModel>,
    options: &EngineOptions,
) -> Result<(u32, EngineOptions), EngineError> {
    let trained = target.n_ctx_train;
    let n_ctx = options.context(trained);
    let n_slots = options.sequences;
    if !(1..=MAX_SLOTS).contains(&n_slots) {
        let allowed = format!("1 to {MAX_SLOTS}");
        return Err(EngineError::Setting { setting: Setting::Sequences, allowed, found: n_slots.into() });
    }
    let caches = options.caches;
    let longest = target.longest_context(caches, n_slots);
    let longest = longest.min(draft.map_or(u32::MAX, |draft| draft.longest_context(caches, n_slots)));
    let block = draft.map_or(1, |draft| draft.block());
    let causal = target.is_causal();
    let allowed = if n_ctx > trained {
        format!("1 to {trained}, which the model was trained for")
    } else if n_ctx > longest {
        format!("1 to {longest}, as far as programs can address its caches")
    } else if !causal && n_ctx > MAX_TOKENS {
        format!("1 to {MAX_TOKENS}, because this model takes a text in one step")
    } else if n_ctx < block {
        format!("at least {block}, a block of the draft")
    } else {
        let mut options = EngineOptions { batch: batch(options.batch, n_ctx)?, ..options.clone() };
        if !causal {
            options = EngineOptions { batch: n_ctx, whole_windows: true, vectors: true, ..options };
        }
        return Ok((n_ctx, options));
    };
    Err(EngineError::Setting { setting: Setting::Context, allowed, found: n_ctx.into() })
}

fn batch(asked: u32, n_ctx: u32) -> Result<u32, EngineError> {
    if !(1..=MAX_TOKENS).contains(&asked) {
        let allowed = format!("1 to {MAX_TOKENS}");
        return Err(EngineError::Setting { setting: Setting::Batch, allowed, found: asked.into() });
    }
    Ok(asked.min(n_ctx))
}

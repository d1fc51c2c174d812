//! The Gemma 4 assistant: a draft of a few layers without keys and values, which read the target's caches.
//!
//! For the first draft it reads the embedding of the anchor, as the target has it, and the target's row of
//! the token before the anchor behind the last norm (zeros for the first token of a text). A matrix makes one
//! row of both. Its layers ask the target's caches, each those of the last layer that has caches and sees as
//! much of the context. A norm and its own LM head guess the token; another matrix makes of the normed row
//! what the next draft reads in place of the target's row. All drafts of a block are made at the anchor's
//! position, which nothing in the caches has yet: the tokens of a block do not see each other.
//!
//! Nothing of the text has to be computed for it. What it keeps is the target's last rows, since tokens may
//! be taken back.
//!
//! E2B and E4B have a head of two stages besides, by clusters of the vocabulary. As in llama.cpp all tokens
//! are scored instead.
//!
//! Formulas: llama.cpp's `src/models/gemma4-assistant.cpp` and `common/speculative.cpp`.

mod graph;

use hexflash_abi::op::params::Visibility;

use super::kind::DraftModel;
use crate::gguf::Gguf;
use crate::model::arch::gemma4;
use crate::model::block::{Attention, Layer, Mixer, Queries};
use crate::model::decoder::Decoder;
use crate::model::error::{DraftError, ModelError};
use crate::model::keys::{Keys, MAX_BLOCKS};

/// The architecture of its files.
pub(super) const ARCH: &str = "gemma4-assistant";

/// The architecture that it drafts for.
const TARGET: &str = "gemma4";

/// The key that counts its layers once more: in other architectures that many layers predict a token each.
const PREDICTS: &str = "nextn_predict_layers";

/// A Gemma 4 assistant.
#[derive(Clone, Debug, PartialEq)]
struct Assistant {
    /// Width of its residual stream.
    n_embd: u32,
    /// Width of the target's.
    n_embd_target: u32,
    /// Entries of the vocabulary.
    n_vocab: u32,
    /// Added to the mean of squares in its RMS norms, and in the target's last one.
    rms_eps: f32,
    target_eps: f32,
    /// Layers, each with the target's layer whose caches it reads.
    layers: Vec<Layer<Attention>>,
    /// The first of those layers of the target.
    caches_from: usize,
    /// The target's last layer, whose output it reads.
    taps: [u32; 1],
    /// The norm between that output and what it reads: the target's.
    target_norm: &'static str,
    /// Factor on the target's embeddings.
    embedding_scale: f32,
}

/// Reads an assistant and checks that it was made for `target`.
///
/// # Errors
/// A missing key, or an assistant for another target.
pub(super) fn read(
    gguf: &Gguf,
    keys: &Keys<'_>,
    target: &Decoder,
) -> Result<Box<dyn DraftModel>, ModelError> {
    let wrap = |error| ModelError::Draft { path: gguf.path().to_path_buf(), error };
    if target.arch != TARGET {
        let what = "the architecture that is drafted for";
        return Err(wrap(differs(what, TARGET, &target.arch)));
    }
    let n_embd = keys.require("embedding_length")?;
    let n_embd_target = keys.require("embedding_length_out")?;
    if n_embd_target != target.n_embd {
        let what = "the target's hidden size (embedding_length_out)";
        return Err(wrap(differs(what, n_embd_target, target.n_embd)));
    }
    let rows = gguf.require_tensor(crate::model::scope::EMBEDDING)?.ne[1];
    if rows != u64::from(target.n_vocab) {
        return Err(wrap(differs("the size of the vocabulary", rows, target.n_vocab)));
    }
    let n_layer = keys.require("block_count")?;
    keys.at_most("block_count", n_layer, MAX_BLOCKS)?;
    let predicts = keys.meta().u32_or(&keys.key(PREDICTS), n_layer)?;
    if predicts != n_layer {
        return Err(keys.bad(PREDICTS, predicts, &format!("{n_layer}, the number of layers")));
    }
    let (rms_eps, n_ctx_train) = (keys.rms_eps()?, keys.context_length()?);
    let windows = gemma4::windows(keys, n_layer)?;
    let n_head = keys.per_layer("attention.head_count", n_layer)?;
    let kv_heads = keys.per_layer("attention.head_count_kv", n_layer)?;
    let n_ff = keys.per_layer("feed_forward_length", n_layer)?;
    let layer = |i: usize| {
        let (home, caches) = caches_of(target, windows[i] > 0, i).map_err(wrap)?;
        let sizes = (n_embd, n_ctx_train, rms_eps);
        let attention = gemma4::attention(keys, windows[i], [n_head[i], kv_heads[i]], sizes)?;
        reads(&attention, caches).map_err(wrap)?;
        let (queries, visibility) = (Queries::OfTarget(home), Visibility::Past);
        let attention = Attention { queries, visibility, value_norm: None, ..attention };
        let mlp = gemma4::mlp(n_embd, n_ff[i]);
        Ok(Layer { norms: gemma4::norms(rms_eps), ..Layer::new(n_embd, rms_eps, attention, mlp) })
    };
    let layers = (0..n_layer as usize).map(layer).collect::<Result<Vec<_>, ModelError>>()?;
    let homes = layers.iter().filter_map(|layer| match layer.mixer.queries {
        Queries::OfTarget(home) => Some(home),
        Queries::WithKeys | Queries::Apart | Queries::Alone(_) => None,
    });
    Ok(Box::new(Assistant {
        n_embd,
        n_embd_target,
        n_vocab: target.n_vocab,
        rms_eps,
        target_eps: target.rms_eps,
        caches_from: homes.min().unwrap_or(0),
        layers,
        taps: [target.layers.len() as u32],
        target_norm: target.output_norm,
        embedding_scale: target.scales.embedding,
    }))
}

fn differs(what: &'static str, draft: impl ToString, target: impl ToString) -> DraftError {
    DraftError::Mismatch { what, draft: draft.to_string(), target: target.to_string() }
}

/// The last layer of the target that has caches and sees a window, or else all of the context: whose caches
/// layer `layer` of the assistant reads.
fn caches_of(target: &Decoder, near: bool, layer: usize) -> Result<(usize, &Attention), DraftError> {
    let mut layers = target.layers.iter().enumerate().rev();
    let found = layers.find_map(|(i, layer)| match &layer.mixer {
        Mixer::Attention(attention)
            if attention.queries == Queries::WithKeys && (attention.window > 0) == near =>
        {
            Some((i, attention))
        }
        _ => None,
    });
    let sight = if near { "a window" } else { "all of the context" };
    found.ok_or(DraftError::NoCaches { layer, sight })
}

/// That queries of an assistant's layer can read those caches.
fn reads(own: &Attention, caches: &Attention) -> Result<(), DraftError> {
    for (what, draft, target) in [
        ("the width of a key", own.key_dim, caches.key_dim),
        ("the width of a value", own.value_dim, caches.value_dim),
        ("the number of key and value heads", own.n_head_kv, caches.n_head_kv),
        ("the window of attention", own.window, caches.window),
    ] {
        if draft != target {
            return Err(differs(what, draft, target));
        }
    }
    Ok(())
}

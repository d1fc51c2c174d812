//! Multi-token prediction (MTP, also called NextN): a draft that is one more layer of its target, in the
//! target's own file or in one beside it.
//!
//! For the token after position p the head reads the token's embedding, and the target's row of position p
//! behind its last norm (zeros for the first token of a text). A matrix makes one row of both; a layer of
//! attention and MLP follows, with caches of its own over the whole text, then a norm and the LM head. For
//! the draft after that one, the drafted token takes the token's place and the normed row the target's: a
//! *chain*, each link of which is a step of one token.
//!
//! Formulas: llama.cpp's `src/models/qwen35.cpp` and `common/speculative.cpp`.

mod graph;

use super::kind::DraftModel;
use crate::gguf::Gguf;
use crate::model::arch;
use crate::model::block::{Attention, Layer, Mixer, Queries};
use crate::model::decoder::Decoder;
use crate::model::error::{DraftError, ModelError};
use crate::model::keys::Keys;
use crate::model::scope::{EMBEDDING, Scope};

/// The key that counts heads.
const HEADS: &str = "nextn_predict_layers";

/// The matrix in front of the layer, which every head has.
const PROJECTION: &str = "nextn.eh_proj.weight";
const EMBEDDING_NORM: &str = "nextn.enorm.weight";
const HIDDEN_NORM: &str = "nextn.hnorm.weight";
/// What a head may have instead of the target's.
const OWN_EMBEDDING: &str = "nextn.embed_tokens.weight";
const OWN_HEAD: &str = "nextn.shared_head_head.weight";
const OWN_NORM: &str = "nextn.shared_head_norm.weight";

/// An MTP head.
#[derive(Clone, Debug, PartialEq)]
struct Mtp {
    /// Width of the residual stream.
    n_embd: u32,
    /// Entries of the vocabulary.
    n_vocab: u32,
    /// Added to the mean of squares in every RMS norm.
    rms_eps: f32,
    /// Its layer, and the layer's number in the file: it comes after the target's.
    layer: Layer<Attention>,
    number: usize,
    /// The target's last layer, whose output it reads.
    taps: [u32; 1],
    /// The norm between that output and what it reads: the target's.
    target_norm: &'static str,
    /// Labels of the embedding, of the norm before the LM head, and of the LM head.
    embedding: String,
    norm: String,
    head: String,
}

/// The part of the head's names that they share.
const fn scope(number: usize) -> Scope {
    Scope::DRAFT.layer(number)
}

/// Whether a file is a head without the model that it belongs to.
pub(super) fn is_alone(gguf: &Gguf, keys: &Keys<'_>) -> bool {
    heads(keys) > 0 && gguf.tensor(&Scope::TARGET.layer(0).name("attn_norm.weight")).is_none()
}

/// How many heads the metadata promise.
fn heads(keys: &Keys<'_>) -> u32 {
    keys.meta().u32_or(&keys.key(HEADS), 0).unwrap_or(0)
}

/// Whether the file of a model has a head beside the model's own tensors. Some files have lost the tensors of
/// the head, and not the key that counts heads.
pub(super) fn is_inside(gguf: &Gguf, keys: &Keys<'_>) -> bool {
    let last = keys.require("block_count").map_or(0, |layers| layers as usize - 1);
    let has_tensors = gguf.tensor(&scope(last).name(PROJECTION)).is_some();
    has_tensors && heads(keys) == 1 && !is_alone(gguf, keys)
}

/// Reads a head and checks that it was made for `target`.
///
/// # Errors
/// No head, several of them, a missing key, or a head for another target.
pub(super) fn read(
    gguf: &Gguf,
    keys: &Keys<'_>,
    target: &Decoder,
) -> Result<Box<dyn DraftModel>, ModelError> {
    let wrap = |error| ModelError::Draft { path: gguf.path().to_path_buf(), error };
    match keys.meta().u32_or(&keys.key(HEADS), 0)? {
        0 => return Err(wrap(DraftError::NoHead { key: keys.key(HEADS) })),
        1 => {}
        n => return Err(keys.bad(HEADS, n, "1")),
    }
    if let Some(own) = arch::read(gguf, keys)? {
        belongs_to(&own, target).map_err(wrap)?;
    }
    let layer = target.layers.iter().find_map(|layer| match &layer.mixer {
        // Of the text before the anchor only keys and values are wanted.
        Mixer::Attention(attention) => {
            Some(layer.with_mixer(Attention { queries: Queries::Apart, ..attention.clone() }))
        }
        _ => None,
    });
    let number = target.layers.len();
    let label_of = |own: &str, targets: &str| match gguf.tensor(&scope(number).name(own)) {
        Some(_) => scope(number).label(own),
        None => Scope::TARGET.label(targets),
    };
    Ok(Box::new(Mtp {
        n_embd: target.n_embd,
        n_vocab: target.n_vocab,
        rms_eps: target.rms_eps,
        layer: layer.ok_or_else(|| wrap(DraftError::NoAttention))?,
        number,
        taps: [number as u32],
        target_norm: target.output_norm,
        embedding: label_of(OWN_EMBEDDING, EMBEDDING),
        norm: label_of(OWN_NORM, target.output_norm),
        head: label_of(OWN_HEAD, target.head()),
    }))
}

/// The model that a head was made for, as its own file describes it, must be the target.
fn belongs_to(own: &Decoder, target: &Decoder) -> Result<(), DraftError> {
    let differ = |what, draft: String, target: String| Err(DraftError::Mismatch { what, draft, target });
    if own.arch != target.arch {
        return differ("the architecture", own.arch.clone(), target.arch.clone());
    }
    for (what, draft, target) in [
        ("the hidden size", own.n_embd, target.n_embd),
        ("the number of layers", own.layers.len() as u32, target.layers.len() as u32),
        ("the size of the vocabulary", own.n_vocab, target.n_vocab),
    ] {
        if draft != target {
            return differ(what, draft.to_string(), target.to_string());
        }
    }
    match own.layers.iter().zip(&target.layers).position(|(own, target)| own != target) {
        Some(layer) => Err(DraftError::OtherLayer { layer }),
        None => Ok(()),
    }
}

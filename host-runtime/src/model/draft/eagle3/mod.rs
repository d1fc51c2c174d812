//! EAGLE3: a draft of one layer, which reads three layers of its target.
//!
//! A matrix makes one row of what a position has in the three tapped layers: its *fused* row. For the token
//! after position p the layer reads the token's embedding and the fused row of position p, each behind a norm
//! of its own, one after the other: attention is twice as wide as the stream on that side, and has caches of
//! its own over the whole text. What attention and MLP make is added to the fused row (or to that behind its
//! norm, in some files), and a norm and the LM head guess the next token. For the draft after that one, the
//! drafted token takes the token's place and the layer's output the fused row's: a *chain*, each link of
//! which is a step of one token. The first token of a text has no row before it, and no token attends to it.
//!
//! llama.cpp has the pair of a token and the row before it at the row's position, and hexflash at the
//! token's. As rotary embeddings tell how far positions are apart, that is the same.
//!
//! Formulas: llama.cpp's `src/models/eagle3.cpp` and `common/speculative.cpp`.

mod graph;

use hexflash_abi::op::params::RopeMode;

use super::kind::DraftModel;
use super::table::Table;
use super::taps;
use crate::gguf::Gguf;
use crate::model::block::{Attention, Layer, Mlp, Queries, Rope};
use crate::model::decoder::Decoder;
use crate::model::error::{DraftError, ModelError};
use crate::model::kept::Purpose;
use crate::model::keys::{Keys, LIMIT};

/// The architecture of its files.
pub(super) const ARCH: &str = "eagle3";

/// Layers of the target that it reads.
const TAPS: usize = 3;

/// An EAGLE3 draft.
#[derive(Clone, Debug, PartialEq)]
struct Eagle3 {
    /// Width of the residual stream.
    n_embd: u32,
    /// Added to the mean of squares in every RMS norm.
    rms_eps: f32,
    /// Its layer, whose attention reads two rows of the stream's width.
    layer: Layer<Attention>,
    /// Target layers whose input is tapped. Which row of the last one's output a draft would read, before the
    /// norm or behind it, files do not say, so that no layer behind it is tapped.
    taps: Vec<u32>,
    /// Width of the taps of a token, one after the other.
    tap_width: u32,
    /// Whether the taps pass a norm before they are fused.
    norm_before_fusion: bool,
    /// Whether what the layer adds is added to the fused row behind its norm, and not to the row itself.
    norm_before_residual: bool,
    /// The embedding.
    embedding: Table,
    /// The LM head.
    head: Table,
    /// Target id of each row of a reduced head.
    d2t: Option<Vec<u32>>,
    /// What the fused row of the last token is kept for: of a target with recurrent states it is one of them,
    /// so that a text which goes on from a snapshot has it again.
    fused: Purpose,
}

/// Reads a draft and checks that it was made for `target`.
///
/// # Errors
/// A missing key, or a draft for another target.
pub(super) fn read(
    gguf: &Gguf,
    keys: &Keys<'_>,
    target: &Decoder,
) -> Result<Box<dyn DraftModel>, ModelError> {
    let layers = keys.require("block_count")?;
    if layers != 1 {
        return Err(keys.bad("block_count", layers, "1"));
    }
    let (n_embd, n_ctx_train, rms_eps) =
        (keys.require("embedding_length")?, keys.context_length()?, keys.rms_eps()?);
    let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
    attention.require_equal_widths(keys)?;
    let rope = attention.rope.map(|rope| Rope { pairs: RopeMode::Norm, ..rope.with_factors(keys) });
    let attention =
        Attention { n_in: 2 * n_embd, rope, norm: None, queries: Queries::Apart, first: 1, ..attention };
    let wrap = |error| ModelError::Draft { path: gguf.path().to_path_buf(), error };
    let (taps, hidden) = (taps::read(keys)?, keys.require("target_hidden_size")?);
    let (embedding, head) = (Table::embedding(gguf, target), Table::head(gguf, target));
    belongs_to(target, n_embd, hidden, &taps, [&embedding, &head]).map_err(wrap)?;
    Ok(Box::new(Eagle3 {
        n_embd,
        rms_eps,
        layer: Layer::new(n_embd, rms_eps, attention, Mlp::read(keys, n_embd)?),
        tap_width: TAPS as u32 * target.n_embd,
        taps,
        norm_before_fusion: keys.meta().bool_or(&keys.key("norm_before_fc"), false)?,
        norm_before_residual: keys.meta().bool_or(&keys.key("norm_before_residual"), false)?,
        embedding,
        d2t: head.ids(gguf, target)?,
        head,
        fused: if target.state_bytes() > 0 { Purpose::Recurrent } else { Purpose::DraftRows },
    }))
}

/// Refuses a draft of this width, with these taps, embedding and head, for a target of the width `hidden`,
/// where that is not `target`.
fn belongs_to(
    target: &Decoder,
    n_embd: u32,
    hidden: u32,
    taps: &[u32],
    [embedding, head]: [&Table; 2],
) -> Result<(), DraftError> {
    let layers = target.layers.len() as u32;
    let last = taps.last().copied().unwrap_or(0);
    let shares = !embedding.is_own() || !head.is_own();
    let most = LIMIT / TAPS as u32;
    let checks = [
        ("the target's hidden size", hidden == target.n_embd, hidden, target.n_embd.to_string()),
        ("the target's hidden size", hidden <= most, hidden, format!("at most {most}")),
        ("the number of tapped layers", taps.len() == TAPS, taps.len() as u32, TAPS.to_string()),
        ("the last tapped layer", last < layers, last, format!("below {layers}")),
        ("the hidden size", !shares || n_embd == target.n_embd, n_embd, target.n_embd.to_string()),
        ("the size of the vocabulary", head.rows <= target.n_vocab, head.rows, target.n_vocab.to_string()),
    ];
    match checks.into_iter().find(|(_, fits, ..)| !fits) {
        Some((what, _, draft, target)) => {
            Err(DraftError::Mismatch { what, draft: draft.to_string(), target })
        }
        None => Ok(()),
    }
}

//! Hyper-parameters of a DFlash or DSpark draft, and whether it belongs to a target.

use hexflash_abi::op::params::Visibility;

use crate::gguf::Gguf;
use crate::model::block::{Attention, Layer, Mlp, Queries};
use crate::model::decoder::Decoder;
use crate::model::draft::table::Table;
use crate::model::draft::taps;
use crate::model::error::{DraftError, ModelError};
use crate::model::keys::{Keys, LIMIT, MAX_BLOCKS};
use crate::model::limits::MAX_VERIFY;

/// A DFlash v1 draft, or a DSpark draft, which is one with a [`Chain`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DFlash {
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Added to the mean of squares in every RMS norm.
    pub rms_eps: f32,
    /// The layers, each with a window of its own.
    pub layers: Vec<Layer<Attention>>,
    /// The anchor, and the drafts that may follow it.
    pub block: u32,
    /// Id of the mask token.
    pub mask: u32,
    /// Target layers whose input is tapped; the number of layers means the last one's output.
    pub taps: Vec<u32>,
    /// Width of the taps of a token, one after the other.
    pub tap_width: u32,
    /// Factor on embeddings.
    pub embedding_scale: f32,
    /// The embedding, and its rows.
    pub embedding: Table,
    /// The LM head, and its rows.
    pub head: Table,
    /// Target id of each row of a reduced head.
    pub d2t: Option<Vec<u32>>,
    /// Chain that makes each draft depend on the one before it, if there is one.
    pub chain: Option<Chain>,
}

/// DSpark's head of low rank: the logits of a row get W2 W1\[prev\] on top, where prev is the draft before
/// it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chain {
    /// Rank of the two matrices.
    pub rank: u32,
    /// Rows of the first one: a token each.
    pub n_vocab: u32,
    /// Whether the anchor's row guesses the first draft. Otherwise it is the row after it, as in DFlash.
    pub from_anchor: bool,
}

/// The two matrices of a chain.
pub(super) const MARKOV: [&str; 2] = ["markov_w1.weight", "markov_w2.weight"];

impl DFlash {
    /// Reads a draft and checks that it was made for `target`.
    ///
    /// # Errors
    /// Not a DFlash v1 draft, a missing key, or a draft for another target.
    pub(super) fn read(gguf: &Gguf, keys: &Keys<'_>, target: &Decoder) -> Result<Self, ModelError> {
        let wrap = |error| ModelError::Draft { path: gguf.path().to_path_buf(), error };
        if gguf.tensor("selector_hidden.weight").is_some() {
            return Err(wrap(DraftError::Kind { kind: "DFlash v2" }));
        }
        if gguf.tensor("enc.output_norm.weight").is_none() {
            let what = "there is no tensor enc.output_norm.weight".to_owned();
            return Err(wrap(DraftError::OldConverter { what }));
        }
        let meta = keys.meta();
        let n_embd = keys.require("embedding_length")?;
        let n_layer = keys.require("block_count")?;
        keys.at_most("block_count", n_layer, MAX_BLOCKS)?;
        let n_ctx_train = keys.context_length()?;
        let rms_eps = keys.rms_eps()?;
        let attention = Attention::read(keys, n_embd, n_ctx_train, rms_eps)?;
        let mlp = Mlp::read(keys, n_embd)?;
        let windows = Self::windows(keys, n_layer)?;
        let causal = meta.bool_or(&keys.key("attention.causal"), false)?;
        let attention = Attention {
            scale: keys.finite("attention.scale", attention.scale)?,
            visibility: if causal { Visibility::Causal } else { Visibility::Block },
            queries: Queries::Apart,
            ..attention
        };
        let chain = Self::chain(gguf, keys, target)?;
        let rows = meta.u32_or(&keys.key("block_size"), 16)?;
        if !(2..=MAX_VERIFY).contains(&rows) {
            return Err(keys.bad("block_size", rows, &format!("2 to {MAX_VERIFY}")));
        }
        // A step that verifies has no more rows.
        let block = (rows + u32::from(chain.is_some_and(|chain| chain.from_anchor))).min(MAX_VERIFY);
        let layer = |window| {
            let attention = Attention { window, ..attention.clone() };
            Layer::new(n_embd, rms_eps, attention, mlp.clone())
        };
        let draft = Self {
            n_embd,
            rms_eps,
            layers: windows.into_iter().map(layer).collect(),
            block,
            mask: Self::mask(keys)?.ok_or_else(|| wrap(DraftError::NoMask))?,
            taps: taps::read(keys)?,
            tap_width: 0,
            embedding_scale: keys.finite("embedding_scale", 1.0)?,
            embedding: Table::embedding(gguf, target),
            head: Table::head(gguf, target),
            d2t: None,
            chain,
        };
        let activation = meta.str_opt(&keys.key("hidden_activation"))?.unwrap_or("silu");
        if activation != "silu" {
            return Err(keys.bad("hidden_activation", activation, "silu"));
        }
        draft.belongs_to(target).map_err(wrap)?;
        let (fc, tap_width) =
            (gguf.require_tensor("fc.weight")?.ne[0], draft.taps.len() as u32 * target.n_embd);
        if fc != u64::from(tap_width) {
            let what = "the width of the tapped layers together (fc.weight)";
            let target = format!("{tap_width} ({} layers of {})", draft.taps.len(), target.n_embd);
            return Err(wrap(DraftError::Mismatch { what, draft: fc.to_string(), target }));
        }
        let d2t = draft.head.ids(gguf, target)?;
        Ok(Self { d2t, tap_width, ..draft })
    }

    /// The chain of a DSpark draft. Its matrices' shapes are checked with those of all weights.
    fn chain(gguf: &Gguf, keys: &Keys<'_>, target: &Decoder) -> Result<Option<Chain>, ModelError> {
        let Some(first) = gguf.tensor(MARKOV[0]) else { return Ok(None) };
        let rank = u32::try_from(first.ne[0]).ok().filter(|&rank| rank <= LIMIT).unwrap_or(LIMIT);
        let from_anchor = keys.meta().bool_or(&keys.key("sample_from_anchor"), true)?;
        Ok(Some(Chain { rank, n_vocab: target.n_vocab, from_anchor }))
    }

    /// Name of the kind of draft.
    pub(super) fn kind(&self) -> &'static str {
        if self.chain.is_some() { "DSpark" } else { "DFlash v1" }
    }

    fn windows(keys: &Keys<'_>, n_layer: u32) -> Result<Vec<u32>, ModelError> {
        let meta = keys.meta();
        let window = meta.u32_or(&keys.key("attention.sliding_window"), 0)?;
        let name = "attention.sliding_window_pattern";
        if window == 0 {
            return Ok(vec![0; n_layer as usize]);
        }
        let pattern = meta.array_bool(&keys.key(name))?.unwrap_or_default();
        if pattern.len() != n_layer as usize {
            let expected = format!("one flag for each of {n_layer} layers");
            return Err(keys.bad(name, format!("{} flags", pattern.len()), &expected));
        }
        Ok(pattern.iter().map(|&sliding| if sliding { window } else { 0 }).collect())
    }

    /// The mask token, under the vocabulary's key or that of forks and older files.
    fn mask(keys: &Keys<'_>) -> Result<Option<u32>, ModelError> {
        let meta = keys.meta();
        let mask = meta.u32_opt("tokenizer.ggml.mask_token_id")?;
        Ok(match mask {
            Some(mask) => Some(mask),
            None => meta.u32_opt(&keys.key("mask_token_id"))?,
        })
    }

    fn belongs_to(&self, target: &Decoder) -> Result<(), DraftError> {
        let differ = |what, draft: String, target: String| Err(DraftError::Mismatch { what, draft, target });
        let layers = target.layers.len() as u32;
        if self.taps.contains(&0) {
            let what =
                format!("dflash.target_layers is {:?}, but no layer comes before the first", self.taps);
            return Err(DraftError::OldConverter { what });
        }
        if let Some(&last) = self.taps.last().filter(|&&last| last > layers) {
            return differ("the last tapped layer", last.to_string(), format!("at most {layers}"));
        }
        let shares = !self.embedding.is_own() || !self.head.is_own();
        if shares && self.n_embd != target.n_embd {
            return differ("the hidden size", self.n_embd.to_string(), target.n_embd.to_string());
        }
        let most = LIMIT / target.n_embd;
        if self.taps.len() as u64 > u64::from(most) {
            return differ(
                "the number of tapped layers",
                self.taps.len().to_string(),
                format!("at most {most}"),
            );
        }
        if self.head.rows > target.n_vocab {
            let (draft, target) = (self.head.rows.to_string(), target.n_vocab.to_string());
            return differ("the size of the vocabulary", draft, target);
        }
        if self.mask >= target.n_vocab {
            return differ("the mask token's id", self.mask.to_string(), format!("below {}", target.n_vocab));
        }
        Ok(())
    }
}

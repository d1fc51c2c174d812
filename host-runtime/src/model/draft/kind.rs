//! What every kind of draft model does, and what rounds need of it.

use std::fmt::Debug;

use hexflash_abi::DType;

use crate::gguf::Gguf;
use crate::model::cache_types::CacheTypes;
use crate::model::decoder::Decoder;
use crate::model::error::{DraftError, ModelError};
use crate::model::graph::Graph;
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::limits::{MAX_PENDING, MAX_VERIFY};
use crate::model::scope::Scope;
use crate::model::tensors::{WeightPlan, WeightPlanner};
use crate::record::{RecordError, Tensor};

/// The block to verify, kept in [`Scope::DRAFT`]: the anchor, then drafts, I32 `{1 + 2 * MAX_VERIFY}`, so
/// that the token axis can begin at any draft.
pub const BLOCK: &str = "block";

/// The features that plain steps left for the draft, kept in [`Scope::DRAFT`]:
/// F32 `{tap width, MAX_PENDING}`.
pub const PENDING: &str = "pending";

/// A draft model: it reads the residual stream of some layers of its target (the *taps*, together the
/// *features* of a token), and guesses the tokens that follow an *anchor*, the last token of the text.
///
/// What it reads of the text before the anchor it *observes*: the steps that run these tokens hand their
/// features over.
///
/// All labels of its tensors begin with `draft.`; it runs in the last session.
pub trait DraftModel: Debug + Send + Sync {
    /// Layers of the target whose input is tapped, rising; the number of layers means the last one's output.
    fn taps(&self) -> &[u32];

    /// Tokens of a block at most: the anchor and the drafts that follow it.
    fn block(&self) -> u32;

    /// Whether drafts are made one after the other, so that each costs as much as the one before it.
    /// Otherwise a whole block costs the same, however many of its drafts are wanted.
    fn is_chain(&self) -> bool;

    /// Whether it reads the target's embedding.
    fn shares_embedding(&self) -> bool;

    /// The first of the target's layers whose caches it reads, if it reads any: then these layers are in the
    /// last session with it, and it is on the target's device.
    fn reads_caches_from(&self) -> Option<usize>;

    /// The longest context whose caches, for `n_slots` sequences, programs can describe.
    fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32;

    /// The weights, with their shapes checked against the file.
    ///
    /// # Errors
    /// A tensor is missing, has another shape, or is not one that the graph uses.
    fn weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError>;

    /// Declares what it keeps on the device.
    ///
    /// # Errors
    /// It is more than programs can describe.
    fn memory(&self, plan: &mut KeptPlanner) -> Result<(), RecordError>;

    /// What the host writes into kept tensors before the first program runs: label and values.
    fn tables(&self) -> Vec<(String, Vec<u32>)>;

    /// Whether [`observe`](Self::observe) reads the tokens that features belong to, and not the features
    /// alone.
    fn reads_tokens(&self) -> bool;

    /// Takes features {tap width, t} up, at the positions of their tokens{t}.
    fn observe(&self, g: &mut Graph<'_>, tokens: Tensor, features: Tensor);

    /// Where [`propose`](Self::propose) finds the anchor, I32 `{1}`.
    fn anchor(&self, g: &mut Graph<'_>) -> Tensor;

    /// Guesses `n_draft` tokens after the anchor, which is at position `n_past`: their ids go to [`BLOCK`]
    /// behind its first entry, and to the margins how sure each is. The step is as wide as
    /// [`block`](Self::block) at first. Afterwards it is as wide as the one that verifies the drafts,
    /// `1 + n_draft`, and the program may have ended: no op follows.
    fn propose(&self, g: &mut Graph<'_>);
}

/// The plan of a draft's weights, if it uses every tensor of the file but those that `may_be_unused`.
///
/// # Errors
/// Another tensor is not used: the file is of another kind than `kind`, in words.
pub(super) fn finish(
    plan: WeightPlanner<'_>,
    gguf: &Gguf,
    kind: &'static str,
    may_be_unused: impl Fn(&str) -> bool,
) -> Result<WeightPlan, ModelError> {
    match plan.unused(may_be_unused) {
        None => Ok(plan.finish()),
        Some(name) => Err(ModelError::Draft {
            path: gguf.path().to_path_buf(),
            error: DraftError::Unsupported { name: name.to_owned(), kind },
        }),
    }
}

/// Width of the features of a token: those of all taps, one after the other.
pub fn tap_width(draft: &dyn DraftModel, target: &Decoder) -> u32 {
    draft.taps().len() as u32 * target.n_embd
}

/// Declares what `draft` keeps, and what rounds with it do.
///
/// # Errors
/// As [`DraftModel::memory`].
pub fn keep(draft: &dyn DraftModel, target: &Decoder, plan: &mut KeptPlanner) -> Result<(), RecordError> {
    draft.memory(plan)?;
    plan.keep(Scope::DRAFT, BLOCK, Purpose::Rounds, (DType::I32, [1 + 2 * MAX_VERIFY, 1, 1, 1]))?;
    let features = [tap_width(draft, target), MAX_PENDING, 1, 1];
    plan.keep(Scope::DRAFT, PENDING, Purpose::Rounds, (DType::F32, features))
}

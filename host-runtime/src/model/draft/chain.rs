//! Chains: drafts that are made one after the other, each of which reads the one before it. Their tokens go
//! where those of drafts that are made at once go.

use hexflash_abi::op::params::NextDraft;
use hexflash_abi::program::TensorFlags;
use hexflash_abi::{DType, Op};

use super::kind::BLOCK as TOKENS;
use super::table::IDS;
use crate::model::graph::Graph;
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::scope::Scope;
use crate::record::{RecordError, Tensor};

/// Tokens of a block: the anchor, and the longest chain. Longer ones are hardly ever right to their end.
pub(super) const BLOCK: u32 = 8;

/// The anchor, I32 `{1}`.
const ANCHOR: &str = "anchor";

/// Declares the anchor.
///
/// # Errors
/// It is more than programs can describe.
pub(super) fn keep_anchor(plan: &mut KeptPlanner) -> Result<(), RecordError> {
    plan.keep(Scope::DRAFT, ANCHOR, Purpose::Rounds, (DType::I32, [1; 4]))
}

/// The anchor, I32 `{1}`.
pub(super) fn anchor(g: &mut Graph<'_>) -> Tensor {
    g.kept_part(&Scope::DRAFT.label(ANCHOR), 0, [1; 4], TensorFlags::empty())
}

/// Goes on with draft number `draft`: at the position after the last one, or at the anchor's if it `stays`
/// there. The program ends where no more drafts are wanted.
pub(super) fn next(g: &mut Graph<'_>, draft: u32, stays: bool) {
    g.rec.op_with(Op::NextDraft, &[], &[], &NextDraft { draft, stays: stays.into() });
}

/// Token `i` of the block, and those after it as far as the token axis goes.
pub(super) fn token(g: &mut Graph<'_>, i: u32, flags: TensorFlags) -> Tensor {
    let t = g.t();
    let token = g.kept_part(&Scope::DRAFT.label(TOKENS), i, [t, 1, 1, 1], flags);
    g.rec.tokens_on(token, 0)
}

/// Embeddings {n_embd,t} of tokens{t}, by the table of that label.
pub(super) fn embed(g: &mut Graph<'_>, table: &str, n_embd: u32, tokens: Tensor) -> Tensor {
    let table = g.weight(table);
    let x = g.activation([n_embd, g.t(), 1, 1], Some(1));
    g.rec.op(Op::GetRows, &[table, tokens], x);
    x
}

/// Two rows {n_embd,t}, each behind the norm of its label, one after the other as {2 n_embd,t}; and the
/// second of them alone.
pub(super) fn pair(g: &mut Graph<'_>, rows: [(Tensor, &str); 2], eps: f32) -> [Tensor; 2] {
    let n = g.rec.ne(rows[0].0)[0];
    let both = g.activation_like(rows[0].0, 2 * n);
    let halves = [0, n].map(|first| g.columns(both, first, n));
    for ((row, norm), half) in rows.into_iter().zip(halves) {
        g.rms_norm_into(row, norm, eps, half);
    }
    [both, halves[1]]
}

/// Room for the ids of draft number `draft` and those after it, as far as the token axis goes, I32 {t}, and
/// for their margins, F32 {t}.
pub(super) fn room(g: &mut Graph<'_>, draft: u32) -> [Tensor; 2] {
    let (t, io) = (g.t(), g.cx().io);
    // The tensors of the first draft reach over all others, so that they alone are handed to the host.
    let [on_drafts, on_margins] = match draft {
        0 => [TensorFlags::HOST_READS | g.shared(), TensorFlags::HOST_READS],
        _ => [TensorFlags::empty(); 2],
    };
    let drafts = token(g, draft + 1, on_drafts);
    let at = io.margins + 4 * u64::from(draft);
    let margins = g.io("margins", at, DType::F32, [t, 1, 1, 1], on_margins);
    g.rec.tokens_on(margins, 0);
    [drafts, margins]
}

/// The LM head of a chain.
#[derive(Clone, Copy)]
pub(super) struct Head<'h> {
    /// Label of its matrix {n_embd,rows}.
    pub label: &'h str,
    /// Rows of that matrix.
    pub rows: u32,
    /// Whether it has rows for some tokens only.
    pub reduced: bool,
}

/// Draft number `draft`: the best token of a row of normed{n_embd,t}.
pub(super) fn guess(g: &mut Graph<'_>, normed: Tensor, head: Head<'_>, draft: u32) {
    let (t, io) = (g.t(), g.cx().io);
    let logits = g.io("logits", io.logits, DType::F32, [head.rows, t, 1, 1], TensorFlags::empty());
    g.rec.tokens_on(logits, 1);
    g.linear_into(normed, head.label, logits);
    choose(g, logits, draft, head.reduced);
}

/// The best token of each row of logits{rows,t}: draft number `draft`, and those after it. Rows of a head
/// that is `reduced` have the ids that the draft [keeps](super::table::keep_ids).
pub(super) fn choose(g: &mut Graph<'_>, logits: Tensor, draft: u32, reduced: bool) {
    let t = g.t();
    let [drafts, margins] = room(g, draft);
    let best = if reduced { g.rec.activation(DType::I32, [t, 1, 1, 1]) } else { drafts };
    if reduced {
        g.rec.tokens_on(best, 0);
    }
    g.rec.op_with(Op::Argmax, &[Some(logits)], &[best, margins], &[0u32; 0]);
    if reduced {
        let table = g.kept(&Scope::DRAFT.label(IDS));
        let drafts = g.rec.view(drafts, 0, [1, t, 1, 1], [4, 4, 0, 0], Some(1));
        g.rec.op(Op::GetRows, &[table, best], drafts);
    }
}

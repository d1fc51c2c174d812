//! The chunked delta rule by the matrix unit: whole chunks of prompts, in programs of the class `fast`.
//!
//! The unit takes the products of keys and queries with the state and with keys, then those of p and keys
//! with u; see [the rule](super::chunk) for what these are. What is left is to make matrix tiles of the
//! state and of rows, the forward substitution, and to bring results home. A unit has one driver, but there
//! are many heads: while the unit multiplies for half of them, workers take the others through what is theirs
//! (`turn.rs`). States stay in VTCM for all of a step's chunks.
//!
//! What the unit multiplies is fp16. Each row, or each column, has a power of two for a scale, and a key's is
//! given to u where the sum is over tokens. Keys, queries, p and u have a second part, which is what the
//! first one leaves of them, and so have products of rows with keys: these 22 bits are in products with each
//! other, of which that of second parts is left out. The state and sums over it have one part, and so have
//! the sums of p, keys and u. Gates, a, the substitution and the state itself are floats.
//!
//! Chunks that are not whole, and those in which a value is not an ordinary one, are done without the unit:
//! so a prompt that is cut at multiples of 32 has the same bits as one that is not.

mod changes;
mod layout;
mod prepare;
mod results;
mod turn;

use hexflash_abi::op::gated_delta_net as abi;
use hexflash_abi::{ErrorCode, Fault};

use self::layout::Layout;
use self::turn::{Bring, Leave, Pass, Turn};
use super::chunk::CHUNK;
use super::kernel::{GatedDeltaNet, states_plan};
use super::tile::Tile;
use crate::plan::OpShapes;
use crate::pool::Workers;
use crate::step::Span;
use crate::vtcm::VtcmPlan;

/// The logarithm of what the unit multiplies sums with: they stay below 2^6, for lengths below 1 times
/// columns of up to 128 values below 2, and for 32 numbers up to 1 times values below 2.
const LOG_UNIT: i32 = 9;
/// What takes that back.
const UNIT: f32 = 1.0 / (1 << LOG_UNIT) as f32;
/// The same of the first part of products of rows with keys, which are at most 1; and of the second, which
/// counts what the first leaves.
const LOG_FIRST_UNIT: i32 = 4;
const LOG_SECOND_UNIT: i32 = 15;
const FIRST_UNIT: f32 = 1.0 / (1 << LOG_FIRST_UNIT) as f32;
const SECOND_UNIT: f32 = 1.0 / (1 << LOG_SECOND_UNIT) as f32;

/// The rows of a span before its first whole chunk, its whole chunks, and the rows after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanCut {
    before: usize,
    chunks: usize,
    after: usize,
}

impl SpanCut {
    fn of(span: &Span) -> Self {
        let before = (CHUNK - span.n_past % CHUNK) % CHUNK;
        match span.rows.checked_sub(before) {
            Some(rest) => Self { before, chunks: rest / CHUNK, after: rest % CHUNK },
            None => Self { before: span.rows, chunks: 0, after: 0 },
        }
    }
}

/// The layout for an op, of a kind that is done in chunks, if the unit has a kernel for it.
fn layout(shapes: &OpShapes<'_>) -> Option<Layout> {
    let ((v, _), (state, _)) = (shapes.optional(abi::V)?, shapes.optional(abi::STATE)?);
    let [heads, tokens, batches] = [v.ne[1], v.ne[2], v.ne[3]].map(|n| n as usize);
    let resources = shapes.resources;
    if resources.units.hmx == 0 || tokens < CHUNK {
        return None;
    }
    let tile = Tile::new(state.ne[0] as usize);
    Layout::fit(tile, heads.saturating_mul(batches), resources.workers, resources.vtcm_bytes)
}

/// Whether the unit's kernel runs an op of a kind that is done in chunks.
pub fn is_chosen(shapes: &OpShapes<'_>) -> bool {
    layout(shapes).is_some()
}

/// Room for the layout, or for what an op without the unit needs, which is `hvx`, if that is more; all of it
/// shared.
pub fn plan(shapes: &OpShapes<'_>, hvx: VtcmPlan) -> VtcmPlan {
    let workers = shapes.resources.workers;
    let bytes = |plan: VtcmPlan| plan.total(workers).unwrap_or(usize::MAX);
    let layout = layout(shapes).map_or(0, |layout| bytes(layout.plan()));
    VtcmPlan { shared: layout.max(bytes(hvx)), own: 0 }
}

/// Takes the spans that have whole chunks through them by the unit, and the others without it, in so many
/// bytes of VTCM.
///
/// # Errors
/// As [`super::run`].
pub fn run(of: &GatedDeltaNet<'_>, pool: &mut dyn Workers, bytes: usize) -> Result<(), Fault> {
    let (tile, workers) = (Tile::new(of.y.ne[0]), pool.workers());
    let without = |pool: &mut dyn Workers, spans: &[Span]| {
        let plan = states_plan(tile, of.tape.is_some(), true, workers, bytes).fit(workers, bytes)?;
        pool.run(&GatedDeltaNet { spans, ..*of }, plan)
    };
    let suits = |span: &Span| !span.defers(of.defer) && span.n_commit == 0 && SpanCut::of(span).chunks > 0;
    if !of.spans.iter().any(suits) {
        return without(pool, of.spans);
    }
    let heads = of.y.ne[1] * of.y.ne[3];
    let layout = Layout::fit(tile, heads, workers, bytes);
    let layout = layout.ok_or(Fault::new(ErrorCode::Internal, line!()))?;
    // Passes of about equal length.
    let most = heads.div_ceil(heads.div_ceil(layout.heads));
    for span in of.spans {
        if !suits(span) {
            without(pool, core::slice::from_ref(span))?;
            continue;
        }
        for first in (0..heads).step_by(most) {
            let heads = most.min(heads - first);
            let pass = Pass { of, span, cut: SpanCut::of(span), layout, first, heads };
            pool.run(&Bring(pass), layout.plan())?;
            for turn in 0..Turn::count(&pass) {
                pool.run(&Turn { pass, turn }, layout.plan())?;
            }
            pool.run(&Leave(pass), layout.plan())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_chunks_are_between_multiples_of_32() {
        let cut = |n_past, rows| {
            let span = Span { slot: 0, first: 0, rows, n_past, n_commit: 0, fold: false };
            let SpanCut { before, chunks, after } = SpanCut::of(&span);
            (before, chunks, after)
        };
        assert_eq!(cut(0, 31), (0, 0, 31));
        assert_eq!(cut(0, 32), (0, 1, 0));
        assert_eq!(cut(0, 100), (0, 3, 4));
        assert_eq!(cut(30, 1), (1, 0, 0));
        assert_eq!(cut(30, 2), (2, 0, 0));
        assert_eq!(cut(30, 70), (2, 2, 4));
        assert_eq!(cut(64, 33), (0, 1, 1));
    }
}

//! FLASH_ATTN_EXT and ATTEND by the matrix unit: pieces of prompts over caches of F16 and Q8_0, and over rows
//! of F16, in programs of the class `fast`.
//!
//! The rows of a kv head are its tokens' H/Hk query heads, 32 to a matrix tile. They go through the keys that
//! they see in passes of as many rows as VTCM holds, block by block of 256 positions (`turn.rs`):
//!
//! 1. keys are fetched: those of F16 are matrix tiles in their cache already (`fetch.rs`, `prepare.rs`),
//!    codes of Q8_0 (`codes.rs`) and rows (`rows.rs`) become such; and which positions a mask shows to nobody
//!    is found (`mask.rs`);
//! 2. the unit multiplies queries and keys;
//! 3. scores, with what a mask has for them, become weights, with a running maximum (`soften.rs`), and values
//!    are fetched and become matrix tiles;
//! 4. the unit multiplies weights and values;
//! 5. the sums are added, in f32, to those of the blocks before.
//!
//! A turn does each of these to another block: the thread that dispatches drives the unit, while the others
//! do the rest.
//!
//! What is rounded to f16: queries, weights, codes times their scales, and the sums of values of a block.
//! Scores have 22 bits. The bits of a result do not depend on workers and VTCM. But they are not those of an
//! exact kernel, and whether there are enough rows for the unit depends on the step.
//!
//! Of a query or a key that is not finite, each row that sees it becomes NaN, as in attention without the
//! unit. A value that is not finite is a fault, unless a mask hides it from all rows of its sequence.

mod codes;
mod fetch;
mod layout;
mod mask;
mod prepare;
mod rows;
mod soften;
mod turn;

use hexflash_abi::program::Numerics;
use hexflash_abi::{ErrorCode, Fault};

use self::fetch::can_be_tiles;
use self::layout::{Extent, Layout};
use self::turn::{Finish, MORE_TURNS, Pack, Pass, Turn};
use super::attention::{Attention, Sight};
use super::by_hvx;
use super::format::Format;
use super::operands::{in_caches, in_rows};
use super::plan::{AttendLayout, Sources, plan_of};
use super::positions::TILE;
use super::tuning::{LEAST_ROWS, LEAST_TOKENS};
use crate::kernels::shared::damage::Damage;
use crate::op_run::OpRun;
use crate::plan::OpShapes;
use crate::pool::Workers;
use crate::step::Span;
use crate::vtcm::VtcmPlan;

/// The layout for an op, if the unit has a kernel for it, and the program wants that one.
///
/// It is for programs of the class `fast` whose steps are wide enough; for formats that can be matrix tiles;
/// and for masks that all heads share, if there is one. Windows, soft caps and sinks make no difference.
fn layout(sources: Sources, shapes: &OpShapes<'_>) -> Option<Layout> {
    let ((q, _), (k, k_type)) = (shapes.optional(sources.q)?, shapes.optional(sources.keys)?);
    let (v, v_type) = shapes.optional(sources.values)?;
    let wanted = shapes.numerics == Numerics::Fast && shapes.resources.units.hmx > 0;
    let [d, heads, tokens, _] = q.ne.map(|n| n as usize);
    let rows = tokens * (heads / (k.ne[2] as usize).max(1));
    let wide = tokens >= LEAST_TOKENS && rows >= LEAST_ROWS;
    let shared = shapes.optional(sources.mask).is_none_or(|(mask, _)| mask.ne[2] == 1);
    let (keys, values, dv) = (Format::of_keys(k_type).ok()?, Format::of(v_type).ok()?, v.ne[0] as usize);
    if !(wanted && wide && shared && can_be_tiles([keys, values], [d, dv])) {
        return None;
    }
    let resources = shapes.resources;
    Layout::fit(extent(d, values.value_vectors(dv), rows), resources.workers, resources.vtcm_bytes)
}

fn extent(d: usize, columns: usize, rows: usize) -> Extent {
    Extent { k_tiles: d.div_ceil(TILE), columns, row_tiles: rows.div_ceil(TILE) }
}

/// The unit's plan for an op that it is chosen for: room for the layout, or for what attention without the
/// unit needs, if that is more; all of it shared. `hvx` is the plan of the latter.
pub(super) fn plan(sources: Sources, shapes: &OpShapes<'_>, hvx: VtcmPlan) -> Option<VtcmPlan> {
    let workers = shapes.resources.workers;
    let bytes = |plan: VtcmPlan| plan.total(workers).unwrap_or(usize::MAX);
    let layout = layout(sources, shapes)?;
    Some(VtcmPlan { shared: bytes(layout.plan()).max(bytes(hvx)), own: 0 })
}

/// FLASH_ATTN_EXT by the matrix unit, of sequences that have enough rows in the step.
///
/// # Errors
/// As [`super::run`]; and [`ErrorCode::NotFinite`] with the kv head for a value that is not finite.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let bytes = run.plan.vtcm.shared;
    in_caches(run, |attention, pool, spans| attend(attention, bytes, pool, spans))
}

/// ATTEND by the matrix unit.
///
/// # Errors
/// As [`super::attend`]; and [`ErrorCode::NotFinite`] with the kv head for a value that is not finite.
pub fn run_rows(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let bytes = run.plan.vtcm.shared;
    in_rows(run, |attention, pool, spans| attend(attention, bytes, pool, spans))
}

/// Attention in so many bytes of VTCM: of spans that have enough rows by the unit.
fn attend(attention: Attention, bytes: usize, pool: &mut dyn Workers, spans: &[Span]) -> Result<(), Fault> {
    let damage = Damage::none();
    let unit = ByUnit { attention, bytes, damage: &damage };
    if spans.iter().any(|span| unit.suits(span)) {
        for span in spans {
            if unit.suits(span) {
                unit.run(pool, span)?;
            } else {
                unit.without(pool, core::slice::from_ref(span))?;
            }
        }
    } else {
        unit.without(pool, spans)?;
    }
    damage.outcome()
}

/// Attention of a step, part of it by the unit.
struct ByUnit<'d> {
    attention: Attention,
    /// Bytes of VTCM.
    bytes: usize,
    damage: &'d Damage,
}

impl ByUnit<'_> {
    fn group(&self) -> usize {
        self.attention.q.ne[1] / self.attention.k_cache.ne[2]
    }

    /// Whether a span has enough rows, each of which sees something.
    fn suits(&self, span: &Span) -> bool {
        let Attention { sight, params, .. } = self.attention;
        let sees = !matches!(sight, Sight::Past) && span.n_past >= params.first as usize;
        span.rows * self.group() >= LEAST_ROWS && sees
    }

    /// Attention without the unit, in the same VTCM.
    fn without(&self, pool: &mut dyn Workers, spans: &[Span]) -> Result<(), Fault> {
        let Attention { q, k_cache, v_cache, keys, values, .. } = self.attention;
        let stage = AttendLayout::new(q.ne[0], v_cache.ne[0], keys, values);
        let shape = [q.ne[1], q.ne[2], q.ne[3]];
        let workers = pool.workers();
        let vtcm = plan_of(stage, shape, k_cache.ne[2], v_cache.ne[1], workers, self.bytes);
        by_hvx::run(&self.attention, pool, vtcm.fit(workers, self.bytes)?, spans)
    }

    /// Attention of a span by the unit.
    fn run(&self, pool: &mut dyn Workers, span: &Span) -> Result<(), Fault> {
        let Attention { q, k_cache, v_cache, values, .. } = self.attention;
        let all = span.rows * self.group();
        let extent = extent(q.ne[0], values.value_vectors(v_cache.ne[0]), all);
        let layout = Layout::fit(extent, pool.workers(), self.bytes);
        let layout = layout.ok_or(Fault::new(ErrorCode::Internal, line!()))?;
        // Passes of about equal length.
        let tiles = all.div_ceil(TILE);
        let most = tiles.div_ceil(tiles.div_ceil(layout.row_tiles)) * TILE;
        for batch in 0..q.ne[3] {
            for kv_head in 0..k_cache.ne[2] {
                for first in (0..all).step_by(most) {
                    let rows = first..(first + most).min(all);
                    let pass = Pass::new(self.attention, span, layout, [batch, kv_head], rows, self.damage);
                    self.pass(pool, pass)?;
                }
            }
        }
        Ok(())
    }

    fn pass(&self, pool: &mut dyn Workers, pass: Pass<'_>) -> Result<(), Fault> {
        let vtcm = pass.layout.plan();
        pool.run(&Pack(pass), vtcm)?;
        for turn in 0..pass.blocks + MORE_TURNS {
            pool.run(&Turn { pass, turn }, vtcm)?;
        }
        pool.run(&Finish(pass), vtcm)
    }
}

//! FLASH_ATTN_EXT: appends K and V of the step to their caches, then attends with an online softmax.
//!
//! q{D,H,T,B}, k_cache{D,N,Hk,B*S}, v_cache{Dv,N,Hk,B*S}, k{D,Hk,T,B} and v{Dv,Hk,T,B} to append (optional),
//! mask{N',T',H',B'} F16 (optional), sinks{H} (optional) -> y{Dv,H,T,B}. The caches of slot s of S are
//! entries s*B to s*B + B - 1, and rows of T belong to the slots of their spans. As in ggml
//! (`ggml_compute_forward_flash_attn_ext`), with kv head h / (H/Hk) for head h:
//!
//! ```text
//! x_p = scale q.k_p;  softcap tanh(x_p / softcap) if there is one;  + slope mask_p      for every visible p
//! y = sum_p exp(x_p) v_p / (sum_p exp(x_p) + exp(sink))                  0 if nothing is visible and no sink
//! ```
//!
//! slope is ALiBi's for head h where `max_bias` > 0, else 1. Query t of a span stands at the span's n_past +
//! t and sees the keys of its slot up to itself, or up to the span's last token (`Visibility::Block`), fewer
//! with a window or where the mask is -inf. What a cache holds at other positions, NaN included, has no
//! influence, but for the first key of a strip in a format that holds the others as parts of it, and for the
//! axis of such a format. At a position that a query sees, a score that is infinite or NaN makes all of its
//! row NaN. (In ggml NaN does, while infinity takes all the weight.) It is marked by an infinite maximum,
//! because arithmetic that knows no NaN would go on with a number.
//!
//! Queries and weights are rounded to f16, because HVX float multiplies 64 numbers of F16 caches with such at
//! once. The error is that of rounding keys and values to F16. Powers of two keep queries and weights in its
//! range, whatever they are. (ggml rounds queries, too.) The weight of a rotated value is multiplied by the
//! scale of this value, and rounded once more.
//!
//! Order of operations of one query, whatever else is in the step: positions in splits of 256 and tiles of
//! 32, aligned to multiples of these, from the first visible one up; within a tile, q.k over even d from 0
//! up, and over odd ones, then both together, then what the format adds; one running maximum per split; the
//! sum of weights per lane, folded at the end; values by position from low to high, but rotated ones over
//! even positions of a tile and over odd ones, then both together; splits from low to high. Tiles and splits
//! in which it sees nothing do not touch it. So a query's result depends on its own keys only, and it is the
//! same whether a worker does all splits or one (flash decoding).
//!
//! N is at least the context's length, or the caches are KV rings, with position p at p mod N.
//!
//! KV_APPEND does the first half alone, for keys and values whose queries nobody asks. ATTEND does the second
//! half alone, over keys and values that are rows of F16 or Q8_0 with any strides: every query sees all n of
//! them but those that the mask hides, and nothing depends on the registers. The order of operations is the
//! same. What a mask hides before and behind a band along its diagonal is not even fetched.
//!
//! * `format`: how caches hold keys and values, as F16, Q8_0 or rotated 4-bit codes, or as rows.
//! * `append`: rounds new rows to the format of their cache, and fails where one is too large for that or
//!   NaN, which a product with it may not show; a unit is a (span, kv head, batch), because neighbours share
//!   words.
//! * `attend`: a unit is a (span, kv head, batch, block of query rows), and where that is too few for all
//!   workers, one split of it. The tiles of K and V come to VTCM by DMA, double buffered, and each serves all
//!   rows of the unit: the H/Hk heads of several tokens.
//! * `band`: what a mask shows at most, in ATTEND.
//! * `query`: queries as products read them.
//! * `known`: the usual cases, for which `attend` is compiled by itself.
//! * `split`: puts together what was found in splits, and writes the result.
//! * `rotated`: rotates queries where keys are.
//! * `rotated_values`: sums of rotated values.
//! * `by_hmx`: pieces of prompts by the matrix unit, in another order of operations.

mod append;
mod attend;
mod band;
pub(super) mod by_hmx;
mod format;
mod known;
mod query;
mod rotated;
mod rotated_values;
mod split;
#[cfg(test)]
mod tests;
mod tile;

use hexflash_abi::op::params::{self, FlashAttn, Visibility};
use hexflash_abi::op::{Src, attend as rows, flash_attn as abi, kv_append};
use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use self::band::Band;
use self::format::Format;
use super::{Damage, OpRun, Variant};
use crate::hvx::{Hvx, LANES, VectorPtr};
use crate::memory::View;
use crate::plan::{OpShapes, Resources};
use crate::pool::{Kernel, Workers};
use crate::step::Span;
use crate::vtcm::VtcmPlan;

/// Positions of a tile.
const TILE: usize = hexflash_abi::dtype::TILE_ROWS;

/// Most query rows of a unit.
const MAX_ROWS: usize = 32;

/// What the weight of the highest score is: a number of f16, whose smallest normal one is 2^-29 of this.
const LARGEST_WEIGHT: f32 = 32_768.0;

/// Positions of a split: what is found in it is found by itself, and then put together, split by split. Long
/// enough that putting together takes little, short enough that a thousand keys keep four workers busy.
const SPLIT: usize = 256;
const _: () = assert!(SPLIT.is_multiple_of(TILE));

/// What a row of a unit keeps, in vectors. From the highest score on this is what was found in a split; what
/// was found in all splits so far follows, in the same order, and then the query ([`query`]).
mod state {
    /// Weights in the tile at hand, lane by lane: exp(x - highest) times
    /// [`LARGEST_WEIGHT`](super::LARGEST_WEIGHT).
    pub const WEIGHTS: usize = 0;
    /// What the tile at hand makes of sums so far, in all lanes.
    pub const SHRINK: usize = 1;
    /// The highest score, in all lanes.
    pub const HIGHEST: usize = 2;
    /// Sums of weights, lane by lane.
    pub const SUMS: usize = 3;
    /// Sums of values.
    pub const VALUES: usize = 4;
    /// Vectors before what was found.
    pub const FOUND: usize = HIGHEST;
}

/// What a mask holds where a query sees nothing: -infinity, as bits of f16.
const HIDDEN: u16 = 0xfc00;

/// [`HIDDEN`] in all 64 halves of a vector.
#[inline(always)]
fn hidden_halves<H: Hvx>() -> H::B {
    H::bytes(H::splat_i((u32::from(HIDDEN) << 16 | u32::from(HIDDEN)) as i32))
}

/// Where caches of `n` positions have a position: KV rings start again at their end.
#[inline(always)]
const fn cache_position(position: usize, n: usize) -> usize {
    // The usual case, without a division, which is a function call on a DSP.
    if position < n { position } else { position % n }
}

/// FLASH_ATTN_EXT.
///
/// # Errors
/// A transfer that fails; new keys or values that their cache's format does not hold.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let vtcm = run.plan.vtcm;
    in_caches(run, |attention, pool, spans| attention.run(pool, vtcm, spans))
}

/// Appends new keys and values of FLASH_ATTN_EXT to their caches, and has `attend` do the rest.
///
/// # Errors
/// Those of `attend`; new keys or values that their cache's format does not hold.
fn in_caches(
    run: &mut OpRun<'_>,
    attend: impl FnOnce(Attention, &mut dyn Workers, &[Span]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (q, k_cache, v_cache) =
        (run.operand(abi::Q)?, run.operand(abi::K_CACHE)?, run.operand(abi::V_CACHE)?);
    let (k, v, y) = (run.optional(abi::K), run.optional(abi::V), run.operand(abi::Y)?);
    let (mask, sinks) = (run.optional(abi::MASK), run.optional(abi::SINKS));
    let params: FlashAttn = run.params();
    // The shape rule compares lengths together with their cut, so that what it says of the full shapes holds
    // for those of this step: q, k, v and y have the step's tokens on axis 2, and the mask and caches that
    // are no KV rings at least `n_ctx` positions. `check_step` keeps `n_past + n_tokens` of every block
    // within `n_ctx` and the slots below `n_slots`, before the step and after every op that moves them.
    let spans = run.step.spans();
    let (keys, values) = (Format::of(k_cache.dtype)?, Format::of(v_cache.dtype)?);
    let damage = Damage::none();
    if let (Some(k), Some(v)) = (k, v) {
        // The first positions of a window are overwritten.
        let queries = (params.window == 0).then_some(q);
        let append = append::Append { k, v, k_cache, v_cache, keys, values, queries, spans, damage: &damage };
        run.pool.run(&append, run.plan.vtcm)?;
    }
    if keys.rotates() {
        run.pool.run(&rotated::RotateQueries { q, rotated: y }, run.plan.vtcm)?;
    }
    let causal = params.visibility == Visibility::Causal.wire();
    let attention = Attention {
        q,
        queries: if keys.rotates() { y } else { q },
        k_cache,
        v_cache,
        keys,
        values,
        mask,
        sinks,
        y,
        params,
        sight: if causal { Sight::Causal } else { Sight::Block },
    };
    attend(attention, run.pool, spans)?;
    damage.outcome()
}

/// ATTEND: q{D,H,T,B}, k{D,N,Hk,B} and v{Dv,N,Hk,B} F16 or Q8_0, mask{N',T',H',B'} F16 (optional), sinks{H}
/// (optional) -> y{Dv,H,T,B}.
///
/// # Errors
/// A transfer that fails.
pub fn attend(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let vtcm = run.plan.vtcm;
    in_rows(run, |attention, pool, spans| attention.run(pool, vtcm, spans))
}

/// Has `attend` attend to the rows of ATTEND.
///
/// # Errors
/// Those of `attend`.
fn in_rows(
    run: &mut OpRun<'_>,
    attend: impl FnOnce(Attention, &mut dyn Workers, &[Span]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (q, k, v) = (run.operand(rows::Q)?, run.operand(rows::K)?, run.operand(rows::V)?);
    let params::Attend { scale, softcap, max_bias } = run.params();
    let (mask, n, queries) = (run.optional(rows::MASK), k.ne[1], q.ne[2]);
    // The shape rule has compared all shapes, and keys are as many in every step.
    let band = match mask {
        Some(mask) => Band::of(run.pool, run.plan.vtcm, mask, n, queries)?,
        None => Band::whole(n, queries),
    };
    let attention = Attention {
        q,
        queries: q,
        k_cache: k,
        v_cache: v,
        keys: Format::of_keys(k.dtype)?,
        values: Format::of(v.dtype)?,
        mask,
        sinks: run.optional(rows::SINKS),
        y: run.operand(rows::Y)?,
        params: FlashAttn { scale, visibility: Visibility::Block.wire(), window: 0, softcap, max_bias },
        sight: Sight::Band(band),
    };
    // All rows are of one sequence as far as this op knows, whosoever they are.
    let span = Span { rows: queries, ..Span::NONE };
    attend(attention, run.pool, &[span])
}

/// Which positions the queries of a span may see, before window and what a mask hides among them.
#[derive(Clone, Copy)]
enum Sight {
    /// Those up to the query's own.
    Causal,
    /// Those up to the span's last token.
    Block,
    /// What a mask shows at most, whatever the position of the query.
    Band(Band),
}

/// Attention over keys and values that are there. For the operands see the module's documentation.
#[derive(Clone, Copy)]
struct Attention {
    q: View,
    /// What keys are multiplied with: q, or y where keys are rotated. There a query waits, rotated, in its
    /// own row of y, which is written when nobody needs it any more.
    queries: View,
    k_cache: View,
    v_cache: View,
    keys: Format,
    values: Format,
    mask: Option<View>,
    sinks: Option<View>,
    y: View,
    params: FlashAttn,
    sight: Sight,
}

impl Attention {
    /// Shares the work out and does it.
    fn run(self, pool: &mut dyn Workers, vtcm: VtcmPlan, spans: &[Span]) -> Result<(), Fault> {
        let [d, heads, _, batches] = self.q.ne;
        let (dv, kv_heads) = (self.v_cache.ne[0], self.k_cache.ne[2]);
        let stage = AttendLayout::new(d, dv, self.keys, self.values);
        let group = heads / kv_heads;
        // Enough units for all workers, but the heads of a group together.
        let (workers, few) = (pool.workers(), kv_heads * batches * spans.len());
        let longest = spans.iter().map(|span| span.rows).max().unwrap_or(0);
        let most = stage.rows(vtcm.own);
        let rows = (longest * group).div_ceil(workers.div_ceil(few)).max(group).min(most).max(1);
        let mut kernel = attend::Attend { of: self, spans, group, rows, stage, splits: None };
        // Few rows, and so too few units: one for every split, if there is room for what they find. A unit
        // then has all rows of its span, so that there is a split for each between the first and the last.
        let splits = spans.iter().map(|span| kernel.splits_of(span).len()).max().unwrap_or(0);
        let room = vtcm.shared / stage.found();
        let together = longest * group <= most && splits > 1 && kernel.units() < workers;
        if together && heads * self.y.ne[2] * batches * splits <= room {
            (kernel.rows, kernel.splits) = (longest * group, Some(splits));
            pool.run(&kernel, vtcm)?;
            pool.run(&split::PutTogether { attend: &kernel, splits }, vtcm)
        } else {
            pool.run(&kernel, vtcm)
        }
    }

    /// One past the last position that any query of a span may see.
    fn end(&self, span: &Span) -> usize {
        match self.sight {
            Sight::Causal | Sight::Block => span.end(),
            Sight::Band(band) => band.of_query(span.rows.saturating_sub(1)).end,
        }
    }
}

/// KV_APPEND: k{D,Hk,T,B}, v{Dv,Hk,T,B} into rows `n_past..` of the slots' caches, as FLASH_ATTN_EXT appends
/// them.
///
/// # Errors
/// Keys or values that the cache's format does not hold.
pub fn kv_append(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (k, v) = (run.operand(kv_append::K)?, run.operand(kv_append::V)?);
    let (k_cache, v_cache) = (run.operand(kv_append::K_CACHE)?, run.operand(kv_append::V_CACHE)?);
    // Shape rule and registers keep the rows inside the caches, or KV rings are as long as the step is wide.
    let damage = Damage::none();
    let (keys, values) = (Format::of(k_cache.dtype)?, Format::of(v_cache.dtype)?);
    let spans = run.step.spans();
    let queries = None;
    let append = append::Append { k, v, k_cache, v_cache, keys, values, queries, spans, damage: &damage };
    run.pool.run(&append, run.plan.vtcm)?;
    damage.outcome()
}

/// The operands on which a plan depends.
#[derive(Clone, Copy)]
struct Sources {
    q: Src,
    keys: Src,
    values: Src,
    mask: Src,
}

/// Those of FLASH_ATTN_EXT.
const IN_CACHES: Sources = Sources { q: abi::Q, keys: abi::K_CACHE, values: abi::V_CACHE, mask: abi::MASK };

/// Those of ATTEND.
const IN_ROWS: Sources = Sources { q: rows::Q, keys: rows::K, values: rows::V, mask: rows::MASK };

/// The kernel of FLASH_ATTN_EXT, and its plan.
///
/// # Errors
/// [`ErrorCode::Internal`] for types that validation excludes.
pub fn in_caches_plan(shapes: &OpShapes<'_>) -> Result<(Variant, VtcmPlan), Fault> {
    choose(IN_CACHES, [Variant::FlashAttn, Variant::FlashAttnHmx], shapes)
}

/// The kernel of ATTEND, and its plan.
///
/// # Errors
/// As [`in_caches_plan`].
pub fn in_rows_plan(shapes: &OpShapes<'_>) -> Result<(Variant, VtcmPlan), Fault> {
    choose(IN_ROWS, [Variant::Attend, Variant::AttendHmx], shapes)
}

/// Of two kernels the one without and the one with the matrix unit.
fn choose(
    sources: Sources,
    [hvx, hmx]: [Variant; 2],
    shapes: &OpShapes<'_>,
) -> Result<(Variant, VtcmPlan), Fault> {
    let plan = plan(sources, shapes)?;
    match by_hmx::plan(sources, shapes, plan) {
        Some(plan) => Ok((hmx, plan)),
        None => Ok((hvx, plan)),
    }
}

/// Two tiles of K and V, one of either as f32, and state for as many query rows as fit; and room for what is
/// found in splits, if steps of few rows may have several.
///
/// # Errors
/// [`ErrorCode::Internal`] for types that validation excludes.
fn plan(sources: Sources, shapes: &OpShapes<'_>) -> Result<VtcmPlan, Fault> {
    let operand = |operand| shapes.optional(operand).ok_or(Fault::new(ErrorCode::Internal, line!()));
    let (q, _) = operand(sources.q)?;
    let ((k_cache, k_type), (v_cache, v_type)) = (operand(sources.keys)?, operand(sources.values)?);
    let (d, dv) = (k_cache.ne[0] as usize, v_cache.ne[0] as usize);
    let stage = AttendLayout::new(d, dv, Format::of_keys(k_type)?, Format::of(v_type)?);
    let Resources { workers, vtcm_bytes, .. } = shapes.resources;
    let [_, heads, tokens, batches] = q.ne.map(|n| n as usize);
    let (kv_heads, positions) = ((k_cache.ne[2] as usize).max(1), v_cache.ne[1] as usize);
    Ok(plan_of(stage, [heads, tokens, batches], kv_heads, positions, workers, vtcm_bytes))
}

/// The plan for so many heads, tokens and batches of queries, over caches of so many heads and positions.
fn plan_of(
    stage: AttendLayout,
    [heads, tokens, batches]: [usize; 3],
    kv_heads: usize,
    positions: usize,
    workers: usize,
    vtcm_bytes: usize,
) -> VtcmPlan {
    let plan = |rows| VtcmPlan::new(stage.bytes(rows));
    let mut rows = MAX_ROWS;
    while rows > 1 && plan(rows).fit(workers, vtcm_bytes).is_err() {
        rows /= 2;
    }
    let group = heads / kv_heads;
    let splits = positions.div_ceil(SPLIT);
    let few = tokens.min(MAX_ROWS / group.max(1)).saturating_mul(heads).saturating_mul(batches);
    let found = if splits > 1 { few.saturating_mul(splits).saturating_mul(stage.found()) } else { 0 };
    plan(rows).with_shared(found, workers, vtcm_bytes)
}

/// Vectors of what is found for a row whose values have `v_vectors`.
const fn found_vectors(v_vectors: usize) -> usize {
    state::VALUES - state::FOUND + v_vectors
}

/// How a worker uses its VTCM: slot 0, slot 1, the widened tile, then the query rows. All in whole vectors.
#[derive(Clone, Copy)]
struct AttendLayout {
    /// Bytes of a staged K tile.
    k_tile: usize,
    /// Bytes of a staged V tile.
    v_tile: usize,
    /// Vectors of f32 for a row of V.
    v_vectors: usize,
    /// Bytes of a K or V tile widened to f32.
    wide: usize,
    /// Where a row's state has its query, in vectors.
    query: usize,
    /// Bytes of a query row's state: see [`state`].
    row: usize,
}

impl AttendLayout {
    fn new(d: usize, dv: usize, keys: Format, values: Format) -> Self {
        let v_vectors = values.value_vectors(dv);
        let query = state::FOUND + 2 * found_vectors(v_vectors);
        Self {
            k_tile: keys.key_tile(d),
            v_tile: values.value_tile(dv),
            v_vectors,
            wide: format::wide_keys(d).max(TILE * v_vectors * VECTOR_BYTES),
            query,
            row: (query + d.div_ceil(LANES)) * VECTOR_BYTES,
        }
    }

    /// Bytes of what is found for a row: the highest score, sums, sums of values.
    const fn found(self) -> usize {
        found_vectors(self.v_vectors) * VECTOR_BYTES
    }

    /// Where a slot has its V tile.
    const fn values(self, slot: VectorPtr) -> VectorPtr {
        slot.skip(self.k_tile / VECTOR_BYTES)
    }

    const fn slot(self) -> usize {
        self.k_tile + self.v_tile
    }

    /// Bytes with room for `rows` query rows.
    const fn bytes(self, rows: usize) -> usize {
        2 * self.slot() + self.wide + rows * self.row
    }

    /// Query rows that `bytes` have room for.
    fn rows(self, bytes: usize) -> usize {
        (bytes.saturating_sub(self.bytes(0)) / self.row).min(MAX_ROWS)
    }
}

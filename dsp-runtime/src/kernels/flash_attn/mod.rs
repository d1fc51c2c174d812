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
//! influence, but for the first key of a strip in a format that holds the others as parts of it. At a
//! position that a query sees, a score that is infinite or NaN makes all of its row NaN. (In ggml NaN does,
//! while infinity takes all the weight.) It is marked by an infinite maximum, because arithmetic that knows
//! no NaN would go on with a number.
//!
//! Order of operations of one query, whatever else is in the step: positions in tiles of 32 aligned to
//! multiples of 32, from the first visible one up; within a tile, q.k over d from 0 up, then what the format
//! adds; one running maximum per query; the sum of exponentials per lane, folded at the end; values by
//! position from low to high. Tiles in which it sees nothing do not touch it. So a query's result depends on
//! its own keys only.
//!
//! N is at least the context's length, or the caches are KV rings, with position p at p mod N.
//!
//! KV_APPEND does the first half alone, for keys and values whose queries nobody asks.
//!
//! * `format`: how caches hold keys and values, as F16, Q8_0 or rotated 4-bit codes.
//! * `append`: rounds new rows to the format of their cache, and fails where one is too large for that or
//!   NaN, which a product with it may not show; a unit is a (span, kv head, batch), because neighbours share
//!   words.
//! * `attend`: a unit is a (span, kv head, batch, block of query rows). The tiles of K and V come to VTCM by
//!   DMA, double buffered, and each serves all rows of the unit: the H/Hk heads of several tokens.

mod append;
mod attend;
mod format;
#[cfg(test)]
mod tests;
mod tile;

use hexflash_abi::op::params::{FlashAttn, Visibility};
use hexflash_abi::op::{flash_attn as abi, kv_append};
use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use self::format::Format;
use super::{Damage, OpRun};
use crate::plan::{OpShapes, Resources};
use crate::vtcm::VtcmPlan;

/// Positions of a tile.
const TILE: usize = hexflash_abi::dtype::TILE_ROWS;

/// Most query rows of a unit: what a worker's stack holds the weights of.
const MAX_ROWS: usize = 32;

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
    let [d, heads, _, batches] = q.ne;
    let (dv, kv_heads) = (v_cache.ne[0], k_cache.ne[2]);
    let (keys, values) = (Format::of(k_cache.dtype)?, Format::of(v_cache.dtype)?);
    let damage = Damage::none();
    if let (Some(k), Some(v)) = (k, v) {
        let append = append::Append { k, v, k_cache, v_cache, keys, values, spans, damage: &damage };
        run.pool.run(&append, run.plan.vtcm)?;
    }
    let stage = AttendLayout::new(d, dv, keys, values);
    let group = heads / kv_heads;
    let causal = params.visibility == Visibility::Causal.wire();
    // Enough units for all workers, but the heads of a group together.
    let blocks = run.pool.workers().div_ceil(kv_heads * batches * spans.len());
    let longest = spans.iter().map(|span| span.rows).max().unwrap_or(0);
    let rows = (longest * group).div_ceil(blocks).max(group).min(stage.rows(run.plan.vtcm.own));
    let kernel = attend::Attend {
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
        causal,
        spans,
        group,
        rows: rows.max(1),
        stage,
    };
    run.pool.run(&kernel, run.plan.vtcm)?;
    damage.outcome()
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
    let append = append::Append { k, v, k_cache, v_cache, keys, values, spans, damage: &damage };
    run.pool.run(&append, run.plan.vtcm)?;
    damage.outcome()
}

/// Two tiles of K and V, one of either as f32, and accumulators for as many query rows as fit.
///
/// # Errors
/// [`ErrorCode::Internal`] for types that validation excludes.
pub fn plan(shapes: &OpShapes<'_>) -> Result<VtcmPlan, Fault> {
    let cache = |operand| {
        let (t, dtype) = shapes.optional(operand).ok_or(Fault::new(ErrorCode::Internal, line!()))?;
        Ok((t.ne[0] as usize, Format::of(dtype)?))
    };
    let ((d, keys), (dv, values)) = (cache(abi::K_CACHE)?, cache(abi::V_CACHE)?);
    let stage = AttendLayout::new(d, dv, keys, values);
    let plan = |rows| VtcmPlan::new(stage.bytes(rows));
    let Resources { workers, vtcm_bytes, .. } = shapes.resources;
    let mut rows = MAX_ROWS;
    while rows > 1 && plan(rows).fit(workers, vtcm_bytes).is_err() {
        rows /= 2;
    }
    Ok(plan(rows))
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
    /// Bytes of a query row's state: running maximum, sum, accumulators.
    row: usize,
}

impl AttendLayout {
    fn new(d: usize, dv: usize, keys: Format, values: Format) -> Self {
        let v_vectors = values.value_vectors(dv);
        Self {
            k_tile: keys.key_tile(d),
            v_tile: values.value_tile(dv),
            v_vectors,
            wide: format::wide_keys(d).max(TILE * v_vectors * VECTOR_BYTES),
            row: (2 + v_vectors) * VECTOR_BYTES,
        }
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

//! The VTCM of attention without the matrix unit.

use hexflash_abi::op::Src;
use hexflash_abi::{ErrorCode, Fault, VECTOR_BYTES};

use super::format::{Format, wide_keys};
use super::positions::TILE;
use super::state::{self, found_vectors};
use super::tuning::{MAX_ROWS, SPLIT};
use crate::hvx::{LANES, VectorPtr};
use crate::plan::{OpShapes, Resources};
use crate::vtcm::VtcmPlan;

/// The operands on which a plan depends.
#[derive(Clone, Copy)]
pub struct Sources {
    pub q: Src,
    pub keys: Src,
    pub values: Src,
    pub mask: Src,
}

/// Two tiles of K and V, one of either as f32, and state for as many query rows as fit; and room for what is
/// found in splits, if steps of few rows may have several.
///
/// # Errors
/// [`ErrorCode::Internal`] for types that validation excludes.
pub fn plan(sources: Sources, shapes: &OpShapes<'_>) -> Result<VtcmPlan, Fault> {
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
pub fn plan_of(
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

/// How a worker uses its VTCM: slot 0, slot 1, the widened tile, then the query rows. All in whole vectors.
#[derive(Clone, Copy)]
pub struct AttendLayout {
    /// Bytes of a staged K tile.
    pub k_tile: usize,
    /// Bytes of a staged V tile.
    pub v_tile: usize,
    /// Vectors of f32 for a row of V.
    pub v_vectors: usize,
    /// Bytes of a K or V tile widened to f32.
    pub wide: usize,
    /// Where a row's state has its query, in vectors.
    pub query: usize,
    /// Bytes of a query row's state: see [`state`].
    pub row: usize,
}

impl AttendLayout {
    pub fn new(d: usize, dv: usize, keys: Format, values: Format) -> Self {
        let v_vectors = values.value_vectors(dv);
        let query = state::FOUND + 2 * found_vectors(v_vectors);
        Self {
            k_tile: keys.key_tile(d),
            v_tile: values.value_tile(dv),
            v_vectors,
            wide: wide_keys(d).max(TILE * v_vectors * VECTOR_BYTES),
            query,
            row: (query + d.div_ceil(LANES)) * VECTOR_BYTES,
        }
    }

    /// Bytes of what is found for a row: the highest score, sums, sums of values.
    pub const fn found(self) -> usize {
        found_vectors(self.v_vectors) * VECTOR_BYTES
    }

    /// Where a slot has its V tile.
    pub const fn values(self, slot: VectorPtr) -> VectorPtr {
        slot.skip(self.k_tile / VECTOR_BYTES)
    }

    pub const fn slot(self) -> usize {
        self.k_tile + self.v_tile
    }

    /// Bytes with room for `rows` query rows.
    pub const fn bytes(self, rows: usize) -> usize {
        2 * self.slot() + self.wide + rows * self.row
    }

    /// Query rows that `bytes` have room for.
    pub fn rows(self, bytes: usize) -> usize {
        (bytes.saturating_sub(self.bytes(0)) / self.row).min(MAX_ROWS)
    }
}

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
//! t and sees the keys of its slot up to itself, or up to the span's last token (`Visibility::Block`, and
//! `Visibility::Around`, whose windows lie on both sides), or those before the span (`Visibility::Past`),
//! fewer with a window or where the mask is -inf. What a cache holds at other positions, NaN included, has no
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
//! * `split`, `put_together`: puts together what was found in splits, and writes the result.
//! * `rotated`: rotates queries where keys are.
//! * `rotated_values`: sums of rotated values.
//! * `by_hmx`: pieces of prompts by the matrix unit, in another order of operations.

mod append;
mod attend;
mod attention;
mod band;
pub(crate) mod by_hmx;
mod by_hvx;
mod format;
mod known;
mod operands;
mod plan;
mod positions;
mod put_together;
mod query;
mod rotated;
mod rotated_values;
mod split;
mod state;
#[cfg(test)]
mod tests;
mod tile;
mod tuning;

use hexflash_abi::Fault;
use hexflash_abi::op::{attend as rows, flash_attn as abi, kv_append};

use self::format::Format;
use self::operands::{in_caches, in_rows};
use self::plan::{Sources, plan};
use crate::kernels::shared::damage::Damage;
use crate::op_run::OpRun;
use crate::plan::OpShapes;
use crate::variant::Variant;
use crate::vtcm::VtcmPlan;

/// FLASH_ATTN_EXT.
///
/// # Errors
/// A transfer that fails; new keys or values that their cache's format does not hold.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let vtcm = run.plan.vtcm;
    in_caches(run, |attention, pool, spans| by_hvx::run(&attention, pool, vtcm, spans))
}

/// ATTEND: q{D,H,T,B}, k{D,N,Hk,B} and v{Dv,N,Hk,B} F16 or Q8_0, mask{N',T',H',B'} F16 (optional), sinks{H}
/// (optional) -> y{Dv,H,T,B}.
///
/// # Errors
/// A transfer that fails.
pub fn attend(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let vtcm = run.plan.vtcm;
    in_rows(run, |attention, pool, spans| by_hvx::run(&attention, pool, vtcm, spans))
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

/// Those of FLASH_ATTN_EXT.
const IN_CACHES: Sources = Sources { q: abi::Q, keys: abi::K_CACHE, values: abi::V_CACHE, mask: abi::MASK };

/// Those of ATTEND.
const IN_ROWS: Sources = Sources { q: rows::Q, keys: rows::K, values: rows::V, mask: rows::MASK };

/// The kernel of FLASH_ATTN_EXT, and its plan.
///
/// # Errors
/// [`ErrorCode::Internal`](hexflash_abi::ErrorCode) for types that validation excludes.
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

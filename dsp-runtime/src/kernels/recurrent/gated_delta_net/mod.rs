//! GATED_DELTA_NET: the gated delta rule, one recurrent state per head.
//!
//! q,k{S,Hk,T,B'}, v{S,H,T,B}, g{1|S,H,T,B}, beta{1,H,T,B}, state{S values j, S keys i, H, B*slots} ->
//! y{S,H,T,B}. Head h reads q and k of head h mod Hk, batch b those of batch b / (B/B'), as ggml has it. The
//! states of a slot s are entries s*B to s*B + B - 1, and rows of T belong to the slots of their spans. Per
//! token, with e = exp(g), or e_i = exp(g_i) per key index (as in ggml's
//! `ggml_compute_forward_gated_delta_net`):
//!
//! ```text
//! a_j = sum_i S_ij k_i    b_j = sum_i S_ij q_i                 (vector gate: of e_i S_ij)
//! delta_j = beta (v_j - e a_j)                                 (vector gate: beta (v_j - a_j))
//! y_j = (e b_j + delta_j (k.q)) / sqrt(S)                      (vector gate: (b_j + ..))
//! S_ij <- e S_ij + delta_j k_i
//! ```
//!
//! The value index j is in the lanes: one vector is 32 values of one key row, k_i and q_i are splats, and
//! nothing is summed across lanes. a and b are summed over i from 0 up, one product at a time; so the result
//! does not depend on how many vectors of j are worked on at once. The update for token t and the sums for
//! token t + 1 share a pass over the state (one load, one store per vector and token) and are the same
//! operations as in two passes: tokens may be grouped into steps in any way, bit for bit.
//!
//! A unit is a head of a batch of a span. Its state comes to VTCM and goes back by DMA; the next head's state
//! is on its way meanwhile. At position 0 the state is zeros, whatever its memory holds.
//!
//! A state may be transposed in memory, with the key index as the fast one: then its axes are exchanged in
//! VTCM, when it has come and before it goes.
//!
//! With a factor tape the state may lag behind `n_past` by the `n_commit` tokens that the tape holds:
//! tape_k{S,Hk,N,B'*slots}, tape_delta{S,H,N,B*slots}, tape_g{1|S,H,N,B*slots}. Every step first folds them,
//! by the very operations with which plain decoding advances a state, so that the bits are the same. With
//! `defer` the state then goes home as folded, the step's tokens advance a scratch copy that is dropped, and
//! their factors replace those on the tape. Folding happens when it is known how many of the tokens count.
//! Spans with `fold` advance the state at once, as without `defer`.

mod by_hmx;
mod chunk;
mod general;
mod head;
mod kernel;
mod sweep;
mod tape;
#[cfg(test)]
mod tests;
mod tile;
mod transposed;
mod whole;

use hexflash_abi::Fault;
use hexflash_abi::op::gated_delta_net as abi;
use hexflash_abi::op::params::DeltaNet;
use hexflash_abi::program::Numerics;

pub use self::kernel::StateWalk;
use self::kernel::{GatedDeltaNet, states_plan};
use self::tape::{Record, Tape};
use self::tile::Tile;
use crate::hvx::LANES;
use crate::memory::Floats;
use crate::op_run::OpRun;
use crate::plan::OpShapes;
use crate::variant::Variant;
use crate::vtcm::VtcmPlan;

/// GATED_DELTA_NET.
///
/// # Errors
/// A transfer that fails; [`ErrorCode::BadRegister`](hexflash_abi::ErrorCode): more is to be committed than
/// the tape holds.
pub fn run(kind: StateWalk, run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (q, k, v) = (run.operand(abi::Q)?, run.operand(abi::K)?, run.operand(abi::V)?);
    let (g, beta, state) = (run.operand(abi::G)?, run.operand(abi::BETA)?, run.operand(abi::STATE)?);
    let y = run.operand(abi::Y)?;
    // The shape rule compares lengths together with their cut, so that what it says of the full shapes holds
    // for those of this step: one size, one number of heads, tokens and sequences, and with `defer` a tape
    // with room for all tokens. How many tokens the tape has to fold is a register, which `check_tapes`
    // looks at.
    let [s, h, tokens, b] = y.ne;
    let tape = Tape::of(run);
    let params = run.params::<DeltaNet>();
    let (defer, transposed) = (params.defer != 0, params.transposed != 0);
    run.step.check_tapes(tape.map_or(0, |tape| tape.delta.ne[2]), defer)?;
    let mut only = None;
    let spans = run.step.spans_over(tokens, &mut only);
    let ahead = h * b * spans.len() >= 2 * run.pool.workers();
    let (shared, scale) = (b / q.ne[3], inverse_sqrt(s));
    let [q, k, v, g, beta, y] = [q, k, v, g, beta, y].map(Floats::new);
    let kernel = GatedDeltaNet {
        q,
        k,
        v,
        g,
        beta,
        state,
        y,
        spans,
        // Which of the tokens are the unit's is decided below.
        kind: if kind == StateWalk::ByUnit { StateWalk::Chunked } else { kind },
        shared,
        scale,
        tape,
        defer,
        transposed,
        ahead,
    };
    if kind == StateWalk::ByUnit {
        by_hmx::run(&kernel, run.pool, run.plan.vtcm.shared)?;
    } else {
        run.pool.run(&kernel, run.plan.vtcm)?;
    }
    match tape {
        // Keys and gates are shared by heads and blocks of values: they are taped when nobody reads the old
        // ones.
        Some(tape) if defer => run.pool.run(&Record { k: *k, g: *g, tape, spans }, run.plan.vtcm),
        _ => Ok(()),
    }
}

/// The kernel for these gates and states.
pub fn variant(shapes: &OpShapes<'_>) -> Variant {
    let width = |operand| shapes.optional(operand).map_or(0, |(t, _)| t.ne[0] as usize);
    let size = width(abi::STATE);
    if width(abi::G) != 1 || !size.is_multiple_of(LANES) {
        return Variant::GatedDeltaNetGeneral;
    }
    if shapes.numerics != Numerics::Fast || !has_chunks(width(abi::G), size) {
        return Variant::GatedDeltaNetWhole;
    }
    if by_hmx::is_chosen(shapes) { Variant::GatedDeltaNetHmx } else { Variant::GatedDeltaNetChunked }
}

/// Whether programs of the class `fast` take many tokens at once, with so many gates per head and so many
/// values per key.
pub const fn has_chunks(gates: usize, size: usize) -> bool {
    gates == 1 && size.is_multiple_of(chunk::SIZES)
}

/// What states need without the matrix unit; with it, room for many of them, too.
pub fn plan(shapes: &OpShapes<'_>) -> VtcmPlan {
    let tile = Tile::new(shapes.optional(abi::STATE).map_or(1, |(state, _)| state.ne[0] as usize));
    let (taped, variant) = (shapes.optional(abi::TAPE_K).is_some(), variant(shapes));
    let chunked = matches!(variant, Variant::GatedDeltaNetChunked | Variant::GatedDeltaNetHmx);
    let hvx = states_plan(tile, taped, chunked, shapes.resources.workers, shapes.resources.vtcm_bytes);
    if variant == Variant::GatedDeltaNetHmx { by_hmx::plan(shapes, hvx) } else { hvx }
}

/// 1 / sqrt(n) for n >= 1, by Heron's method: `core` has no square root. Ten steps reach f64 precision for
/// any head.
fn inverse_sqrt(n: usize) -> f32 {
    let n = n as f64;
    let root = (0..10).fold(n, |r, _| (r + n / r) / 2.0);
    (1.0 / root) as f32
}

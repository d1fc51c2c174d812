//! The operands of FLASH_ATTN_EXT and of ATTEND as those of one attention.

use hexflash_abi::Fault;
use hexflash_abi::op::params::{self, FlashAttn, Visibility};
use hexflash_abi::op::{attend as rows, flash_attn as abi};

use super::append::Append;
use super::attention::{Attention, Sight};
use super::band::Band;
use super::format::Format;
use super::rotated::RotateQueries;
use crate::kernels::shared::damage::Damage;
use crate::op_run::OpRun;
use crate::pool::Workers;
use crate::step::Span;

/// Appends new keys and values of FLASH_ATTN_EXT to their caches, and has `attend` do the rest.
///
/// # Errors
/// Those of `attend`; new keys or values that their cache's format does not hold.
pub fn in_caches(
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
        let append = Append { k, v, k_cache, v_cache, keys, values, queries, spans, damage: &damage };
        run.pool.run(&append, run.plan.vtcm)?;
    }
    if keys.rotates() {
        run.pool.run(&RotateQueries { q, rotated: y }, run.plan.vtcm)?;
    }
    let sight = match Visibility::parse(params.visibility) {
        Some(Visibility::Causal) => Sight::Causal,
        Some(Visibility::Past) => Sight::Past,
        Some(Visibility::Around) => Sight::Around,
        // The shape rule refuses others.
        Some(Visibility::Block) | None => Sight::Block,
    };
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
        sight,
    };
    attend(attention, run.pool, spans)?;
    damage.outcome()
}

/// Has `attend` attend to the rows of ATTEND.
///
/// # Errors
/// Those of `attend`.
pub fn in_rows(
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
        params: FlashAttn {
            scale,
            visibility: Visibility::Block.wire(),
            window: 0,
            softcap,
            max_bias,
            first: 0,
        },
        sight: Sight::Band(band),
    };
    // All rows are of one sequence as far as this op knows, whosoever they are.
    let span = Span { rows: queries, ..Span::NONE };
    attend(attention, run.pool, &[span])
}

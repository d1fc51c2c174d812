//! The table of ops: which kernel runs an op, decided at `Load` by [`plan`], and the call of it, [`run`].

#[cfg(doc)]
use hexflash_abi::ErrorCode;
use hexflash_abi::Fault;
use hexflash_abi::op::Op;

use crate::kernels::attention::{flash_attn, rope, soft_max};
use crate::kernels::products::{mul_mat, quantize};
use crate::kernels::recurrent::{gated_delta_net, ssm_conv};
use crate::kernels::small::{
    accept, add_id, argmax, argsort, concat, copy_slot, cpy, elementwise, glu, layer_norm, norm, rows,
    sum_rows, topk_moe, unary, weighted_sum,
};
use crate::op_run::OpRun;
use crate::plan::{OpShapes, Plan};
use crate::variant::Variant;
use crate::vtcm::VtcmPlan;

/// Decides which kernel runs an op, and lays out its VTCM. Exact kernels serve any program; those of the
/// matrix unit are for the classes `fast` and `hmx`.
///
/// # Errors
/// [`ErrorCode::VtcmTooSmall`] with the bytes needed; [`ErrorCode::NoMatrixUnit`], or [`ErrorCode::BadType`],
/// for a product that no kernel of this session can compute.
pub fn plan(op: Op, shapes: &OpShapes<'_>) -> Result<Plan, Fault> {
    let none = VtcmPlan::default();
    let (variant, vtcm) = match op {
        Op::RmsNorm => (Variant::RmsNorm, none),
        Op::L2Norm => (Variant::L2Norm, none),
        Op::MulMat | Op::MulMatId => (mul_mat::variant(shapes)?, mul_mat::plan(shapes)),
        Op::Quantize => (Variant::Quantize, none),
        Op::GetRows => (Variant::GetRows, none),
        Op::SetRows => (Variant::SetRows, none),
        Op::Add => (Variant::Add, none),
        Op::Mul => (Variant::Mul, none),
        Op::Scale => (Variant::Scale, none),
        Op::Silu => (Variant::Silu, none),
        Op::Sigmoid => (Variant::Sigmoid, none),
        Op::Softplus => (Variant::Softplus, none),
        Op::Exp => (Variant::Exp, none),
        Op::Glu => (Variant::Glu, none),
        Op::Rope => (Variant::Rope, none),
        Op::SsmConv => (Variant::SsmConv, ssm_conv::plan(shapes)),
        Op::GatedDeltaNet => (gated_delta_net::variant(shapes), gated_delta_net::plan(shapes)),
        Op::FlashAttnExt => flash_attn::in_caches_plan(shapes)?,
        Op::Argmax => (Variant::Argmax, none),
        Op::Cpy => (Variant::Cpy, none),
        Op::Concat => (Variant::Concat, none),
        Op::Accept => (Variant::Accept, none),
        Op::SetTokens => (Variant::SetTokens, none),
        Op::NextDraft => (Variant::NextDraft, none),
        Op::KvAppend => (Variant::KvAppend, none),
        Op::CopySlot => (Variant::CopySlot, none),
        Op::TopkMoe => (Variant::TopkMoe, none),
        Op::WeightedSum => (Variant::WeightedSum, none),
        Op::AddId => (Variant::AddId, none),
        Op::Unary => (Variant::Unary, none),
        Op::Div => (Variant::Div, none),
        Op::Norm => (Variant::Norm, none),
        Op::SoftMax => (Variant::SoftMax, none),
        Op::SumRows => (Variant::SumRows, none),
        Op::Argsort => (Variant::Argsort, none),
        Op::Attend => flash_attn::in_rows_plan(shapes)?,
    };
    let vtcm = vtcm.fit(shapes.resources.workers, shapes.resources.vtcm_bytes)?;
    Ok(Plan { variant, vtcm })
}

/// Runs one op with the kernel of its plan.
///
/// # Errors
/// What the kernel reports: a row index out of range, or a failed transfer.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    match run.plan.variant {
        Variant::RmsNorm => norm::run(norm::NormKind::Rms, run),
        Variant::L2Norm => norm::run(norm::NormKind::L2, run),
        Variant::MulMatF32 => mul_mat::run::<mul_mat::F32>(run),
        Variant::MulMatF16 => mul_mat::run::<mul_mat::F16>(run),
        Variant::MulMatQ8_0 => mul_mat::run::<mul_mat::Q8_0>(run),
        Variant::MulMatQ4_0 => mul_mat::run::<mul_mat::Q4_0>(run),
        Variant::MulMatQ4_1 => mul_mat::run::<mul_mat::Q4_1>(run),
        Variant::MulMatQ5_0 => mul_mat::run::<mul_mat::Q5_0>(run),
        Variant::MulMatQ5_1 => mul_mat::run::<mul_mat::Q5_1>(run),
        Variant::MulMatIQ4NL => mul_mat::run::<mul_mat::IQ4NL>(run),
        Variant::MulMatMXFP4 => mul_mat::run::<mul_mat::MXFP4>(run),
        Variant::MulMatQ1_0 => mul_mat::run::<mul_mat::Q1_0>(run),
        Variant::MulMatQ2_0 => mul_mat::run::<mul_mat::Q2_0>(run),
        Variant::MulMatQ2K => mul_mat::run::<mul_mat::Q2K>(run),
        Variant::MulMatQ3K => mul_mat::run::<mul_mat::Q3K>(run),
        Variant::MulMatQ4K => mul_mat::run::<mul_mat::Q4K>(run),
        Variant::MulMatQ5K => mul_mat::run::<mul_mat::Q5K>(run),
        Variant::MulMatQ6K => mul_mat::run::<mul_mat::Q6K>(run),
        Variant::MulMatIQ4XS => mul_mat::run::<mul_mat::IQ4XS>(run),
        Variant::MulMatBF16 => mul_mat::run::<mul_mat::BF16>(run),
        Variant::MulMatHmxF16 => mul_mat::by_hmx::run::<mul_mat::F16>(run),
        Variant::MulMatHmxBF16 => mul_mat::by_hmx::run::<mul_mat::BF16>(run),
        Variant::MulMatHmxMXFP4 => mul_mat::by_hmx::run::<mul_mat::MXFP4>(run),
        Variant::MulMatHmxQ8_0 => mul_mat::by_hmx::run::<mul_mat::Q8_0>(run),
        Variant::MulMatHmxQ4_0 => mul_mat::by_hmx::run::<mul_mat::Q4_0>(run),
        Variant::MulMatHmxQ5_0 => mul_mat::by_hmx::run::<mul_mat::Q5_0>(run),
        Variant::MulMatHmxIQ4NL => mul_mat::by_hmx::run::<mul_mat::IQ4NL>(run),
        Variant::MulMatHmxQ4_1 => mul_mat::by_hmx::run::<mul_mat::Q4_1>(run),
        Variant::MulMatHmxQ5_1 => mul_mat::by_hmx::run::<mul_mat::Q5_1>(run),
        Variant::MulMatHmxQ1_0 => mul_mat::by_hmx::run::<mul_mat::Q1_0>(run),
        Variant::MulMatHmxQ2_0 => mul_mat::by_hmx::run::<mul_mat::Q2_0>(run),
        Variant::MulMatHmxQ2K => mul_mat::by_hmx::run::<mul_mat::Q2K>(run),
        Variant::MulMatHmxQ3K => mul_mat::by_hmx::run::<mul_mat::Q3K>(run),
        Variant::MulMatHmxQ4K => mul_mat::by_hmx::run::<mul_mat::Q4K>(run),
        Variant::MulMatHmxQ5K => mul_mat::by_hmx::run::<mul_mat::Q5K>(run),
        Variant::MulMatHmxQ6K => mul_mat::by_hmx::run::<mul_mat::Q6K>(run),
        Variant::MulMatHmxIQ4XS => mul_mat::by_hmx::run::<mul_mat::IQ4XS>(run),
        Variant::Quantize => quantize::run(run),
        Variant::GetRows => rows::get_rows(run),
        Variant::SetRows => rows::set_rows(run),
        Variant::Add => elementwise::binary(elementwise::Pairing::Add, run),
        Variant::Mul => elementwise::binary(elementwise::Pairing::Mul, run),
        Variant::Scale => elementwise::unary(elementwise::Function::Scale, run),
        Variant::Silu => elementwise::unary(elementwise::Function::Silu, run),
        Variant::Sigmoid => elementwise::unary(elementwise::Function::Sigmoid, run),
        Variant::Softplus => elementwise::unary(elementwise::Function::Softplus, run),
        Variant::Exp => elementwise::unary(elementwise::Function::Exp, run),
        Variant::Glu => glu::run(run),
        Variant::Rope => rope::run(run),
        Variant::SsmConv => ssm_conv::run(run),
        Variant::GatedDeltaNetWhole => gated_delta_net::run(gated_delta_net::StateWalk::Whole, run),
        Variant::GatedDeltaNetChunked => gated_delta_net::run(gated_delta_net::StateWalk::Chunked, run),
        Variant::GatedDeltaNetHmx => gated_delta_net::run(gated_delta_net::StateWalk::ByUnit, run),
        Variant::GatedDeltaNetGeneral => gated_delta_net::run(gated_delta_net::StateWalk::General, run),
        Variant::FlashAttn => flash_attn::run(run),
        Variant::FlashAttnHmx => flash_attn::by_hmx::run(run),
        Variant::Argmax => argmax::run(run),
        Variant::Cpy => cpy::run(run),
        Variant::Concat => concat::run(run),
        Variant::Accept => accept::accept(run),
        Variant::SetTokens => accept::set_tokens(run),
        Variant::NextDraft => accept::next_draft(run),
        Variant::KvAppend => flash_attn::kv_append(run),
        Variant::CopySlot => copy_slot::run(run),
        Variant::TopkMoe => topk_moe::run(run),
        Variant::WeightedSum => weighted_sum::run(run),
        Variant::AddId => add_id::run(run),
        Variant::Attend => flash_attn::attend(run),
        Variant::AttendHmx => flash_attn::by_hmx::run_rows(run),
        Variant::Unary => unary::run(run),
        Variant::Div => elementwise::div(run),
        Variant::Norm => layer_norm::run(run),
        Variant::SoftMax => soft_max::run(run),
        Variant::SumRows => sum_rows::run(run),
        Variant::Argsort => argsort::run(run),
    }
}

#[cfg(test)]
mod tests;

//! The kernels: one file per op or family, written once against [`crate::hvx::Hvx`].
//!
//! Each file has a `run` that takes the op's operands from an [`OpRun`] and hands one or more kernels
//! ([`crate::pool::Kernel`]) to the worker pool. Which kernel runs an op is decided at `Load`, by [`plan`];
//! [`run`] does what the plan says. Shapes, types and parameters were validated then, too, and the registers
//! before the step; kernels rely on both. Data-dependent indices are checked where they are used.
//!
//! Batch invariance: what a kernel computes for a row depends on that row alone, in an order that does not
//! depend on how many rows there are. Ops that go by slots work span by span ([`crate::step`]): what they
//! compute for a row depends on its own sequence alone.

pub mod accept;
pub mod add_id;
pub mod argmax;
pub mod argsort;
pub mod concat;
pub mod copy_slot;
pub mod cpy;
mod damage;
pub mod elementwise;
pub mod flash_attn;
pub mod gated_delta_net;
pub mod glu;
pub mod layer_norm;
mod map;
pub mod mul_mat;
pub mod norm;
mod pieces;
pub mod quantize;
pub mod rope;
mod row_scale;
pub mod rows;
#[cfg(test)]
mod slots;
pub mod soft_max;
pub mod ssm_conv;
pub mod sum_rows;
pub mod topk_moe;
pub mod unary;
mod variant;
pub mod weighted_sum;

use hexflash_abi::op::{Op, Operand};
use hexflash_abi::program::{MAX_DST, MAX_SRC, OpDesc};
use hexflash_abi::{ErrorCode, Fault};

use self::damage::Damage;
pub use self::damage::{gave_finite, is_finite};
pub use self::variant::Variant;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::plan::{OpShapes, Plan};
use crate::pool::{AnyKernel, Workers};
use crate::step::Step;
use crate::stream::{Matrix, Stream};
use crate::vtcm::VtcmPlan;

/// One op in one step: its operands as views, its parameters, and whose the rows are.
pub struct OpRun<'a> {
    /// The workers.
    pub pool: &'a mut dyn Workers,
    /// Inputs.
    pub src: [Option<View>; MAX_SRC],
    /// Outputs.
    pub dst: [Option<View>; MAX_DST],
    /// The op, for its parameters.
    pub op: &'a OpDesc,
    /// The step's register blocks and spans.
    pub step: &'a mut Step,
    /// The plan made at `Load`.
    pub plan: Plan,
    /// The program's weight stream, and the op's matrix in it, if it takes its weights from there.
    pub stream: Option<(&'a Stream<'a>, Matrix)>,
}

impl OpRun<'_> {
    /// An operand that the op table calls required.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if it is absent, which validation excludes.
    #[inline]
    pub fn operand(&self, which: impl Operand) -> Result<View, Fault> {
        self.optional(which).ok_or(Fault::new(ErrorCode::Internal, line!()))
    }

    /// An operand, if it is there.
    #[inline]
    pub fn optional(&self, which: impl Operand) -> Option<View> {
        which.of(&self.src, &self.dst)
    }

    /// The op's parameters.
    pub fn params<T: zerocopy::FromBytes>(&self) -> T {
        self.op.params()
    }

    /// Runs a kernel on the pool, within the op's VTCM plan. (A kernel that borrows the step's spans goes to
    /// `pool` directly.)
    ///
    /// # Errors
    /// The first fault of any worker.
    pub fn parallel(&mut self, kernel: &dyn AnyKernel) -> Result<(), Fault> {
        self.pool.run(kernel, self.plan.vtcm)
    }
}

/// Lane numbers.
static INDEX: [f32; LANES] = {
    let mut index = [0.0; LANES];
    let mut i = 0;
    while i < LANES {
        index[i] = i as f32;
        i += 1;
    }
    index
};

/// `v` in the first `n` lanes, `other` in those behind them.
#[inline(always)]
fn up_to_end<H: Hvx>(n: usize, v: H::F, other: H::F) -> H::F {
    // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
    let lane = unsafe { H::load(INDEX.as_ptr()) };
    H::select_gt(H::splat(n as f32), lane, v, other)
}

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
        Variant::RmsNorm => norm::run(norm::Kind::Rms, run),
        Variant::L2Norm => norm::run(norm::Kind::L2, run),
        Variant::MulMatF32 => mul_mat::run::<mul_mat::F32>(run),
        Variant::MulMatF16 => mul_mat::run::<mul_mat::F16>(run),
        Variant::MulMatQ8_0 => mul_mat::run::<mul_mat::Q8_0>(run),
        Variant::MulMatQ4_0 => mul_mat::run::<mul_mat::Q4_0>(run),
        Variant::MulMatQ4_1 => mul_mat::run::<mul_mat::Q4_1>(run),
        Variant::MulMatQ5_0 => mul_mat::run::<mul_mat::Q5_0>(run),
        Variant::MulMatQ5_1 => mul_mat::run::<mul_mat::Q5_1>(run),
        Variant::MulMatIQ4NL => mul_mat::run::<mul_mat::IQ4NL>(run),
        Variant::MulMatMXFP4 => mul_mat::run::<mul_mat::MXFP4>(run),
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
        Variant::GatedDeltaNetWhole => gated_delta_net::run(gated_delta_net::Kind::Whole, run),
        Variant::GatedDeltaNetChunked => gated_delta_net::run(gated_delta_net::Kind::Chunked, run),
        Variant::GatedDeltaNetHmx => gated_delta_net::run(gated_delta_net::Kind::ByUnit, run),
        Variant::GatedDeltaNetGeneral => gated_delta_net::run(gated_delta_net::Kind::General, run),
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
mod tests {
    use hexflash_abi::op::{Dst, Src, flash_attn as attention, gated_delta_net as delta, mul_mat as product};
    use hexflash_abi::program::{Numerics, TensorDesc};
    use hexflash_abi::{DType, VECTOR_BYTES};

    use super::*;
    use crate::plan::{Resources, Units};

    /// The plan of an op with these inputs and outputs in an exact program, for two workers.
    fn planned(
        op: Op,
        inputs: &[(Src, DType, [u32; 4])],
        outputs: &[(Dst, DType, [u32; 4])],
    ) -> Result<Plan, Fault> {
        planned_in(Numerics::Exact, op, inputs, outputs)
    }

    /// The same, in a program of a class.
    fn planned_in(
        numerics: Numerics,
        op: Op,
        inputs: &[(Src, DType, [u32; 4])],
        outputs: &[(Dst, DType, [u32; 4])],
    ) -> Result<Plan, Fault> {
        planned_with(Units::default(), numerics, op, inputs, outputs)
    }

    /// The same, where a session has units.
    fn planned_with(
        units: Units,
        numerics: Numerics,
        op: Op,
        inputs: &[(Src, DType, [u32; 4])],
        outputs: &[(Dst, DType, [u32; 4])],
    ) -> Result<Plan, Fault> {
        let packed = |dtype, ne| TensorDesc::packed(dtype, ne).unwrap();
        let (mut src, mut dst) = ([const { None }; MAX_SRC], [const { None }; MAX_DST]);
        for &(at, dtype, ne) in inputs {
            src[at.place()] = Some((packed(dtype, ne), dtype));
        }
        for &(at, dtype, ne) in outputs {
            dst[at.place()] = Some((packed(dtype, ne), dtype));
        }
        let resources = Resources { workers: 2, vtcm_bytes: 1 << 20, units };
        let [src, dst] = [&src[..], &dst[..]]
            .map(|list| list.iter().map(|slot| slot.as_ref().map(|(t, dtype)| (t, *dtype))));
        let mut shapes = OpShapes { src: [None; MAX_SRC], dst: [None; MAX_DST], resources, numerics };
        shapes.src.iter_mut().zip(src).for_each(|(slot, operand)| *slot = operand);
        shapes.dst.iter_mut().zip(dst).for_each(|(slot, operand)| *slot = operand);
        plan(op, &shapes)
    }

    #[test]
    fn every_weight_type_has_a_kernel_of_its_own() {
        let mut variants = std::vec::Vec::new();
        for &dtype in DType::ALL {
            let plan = planned(Op::MulMat, &[(product::W, dtype, [256, 64, 1, 1])], &[]);
            if product_takes(dtype) {
                let Plan { variant, vtcm } = plan.unwrap();
                assert!(!variants.contains(&variant), "{dtype} shares {}", variant.name());
                assert!(vtcm.own > 0 && vtcm.own.is_multiple_of(VECTOR_BYTES));
                variants.push(variant);
            } else {
                assert_eq!(plan.unwrap_err().code, ErrorCode::Internal, "{dtype}");
            }
        }
    }

    /// The class decides, and the number of rows does not. Only in `fast` HVX takes single rows, if it can.
    #[test]
    fn the_class_decides_what_the_matrix_unit_multiplies() {
        let chosen = |hmx, numerics, w: DType, rows| {
            let inputs = [(product::W, w, [256, 64, 1, 1]), (product::X, DType::F32, [256, rows, 1, 1])];
            let units = Units { hmx, ..Units::NONE };
            planned_with(units, numerics, Op::MulMat, &inputs, &[]).map(|plan| plan.variant)
        };
        let refused = |code| move |fault: Fault| assert_eq!(fault.code, code);
        for rows in [1, 2, 64] {
            let by_unit = |w, variant| {
                assert_eq!(chosen(1, Numerics::Hmx, w, rows), Ok(variant));
                chosen(0, Numerics::Hmx, w, rows).map_err(refused(ErrorCode::NoMatrixUnit)).unwrap_err();
                chosen(0, Numerics::Hmx, DType::F32x32, rows).unwrap();
            };
            by_unit(DType::F16x32, Variant::MulMatHmxF16);
            by_unit(DType::Q8_0x32, Variant::MulMatHmxQ8_0);
            for hmx in [0, 1] {
                let exact = |w| chosen(hmx, Numerics::Exact, w, rows);
                assert_eq!(exact(DType::F16x32), Ok(Variant::MulMatF16));
                exact(DType::Q8_0x32).map_err(refused(ErrorCode::BadType)).unwrap_err();
            }
            let of_many = if rows > 1 { Variant::MulMatHmxF16 } else { Variant::MulMatF16 };
            assert_eq!(chosen(1, Numerics::Fast, DType::F16x32, rows), Ok(of_many));
            assert_eq!(chosen(0, Numerics::Fast, DType::F16x32, rows), Ok(Variant::MulMatF16));
            assert_eq!(chosen(1, Numerics::Fast, DType::Q8_0x32, rows), Ok(Variant::MulMatHmxQ8_0));
            let none = chosen(0, Numerics::Fast, DType::Q8_0x32, rows);
            none.map_err(refused(ErrorCode::NoMatrixUnit)).unwrap_err();
        }
        for (w, fewest) in [(DType::F16x32, 2), (DType::BF16x32, 2), (DType::Q8_0x32, 5), (DType::Q4Kx32, 5)]
        {
            let preferred = |numerics, rows| mul_mat::prefers_hmx(numerics, w, rows);
            assert!(!preferred(Numerics::Fast, fewest - 1) && preferred(Numerics::Fast, fewest), "{w}");
            assert!(preferred(Numerics::Hmx, 1) && !preferred(Numerics::Exact, 512), "{w}");
        }
    }

    fn product_takes(dtype: DType) -> bool {
        Op::MulMat.spec().operand(product::W.number()).unwrap().types.contains(dtype)
    }

    #[test]
    fn gates_and_states_decide_how_the_delta_rule_runs() {
        let chosen = |numerics, size, gates| {
            let state = (delta::STATE, DType::F32, [size, size, 2, 1]);
            let g = (delta::G, DType::F32, [gates, 2, 1, 1]);
            planned_in(numerics, Op::GatedDeltaNet, &[g, state], &[]).unwrap().variant
        };
        let variant = |size, gates| chosen(Numerics::Exact, size, gates);
        for size in [32, 64, 96, 128] {
            assert_eq!(variant(size, 1), Variant::GatedDeltaNetWhole);
            assert_eq!(variant(size, size), Variant::GatedDeltaNetGeneral);
        }
        assert_eq!(variant(31, 1), Variant::GatedDeltaNetGeneral);
        // Chunks of tokens round in another way.
        for size in [64, 128] {
            assert_eq!(chosen(Numerics::Fast, size, 1), Variant::GatedDeltaNetChunked);
            assert_eq!(chosen(Numerics::Fast, size, size), Variant::GatedDeltaNetGeneral);
        }
        for size in [32, 96] {
            assert_eq!(chosen(Numerics::Fast, size, 1), Variant::GatedDeltaNetWhole);
        }
    }

    /// Prompts with whole chunks of the delta rule, in programs of the class `fast`.
    #[test]
    fn the_matrix_unit_takes_whole_chunks_of_the_delta_rule() {
        let chosen = |hmx, numerics, [size, tokens, heads]: [u32; 3]| {
            let inputs = [
                (delta::V, DType::F32, [size, heads, tokens, 1]),
                (delta::G, DType::F32, [1, heads, tokens, 1]),
                (delta::STATE, DType::F32, [size, size, heads, 1]),
            ];
            let units = Units { hmx, ..Units::NONE };
            planned_with(units, numerics, Op::GatedDeltaNet, &inputs, &[]).unwrap().variant
        };
        assert_eq!(chosen(1, Numerics::Fast, [128, 32, 16]), Variant::GatedDeltaNetHmx);
        assert_eq!(chosen(1, Numerics::Fast, [64, 512, 1]), Variant::GatedDeltaNetHmx);
        for (hmx, tokens) in [(0, 32), (1, 31)] {
            assert_eq!(chosen(hmx, Numerics::Fast, [128, tokens, 16]), Variant::GatedDeltaNetChunked);
        }
        assert_eq!(chosen(1, Numerics::Fast, [96, 32, 16]), Variant::GatedDeltaNetWhole);
        assert_eq!(chosen(1, Numerics::Hmx, [128, 32, 16]), Variant::GatedDeltaNetWhole);
    }

    /// Pieces of prompts over caches of F16 and Q8_0, in programs of the class `fast`. Masks have any number
    /// of heads, 0 for none.
    #[test]
    fn the_matrix_unit_attends_where_there_are_rows_enough() {
        let chosen =
            |hmx, numerics, [keys, values]: [DType; 2], [d, tokens, kv_heads]: [u32; 3], mask: u32| {
                let mut inputs = std::vec![
                    (attention::Q, DType::F32, [d, 8, tokens, 1]),
                    (attention::K_CACHE, keys, [d, 512, kv_heads, 1]),
                    (attention::V_CACHE, values, [d, 512, kv_heads, 1]),
                ];
                if mask > 0 {
                    inputs.push((attention::MASK, DType::F16, [512, tokens, mask, 1]));
                }
                let units = Units { hmx, ..Units::NONE };
                planned_with(units, numerics, Op::FlashAttnExt, &inputs, &[]).unwrap().variant
            };
        let f16 = [DType::F16x32, DType::F16];
        let fast = |types, shape, mask| chosen(1, Numerics::Fast, types, shape, mask);
        assert_eq!(fast(f16, [64, 16, 2], 0), Variant::FlashAttnHmx);
        assert_eq!(fast(f16, [64, 32, 8], 0), Variant::FlashAttnHmx);
        assert_eq!(fast([DType::Q8_0Cache; 2], [128, 16, 2], 0), Variant::FlashAttnHmx);
        assert_eq!(fast(f16, [80, 16, 2], 1), Variant::FlashAttnHmx);
        let others = [
            chosen(0, Numerics::Fast, f16, [64, 16, 2], 0),
            chosen(1, Numerics::Exact, f16, [64, 16, 2], 0),
            chosen(1, Numerics::Hmx, f16, [64, 16, 2], 0),
            fast([DType::Q8_0Cache; 2], [480, 16, 2], 0),
            fast([DType::Q4RCache, DType::F16], [64, 16, 2], 0),
            fast([DType::F16x32, DType::Q8_0Cache], [64, 16, 2], 0),
            fast(f16, [64, 15, 2], 0),
            fast(f16, [64, 16, 8], 0),
            fast(f16, [81, 16, 2], 0),
            fast(f16, [64, 16, 2], 8),
        ];
        assert_eq!(others, [Variant::FlashAttn; 10]);
    }

    /// A tape takes room for a scratch copy of a state.
    #[test]
    fn a_tape_is_part_of_the_plan() {
        let state = (delta::STATE, DType::F32, [128, 128, 2, 1]);
        let g = (delta::G, DType::F32, [1, 2, 1, 1]);
        let tape = (delta::TAPE_K, DType::F32, [128, 2, 4, 1]);
        let without = planned(Op::GatedDeltaNet, &[g, state], &[]).unwrap().vtcm.own;
        let with = planned(Op::GatedDeltaNet, &[g, state], &[tape]).unwrap().vtcm.own;
        assert!(with > without, "{with} {without}");
    }
}

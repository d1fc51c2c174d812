//! The kernels: one file per op or family, written once against [`crate::hvx::Hvx`].
//!
//! Each file has a `run` that takes the op's operands from an [`OpRun`] and hands one or more kernels
//! ([`crate::pool::Kernel`]) to the worker pool. Shapes and types were validated at `Load`; kernels rely on it. Data-dependent indices are checked
//! where they are used.
//!
//! Batch invariance: what a kernel computes for a row depends on that row alone, in an order that does not depend
//! on how many rows there are.

pub mod accept;
pub mod argmax;
pub mod concat;
pub mod cpy;
mod damage;
pub mod elementwise;
pub mod flash_attn;
pub mod gated_delta_net;
pub mod mul_mat;
pub mod norm;
pub mod quantize;
pub mod rope;
pub mod rows;
pub mod ssm_conv;
pub mod swiglu;

use hexflash_abi::op::Op;
use hexflash_abi::program::{MAX_DST, MAX_SRC, OpDesc, TensorDesc};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{DType, ErrorCode, Fault};

use self::damage::Damage;
pub use self::damage::{gave_finite, is_finite};
use crate::hvx::LANES;
use crate::memory::View;
use crate::pool::{AnyKernel, Workers};
use crate::vtcm::VtcmPlan;

/// One op in one step: its operands as views, its parameters, the step's registers.
pub struct OpRun<'a> {
    /// The workers.
    pub pool: &'a mut dyn Workers,
    /// Inputs.
    pub src: [Option<View>; MAX_SRC],
    /// Outputs.
    pub dst: [Option<View>; MAX_DST],
    /// The op, for its parameters.
    pub op: &'a OpDesc,
    /// This step's registers.
    pub registers: &'a mut StepRegisters,
    /// VTCM layout made at `Load`.
    pub plan: VtcmPlan,
}

impl OpRun<'_> {
    /// Input `i`, which the op table calls required.
    ///
    /// # Errors
    /// [`ErrorCode::Internal`] if it is absent, which validation excludes.
    pub fn src(&self, i: usize) -> Result<View, Fault> {
        self.src[i].ok_or(Fault::new(ErrorCode::Internal, line!()))
    }

    /// Output 0.
    ///
    /// # Errors
    /// As [`src`](Self::src).
    pub fn dst(&self) -> Result<View, Fault> {
        self.dst_at(0)
    }

    /// Output `i`.
    ///
    /// # Errors
    /// As [`src`](Self::src).
    pub fn dst_at(&self, i: usize) -> Result<View, Fault> {
        self.dst[i].ok_or(Fault::new(ErrorCode::Internal, line!()))
    }

    /// The op's parameters.
    pub fn params<T: zerocopy::FromBytes>(&self) -> T {
        self.op.params()
    }

    /// Tokens before this step.
    pub fn n_past(&self) -> usize {
        self.registers.get(Register::NPast) as usize
    }

    /// Tokens on the op's tape, which has room for `room`, that are to be folded before this step.
    ///
    /// # Errors
    /// [`ErrorCode::BadRegister`] if that are more than a tape can hold or than there were: such a commit would be a
    /// guess, as would one without a tape.
    pub fn n_commit(&self, room: usize) -> Result<usize, Fault> {
        let commit = self.registers.get(Register::NCommit) as usize;
        if commit > room || commit > self.n_past() {
            return Err(Fault::new(ErrorCode::BadRegister, Register::NCommit.wire()));
        }
        Ok(commit)
    }

    /// Tokens of this step.
    pub fn n_tokens(&self) -> usize {
        self.registers.get(Register::NTokens) as usize
    }

    /// Runs a kernel on the pool, within the op's VTCM plan.
    ///
    /// # Errors
    /// The first fault of any worker.
    pub fn parallel(&mut self, kernel: &dyn AnyKernel) -> Result<(), Fault> {
        self.pool.run(kernel, self.plan)
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

/// The operands of an op at `Load`, for planning.
pub struct OpShapes<'a> {
    /// Inputs with their types.
    pub src: [Option<(&'a TensorDesc, DType)>; MAX_SRC],
    /// Outputs with their types.
    pub dst: [Option<(&'a TensorDesc, DType)>; MAX_DST],
    /// Workers that will run it.
    pub workers: usize,
    /// Bytes of VTCM.
    pub vtcm_bytes: usize,
}

/// Lays out VTCM for an op.
///
/// # Errors
/// [`ErrorCode::VtcmTooSmall`] with the bytes needed.
pub fn plan(op: Op, shapes: &OpShapes<'_>) -> Result<VtcmPlan, Fault> {
    let plan = match op {
        Op::MulMat => mul_mat::plan(shapes),
        Op::SsmConv => ssm_conv::plan(shapes),
        Op::GatedDeltaNet => gated_delta_net::plan(shapes),
        Op::FlashAttnExt => flash_attn::plan(shapes),
        _ => VtcmPlan::default(),
    };
    plan.fit(shapes.workers, shapes.vtcm_bytes)
}

/// Runs one op.
///
/// # Errors
/// What the kernel reports: a row index out of range, or a failed transfer.
pub fn run(op: Op, run: &mut OpRun<'_>) -> Result<(), Fault> {
    match op {
        Op::RmsNorm | Op::L2Norm => norm::run(op, run),
        Op::MulMat => mul_mat::run(run),
        Op::Quantize => quantize::run(run),
        Op::GetRows => rows::get_rows(run),
        Op::SetRows => rows::set_rows(run),
        Op::Add | Op::Mul => elementwise::binary(op, run),
        Op::Scale | Op::Silu | Op::Sigmoid | Op::Softplus | Op::Exp => elementwise::unary(op, run),
        Op::Swiglu => swiglu::run(run),
        Op::Rope => rope::run(run),
        Op::SsmConv => ssm_conv::run(run),
        Op::GatedDeltaNet => gated_delta_net::run(run),
        Op::FlashAttnExt => flash_attn::run(run),
        Op::Argmax => argmax::run(run),
        Op::Cpy => cpy::run(run),
        Op::Concat => concat::run(run),
        Op::Accept => accept::accept(run),
        Op::SetTokens => accept::set_tokens(run),
        Op::KvAppend => flash_attn::kv_append(run),
    }
}

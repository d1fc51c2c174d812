//! What is decided about an op at `Load`: which kernel runs it, and with how much VTCM.

use hexflash_abi::program::{MAX_DST, MAX_SRC, Numerics, OpDesc, TensorDesc};
use hexflash_abi::validate::Program;
use hexflash_abi::{DType, TensorIndex};

use crate::variant::Variant;
use crate::vtcm::VtcmPlan;

/// What a session has for kernels.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// Workers of the pool.
    pub workers: usize,
    /// Bytes of VTCM.
    pub vtcm_bytes: usize,
    /// Units that a kernel may ask for.
    pub units: Units,
}

/// Units of a processor of which there are fewer than threads, so that a kernel must ask for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// HVX contexts that a worker can claim for itself.
    pub vector_contexts: usize,
    /// HMX matrix units. The thread that dispatches holds them, and drives them while other workers do what
    /// else its job has.
    pub hmx: usize,
}

impl Units {
    /// None.
    pub const NONE: Self = Self { vector_contexts: 0, hmx: 0 };
}

/// The operands of an op at `Load`, and what there is for it: what a plan depends on.
pub struct OpShapes<'a> {
    /// Inputs with their types.
    pub src: [Option<(&'a TensorDesc, DType)>; MAX_SRC],
    /// Outputs with their types.
    pub dst: [Option<(&'a TensorDesc, DType)>; MAX_DST],
    /// What the session has.
    pub resources: Resources,
    /// What the program allows.
    pub numerics: Numerics,
}

impl<'a> OpShapes<'a> {
    /// Those of an op of a program that was validated.
    pub fn of(program: &Program<'a>, op: &OpDesc, resources: Resources) -> Self {
        let operand = |&index: &TensorIndex| {
            let tensor = program.tensor(index)?;
            Some((tensor, DType::parse(tensor.dtype)?))
        };
        Self {
            src: op.src.each_ref().map(operand),
            dst: op.dst.each_ref().map(operand),
            resources,
            // Validation knows the class. Exact kernels fit any.
            numerics: Numerics::parse(program.header.numerics).unwrap_or(Numerics::Exact),
        }
    }

    /// An operand, if it is there.
    pub fn optional(&self, which: impl hexflash_abi::op::Operand) -> Option<(&'a TensorDesc, DType)> {
        which.of(&self.src, &self.dst)
    }
}

/// The plan of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The kernel that runs it.
    pub variant: Variant,
    /// How it uses VTCM.
    pub vtcm: VtcmPlan,
}

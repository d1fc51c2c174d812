//! One op in one step, as its kernel gets it.

use hexflash_abi::op::Operand;
use hexflash_abi::program::{MAX_DST, MAX_SRC, OpDesc};
use hexflash_abi::{ErrorCode, Fault};

use crate::memory::View;
use crate::plan::Plan;
use crate::pool::{AnyKernel, Workers};
use crate::step::Step;
use crate::stream::{Stream, StreamedMatrix};

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
    pub stream: Option<(&'a Stream<'a>, StreamedMatrix)>,
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

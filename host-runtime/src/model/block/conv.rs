//! A causal convolution per channel, as mixers use it: what it keeps, and its op.

use hexflash_abi::op::params::SsmConv;
use hexflash_abi::{DType, Op};

use crate::model::graph::{Graph, Tapes};
use crate::model::kept::{KeptPlanner, Purpose, Rollback};
use crate::model::limits::MAX_VERIFY;
use crate::model::scope::Scope;
use crate::record::{RecordError, Tensor};

/// The last raw inputs of the convolution: that of position p is row p modulo the taps.
const RING: &str = "conv_ring";
/// Inputs of tokens that may be taken back.
const TAPE: &str = "tape_x";

/// A causal convolution.
pub(super) struct CausalConv {
    pub channels: u32,
    pub taps: u32,
    /// SILU of what it gives.
    pub silu: bool,
}

impl CausalConv {
    /// Declares the ring, and the tape where tokens can be taken back.
    pub fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        self.keep_rows(plan, scope, Purpose::Recurrent, self.taps)
    }

    /// As [`keep`](Self::keep), with a ring for `purpose` of `rows` rows, at least one for each tap.
    pub fn keep_rows(
        &self,
        plan: &mut KeptPlanner,
        scope: Scope,
        purpose: Purpose,
        rows: u32,
    ) -> Result<(), RecordError> {
        let shape = |n| (DType::F32, [self.channels, n, plan.n_slots(), 1]);
        let (ring, tape) = (shape(rows), shape(MAX_VERIFY));
        plan.keep(scope, RING, purpose, ring)?;
        match plan.rollback() {
            Rollback::None => Ok(()),
            Rollback::LastStep => plan.keep(scope, TAPE, Purpose::ConvRows, tape),
        }
    }

    /// Records u{channels,t} -> {channels,t}, with the taps of `weight`.
    pub fn record(&self, g: &mut Graph<'_>, scope: Scope, u: Tensor, weight: &str) -> Tensor {
        let w = g.weight(&scope.label(weight));
        self.apply(g, scope, [u, w], g.tapes())
    }

    /// Records u{channels,t} with the taps w{channels,taps}, whatever the program does with other tapes.
    pub fn apply(&self, g: &mut Graph<'_>, scope: Scope, [u, w]: [Tensor; 2], tapes: Tapes) -> Tensor {
        let y = g.activation_like(u, self.channels);
        let ring = g.kept(&scope.label(RING));
        let tape = match tapes {
            Tapes::Fold | Tapes::Defer => g.kept_if_any(&scope.label(TAPE)),
            Tapes::Unused => None,
        };
        let (defer, silu) = (u32::from(tapes == Tapes::Defer), u32::from(self.silu));
        let dst: Vec<_> = [y].into_iter().chain(tape).collect();
        g.rec.op_with(Op::SsmConv, &[u, w, ring].map(Some), &dst, &SsmConv { defer, silu });
        y
    }

    /// Bytes of the inputs that later tokens need.
    pub fn state_bytes(&self) -> u64 {
        4 * u64::from(self.taps - 1) * u64::from(self.channels)
    }
}

//! A gated short convolution: what mixes tokens in most layers of LFM2.
//!
//! Formulas: llama.cpp's `src/models/lfm2.cpp`. A matrix gives three rows b, c and x for each token; a causal
//! convolution runs over the products b x, and c times what it gives goes through another matrix. All that
//! later tokens need of earlier ones is the last products, so that taking tokens back needs their rows and
//! nothing else.

use hexflash_abi::op::MAX_TAPS;
use hexflash_abi::op::params::SsmConv;
use hexflash_abi::{DType, Op};

use super::mix::Mix;
use crate::model::error::ModelError;
use crate::model::graph::{Graph, Tapes};
use crate::model::kept::{KeptPlanner, Purpose, Rollback};
use crate::model::keys::Keys;
use crate::model::limits::MAX_VERIFY;
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

/// A gated short convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortConv {
    /// Width of what it reads and writes, which is the number of channels as well.
    pub n_embd: u32,
    /// Taps of the causal convolution.
    pub taps: u32,
}

const IN: &str = "shortconv.in_proj.weight";
const CONV: &str = "shortconv.conv.weight";
const OUT: &str = "shortconv.out_proj.weight";

/// The last inputs of the convolution: that of position p is row p modulo the taps.
const RING: &str = "conv_ring";
const TAPE: &str = "tape_x";

impl ShortConv {
    /// Reads the hyper-parameters.
    ///
    /// # Errors
    /// A key is missing, or its value is one that no kernel supports.
    pub(in crate::model) fn read(keys: &Keys<'_>, n_embd: u32) -> Result<Self, ModelError> {
        let taps = keys.require("shortconv.l_cache")?;
        // With one tap nothing would be mixed; llama.cpp has no room for that either.
        match taps {
            2..=MAX_TAPS => Ok(Self { n_embd, taps }),
            _ => Err(keys.bad("shortconv.l_cache", taps, &format!("2 to {MAX_TAPS}"))),
        }
    }
}

impl Mix for ShortConv {
    fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        plan.add(scope, IN, &[self.n_embd, 3 * self.n_embd], Form::Tiled)?;
        plan.add(scope, CONV, &[self.taps, self.n_embd], Form::Transposed)?;
        plan.add(scope, OUT, &[self.n_embd, self.n_embd], Form::Tiled)
    }

    fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        let rows = |n| (DType::F32, [self.n_embd, n, plan.n_slots(), 1]);
        let (ring, tape) = (rows(self.taps), rows(MAX_VERIFY));
        plan.keep(scope, RING, Purpose::Recurrent, ring)?;
        match plan.rollback() {
            Rollback::None => Ok(()),
            Rollback::LastStep => plan.keep(scope, TAPE, Purpose::ConvRows, tape),
        }
    }

    fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        let n = self.n_embd;
        let rows = g.linear(a, &scope.label(IN));
        let [b, c, x] = [0, 1, 2].map(|part| g.columns(rows, part * n, n));
        // Not in place: the three parts lie between one another.
        let u = g.activation_like(a, n);
        g.rec.op(Op::Mul, &[b, x], u);

        let y = g.activation_like(a, n);
        let w = g.weight(&scope.label(CONV));
        let ring = g.kept(&scope.label(RING));
        let tape = match g.tapes() {
            Tapes::Fold | Tapes::Defer => g.kept_if_any(&scope.label(TAPE)),
            Tapes::Unused => None,
        };
        let defer = u32::from(g.tapes() == Tapes::Defer);
        let dst: Vec<_> = [y].into_iter().chain(tape).collect();
        g.rec.op_with(Op::SsmConv, &[u, w, ring].map(Some), &dst, &SsmConv { defer });
        g.update(Op::Mul, y, c);
        g.linear(y, &scope.label(OUT))
    }

    fn state_bytes(&self) -> u64 {
        4 * u64::from(self.taps - 1) * u64::from(self.n_embd)
    }

    fn longest_context(&self, _: u32) -> u32 {
        u32::MAX
    }
}

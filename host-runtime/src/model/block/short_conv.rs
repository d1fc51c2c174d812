//! A gated short convolution: what mixes tokens in most layers of LFM2.
//!
//! Formulas: llama.cpp's `src/models/lfm2.cpp`. A matrix gives three rows b, c and x for each token; a causal
//! convolution runs over the products b x, and c times what it gives goes through another matrix. All that
//! later tokens need of earlier ones is the last products, so that taking tokens back needs their rows and
//! nothing else.

use hexflash_abi::Op;
use hexflash_abi::op::MAX_TAPS;

use super::conv::CausalConv;
use super::mix::Mix;
use crate::model::cache_types::CacheTypes;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::kept::KeptPlanner;
use crate::model::keys::Keys;
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

    const fn conv(&self) -> CausalConv {
        CausalConv { channels: self.n_embd, taps: self.taps, silu: false }
    }
}

impl Mix for ShortConv {
    fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        plan.add(scope, IN, &[self.n_embd, 3 * self.n_embd], Form::Tiled)?;
        plan.add(scope, CONV, &[self.taps, self.n_embd], Form::Transposed)?;
        plan.add(scope, OUT, &[self.n_embd, self.n_embd], Form::Tiled)
    }

    fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        self.conv().keep(plan, scope)
    }

    fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        let n = self.n_embd;
        let rows = g.linear(a, &scope.label(IN));
        let [b, c, x] = [0, 1, 2].map(|part| g.columns(rows, part * n, n));
        // Not in place: the three parts lie between one another.
        let u = g.activation_like(a, n);
        g.rec.op(Op::Mul, &[b, x], u);

        let y = self.conv().record(g, scope, u, CONV);
        g.update(Op::Mul, y, c);
        g.linear(y, &scope.label(OUT))
    }

    fn state_bytes(&self) -> u64 {
        self.conv().state_bytes()
    }

    fn longest_context(&self, _: CacheTypes, _: u32) -> u32 {
        u32::MAX
    }
}

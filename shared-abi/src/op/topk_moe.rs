//! TOPK_MOE: the router of a mixture of experts: which experts each token goes to, and how much each counts.

use super::rule::{Len, Operands, param, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// logits{n_expert,m}: at most [`MAX_EXPERTS`].
        LOGITS = OperandSpec::input("logits", DTypes::F32, Layout::Rows);
        /// bias{n_expert}: added to what experts are chosen by, and to nothing else.
        BIAS = OperandSpec::input("bias", DTypes::F32, Layout::Contiguous).optional();
    }
    DST: Dst {
        /// ids{n_used,m}: the best experts of each token, best first; of equal ones the lower number first.
        IDS = OperandSpec::output("ids", DTypes::I32, Layout::Rows);
        /// weights{n_used,m}: of the chosen experts, in their order.
        WEIGHTS = OperandSpec::output("weights", DTypes::F32, Layout::Rows);
    }
}

/// Most experts of a layer.
pub const MAX_EXPERTS: u32 = 512;

wire_enum! {
    /// How logits become weights, and what experts are chosen by.
    pub enum Gating: u32 {
        /// Weights are the softmax over all experts; chosen by it.
        Softmax = 1 "softmax",
        /// Weights are sigmoids; chosen by them.
        Sigmoid = 2 "sigmoid",
        /// Weights are the softmax over the chosen experts; chosen by logits.
        SoftmaxOfChosen = 3 "softmax of the chosen",
    }
}

params! {
    /// TOPK_MOE.
    pub struct TopkMoe {
        /// A [`Gating`].
        pub gating: u32,
        /// 1 if the weights of a token are divided by their sum, or by 2^-14 if that is more; else 0.
        pub normalize: u32,
        /// Factor on the weights, after that. Finite.
        pub scale: f32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(TopkMoe::FIELDS);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (logits, ids) = (o.operand(LOGITS)?, o.operand(IDS)?);
    let [n_expert, m, ..] = logits;
    let one = [Len::ONE; 2];
    shape(n_expert.fixed_up_to(MAX_EXPERTS) && logits[2..] == one, LOGITS)?;
    if let Some(bias) = o.optional(BIAS) {
        shape(bias == [n_expert, Len::ONE, Len::ONE, Len::ONE], BIAS)?;
    }
    shape(ids[0].fixed_up_to(n_expert.n) && ids[1] == m && ids[2..] == one, IDS)?;
    shape(o.operand(WEIGHTS)? == ids, WEIGHTS)?;
    let p: TopkMoe = o.params();
    param(Gating::parse(p.gating).is_some(), word!(TopkMoe.gating))?;
    param(p.normalize <= 1, word!(TopkMoe.normalize))?;
    param(p.scale.is_finite(), word!(TopkMoe.scale))
}

//! SOFT_MAX: e^(scale x + slope mask - m) over their sum, per row, where m is the largest exponent; in place
//! if wanted. Attention of graphs without FLASH_ATTN_EXT has it, and routers of experts.

use super::rule::{Len, Operands, param, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{n,t,h,b}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
        /// mask{n,t',h',b'}: at least t wide; h' divides h, b' divides b.
        MASK = OperandSpec::input("mask", DTypes::of(&[DType::F32, DType::F16]), Layout::Rows).optional();
        /// sinks{h}: an exponent more for every row of a head, which has no place in the result.
        SINKS = OperandSpec::input("sinks", DTypes::F32, Layout::Contiguous).optional();
    }
    DST: Dst {
        /// y{n,t,h,b}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

params! {
    /// SOFT_MAX.
    pub struct SoftMax {
        /// Factor on x. Finite.
        pub scale: f32,
        /// ALiBi bias with a mask: the mask of each head has a slope. Finite, not negative; 0 for none.
        pub max_bias: f32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(SoftMax::FIELDS).in_place(&[X]);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)?;
    let [n, t, h, b] = o.operand(X)?;
    if let Some(mask) = o.optional(MASK) {
        let repeated = mask[2].divides(h) && mask[3].divides(b);
        shape(mask[0] == n && mask[1].covers(t) && repeated, MASK)?;
    }
    if let Some(sinks) = o.optional(SINKS) {
        shape(sinks == [h, Len::ONE, Len::ONE, Len::ONE], SINKS)?;
    }
    let p: SoftMax = o.params();
    param(p.scale.is_finite(), word!(SoftMax.scale))?;
    param(p.max_bias.is_finite() && p.max_bias >= 0.0, word!(SoftMax.max_bias))
}

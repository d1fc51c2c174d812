//! SWIGLU: silu(a) * b, of two tensors or of the two halves of one; in place of either if there are two.

use super::rule::{Len, Operands, param, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// a{n,..}; alone a{2n,..}.
        A = OperandSpec::input("a", DTypes::F32, Layout::Rows);
        /// b{n,..}.
        B = OperandSpec::input("b", DTypes::F32, Layout::Rows).optional();
    }
    DST: Dst {
        /// y{n,..}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

params! {
    /// SWIGLU.
    pub struct Swiglu {
        /// 1 if, with one input, the gate is its second half (ggml's `swapped`); else 0.
        pub swapped: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(Swiglu::FIELDS).in_place(&[A, B]);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (a, y) = (o.operand(A)?, o.operand(Y)?);
    let p: Swiglu = o.params();
    if o.optional(B).is_some() {
        same(o, A, Y)?;
        same(o, B, Y)?;
        return param(p.swapped == 0, word!(Swiglu.swapped));
    }
    let half = Len::fixed(a[0].n / 2);
    shape(Len::fixed(2).divides(a[0]) && [half, a[1], a[2], a[3]] == y, A)?;
    param(p.swapped <= 1, word!(Swiglu.swapped))
}

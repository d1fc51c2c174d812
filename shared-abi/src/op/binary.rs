//! ADD, MUL and DIV: y = a + b, y = a * b, y = a / b, b repeated over a; in place of either if wanted.

use super::rule::{Operands, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// a{n,..}.
        A = OperandSpec::input("a", DTypes::F32, Layout::Rows);
        /// b: each axis divides that of a.
        B = OperandSpec::input("b", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{n,..}, like a.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).in_place(&[A, B]);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, A, Y)?;
    let (a, b) = (o.operand(A)?, o.operand(B)?);
    shape(core::iter::zip(b, a).all(|(b, a)| b.divides(a)), B)
}

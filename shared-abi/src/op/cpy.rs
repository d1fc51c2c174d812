//! CPY: a copy from any strides to rows, with conversion between F32 and F16; also CONT.

use super::rule::{Operands, dtype, same};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x, of any strides.
        X = OperandSpec::input("x", DTypes::ELEMENTS, Layout::Strided);
    }
    DST: Dst {
        /// y, like x; I32 if x is.
        Y = OperandSpec::output("y", DTypes::ELEMENTS, Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)?;
    // I32 holds ids, which no float copy preserves.
    dtype((o.dtype(X) == Some(DType::I32)) == (o.dtype(Y) == Some(DType::I32)), Y)
}

//! CPY: a copy from any strides to rows, with conversion between F32 and F16, or F32 and Q8_0; also CONT.

use super::rule::{Operands, dtype, same};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

const TYPES: DTypes = DTypes::ELEMENTS.and(DTypes::Q8_0);

operands! {
    SRC: Src {
        /// x, of any strides; of Q8_0 rows, anywhere.
        X = OperandSpec::input("x", TYPES, Layout::Strided);
    }
    DST: Dst {
        /// y, like x; I32 if x is. Where one of them is Q8_0 the other is, too, or F32.
        Y = OperandSpec::output("y", TYPES, Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)?;
    // I32 holds ids, which no float copy preserves.
    dtype((o.dtype(X) == Some(DType::I32)) == (o.dtype(Y) == Some(DType::I32)), Y)?;
    let types = [o.dtype(X), o.dtype(Y)];
    dtype(!(types.contains(&Some(DType::Q8_0)) && types.contains(&Some(DType::F16))), Y)
}

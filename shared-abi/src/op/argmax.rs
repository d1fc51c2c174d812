//! ARGMAX: the index of the first maximum of each row, and how far it is above the second-best value.

use super::rule::{Len, Operands, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{n,m}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{m}: the indices.
        Y = OperandSpec::output("y", DTypes::I32, Layout::Contiguous);
        /// margin{m}: the distances.
        MARGIN = OperandSpec::output("margin", DTypes::F32, Layout::Contiguous).optional();
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let x = o.operand(X)?;
    shape(x[2] == Len::ONE && x[3] == Len::ONE, X)?;
    let rows = [x[1], Len::ONE, Len::ONE, Len::ONE];
    shape(o.operand(Y)? == rows, Y)?;
    shape(o.optional(MARGIN).is_none_or(|margin| margin == rows), MARGIN)
}

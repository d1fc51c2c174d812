//! SUM_ROWS: the sum of each row.

use super::rule::{Len, Operands, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{n,..}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{1,..}: otherwise like x.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let [_, rows @ ..] = o.operand(X)?;
    shape(o.operand(Y)? == [Len::ONE, rows[0], rows[1], rows[2]], Y)
}

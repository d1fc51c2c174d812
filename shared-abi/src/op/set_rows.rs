//! SET_ROWS: rows written by index; the others keep what they have.

use super::rule::{Len, Operands, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{k,m,b2,b3}: the new rows.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
        /// ids{m,c2,c3}: which rows of y they become, checked when they are used; c divides b.
        IDS = OperandSpec::input("ids", DTypes::I32, Layout::Strided);
    }
    DST: Dst {
        /// y{k,n,b2,b3}.
        Y = OperandSpec::output("y", DTypes::of(&[DType::F32, DType::F16]).and(DTypes::Q8_0), Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (x, ids, y) = (o.operand(X)?, o.operand(IDS)?, o.operand(Y)?);
    let repeated = ids[1].divides(x[2]) && ids[2].divides(x[3]) && ids[3] == Len::ONE;
    shape(ids[0] == x[1] && repeated, IDS)?;
    // With stride 0 a few bytes can be any number of rows: the output bounds the work.
    shape(x[1].n <= y[1].n, X)?;
    shape(y[0] == x[0] && y[2] == x[2] && y[3] == x[3], Y)
}

//! MUL_MAT: weights times activations, y = W x per row of x.

use super::rule::{Operands, dtype, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

operands! {
    SRC: Src {
        /// w{k,n,r2,r3}: n rows of weights, tiled.
        W = OperandSpec::input("w", DTypes::TILED, Layout::Tiled);
        /// x{k,m,b2,b3}: m rows, as int8 activations where w's type wants them, or as F32, which weights that
        /// want int8 are multiplied with by the matrix unit alone; r divides b.
        X = OperandSpec::input("x", DTypes::of(&[DType::F32, DType::Q8Act]), Layout::Rows);
    }
    DST: Dst {
        /// y{n,m,b2,b3}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (w, x, y) = (o.operand(W)?, o.operand(X)?, o.operand(Y)?);
    shape(x[0] == w[0] && w[2].divides(x[2]) && w[3].divides(x[3]), X)?;
    shape(y == [w[1], x[1], x[2], x[3]], Y)?;
    // Whether there is a kernel for F32 is up to the session that loads the program.
    let wanted = o.dtype(W).is_some_and(DType::wants_q8_activations);
    dtype(wanted || o.dtype(X) != Some(DType::Q8Act), X)
}

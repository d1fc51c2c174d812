//! WEIGHTED_SUM: what the experts of a token gave, each times its weight, added in their order.

use super::rule::{Len, Operands, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{n,n_used,m}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
        /// weights{n_used,m}.
        WEIGHTS = OperandSpec::input("weights", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{n,m}: for each token x(0) w(0) + x(1) w(1) + .., from the left.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (x, weights, y) = (o.operand(X)?, o.operand(WEIGHTS)?, o.operand(Y)?);
    let [n, n_used, m, _] = x;
    shape(x[3] == Len::ONE, X)?;
    shape(weights == [n_used, m, Len::ONE, Len::ONE], WEIGHTS)?;
    shape(y == [n, m, Len::ONE, Len::ONE], Y)
}

//! ADD_ID: rows of a matrix, by number, added to what experts gave: the biases of experts. In place if
//! wanted.

use super::rule::{Len, Operands, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// a{n,n_used,m}.
        A = OperandSpec::input("a", DTypes::F32, Layout::Rows);
        /// b{n,n_expert}.
        B = OperandSpec::input("b", DTypes::F32, Layout::Rows);
        /// ids{n_used,m}: numbers of rows of b, checked when they are used.
        IDS = OperandSpec::input("ids", DTypes::I32, Layout::Strided);
    }
    DST: Dst {
        /// y{n,n_used,m}: row i of token j is that of a, plus row ids(i, j) of b.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).in_place(&[A]);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, A, Y)?;
    let (a, b) = (o.operand(A)?, o.operand(B)?);
    let [n, n_used, m, _] = a;
    shape(a[3] == Len::ONE, A)?;
    shape(b[0] == n && !b[1].cut && b[2..] == [Len::ONE; 2], B)?;
    shape(o.operand(IDS)? == [n_used, m, Len::ONE, Len::ONE], IDS)
}

//! MUL_MAT_ID: activations times the matrices that ids name: the experts that a router has chosen.

use super::rule::{Len, Operands, dtype, shape};
use super::topk_moe::MAX_EXPERTS;
use super::{DTypes, Layout, OpSpec, OperandSpec, mul_mat};
use crate::dtype::DType;
use crate::status::Fault;

operands! {
    SRC: Src {
        /// w{k,n,n_expert}: a matrix for each expert, tiled; at most [`MAX_EXPERTS`].
        W = OperandSpec::input("w", DTypes::TILED, Layout::Tiled);
        /// x{k,n_used,m}, or {k,1,m} if all experts of a token read one row: as those of MUL_MAT.
        X = OperandSpec::input("x", DTypes::of(&[DType::F32, DType::Q8Act]), Layout::Rows);
        /// ids{n_used,m}: numbers of experts, at most as many as there are, checked when they are used.
        IDS = OperandSpec::input("ids", DTypes::I32, Layout::Strided);
    }
    DST: Dst {
        /// y{n,n_used,m}: row i of token j is expert ids(i, j) times row i, or the one row, of token j of x.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

// One kernel serves both ops.
const _: () = assert!(W.place() == mul_mat::W.place() && X.place() == mul_mat::X.place());
const _: () = assert!(Y.place() == mul_mat::Y.place());

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (w, x, ids, y) = (o.operand(W)?, o.operand(X)?, o.operand(IDS)?, o.operand(Y)?);
    shape(w[2].fixed_up_to(MAX_EXPERTS) && w[3] == Len::ONE, W)?;
    let [n_used, m, ..] = ids;
    shape(n_used.fixed_up_to(w[2].n) && ids[2] == Len::ONE && ids[3] == Len::ONE, IDS)?;
    shape(x[0] == w[0] && (x[1] == n_used || x[1] == Len::ONE) && x[2] == m && x[3] == Len::ONE, X)?;
    shape(y == [w[1], n_used, m, Len::ONE], Y)?;
    // Whether there is a kernel for F32 is up to the session that loads the program.
    let wanted = o.dtype(W).is_some_and(DType::wants_q8_activations);
    dtype(wanted || o.dtype(X) != Some(DType::Q8Act), X)
}

//! RMS_NORM, L2_NORM and NORM: x{n,..} -> y{n,..}, in place if wanted.

use super::rule::{Len, Operands, param, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    RMS_SRC: Src {
        /// x{n,..}: the rows.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
        /// w{n}: factors of each row's elements. RMS_NORM only.
        W = OperandSpec::input("w", DTypes::F32, Layout::Contiguous).optional();
    }
    DST: Dst {
        /// y{n,..}: x, normalized.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

const X_ALONE: &[OperandSpec] = &[RMS_SRC[X.place()]];

params! {
    /// RMS_NORM, L2_NORM and NORM.
    pub struct Norm {
        /// Added to the mean of squares (RMS_NORM) or to the variance (NORM), or lower bound of the norm
        /// (L2_NORM). Finite, not negative.
        pub eps: f32,
    }
}

pub(super) const RMS: OpSpec = OpSpec::new(RMS_SRC, DST, check).params(Norm::FIELDS).in_place(&[X]);
pub(super) const L2: OpSpec = OpSpec::new(X_ALONE, DST, check).params(Norm::FIELDS).in_place(&[X]);
/// The layer norm of models, without its weights: ggml's NORM.
pub(super) const LAYER: OpSpec = L2;

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)?;
    if let Some(w) = o.optional(W) {
        shape(w == [o.operand(X)?[0], Len::ONE, Len::ONE, Len::ONE], W)?;
    }
    let p: Norm = o.params();
    param(p.eps.is_finite() && p.eps >= 0.0, word!(Norm.eps))
}

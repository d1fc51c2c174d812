//! QUANTIZE: F32 rows to int8 activations, once for all matrices that read them.

use super::rule::{Operands, same};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{k,m,..}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{k,m,..}: see [`ActivationRow`](crate::dtype::ActivationRow).
        Y = OperandSpec::output("y", DTypes::of(&[DType::Q8Act]), Layout::Rows);
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)
}

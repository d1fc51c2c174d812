//! CONCAT: two tensors joined along an axis. No graph of today records it; it completes the catalogue for
//! graphs that other programs make.

use super::rule::{Len, Operands, param, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// a{..,l,..}.
        A = OperandSpec::input("a", DTypes::F32, Layout::Rows);
        /// b{..,m,..}.
        B = OperandSpec::input("b", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{..,l+m,..}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

params! {
    /// CONCAT.
    pub struct Concat {
        /// Axis, 0 to 3.
        pub axis: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(Concat::FIELDS);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (a, b) = (o.operand(A)?, o.operand(B)?);
    let axis = o.params::<Concat>().axis as usize;
    param(axis < a.len(), word!(Concat.axis))?;
    let mut joined = a;
    shape(!a[axis].cut && !b[axis].cut, B)?;
    // Lengths are below 2^31: no overflow.
    joined[axis] = Len::fixed(a[axis].n + b[axis].n);
    let mut other = b;
    other[axis] = a[axis];
    shape(other == a, B)?;
    shape(o.operand(Y)? == joined, Y)
}

//! SCALE, SILU, SIGMOID, SOFTPLUS and EXP: a function of every element, in place if wanted.

use super::rule::{Operands, param, same};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{n,..}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
    }
    DST: Dst {
        /// y{n,..}, like x.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

params! {
    /// SCALE: `scale * x + bias`. Neither is NaN.
    pub struct Scale {
        /// Factor.
        pub scale: f32,
        /// Added after.
        pub bias: f32,
    }
}

/// The functions without parameters.
pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).in_place(&[X]);
/// SCALE.
pub(super) const SCALE: OpSpec = OpSpec { check: check_scale, ..SPEC.params(Scale::FIELDS) };

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)
}

fn check_scale(o: &Operands<'_>) -> Result<(), Fault> {
    check(o)?;
    let p: Scale = o.params();
    param(!p.scale.is_nan(), word!(Scale.scale))?;
    param(!p.bias.is_nan(), word!(Scale.bias))
}

//! SCALE, SILU, SIGMOID, SOFTPLUS, EXP, and UNARY with functions that no graph of our own has: a function of
//! every element, in place if wanted.

use super::rule::{Operands, param, same};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::{ErrorCode, Fault};

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

wire_enum! {
    /// The functions of UNARY, with ggml's names.
    pub enum UnaryKind: u32 {
        /// |x|.
        Abs = 1 "ABS",
        /// -1, 0 or 1, as x is negative, zero or positive.
        Sgn = 2 "SGN",
        /// 1 where x is positive, else 0.
        Step = 3 "STEP",
        /// tanh(x).
        Tanh = 4 "TANH",
        /// x where it is positive, else e^x - 1.
        Elu = 5 "ELU",
        /// x where it is positive, else 0.
        Relu = 6 "RELU",
        /// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
        Gelu = 7 "GELU",
        /// x / (1 + exp(-1.702 x)).
        GeluQuick = 8 "GELU_QUICK",
        /// x / 2 * (1 + erf(x / sqrt(2))).
        GeluErf = 9 "GELU_ERF",
        /// x times HARDSIGMOID of x.
        HardSwish = 10 "HARDSWISH",
        /// (x + 3) / 6, between 0 and 1.
        HardSigmoid = 11 "HARDSIGMOID",
        /// e^x - 1.
        Expm1 = 12 "EXPM1",
        /// The next integer below x.
        Floor = 13 "FLOOR",
        /// The next integer above x.
        Ceil = 14 "CEIL",
        /// The nearest integer, ties away from zero.
        Round = 15 "ROUND",
        /// The next integer towards zero.
        Trunc = 16 "TRUNC",
        /// sqrt(x).
        Sqrt = 17 "SQRT",
        /// ln(x).
        Log = 18 "LOG",
        /// sin(x), for |x| up to 2^20; NaN beyond.
        Sin = 19 "SIN",
        /// cos(x), for |x| up to 2^20; NaN beyond.
        Cos = 20 "COS",
        /// x where it is positive, else `a` times x.
        LeakyRelu = 21 "LEAKY_RELU",
        /// x, but at least `a` and at most `b`.
        Clamp = 22 "CLAMP",
    }
}

params! {
    /// UNARY.
    pub struct Unary {
        /// A [`UnaryKind`].
        pub kind: u32,
        /// Of [`UnaryKind::LeakyRelu`]: finite. Of [`UnaryKind::Clamp`]: not NaN. 0 for the others.
        pub a: f32,
        /// Of [`UnaryKind::Clamp`]: at least `a`. 0 for the others.
        pub b: f32,
    }
}

impl Unary {
    /// A function without parameters of its own.
    pub const fn of(kind: UnaryKind) -> Self {
        Self { kind: kind.wire(), a: 0.0, b: 0.0 }
    }
}

/// The functions without parameters.
pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).in_place(&[X]);
/// SCALE.
pub(super) const SCALE: OpSpec = OpSpec { check: check_scale, ..SPEC.params(Scale::FIELDS) };

/// UNARY.
pub(super) const NAMED: OpSpec = OpSpec { check: check_named, ..SPEC.params(Unary::FIELDS) };

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)
}

fn check_scale(o: &Operands<'_>) -> Result<(), Fault> {
    check(o)?;
    let p: Scale = o.params();
    param(!p.scale.is_nan(), word!(Scale.scale))?;
    param(!p.bias.is_nan(), word!(Scale.bias))
}

fn check_named(o: &Operands<'_>) -> Result<(), Fault> {
    check(o)?;
    let p: Unary = o.params();
    let kind = UnaryKind::parse(p.kind).ok_or(Fault::new(ErrorCode::BadParam, word!(Unary.kind) as u32))?;
    let (a, b) = match kind {
        UnaryKind::LeakyRelu => (p.a.is_finite(), p.b == 0.0),
        UnaryKind::Clamp => (!p.a.is_nan(), p.b >= p.a),
        _ => (p.a == 0.0, p.b == 0.0),
    };
    param(a, word!(Unary.a))?;
    param(b, word!(Unary.b))
}

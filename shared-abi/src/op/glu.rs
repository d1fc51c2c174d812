//! GLU: the gate of an MLP, f(a) * g(b), of two tensors or of the two halves of one; in place of either if
//! there are two.

use super::rule::{Len, Operands, param, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::{ErrorCode, Fault};

operands! {
    SRC: Src {
        /// a{n,..}; alone a{2n,..}.
        A = OperandSpec::input("a", DTypes::F32, Layout::Rows);
        /// b{n,..}.
        B = OperandSpec::input("b", DTypes::F32, Layout::Rows).optional();
    }
    DST: Dst {
        /// y{n,..}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

wire_enum! {
    /// The functions of a gated MLP, with ggml's names.
    pub enum GluKind: u32 {
        /// a * sigmoid(a) * b.
        Swiglu = 1 "SWIGLU",
        /// GELU of a, times b: a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))) * b.
        Geglu = 2 "GEGLU",
        /// x * sigmoid(alpha * x) * (z + 1), where x is a but at most `limit`, and z is b between -`limit`
        /// and `limit`.
        SwigluOai = 3 "SWIGLU_OAI",
    }
}

params! {
    /// GLU.
    pub struct Glu {
        /// A [`GluKind`].
        pub kind: u32,
        /// 1 if, with one input, the gate is its second half (ggml's `swapped`); else 0.
        pub swapped: u32,
        /// Of [`GluKind::SwigluOai`]: finite. 0 for the other kinds.
        pub alpha: f32,
        /// Of [`GluKind::SwigluOai`]: finite, at least 0. 0 for the other kinds.
        pub limit: f32,
    }
}

impl Glu {
    /// A kind without parameters of its own, of two inputs.
    pub const fn of(kind: GluKind) -> Self {
        Self { kind: kind.wire(), swapped: 0, alpha: 0.0, limit: 0.0 }
    }

    /// [`GluKind::SwigluOai`] of two inputs.
    pub const fn swiglu_oai(alpha: f32, limit: f32) -> Self {
        Self { alpha, limit, ..Self::of(GluKind::SwigluOai) }
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(Glu::FIELDS).in_place(&[A, B]);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (a, y) = (o.operand(A)?, o.operand(Y)?);
    let p: Glu = o.params();
    let kind = GluKind::parse(p.kind).ok_or(Fault::new(ErrorCode::BadParam, word!(Glu.kind) as u32))?;
    let [alpha, limit] = match kind {
        GluKind::Swiglu | GluKind::Geglu => [p.alpha == 0.0, p.limit == 0.0],
        GluKind::SwigluOai => [p.alpha.is_finite(), p.limit.is_finite() && p.limit >= 0.0],
    };
    param(alpha, word!(Glu.alpha))?;
    param(limit, word!(Glu.limit))?;
    if o.optional(B).is_some() {
        same(o, A, Y)?;
        same(o, B, Y)?;
        return param(p.swapped == 0, word!(Glu.swapped));
    }
    let half = Len::fixed(a[0].n / 2);
    shape(Len::fixed(2).divides(a[0]) && [half, a[1], a[2], a[3]] == y, A)?;
    param(p.swapped <= 1, word!(Glu.swapped))
}

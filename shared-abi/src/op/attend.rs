//! ATTEND: attention over keys and values that are rows of F16 or Q8_0, as graphs of ggml have them. Which
//! keys a query sees is data, a mask; nothing depends on the step's registers, and nothing is appended.

use super::flash_attn::MAX_HEAD;
use super::rule::{Len, Operands, param, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::dtype::DType;
use crate::status::Fault;

/// Types of keys, and of values.
const ROWS: DTypes = DTypes::of(&[DType::F16]).and(DTypes::Q8_0);

operands! {
    SRC: Src {
        /// q{d,h,t,b}: heads at most [`MAX_HEAD`] wide.
        Q = OperandSpec::input("q", DTypes::F32, Layout::Rows);
        /// k{d,n,hk,b}: n keys; hk divides h.
        K = OperandSpec::input("k", ROWS, Layout::Rows);
        /// v{dv,n,hk,b}, of the type of k or of the other one.
        V = OperandSpec::input("v", ROWS, Layout::Rows);
        /// mask{n',t',h',b'}: added to scores; a key at -inf is not seen. At least n long and t wide; h'
        /// divides h, b' divides b.
        MASK = OperandSpec::input("mask", DTypes::of(&[DType::F16]), Layout::Rows).optional();
        /// sinks{h}.
        SINKS = OperandSpec::input("sinks", DTypes::F32, Layout::Contiguous).optional();
    }
    DST: Dst {
        /// y{dv,h,t,b}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

params! {
    /// ATTEND.
    pub struct Attend {
        /// Factor on q.k.
        pub scale: f32,
        /// Bound of `softcap * tanh(x / softcap)`; 0 for none.
        pub softcap: f32,
        /// ALiBi bias with a mask; 0 for none.
        pub max_bias: f32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(Attend::FIELDS);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (q, k, v, y) = (o.operand(Q)?, o.operand(K)?, o.operand(V)?, o.operand(Y)?);
    let ([d, h, t, b], [_, n, hk, _], dv) = (q, k, v[0]);
    shape(d.fixed_up_to(MAX_HEAD), Q)?;
    // The tiles of keys are counted before a step is known.
    shape(k == [d, n, hk, b] && !n.cut && hk.divides(h), K)?;
    shape(dv.fixed_up_to(MAX_HEAD) && v == [dv, n, hk, b], V)?;
    shape(y == [dv, h, t, b], Y)?;
    if let Some(mask) = o.optional(MASK) {
        let repeated = mask[2].divides(h) && mask[3].divides(b);
        shape(mask[0].covers(n) && mask[1].covers(t) && repeated, MASK)?;
    }
    if let Some(sinks) = o.optional(SINKS) {
        shape(sinks == [h, Len::ONE, Len::ONE, Len::ONE], SINKS)?;
    }
    let p = o.params::<Attend>();
    param(p.scale.is_finite(), word!(Attend.scale))?;
    param(p.softcap.is_finite() && p.softcap >= 0.0, word!(Attend.softcap))?;
    param(p.max_bias.is_finite() && p.max_bias >= 0.0, word!(Attend.max_bias))
}

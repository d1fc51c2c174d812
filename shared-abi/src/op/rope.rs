//! ROPE: rotary position embedding, in place if wanted.

use super::rule::{Len, Operands, param, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::{ErrorCode, Fault};

operands! {
    SRC: Src {
        /// x{d,h,t,b}.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
        /// positions{t,sections}: 4 sections in the multi modes, else 1. Without them, row i of a register
        /// block is at its n_past + i, and t is the token axis, unless the program has one slot.
        POSITIONS = OperandSpec::input("positions", DTypes::I32, Layout::Strided).optional();
        /// factors{n_dims/2}: divisors of the angles.
        FACTORS = OperandSpec::input("factors", DTypes::F32, Layout::Contiguous).optional();
    }
    DST: Dst {
        /// y{d,h,t,b}, like x.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
    }
}

wire_enum! {
    /// Which pairs ROPE turns, and by which position.
    pub enum RopeMode: u32 {
        /// Pairs (2i, 2i+1).
        Norm = 0 "NORM",
        /// Pairs (i, i + n/2).
        Neox = 2 "NEOX",
        /// NEOX pairs, four position rows by section.
        Mrope = 8 "MROPE",
        /// As MROPE, but the angles of each section begin anew. `n_dims` counts all values that are turned:
        /// twice what ggml has there.
        Vision = 24 "VISION",
        /// NEOX pairs, four position rows, sections interleaved.
        Imrope = 40 "IMROPE",
    }
}

params! {
    /// ROPE, as ggml defines its parameters.
    pub struct Rope {
        /// Values of a head that are turned; the rest is copied. Even.
        pub n_dims: u32,
        /// A [`RopeMode`].
        pub mode: u32,
        /// Context length of the training, for YaRN.
        pub n_ctx_orig: u32,
        /// Base of the angles.
        pub freq_base: f32,
        /// Scale of the positions.
        pub freq_scale: f32,
        /// Share of extrapolation in YaRN; 0 turns YaRN off.
        pub ext_factor: f32,
        /// Magnitude of cos and sin.
        pub attn_factor: f32,
        /// YaRN's fast correction bound.
        pub beta_fast: f32,
        /// YaRN's slow correction bound.
        pub beta_slow: f32,
        /// Pairs per position row (time, height, width, extra) in the multi modes.
        pub sections: [u32; 4],
        /// Growth of what is turned with the logarithm of its position p: it is also multiplied by
        /// 1 + temperature * ln(1 + floor(p / temperature_span)). 0 for none; else whole heads are turned, by
        /// one position.
        pub temperature: f32,
        /// Positions from one step of that growth to the next: at least 1, unless there is none.
        pub temperature_span: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(Rope::FIELDS).in_place(&[X]);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    same(o, X, Y)?;
    let x = o.operand(X)?;
    let p: Rope = o.params();
    shape(!x[0].cut, X)?;
    param(p.n_dims.is_multiple_of(2) && (2..=x[0].n).contains(&p.n_dims), word!(Rope.n_dims))?;
    let mode = RopeMode::parse(p.mode).ok_or(Fault::new(ErrorCode::BadParam, word!(Rope.mode) as u32))?;
    param(p.freq_base.is_finite() && p.freq_base > 0.0, word!(Rope.freq_base))?;
    for (value, word) in [
        (p.freq_scale, word!(Rope.freq_scale)),
        (p.ext_factor, word!(Rope.ext_factor)),
        (p.attn_factor, word!(Rope.attn_factor)),
        (p.beta_fast, word!(Rope.beta_fast)),
        (p.beta_slow, word!(Rope.beta_slow)),
    ] {
        param(value.is_finite(), word)?;
    }
    let sections = match mode {
        RopeMode::Mrope | RopeMode::Vision | RopeMode::Imrope => p.sections.len() as u32,
        RopeMode::Norm | RopeMode::Neox => 1,
    };
    if sections > 1 {
        let total = p.sections.iter().try_fold(0u32, |sum, &s| sum.checked_add(s));
        param(total.is_some_and(|t| (1..=x[0].n).contains(&t)), word!(Rope.sections))?;
    }
    // What is not turned would not grow.
    let grows = p.temperature > 0.0 && sections == 1 && x[0] == Len::fixed(p.n_dims);
    param(p.temperature == 0.0 || p.temperature.is_finite() && grows, word!(Rope.temperature))?;
    param(p.temperature == 0.0 || p.temperature_span > 0, word!(Rope.temperature_span))?;
    if let Some(positions) = o.optional(POSITIONS) {
        shape(positions == [x[2], Len::fixed(sections), Len::ONE, Len::ONE], POSITIONS)?;
    } else {
        shape(o.rows_have_slots(x[2]), X)?;
    }
    if let Some(factors) = o.optional(FACTORS) {
        shape(factors == [Len::fixed(p.n_dims / 2), Len::ONE, Len::ONE, Len::ONE], FACTORS)?;
    }
    Ok(())
}

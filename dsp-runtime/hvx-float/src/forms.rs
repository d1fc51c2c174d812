//! The 132 instructions, and what each makes of a lane.
//!
//! An instruction is written as assemblers have it, with letters for registers. What it computes is read from
//! that: the name, the types of its operands, and which of them are pairs. Every instruction works on words
//! (or on pairs of them) by themselves, so a lane here is a word of each operand.

mod element;
mod shape;

use crate::extended::DEFAULT;
pub use shape::{Operand, Shape, Type};

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The first version that has it: 68 for v68.
    pub since: u32,
    /// Vd and Vx are vectors that are written, Vu and Vv are read, Vdd, Vxx and Vuu are pairs, Qd and Qx
    /// predicates, Rt a scalar register.
    pub syntax: &'static str,
}

/// A word of a vector register, and on v79 and later the bits beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The register's bits.
    pub bits: u32,
    /// L, R, E and Q, the highest bit first.
    pub beside: u32,
}

/// What an instruction reads of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Vu, or Vuu, the low register first.
    pub u: [Word; 2],
    /// Vv.
    pub v: Word,
    /// What was in Vx or Vxx.
    pub x: [u32; 2],
    /// What was in Qx: a bit for each byte.
    pub q: u32,
    /// Rt.
    pub t: u32,
}

/// What it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// Vd or Vdd, the low register first.
    pub d: [Word; 2],
    /// Which bits of them are known: where published descriptions leave a result open, there are zeros.
    pub known: [u32; 2],
    /// Qd: a bit for each byte.
    pub q: u32,
}

/// A version of HVX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// Whether qfloat has bits beside the register.
    pub const fn is_extended(self) -> bool {
        self.0 >= 79
    }

    /// Whether comparisons and maxima know NaN; before, it is a number beyond infinity.
    pub const fn knows_nan(self) -> bool {
        self.0 >= 81
    }
}

const fn form(since: u32, syntax: &'static str) -> Form {
    Form { since, syntax }
}

/// Instructions whose results are not known: two descriptions of f8 have different biases, and of these eight
/// the order of lanes is not described.
pub const UNKNOWN: [&str; 8] = [
    "Vdd.hf=vadd(Vu.f8,Vv.f8)",
    "Vdd.hf=vsub(Vu.f8,Vv.f8)",
    "Vdd.hf=vmpy(Vu.f8,Vv.f8)",
    "Vxx.hf+=vmpy(Vu.f8,Vv.f8)",
    "Vd.f8=vcvt(Vu.hf,Vv.hf)",
    "Vdd.hf=vcvt(Vu.f8)",
    "Vd.f8=Vu.qf16",
    "Vdd.qf16=Vu.f8",
];

impl Form {
    /// Whether its results are known.
    pub fn is_known(&self) -> bool {
        !UNKNOWN.contains(&self.syntax)
    }

    /// Whether it is arithmetic in an IEEE format, which v79 and later are said not to have any more.
    pub fn is_ieee_arithmetic(&self) -> bool {
        let Shape { operation, to, .. } = self.shape();
        let arithmetic = matches!(operation, "vadd" | "vsub" | "vmpy" | "vdmpy");
        arithmetic && matches!(to, Type::Sf | Type::Hf) && self.since < 79
    }

    /// Its parts.
    pub fn shape(&self) -> Shape {
        Shape::of(self.syntax)
    }

    /// What it makes of a lane on this version.
    pub fn compute(&self, version: Version, input: &Input) -> Output {
        let reset = |bits| Word { bits, beside: DEFAULT };
        let output = Output { d: input.x.map(reset), known: [u32::MAX; 2], q: input.q };
        element::compute(&self.shape(), version, input, output)
    }
}

/// All of them, by the version that brought them.
pub const FORMS: [Form; 132] = [
    form(68, "Vd.qf32=vadd(Vu.sf,Vv.sf)"),
    form(68, "Vd.qf32=vadd(Vu.qf32,Vv.qf32)"),
    form(68, "Vd.qf32=vadd(Vu.qf32,Vv.sf)"),
    form(68, "Vd.qf32=vsub(Vu.sf,Vv.sf)"),
    form(68, "Vd.qf32=vsub(Vu.qf32,Vv.qf32)"),
    form(68, "Vd.qf32=vsub(Vu.qf32,Vv.sf)"),
    form(68, "Vd.qf16=vadd(Vu.hf,Vv.hf)"),
    form(68, "Vd.qf16=vadd(Vu.qf16,Vv.qf16)"),
    form(68, "Vd.qf16=vadd(Vu.qf16,Vv.hf)"),
    form(68, "Vd.qf16=vsub(Vu.hf,Vv.hf)"),
    form(68, "Vd.qf16=vsub(Vu.qf16,Vv.qf16)"),
    form(68, "Vd.qf16=vsub(Vu.qf16,Vv.hf)"),
    form(68, "Vd.qf32=vmpy(Vu.qf32,Vv.qf32)"),
    form(68, "Vd.qf32=vmpy(Vu.sf,Vv.sf)"),
    form(68, "Vdd.qf32=vmpy(Vu.hf,Vv.hf)"),
    form(68, "Vdd.qf32=vmpy(Vu.qf16,Vv.hf)"),
    form(68, "Vdd.qf32=vmpy(Vu.qf16,Vv.qf16)"),
    form(68, "Vd.qf16=vmpy(Vu.qf16,Vv.qf16)"),
    form(68, "Vd.qf16=vmpy(Vu.hf,Vv.hf)"),
    form(68, "Vd.qf16=vmpy(Vu.qf16,Vv.hf)"),
    form(68, "Vd.sf=Vu.qf32"),
    form(68, "Vd.hf=Vu.qf16"),
    form(68, "Vd.hf=Vuu.qf32"),
    form(68, "Vd.sf=vmax(Vu.sf,Vv.sf)"),
    form(68, "Vd.sf=vmin(Vu.sf,Vv.sf)"),
    form(68, "Vd.hf=vmax(Vu.hf,Vv.hf)"),
    form(68, "Vd.hf=vmin(Vu.hf,Vv.hf)"),
    form(68, "Qd=vcmp.gt(Vu.sf,Vv.sf)"),
    form(68, "Qx&=vcmp.gt(Vu.sf,Vv.sf)"),
    form(68, "Qx|=vcmp.gt(Vu.sf,Vv.sf)"),
    form(68, "Qx^=vcmp.gt(Vu.sf,Vv.sf)"),
    form(68, "Qd=vcmp.gt(Vu.hf,Vv.hf)"),
    form(68, "Qx&=vcmp.gt(Vu.hf,Vv.hf)"),
    form(68, "Qx|=vcmp.gt(Vu.hf,Vv.hf)"),
    form(68, "Qx^=vcmp.gt(Vu.hf,Vv.hf)"),
    form(68, "Vd.sf=vadd(Vu.sf,Vv.sf)"),
    form(68, "Vd.sf=vsub(Vu.sf,Vv.sf)"),
    form(68, "Vd.sf=vmpy(Vu.sf,Vv.sf)"),
    form(68, "Vd.hf=vadd(Vu.hf,Vv.hf)"),
    form(68, "Vd.hf=vsub(Vu.hf,Vv.hf)"),
    form(68, "Vd.hf=vmpy(Vu.hf,Vv.hf)"),
    form(68, "Vx.hf+=vmpy(Vu.hf,Vv.hf)"),
    form(68, "Vdd.sf=vadd(Vu.hf,Vv.hf)"),
    form(68, "Vdd.sf=vsub(Vu.hf,Vv.hf)"),
    form(68, "Vdd.sf=vmpy(Vu.hf,Vv.hf)"),
    form(68, "Vxx.sf+=vmpy(Vu.hf,Vv.hf)"),
    form(68, "Vd.sf=vdmpy(Vu.hf,Vv.hf)"),
    form(68, "Vx.sf+=vdmpy(Vu.hf,Vv.hf)"),
    form(68, "Vd.ub=vcvt(Vu.hf,Vv.hf)"),
    form(68, "Vd.b=vcvt(Vu.hf,Vv.hf)"),
    form(68, "Vd.uh=vcvt(Vu.hf)"),
    form(68, "Vd.h=vcvt(Vu.hf)"),
    form(68, "Vdd.hf=vcvt(Vu.ub)"),
    form(68, "Vdd.hf=vcvt(Vu.b)"),
    form(68, "Vd.hf=vcvt(Vu.uh)"),
    form(68, "Vd.hf=vcvt(Vu.h)"),
    form(68, "Vdd.sf=vcvt(Vu.hf)"),
    form(68, "Vd.hf=vcvt(Vu.sf,Vv.sf)"),
    form(68, "Vd.sf=vfmax(Vu.sf,Vv.sf)"),
    form(68, "Vd.sf=vfmin(Vu.sf,Vv.sf)"),
    form(68, "Vd.hf=vfmax(Vu.hf,Vv.hf)"),
    form(68, "Vd.hf=vfmin(Vu.hf,Vv.hf)"),
    form(68, "Vd.sf=vfneg(Vu.sf)"),
    form(68, "Vd.sf=vabs(Vu.sf)"),
    form(68, "Vd.hf=vfneg(Vu.hf)"),
    form(68, "Vd.hf=vabs(Vu.hf)"),
    form(73, "Vdd.sf=vadd(Vu.bf,Vv.bf)"),
    form(73, "Vdd.sf=vsub(Vu.bf,Vv.bf)"),
    form(73, "Vdd.sf=vmpy(Vu.bf,Vv.bf)"),
    form(73, "Vxx.sf+=vmpy(Vu.bf,Vv.bf)"),
    form(73, "Vd.bf=vcvt(Vu.sf,Vv.sf)"),
    form(73, "Vd.bf=vmax(Vu.bf,Vv.bf)"),
    form(73, "Vd.bf=vmin(Vu.bf,Vv.bf)"),
    form(73, "Qd=vcmp.gt(Vu.bf,Vv.bf)"),
    form(73, "Qx&=vcmp.gt(Vu.bf,Vv.bf)"),
    form(73, "Qx|=vcmp.gt(Vu.bf,Vv.bf)"),
    form(73, "Qx^=vcmp.gt(Vu.bf,Vv.bf)"),
    form(73, "Vd.sf=Vu.w"),
    form(73, "Vd.w=Vu.sf"),
    form(73, "Vd.hf=Vu.h"),
    form(73, "Vd.h=Vu.hf"),
    form(79, "Vd=vgetqfext(Vu.x,Rt)"),
    form(79, "Vx|=vgetqfext(Vu.x,Rt)"),
    form(79, "Vd.x=vsetqfext(Vu,Rt)"),
    form(79, "Vd=vmerge(Vu.x,Vv.w)"),
    form(79, "Vdd.hf=vadd(Vu.f8,Vv.f8)"),
    form(79, "Vdd.hf=vsub(Vu.f8,Vv.f8)"),
    form(79, "Vdd.hf=vmpy(Vu.f8,Vv.f8)"),
    form(79, "Vxx.hf+=vmpy(Vu.f8,Vv.f8)"),
    form(79, "Vd.f8=vcvt(Vu.hf,Vv.hf)"),
    form(79, "Vdd.hf=vcvt(Vu.f8)"),
    form(79, "Vdd.hf=vcvt2(Vu.ub)"),
    form(79, "Vdd.hf=vcvt2(Vu.b)"),
    form(79, "Vd.ub=vcvt2(Vu.hf,Vv.hf)"),
    form(79, "Vd.b=vcvt2(Vu.hf,Vv.hf)"),
    form(79, "Vd.f8=vfmax(Vu.f8,Vv.f8)"),
    form(79, "Vd.f8=vfmin(Vu.f8,Vv.f8)"),
    form(79, "Vd.f8=vfneg(Vu.f8)"),
    form(79, "Vd.f8=vabs(Vu.f8)"),
    form(79, "Vd.qf16=vmpy(Vu.hf,Rt.hf)"),
    form(79, "Vd.qf16=vmpy(Vu.qf16,Rt.hf)"),
    form(79, "Vd.qf32=vmpy(Vu.sf,Rt.sf)"),
    form(81, "Vd.qf32=vsub(Vu.sf,Vv.qf32)"),
    form(81, "Vd.qf16=vsub(Vu.hf,Vv.qf16)"),
    form(81, "Vd.qf32=Vu.qf32"),
    form(81, "Vd.qf32=Vu.sf"),
    form(81, "Vd.qf16=Vu.qf16"),
    form(81, "Vd.qf16=Vu.hf"),
    form(81, "Vd.qf32=vneg(Vu.qf32)"),
    form(81, "Vd.qf32=vneg(Vu.sf)"),
    form(81, "Vd.qf16=vneg(Vu.qf16)"),
    form(81, "Vd.qf16=vneg(Vu.hf)"),
    form(81, "Vd.qf32=vabs(Vu.qf32)"),
    form(81, "Vd.qf32=vabs(Vu.sf)"),
    form(81, "Vd.qf16=vabs(Vu.qf16)"),
    form(81, "Vd.qf16=vabs(Vu.hf)"),
    form(81, "Vd.bf=Vuu.qf32"),
    form(81, "Vd.f8=Vu.qf16"),
    form(81, "Vdd.qf16=Vu.f8"),
    form(81, "Vd.h=Vu.hf:rnd"),
    form(81, "Qd=vcmp.eq(Vu.sf,Vv.sf)"),
    form(81, "Qx&=vcmp.eq(Vu.sf,Vv.sf)"),
    form(81, "Qx|=vcmp.eq(Vu.sf,Vv.sf)"),
    form(81, "Qx^=vcmp.eq(Vu.sf,Vv.sf)"),
    form(81, "Qd=vcmp.eq(Vu.hf,Vv.hf)"),
    form(81, "Qx&=vcmp.eq(Vu.hf,Vv.hf)"),
    form(81, "Qx|=vcmp.eq(Vu.hf,Vv.hf)"),
    form(81, "Qx^=vcmp.eq(Vu.hf,Vv.hf)"),
    form(81, "Vd.w=vilog2(Vu.sf)"),
    form(81, "Vd.w=vilog2(Vu.qf32)"),
    form(81, "Vd.w=vilog2(Vu.hf)"),
    form(81, "Vd.w=vilog2(Vu.qf16)"),
];

#[cfg(test)]
mod tests;

//! qf32 and qf16 of v79 and v81.
//!
//! The registers have what those of v68 to v75 had, and beside each word four bits, of which a qf16 has two:
//! the significand's last bit L, which used to be implied; R and Q, which say how the result was rounded; and
//! E, a ninth bit of the exponent of a qf32. A result is rounded to the nearest number of an IEEE width, ties
//! to even, and the bits that are stored say whether it lies beside the exact one.
//!
//! R also marks numbers that were computed with the other sign, and are complemented: that changes no value,
//! but the bits, and so what is left when those beside the register are lost.

use crate::ieee::{self, Size};
use crate::{FRACTION, GUARD, align, shift_to_odd};

/// One word or half of a register, and the bits beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The register's bits.
    pub bits: u32,
    /// Of a word: L, R, E and Q, the highest bit first. Of a half: L and R.
    pub beside: u32,
}

/// The bits beside each word that no qfloat instruction has written: with them it has the value of v75.
pub const DEFAULT: u32 = 0b1010;

/// A format of qfloat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    fraction: i32,
    smallest: i32,
    largest: i32,
}

/// A word and four bits.
pub const QF32: Format = Format { fraction: 23, smallest: -255, largest: 256 };
/// A half and two bits.
pub const QF16: Format = Format { fraction: 10, smallest: -15, largest: 16 };

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    kind: Kind,
    /// Whether the number is the negative of what `kind` says.
    minus: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nan,
    Infinite,
    /// significand * 2^(exponent - 23).
    Finite {
        significand: i64,
        exponent: i32,
        /// R and Q differ: the exact number was a little larger or smaller, by less than half a unit.
        beside: i64,
    },
}

impl Format {
    const fn is_qf32(self) -> bool {
        self.fraction == FRACTION
    }

    /// The number of a lane.
    pub fn number(self, lane: Lane) -> Number {
        let special = if self.is_qf32() {
            // The last bit says whether it was exact.
            match (lane.bits, lane.beside >> 1) {
                (0x7fff_ff7f, 0b110) => Some((Kind::Nan, false)),
                (0x7fff_ff7f, 0b100) => Some((Kind::Infinite, false)),
                (0x8000_007f, 0b000) => Some((Kind::Nan, true)),
                (0x8000_007f, 0b010) => Some((Kind::Infinite, true)),
                _ => None,
            }
        } else {
            match (lane.bits, lane.beside) {
                (0x7fff, 3) => Some((Kind::Nan, false)),
                (0x7fff, 2) => Some((Kind::Infinite, false)),
                (0x801f, 0) => Some((Kind::Nan, true)),
                (0x801f, 1) => Some((Kind::Infinite, true)),
                _ => None,
            }
        };
        if let Some((kind, minus)) = special {
            return Number { kind, minus };
        }
        let bit = |n: u32| i64::from(lane.beside >> n & 1);
        let (top, exponent, [l, r, q]) = if self.is_qf32() {
            let field = (lane.bits & 0xff) as i32 + 256 * bit(1) as i32;
            (lane.bits as i32 >> 8, (field - 128).rem_euclid(512) - 255, [bit(3), bit(2), bit(0)])
        } else {
            let field = (lane.bits & 0x1f) as i32;
            (i32::from(lane.bits as i16 >> 5), field - 15, [bit(1), bit(0), bit(0)])
        };
        let value = (2 * i64::from(top) + l + r) << (FRACTION - self.fraction);
        // Three eighths above what is left of R, or below its next number.
        let above = 3 * (q - r);
        let minus = r == 1;
        let (significand, beside) = if minus { (-value, -above) } else { (value, above) };
        Number { kind: Kind::Finite { significand, exponent, beside }, minus }
    }

    /// a + b.
    pub fn sum(self, a: Number, b: Number) -> Lane {
        match (a.kind, b.kind) {
            (Kind::Nan, _) | (_, Kind::Nan) => {
                let positive = [a, b].iter().any(|x| x.kind == Kind::Nan && !x.minus);
                self.nan(!positive)
            }
            (Kind::Infinite, Kind::Infinite) if a.minus != b.minus => self.nan(false),
            (Kind::Infinite, _) => self.infinity(a.minus, true),
            (_, Kind::Infinite) => self.infinity(b.minus, true),
            (
                Kind::Finite { significand: sa, exponent: ea, .. },
                Kind::Finite { significand: sb, exponent: eb, .. },
            ) => {
                let differ = i32::from(a.is_negative() != b.is_negative());
                let (high, e_high, e_low) = if ea > eb { (sa, ea, eb) } else { (sb, eb, ea) };
                let leading = e_high + leading(high) - differ;
                let exponent = if high == 0 { e_low } else { leading.max(e_low) };
                let signed = |significand: i64, x: Number| if x.minus { -significand } else { significand };
                let exact = align(signed(sa, a), ea, exponent) + align(signed(sb, b), eb, exponent);
                self.round(exponent, exact, a.minus && b.minus)
            }
        }
    }

    /// a * b.
    pub fn product(self, a: Number, b: Number) -> Lane {
        let negative = a.is_negative() != b.is_negative();
        match (a.kind, b.kind) {
            (Kind::Nan, _) | (_, Kind::Nan) => self.nan(negative),
            (Kind::Infinite, Kind::Finite { significand: 0, .. })
            | (Kind::Finite { significand: 0, .. }, Kind::Infinite) => self.nan(negative),
            (Kind::Infinite, _) | (_, Kind::Infinite) => self.infinity(negative, true),
            (
                Kind::Finite { significand: sa, exponent: ea, .. },
                Kind::Finite { significand: sb, exponent: eb, .. },
            ) => {
                let exact = (i128::from(sa) * i128::from(sb)) << (GUARD - FRACTION);
                let exact = if a.minus == b.minus { exact } else { -exact };
                let exponent = if exact == 0 { self.smallest } else { ea + eb };
                let complemented = negative != (sa < 0 && sb < 0);
                self.round(exponent, exact, complemented)
            }
        }
    }

    /// The number as a result of this format, normalised.
    pub fn normalised(self, x: Number) -> Lane {
        let kind = Kind::Finite { significand: 0, exponent: self.smallest, beside: 0 };
        self.sum(x, Number { kind, minus: true })
    }

    /// Rounds x / 2^(23 + [`GUARD`]) * 2^exponent. With `complemented`, what is rounded is its negative, and
    /// the result's bits are complemented.
    fn round(self, mut exponent: i32, x: i128, complemented: bool) -> Lane {
        const ONE: i128 = 1 << (FRACTION + GUARD);
        let mut y = if complemented { -x } else { x };
        let mut exact = true;
        if !(-2 * ONE..2 * ONE).contains(&y) && exponent < self.largest {
            y = shift_to_odd(y, 1);
            exponent += 1;
        }
        if exponent > self.largest || (exponent == self.largest && !(-ONE..ONE).contains(&y)) {
            return self.infinity((y < 0) != complemented, false);
        }
        if exponent < self.smallest {
            (y, exponent, exact) = (0, self.smallest, false);
        }
        let unit = 1i128 << (GUARD + FRACTION - self.fraction);
        let (whole, rest) = (y.div_euclid(unit) as i64, y.rem_euclid(unit));
        exact &= rest == 0;
        let up = 2 * rest > unit || (2 * rest == unit && whole & 1 == 1);
        // The significand with R and Q below it, and a one below them.
        let with_rest = 8 * whole + 4 * i64::from(up) + 2 * i64::from(up == exact) + 1;
        let with_rest = if self.is_qf32() { with_rest } else { 4 * whole + 2 * i64::from(up) + 1 };
        self.pack(if complemented { -with_rest } else { with_rest }, exponent)
    }

    /// A lane of a significand with all bits that are stored and one below them.
    fn pack(self, with_rest: i64, exponent: i32) -> Lane {
        let bit = |n: u32| (with_rest >> n & 1) as u32;
        if self.is_qf32() {
            let field = (exponent + 383).rem_euclid(512) as u32;
            let bits = ((with_rest >> 4) as u32) << 8 | field & 0xff;
            Lane { bits, beside: bit(3) << 3 | bit(2) << 2 | (field >> 8) << 1 | bit(1) }
        } else {
            let bits = ((with_rest >> 3) as u32 & 0x7ff) << 5 | (exponent + 15) as u32 & 0x1f;
            Lane { bits, beside: bit(2) << 1 | bit(1) }
        }
    }

    fn nan(self, negative: bool) -> Lane {
        let (bits, beside) = match (self.is_qf32(), negative) {
            (true, false) => (0x7fff_ff7f, 0b1101),
            (true, true) => (0x8000_007f, 0b0000),
            (false, false) => (0x7fff, 3),
            (false, true) => (0x801f, 0),
        };
        Lane { bits, beside }
    }

    fn infinity(self, negative: bool, exact: bool) -> Lane {
        let (bits, beside) = match (self.is_qf32(), negative) {
            (true, false) => (0x7fff_ff7f, 0b1000 + u32::from(!exact)),
            (true, true) => (0x8000_007f, 0b0100 + u32::from(exact)),
            (false, false) => (0x7fff, 2),
            (false, true) => (0x801f, 1),
        };
        Lane { bits, beside }
    }
}

/// The exponent of a significand's leading bit in two's complement, relative to that of 2^23: of a negative
/// power of two it is one less.
fn leading(significand: i64) -> i32 {
    let size = if significand < 0 { !significand } else { significand };
    size.checked_ilog2().map_or(-1, |bit| bit as i32) - FRACTION
}

impl Number {
    /// An IEEE operand.
    pub fn ieee(format: ieee::Format, bits: u32) -> Self {
        let kind = match format.size(bits) {
            Size::Nan => Kind::Nan,
            Size::Infinite => Kind::Infinite,
            Size::Finite { significand, exponent } => Kind::Finite {
                significand: i64::from(significand) << (FRACTION - format.fraction),
                exponent,
                beside: 0,
            },
        };
        Self { kind, minus: format.is_negative(bits) }
    }

    /// Whether there is a minus sign before it. (A zero has one, too.)
    pub const fn is_negative(self) -> bool {
        match self.kind {
            Kind::Finite { significand, .. } => self.minus != (significand < 0),
            Kind::Nan | Kind::Infinite => self.minus,
        }
    }

    /// The number with the other sign.
    #[must_use]
    pub const fn negated(self) -> Self {
        Self { minus: !self.minus, ..self }
    }

    /// Rounded to an IEEE format.
    pub fn to_ieee(self, format: ieee::Format) -> u32 {
        let sign = if self.is_negative() { format.sign() } else { 0 };
        match self.kind {
            Kind::Nan => sign | format.nan(),
            Kind::Infinite => sign | format.infinity(),
            Kind::Finite { significand, exponent, beside } => {
                let eighths = 8 * significand + beside;
                let negative = if eighths == 0 { self.is_negative() } else { self.minus != (eighths < 0) };
                format.rounded(negative, eighths.unsigned_abs().into(), exponent - FRACTION - 3)
            }
        }
    }

    /// The logarithm of its size to the base 2, rounded down; `bits` is the width of the result.
    pub fn ilog2(self, bits: u32) -> u32 {
        let largest = (1u32 << (bits - 1)) - 1;
        match self.kind {
            Kind::Nan => largest,
            Kind::Infinite => largest - 1,
            Kind::Finite { significand: 0, .. } => largest + 1,
            Kind::Finite { significand, exponent, .. } => {
                let log = significand.unsigned_abs().ilog2() as i32 - FRACTION + exponent;
                log as u32 & (largest * 2 + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests;

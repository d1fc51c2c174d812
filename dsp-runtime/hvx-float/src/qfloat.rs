//! qf32 and qf16 of v68 to v75.
//!
//! A number has a significand in two's complement, below which a bit that is always one is implied, and a
//! biased exponent. So there is no zero (a word of zeros is 2^-150), no infinity and no NaN, and a result is
//! an odd multiple of its last place: 1 + 0 is more than 1. Numbers need not be normalised.
//!
//! The rules are those of a model that the vendor has published; no processor was asked.

use crate::ieee;
use crate::{FRACTION, GUARD, align, shift_to_odd};

/// A format of qfloat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of a significand's fraction.
    fraction: i32,
    exponent_bits: i32,
}

/// 24 bits of significand, 8 of exponent.
pub const QF32: Format = Format { fraction: 23, exponent_bits: 8 };
/// 11 bits of significand, 5 of exponent.
pub const QF16: Format = Format { fraction: 10, exponent_bits: 5 };

/// An operand: significand * 2^(exponent - 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// That of an IEEE operand is its size.
    significand: i64,
    exponent: i32,
    sign: Sign,
}

/// Where an operand has its sign, which shows in how results are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// In the significand.
    Inside,
    /// Beside the size of an IEEE operand, and not set.
    Plus,
    /// The same, and set.
    Minus,
}

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    const fn smallest(self) -> i32 {
        -self.bias()
    }

    const fn largest(self) -> i32 {
        self.bias() + 1
    }

    /// Bits of a whole number.
    const fn bits(self) -> i32 {
        self.fraction + 1 + self.exponent_bits
    }

    /// The bits of the significand.
    const fn mask(self) -> u32 {
        ((1 << self.bits()) - (1u64 << self.exponent_bits)) as u32
    }

    /// The number that bits stand for.
    #[inline]
    pub const fn number(self, bits: u32) -> Number {
        let signed = ((bits << (32 - self.bits())) as i32) >> (32 - 1 - self.fraction);
        let field = (bits & ((1 << self.exponent_bits) - 1)) as i32;
        let significand = (2 * signed as i64 + 1) << (FRACTION - self.fraction);
        Number { significand, exponent: field - self.bias(), sign: Sign::Inside }
    }

    /// The same number with the other sign: exact.
    pub const fn complement(self, bits: u32) -> u32 {
        bits ^ self.mask()
    }

    /// a + b.
    #[inline]
    pub fn sum(self, a: Number, b: Number) -> u32 {
        // Two negative numbers are added and rounded as their sizes.
        if a.is_minus() && b.is_minus() {
            return self.complement(self.sum(a.negated(), b.negated()));
        }
        let (a, b) = (a.signed(), b.signed());
        let (high, low) = if a.exponent > b.exponent { (a, b) } else { (b, a) };
        let exponent = (high.exponent + self.leading(high)).max(low.exponent);
        let exact = align(a.significand, a.exponent, exponent) + align(b.significand, b.exponent, exponent);
        self.round(exponent, exact)
    }

    /// a * b. Of IEEE operands the sizes are multiplied and rounded.
    #[inline]
    pub fn product(self, a: Number, b: Number) -> u32 {
        let exact = i128::from(a.significand) * i128::from(b.significand);
        let bits = self.round(a.exponent + b.exponent, exact << (GUARD - FRACTION));
        if a.is_minus() == b.is_minus() { bits } else { self.complement(bits) }
    }

    /// The exponent of the leading bit, relative to the number's exponent.
    fn leading(self, x: Number) -> i32 {
        let leading = x.significand.unsigned_abs().checked_ilog2();
        leading.map_or(-1 - self.fraction, |bit| bit as i32 - FRACTION)
    }

    /// The bits of a sum or product: x / 2^(23 + [`GUARD`]) * 2^exponent.
    ///
    /// Of four adjacent multiples of the last place, the first and the third after a multiple of four can be
    /// represented, and the second with an exponent that is larger by one.
    fn round(self, mut exponent: i32, mut x: i128) -> u32 {
        const TWO: i128 = 2 << (FRACTION + GUARD);
        let unit = 1i128 << (GUARD + FRACTION - self.fraction);
        let bits = |significand: i64, exponent: i32| {
            ((significand as u32) << self.exponent_bits) & self.mask() | (exponent + self.bias()) as u32
        };
        if x == 0 {
            return 0;
        }
        let big = !(-TWO..TWO).contains(&x);
        if exponent > self.largest() || (big && exponent == self.largest()) {
            let most = 1 << self.fraction;
            return bits(if x < 0 { -most } else { most - 1 }, self.largest());
        }
        if exponent <= self.smallest() - 2 {
            return bits(if x < 0 { -1 } else { 0 }, self.smallest());
        }
        let mut coarse = exponent == self.largest();
        if exponent == self.smallest() - 1 || big {
            x = shift_to_odd(x, 1);
            exponent += 1;
            coarse = true;
        }
        // The odd number of units is twice the significand and one.
        let (fours, rest) = (x.div_euclid(4 * unit) as i64, x.rem_euclid(4 * unit));
        if coarse {
            bits(2 * fours + i64::from(rest > 2 * unit), exponent)
        } else if 2 * rest <= 3 * unit {
            bits(2 * fours, exponent)
        } else if 2 * rest <= 5 * unit {
            bits(fours, exponent + 1)
        } else {
            bits(2 * fours + 1, exponent)
        }
    }
}

impl Number {
    /// An IEEE operand; infinities and NaN are ordinary numbers with the largest exponent.
    #[inline]
    pub const fn ieee(format: ieee::Format, bits: u32) -> Self {
        let (size, exponent) = format.number(bits);
        let significand = (size as i64) << (FRACTION - format.fraction);
        let sign = if format.is_negative(bits) { Sign::Minus } else { Sign::Plus };
        Self { significand, exponent, sign }
    }

    /// The number with the other sign.
    #[must_use]
    pub const fn negated(self) -> Self {
        match self.sign {
            Sign::Inside => Self { significand: -self.significand, ..self },
            Sign::Plus => Self { sign: Sign::Minus, ..self },
            Sign::Minus => Self { sign: Sign::Plus, ..self },
        }
    }

    const fn is_minus(self) -> bool {
        matches!(self.sign, Sign::Minus)
    }

    /// The number with its sign in the significand.
    const fn signed(self) -> Self {
        let significand = if self.is_minus() { -self.significand } else { self.significand };
        Self { significand, sign: Sign::Inside, ..self }
    }

    /// Rounded to an IEEE format. There is no infinity above the range, but numbers with the exponent field
    /// of infinity, and the largest of them for all that is larger.
    #[inline]
    pub fn to_ieee(self, format: ieee::Format) -> u32 {
        let signed = self.signed();
        let size = signed.significand.unsigned_abs();
        let bits = format.nearest(size.into(), signed.exponent - FRACTION).min(format.nan().into()) as u32;
        bits | if signed.significand < 0 { format.sign() } else { 0 }
    }
}

#[cfg(test)]
mod tests;

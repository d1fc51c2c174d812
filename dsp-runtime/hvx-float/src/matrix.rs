//! What HMX, the matrix unit of v73 to v81, computes of fp16 tiles.
//!
//! Each of 32 by 32 sums is an [`Accumulator`]: a significand with 22 fraction bits, and an exponent.
//! Products of neighbouring k are added in groups: brought to the largest exponent of the group, added, and
//! then added to the accumulator at the larger exponent of both. Whatever is shifted out on the right is
//! or-ed into the last bit that stays. A sum is shifted left by two bits at most, however much of it has
//! cancelled: what cancels exactly leaves less of what comes later than an IEEE sum would.
//!
//! Exponent 31 of fp16 is one like any other. There are no infinities and no NaN, and what is larger than
//! 131008 becomes that: the unit is told so by two bits of USR, which are zero unless somebody sets them.
//!
//! Source: two published models of the unit and a third that its author compared with the vendor's
//! simulator. They differ for subnormal operands, which are normalised here, and nothing was compared with
//! a processor.

mod row;
#[cfg(test)]
mod tests;

pub use self::row::{Halves, Row};

/// Rows, columns and values of k of a tile.
pub const SIDE: usize = 32;
/// Values of a tile.
pub const VALUES: usize = SIDE * SIDE;

/// Bits of a significand below the point.
const FRACTION: i32 = 22;
/// The exponent of an empty accumulator: below all that products have.
const LOWEST: i32 = -64;
/// Bits of an accumulator that a store looks at.
const KEPT: u32 = 15;
/// How far a sum is shifted left at most.
const MOST_LEFT: i32 = 2;

/// Versions that sum alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// v73: 4 products at a time.
    V73,
    /// v75, v79 and v81: 8 products at a time.
    V75,
}

impl Generation {
    /// Products that are added at a time.
    pub const fn group(self) -> usize {
        match self {
            Self::V73 => 4,
            Self::V75 => 8,
        }
    }

    /// Bits of the adder.
    const fn width(self) -> u32 {
        match self {
            Self::V73 => 30,
            Self::V75 => 31,
        }
    }
}

/// A half, split: its value is `significand * 2^(exponent - 10)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Half {
    significand: i32,
    exponent: i32,
}

impl Half {
    /// The half with these bits; subnormal ones are normalised.
    pub const fn new(bits: u16) -> Self {
        let (code, fraction) = ((bits >> 10 & 31) as i32, (bits & 0x3ff) as i32);
        let (size, exponent) = match (code, fraction) {
            (0, 0) => (0, 0),
            (0, _) => {
                let up = fraction.leading_zeros() as i32 - 21;
                (fraction << up, -14 - up)
            }
            _ => (fraction | 0x400, code - 15),
        };
        Self { significand: if bits & 0x8000 == 0 { size } else { -size }, exponent }
    }

    /// Whether it is 0 or -0.
    pub const fn is_zero(self) -> bool {
        self.significand == 0
    }

    const fn exact(self) -> Exact {
        Exact { significand: self.significand as i64, exponent: self.exponent - 10 }
    }
}

/// A sum of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accumulator {
    significand: i32,
    exponent: i32,
}

impl Accumulator {
    /// No products.
    pub const EMPTY: Self = Self { significand: 0, exponent: LOWEST };

    /// Adds the products of a group: of as many pairs as both have, [`Generation::group`] of them.
    #[inline]
    pub fn add(&mut self, generation: Generation, a: &[Half], w: &[Half]) {
        let mut largest = i32::MIN;
        for (a, w) in a.iter().zip(w) {
            if a.significand != 0 && w.significand != 0 {
                largest = largest.max(a.exponent + w.exponent);
            }
        }
        if largest == i32::MIN {
            return;
        }
        let mut sum = 0;
        for (a, w) in a.iter().zip(w) {
            // Products have 20 fraction bits.
            let product = a.significand * w.significand * (1 << (FRACTION - 18));
            sum += shift_right(product, (largest - a.exponent - w.exponent) as u32);
        }
        // They count as numbers with 18 fraction bits, hence the 2.
        let sum = added(generation, (self.significand, self.exponent), sum, largest - 2);
        (self.significand, self.exponent) = sum;
    }

    /// The half that a store writes: times `scale`, plus `bias`, and rounded to the nearest, ties to even.
    /// The accumulator counts with 15 bits, of which the last one says whether there were others.
    pub fn store(self, scale: Half, bias: Half) -> u16 {
        let spare = (32 - self.significand.unsigned_abs().leading_zeros()).saturating_sub(KEPT);
        let kept = shift_right(self.significand, spare);
        let scale = scale.exact();
        let scaled = Exact {
            significand: i64::from(kept) * scale.significand,
            exponent: self.exponent - FRACTION + spare as i32 + scale.exponent,
        };
        scaled.plus(bias.exact()).nearest_half()
    }

    /// The sum, exactly: `.0 * 2^.1`.
    pub const fn value(self) -> (i32, i32) {
        (self.significand, self.exponent - FRACTION)
    }
}

/// `significand * 2^exponent`.
#[derive(Clone, Copy)]
struct Exact {
    significand: i64,
    exponent: i32,
}

impl Exact {
    /// Bits that the larger of two is given below its last one, so that a smaller one can be rounded to them
    /// without a trace in the half that becomes of the sum.
    const GUARD: i32 = 34;

    fn plus(self, other: Self) -> Self {
        if other.significand == 0 {
            return self;
        }
        if self.significand == 0 {
            return other;
        }
        let (high, low) = if self.exponent > other.exponent { (self, other) } else { (other, self) };
        let apart = high.exponent - low.exponent;
        let up = apart.min(Self::GUARD);
        let down = (apart - up).min(62) as u32;
        let low = (low.significand >> down) | i64::from(low.significand & ((1 << down) - 1) != 0);
        Self { significand: (high.significand << up) + low, exponent: high.exponent - up }
    }

    /// The nearest half, ties to even, with exponent 31 for numbers; 0x7fff for what is larger.
    fn nearest_half(self) -> u16 {
        let sign = if self.significand < 0 { 0x8000 } else { 0 };
        let size = self.significand.unsigned_abs();
        if size == 0 {
            return 0;
        }
        // The weight of the half's last bit.
        let last = (63 - size.leading_zeros() as i32 + self.exponent).max(-14) - 10;
        let down = last - self.exponent;
        if down > 62 {
            return sign;
        }
        let rounded = if down > 0 {
            let (whole, rest, half) = (size >> down, size & ((1 << down) - 1), 1 << (down - 1));
            whole + u64::from(rest > half || rest == half && whole & 1 == 1)
        } else {
            size << -down
        };
        // What is normal has 11 bits, of which the first raises the exponent by one; so does a carry.
        let code = (last + 24) as u64 * 0x400 + rounded;
        sign | code.min(0x7fff) as u16
    }
}

/// The significand and the exponent of a sum after a group of products with this exponent was added. Nothing
/// overflows; operations wrap because a check would keep rows of sums from becoming vectors.
#[inline(always)]
const fn added(generation: Generation, (old, at): (i32, i32), group: i32, exponent: i32) -> (i32, i32) {
    let apart = at.wrapping_sub(exponent);
    let (old_down, new_down) = if apart > 0 { (0, apart) } else { (apart.wrapping_neg(), 0) };
    let (old, new) = (shift_right(old, old_down as u32), shift_right(group, new_down as u32));
    let left = anticipate(old, new, generation.width()).wrapping_sub(1);
    let left = if left < MOST_LEFT { left } else { MOST_LEFT };
    let sum = shift_right(old.wrapping_add(new), 1).wrapping_shl(1);
    let significand = if left < 0 { shift_right(sum, 1) } else { sum.wrapping_shl(left as u32) };
    (significand, if apart > 0 { at } else { exponent }.wrapping_sub(left))
}

/// Arithmetic shift to the right, with what falls off in the last bit.
#[inline(always)]
const fn shift_right(x: i32, by: u32) -> i32 {
    let by = if by < 31 { by } else { 31 };
    let down = x >> by;
    down | (down << by != x) as i32
}

/// Copies of the sign after it in a + b, or one less: what shifts are chosen by before the sum is there. It
/// is the first one of the indicator that Schmookler and Nowka give in "Leading Zero Anticipation and
/// Detection - A Comparison of Methods" (ARITH-15, 2001), with digits of both signs.
#[inline(always)]
const fn anticipate(a: i32, b: i32, width: u32) -> i32 {
    let (a, b) = (a as u32, b as u32);
    let (differ, ones, zeros) = (a ^ b, a & b, !(a | b));
    let mask = (1 << width) - 1;
    // What a digit's right neighbour is not: above the adder's bits all are zero.
    let (no_ones, no_zeros) = (!((ones & mask) << 1), !((zeros & mask) << 1));
    let changes = (differ & mask) >> 1;
    let indicator =
        (changes & (ones & no_zeros | zeros & no_ones)) | (!changes & (zeros & no_zeros | ones & no_ones));
    let found = indicator & (mask >> 1);
    if found == 0 { width as i32 - 1 } else { found.leading_zeros() as i32 - (33 - width as i32) }
}

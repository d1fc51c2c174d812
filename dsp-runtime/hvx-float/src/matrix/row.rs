//! 32 sums side by side, in the form that compilers make vectors of. Each is an [`Accumulator`], bit for bit.

use super::{Accumulator, FRACTION, Generation, Half, SIDE, added, shift_right};

/// 32 halves that are neighbours in n.
#[derive(Clone, Copy, Debug)]
pub struct Halves {
    significands: [i32; SIDE],
    exponents: [i32; SIDE],
}

impl Halves {
    /// The halves that `f` gives for their places.
    #[inline(always)]
    pub fn of(f: impl Fn(usize) -> Half) -> Self {
        let mut halves = Self { significands: [0; SIDE], exponents: [0; SIDE] };
        for n in 0..SIDE {
            let Half { significand, exponent } = f(n);
            (halves.significands[n], halves.exponents[n]) = (significand, exponent);
        }
        halves
    }
}

/// The sums of a row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    significands: [i32; SIDE],
    exponents: [i32; SIDE],
}

impl Row {
    /// No products.
    pub const EMPTY: Self = {
        let Accumulator { significand, exponent } = Accumulator::EMPTY;
        Self { significands: [significand; SIDE], exponents: [exponent; SIDE] }
    };

    /// Sum `n`.
    pub const fn sum(&self, n: usize) -> Accumulator {
        Accumulator { significand: self.significands[n], exponent: self.exponents[n] }
    }

    /// As [`Accumulator::add`], for all sums: a half of A and the halves of W with the same k, for each k of
    /// a group. Loops are plain and operations wrap: a check in a loop keeps it from becoming vectors.
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "a lane's number is the same in all of these arrays")]
    pub fn add(&mut self, generation: Generation, a: &[Half], w: &[Halves]) {
        // Below the exponents of all products, and far from where the arithmetic below wraps.
        const NONE: i32 = i32::MIN / 2;
        let mut largest = [NONE; SIDE];
        for (a, w) in a.iter().zip(w) {
            if a.significand != 0 {
                for n in 0..SIDE {
                    let exponent = a.exponent.wrapping_add(w.exponents[n]);
                    let exponent = if w.significands[n] != 0 { exponent } else { NONE };
                    largest[n] = largest[n].max(exponent);
                }
            }
        }
        let mut groups = [0; SIDE];
        for (a, w) in a.iter().zip(w) {
            // Products have 20 fraction bits.
            let scaled = a.significand.wrapping_shl(FRACTION as u32 - 18);
            for n in 0..SIDE {
                let product = scaled.wrapping_mul(w.significands[n]);
                let down = largest[n].wrapping_sub(a.exponent).wrapping_sub(w.exponents[n]);
                groups[n] = shift_right(product, down as u32).wrapping_add(groups[n]);
            }
        }
        for n in 0..SIDE {
            let old = (self.significands[n], self.exponents[n]);
            // They count as numbers with 18 fraction bits, hence the 2.
            let new = added(generation, old, groups[n], largest[n].wrapping_sub(2));
            let (significand, exponent) = if largest[n] == NONE { old } else { new };
            (self.significands[n], self.exponents[n]) = (significand, exponent);
        }
    }
}

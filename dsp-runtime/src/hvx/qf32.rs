//! A back end with the float arithmetic of v73 and v75: sums and products are qfloat's, all else is
//! [`Portable`]'s.
//!
//! A qfloat number (qf32) has a significand of 24 bits in two's complement, below which a bit that is always
//! one is implied, and an exponent of 8 bits with the bias 127. So there is no zero (a word of zeros is
//! 2^-150), no infinity and no NaN, and a result is an odd multiple of its last place: 1 + 0 is more than 1.
//! Numbers need not be normalised. The rules are those of a model that the vendor has published; no processor
//! was asked.

use super::portable::{self, Portable};
use super::{Hvx, Lookup, math};

/// HVX as v73 and v75 have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Qf32;

/// Bits of a significand's fraction.
const FRACTION: i32 = 23;
const BIAS: i32 = 127;
/// Exponents of the format.
const MIN: i32 = -127;
const MAX: i32 = 128;
/// Bits below a significand's last place in exact results; what is below them counts as one bit.
const GUARD: i32 = 64;

/// significand * 2^(exponent - 23).
#[derive(Clone, Copy, Debug)]
struct Number {
    significand: i64,
    exponent: i32,
}

impl Number {
    /// The number of a qf32 word.
    fn qf(word: u32) -> Self {
        Self { significand: 2 * i64::from(word as i32 >> 8) + 1, exponent: (word & 0xff) as i32 - BIAS }
    }

    /// The size of an IEEE single. Subnormals are not normalised; infinities and NaN are numbers of 2^128 and
    /// more.
    fn size(x: f32) -> Self {
        let (bits, leading) = (x.to_bits() & 0x7fff_ffff, 1 << FRACTION);
        let (field, fraction) = ((bits >> FRACTION) as i32, i64::from(bits % leading));
        match field {
            0 => Self { significand: fraction, exponent: 1 - BIAS },
            _ => Self { significand: fraction + i64::from(leading), exponent: field - BIAS },
        }
    }

    /// An IEEE single.
    fn single(x: f32) -> Self {
        let size = Self::size(x);
        if x.is_sign_negative() { size.negated() } else { size }
    }

    fn negated(self) -> Self {
        Self { significand: -self.significand, ..self }
    }

    /// The exponent of the leading bit, relative to the number's exponent.
    fn leading(self) -> i32 {
        self.significand.unsigned_abs().checked_ilog2().map_or(-24, |bit| bit as i32 - FRACTION)
    }

    /// The significand at another exponent, with [`GUARD`] bits below its last place.
    fn at(self, exponent: i32) -> i128 {
        let wide = i128::from(self.significand) << GUARD;
        match self.exponent - exponent {
            up @ 0.. => wide << up,
            down => shift(wide, down.unsigned_abs()),
        }
    }
}

/// x / 2^n, rounded down to an odd number where it is no whole one: comparisons with even numbers stay right.
fn shift(x: i128, n: u32) -> i128 {
    let n = n.min(127);
    let whole = x >> n;
    whole | i128::from(whole << n != x)
}

fn product(a: Number, b: Number) -> u32 {
    let exact = i128::from(a.significand) * i128::from(b.significand);
    round(a.exponent + b.exponent, exact << (GUARD - FRACTION))
}

fn sum(a: Number, b: Number) -> u32 {
    let (high, low) = if a.exponent > b.exponent { (a, b) } else { (b, a) };
    let exponent = (high.exponent + high.leading()).max(low.exponent);
    round(exponent, a.at(exponent) + b.at(exponent))
}

/// The word of a sum or product: x / 2^(23 + [`GUARD`]) * 2^exponent.
///
/// Of four adjacent multiples of the last place, the first and the third after a multiple of four can be
/// represented, and the second with an exponent that is larger by one.
fn round(mut exponent: i32, mut x: i128) -> u32 {
    const UNIT: i128 = 1 << GUARD;
    const TWO: i128 = 2 << (FRACTION + GUARD);
    if x == 0 {
        return 0;
    }
    let negative = x < 0;
    let big = !(-TWO..TWO).contains(&x);
    if exponent > MAX || (big && exponent == MAX) {
        return if negative { 0x8000_00ff } else { 0x7fff_ffff };
    }
    if exponent <= MIN - 2 {
        return if negative { 0xffff_ff00 } else { 0 };
    }
    let mut coarse = exponent == MAX;
    if exponent == MIN - 1 || big {
        x = shift(x, 1);
        exponent += 1;
        coarse = true;
    }
    let base = x.div_euclid(4 * UNIT) * 4;
    let rest = x.rem_euclid(4 * UNIT);
    let significand = if coarse {
        if rest <= 2 * UNIT { base + 1 } else { base + 3 }
    } else if 2 * rest <= 3 * UNIT {
        base + 1
    } else if 2 * rest <= 5 * UNIT {
        exponent += 1;
        base / 2 + 1
    } else {
        base + 3
    };
    let field = (significand.unsigned_abs() as u32 >> 1) & 0x7f_ffff;
    let field = if negative { !field } else { field };
    field << 8 | (exponent + BIAS) as u32
}

/// The same number with the other sign.
fn complement(word: u32) -> u32 {
    word ^ 0xffff_ff00
}

fn complement_if(negative: bool, word: u32) -> u32 {
    if negative { complement(word) } else { word }
}

/// `Vd.qf32 = vmpy(Vu.sf,Vv.sf)`: sizes are multiplied and rounded.
fn mul_singles(a: f32, b: f32) -> u32 {
    complement_if(a.is_sign_negative() != b.is_sign_negative(), product(Number::size(a), Number::size(b)))
}

/// `Vd.qf32 = vadd(Vu.sf,Vv.sf)`: two negative numbers are added and rounded as their sizes.
fn add_singles(a: f32, b: f32) -> u32 {
    if a.is_sign_negative() && b.is_sign_negative() {
        return complement(sum(Number::size(a), Number::size(b)));
    }
    sum(Number::single(a), Number::single(b))
}

/// `Vd.qf32 = vsub(Vu.sf,Vv.sf)`.
fn sub_singles(a: f32, b: f32) -> u32 {
    add_singles(a, -b)
}

/// `Vd.qf32 = vadd(Vu.qf32,Vv.qf32)`.
fn add_words(a: u32, b: u32) -> u32 {
    sum(Number::qf(a), Number::qf(b))
}

/// `Vd.qf32 = vadd(Vu.qf32,Vv.sf)`.
fn add_mixed(a: u32, b: f32) -> u32 {
    sum(Number::qf(a), Number::single(b))
}

/// `Vd.sf = Vu.qf32`: to nearest, ties to even. Exact but for subnormals; above the range no infinity, but
/// its exponent.
fn single(word: u32) -> f32 {
    let Number { significand, exponent } = Number::qf(word);
    let size = significand.unsigned_abs() as u32;
    let leading = size.ilog2();
    let field = exponent + BIAS + leading as i32 - FRACTION;
    let bits = if field > 0 {
        // The leading one adds one to the exponent.
        ((field as u32 - 1) << FRACTION) + (size << (FRACTION as u32 - leading))
    } else {
        // In units of 2^-149; with the smallest exponent they are halves, which tie.
        match exponent - MIN {
            0 => (size / 2 + 1) & !1,
            n => size << (n - 1),
        }
    };
    f32::from_bits(bits | (u32::from(significand < 0) << 31))
}

/// Where a float is in the order of its numbers, NaN beyond infinity; both zeros are in one place.
fn place(x: f32) -> i32 {
    let size = (x.to_bits() & 0x7fff_ffff) as i32;
    if x.is_sign_negative() { -size } else { size }
}

/// Methods that are as `Portable` has them.
macro_rules! portable {
    ($(fn $op:ident $(<const $n:ident>)? ($($x:ident: $t:ty),*) -> $r:ty;)*) => {$(
        fn $op $(<const $n: i32>)? ($($x: $t),*) -> $r {
            Portable::$op $(::<$n>)? ($($x),*)
        }
    )*};
}

impl Hvx for Qf32 {
    type F = <Portable as Hvx>::F;
    type I = <Portable as Hvx>::I;
    type B = <Portable as Hvx>::B;
    type Lanes = <Portable as Hvx>::Lanes;
    type Q = portable::Lanes<u32>;

    const REGISTERS: usize = 32;

    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: `p` is valid for reading 128 bytes (the caller's contract, which `Portable::load` has too).
        unsafe { Portable::load(p) }
    }

    unsafe fn load_n(p: *const f32, n: usize) -> Self::F {
        // SAFETY: `n` is 1 to 32, and `p` is aligned and valid for reading `n` floats (points 1 and 2 of the
        // caller's contract, which `Portable::load_n` has too).
        unsafe { Portable::load_n(p, n) }
    }

    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: `p` is valid for writing 128 bytes (the caller's contract, which `Portable::store` has
        // too).
        unsafe { Portable::store(p, v) }
    }

    unsafe fn store_n(p: *mut f32, v: Self::F, n: usize) {
        // SAFETY: `n` is 1 to 32, and `p` is aligned and valid for writing `n` floats (points 1 and 2 of the
        // caller's contract, which `Portable::store_n` has too).
        unsafe { Portable::store_n(p, v, n) }
    }

    unsafe fn load_b(p: *const u8) -> Self::B {
        // SAFETY: `p` is valid for reading 128 bytes (the caller's contract, which `Portable::load_b` has
        // too).
        unsafe { Portable::load_b(p) }
    }

    unsafe fn store_b(p: *mut u8, v: Self::B) {
        // SAFETY: `p` is valid for writing 128 bytes (the caller's contract, which `Portable::store_b` has
        // too).
        unsafe { Portable::store_b(p, v) }
    }

    portable! {
        fn splat(x: f32) -> Self::F;
        fn splat_i(x: i32) -> Self::I;
        fn splat_b(x: u8) -> Self::B;
        fn add_ieee(a: Self::F, b: Self::F) -> Self::F;
        fn sub_ieee(a: Self::F, b: Self::F) -> Self::F;
        fn mul_ieee(a: Self::F, b: Self::F) -> Self::F;
        fn to_int(x: Self::F) -> Self::I;
        fn to_float(x: Self::I) -> Self::F;
        fn bits(x: Self::F) -> Self::I;
        fn from_bits(x: Self::I) -> Self::F;
        fn words(x: Self::B) -> Self::I;
        fn bytes(x: Self::I) -> Self::B;
        fn add_i(a: Self::I, b: Self::I) -> Self::I;
        fn sub_i(a: Self::I, b: Self::I) -> Self::I;
        fn mul_i(a: Self::I, b: Self::I) -> Self::I;
        fn max_i(a: Self::I, b: Self::I) -> Self::I;
        fn and_i(a: Self::I, b: Self::I) -> Self::I;
        fn or_i(a: Self::I, b: Self::I) -> Self::I;
        fn shl_i<const N>(a: Self::I) -> Self::I;
        fn shr_i<const N>(a: Self::I) -> Self::I;
        fn sar_i<const N>(a: Self::I) -> Self::I;
        fn vrmpy(acc: Self::I, w: Self::B, a: i32) -> Self::I;
        fn lookup(x: Self::B, table: &'static Lookup) -> Self::B;
        fn lanes(x: Self::F) -> Self::Lanes;
        fn lane(x: &Self::Lanes, i: usize) -> Self::F;
    }

    fn add(a: Self::F, b: Self::F) -> Self::F {
        portable::zip(a, b, |a, b| single(add_singles(a, b)))
    }

    fn sub(a: Self::F, b: Self::F) -> Self::F {
        portable::zip(a, b, |a, b| single(sub_singles(a, b)))
    }

    fn mul(a: Self::F, b: Self::F) -> Self::F {
        portable::zip(a, b, |a, b| single(mul_singles(a, b)))
    }

    fn mul_q(a: Self::F, b: Self::F) -> Self::Q {
        portable::zip(a, b, mul_singles)
    }

    fn add_q(a: Self::Q, b: Self::Q) -> Self::Q {
        portable::zip(a, b, add_words)
    }

    fn add_qf(a: Self::Q, b: Self::F) -> Self::Q {
        portable::zip(a, b, add_mixed)
    }

    fn zero_q() -> Self::Q {
        portable::map(Self::splat_i(0), |zero| zero as u32)
    }

    fn float(x: Self::Q) -> Self::F {
        portable::map(x, single)
    }

    fn div(a: Self::F, b: Self::F) -> Self::F {
        math::div_by_reciprocal::<Self>(a, b)
    }

    fn max(a: Self::F, b: Self::F) -> Self::F {
        Self::select_gt(a, b, a, b)
    }

    fn min(a: Self::F, b: Self::F) -> Self::F {
        Self::select_gt(b, a, a, b)
    }

    fn select_gt(a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        let greater = portable::zip(a, b, |a, b| place(a) > place(b));
        portable::zip(
            greater,
            portable::zip(x, y, |x, y| (x, y)),
            |greater, (x, y)| if greater { x } else { y },
        )
    }

    fn sum(x: Self::F) -> f32 {
        portable::fold(x.0, |a, b| single(add_singles(a, b)))
    }

    fn max_lane(x: Self::F) -> f32 {
        portable::fold(x.0, |a, b| if place(a) > place(b) { a } else { b })
    }
}

#[cfg(test)]
mod tests;

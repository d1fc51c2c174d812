//! A back end with the float arithmetic of v68 to v75: sums and products are qfloat's, all else is
//! [`Portable`]'s. So code for these versions can be compared with it bit for bit: it is compiled in such a
//! way that each conversion between qfloat and IEEE that the source has stays there
//! (`toolchain/xtask/src/hexagon.rs`).
//!
//! The arithmetic is that of [`hexflash_hvx_float::qfloat`], which says what kind of numbers these are. Where
//! `hexagon/qfloat.rs` stays in qfloat for several operations, so does this.

use hexflash_hvx_float::ieee::{HF, SF};
use hexflash_hvx_float::qfloat::{Number, QF32};

use super::portable::{self, Portable};
use super::{Hvx, LANES, Lookup, Numbers, math};

/// HVX as v73 and v75 have it.
#[derive(Clone, Copy, Debug)]
pub struct Qf32;

fn operand(x: f32) -> Number {
    Number::ieee(SF, x.to_bits())
}

/// `Vd.qf32 = vmpy(Vu.sf,Vv.sf)`.
fn mul_singles(a: f32, b: f32) -> u32 {
    QF32.product(operand(a), operand(b))
}

/// `Vd.qf32 = vadd(Vu.sf,Vv.sf)`.
fn add_singles(a: f32, b: f32) -> u32 {
    QF32.sum(operand(a), operand(b))
}

/// `Vd.qf32 = vsub(Vu.sf,Vv.sf)`.
fn sub_singles(a: f32, b: f32) -> u32 {
    QF32.sum(operand(a), operand(b).negated())
}

/// `Vd.qf32 = vadd(Vu.qf32,Vv.qf32)`.
fn add_words(a: u32, b: u32) -> u32 {
    QF32.sum(QF32.number(a), QF32.number(b))
}

/// `Vd.qf32 = vadd(Vu.qf32,Vv.sf)`.
fn add_mixed(a: u32, b: f32) -> u32 {
    QF32.sum(QF32.number(a), operand(b))
}

/// `Vd.qf32 = vsub(Vu.qf32,Vv.qf32)`.
fn sub_words(a: u32, b: u32) -> u32 {
    QF32.sum(QF32.number(a), QF32.number(b).negated())
}

/// `Vd.qf32 = vmpy(Vu.qf32,Vv.qf32)`.
fn mul_words(a: u32, b: u32) -> u32 {
    QF32.product(QF32.number(a), QF32.number(b))
}

/// One product of `Vdd.qf32 = vmpy(Vu.hf,Vv.hf)`, of the low halves of words.
fn mul_halves(a: i32, b: i32) -> u32 {
    QF32.product(Number::ieee(HF, a as u32 & 0xffff), Number::ieee(HF, b as u32 & 0xffff))
}

/// `Vd.sf = Vu.qf32`.
fn single(word: u32) -> f32 {
    f32::from_bits(QF32.number(word).to_ieee(SF))
}

/// Where a float is in the order of its numbers, NaN beyond infinity; both zeros are in one place.
fn place(x: f32) -> i32 {
    let size = (x.to_bits() & 0x7fff_ffff) as i32;
    if x.is_sign_negative() { -size } else { size }
}

/// `Vd.sf = vmax(Vu.sf,Vv.sf)`.
fn larger(a: f32, b: f32) -> f32 {
    match (place(a), place(b)) {
        (0, 0) => f32::from_bits(a.to_bits() & b.to_bits()),
        (p, q) => {
            if p >= q {
                a
            } else {
                b
            }
        }
    }
}

/// `Vd.sf = vmin(Vu.sf,Vv.sf)`.
fn smaller(a: f32, b: f32) -> f32 {
    match (place(a), place(b)) {
        (0, 0) => f32::from_bits(a.to_bits() | b.to_bits()),
        (p, q) => {
            if p <= q {
                a
            } else {
                b
            }
        }
    }
}

/// The sum of 32 words: halves are folded onto each other.
fn sum_of_words(x: <Qf32 as Hvx>::Q) -> f32 {
    single(portable::fold(x.0, add_words))
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
    type Everywhere = Self;

    // As `Portable`'s: its vectors are arrays.
    const REGISTERS: usize = 1;
    const CHEAP_WIDENING: bool = true;
    const NAN_HAS_A_PLACE: bool = true;

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
        fn interleave(a: Self::F, b: Self::F) -> (Self::F, Self::F);
        fn widen_f16(x: Self::B) -> (Self::F, Self::F);
        fn lookup_f16(x: Self::B, table: &'static Numbers) -> [Self::B; 2];
        fn bytes_to_f16(x: Self::B) -> [Self::B; 2];
        fn mul_f16(a: Self::B, b: Self::B) -> Self::B;
        fn scaled_to_f16(low: Self::F, high: Self::F, scales: [Self::F; 2]) -> Self::B;
        fn mul_fractions_less_f16(a: Self::B, b: Self::B, less: Self::B) -> Self::B;
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

    fn to_int(x: Self::F) -> Self::I {
        // As `hexagon/qfloat.rs` does it, for numbers above 2^22, too.
        const MAGIC: f32 = 12_582_912.0;
        portable::map(x, |x| ((x + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32))
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

    fn larger(a: Self::F, b: Self::F) -> Self::F {
        portable::zip(a, b, larger)
    }

    fn smaller(a: Self::F, b: Self::F) -> Self::F {
        portable::zip(a, b, smaller)
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

    fn sum_all(x: Self::F) -> Self::F {
        // The first sums are those of singles, all others of qfloats.
        let halves: [u32; LANES / 2] = core::array::from_fn(|i| add_singles(x.0[i], x.0[i + LANES / 2]));
        Self::splat(single(portable::fold(halves, add_words)))
    }

    fn sum_all_q(x: Self::Q) -> Self::F {
        Self::splat(sum_of_words(x))
    }

    fn sum_four(x: [Self::Q; 4]) -> Self::F {
        let mut sums = [0.0; LANES];
        for (x, sum) in x.into_iter().zip(sums.iter_mut().step_by(8)) {
            *sum = sum_of_words(x);
        }
        portable::Lanes(sums)
    }

    fn rsqrt(x: Self::F) -> Self::F {
        portable::map(x, |x| {
            // As `math::rsqrt`.
            let start = f32::from_bits(0x5f37_59df_u32.wrapping_sub(x.to_bits() >> 1));
            let half = mul_singles(x, 0.5);
            let threehalves = add_singles(1.5, 0.0);
            let mut y = add_singles(start, 0.0);
            for _ in 0..3 {
                y = mul_words(y, sub_words(threehalves, mul_words(mul_words(half, y), y)));
            }
            if place(x) > place(f32::MAX) { 0.0 } else { single(y) }
        })
    }

    fn widen_f16_scaled(x: Self::B, factors: i32, _same: [f32; 2]) -> (Self::F, Self::F) {
        let halves = Self::words(x);
        (
            portable::map(halves, |x| single(mul_halves(x, factors))),
            portable::map(halves, |x| single(mul_halves(x >> 16, factors >> 16))),
        )
    }
}

#[cfg(test)]
mod tests;

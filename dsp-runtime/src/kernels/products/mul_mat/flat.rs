//! Groups of four tiles that have float scales of their own: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL and MXFP4.

use core::marker::PhantomData;

use hexflash_abi::dtype::QuantGroup;

use super::activations::Activations;
use super::groups::{Group, start};
use super::quants::{Quants, tile};
use super::sums::Sum;
use crate::hvx::{Hvx, VectorPtr, math};

/// What the quants of a tile are multiplied with, and what is added to them.
pub trait Scales: Sync + 'static {
    /// Vectors of scales in a group.
    const SCALES: usize;
    /// Vectors of mins in a group.
    const MINS: usize;
    /// What products with the scales are counted in.
    const UNIT: f32 = 1.0;
    /// Scales of a pair of tiles, as they are in memory.
    type Pair<H: Hvx>: Copy;

    /// The scales of pair `pair` of a group's tiles, which begin at `at`.
    ///
    /// # Safety
    /// `at` holds `SCALES` vectors, and `pair` is 0 or 1.
    unsafe fn load<H: Hvx>(at: VectorPtr, pair: usize) -> Self::Pair<H>;

    /// The scales of both tiles, times those of two blocks of activations: as two f16, and as f32.
    fn times<H: Hvx>(scales: Self::Pair<H>, halves: i32, floats: [f32; 2]) -> (H::F, H::F);
}

/// An f16 per tile, and if `MINS` is 2, another one to add.
pub struct Halves<const MINS: usize>;

impl<const MINS: usize> Scales for Halves<MINS> {
    const SCALES: usize = 2;
    const MINS: usize = MINS;
    type Pair<H: Hvx> = H::B;

    #[inline(always)]
    unsafe fn load<H: Hvx>(at: VectorPtr, pair: usize) -> H::B {
        // SAFETY: `at` holds two vectors, and `pair` is 0 or 1 (the caller's contract).
        unsafe { at.load_b::<H>(pair) }
    }

    #[inline(always)]
    fn times<H: Hvx>(scales: H::B, halves: i32, floats: [f32; 2]) -> (H::F, H::F) {
        H::widen_f16_scaled(scales, halves, floats)
    }
}

/// The exponent of a power of two per tile. Quants are twice their values, as MXFP4 has them.
///
/// An exponent of 0, which stands for 2^-128, counts as zero here: it takes a sum of products to 1e-33 at
/// most.
pub struct Exponents;

impl Scales for Exponents {
    const SCALES: usize = 1;
    const MINS: usize = 0;
    // The quants are whole numbers.
    const UNIT: f32 = 0.5;
    type Pair<H: Hvx> = (H::F, H::F);

    #[inline(always)]
    unsafe fn load<H: Hvx>(at: VectorPtr, pair: usize) -> (H::F, H::F) {
        // SAFETY: `at` holds a vector (the caller's contract).
        let words = H::words(unsafe { at.load_b::<H>(0) });
        // Each of the pair's bytes in the place of an f32's exponent.
        let moved = if pair == 0 {
            (H::shl_i::<23>(words), H::shl_i::<15>(words))
        } else {
            (H::shl_i::<7>(words), H::shr_i::<1>(words))
        };
        let exponent = |x: H::I| H::from_bits(H::and_i(x, H::splat_i(0xff << 23)));
        (exponent(moved.0), exponent(moved.1))
    }

    #[inline(always)]
    fn times<H: Hvx>((even, odd): (H::F, H::F), _halves: i32, floats: [f32; 2]) -> (H::F, H::F) {
        (H::mul(even, H::splat(floats[0])), H::mul(odd, H::splat(floats[1])))
    }
}

/// [`Hvx::widen_f16`], where sums must stay in registers by integer operations: the registers are full, and
/// what a multiplication gives could not wait in memory.
#[inline(always)]
fn widen<H: Hvx>(x: H::B) -> (H::F, H::F) {
    if !H::Q_STAYS {
        return H::widen_f16(x);
    }
    let words = H::words(x);
    (math::f16_bits_to_f32::<H>(H::shl_i::<16>(words)), math::f16_bits_to_f32::<H>(words))
}

/// A type with these quants and scales.
pub struct Flat<Q, S>(PhantomData<(Q, S)>);

impl<Q: Quants, S: Scales> Flat<Q, S> {
    /// The group, which [`super::variant`] compares with the type's.
    pub const GROUP: QuantGroup =
        QuantGroup { tiles: 4, quants: Q::VECTORS, scales: S::SCALES, mins: S::MINS, d: 0 };
}

/// Quants are stored with an offset. That offset times the sum of the activations is taken away from the
/// integer sum of a tile. The result is multiplied by the product of both scales, as in ggml's
/// `vec_dot_q8_0_q8_0`.
impl<Q: Quants, S: Scales> Group for Flat<Q, S> {
    const VECTORS: usize = Self::GROUP.vectors();
    const BLOCKS: usize = 4;
    const UNIT: f32 = S::UNIT;

    #[inline(always)]
    fn most_rows<H: Hvx>() -> usize {
        // With mins, nothing is left of the registers for results that must not wait in memory; and little,
        // if quants must be taken out of bytes.
        match (H::Q_STAYS, S::MINS) {
            (true, 1..) => 1,
            (true, 0) if Q::VECTORS < 8 => 2,
            _ => 4,
        }
    }

    #[inline(always)]
    unsafe fn add<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        x: &[Activations; R],
        block: usize,
        acc: &mut [H::F; R],
    ) {
        let mut sums = start::<H, A, R>(acc);
        // SAFETY: `group` holds a group: two pairs of tiles. Each `x` starts with a group and has the four
        // blocks from `block` on, which is the first of a group and so even (the caller's contract). The two
        // calls are written out, so that they can overlap.
        unsafe {
            Self::pair::<H, A, R>(group, 0, x, block, Some(acc), &mut sums);
            Self::pair::<H, A, R>(group, 1, x, block + 2, None, &mut sums);
        }
        for (acc, sum) in acc.iter_mut().zip(sums) {
            *acc = sum.end();
        }
    }
}

impl<Q: Quants, S: Scales> Flat<Q, S> {
    /// Whether a tile's quants and scales take few instructions. Then LLVM 22 packs the loops best with
    /// scales loaded first and, but for one row, with the even tile added before the odd one: 4 to 10 % fewer
    /// packets. All other loops are best with both at the end.
    const FEW: bool = Q::FEW_REGISTERS && S::MINS == 0;

    /// acc += W x for a pair of tiles of a group, and for two blocks of activations from `block` on. If it is
    /// the group's first, `before` has what was summed up before it.
    ///
    /// # Safety
    /// `group` holds a group, and `pair` is 0 or 1; each `x` starts with a group and has blocks `block`,
    /// which is even, and `block + 1`.
    #[inline(always)]
    unsafe fn pair<H: Hvx, A: Sum<H>, const R: usize>(
        group: VectorPtr,
        pair: usize,
        x: &[Activations; R],
        block: usize,
        before: Option<&[H::F; R]>,
        acc: &mut [A; R],
    ) {
        // SAFETY: a group has its scales there (the caller's contract), and `pair` is 0 or 1. Of this load
        // and the one below the compiler drops one.
        let first = unsafe { S::load::<H>(group.skip(Self::GROUP.scales_at()), pair) };
        let [even, odd] = [2 * pair, 2 * pair + 1].map(|t| group.skip(Self::GROUP.quants_at(t)));
        // That multiplies the scales twice, which the compiler makes one of where floats are vectors.
        let even_first = Self::FEW && R > 1 && !H::COSTLY_FLOATS;
        // SAFETY: this tile is one of the group's four, and each `x` has `block` (the caller's contract).
        let even = unsafe { tile::<Q, H, R, 1>(even, x, block) };
        if even_first {
            for r in 0..R {
                // SAFETY: each `x` has `block` and the next one, and `block` is even, as rows start with a
                // group (the caller's contract).
                let (halves, floats) = unsafe { x[r].scales::<H>(block) };
                let (scale, _) = S::times::<H>(first, halves, floats);
                let product = H::mul_q(H::to_float(even[r][0]), scale);
                acc[r] = match before {
                    Some(before) => A::first(before[r], product),
                    None => acc[r].add(product),
                };
            }
        }
        // SAFETY: this tile is one of the group's four, and each `x` has `block + 1` (the caller's contract).
        let odd = unsafe { tile::<Q, H, R, 1>(odd, x, block + 1) };
        // SAFETY: a group has its scales there (the caller's contract), and `pair` is 0 or 1.
        let last = unsafe { S::load::<H>(group.skip(Self::GROUP.scales_at()), pair) };
        let scales = if Self::FEW { first } else { last };
        for r in 0..R {
            // SAFETY: each `x` has `block` and the next one, and `block` is even, as rows start with a group
            // (the caller's contract).
            let (halves, floats) = unsafe { x[r].scales::<H>(block) };
            let scales = S::times::<H>(scales, halves, floats);
            if !even_first {
                let product = H::mul_q(H::to_float(even[r][0]), scales.0);
                acc[r] = match before {
                    Some(before) => A::first(before[r], product),
                    None => acc[r].add(product),
                };
            }
            acc[r] = acc[r].add(H::mul_q(H::to_float(odd[r][0]), scales.1));
            if S::MINS > 0 {
                // SAFETY: a group has two vectors of mins there (the caller's contract), and `pair` is 0 or
                // 1.
                let mins = widen::<H>(unsafe { group.load_b::<H>(Self::GROUP.mins_at() + pair) });
                // SAFETY: each `x` has `block` and the next one, and `block` is even, as rows start with a
                // group (the caller's contract).
                let sums = unsafe { x[r].scaled_sums::<H>(block) };
                acc[r] = acc[r].add(H::mul_q(mins.0, H::splat(sums[0])));
                acc[r] = acc[r].add(H::mul_q(mins.1, H::splat(sums[1])));
            }
        }
    }
}

//! The rotation of `Q4_R` caches: fixed signs, then a Walsh-Hadamard transform.
//!
//! y = H D x with D a diagonal of signs and H the normalised transform, in blocks of the largest power of two
//! that divides the vector's length. Each output is the sum of all inputs of its block with signs, which is
//! about normally distributed even where some inputs are much larger than others. Without D, an input that is
//! the same in many dimensions would become one large output. H is symmetric and orthogonal: H H = I, so that
//! the way back is x = D H y.

use hexflash_abi::op::MAX_HEAD;

use crate::hvx::{Hvx, LANES};

/// The sign bit of every dimension of D.
#[repr(C, align(128))]
struct Signs([i32; MAX_HEAD as usize]);

/// Any signs do that look random. They are a part of the format, as keys and queries must have the same.
static SIGNS: Signs = {
    let (mut signs, mut i, mut state) = ([0; MAX_HEAD as usize], 0, 0x9e37_79b9_u32);
    while i < signs.len() {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        signs[i] = (state & 1 << 31) as i32;
        i += 1;
    }
    Signs(signs)
};

/// Distances between the lanes of a vector that are added and subtracted.
const DISTANCES: [usize; 5] = [1, 2, 4, 8, 16];

/// For each distance, the sign bit in the lanes that are subtracted.
#[repr(C, align(128))]
struct Subtracted([[i32; LANES]; DISTANCES.len()]);

static SUBTRACTED: Subtracted = {
    let mut signs = [[0; LANES]; DISTANCES.len()];
    let mut at = 0;
    while at < DISTANCES.len() * LANES {
        let (stage, lane) = (at / LANES, at % LANES);
        if lane & DISTANCES[stage] != 0 {
            signs[stage][lane] = i32::MIN;
        }
        at += 1;
    }
    Subtracted(signs)
};

/// x <- H D x.
///
/// # Safety
/// `x` is valid for reading and writing `d` floats, at most [`MAX_HEAD`] and a multiple of 32.
#[inline(always)]
pub(in super::super) unsafe fn rotate<H: Hvx>(x: *mut f32, d: usize) {
    // SAFETY: the contract is the caller's.
    unsafe {
        flip::<H>(x, d);
        hadamard::<H>(x, d);
    }
}

/// x <- D H x, which undoes [`rotate`].
///
/// # Safety
/// As there.
#[inline(always)]
pub(in super::super) unsafe fn rotate_back<H: Hvx>(x: *mut f32, d: usize) {
    // SAFETY: the contract is the caller's.
    unsafe {
        hadamard::<H>(x, d);
        flip::<H>(x, d);
    }
}

/// x, with the sign changed where `signs` has the sign bit.
#[inline(always)]
fn signed<H: Hvx>(x: H::F, signs: &[i32; LANES]) -> H::F {
    // SAFETY: `signs` is an array of 32 words, which are 128 bytes.
    let signs = H::words(unsafe { H::load_b(signs.as_ptr().cast()) });
    // The carry out of the highest bit is dropped.
    H::from_bits(H::add_i(H::bits(x), signs))
}

/// x <- D x.
///
/// # Safety
/// As [`rotate`].
#[inline(always)]
unsafe fn flip<H: Hvx>(x: *mut f32, d: usize) {
    for (v, signs) in SIGNS.0.as_chunks().0.iter().enumerate().take(d / LANES) {
        // SAFETY: `v` is one of the vectors of x (the caller's contract).
        unsafe {
            let x = x.add(v * LANES);
            H::store(x, signed::<H>(H::load(x), signs));
        }
    }
}

/// x <- H x.
///
/// # Safety
/// As [`rotate`].
#[inline(always)]
unsafe fn hadamard<H: Hvx>(x: *mut f32, d: usize) {
    let block = 1 << d.trailing_zeros();
    let factor = H::splat(inverse_root(block));
    for v in 0..d / LANES {
        // SAFETY: `v` is one of the vectors of x (the caller's contract).
        unsafe {
            let at = x.add(v * LANES);
            let mut x = H::load(at);
            x = H::add(H::swap_lanes::<1>(x), signed::<H>(x, &SUBTRACTED.0[0]));
            x = H::add(H::swap_lanes::<2>(x), signed::<H>(x, &SUBTRACTED.0[1]));
            x = H::add(H::swap_lanes::<4>(x), signed::<H>(x, &SUBTRACTED.0[2]));
            x = H::add(H::swap_lanes::<8>(x), signed::<H>(x, &SUBTRACTED.0[3]));
            x = H::add(H::swap_lanes::<16>(x), signed::<H>(x, &SUBTRACTED.0[4]));
            H::store(at, H::mul(x, factor));
        }
    }
    let mut distance = LANES;
    while distance < block {
        for i in 0..d / LANES / 2 {
            // Vector i of those whose partner comes after them.
            let per_run = distance / LANES;
            let first = (i / per_run * 2 * per_run + i % per_run) * LANES;
            // SAFETY: `d` is a multiple of `2 * distance`, as of every power of two up to the block, so that
            // the partners of the first halves of its runs are below it (the caller's contract).
            unsafe {
                let (a, b) = (x.add(first), x.add(first + distance));
                let (p, q) = (H::load(a), H::load(b));
                H::store(a, H::add(p, q));
                H::store(b, H::sub(p, q));
            }
        }
        distance *= 2;
    }
}

/// 1 / sqrt(n) for a power of two.
fn inverse_root(n: usize) -> f32 {
    let power = n.ilog2();
    let root = f32::from_bits((127 - power / 2) << 23);
    if power.is_multiple_of(2) { root } else { root * core::f32::consts::FRAC_1_SQRT_2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hvx::{Isa, WithHvx};
    use crate::testing::random;

    struct Rotations<'a>(&'a [f32]);

    impl WithHvx for Rotations<'_> {
        type Output = [Vec<f32>; 3];

        /// H x, H D x, and what comes back of the latter.
        #[inline(always)]
        fn with<H: Hvx>(self) -> Self::Output {
            let [mut transformed, mut rotated] = [(); 2].map(|()| self.0.to_vec());
            // SAFETY: the vectors have the floats of the slice, which are a multiple of 32.
            unsafe {
                hadamard::<H>(transformed.as_mut_ptr(), transformed.len());
                rotate::<H>(rotated.as_mut_ptr(), rotated.len());
                let mut back = rotated.clone();
                rotate_back::<H>(back.as_mut_ptr(), back.len());
                [transformed, rotated, back]
            }
        }
    }

    #[test]
    fn the_transform_is_that_of_the_definition_and_undoes_itself() {
        for d in [32, 64, 96, 128, 160, 192, 256, 320, 512] {
            let x = random(d as u64, d, -1.0, 1.0);
            let block = 1 << d.trailing_zeros();
            let definition = |x: &[f32], i: usize| -> f64 {
                let (at, first) = (i % block, i - i % block);
                // H[i][j] is -1 to the number of bits that i and j share.
                let sign = |j: usize| if (at & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let sum: f64 = (0..block).map(|j| sign(j) * f64::from(x[first + j])).sum();
                sum / (block as f64).sqrt()
            };
            let close = |got: f32, want: f64| (f64::from(got) - want).abs() < 2e-6;
            let wanted = Isa::Portable.run(Rotations(&x));
            for isa in Isa::available() {
                let results = isa.run(Rotations(&x));
                let [transformed, rotated, back] = &results;
                let flipped: Vec<f32> =
                    x.iter().zip(SIGNS.0).map(|(x, s)| if s == 0 { *x } else { -x }).collect();
                for i in 0..d {
                    assert!(close(transformed[i], definition(&x, i)), "{isa:?} {d}: H x at {i}");
                    assert!(close(rotated[i], definition(&flipped, i)), "{isa:?} {d}: H D x at {i}");
                    assert!(close(back[i], x[i].into()), "{isa:?} {d}: back at {i}");
                }
                assert_eq!(results, wanted, "{isa:?} {d}");
            }
        }
    }

    /// What the signs are for: no vector that models have is a row of H D.
    #[test]
    fn vectors_with_a_pattern_become_even() {
        for d in [64, 128, 256] {
            let patterns: [fn(usize) -> f32; 4] = [
                |_| 1.0,
                |i| if i % 2 == 0 { 1.0 } else { -1.0 },
                |i| f32::from(i == 5),
                |i| f32::from(i < 16),
            ];
            for pattern in patterns {
                let x: Vec<f32> = (0..d).map(pattern).collect();
                let [_, rotated, _] = Isa::Portable.run(Rotations(&x));
                let deviation = (x.iter().map(|x| x * x).sum::<f32>() / d as f32).sqrt();
                let largest = rotated.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                assert!(largest < 4.5 * deviation, "{d}: {largest}, deviation {deviation}");
            }
        }
    }
}

//! Sine and cosine of a vector: the same bits on every back end.

use super::Hvx;

/// The largest angle that [`sin_cos`] takes, either sign: 2^20.
pub const LARGEST: f32 = 1_048_576.0;

/// pi / 2 in three parts: multiples of 2^-13 and of 2^-27 that have 14 bits, and what is left.
const PARTS: [f32; 3] = [12_867.0 / 8_192.0, 15_786.0 / 134_217_728.0, 9.920_936e-10];

/// sin(x) and cos(x) within 7e-8, which is absolute, for |x| up to [`LARGEST`].
///
/// |x| = n pi / 2 + r with |r| below 0.92, as n is off by a tenth at most. n has 20 bits, of which the upper
/// and the lower ten are multiplied with each part of pi / 2: all these products are exact, and so are the
/// differences that they leave, up to the last one. Of that, what is rounded away is kept.
///
/// Polynomials: interpolated at Chebyshev nodes of r^2.
#[inline(always)]
pub fn sin_cos<H: Hvx>(x: H::F) -> (H::F, H::F) {
    let bits = H::bits(x);
    let sign = H::and_i(bits, H::splat_i(i32::MIN));
    let x = H::from_bits(H::sub_i(bits, sign));
    let n = H::to_int(H::mul_ieee(x, H::splat(core::f32::consts::FRAC_2_PI)));
    let low = H::and_i(n, H::splat_i(1023));
    let (high, low, all) = (H::to_float(H::sub_i(n, low)), H::to_float(low), H::to_float(n));
    let x = less::<H>(less::<H>(x, high, PARTS[0]), low, PARTS[0]);
    let x = less::<H>(x, high, PARTS[1]);
    let last = H::mul_ieee(low, H::splat(PARTS[1]));
    let near = H::sub_ieee(x, last);
    let rest = less::<H>(H::sub_ieee(H::sub_ieee(x, near), last), all, PARTS[2]);
    // What is left over must be small beside the last place of r.
    let r = H::add_ieee(near, rest);
    let rest = H::add_ieee(H::sub_ieee(near, r), rest);

    let z = H::mul_ieee(r, r);
    let s = polynomial::<H>(z, [-0.166_666_67, 8.333_329e-3, -1.983_886_9e-4, 2.711_980_4e-6]);
    let c = polynomial::<H>(z, [0.041_666_668, -1.388_888_6e-3, 2.479_958_3e-5, -2.719_232e-7]);
    // sin(r + rest) = r + (rest + r^3 s), cos(r + rest) = 1 - (z / 2 - (z^2 c - r rest)).
    let sin = H::add_ieee(r, H::add_ieee(rest, H::mul_ieee(H::mul_ieee(r, z), s)));
    let small = H::sub_ieee(H::mul_ieee(H::mul_ieee(z, z), c), H::mul_ieee(r, rest));
    let cos = H::sub_ieee(H::splat(1.0), H::sub_ieee(H::mul_ieee(z, H::splat(0.5)), small));

    // An odd quarter turn swaps them; half a turn changes the sign.
    let (odd, zero) = (H::to_float(H::and_i(n, H::splat_i(1))), H::splat(0.0));
    (
        H::from_bits(H::add_i(H::bits(turned::<H>(H::select_gt(odd, zero, cos, sin), n)), sign)),
        turned::<H>(H::select_gt(odd, zero, sin, cos), H::add_i(n, H::splat_i(1))),
    )
}

/// x - n * part.
#[inline(always)]
fn less<H: Hvx>(x: H::F, n: H::F, part: f32) -> H::F {
    H::sub_ieee(x, H::mul_ieee(n, H::splat(part)))
}

/// c\[0\] + c\[1\] z + c\[2\] z^2 + c\[3\] z^3.
#[inline(always)]
fn polynomial<H: Hvx>(z: H::F, c: [f32; 4]) -> H::F {
    let mut p = H::splat(c[3]);
    for c in [c[2], c[1], c[0]] {
        p = H::add_ieee(H::mul_ieee(p, z), H::splat(c));
    }
    p
}

/// x, with the other sign where n has its second bit.
#[inline(always)]
fn turned<H: Hvx>(x: H::F, n: H::I) -> H::F {
    H::from_bits(H::add_i(H::bits(x), H::shl_i::<30>(H::and_i(n, H::splat_i(2)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hvx::{Isa, LANES, WithHvx};

    struct Apply<'a>(&'a [f32]);

    impl WithHvx for Apply<'_> {
        type Output = Vec<[f32; 2]>;

        #[inline(always)]
        fn with<H: Hvx>(self) -> Self::Output {
            let mut all = Vec::new();
            for x in self.0.chunks_exact(LANES) {
                let (mut sines, mut cosines) = ([0.0; LANES], [0.0; LANES]);
                // SAFETY: `x` is a slice of 32 floats (`chunks_exact`), and both arrays have as many.
                unsafe {
                    let (sin, cos) = sin_cos::<H>(H::load(x.as_ptr()));
                    H::store(sines.as_mut_ptr(), sin);
                    H::store(cosines.as_mut_ptr(), cos);
                }
                for (sin, cos) in sines.into_iter().zip(cosines) {
                    all.push([sin, cos]);
                }
            }
            all
        }
    }

    /// Positions of long contexts, angles between them, small ones, and the ones next to multiples of a
    /// quarter turn, where what is left of an angle is smallest.
    fn angles() -> Vec<f32> {
        let mut x: Vec<f32> = (0..4096).map(|i| (i * i) as f32 / 16.0).collect();
        x.extend((0..1 << 16).map(|i| f32::from_bits((i as u32) << 15 & 0x49ff_ffff | 0x3000_0000) / 3.0));
        for i in 0..1 << 14 {
            let near = (f64::from(i * 40 + i % 7) * core::f64::consts::FRAC_PI_2) as f32;
            x.extend([near, near.next_up(), near.next_down()]);
        }
        x.retain(|x| *x <= LARGEST);
        x.extend([0.0, LARGEST, LARGEST.next_down()]);
        x.extend(x.clone().into_iter().map(|x| -x));
        x.resize(x.len().next_multiple_of(LANES), 0.5);
        x
    }

    #[test]
    fn within_the_stated_bound_on_every_back_end() {
        let x = angles();
        let first = Isa::Portable.run(Apply(&x));
        for (x, [sin, cos]) in x.iter().zip(&first) {
            let (want_sin, want_cos) = f64::from(*x).sin_cos();
            let error = (f64::from(*sin) - want_sin).abs().max((f64::from(*cos) - want_cos).abs());
            assert!(error <= 7e-8, "{x:e}: {sin:e} {cos:e} are {error:e} off");
        }
        for isa in Isa::available() {
            assert!(isa.run(Apply(&x)) == first, "{isa:?}");
        }
    }
}

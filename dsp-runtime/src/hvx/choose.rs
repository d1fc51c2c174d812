//! Lanes of two vectors, chosen by a bit of their number.

use super::{Hvx, LANES};

/// Lane i of `b` where i has the bit N, and of `a` elsewhere. N is a power of two below 32.
#[inline(always)]
pub fn choose<H: Hvx, const N: usize>(a: H::I, b: H::I) -> H::I {
    let with = const { &LaneMask::with(N) };
    // SAFETY: the mask is an array of 32 words, which are 128 bytes.
    let with = H::words(unsafe { H::load_b(with.0.as_ptr().cast()) });
    let without = H::sub_i(H::splat_i(-1), with);
    H::or_i(H::and_i(a, without), H::and_i(b, with))
}

/// Ones in some lanes.
#[repr(C, align(128))]
struct LaneMask([u32; LANES]);

impl LaneMask {
    /// Those whose number has the bit N.
    const fn with(n: usize) -> Self {
        assert!(n.is_power_of_two() && n < LANES);
        let (mut mask, mut i) = ([0; LANES], 0);
        while i < LANES {
            mask[i] = if i & n != 0 { u32::MAX } else { 0 };
            i += 1;
        }
        Self(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hvx::portable::Portable;

    #[test]
    fn lanes_are_chosen_by_a_bit_of_their_number() {
        let lanes = |first: i32| -> [i32; LANES] { core::array::from_fn(|i| first + i as i32) };
        // SAFETY: both are arrays of 32 words, which are 128 bytes.
        let load = |x: &[i32; LANES]| Portable::words(unsafe { Portable::load_b(x.as_ptr().cast()) });
        let mut got = [0; LANES];
        let chosen = choose::<Portable, 4>(load(&lanes(0)), load(&lanes(100)));
        // SAFETY: as many words.
        unsafe { Portable::store_b(got.as_mut_ptr().cast(), Portable::bytes(chosen)) };
        assert_eq!(got, core::array::from_fn(|i| if i & 4 == 0 { i as i32 } else { 100 + i as i32 }));
    }
}

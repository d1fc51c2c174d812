//! Deterministic numbers for inputs: PCG64-MCG, one stream per input.

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

/// A stream of numbers.
pub(super) struct Rng(Pcg64Mcg);

/// FNV-1a: the seed of a case is that of its name, so that it does not change when cases are added.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

impl Rng {
    /// The stream of one input of a case.
    pub(super) fn new(seed: u64, input: &str) -> Self {
        let low = seed ^ hash(input);
        Self(Pcg64Mcg::new(
            u128::from(low) << 64 | u128::from(low.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ))
    }

    /// `n` floats, uniform in [min, max).
    pub(super) fn uniform(&mut self, n: usize, min: f32, max: f32) -> Vec<f32> {
        let unit = |bits: u32| min + (max - min) * ((bits >> 8) as f32 / (1u32 << 24) as f32);
        let mut out = Vec::with_capacity(n + 1);
        while out.len() < n {
            let x = self.0.next_u64();
            out.push(unit(x as u32));
            out.push(unit((x >> 32) as u32));
        }
        out.truncate(n);
        out
    }

    /// An integer below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// `0..n` in random order.
    pub(super) fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut v: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            v.swap(i, self.below(i + 1));
        }
        v
    }
}

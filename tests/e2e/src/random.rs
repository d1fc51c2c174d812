//! Made-up weights.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// Uniform numbers around a mean, with this standard deviation; of a name always the same.
pub(crate) fn numbers(name: &str, n: usize, mean: f32, deviation: f32) -> Vec<f32> {
    let seed = name.bytes().fold(1u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut random = Pcg32::seed_from_u64(seed);
    let half = deviation * 3f32.sqrt();
    (0..n).map(|_| mean + if half > 0.0 { random.random_range(-half..half) } else { 0.0 }).collect()
}

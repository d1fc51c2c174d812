//! Made-up weights, and their files.

use std::fs::File;
use std::path::Path;

use hexflash::gguf::Gguf;
use hexflash::gguf::writer::GgufWriter;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// Uniform numbers around a mean, with this standard deviation; of a name always the same.
pub(crate) fn numbers(name: &str, n: usize, mean: f32, deviation: f32) -> Vec<f32> {
    let seed = name.bytes().fold(1u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut random = Pcg32::seed_from_u64(seed);
    let half = deviation * 3f32.sqrt();
    (0..n).map(|_| mean + if half > 0.0 { random.random_range(-half..half) } else { 0.0 }).collect()
}

/// Writes a model to a file, and opens that.
pub(crate) fn written(model: &GgufWriter<'_>, path: &Path) -> Gguf {
    let file = File::create(path).unwrap_or_else(|error| panic!("{error}"));
    model.write_to(file).unwrap_or_else(|error| panic!("{error}"));
    Gguf::open(path).unwrap_or_else(|error| panic!("{error}"))
}

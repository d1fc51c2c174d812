//! Which model it is.

use xxhash_rust::xxh3::Xxh3Default;

use super::files::ModelFiles;
use crate::gguf::GgufError;

/// Bytes at the beginning of each tensor that count.
const SAMPLE: u64 = 64;

/// A number that two models share only if they are the same: from all that precedes the data in their files,
/// and the beginning of each tensor. Models that were trained differently differ there, and reading all of a
/// large one would take seconds.
pub(super) fn identity(files: ModelFiles<'_>) -> Result<u128, GgufError> {
    let mut hasher = Xxh3Default::new();
    for gguf in files.iter() {
        gguf.headers().for_each(|header| hasher.update(&header.to_le_bytes()));
        let mut sample = [0; SAMPLE as usize];
        for tensor in gguf.tensors() {
            let sample = &mut sample[..tensor.size.min(SAMPLE) as usize];
            gguf.read(tensor, 0, sample)?;
            hasher.update(sample);
        }
    }
    Ok(hasher.digest128())
}

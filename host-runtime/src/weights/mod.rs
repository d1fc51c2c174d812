//! Weights in the form the device reads: repacked once, cached beside the model, read and verified on the
//! next start.
//!
//! * [`tiles`]: from ggml's blocks to the tiled layouts of [`hexflash_abi::dtype`], strip by strip,
//! * [`image`]: all weights of a model back to back in one read-only block of memory, and
//! * the cache: that block as a file, so that the second start costs a copy instead of a repack.

mod cache;
mod error;
mod folder;
pub mod image;
#[cfg(target_os = "linux")]
mod lease;
mod plan;
mod store;
mod threads;
pub mod tiles;

use std::collections::HashMap;

use crate::gguf::Gguf;

pub use error::WeightError;
pub use image::{CachePolicy, ImageOptions, WeightImage};
pub use plan::{Form, WEIGHT_ALIGNMENT, WeightEntry, WeightSpec};
pub use store::ImageRange;

/// Where the weights of a model would lie, by label, and the bytes of the image: without reading or packing
/// any.
///
/// # Errors
/// As [`WeightImage::load`] for the specs.
pub fn layout(gguf: &Gguf, specs: &[WeightSpec]) -> Result<(HashMap<String, WeightEntry>, u64), WeightError> {
    let plan = plan::ImageLayout::new(gguf, specs)?;
    Ok((plan.entries(specs)?, plan.bytes))
}

/// The values of a tensor that the host works with.
///
/// # Errors
/// It is missing, of a type other than F32, F16 and BF16, or has a value that is no number.
pub(crate) fn plain_values(gguf: &Gguf, tensor: &str) -> Result<Vec<f32>, WeightError> {
    let specs = [WeightSpec::new(tensor, Form::Plain)];
    let plan = plan::ImageLayout::new(gguf, &specs)?;
    let (mut data, mut values) = (Vec::new(), Vec::new());
    for piece in &plan.pieces {
        plan.read(piece, &mut data)?;
        let mut bytes = vec![0; piece.len()];
        plan.pack(piece, &data, &mut bytes)?;
        values.extend(bytes.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)));
    }
    // The last vector may have zeros behind the tensor.
    let n: u64 = gguf.require_tensor(tensor)?.shape().iter().product();
    values.truncate(n as usize);
    Ok(values)
}

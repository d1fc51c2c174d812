//! A model's own rounding: the same weights, all of them in F32, make llama.cpp round no activation at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType as FileType, Gguf};
use hexflash_oracle::{GgmlType, Tensor};

/// Blocks that are converted at once: some megabytes.
const BLOCKS: usize = 1 << 15;

/// Writes the model with every tensor in F32, decoded by ggml.
pub fn write(gguf: &Gguf, path: &Path) -> Result<(), String> {
    let mut w = GgufWriter::new();
    // One file, whatever the model's came in.
    for (key, value) in gguf.meta().iter().filter(|(key, _)| !key.starts_with("split.")) {
        w.kv(key, value.clone());
    }
    w.kv("general.file_type", 0u32);
    for tensor in gguf.tensors() {
        let ty = GgmlType::from_id(tensor.ggml_type.id());
        let ty =
            ty.ok_or_else(|| format!("{} is {}, which ggml decodes not", tensor.name, tensor.ggml_type))?;
        let fill = move |out: &mut dyn Write| -> io::Result<()> {
            let data = gguf.data(tensor).map_err(io::Error::other)?;
            for part in data.chunks(BLOCKS * ty.block_bytes()) {
                let n = (part.len() / ty.block_bytes() * ty.block_len()) as i64;
                for value in Tensor::new(ty, [n, 1, 1, 1], part.to_vec()).to_f32() {
                    out.write_all(&value.to_le_bytes())?;
                }
            }
            Ok(())
        };
        w.tensor_with(&tensor.name, FileType::F32, tensor.shape(), fill).map_err(|e| e.to_string())?;
    }
    let file = File::create(path).map_err(|e| format!("cannot create {}: {e}", path.display()))?;
    w.write_to(BufWriter::new(file)).map_err(|e| format!("cannot write the model in F32: {e}"))
}

//! Architectures: how a GGUF's metadata become layers. Each is one file and a line in the table.

mod qwen3;
mod qwen35;

use super::block::Layer;
use super::decoder::{Common, Decoder};
use super::error::ModelError;
use super::keys::Keys;
use crate::gguf::Gguf;

/// Reads and checks the layers of the trunk, `n_layer` of them, and sets what the architecture has otherwise
/// than others.
type Layers = fn(&Keys<'_>, &mut Common) -> Result<Vec<Layer>, ModelError>;

/// The architectures that this version runs: the value of `general.architecture`, and what reads their
/// layers.
const ARCHITECTURES: &[(&str, Layers)] = &[("qwen35", qwen35::layers), ("qwen3", qwen3::layers)];

/// Reads and checks a model; `None` if its architecture is not in the table.
///
/// # Errors
/// A key is missing, or its value is one that no kernel supports.
pub(super) fn read(gguf: &Gguf, keys: &Keys<'_>) -> Result<Option<Decoder>, ModelError> {
    let Some((arch, layers)) = ARCHITECTURES.iter().find(|(arch, _)| *arch == keys.arch()) else {
        return Ok(None);
    };
    let mut common = Common::read(keys)?;
    let layers = layers(keys, &mut common)?;
    Decoder::new(gguf, arch, common, layers).map(Some)
}

/// The names of all architectures, for messages.
pub(super) fn names() -> String {
    ARCHITECTURES.iter().map(|(arch, _)| *arch).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::gguf::writer::GgufWriter;

    /// A model of two layers as far as metadata go, with one more key.
    fn layers(arch: &str, key: &str, value: u32) -> Result<Vec<Layer>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        let mut file = GgufWriter::new();
        file.kv("general.architecture", arch);
        for (key, value) in [
            ("embedding_length", 64u32),
            ("block_count", 2),
            ("context_length", 64),
            ("feed_forward_length", 96),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 32),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 4),
            ("ssm.state_size", 16),
            ("ssm.inner_size", 64),
            ("ssm.conv_kernel", 4),
        ] {
            file.kv(&format!("{arch}.{key}"), value);
        }
        file.kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
        file.kv(&format!("{arch}.{key}"), value);
        file.write_to(File::create(&path).unwrap()).unwrap();
        let gguf = Gguf::open(&path).map_err(|e| e.to_string())?;
        let keys = Keys::new(&gguf).map_err(|e| e.to_string())?;
        let mut common = Common::read(&keys).map_err(|e| e.to_string())?;
        let (_, read) = ARCHITECTURES.iter().find(|(known, _)| *known == arch).unwrap();
        read(&keys, &mut common).map_err(|e| e.to_string())
    }

    #[test]
    fn every_architecture_gives_each_layer_of_the_trunk() {
        for (arch, _) in ARCHITECTURES {
            assert_eq!(layers(arch, "rope.dimension_count", 32).unwrap().len(), 2, "{arch}");
            let head = layers(arch, "attention.head_count_kv", 3).unwrap_err();
            assert!(head.contains(&format!("{arch}.attention.head_count_kv is 3")), "{head}");
        }
    }

    #[test]
    fn heads_that_are_turned_in_part_are_no_qwen3() {
        let error = layers("qwen3", "rope.dimension_count", 16).unwrap_err();
        assert!(error.contains("qwen3.rope.dimension_count is 16, expected 32"), "{error}");
        layers("qwen35", "rope.dimension_count", 16).unwrap();
    }
}

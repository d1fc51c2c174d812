//! A small dense model with random weights: what it writes makes no sense, and is always the same.

use std::fs::File;
use std::path::Path;

use hexflash::gguf::GgmlType;
use hexflash::gguf::writer::GgufWriter;
use hexflash_e2e::Model;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

use crate::support::CONTEXT;

const WIDTH: u64 = 64;
const MLP: u64 = 96;
const HEADS: u64 = 2;
const HEAD: u64 = 32;
const LAYERS: u64 = 2;

/// Writes the model, with the tokenizer of the hybrid.
pub fn write(path: &Path) {
    write_with_marks(path, &[]);
}

/// Writes the model, whose file names more tokens with a role: `(role, text)`.
pub fn write_with_marks(path: &Path, marks: &[(&str, &str)]) {
    let mut random = Pcg32::seed_from_u64(7);
    let tokenizer = Model::Q8_0.gguf();
    let mut file = GgufWriter::new();
    file.kv("general.architecture", "qwen3");
    for (key, value) in [
        ("block_count", LAYERS),
        ("context_length", CONTEXT.into()),
        ("embedding_length", WIDTH),
        ("feed_forward_length", MLP),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", HEADS),
        ("attention.key_length", HEAD),
        ("attention.value_length", HEAD),
    ] {
        file.kv(&format!("qwen3.{key}"), value as u32);
    }
    file.kv("qwen3.attention.layer_norm_rms_epsilon", 1e-6f32).kv("qwen3.rope.freq_base", 1e6f32);
    for (key, value) in tokenizer.meta().iter().filter(|(key, _)| key.starts_with("tokenizer.ggml.")) {
        file.kv(key, value.clone());
    }
    let tokens = tokenizer.meta().require_strings("tokenizer.ggml.tokens").unwrap();
    for (role, text) in marks {
        let id = tokens.iter().position(|token| token == *text).unwrap() as u32;
        file.kv(&format!("tokenizer.ggml.{role}_token_id"), id);
    }
    let vocabulary = tokens.len() as u64;
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), vec![WIDTH, vocabulary], 1.0),
        ("output_norm.weight".to_owned(), vec![WIDTH], 1.0),
    ];
    for i in 0..LAYERS {
        for (name, ne, size) in [
            ("attn_norm", vec![WIDTH], 1.0),
            ("ffn_norm", vec![WIDTH], 1.0),
            ("attn_q_norm", vec![HEAD], 1.0),
            ("attn_k_norm", vec![HEAD], 1.0),
            ("attn_q", vec![WIDTH, HEADS * HEAD], 0.2),
            ("attn_k", vec![WIDTH, HEADS * HEAD], 0.2),
            ("attn_v", vec![WIDTH, HEADS * HEAD], 0.2),
            ("attn_output", vec![HEADS * HEAD, WIDTH], 0.2),
            ("ffn_gate", vec![WIDTH, MLP], 0.2),
            ("ffn_up", vec![WIDTH, MLP], 0.2),
            ("ffn_down", vec![MLP, WIDTH], 0.2),
        ] {
            tensors.push((format!("blk.{i}.{name}.weight"), ne, size));
        }
    }
    for (name, ne, size) in tensors {
        let n: u64 = ne.iter().product();
        let values: Vec<u8> =
            (0..n).flat_map(|_| (size * random.random_range(-1f32..1.0)).to_le_bytes()).collect();
        file.tensor(&name, GgmlType::F32, &ne, values).unwrap();
    }
    file.write_to(File::create(path).unwrap()).unwrap();
}

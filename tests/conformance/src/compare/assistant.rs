//! Gemma 4 assistants with random weights.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use hexflash::gguf::GgmlType;
use hexflash::gguf::writer::GgufWriter;

use super::random::{Fill, ModelShape, contents};
use super::vocabulary::Vocabulary;

/// Share of what a layer could add to the stream that it adds. A chain goes through all layers seven times:
/// with as much as layers of targets add, what both round comes to more than the limits for one pass.
const BRANCH: f32 = 0.2;

/// The architecture in files.
pub const ARCH: &str = "gemma4-assistant";

/// An assistant's shape. Heads of keys, and widths of heads, are its target's.
#[derive(Clone, Copy, Debug)]
pub struct AssistantShape {
    /// Layers.
    pub layers: u32,
    /// Every n-th of them sees all of the context.
    pub interval: u32,
    /// Width of its stream, which llama.cpp wants to be another than the target's.
    pub width: u32,
    /// Width of the MLP.
    pub ff: u32,
    /// Query heads.
    pub heads: u32,
    /// Another seed makes other weights.
    pub seed: u64,
}

/// The tensors: name, dimensions, contents.
fn tensors(target: &ModelShape, own: &ModelShape) -> Vec<(String, Vec<u64>, Fill)> {
    let [e, f, vocab, of_target] = [own.width, own.ff, own.vocab, target.width].map(u64::from);
    let norm = Fill::Around(1.0, 0.1);
    let mut out = vec![
        ("token_embd.weight".to_owned(), vec![e, vocab], Fill::Matrix(1.0)),
        ("output_norm.weight".to_owned(), vec![e], Fill::Around(0.0, 2.0)),
        ("nextn.pre_projection.weight".to_owned(), vec![2 * of_target, e], Fill::Matrix(1.0)),
        ("nextn.post_projection.weight".to_owned(), vec![e, of_target], Fill::Matrix(0.5)),
        ("rope_freqs.weight".to_owned(), vec![u64::from(own.head) / 2], Fill::QuarterTurned),
    ];
    for i in 0..own.layers {
        let mut add = |name: &str, ne: &[u64], fill| out.push((format!("blk.{i}.{name}"), ne.to_vec(), fill));
        let (q, head) = (u64::from(own.heads), u64::from(own.head_of(i)));
        add("attn_norm.weight", &[e], norm);
        add("attn_q.weight", &[e, q * head], Fill::Matrix(1.0));
        add("attn_q_norm.weight", &[head], Fill::Around(0.4, 0.1));
        add("attn_output.weight", &[q * head, e], Fill::Matrix(BRANCH));
        add("post_attention_norm.weight", &[e], Fill::Around(BRANCH, 0.03));
        add("ffn_norm.weight", &[e], norm);
        add("ffn_gate.weight", &[e, f], Fill::Matrix(1.0));
        add("ffn_up.weight", &[e, f], Fill::Matrix(1.0));
        add("ffn_down.weight", &[f, e], Fill::Matrix(BRANCH));
        add("post_ffw_norm.weight", &[e], Fill::Around(BRANCH, 0.03));
        add("layer_output_scale.weight", &[1], Fill::Around(0.9, 0.05));
    }
    out
}

/// Writes an assistant of this shape for a target.
///
/// # Errors
/// The file cannot be written, or widths are not whole blocks of the target's type of weights.
pub fn write(target: &ModelShape, shape: &AssistantShape, path: &Path) -> Result<(), String> {
    let &AssistantShape { layers, interval, width, ff, heads, seed } = shape;
    let own = ModelShape { layers, interval, width, ff, heads, seed, ..*target };
    let mut w = GgufWriter::new();
    w.kv("general.architecture", ARCH).kv("general.name", "random weights");
    Vocabulary::smallest(target.architecture.pre(), target.vocab).put(&mut w);
    let flags: Vec<bool> = (0..layers).map(|i| own.is_near(i)).collect();
    w.kv(&format!("{ARCH}.attention.sliding_window_pattern"), flags);
    for (key, value) in [
        ("block_count", layers),
        ("nextn_predict_layers", layers),
        ("context_length", own.context),
        ("embedding_length", width),
        ("embedding_length_out", target.width),
        ("feed_forward_length", ff),
        ("vocab_size", own.vocab),
        ("attention.head_count", heads),
        ("attention.head_count_kv", own.kv_heads),
        ("attention.key_length", own.head),
        ("attention.value_length", own.head),
        ("attention.key_length_swa", own.head / 2),
        ("attention.value_length_swa", own.head / 2),
        ("rope.dimension_count_swa", own.head / 2),
        ("attention.sliding_window", own.window),
    ] {
        w.kv(&format!("{ARCH}.{key}"), value);
    }
    w.kv(&format!("{ARCH}.rope.freq_base"), own.architecture.freq_base())
        .kv(&format!("{ARCH}.rope.freq_base_swa"), 1e4f32)
        .kv(&format!("{ARCH}.attention.layer_norm_rms_epsilon"), 1e-6f32);
    for (name, ne, fill) in tensors(target, &own) {
        let (ty, bytes) = contents(&own, &name, &ne, fill)?;
        let file_type = GgmlType::from_id(ty as u32).ok_or("GGUF has no such type")?;
        w.tensor(&name, file_type, &ne, bytes).map_err(|e| e.to_string())?;
    }
    let file = File::create(path).map_err(|e| format!("cannot create {}: {e}", path.display()))?;
    let mut out = BufWriter::new(file);
    w.write_to(&mut out).map_err(|e| e.to_string())?;
    out.flush().map_err(|e| e.to_string())
}

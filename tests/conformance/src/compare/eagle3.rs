//! EAGLE3 drafts with random weights.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use hexflash::gguf::GgmlType;
use hexflash::gguf::writer::GgufWriter;

use super::random::{Fill, ModelShape, contents};
use super::vocabulary::Vocabulary;

/// Share of what the layer could add to the stream that it adds: a chain goes through it seven times.
const BRANCH: f32 = 0.2;

/// The architecture in files.
pub const ARCH: &str = "eagle3";

/// The shape of a draft. Heads are as wide as its target's.
#[derive(Clone, Copy, Debug)]
pub struct Eagle3Shape {
    /// Layers of the target that are tapped.
    pub taps: [u32; 3],
    /// Width of its stream: the target's, unless it has tables of its own.
    pub width: u32,
    /// Width of the MLP.
    pub ff: u32,
    /// Query heads, and heads of keys and values.
    pub heads: [u32; 2],
    /// An embedding of its own, and a head with so many rows; or else the target's.
    pub own: Option<u32>,
    /// Norms of what is fused, and before what the layer adds to.
    pub norms: bool,
    /// Divisors of angles.
    pub divisors: bool,
    /// Another seed makes other weights.
    pub seed: u64,
}

/// The tensors: name, dimensions, contents.
fn tensors(target: &ModelShape, shape: &Eagle3Shape) -> Vec<(String, Vec<u64>, Fill)> {
    let [e, f, vocab, taps] = [shape.width, shape.ff, target.vocab, 3 * target.width].map(u64::from);
    let ([q, kv], head) = (shape.heads.map(u64::from), u64::from(target.head));
    let norm = Fill::Around(1.0, 0.1);
    let mut out = Vec::new();
    let mut add = |name: &str, ne: &[u64], fill| out.push((format!("{name}.weight"), ne.to_vec(), fill));
    if let Some(rows) = shape.own {
        add("token_embd", &[e, vocab], Fill::Matrix((e as f32).sqrt()));
        add("output", &[e, rows.into()], Fill::Matrix(2.0));
    }
    add("fc", &[taps, e], Fill::Matrix(1.0));
    if shape.norms {
        add("enc.output_norm", &[taps], norm);
    }
    if shape.divisors {
        add("rope_freqs", &[head / 2], Fill::Around(4.0, 2.0));
    }
    // Where the head has the numbers of the embedding, signs keep a token from predicting itself.
    let last = if shape.own.is_some() { norm } else { Fill::Around(0.0, 1.0) };
    add("output_norm", &[e], last);
    add("blk.0.attn_norm", &[e], norm);
    add("blk.0.attn_norm_2", &[e], norm);
    add("blk.0.attn_q", &[2 * e, q * head], Fill::Matrix(1.5));
    add("blk.0.attn_k", &[2 * e, kv * head], Fill::Matrix(1.5));
    add("blk.0.attn_v", &[2 * e, kv * head], Fill::Matrix(1.0));
    add("blk.0.attn_output", &[q * head, e], Fill::Matrix(1.0));
    add("blk.0.ffn_norm", &[e], norm);
    add("blk.0.ffn_gate", &[e, f], Fill::Matrix(1.0));
    add("blk.0.ffn_up", &[e, f], Fill::Matrix(1.0));
    add("blk.0.ffn_down", &[f, e], Fill::Matrix(BRANCH));
    out
}

/// Writes a draft of this shape for a target.
///
/// # Errors
/// The file cannot be written, or widths are not whole blocks of the target's type of weights.
pub fn write(target: &ModelShape, shape: &Eagle3Shape, path: &Path) -> Result<(), String> {
    let &Eagle3Shape { taps, width, ff, heads, own, norms, seed, .. } = shape;
    let like_target = ModelShape { seed, ..*target };
    let mut w = GgufWriter::new();
    w.kv("general.architecture", ARCH).kv("general.name", "random weights");
    Vocabulary::smallest(target.architecture.pre(), target.vocab).put(&mut w);
    w.kv("eagle3.target_layers", taps.map(|layer| layer as i32).to_vec());
    w.kv("eagle3.norm_before_fc", norms).kv("eagle3.norm_before_residual", norms);
    for (key, value) in [
        ("block_count", 1),
        ("context_length", target.context),
        ("embedding_length", width),
        ("target_hidden_size", target.width),
        ("feed_forward_length", ff),
        ("vocab_size", target.vocab),
        ("attention.head_count", heads[0]),
        ("attention.head_count_kv", heads[1]),
        ("attention.key_length", target.head),
        ("attention.value_length", target.head),
    ] {
        w.kv(&format!("eagle3.{key}"), value);
    }
    w.kv("eagle3.rope.freq_base", target.architecture.freq_base())
        .kv("eagle3.attention.layer_norm_rms_epsilon", 1e-6f32);
    for (name, ne, fill) in tensors(target, shape) {
        let (ty, bytes) = contents(&like_target, &name, &ne, fill)?;
        let file_type = GgmlType::from_id(ty as u32).ok_or("GGUF has no such type")?;
        w.tensor(&name, file_type, &ne, bytes).map_err(|e| e.to_string())?;
    }
    if let Some(rows) = own.filter(|&rows| rows < target.vocab) {
        // As far apart as there is room, from the last token down.
        let step = u64::from(target.vocab / rows);
        let ids = (0..u64::from(rows)).map(|row| u64::from(target.vocab) - 1 - row * step);
        let bytes: Vec<u8> = ids.flat_map(u64::to_le_bytes).collect();
        w.tensor("d2t", GgmlType::I64, &[rows.into()], bytes).map_err(|e| e.to_string())?;
    }
    let file = File::create(path).map_err(|e| format!("cannot create {}: {e}", path.display()))?;
    let mut out = BufWriter::new(file);
    w.write_to(&mut out).map_err(|e| e.to_string())?;
    out.flush().map_err(|e| e.to_string())
}

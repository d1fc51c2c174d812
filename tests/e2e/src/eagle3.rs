//! EAGLE3 drafts with made-up weights, some of whose drafts are right.
//!
//! Each token of such a draft attends to itself, and to earlier ones that are the same, because queries and
//! keys are the same function of its embedding. What it finds there is the embedding, which then outweighs
//! everything else in the stream: the draft is a function of the last token, as the next token mostly is of
//! targets whose layers add little ([`assistant`](crate::assistant)).

use std::path::Path;

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};

use crate::random::{numbers, written};

/// Width of a head.
const HEAD: usize = 32;

/// Tables that a draft reads, and what else its file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Nothing: it reads embedding and LM head of its target.
    Shared,
    /// An embedding, and a head with rows for every second token; and the norms that a file may have besides.
    /// The target's embedding must be in F32.
    Own,
}

/// A key of a draft that is not what it should be, or a tensor that it lacks.
#[derive(Clone, Copy, Debug)]
pub enum Change<'c> {
    /// Without the tensor of this name.
    Without(&'c str),
    /// With one more tensor of this name.
    More(&'c str),
    /// With another value under this key.
    Key(&'c str, u32),
    /// With other layers of the target.
    Taps(&'c [i32]),
    /// With attention to all tokens, and not to the same one alone.
    Soft,
    /// With another row for this token in its own embedding.
    Embedding(u32),
}

struct Weights<'c> {
    file: GgufWriter<'static>,
    changes: &'c [Change<'c>],
}

impl Weights<'_> {
    fn put(&mut self, name: &str, ne: &[usize], values: &[f32]) {
        let left_out = |change: &Change<'_>| matches!(change, Change::Without(other) if *other == name);
        if self.changes.iter().any(left_out) {
            return;
        }
        let ne: Vec<u64> = ne.iter().map(|&n| n as u64).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.file.tensor(name, GgmlType::F32, &ne, bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    fn random(&mut self, name: &str, ne: &[usize], mean: f32, deviation: f32) {
        self.put(name, ne, &numbers(name, ne.iter().product(), mean, deviation));
    }

    fn key(&mut self, name: &str, value: u32) {
        let change = self.changes.iter().find_map(|change| match change {
            Change::Key(other, value) if *other == name => Some(*value),
            _ => None,
        });
        self.file.kv(&format!("eagle3.{name}"), change.unwrap_or(value));
    }
}

/// The values of a tensor in F32.
fn values(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.require_tensor(name).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(tensor.ggml_type, GgmlType::F32, "{name}");
    let data = gguf.data(tensor).unwrap_or_else(|error| panic!("{error}"));
    data.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Writes a draft for a target, whose width is a multiple of 32, with these changes.
///
/// # Panics
/// The target is no model, or the file cannot be written.
pub fn write(target: &Gguf, tables: Tables, changes: &[Change<'_>], path: &Path) -> Gguf {
    let model = hexflash::model::read(target).unwrap_or_else(|error| panic!("{error}"));
    let (n, layers, n_vocab) = (model.n_embd as usize, model.layers.len(), model.n_vocab as usize);
    let own = tables == Tables::Own;
    let mut w = Weights { file: GgufWriter::new(), changes };
    w.file.kv("general.architecture", "eagle3");
    let taps = changes.iter().find_map(|change| match change {
        Change::Taps(taps) => Some(taps.to_vec()),
        _ => None,
    });
    let taps = taps.unwrap_or_else(|| [0, layers / 2, layers - 1].map(|layer| layer as i32).to_vec());
    w.file.kv("eagle3.target_layers", taps);
    w.file.kv("eagle3.norm_before_fc", own).kv("eagle3.norm_before_residual", own);
    for (name, value) in [
        ("block_count", 1),
        ("context_length", model.n_ctx_train),
        ("embedding_length", n as u32),
        ("target_hidden_size", n as u32),
        ("feed_forward_length", n as u32),
        ("attention.head_count", (n / HEAD) as u32),
        ("attention.head_count_kv", (n / HEAD) as u32),
        ("attention.key_length", HEAD as u32),
        ("attention.value_length", HEAD as u32),
    ] {
        w.key(name, value);
    }
    w.file.kv("eagle3.attention.layer_norm_rms_epsilon", 1e-6f32).kv("eagle3.rope.freq_base", 1e4f32);
    if own {
        let mut embedding = values(target, "token_embd.weight");
        for change in changes {
            if let Change::Embedding(token) = change {
                embedding[*token as usize * n..][..n].rotate_left(1);
            }
        }
        w.put("token_embd.weight", &[n, n_vocab], &embedding);
        let head = values(target, "token_embd.weight");
        let rows: Vec<f32> = head.chunks(2 * n).flat_map(|rows| rows[..n].to_vec()).collect();
        w.put("output.weight", &[n, n_vocab / 2], &rows);
        let ids: Vec<u8> = (0..n_vocab as i64).step_by(2).flat_map(i64::to_le_bytes).collect();
        w.file
            .tensor("d2t", GgmlType::I64, &[n_vocab as u64 / 2], ids)
            .unwrap_or_else(|error| panic!("{error}"));
        w.random("enc.output_norm.weight", &[3 * n], 1.0, 0.1);
    }
    w.random("fc.weight", &[3 * n, n], 0.0, 0.3 / (3.0 * n as f32).sqrt());
    w.put("output_norm.weight", &[n], &values(target, model.output_norm));
    for norm in ["attn_norm", "attn_norm_2", "ffn_norm"] {
        w.random(&format!("blk.0.{norm}.weight"), &[n], 1.0, 0.02);
    }
    // Rows of 2 n columns, of which the first n are for the embedding.
    let of_embedding = |row: &dyn Fn(usize) -> Vec<f32>| -> Vec<f32> {
        (0..n).flat_map(|i| [row(i), vec![0.0; n]].concat()).collect()
    };
    let unit =
        |size: f32| move |i: usize| (0..n).map(|k| if k == i { size } else { 0.0 }).collect::<Vec<f32>>();
    let soft = changes.iter().any(|change| matches!(change, Change::Soft));
    let keys = numbers("keys", n * n, 0.0, if soft { 0.5 } else { 3.0 } / (n as f32).sqrt());
    let keys = of_embedding(&|i| keys[i * n..][..n].to_vec());
    w.put("blk.0.attn_q.weight", &[2 * n, n], &keys);
    w.put("blk.0.attn_k.weight", &[2 * n, n], &keys);
    w.put("blk.0.attn_v.weight", &[2 * n, n], &of_embedding(&unit(1.0)));
    let output: Vec<f32> = (0..n).flat_map(unit(8.0)).collect();
    w.put("blk.0.attn_output.weight", &[n, n], &output);
    for (matrix, ne) in [("ffn_gate", [n, n]), ("ffn_up", [n, n]), ("ffn_down", [n, n])] {
        w.random(&format!("blk.0.{matrix}.weight"), &ne, 0.0, 0.3 / (n as f32).sqrt());
    }
    for change in changes {
        if let Change::More(name) = change {
            w.random(name, &[n], 1.0, 0.1);
        }
    }
    written(&w.file, path)
}

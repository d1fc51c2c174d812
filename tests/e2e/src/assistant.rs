//! Gemma 4 models with random weights, and assistants that draft for them.
//!
//! The layers of these targets add little to the stream, so that the next token is mostly a function of the
//! last one. The assistants have that function, with other layers: so some of their drafts are right.

use std::path::Path;

use hexflash::device::Device;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::weights::{CachePolicy, ImageOptions};

use crate::Model;
use crate::random::{numbers, written};

/// Entries of the vocabulary: those of the models whose tokenizer they borrow.
const VOCABULARY: usize = 4096;
/// Values that each layer of a target gets of a token besides the stream.
const PER_LAYER: usize = 24;
/// Positions.
pub const CONTEXT: u32 = 512;

/// Which layers see a window.
const NEAR: bool = true;
const FAR: bool = false;

/// The shape of a target and its assistant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Width of the target's stream.
    pub width: usize,
    /// The target's layers: whether each sees a window.
    pub layers: &'static [bool],
    /// How many of them, at the end, have no caches of their own.
    pub shared: u32,
    /// Query heads of the target, key and value heads of both.
    pub heads: [usize; 2],
    /// Width of a head in layers that see a window, and in others.
    pub head: [usize; 2],
    /// Tokens that such layers see.
    pub window: u32,
    /// Columns that the assistant's stream has beyond the target's width.
    pub beyond: usize,
    /// The assistant's layers.
    pub own_layers: &'static [bool],
    /// Query heads of the assistant.
    pub own_heads: usize,
}

/// As E2B: the last layers of the target have no caches, and one head of keys serves all queries.
pub const USUAL: Shape = Shape {
    width: 64,
    layers: &[NEAR, NEAR, FAR, NEAR, FAR],
    shared: 2,
    heads: [4, 1],
    head: [32, 64],
    window: 40,
    beyond: 32,
    own_layers: &[NEAR, NEAR, NEAR, FAR],
    own_heads: 4,
};

/// Widths that are odd, two heads of keys, every layer with caches, a window shorter than a block.
pub const ODD: Shape = Shape {
    width: 96,
    layers: &[FAR, NEAR, NEAR, FAR, NEAR],
    shared: 0,
    heads: [6, 2],
    head: [32, 96],
    window: 5,
    beyond: 64,
    own_layers: &[FAR, NEAR],
    own_heads: 2,
};

/// An assistant of one layer, whose window is that of one token: the first draft sees nothing but the rows it
/// reads.
pub const BLIND: Shape = Shape { window: 1, own_layers: &[NEAR], beyond: 0, ..USUAL };

/// All of them.
pub const SHAPES: [Shape; 3] = [USUAL, ODD, BLIND];

/// A target and its assistant.
pub struct Pair {
    /// The target.
    pub target: Gguf,
    /// The assistant.
    pub assistant: Gguf,
}

/// A tensor of an assistant that is not what it should be.
#[derive(Clone, Copy, Debug)]
pub enum Change<'c> {
    /// Without the tensor of this name.
    Without(&'c str),
    /// With one more tensor of this name.
    More(&'c str),
    /// With another value under this key of the assistant's.
    Key(&'c str, u32),
}

impl Pair {
    /// The pair of this shape, as files in a folder.
    ///
    /// # Panics
    /// If the files cannot be written.
    pub fn new(dir: &Path, shape: Shape) -> Self {
        Self { target: target(dir, shape), assistant: assistant(dir, shape, &[]) }
    }

    /// An engine with the target, and with its assistant if that is wanted.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn engine(&self, drafts: bool, device: impl Device + 'static, options: &EngineOptions) -> Engine {
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let options = EngineOptions { speculate: true, ..options.clone() };
        let draft = drafts.then_some(&self.assistant);
        Engine::load_with(&self.target, draft, Box::new(device), &options, &image)
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// A file under construction.
struct Weights {
    file: GgufWriter<'static>,
    arch: &'static str,
}

/// The target's embedding, {width,vocabulary}: larger by the root of the width where it enters.
fn embedding(shape: Shape) -> Vec<f32> {
    numbers("embedding", shape.width * VOCABULARY, 0.0, 1.0 / (shape.width as f32).sqrt())
}

/// The target's last norm. Its signs keep a token from predicting itself.
fn last_norm(shape: Shape) -> Vec<f32> {
    numbers("last norm", shape.width, 0.0, 1.0)
}

impl Weights {
    fn new(arch: &'static str) -> Self {
        let mut file = GgufWriter::new();
        file.kv("general.architecture", arch);
        Self { file, arch }
    }

    fn key(&mut self, name: &str, value: u32) {
        self.file.kv(&format!("{}.{name}", self.arch), value);
    }

    fn put(&mut self, name: &str, ne: &[usize], values: &[f32]) {
        let ne: Vec<u64> = ne.iter().map(|&n| n as u64).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.file.tensor(name, GgmlType::F32, &ne, bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    fn around(&mut self, name: &str, n: usize, mean: f32, deviation: f32) {
        let values = numbers(&format!("{} {name}", self.arch), n, mean, deviation);
        self.put(name, &[n], &values);
    }

    /// A matrix that keeps the size of what it reads.
    fn matrix(&mut self, name: &str, k: usize, n: usize) {
        let values = numbers(&format!("{} {name}", self.arch), k * n, 0.0, 1.0 / (k as f32).sqrt());
        self.put(name, &[k, n], &values);
    }

    /// Keys that target and assistant have.
    fn keys(&mut self, shape: Shape, width: usize, layers: &[bool], heads: usize) {
        let [near, far] = shape.head.map(|width| width as u32);
        for (name, value) in [
            ("block_count", layers.len() as u32),
            ("context_length", CONTEXT),
            ("embedding_length", width as u32),
            ("feed_forward_length", 2 * width as u32),
            ("attention.head_count", heads as u32),
            ("attention.head_count_kv", shape.heads[1] as u32),
            ("attention.key_length", far),
            ("attention.value_length", far),
            ("attention.key_length_swa", near),
            ("attention.value_length_swa", near),
            ("attention.sliding_window", shape.window),
        ] {
            self.key(name, value);
        }
        let arch = self.arch;
        self.file.kv(&format!("{arch}.attention.sliding_window_pattern"), layers.to_vec());
        self.file.kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
        self.file.kv(&format!("{arch}.rope.freq_base"), 1e6f32);
        if layers.contains(&FAR) {
            let divisors = numbers("divisors", shape.head[1] / 2, 4.0, 1.0);
            self.put("rope_freqs.weight", &[shape.head[1] / 2], &divisors);
        }
    }

    /// Tensors that layers of target and assistant have. What these add to the stream is small.
    fn layer(&mut self, i: usize, shape: Shape, near: bool, width: usize, heads: usize) {
        let name = |tensor: &str| format!("blk.{i}.{tensor}.weight");
        let head = shape.head[usize::from(near == FAR)];
        for norm in ["attn_norm", "ffn_norm"] {
            self.around(&name(norm), width, 1.0, 0.1);
        }
        for norm in ["post_attention_norm", "post_ffw_norm"] {
            self.around(&name(norm), width, 0.12, 0.02);
        }
        self.around(&name("attn_q_norm"), head, 1.0, 0.1);
        self.around(&name("layer_output_scale"), 1, 0.9, 0.02);
        self.matrix(&name("attn_q"), width, heads * head);
        self.matrix(&name("attn_output"), heads * head, width);
        self.matrix(&name("ffn_gate"), width, 2 * width);
        self.matrix(&name("ffn_up"), width, 2 * width);
        self.matrix(&name("ffn_down"), 2 * width, width);
    }

    fn write(self, path: &Path) -> Gguf {
        written(&self.file, path)
    }
}

fn target(dir: &Path, shape: Shape) -> Gguf {
    let (width, n_layer) = (shape.width, shape.layers.len());
    let mut weights = Weights::new("gemma4");
    weights.keys(shape, width, shape.layers, shape.heads[0]);
    weights.key("attention.shared_kv_layers", shape.shared);
    weights.key("embedding_length_per_layer_input", PER_LAYER as u32);
    weights.file.kv("gemma4.final_logit_softcapping", 20f32);
    let tokenizer = Model::F16.gguf();
    for (key, value) in tokenizer.meta().iter().filter(|(key, _)| key.starts_with("tokenizer.ggml.")) {
        weights.file.kv(key, value.clone());
    }
    weights.put("token_embd.weight", &[width, VOCABULARY], &embedding(shape));
    weights.put("output_norm.weight", &[width], &last_norm(shape));
    let all = PER_LAYER * n_layer;
    weights.matrix("per_layer_token_embd.weight", all, VOCABULARY);
    weights.matrix("per_layer_model_proj.weight", width, all);
    weights.around("per_layer_proj_norm.weight", PER_LAYER, 1.0, 0.1);
    for (i, &near) in shape.layers.iter().enumerate() {
        weights.layer(i, shape, near, width, shape.heads[0]);
        let name = |tensor: &str| format!("blk.{i}.{tensor}.weight");
        weights.matrix(&name("inp_gate"), width, PER_LAYER);
        weights.matrix(&name("proj"), PER_LAYER, width);
        weights.around(&name("post_norm"), width, 0.12, 0.02);
        let head = shape.head[usize::from(near == FAR)];
        if i < n_layer - shape.shared as usize {
            for tensor in ["attn_k", "attn_v"] {
                weights.matrix(&name(tensor), width, shape.heads[1] * head);
            }
            weights.around(&name("attn_k_norm"), head, 1.0, 0.1);
        }
    }
    weights.write(&dir.join("target.gguf"))
}

/// The assistant for the target of this shape, with these changes.
///
/// # Panics
/// If the file cannot be written.
pub fn assistant(dir: &Path, shape: Shape, changes: &[Change<'_>]) -> Gguf {
    let (of_target, own) = (shape.width, shape.width + shape.beyond);
    let mut weights = Weights::new("gemma4-assistant");
    weights.keys(shape, own, shape.own_layers, shape.own_heads);
    weights.key("embedding_length_out", of_target as u32);
    weights.key("nextn_predict_layers", shape.own_layers.len() as u32);
    // The target's embedding and last norm, and more columns that are of little weight.
    let (theirs, more) = (embedding(shape), numbers("more", shape.beyond * VOCABULARY, 0.0, 0.02));
    let mut table = Vec::with_capacity(own * VOCABULARY);
    for token in 0..VOCABULARY {
        table.extend_from_slice(&theirs[token * of_target..][..of_target]);
        table.extend_from_slice(&more[token * shape.beyond..][..shape.beyond]);
    }
    weights.put("token_embd.weight", &[own, VOCABULARY], &table);
    let norm = [last_norm(shape), numbers("more of the norm", shape.beyond, 0.0, 1.0)].concat();
    weights.put("output_norm.weight", &[own], &norm);
    // The embedding goes through as it is, and something of the target's row is added.
    let mut before = numbers("before", 2 * of_target * own, 0.0, 0.15 / (of_target as f32).sqrt());
    for row in 0..own {
        let row = &mut before[row * 2 * of_target..][..2 * of_target];
        row[..of_target].fill(0.0);
    }
    for i in 0..of_target {
        before[i * 2 * of_target + i] = 1.0;
    }
    weights.put("nextn.pre_projection.weight", &[2 * of_target, own], &before);
    weights.matrix("nextn.post_projection.weight", own, of_target);
    for (i, &near) in shape.own_layers.iter().enumerate() {
        weights.layer(i, shape, near, own, shape.own_heads);
    }
    // A head of two stages, which nothing reads.
    weights.matrix("masked_embd_centroids.weight", own, 16);
    for change in changes {
        match *change {
            Change::Without(_) => {}
            Change::More(name) => weights.around(name, 32, 1.0, 0.1),
            Change::Key(name, value) => weights.key(name, value),
        }
    }
    let whole = weights.write(&dir.join("assistant.gguf"));
    let left_out: Vec<_> = changes
        .iter()
        .filter_map(|change| if let Change::Without(name) = change { Some(*name) } else { None })
        .collect();
    if left_out.is_empty() {
        return whole;
    }
    let mut file = GgufWriter::new();
    for (key, value) in whole.meta().iter() {
        file.kv(key, value.clone());
    }
    for tensor in whole.tensors().filter(|tensor| !left_out.contains(&tensor.name.as_str())) {
        let data = whole.data(tensor).unwrap_or_else(|error| panic!("{error}"));
        file.tensor(&tensor.name, tensor.ggml_type, tensor.shape(), data)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    Weights { file, arch: "" }.write(&dir.join("less.gguf"))
}

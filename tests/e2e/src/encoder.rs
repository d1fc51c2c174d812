//! Encoders of pictures with made-up weights.

use std::path::Path;

use half::f16;
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};

use crate::random::{numbers, written};

/// Maker of rows for the text model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projector {
    /// The mean of squares of rows and a matrix, as Gemma 3 has them.
    Gemma3,
    /// The mean of squares of rows, a norm and a matrix, as Gemma 4 has them. `true` with bounds of products
    /// and a standardization.
    Gemma4(bool),
    /// A matrix, as SmolVLM has it. `true` if the MLPs' matrices have each other's names, as in old files.
    Idefics3(bool),
    /// An MLP, as LFM2-VL has it. `true` if there is a norm before it.
    Lfm2(bool),
}

/// The shape of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Maker of rows for the text model.
    pub projector: Projector,
    /// Width of the stream.
    pub width: usize,
    /// Heads.
    pub heads: usize,
    /// Width inside of the MLP.
    pub inside: usize,
    /// Layers.
    pub layers: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Side of a tile, in pixels; for LFM2-VL of that which the table of positions is for.
    pub tile: usize,
    /// Patches that become one row, along each side.
    pub merge: usize,
    /// The longer side of a picture before it is cut; 0 for a file that does not say.
    pub longest: usize,
}

/// Shape of SmolVLM, with fewer and narrower layers and small tiles.
pub const SMOLVLM: Shape = Shape {
    projector: Projector::Idefics3(false),
    width: 96,
    heads: 3,
    inside: 160,
    layers: 2,
    patch: 16,
    tile: 128,
    merge: 4,
    longest: 256,
};

/// Shape of a SmolVLM of an old converter, with heads of 72 values, as larger encoders have.
pub const OLD_SMOLVLM: Shape = Shape {
    projector: Projector::Idefics3(true),
    width: 144,
    heads: 2,
    inside: 200,
    patch: 14,
    tile: 168,
    merge: 3,
    longest: 0,
    ..SMOLVLM
};

/// Shape of Gemma 3, with fewer and narrower layers and a small square.
pub const GEMMA3: Shape = Shape {
    projector: Projector::Gemma3,
    width: 144,
    heads: 2,
    inside: 200,
    layers: 2,
    patch: 14,
    tile: 168,
    merge: 2,
    longest: 0,
};

/// Shape of Gemma 4 E2B and E4B, with fewer and narrower layers.
pub const GEMMA4: Shape = Shape {
    projector: Projector::Gemma4(false),
    width: 128,
    heads: 2,
    inside: 192,
    layers: 2,
    patch: 16,
    tile: 224,
    merge: 3,
    longest: 0,
};

/// Shape of Gemma 4 with bounds of products.
pub const BOUNDED_GEMMA4: Shape = Shape { projector: Projector::Gemma4(true), ..GEMMA4 };

/// Shape of LFM2-VL, with fewer and narrower layers.
pub const LFM2: Shape = Shape {
    projector: Projector::Lfm2(false),
    width: 64,
    heads: 2,
    inside: 96,
    layers: 2,
    patch: 16,
    tile: 256,
    merge: 2,
    longest: 0,
};

/// Shape of LFM2-VL with a norm before the projector.
pub const NORMED_LFM2: Shape = Shape { projector: Projector::Lfm2(true), ..LFM2 };

/// A change of a file, which makes it one that is refused.
#[derive(Clone, Copy, Debug)]
pub enum Change<'c> {
    /// Lack of the tensor of this name.
    Without(&'c str),
    /// One more tensor of this name.
    More(&'c str),
    /// Another number under this key.
    Key(&'c str, u32),
    /// Another name of the projector.
    Projector(&'c str),
    /// Rows of another width than the text model's.
    Rows(usize),
}

struct Weights<'c> {
    file: GgufWriter<'static>,
    changes: &'c [Change<'c>],
}

impl Weights<'_> {
    fn key(&mut self, name: &str, value: usize) {
        let change = self.changes.iter().find_map(|change| match change {
            Change::Key(other, value) if *other == name => Some(*value),
            _ => None,
        });
        self.file.kv(&format!("clip.vision.{name}"), change.unwrap_or(value as u32));
    }

    fn put(&mut self, name: &str, ggml_type: GgmlType, ne: &[usize], bytes: Vec<u8>) {
        let left_out = |change: &Change<'_>| matches!(change, Change::Without(other) if *other == name);
        if !self.changes.iter().any(left_out) {
            let ne: Vec<u64> = ne.iter().map(|&n| n as u64).collect();
            self.file.tensor(name, ggml_type, &ne, bytes).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    fn vector(&mut self, name: &str, ne: &[usize], mean: f32, deviation: f32) {
        let values = numbers(name, ne.iter().product(), mean, deviation);
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.put(name, GgmlType::F32, ne, bytes);
    }

    /// A matrix whose products have about the size of what they multiply, and its bias.
    fn matrix(&mut self, name: &str, ne: &[usize]) {
        let (n, k) = (ne[ne.len() - 1], ne[..ne.len() - 1].iter().product::<usize>());
        let name = name.strip_suffix(".weight").unwrap_or(name);
        let values = numbers(name, k * n, 0.0, 1.0 / (k as f32).sqrt());
        let bytes = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        self.put(&format!("{name}.weight"), GgmlType::F16, ne, bytes);
        if name != "mm.model.fc" {
            self.vector(&format!("{name}.bias"), &[n], 0.0, 0.1);
        }
    }

    /// A matrix {k,n} without a bias, and bounds that some values lie beyond, if it has some.
    fn bounded(&mut self, name: &str, ne: &[usize], bounded: bool) {
        let (n, k) = (ne[ne.len() - 1], ne[..ne.len() - 1].iter().product::<usize>());
        let values = numbers(name, k * n, 0.0, 1.0 / (k as f32).sqrt());
        let bytes = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        self.put(&format!("{name}.weight"), GgmlType::F16, ne, bytes);
        for (end, value) in
            [("input_min", -1.5f32), ("input_max", 1.75), ("output_min", -1.25), ("output_max", 1.5)]
        {
            if bounded {
                self.put(&format!("{name}.{end}"), GgmlType::F32, &[1], value.to_le_bytes().to_vec());
            }
        }
    }

    /// The tensors of a Gemma 4.
    fn gemma4(&mut self, shape: Shape, n_out: usize, bounded: bool) {
        let Shape { width, heads, inside, layers, patch, .. } = shape;
        self.bounded("v.patch_embd", &[patch, patch, 3, width], false);
        self.vector("v.position_embd.weight", &[width, 600, 2], 0.0, 0.3);
        for i in 0..layers {
            let of = |name: &str| format!("v.blk.{i}.{name}");
            for name in ["ln1", "ln2", "attn_post_norm", "ffn_post_norm"] {
                self.vector(&of(&format!("{name}.weight")), &[width], 1.0, 0.1);
            }
            for name in ["attn_q_norm", "attn_k_norm"] {
                self.vector(&of(&format!("{name}.weight")), &[width / heads], 0.5, 0.1);
            }
            for name in ["attn_q", "attn_k", "attn_v", "attn_out"] {
                self.bounded(&of(name), &[width, width], bounded);
            }
            self.bounded(&of("ffn_gate"), &[width, inside], bounded);
            self.bounded(&of("ffn_up"), &[width, inside], bounded);
            self.bounded(&of("ffn_down"), &[inside, width], bounded);
        }
        if bounded {
            self.vector("v.std_bias", &[width], 0.0, 0.3);
            self.vector("v.std_scale", &[width], 1.0, 0.2);
        }
        self.bounded("mm.input_projection", &[width, n_out], bounded);
    }

    /// Writes the file, with the tensors that were added on purpose.
    fn written(mut self, width: usize, path: &Path) -> Gguf {
        for change in self.changes {
            if let Change::More(name) = change {
                self.vector(name, &[width], 1.0, 0.1);
            }
        }
        written(&self.file, path)
    }

    /// A matrix without a bias that files have the other way round, `{n,k}`.
    fn turned(&mut self, name: &str, [n, k]: [usize; 2]) {
        let values = numbers(name, k * n, 0.0, 1.0 / (k as f32).sqrt());
        let bytes = values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
        self.put(name, GgmlType::F16, &[n, k], bytes);
    }

    fn norm(&mut self, name: &str, n: usize) {
        self.vector(&format!("{name}.weight"), &[n], 1.0, 0.1);
        self.vector(&format!("{name}.bias"), &[n], 0.0, 0.1);
    }
}

/// Writes an encoder for a text model of this width, with these changes.
///
/// # Panics
/// The file cannot be written.
pub fn write(n_embd: usize, shape: Shape, changes: &[Change<'_>], path: &Path) -> Gguf {
    let Shape { projector, width, heads, inside, layers, patch, tile, merge, longest } = shape;
    let rows = changes.iter().find_map(|change| match change {
        Change::Rows(n) => Some(*n),
        _ => None,
    });
    let n_out = rows.unwrap_or(n_embd);
    let mut w = Weights { file: GgufWriter::new(), changes };
    let name = match projector {
        Projector::Gemma3 => "gemma3",
        Projector::Gemma4(_) => "gemma4v",
        Projector::Idefics3(_) => "idefics3",
        Projector::Lfm2(_) => "lfm2",
    };
    let other = changes.iter().find_map(|change| match change {
        Change::Projector(name) => Some(*name),
        _ => None,
    });
    w.file.kv("general.architecture", "clip").kv("clip.has_vision_encoder", true).kv("clip.use_gelu", true);
    w.file.kv("clip.projector_type", other.unwrap_or(name));
    for (name, value) in [
        ("image_size", tile),
        ("patch_size", patch),
        ("embedding_length", width),
        ("feed_forward_length", inside),
        ("projection_dim", n_out),
        ("block_count", layers),
        ("attention.head_count", heads),
        ("projector.scale_factor", merge),
    ] {
        w.key(name, value);
    }
    if longest > 0 {
        w.key("preproc_image_size", longest);
    }
    w.file.kv("clip.vision.attention.layer_norm_epsilon", 1e-6f32);
    for name in ["image_mean", "image_std"] {
        w.file.kv(&format!("clip.vision.{name}"), vec![0.5f32, 0.4, 0.6]);
    }
    if let Projector::Gemma4(bounded) = projector {
        w.gemma4(shape, n_out, bounded);
        return w.written(width, path);
    }
    w.matrix("v.patch_embd.weight", &[patch, patch, 3, width]);
    w.vector("v.position_embd.weight", &[width, (tile / patch) * (tile / patch)], 0.0, 0.5);
    let [up, down] = match projector {
        Projector::Idefics3(true) => ["ffn_down", "ffn_up"],
        _ => ["ffn_up", "ffn_down"],
    };
    for i in 0..layers {
        let of = |name: &str| format!("v.blk.{i}.{name}");
        w.norm(&of("ln1"), width);
        w.norm(&of("ln2"), width);
        for name in ["attn_q", "attn_k", "attn_v", "attn_out"] {
            w.matrix(&of(name), &[width, width]);
        }
        w.matrix(&of(up), &[width, inside]);
        w.matrix(&of(down), &[inside, width]);
    }
    w.norm("v.post_ln", width);
    let merged = width * merge * merge;
    match projector {
        Projector::Gemma3 => {
            w.vector("mm.soft_emb_norm.weight", &[width], 1.0, 0.1);
            w.turned("mm.input_projection.weight", [n_out, width]);
        }
        Projector::Gemma4(_) => {}
        Projector::Idefics3(_) => w.matrix("mm.model.fc.weight", &[merged, n_out]),
        Projector::Lfm2(normed) => {
            if normed {
                w.norm("mm.input_norm", merged);
            }
            w.matrix("mm.1", &[merged, inside]);
            w.matrix("mm.2", &[inside, n_out]);
        }
    }
    w.written(width, path)
}

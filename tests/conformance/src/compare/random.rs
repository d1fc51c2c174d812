//! Models with random weights, of every architecture that hexflash runs, in any widths and weight types.
//!
//! Weights are scaled so that activations stay near one and the state forgets neither at once nor never: the
//! logits then depend on everything.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use hexflash::gguf::GgmlType as FileType;
use hexflash::gguf::writer::GgufWriter;
use hexflash_oracle::GgmlType;
use hexflash_oracle::ops::quantize;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

use super::architecture::Architecture;
use super::vocabulary::{VOCAB_MIN, Vocabulary};

/// What mixes the tokens of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mixer {
    Attention,
    DeltaNet,
    ShortConv,
}

/// How a rotary embedding is stretched to contexts longer than those of the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scaling {
    /// All positions divided by a factor
    Linear,
    /// Slow pairs interpolated, fast ones not
    Yarn,
    /// A divisor for each pair, as in Llama 3.1
    Divisors,
    /// Two divisors for each pair: contexts are longer than those of the training
    LongropeFar,
    /// Two divisors for each pair: contexts are no longer than those of the training
    LongropeNear,
}

/// Weight types that hexflash runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WeightType {
    /// Single precision
    F32,
    /// Half precision
    F16,
    /// Upper half of single precision
    Bf16,
    /// 8-bit blocks of 32
    Q8_0,
    /// 4-bit blocks of 32
    Q4_0,
    /// 4-bit blocks of 32 with a minimum
    Q4_1,
    /// 5-bit blocks of 32
    Q5_0,
    /// 5-bit blocks of 32 with a minimum
    Q5_1,
    /// 4-bit places in a table, in blocks of 32
    Iq4Nl,
    /// 4-bit floats, in blocks of 32
    Mxfp4,
    /// 1-bit blocks of 128
    Q1_0,
    /// 2-bit blocks of 64
    Q2_0,
    /// 2-bit blocks of 256
    Q2K,
    /// 3-bit blocks of 256
    Q3K,
    /// 4-bit blocks of 256
    Q4K,
    /// 5-bit blocks of 256
    Q5K,
    /// 6-bit blocks of 256
    Q6K,
    /// 4-bit places in a table, in blocks of 256
    Iq4Xs,
    /// Each matrix in another of them
    Mixed,
}

/// A model's shape.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ModelShape {
    /// Architecture; only qwen35 has linear attention, and the options for it mean nothing elsewhere; only
    /// qwen35 and lfm2 have convolutions; qwen3moe, qwen35moe and lfm2moe are these with experts, gpt-oss has
    /// some too
    #[arg(long = "arch", value_enum, default_value_t = Architecture::Qwen35, value_name = "NAME")]
    pub architecture: Architecture,
    /// Layers
    #[arg(long, default_value_t = 4)]
    pub layers: u32,
    /// Every n-th layer has full attention, in architectures that have other layers
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub interval: u32,
    /// Width of the residual stream
    #[arg(long, default_value_t = 1024)]
    pub width: u32,
    /// Width of the MLP
    #[arg(long, default_value_t = 2048)]
    pub ff: u32,
    /// Query heads of full attention
    #[arg(long, default_value_t = 8)]
    pub heads: u32,
    /// Key and value heads of full attention
    #[arg(long, default_value_t = 2)]
    pub kv_heads: u32,
    /// Width of a head of full attention
    #[arg(long, default_value_t = 256)]
    pub head: u32,
    /// Tokens that a query sees, where an architecture has windows: in layers that have them, or in all; 0
    /// for no windows
    #[arg(long, default_value_t = 0, value_name = "TOKENS")]
    pub window: u32,
    /// Key heads of linear attention
    #[arg(long, default_value_t = 16)]
    pub key_heads: u32,
    /// Value heads of linear attention
    #[arg(long, default_value_t = 16)]
    pub value_heads: u32,
    /// Width of a head of linear attention
    #[arg(long, default_value_t = 128)]
    pub state: u32,
    /// Taps of the convolution
    #[arg(long, default_value_t = 4)]
    pub taps: u32,
    /// Entries of the vocabulary: 256 bytes, the end of a text, and unused ones
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(i64::from(VOCAB_MIN)..))]
    pub vocab: u32,
    /// Positions
    #[arg(long, default_value_t = 512)]
    pub context: u32,
    /// Type of the matrices
    #[arg(long = "type", value_enum, default_value_t = WeightType::Q8_0, value_name = "TYPE")]
    pub weights: WeightType,
    /// Type of the embedding, and of the head [default: that of the other matrices]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub embedding_type: Option<WeightType>,
    /// Type of the experts [default: that of the other matrices]
    #[arg(long, value_enum, value_name = "TYPE")]
    pub expert_type: Option<WeightType>,
    /// Give the model a head of its own, rather than the embedding
    #[arg(long)]
    pub untied: bool,
    /// Biases of queries, keys, values and the output of attention, in architectures that may have them
    #[arg(long)]
    pub biases: bool,
    /// Stretched positions
    #[arg(long, value_enum, value_name = "HOW")]
    pub scaling: Option<Scaling>,
    /// Experts of a layer, in architectures that have some
    #[arg(long, default_value_t = 8)]
    pub experts: u32,
    /// Experts that a token goes to
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub used: u32,
    /// Width of an expert
    #[arg(long, default_value_t = 256, value_name = "WIDTH")]
    pub expert_ff: u32,
    /// First layers without experts, where an architecture has some
    #[arg(long, default_value_t = 1, value_name = "LAYERS")]
    pub dense_layers: u32,
    /// Gate and up of all experts as one tensor, where an architecture may have that
    #[arg(long)]
    pub fused_experts: bool,
    /// Last layers that read the caches of earlier ones, where an architecture has some
    #[arg(long, default_value_t = 2, value_name = "LAYERS")]
    pub shared: u32,
    /// Values that each layer gets of a token besides the stream, where an architecture has some
    #[arg(long, default_value_t = 64, value_name = "WIDTH")]
    pub per_layer: u32,
    /// An MTP head behind the last layer, in architectures that may have one
    #[arg(long)]
    pub mtp: bool,
    /// Another seed makes other weights
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl ModelShape {
    /// Layers in the file: an MTP head is one more.
    fn layers_with_head(&self) -> u32 {
        self.layers + u32::from(self.mtp)
    }

    /// What mixes the tokens of layer `i`.
    fn mixer(&self, i: u32) -> Mixer {
        let full = (i + 1).is_multiple_of(self.interval) || i == self.layers;
        match self.architecture {
            Architecture::Qwen35 | Architecture::Qwen35moe if !full => Mixer::DeltaNet,
            Architecture::Lfm2 | Architecture::Lfm2moe if !full => Mixer::ShortConv,
            _ => Mixer::Attention,
        }
    }

    /// Whether layer `i` of Gemma 4 or Spark sees a window.
    pub(super) fn is_near(&self, i: u32) -> bool {
        !(i + 1).is_multiple_of(self.interval)
    }

    /// Width of a head of layer `i`: those of Gemma 4 that see a window have narrower ones.
    pub(super) fn head_of(&self, i: u32) -> u32 {
        let narrow = self.architecture == Architecture::Gemma4 && self.is_near(i);
        if narrow { self.head / 2 } else { self.head }
    }

    /// Query heads of layer `i`, and those of keys and values: layers of Spark that see a window have twice
    /// as many.
    fn heads_of(&self, i: u32) -> [u32; 2] {
        let more = self.architecture == Architecture::Spark25 && self.is_near(i);
        if more { [2 * self.heads, 2 * self.kv_heads] } else { [self.heads, self.kv_heads] }
    }

    /// Whether layer `i` reads the caches of another. Such layers of Gemma 4 have wider MLPs.
    fn has_no_caches(&self, i: u32) -> bool {
        self.architecture == Architecture::Gemma4 && i >= self.layers - self.shared
    }

    /// Values of a head that are turned, in layers that see all of the context.
    fn turned(&self) -> u32 {
        match self.architecture {
            Architecture::Qwen35 | Architecture::Qwen35moe => self.head / 4,
            Architecture::Phi3 | Architecture::Spark25 => self.head / 4 * 3,
            _ => self.head,
        }
    }

    /// Whether layer `i` has experts.
    fn has_experts(&self, i: u32) -> bool {
        match self.architecture {
            Architecture::Qwen3moe | Architecture::Qwen35moe | Architecture::GptOss => true,
            Architecture::Lfm2moe => i >= self.dense_layers,
            _ => false,
        }
    }
}

/// Makes a model with random weights.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// The file to write
    #[arg(long, value_name = "GGUF")]
    out: PathBuf,
    #[command(flatten)]
    shape: ModelShape,
}

/// The verb.
///
/// # Errors
/// The file cannot be written, the widths are not whole blocks of the type, or the architecture has no MTP
/// heads.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    write(&arguments.shape, &arguments.out)?;
    println!("{}", arguments.out.display());
    Ok(())
}

/// Random ids: of all tokens of a model, those that no text gives included.
pub fn tokens(shape: &ModelShape, n: usize) -> Vec<i32> {
    let mut rng = stream(shape.seed, "tokens");
    (0..n).map(|_| (rng.next_u64() % u64::from(shape.vocab)) as i32).collect()
}

/// Numbers for one tensor: the same whatever else the model has.
fn stream(seed: u64, name: &str) -> Pcg64Mcg {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    Pcg64Mcg::new(u128::from(hash) << 64 | u128::from(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// `n` numbers around `mean`, uniform, with this standard deviation.
fn numbers(seed: u64, name: &str, n: usize, mean: f32, deviation: f32) -> Vec<f32> {
    let mut rng = stream(seed, name);
    let half = deviation * 3f32.sqrt();
    let mut next = || (rng.next_u32() >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
    (0..n).map(|_| mean + half * next()).collect()
}

/// What a tensor holds.
#[derive(Clone, Copy)]
pub(super) enum Fill {
    /// A matrix: rows keep the size of what they read, times this.
    Matrix(f32),
    /// Plain F32 around a mean, with a deviation.
    Around(f32, f32),
    /// Rates of decay: negative, slow to fast.
    Decay,
    /// Divisors of angles that leave only the first quarter of the pairs turned.
    QuarterTurned,
}

/// The type of matrix `name` with rows of `k`.
fn matrix_type(weights: WeightType, name: &str, k: u64) -> GgmlType {
    const ALL: [GgmlType; 5] = [GgmlType::Q8_0, GgmlType::F16, GgmlType::Q4_0, GgmlType::F32, GgmlType::Q6_K];
    match weights {
        WeightType::F32 => GgmlType::F32,
        WeightType::F16 => GgmlType::F16,
        WeightType::Bf16 => GgmlType::BF16,
        WeightType::Q8_0 => GgmlType::Q8_0,
        WeightType::Q4_0 => GgmlType::Q4_0,
        WeightType::Q4_1 => GgmlType::Q4_1,
        WeightType::Q5_0 => GgmlType::Q5_0,
        WeightType::Q5_1 => GgmlType::Q5_1,
        WeightType::Iq4Nl => GgmlType::IQ4_NL,
        WeightType::Mxfp4 => GgmlType::MXFP4,
        WeightType::Q1_0 => GgmlType::Q1_0,
        WeightType::Q2_0 => GgmlType::Q2_0,
        WeightType::Q2K => GgmlType::Q2_K,
        WeightType::Q3K => GgmlType::Q3_K,
        WeightType::Q4K => GgmlType::Q4_K,
        WeightType::Q5K => GgmlType::Q5_K,
        WeightType::Q6K => GgmlType::Q6_K,
        WeightType::Iq4Xs => GgmlType::IQ4_XS,
        WeightType::Mixed => {
            let start = stream(0, name).next_u64() as usize;
            let fits = |ty: &GgmlType| k.is_multiple_of(ty.block_len() as u64);
            (0..ALL.len()).map(|i| ALL[(start + i) % ALL.len()]).find(fits).unwrap_or(GgmlType::F32)
        }
    }
}

/// What a layer adds to the residual stream, of what it could: as in trained models, less than what is there.
/// With more, rounding of activations grows from layer to layer until llama.cpp differs from itself by more
/// than the limits.
const BRANCH: f32 = 0.3;

/// Granite's factors: on embeddings, on what layers add, on the logits of attention, and what the model's
/// logits are divided by.
const GRANITE: [(&str, f32); 4] =
    [("embedding_scale", 4.0), ("residual_scale", 0.25), ("attention.scale", 0.2), ("logit_scale", 8.0)];

/// How much wider than the stream of EmbeddingGemma that is which lies between the matrices behind its norm.
const DENSE: u64 = 4;

/// The tensors of a model: name, dimensions, contents.
fn tensors(s: &ModelShape) -> Vec<(String, Vec<u64>, Fill)> {
    let [e, f, vocab] = [s.width, s.ff, s.vocab].map(u64::from);
    let [state, hk, hv, taps] = [s.state, s.key_heads, s.value_heads, s.taps].map(u64::from);
    let (channels, values) = ((2 * hk + hv) * state, hv * state);
    let norm = Fill::Around(1.0, 0.1);
    // Gemma makes embeddings larger by the root of their width.
    let dense = s.architecture.dense();
    let gemma = matches!(
        dense,
        Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Gemma4 | Architecture::GemmaEmbedding
    );
    // What Granite's factors make of embeddings, of what layers add and of logits, weights make up for.
    let [embeddings, branches, _, logits] = match s.architecture {
        Architecture::Granite => GRANITE.map(|(_, factor)| factor),
        _ => [1.0; 4],
    };
    let (branch, logits) = (BRANCH / branches, 2.0 * logits);
    let size = if gemma { 1.0 } else { (e as f32).sqrt() / embeddings };
    let last = if s.untied { norm } else { Fill::Around(0.0, logits / size) };
    let mut out = vec![
        // Elements of about one in the trunk. Where the head has the same numbers, the norm before it brings
        // logits down to size, and its signs keep a token from predicting itself.
        ("token_embd.weight".to_owned(), vec![e, vocab], Fill::Matrix(size)),
        (s.architecture.output_norm().to_owned(), vec![e], last),
    ];
    if s.untied {
        out.push(("output.weight".to_owned(), vec![e, vocab], Fill::Matrix(logits)));
    }
    if s.scaling == Some(Scaling::Divisors) {
        out.push(("rope_freqs.weight".to_owned(), vec![u64::from(s.head) / 2], Fill::Around(4.0, 2.0)));
    }
    if matches!(s.scaling, Some(Scaling::LongropeFar | Scaling::LongropeNear)) {
        let pairs = vec![u64::from(s.turned()) / 2];
        out.push(("rope_factors_long.weight".to_owned(), pairs.clone(), Fill::Around(4.0, 2.0)));
        out.push(("rope_factors_short.weight".to_owned(), pairs, Fill::Around(1.2, 0.1)));
    }
    if s.architecture == Architecture::GemmaEmbedding {
        out.push(("dense_2.weight".to_owned(), vec![e, DENSE * e], Fill::Matrix(1.0)));
        out.push(("dense_3.weight".to_owned(), vec![DENSE * e, e], Fill::Matrix(1.0)));
    }
    if s.architecture == Architecture::Gemma4 {
        let all = u64::from(s.per_layer * s.layers);
        out.extend([
            (
                "per_layer_token_embd.weight".to_owned(),
                vec![all, vocab],
                Fill::Matrix((all as f32 / s.per_layer as f32).sqrt()),
            ),
            ("per_layer_model_proj.weight".to_owned(), vec![e, all], Fill::Matrix(1.0)),
            ("per_layer_proj_norm.weight".to_owned(), vec![s.per_layer.into()], norm),
            ("rope_freqs.weight".to_owned(), vec![u64::from(s.head) / 2], Fill::QuarterTurned),
        ]);
    }
    for i in 0..s.layers_with_head() {
        let mut add = |name: &str, ne: &[u64], fill| out.push((format!("blk.{i}.{name}"), ne.to_vec(), fill));
        add("attn_norm.weight", &[e], norm);
        add(s.architecture.mlp_norm(), &[e], norm);
        if i == s.layers {
            add("nextn.eh_proj.weight", &[2 * e, e], Fill::Matrix(1.0));
            add("nextn.enorm.weight", &[e], norm);
            add("nextn.hnorm.weight", &[e], norm);
            // As the one before the head: its signs keep a token from predicting itself.
            add("nextn.shared_head_norm.weight", &[e], last);
        }
        // Each query head of Qwen3.5 has a gate beside it.
        let per_query = if dense == Architecture::Qwen35 { 2 } else { 1 };
        if gemma {
            // They give what the layer adds its size, whatever that was before.
            add("post_attention_norm.weight", &[e], Fill::Around(BRANCH, 0.05));
            add("post_ffw_norm.weight", &[e], Fill::Around(BRANCH, 0.05));
        }
        match s.mixer(i) {
            Mixer::Attention => {
                let ([q, kv], head) = (s.heads_of(i).map(u64::from), u64::from(s.head_of(i)));
                if s.architecture == Architecture::Phi3 {
                    add("attn_qkv.weight", &[e, (q + 2 * kv) * head], Fill::Matrix(1.0));
                } else {
                    add("attn_q.weight", &[e, per_query * q * head], Fill::Matrix(1.0));
                    if !s.has_no_caches(i) {
                        add("attn_k.weight", &[e, kv * head], Fill::Matrix(1.0));
                        add("attn_v.weight", &[e, kv * head], Fill::Matrix(1.0));
                    }
                }
                if s.architecture == Architecture::Spark25 {
                    add("attn_gate.weight", &[e, q], Fill::Matrix(1.0));
                }
                if s.architecture.has_head_norms() {
                    // Logits of some size, so that attention is not a plain mean. Gemma 4 does not scale
                    // them.
                    let size = if s.architecture == Architecture::Gemma4 { 0.4 } else { 1.5 };
                    add("attn_q_norm.weight", &[head], Fill::Around(size, 0.1));
                    if !s.has_no_caches(i) {
                        add("attn_k_norm.weight", &[head], Fill::Around(size, 0.1));
                    }
                }
                let bias = Fill::Around(0.0, 0.5);
                let all_biases = s.biases || s.architecture == Architecture::GptOss;
                if all_biases || dense == Architecture::Qwen2 {
                    add("attn_q.bias", &[per_query * q * head], bias);
                    add("attn_k.bias", &[kv * head], bias);
                    add("attn_v.bias", &[kv * head], bias);
                }
                if all_biases {
                    add("attn_output.bias", &[e], bias);
                }
                if s.architecture == Architecture::GptOss {
                    // Some take most of a row, others next to nothing.
                    add("attn_sinks.weight", &[q], Fill::Around(0.0, 3.0));
                }
                add("attn_output.weight", &[q * head, e], Fill::Matrix(branch));
            }
            Mixer::ShortConv => {
                add("shortconv.in_proj.weight", &[e, 3 * e], Fill::Matrix(1.0));
                add("shortconv.conv.weight", &[taps, e], Fill::Around(0.1, 0.5));
                add("shortconv.out_proj.weight", &[e, e], Fill::Matrix(BRANCH));
            }
            Mixer::DeltaNet => {
                add("attn_qkv.weight", &[e, channels], Fill::Matrix(1.0));
                add("attn_gate.weight", &[e, values], Fill::Matrix(1.0));
                add("ssm_beta.weight", &[e, hv], Fill::Matrix(1.0));
                add("ssm_alpha.weight", &[e, hv], Fill::Matrix(1.0));
                add("ssm_conv1d.weight", &[taps, channels], Fill::Around(0.1, 0.5));
                add("ssm_a", &[hv], Fill::Decay);
                add("ssm_dt.bias", &[hv], Fill::Around(-2.0, 1.0));
                add("ssm_norm.weight", &[state], norm);
                add("ssm_out.weight", &[values, e], Fill::Matrix(BRANCH));
            }
        }
        if s.has_experts(i) {
            experts(s, add);
            continue;
        }
        let f = if s.has_no_caches(i) { 2 * f } else { f };
        if s.architecture == Architecture::Phi3 {
            add("ffn_up.weight", &[e, 2 * f], Fill::Matrix(1.0));
        } else {
            add("ffn_gate.weight", &[e, f], Fill::Matrix(1.0));
            add("ffn_up.weight", &[e, f], Fill::Matrix(1.0));
        }
        add("ffn_down.weight", &[f, e], Fill::Matrix(branch));
        if s.architecture == Architecture::Gemma4 {
            let width = u64::from(s.per_layer);
            add("inp_gate.weight", &[e, width], Fill::Matrix(1.0));
            add("proj.weight", &[width, e], Fill::Matrix(1.0));
            add("post_norm.weight", &[e], Fill::Around(BRANCH, 0.05));
            add("layer_output_scale.weight", &[1], Fill::Around(0.9, 0.05));
        }
    }
    out
}

/// The tensors of a layer's experts.
fn experts(s: &ModelShape, mut add: impl FnMut(&str, &[u64], Fill)) {
    let [e, f, shared, n] = [s.width, s.expert_ff, s.ff, s.experts].map(u64::from);
    // Logits that are far enough apart for rounding to leave the choice alone, nearly always.
    add("ffn_gate_inp.weight", &[e, n], Fill::Around(0.0, 3.0 / (e as f32).sqrt()));
    if s.fused_experts {
        add("ffn_gate_up_exps.weight", &[e, 2 * f, n], Fill::Matrix(1.0));
    } else {
        add("ffn_gate_exps.weight", &[e, f, n], Fill::Matrix(1.0));
        add("ffn_up_exps.weight", &[e, f, n], Fill::Matrix(1.0));
    }
    // The gate of gpt-oss makes values of about ten where biases bring it to its bounds.
    let gain = if s.architecture == Architecture::GptOss { 0.2 } else { 2.0 };
    add("ffn_down_exps.weight", &[f, e, n], Fill::Matrix(gain * BRANCH));
    match s.architecture {
        Architecture::Qwen35moe => {
            add("ffn_gate_inp_shexp.weight", &[e], Fill::Around(0.0, 2.0 / (e as f32).sqrt()));
            add("ffn_gate_shexp.weight", &[e, shared], Fill::Matrix(1.0));
            add("ffn_up_shexp.weight", &[e, shared], Fill::Matrix(1.0));
            add("ffn_down_shexp.weight", &[shared, e], Fill::Matrix(BRANCH));
        }
        // Enough to change the choice.
        Architecture::Lfm2moe => add("exp_probs_b.bias", &[n], Fill::Around(0.0, 0.3)),
        Architecture::GptOss => {
            add("ffn_gate_inp.bias", &[n], Fill::Around(0.0, 0.5));
            // To the bounds at 7 and beyond.
            add("ffn_gate_exps.bias", &[f, n], Fill::Around(0.0, 4.0));
            add("ffn_up_exps.bias", &[f, n], Fill::Around(0.0, 4.0));
            add("ffn_down_exps.bias", &[e, n], Fill::Around(0.0, 0.1));
        }
        _ => {}
    }
}

/// The bytes of a tensor, and their type.
pub(super) fn contents(
    s: &ModelShape,
    name: &str,
    ne: &[u64],
    fill: Fill,
) -> Result<(GgmlType, Vec<u8>), String> {
    let n = ne.iter().product::<u64>() as usize;
    let k = ne[0];
    let (ty, values) = match fill {
        Fill::Matrix(gain) => {
            let outer = s.embedding_type.filter(|_| !name.starts_with("blk."));
            let expert = s.expert_type.filter(|_| name.contains("_exps."));
            let ty = matrix_type(outer.or(expert).unwrap_or(s.weights), name, k);
            if !k.is_multiple_of(ty.block_len() as u64) {
                let (len, ty) = (ty.block_len(), ty.name());
                return Err(format!("rows of {k} in {name} are not whole blocks of {len}, as {ty} needs"));
            }
            (ty, numbers(s.seed, name, n, 0.0, gain / (k as f32).sqrt()))
        }
        Fill::Around(mean, deviation) => (GgmlType::F32, numbers(s.seed, name, n, mean, deviation)),
        Fill::QuarterTurned => {
            let divisor = |i| if i < n / 4 { 1.0 } else { 1e30 };
            (GgmlType::F32, (0..n).map(divisor).collect())
        }
        Fill::Decay => {
            let exponents = numbers(s.seed, name, n, -1.0, 1.2);
            (GgmlType::F32, exponents.into_iter().map(|v| -v.exp()).collect())
        }
    };
    Ok((ty, quantize(ty, &values, k as usize)))
}

/// Writes a model.
///
/// # Errors
/// As [`run`].
pub fn write(s: &ModelShape, path: &Path) -> Result<(), String> {
    write_with(s, &Vocabulary::smallest(s.architecture.pre(), s.vocab), path)
}

/// Keys that one architecture has, and no other.
fn own_keys(s: &ModelShape, w: &mut GgufWriter<'_>) {
    match s.architecture {
        Architecture::Granite => {
            for (key, factor) in GRANITE {
                w.kv(&format!("granite.{key}"), factor);
            }
        }
        Architecture::Gemma2 => {
            // So low that they bend most logits.
            w.kv("gemma2.attn_logit_softcapping", 1.5f32).kv("gemma2.final_logit_softcapping", 3f32);
        }
        Architecture::Mistral3 => {
            // Others than those that YaRN has where a file does not say, and so few turns that the context of
            // 64 has pairs with more.
            w.kv("mistral3.rope.scaling.yarn_beta_fast", 4f32)
                .kv("mistral3.rope.scaling.yarn_beta_slow", 1.5f32)
                .kv("mistral3.rope.scaling.yarn_log_multiplier", 0.7f32)
                .kv("mistral3.attention.temperature_scale", 0.4f32);
        }
        Architecture::Spark25 => {
            let flags: Vec<bool> = (0..s.layers).map(|i| s.is_near(i)).collect();
            w.kv("spark2_5.attention.sliding_window_pattern", flags)
                .kv("spark2_5.rope.dimension_count_swa", s.head)
                .kv("spark2_5.rope.freq_base_swa", 1e4f32);
        }
        Architecture::GemmaEmbedding => {
            let wide = DENSE as u32 * s.width;
            for (key, n) in
                [("2_feat_in", s.width), ("2_feat_out", wide), ("3_feat_in", wide), ("3_feat_out", s.width)]
            {
                w.kv(&format!("gemma-embedding.dense_{key}"), n);
            }
        }
        _ => {}
    }
}

/// Writes a model with a vocabulary of as many tokens as the shape has.
///
/// # Errors
/// As [`run`].
pub fn write_with(s: &ModelShape, vocabulary: &Vocabulary, path: &Path) -> Result<(), String> {
    if s.mtp && s.architecture.dense() != Architecture::Qwen35 {
        return Err(format!("{} has no MTP heads; use qwen35 or qwen35moe", s.architecture.name()));
    }
    let mut w = GgufWriter::new();
    let file_type = match s.weights {
        WeightType::F32 => 0u32,
        WeightType::F16 | WeightType::Mixed => 1,
        WeightType::Q4_0 => 2,
        WeightType::Q4_1 => 3,
        WeightType::Q8_0 => 7,
        WeightType::Q5_0 => 8,
        WeightType::Q5_1 => 9,
        WeightType::Q2K => 10,
        // The middle ones of three, and of two.
        WeightType::Q3K => 12,
        WeightType::Q4K => 15,
        WeightType::Q5K => 17,
        WeightType::Q6K => 18,
        WeightType::Iq4Nl => 25,
        WeightType::Iq4Xs => 30,
        WeightType::Bf16 => 32,
        WeightType::Mxfp4 => 38,
        WeightType::Q1_0 => 40,
        WeightType::Q2_0 => 41,
    };
    let arch = s.architecture.name();
    w.kv("general.architecture", arch)
        .kv("general.name", "random weights")
        .kv("general.quantization_version", 2u32)
        .kv("general.file_type", file_type);
    vocabulary.put(&mut w);
    let mut numbers = vec![
        ("block_count", s.layers_with_head()),
        ("context_length", s.context),
        ("embedding_length", s.width),
        ("feed_forward_length", s.ff),
        ("vocab_size", s.vocab),
        ("attention.head_count", s.heads),
        ("attention.key_length", s.head),
        ("attention.value_length", s.head),
    ];
    let dense = s.architecture.dense();
    if s.architecture == Architecture::Gemma4 {
        numbers.retain(|(name, _)| *name != "feed_forward_length");
        let flags: Vec<bool> = (0..s.layers).map(|i| s.is_near(i)).collect();
        let width = |i| if s.has_no_caches(i) { 2 * s.ff as i32 } else { s.ff as i32 };
        let widths: Vec<i32> = (0..s.layers).map(width).collect();
        w.kv("gemma4.attention.sliding_window_pattern", flags)
            .kv("gemma4.feed_forward_length", widths)
            .kv("gemma4.final_logit_softcapping", 3f32)
            .kv("gemma4.rope.freq_base_swa", 1e4f32);
        numbers.extend([
            ("attention.key_length_swa", s.head / 2),
            ("attention.value_length_swa", s.head / 2),
            ("rope.dimension_count_swa", s.head / 2),
            ("attention.shared_kv_layers", s.shared),
            ("embedding_length_per_layer_input", s.per_layer),
        ]);
    }
    if s.turned() != s.head {
        numbers.push(("rope.dimension_count", s.turned()));
    }
    if matches!(dense, Architecture::Qwen35 | Architecture::Qwen3vl) {
        let pairs = s.turned() / 2;
        let sections: Vec<i32> = [pairs - pairs / 3 * 2, pairs / 3, pairs / 3, 0].map(|n| n as i32).into();
        w.kv(&format!("{arch}.rope.dimension_sections"), sections);
    }
    own_keys(s, &mut w);
    if dense == Architecture::Qwen35 {
        numbers.extend([
            ("ssm.conv_kernel", s.taps),
            ("ssm.state_size", s.state),
            ("ssm.group_count", s.key_heads),
            ("ssm.time_step_rank", s.value_heads),
            ("ssm.inner_size", s.value_heads * s.state),
            ("full_attention_interval", s.interval),
        ]);
    }
    if s.mtp {
        numbers.push(("nextn_predict_layers", 1));
    }
    if s.window > 0 {
        numbers.push(("attention.sliding_window", s.window));
    }
    // Files of gpt-oss and Gemma 2 do not say it.
    let alternates = matches!(s.architecture, Architecture::GptOss | Architecture::Gemma2);
    let has_period = matches!(dense, Architecture::Gemma3 | Architecture::GemmaEmbedding);
    let says_pattern = has_period || alternates && s.interval != 2;
    if says_pattern {
        numbers.push(("attention.sliding_window_pattern", s.interval));
    }
    if s.architecture != dense {
        numbers.extend([
            ("expert_count", s.experts),
            ("expert_used_count", s.used),
            ("expert_feed_forward_length", s.expert_ff),
        ]);
    }
    if s.architecture == Architecture::Qwen35moe {
        numbers.push(("expert_shared_feed_forward_length", s.ff));
    }
    if s.architecture == Architecture::Lfm2moe {
        // Sigmoids.
        numbers.extend([("expert_gating_func", 2), ("leading_dense_block_count", s.dense_layers)]);
    }
    if dense == Architecture::Spark25 {
        let [q, kv] = [0, 1].map(|of| Vec::from_iter((0..s.layers).map(|i| s.heads_of(i)[of] as i32)));
        numbers.retain(|(name, _)| *name != "attention.head_count");
        w.kv("spark2_5.attention.head_count", q).kv("spark2_5.attention.head_count_kv", kv);
    } else if dense == Architecture::Lfm2 {
        numbers.push(("shortconv.l_cache", s.taps));
        let heads = |i| if s.mixer(i) == Mixer::Attention { s.kv_heads as i32 } else { 0 };
        let heads: Vec<i32> = (0..s.layers).map(heads).collect();
        w.kv(&format!("{arch}.attention.head_count_kv"), heads);
    } else {
        numbers.push(("attention.head_count_kv", s.kv_heads));
    }
    let scaling = match s.scaling {
        Some(Scaling::Linear) => Some("linear"),
        Some(Scaling::Yarn) => Some("yarn"),
        Some(Scaling::Divisors | Scaling::LongropeFar | Scaling::LongropeNear) | None => None,
    };
    if matches!(s.scaling, Some(Scaling::LongropeFar | Scaling::LongropeNear)) {
        let near = s.scaling == Some(Scaling::LongropeNear);
        numbers.push(("rope.scaling.original_context_length", if near { s.context } else { 64 }));
        w.kv(&format!("{arch}.rope.scaling.attn_factor"), 1.19f32);
    }
    if let Some(kind) = scaling {
        w.kv(&format!("{arch}.rope.scaling.type"), kind)
            .kv(&format!("{arch}.rope.scaling.factor"), 4f32)
            .kv(&format!("{arch}.rope.scaling.attn_factor"), 1.1f32);
        // Short enough for pairs of all kinds: turned as they are, in part, and by a fourth.
        numbers.push(("rope.scaling.original_context_length", 64));
    }
    w.kv(&format!("{arch}.rope.freq_base"), s.architecture.freq_base())
        .kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
    for (key, value) in numbers {
        w.kv(&format!("{arch}.{key}"), value);
    }
    for (name, ne, fill) in tensors(s) {
        let (ty, bytes) = contents(s, &name, &ne, fill)?;
        let file_type = FileType::from_id(ty as u32).ok_or("GGUF has no such type")?;
        w.tensor(&name, file_type, &ne, bytes).map_err(|e| e.to_string())?;
    }
    let file = File::create(path).map_err(|e| format!("cannot create {}: {e}", path.display()))?;
    let mut out = BufWriter::new(file);
    w.write_to(&mut out).map_err(|e| e.to_string())?;
    out.flush().map_err(|e| e.to_string())
}

//! What speculation takes for models of real size: files with their descriptions, and no weights.

use std::fs::File;
use std::io::{Error, Write};
use std::path::Path;

use hexflash::device::{self, DeviceOptions};
use hexflash::engine::{EngineOptions, MemoryPlan, ModelFiles, memory_needs};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};

/// What all kinds of files say of their layers.
#[derive(Clone, Copy)]
struct Layers {
    arch: &'static str,
    /// Layers, a head's included.
    n: u64,
    context: u64,
    width: u64,
    mlp: u64,
    /// Query and key heads of attention, and the width of one.
    heads: (u64, u64, u64),
}

/// A size of Qwen3.5: three linear layers to a full one.
struct Hybrid {
    layers: Layers,
    /// Key and value heads of the linear layers.
    linear: (u64, u64),
    /// Whether the last layer is an MTP head.
    mtp: bool,
}

const QWEN35: Layers =
    Layers { arch: "qwen35", n: 24, context: 262_144, width: 1024, mlp: 3584, heads: (8, 2, 256) };
const B0_8: Hybrid = Hybrid { layers: QWEN35, linear: (16, 16), mtp: false };
const B4: Hybrid = Hybrid {
    layers: Layers { n: 32, width: 2560, mlp: 9216, heads: (16, 4, 256), ..QWEN35 },
    linear: (16, 32),
    mtp: false,
};
const QWEN3_8B: Layers =
    Layers { arch: "qwen3", n: 36, context: 40_960, width: 4096, mlp: 12_288, heads: (32, 8, 128) };
/// The DFlash draft of that one.
const DFLASH_8B: Layers = Layers { arch: "dflash", n: 5, ..QWEN3_8B };

/// A file of matrices in Q4_0, and no values.
struct Header(GgufWriter<'static>);

impl Header {
    fn new(layers: &Layers) -> Self {
        let &Layers { arch, n, context, width, mlp, heads: (queries, keys, head) } = layers;
        let mut file = GgufWriter::new();
        file.kv("general.architecture", arch);
        file.kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
        file.kv(&format!("{arch}.rope.freq_base"), 1e7f32);
        let mut file = Self(file);
        file.numbers(
            arch,
            &[
                ("block_count", n),
                ("context_length", context),
                ("embedding_length", width),
                ("feed_forward_length", mlp),
                ("attention.head_count", queries),
                ("attention.head_count_kv", keys),
                ("attention.key_length", head),
                ("attention.value_length", head),
            ],
        );
        file
    }

    fn numbers(&mut self, arch: &str, values: &[(&str, u64)]) {
        for &(key, value) in values {
            self.0.kv(&format!("{arch}.{key}"), value as u32);
        }
    }

    /// The header is complete when the first tensor is added.
    fn add(&mut self, name: &str, ne: &[u64]) {
        let kind = if ne.len() == 1 || name.contains("conv1d") { GgmlType::F32 } else { GgmlType::Q4_0 };
        self.0.tensor_with(name, kind, ne, |_| Err(Error::other("there are no weights"))).unwrap();
    }

    fn add_all(&mut self, prefix: &str, tensors: &[(&str, &[u64])]) {
        tensors.iter().for_each(|(suffix, ne)| self.add(&format!("{prefix}.{suffix}"), ne));
    }

    /// Layer `i` of attention whose queries have so many parts, and of an MLP.
    fn attention(&mut self, i: u64, layers: &Layers, parts: u64, mlp_norm: &str) {
        let &Layers { width, mlp, heads: (queries, keys, head), .. } = layers;
        self.add_all(
            &format!("blk.{i}"),
            &[
                ("attn_q.weight", &[width, parts * queries * head]),
                ("attn_k.weight", &[width, keys * head]),
                ("attn_v.weight", &[width, keys * head]),
                ("attn_q_norm.weight", &[head]),
                ("attn_k_norm.weight", &[head]),
                ("attn_output.weight", &[queries * head, width]),
                ("attn_norm.weight", &[width]),
                (mlp_norm, &[width]),
            ],
        );
        self.mlp(i, width, mlp);
    }

    fn mlp(&mut self, i: u64, width: u64, mlp: u64) {
        self.add_all(
            &format!("blk.{i}"),
            &[
                ("ffn_gate.weight", &[width, mlp]),
                ("ffn_up.weight", &[width, mlp]),
                ("ffn_down.weight", &[mlp, width]),
            ],
        );
    }

    /// The file, with a hole for the weights.
    fn open(self, dir: &Path, name: &str) -> Gguf {
        let path = dir.join(name);
        let mut header = Vec::new();
        assert!(self.0.write_to(&mut header).is_err(), "no weights");
        let mut file = File::create(&path).unwrap();
        file.write_all(&header).unwrap();
        file.set_len(header.len() as u64 + (6 << 30)).unwrap();
        Gguf::open(&path).unwrap()
    }
}

fn qwen35(shape: &Hybrid, dir: &Path) -> Gguf {
    const VOCABULARY: u64 = 248_320;
    const STATE: u64 = 128;
    let &Hybrid { ref layers, linear: (keys, values), mtp } = shape;
    let &Layers { n, width, mlp, .. } = layers;
    let mut file = Header::new(layers);
    file.numbers(
        "qwen35",
        &[
            ("nextn_predict_layers", mtp.into()),
            ("rope.dimension_count", 64),
            ("full_attention_interval", 4),
            ("ssm.group_count", keys),
            ("ssm.time_step_rank", values),
            ("ssm.state_size", STATE),
            ("ssm.inner_size", values * STATE),
            ("ssm.conv_kernel", 4),
        ],
    );
    file.add("token_embd.weight", &[width, VOCABULARY]);
    file.add("output_norm.weight", &[width]);
    for i in 0..n {
        if (i + 1) % 4 == 0 || mtp && i + 1 == n {
            file.attention(i, layers, 2, "post_attention_norm.weight");
            continue;
        }
        let channels = (2 * keys + values) * STATE;
        file.add_all(
            &format!("blk.{i}"),
            &[
                ("attn_norm.weight", &[width]),
                ("post_attention_norm.weight", &[width]),
                ("attn_qkv.weight", &[width, channels]),
                ("attn_gate.weight", &[width, values * STATE]),
                ("ssm_beta.weight", &[width, values]),
                ("ssm_alpha.weight", &[width, values]),
                ("ssm_conv1d.weight", &[4, channels]),
                ("ssm_a", &[values]),
                ("ssm_dt.bias", &[values]),
                ("ssm_norm.weight", &[STATE]),
                ("ssm_out.weight", &[values * STATE, width]),
            ],
        );
        file.mlp(i, width, mlp);
    }
    if mtp {
        let of_head: [(&str, &[u64]); 3] =
            [("eh_proj.weight", &[2 * width, width]), ("enorm.weight", &[width]), ("hnorm.weight", &[width])];
        file.add_all(&format!("blk.{}.nextn", n - 1), &of_head);
    }
    file.open(dir, "qwen35.gguf")
}

fn qwen3_8b(dir: &Path) -> Gguf {
    let mut file = Header::new(&QWEN3_8B);
    for name in ["token_embd.weight", "output.weight"] {
        file.add(name, &[4096, 151_936]);
    }
    file.add("output_norm.weight", &[4096]);
    (0..QWEN3_8B.n).for_each(|i| file.attention(i, &QWEN3_8B, 1, "ffn_norm.weight"));
    file.open(dir, "8b.gguf")
}

/// Its draft, with blocks of 16 tokens.
fn dflash_8b(dir: &Path) -> Gguf {
    let mut file = Header::new(&DFLASH_8B);
    file.numbers("dflash", &[("block_size", 16)]);
    file.0.kv("dflash.target_layers", &[2i32, 10, 18, 26, 34][..]);
    file.0.kv("tokenizer.ggml.mask_token_id", 151_669u32);
    file.add("fc.weight", &[5 * 4096, 4096]);
    file.add("enc.output_norm.weight", &[4096]);
    file.add("output_norm.weight", &[4096]);
    (0..DFLASH_8B.n).for_each(|i| file.attention(i, &DFLASH_8B, 1, "ffn_norm.weight"));
    file.open(dir, "draft.gguf")
}

fn memory(gguf: &Gguf, draft: Option<&Gguf>, batch: u32, speculate: bool) -> MemoryPlan {
    let device = device::open("inproc", &DeviceOptions::default()).unwrap();
    let options = EngineOptions { batch, speculate, ..EngineOptions::default() };
    memory_needs(ModelFiles::of(gguf).with_draft(draft), &options, device.info()).unwrap()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// An MTP head in the model's own file adds a cache like that of a full layer, and little beside it: what
/// keeps rejected tokens out of the states stays below 2 % of a copy of them per token.
#[test]
fn mtp_heads() {
    let dir = tempfile::tempdir().unwrap();
    for (name, trunk) in [("0.8B", B0_8), ("4B", B4)] {
        let layers = Layers { n: trunk.layers.n + 1, ..trunk.layers };
        let gguf = qwen35(&Hybrid { layers, mtp: true, ..trunk }, dir.path());
        let plan = memory(&gguf, Some(&gguf), 256, true);
        let with = plan.speculation.unwrap();
        println!("{name}: {with:?}");
        assert!(with.rollback() * 50 < with.state_copies, "{name}: {} MiB", mib(with.rollback()));
        // Keys and values in half precision.
        let (_, keys, head) = layers.heads;
        let cache = 2 * 2 * keys * head * u64::from(plan.n_ctx);
        assert_eq!(with.draft_kv, cache, "{name}");
        assert_eq!(plan.kv, cache * trunk.layers.n / 4, "{name}");
        // Rows of the target that plain steps leave behind, and a few ids.
        assert!(with.other < 40 * 4 * layers.width, "{name}: {} bytes", with.other);
    }
}

/// A dense target has no states that would have to be copied or kept.
#[test]
fn a_dflash_draft_of_a_dense_target() {
    let dir = tempfile::tempdir().unwrap();
    let (gguf, draft) = (qwen3_8b(dir.path()), dflash_8b(dir.path()));
    let plan = memory(&gguf, Some(&draft), 256, true);
    let with = plan.speculation.unwrap();
    println!("Qwen3-8B: {with:?}");
    assert_eq!((with.tape, with.conv_rows, with.state_copies), (0, 0, 0));
    assert_eq!((with.draft_kv, plan.kv), (5 * 4 * 8 * 128 * 4096, 36 * 4 * 8 * 128 * 4096));
    assert!(with.other < 40 * 4 * 5 * 4096, "{} bytes", with.other);
}

/// Against a copy of all states per token of a block, 804 MiB: less than 2 %, because rows of convolutions
/// lie where prefill has its activations.
#[test]
fn a_model_of_4b() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = qwen35(&B4, dir.path());

    let (plain, memory_plan) = (memory(&gguf, None, 256, false), memory(&gguf, None, 256, true));
    let with = memory_plan.speculation.unwrap();
    assert_eq!(plain.speculation, None);
    assert_eq!(mib(with.state_copies).round(), 804.0);
    assert!(mib(with.tape) < 9.1, "{}", mib(with.tape));
    assert!(with.rollback() * 50 < with.state_copies, "{} MiB", mib(with.rollback()));
    assert_eq!((with.conv_rows, with.other, with.draft_kv), (0, 0, 0));
    // Nothing of it hides elsewhere.
    assert_eq!(
        (memory_plan.kv, memory_plan.recurrent, memory_plan.activations, memory_plan.io),
        (plain.kv, plain.recurrent, plain.activations, plain.io)
    );
    // Prefill in steps of a few tokens needs less memory than the rows: what they take then is told.
    let (plain, small) = (memory(&gguf, None, 16, false), memory(&gguf, None, 16, true));
    let rows = small.speculation.unwrap().conv_rows;
    assert!((11.9..12.1).contains(&mib(rows)), "{}", mib(rows));
    assert_eq!(small.activations, plain.activations);
}

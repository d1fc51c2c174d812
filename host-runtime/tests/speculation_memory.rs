//! What speculation takes for models of real size: files with their descriptions, and no weights.

use std::fs::File;
use std::io::{Error, Write};
use std::path::Path;

use hexflash::device::{self, DeviceOptions};
use hexflash::engine::{EngineOptions, MemoryPlan, memory_needs};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};

const VOCABULARY: u64 = 248_320;
const STATE: u64 = 128;
const HEAD: u64 = 256;

/// A size of Qwen3.5: three linear layers to a full one.
struct Shape {
    layers: u64,
    width: u64,
    mlp: u64,
    /// Key and value heads of the linear layers.
    heads: (u64, u64),
    /// Query and key heads of the full layers.
    attention: (u64, u64),
    /// Whether the file has an MTP head.
    mtp: bool,
}

const B0_8: Shape =
    Shape { layers: 24, width: 1024, mlp: 3584, heads: (16, 16), attention: (8, 2), mtp: false };
const B4: Shape =
    Shape { layers: 32, width: 2560, mlp: 9216, heads: (16, 32), attention: (16, 4), mtp: false };

/// A type of Q4_0 files, and no values.
fn add(file: &mut GgufWriter<'_>, name: &str, ne: &[u64]) {
    let kind = if ne.len() == 1 || name.contains("conv1d") { GgmlType::F32 } else { GgmlType::Q4_0 };
    // The header is complete when the first of these is called.
    file.tensor_with(name, kind, ne, |_| Err(Error::other("there are no weights"))).unwrap();
}

fn numbers(file: &mut GgufWriter<'_>, arch: &str, values: &[(&str, u64)]) {
    for &(key, value) in values {
        file.kv(&format!("{arch}.{key}"), value as u32);
    }
    file.kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
    file.kv(&format!("{arch}.rope.freq_base"), 1e7f32);
}

/// The matrices of a layer of attention whose queries have so many parts, and of an MLP.
fn attention(
    file: &mut GgufWriter<'_>,
    i: u64,
    (width, mlp): (u64, u64),
    heads: (u64, u64),
    (head, parts): (u64, u64),
) {
    let mut add = |suffix: &str, ne: &[u64]| add(file, &format!("blk.{i}.{suffix}"), ne);
    add("attn_q.weight", &[width, parts * heads.0 * head]);
    add("attn_k.weight", &[width, heads.1 * head]);
    add("attn_v.weight", &[width, heads.1 * head]);
    add("attn_q_norm.weight", &[head]);
    add("attn_k_norm.weight", &[head]);
    add("attn_output.weight", &[heads.0 * head, width]);
    add("attn_norm.weight", &[width]);
    add("ffn_gate.weight", &[width, mlp]);
    add("ffn_up.weight", &[width, mlp]);
    add("ffn_down.weight", &[mlp, width]);
}

/// Qwen3.5 as Q4_0.
fn qwen35(shape: &Shape) -> GgufWriter<'static> {
    let &Shape { layers, width, mlp, heads, attention: full, mtp } = shape;
    let mut file = GgufWriter::new();
    file.kv("general.architecture", "qwen35");
    let all = layers + u64::from(mtp);
    numbers(
        &mut file,
        "qwen35",
        &[
            ("block_count", all),
            ("nextn_predict_layers", mtp.into()),
            ("context_length", 262_144),
            ("embedding_length", width),
            ("feed_forward_length", mlp),
            ("attention.head_count", full.0),
            ("attention.head_count_kv", full.1),
            ("attention.key_length", HEAD),
            ("attention.value_length", HEAD),
            ("rope.dimension_count", 64),
            ("full_attention_interval", 4),
            ("ssm.group_count", heads.0),
            ("ssm.time_step_rank", heads.1),
            ("ssm.state_size", STATE),
            ("ssm.inner_size", heads.1 * STATE),
            ("ssm.conv_kernel", 4),
        ],
    );
    add(&mut file, "token_embd.weight", &[width, VOCABULARY]);
    add(&mut file, "output_norm.weight", &[width]);
    for i in 0..all {
        if (i + 1) % 4 == 0 || i == layers {
            attention(&mut file, i, (width, mlp), full, (HEAD, 2));
            add(&mut file, &format!("blk.{i}.post_attention_norm.weight"), &[width]);
            continue;
        }
        let mut add = |suffix: &str, ne: &[u64]| add(&mut file, &format!("blk.{i}.{suffix}"), ne);
        add("attn_norm.weight", &[width]);
        add("post_attention_norm.weight", &[width]);
        let (channels, values) = ((2 * heads.0 + heads.1) * STATE, heads.1 * STATE);
        add("attn_qkv.weight", &[width, channels]);
        add("attn_gate.weight", &[width, values]);
        add("ssm_beta.weight", &[width, heads.1]);
        add("ssm_alpha.weight", &[width, heads.1]);
        add("ssm_conv1d.weight", &[4, channels]);
        add("ssm_a", &[heads.1]);
        add("ssm_dt.bias", &[heads.1]);
        add("ssm_norm.weight", &[STATE]);
        add("ssm_out.weight", &[values, width]);
        add("ffn_gate.weight", &[width, mlp]);
        add("ffn_up.weight", &[width, mlp]);
        add("ffn_down.weight", &[mlp, width]);
    }
    if mtp {
        let mut add = |suffix: &str, ne: &[u64]| add(&mut file, &format!("blk.{layers}.nextn.{suffix}"), ne);
        add("eh_proj.weight", &[2 * width, width]);
        add("enorm.weight", &[width]);
        add("hnorm.weight", &[width]);
    }
    file
}

/// Qwen3-8B as Q4_0.
fn qwen3_8b() -> GgufWriter<'static> {
    let mut file = GgufWriter::new();
    file.kv("general.architecture", "qwen3");
    numbers(
        &mut file,
        "qwen3",
        &[
            ("block_count", 36),
            ("context_length", 40_960),
            ("embedding_length", 4096),
            ("feed_forward_length", 12_288),
            ("attention.head_count", 32),
            ("attention.head_count_kv", 8),
            ("attention.key_length", 128),
            ("attention.value_length", 128),
        ],
    );
    for name in ["token_embd.weight", "output.weight"] {
        add(&mut file, name, &[4096, 151_936]);
    }
    add(&mut file, "output_norm.weight", &[4096]);
    for i in 0..36 {
        attention(&mut file, i, (4096, 12_288), (32, 8), (128, 1));
        add(&mut file, &format!("blk.{i}.ffn_norm.weight"), &[4096]);
    }
    file
}

/// Its DFlash draft, with blocks of 16 tokens.
fn dflash_8b() -> GgufWriter<'static> {
    let mut file = GgufWriter::new();
    file.kv("general.architecture", "dflash");
    numbers(
        &mut file,
        "dflash",
        &[
            ("block_count", 5),
            ("block_size", 16),
            ("context_length", 40_960),
            ("embedding_length", 4096),
            ("feed_forward_length", 12_288),
            ("attention.head_count", 32),
            ("attention.head_count_kv", 8),
            ("attention.key_length", 128),
            ("attention.value_length", 128),
        ],
    );
    file.kv("dflash.target_layers", &[2i32, 10, 18, 26, 34][..]);
    file.kv("tokenizer.ggml.mask_token_id", 151_669u32);
    add(&mut file, "fc.weight", &[5 * 4096, 4096]);
    add(&mut file, "enc.output_norm.weight", &[4096]);
    add(&mut file, "output_norm.weight", &[4096]);
    for i in 0..5 {
        attention(&mut file, i, (4096, 12_288), (32, 8), (128, 1));
        add(&mut file, &format!("blk.{i}.ffn_norm.weight"), &[4096]);
    }
    file
}

/// The file, with a hole for the weights.
fn open(file: GgufWriter<'_>, dir: &Path, name: &str) -> Gguf {
    let path = dir.join(name);
    let mut header = Vec::new();
    assert!(file.write_to(&mut header).is_err(), "no weights");
    let mut file = File::create(&path).unwrap();
    file.write_all(&header).unwrap();
    file.set_len(header.len() as u64 + (6 << 30)).unwrap();
    Gguf::open(&path).unwrap()
}

fn memory(gguf: &Gguf, draft: Option<&Gguf>, batch: u32, speculate: bool) -> MemoryPlan {
    let device = device::open("inproc", &DeviceOptions::default()).unwrap();
    let options = EngineOptions { batch, speculate, ..EngineOptions::default() };
    memory_needs(gguf, draft, &options, device.info()).unwrap()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// An MTP head in the model's own file adds a cache like that of a full layer, and little beside it: what
/// keeps rejected tokens out of the states stays below 2 % of a copy of them per token.
#[test]
fn mtp_heads() {
    let dir = tempfile::tempdir().unwrap();
    for (name, shape) in [("0.8b.gguf", B0_8), ("4b.gguf", B4)] {
        let shape = Shape { mtp: true, ..shape };
        let gguf = open(qwen35(&shape), dir.path(), name);
        let plan = memory(&gguf, Some(&gguf), 256, true);
        let with = plan.speculation.unwrap();
        println!("{name}: {with:?}");
        assert!(with.rollback() * 50 < with.state_copies, "{name}: {} MiB", mib(with.rollback()));
        // Keys and values in half precision.
        let cache = 2 * 2 * shape.attention.1 * HEAD * u64::from(plan.n_ctx);
        assert_eq!(with.draft_kv, cache, "{name}");
        assert_eq!(plan.kv, cache * shape.layers / 4, "{name}");
        // Rows of the target that plain steps leave behind, and a few ids.
        assert!(with.other < 40 * 4 * shape.width, "{name}: {} bytes", with.other);
    }
}

/// A dense target has no states that would have to be copied or kept.
#[test]
fn a_dflash_draft_of_a_dense_target() {
    let dir = tempfile::tempdir().unwrap();
    let (gguf, draft) =
        (open(qwen3_8b(), dir.path(), "8b.gguf"), open(dflash_8b(), dir.path(), "draft.gguf"));
    let plan = memory(&gguf, Some(&draft), 256, true);
    let with = plan.speculation.unwrap();
    println!("8b.gguf: {with:?}");
    assert_eq!((with.tape, with.conv_rows, with.state_copies), (0, 0, 0));
    assert_eq!((with.draft_kv, plan.kv), (5 * 4 * 8 * 128 * 4096, 36 * 4 * 8 * 128 * 4096));
    assert!(with.other < 40 * 4 * 5 * 4096, "{} bytes", with.other);
}

/// Against a copy of all states per token of a block, 804 MiB: less than 2 %, because rows of convolutions
/// lie where prefill has its activations.
#[test]
fn a_model_of_4b() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = open(qwen35(&B4), dir.path(), "4b.gguf");

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

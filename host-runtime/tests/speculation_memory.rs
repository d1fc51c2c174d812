//! What speculation takes for a model of real size: a file with the description of Qwen3.5-4B and no weights.

use std::fs::File;
use std::io::{Error, Write};

use hexflash::device::{self, DeviceOptions};
use hexflash::engine::{EngineOptions, MemoryPlan, memory_needs};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};

const LAYERS: u64 = 32;
const WIDTH: u64 = 2560;
const MLP: u64 = 9216;
const VOCABULARY: u64 = 248_320;
/// Key and value heads of the linear layers, and the width of a head.
const HEADS: (u64, u64) = (16, 32);
const STATE: u64 = 128;
/// Query and key heads of the full layers, and the width of a head.
const ATTENTION: (u64, u64) = (16, 4);
const HEAD: u64 = 256;

/// Qwen3.5-4B as Q4_0: 24 linear and 8 full layers.
fn description() -> GgufWriter<'static> {
    let mut file = GgufWriter::new();
    file.kv("general.architecture", "qwen35");
    for (key, value) in [
        ("block_count", LAYERS),
        ("context_length", 262_144),
        ("embedding_length", WIDTH),
        ("feed_forward_length", MLP),
        ("attention.head_count", ATTENTION.0),
        ("attention.head_count_kv", ATTENTION.1),
        ("attention.key_length", HEAD),
        ("attention.value_length", HEAD),
        ("rope.dimension_count", 64),
        ("full_attention_interval", 4),
        ("ssm.group_count", HEADS.0),
        ("ssm.time_step_rank", HEADS.1),
        ("ssm.state_size", STATE),
        ("ssm.inner_size", HEADS.1 * STATE),
        ("ssm.conv_kernel", 4),
    ] {
        file.kv(&format!("qwen35.{key}"), value as u32);
    }
    file.kv("qwen35.attention.layer_norm_rms_epsilon", 1e-6f32);
    file.kv("qwen35.rope.freq_base", 1e7f32);

    let mut add = |name: &str, ne: &[u64]| {
        let kind = if ne.len() == 1 || name.contains("conv1d") { GgmlType::F32 } else { GgmlType::Q4_0 };
        // The header is complete when the first of these is called.
        file.tensor_with(name, kind, ne, |_| Err(Error::other("there are no weights"))).unwrap();
    };
    add("token_embd.weight", &[WIDTH, VOCABULARY]);
    add("output_norm.weight", &[WIDTH]);
    for i in 0..LAYERS {
        let mut add = |suffix: &str, ne: &[u64]| add(&format!("blk.{i}.{suffix}"), ne);
        add("attn_norm.weight", &[WIDTH]);
        add("post_attention_norm.weight", &[WIDTH]);
        if (i + 1) % 4 == 0 {
            add("attn_q.weight", &[WIDTH, 2 * ATTENTION.0 * HEAD]);
            add("attn_k.weight", &[WIDTH, ATTENTION.1 * HEAD]);
            add("attn_v.weight", &[WIDTH, ATTENTION.1 * HEAD]);
            add("attn_q_norm.weight", &[HEAD]);
            add("attn_k_norm.weight", &[HEAD]);
            add("attn_output.weight", &[ATTENTION.0 * HEAD, WIDTH]);
        } else {
            let (channels, values) = ((2 * HEADS.0 + HEADS.1) * STATE, HEADS.1 * STATE);
            add("attn_qkv.weight", &[WIDTH, channels]);
            add("attn_gate.weight", &[WIDTH, values]);
            add("ssm_beta.weight", &[WIDTH, HEADS.1]);
            add("ssm_alpha.weight", &[WIDTH, HEADS.1]);
            add("ssm_conv1d.weight", &[4, channels]);
            add("ssm_a", &[HEADS.1]);
            add("ssm_dt.bias", &[HEADS.1]);
            add("ssm_norm.weight", &[STATE]);
            add("ssm_out.weight", &[values, WIDTH]);
        }
        add("ffn_gate.weight", &[WIDTH, MLP]);
        add("ffn_up.weight", &[WIDTH, MLP]);
        add("ffn_down.weight", &[MLP, WIDTH]);
    }
    file
}

fn memory(gguf: &Gguf, batch: u32, speculate: bool) -> MemoryPlan {
    let device = device::open("inproc", &DeviceOptions::default()).unwrap();
    let options = EngineOptions { batch, speculate, ..EngineOptions::default() };
    memory_needs(gguf, None, &options, device.info()).unwrap()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Against a copy of all states per token of a block, 804 MiB: less than 2 %, because rows of convolutions
/// lie where prefill has its activations.
#[test]
fn a_model_of_4b() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("4b.gguf");
    let mut header = Vec::new();
    assert!(description().write_to(&mut header).is_err(), "no weights");
    let mut file = File::create(&path).unwrap();
    file.write_all(&header).unwrap();
    // A hole for the weights.
    file.set_len(header.len() as u64 + (4 << 30)).unwrap();
    let gguf = Gguf::open(&path).unwrap();

    let (plain, memory_plan) = (memory(&gguf, 256, false), memory(&gguf, 256, true));
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
    let (plain, small) = (memory(&gguf, 16, false), memory(&gguf, 16, true));
    let rows = small.speculation.unwrap().conv_rows;
    assert!((11.9..12.1).contains(&mib(rows)), "{}", mib(rows));
    assert_eq!(small.activations, plain.activations);
}

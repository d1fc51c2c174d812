//! Model files that cannot be run: each is refused with one line and exit code 2, by every command that opens
//! it.

use std::fs;
use std::path::Path;

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf, Value};
use tempfile::TempDir;

use super::support::{Change, Outcome, changed, changed_model, hexflash, model, run, text};

/// All commands that load a model refuse this one.
#[track_caller]
fn refused(path: &Path, cause: &str, remedy: &str) {
    hexflash(&["info", "-m", text(path)]).failed(2, cause, remedy);
    not_run(path, cause, remedy);
}

/// Nothing runs this model, which is one of another kind; `info` says so beside what it can tell.
#[track_caller]
fn foreign(path: &Path, cause: &str, remedy: &str) {
    let shown = hexflash(&["info", "-m", text(path)]).succeeded().stdout;
    let line = shown.lines().find(|line| line.starts_with("this version does not run it: "));
    assert!(line.is_some_and(|line| line.contains(cause) && line.contains(remedy)), "{shown}");
    not_run(path, cause, remedy);
}

#[track_caller]
fn not_run(path: &Path, cause: &str, remedy: &str) {
    let path = text(path);
    run(&["-m", path, "-n", "1", "x"]).failed(2, cause, remedy);
    let bench = ["bench", "--no-repack-cache", "-m", path, "-p", "1", "-n", "1", "-r", "1"];
    hexflash(&bench).failed(2, cause, remedy);
}

/// The model with a change, and what `run` says of it.
fn run_changed(change: &Change<'_>) -> Outcome {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed.gguf");
    changed_model(&path, change);
    run(&["-m", text(&path), "-n", "1", "x"])
}

#[track_caller]
fn refused_changed(change: &Change<'_>, cause: &str, remedy: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed.gguf");
    changed_model(&path, change);
    refused(&path, cause, remedy);
}

#[track_caller]
fn foreign_changed(change: &Change<'_>, cause: &str, remedy: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed.gguf");
    changed_model(&path, change);
    foreign(&path, cause, remedy);
}

/// Writes bytes as a model file and has it refused.
#[track_caller]
fn refused_bytes(bytes: &[u8], cause: &str, remedy: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    refused(&path, cause, remedy);
}

#[test]
fn missing_file() {
    refused(Path::new("/nonexistent/model.gguf"), "no such file", "check the path");
}

#[test]
fn directory() {
    refused(TempDir::new().unwrap().path(), "is a directory", "name a .gguf file");
}

#[test]
fn empty_file() {
    refused_bytes(b"", "empty file", "download it again");
}

#[test]
fn truncated_file() {
    let whole = fs::read(model("tiny-hybrid-q4_0.gguf")).unwrap();
    for len in [3, 20, 1000, 100_000, whole.len() / 2, whole.len() - 64] {
        refused_bytes(&whole[..len], "", "download it again");
    }
}

/// A few by hand; `gguf_corruption.rs` has many more.
#[test]
fn corrupted_file() {
    let whole = fs::read(model("tiny-hybrid-q4_0.gguf")).unwrap();
    let damaged = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    refused_bytes(&damaged(0, b"GGML"), "not a GGUF file", "download it again");
    refused_bytes(&damaged(4, &99u32.to_le_bytes()), "version 99", "convert the model");
    refused_bytes(&damaged(8, &u64::MAX.to_le_bytes()), "tensors", "download it again");
    refused_bytes(&damaged(16, &u64::MAX.to_le_bytes()), "keys", "download it again");
    refused_bytes(&damaged(24, &u64::MAX.to_le_bytes()), "corrupt", "download it again");
    refused_bytes(b"<!DOCTYPE html><html>404 Not Found</html>", "web page", "download the model file");
}

#[test]
fn other_architecture() {
    // The name of the second begins with one that is supported.
    for arch in ["mamba", "qwen3next"] {
        let change = Change::Key("general.architecture", Value::from(arch));
        foreign_changed(&change, &format!("architecture \"{arch}\" is not supported"), "runs qwen35");
    }
}

/// What a file says is shown on one line, and cannot steer the terminal. Found by fuzzing.
#[test]
fn names_from_files_are_escaped() {
    let change = Change::Key("general.architecture", Value::from("a\nb\u{1b}[2J"));
    foreign_changed(&change, r#"architecture "a\nb\u{1b}[2J" is not supported"#, "runs qwen35");
    let change = Change::Key("qwen35.rope.scaling.type", Value::from("\r\n"));
    refused_changed(&change, r"qwen35.rope.scaling.type is \r\n", "convert the model again");
}

/// A model of one layer with four experts, but for some keys and for the shape of their gates.
#[track_caller]
fn refused_experts(keys: &[(&str, u32)], gates: &[u64], cause: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("experts.gguf");
    let mut writer = GgufWriter::new();
    writer.kv("general.architecture", "qwen3moe");
    writer.kv("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f32);
    let sound = [
        ("embedding_length", 32u32),
        ("block_count", 1),
        ("context_length", 64),
        ("attention.head_count", 1),
        ("attention.key_length", 32),
        ("expert_count", 4),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", 64),
    ];
    for (key, value) in sound.iter().chain(keys) {
        writer.kv(&format!("qwen3moe.{key}"), *value);
    }
    let tokenizer = Gguf::open(&model("tiny-hybrid-q4_0.gguf")).unwrap();
    for (key, value) in tokenizer.meta().iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        writer.kv(key, value.clone());
    }
    let vocabulary = tokenizer.require_tensor("token_embd.weight").unwrap().ne[1];
    let mut tensor = |name: &str, ne: &[u64]| {
        let bytes = vec![0; 4 * ne.iter().product::<u64>() as usize];
        writer.tensor(name, GgmlType::F32, ne, bytes).unwrap();
    };
    tensor("token_embd.weight", &[32, vocabulary]);
    tensor("output_norm.weight", &[32]);
    for norm in ["attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"] {
        tensor(&format!("blk.0.{norm}.weight"), &[32]);
    }
    for matrix in ["attn_q", "attn_k", "attn_v", "attn_output"] {
        tensor(&format!("blk.0.{matrix}.weight"), &[32, 32]);
    }
    tensor("blk.0.ffn_gate_inp.weight", &[32, 4]);
    tensor("blk.0.ffn_gate_exps.weight", gates);
    tensor("blk.0.ffn_up_exps.weight", &[32, 64, 4]);
    tensor("blk.0.ffn_down_exps.weight", &[64, 32, 4]);
    writer.write_to(fs::File::create(&path).unwrap()).unwrap();
    refused(&path, cause, "convert the model again");
}

#[test]
fn experts_that_cannot_be() {
    let gates = &[32, 64, 4];
    refused_experts(&[("expert_count", 0)], gates, "qwen3moe.expert_count is 0, expected 1 to 512");
    refused_experts(&[("expert_count", 513)], gates, "qwen3moe.expert_count is 513, expected 1 to 512");
    refused_experts(&[("expert_used_count", 0)], gates, "qwen3moe.expert_used_count is 0, expected 1 to 4");
    refused_experts(&[("expert_used_count", 5)], gates, "qwen3moe.expert_used_count is 5, expected 1 to 4");
    refused_experts(&[("expert_feed_forward_length", u32::MAX)], gates, "expert_feed_forward_length is");
    for gates in [&[32, 64, 3][..], &[32, 63, 4], &[64, 32, 4], &[32, 64]] {
        let cause = format!("blk.0.ffn_gate_exps.weight has shape {gates:?}, expected [32, 64, 4]");
        refused_experts(&[], gates, &cause);
    }
}

/// Models of other architectures have other tokenizers; what is named is the architecture.
#[test]
fn other_architecture_without_a_known_tokenizer() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("other.gguf");
    let mut writer = GgufWriter::new();
    writer.kv("general.architecture", "t5").kv("tokenizer.ggml.model", "t5");
    writer.tensor("token_embd.weight", GgmlType::F32, &[8, 4], vec![0; 128]).unwrap();
    writer.write_to(fs::File::create(&path).unwrap()).unwrap();
    foreign(&path, "architecture \"t5\" is not supported", "runs qwen35");
}

#[test]
fn draft_model_as_target() {
    refused(&model("tiny-hybrid-dflash-f16.gguf"), "DFlash draft model", "give the target model with -m");
}

#[test]
fn unsupported_tensor_type() {
    let types = [
        ("blk.0.ffn_down.weight", GgmlType::IQ2_XXS, [768, 256]),
        ("blk.1.ffn_gate.weight", GgmlType::TQ1_0, [256, 768]),
        ("blk.2.ffn_up.weight", GgmlType::NVFP4, [256, 768]),
        ("token_embd.weight", GgmlType::IQ3_S, [256, 4096]),
    ];
    for (name, kind, ne) in types {
        let cause = format!("\"{name}\" has type {kind}, which is not supported");
        foreign_changed(&Change::Tensor(name, kind, &ne), &cause, "convert the original with llama-quantize");
    }
    // A norm of the wrong type: those are never quantized.
    let change = Change::Tensor("output_norm.weight", GgmlType::Q8_0, &[256]);
    refused_changed(&change, "output_norm.weight", "use a conversion with F32");
}

#[test]
fn missing_tensor() {
    for name in [
        "output_norm.weight",
        "blk.3.attn_q.weight",
        "blk.0.ssm_a",
        "blk.7.ffn_down.weight",
        "token_embd.weight",
    ] {
        refused_changed(&Change::NoTensor(name), &format!("missing tensor {name}"), "complete model");
    }
}

#[test]
fn wrong_tensor_shape() {
    let shapes: [(&str, GgmlType, &[u64]); 6] = [
        ("blk.0.ffn_gate.weight", GgmlType::Q4_0, &[256, 512]),
        ("blk.0.ffn_down.weight", GgmlType::Q4_0, &[256, 768]),
        ("blk.0.attn_norm.weight", GgmlType::F32, &[255]),
        ("blk.3.attn_v.weight", GgmlType::Q4_0, &[256, 64]),
        ("blk.2.ssm_conv1d.weight", GgmlType::F32, &[3, 1024]),
        ("token_embd.weight", GgmlType::Q6_K, &[512, 4096]),
    ];
    for (name, kind, ne) in shapes {
        let cause = format!("tensor {name} has shape {ne:?}, expected");
        refused_changed(&Change::Tensor(name, kind, ne), &cause, "convert the model again");
    }
}

/// Hyper-parameters that are missing, out of range, or do not fit the tensors.
#[test]
fn wrong_hyper_parameters() {
    let number = |key, value: u32| Change::Key(key, Value::from(value));
    let missing = [
        "general.architecture",
        "qwen35.block_count",
        "qwen35.context_length",
        "qwen35.embedding_length",
        "qwen35.ssm.state_size",
        "qwen35.attention.layer_norm_rms_epsilon",
    ];
    for key in missing {
        refused_changed(&Change::NoKey(key), &format!("missing key {key}"), "convert the model again");
    }
    let wrong = [
        number("qwen35.block_count", 0),
        number("qwen35.block_count", 9),
        number("qwen35.block_count", u32::MAX),
        number("qwen35.context_length", 0),
        number("qwen35.embedding_length", 0),
        number("qwen35.embedding_length", 128),
        number("qwen35.feed_forward_length", 0),
        number("qwen35.attention.head_count", 0),
        number("qwen35.attention.head_count", 3),
        number("qwen35.attention.key_length", 63),
        number("qwen35.rope.dimension_count", 15),
        number("qwen35.rope.dimension_count", 128),
        number("qwen35.ssm.conv_kernel", 0),
        number("qwen35.ssm.conv_kernel", 5),
        number("qwen35.ssm.state_size", 129),
        number("qwen35.ssm.group_count", 0),
        number("qwen35.ssm.time_step_rank", 7),
        number("qwen35.full_attention_interval", 3),
        Change::Key("qwen35.block_count", Value::from("eight")),
        Change::Key("qwen35.attention.layer_norm_rms_epsilon", Value::from(f32::NAN)),
    ];
    for change in &wrong {
        refused_changed(change, "", "");
    }
}

/// What an op of the device cannot do is said of the key that asks for it, before anything is loaded.
#[test]
fn limits_of_ops_are_told_by_the_keys_that_exceed_them() {
    let count = |name, value: u32| Change::Key(name, Value::from(value));
    let number = |name, value: f32| Change::Key(name, Value::from(value));
    let scaling = |kind: &str| Change::Key("qwen35.rope.scaling.type", Value::from(kind));
    let cases: [(&[Change<'_>], &str); 19] = [
        (&[count("qwen35.ssm.conv_kernel", 33)], "ssm.conv_kernel is 33, expected at most 32"),
        (
            &[count("qwen35.ssm.state_size", 256), count("qwen35.ssm.inner_size", 256 * 8)],
            "ssm.state_size is 256, expected at most 128",
        ),
        (&[count("qwen35.attention.key_length", 544)], "attention.key_length is 544, expected at most 512"),
        (
            &[count("qwen35.attention.value_length", 544)],
            "attention.value_length is 544, expected at most 512",
        ),
        (&[count("qwen35.rope.dimension_count", 15)], "rope.dimension_count is 15, expected even"),
        (&[number("qwen35.rope.freq_base", 0.0)], "rope.freq_base is 0, expected more than 0"),
        (&[number("qwen35.rope.freq_base", -1.0)], "rope.freq_base is -1, expected more than 0"),
        (&[number("qwen35.rope.freq_base", f32::NAN)], "rope.freq_base is NaN, expected a finite number"),
        (
            &[number("qwen35.rope.freq_base", f32::INFINITY)],
            "rope.freq_base is inf, expected a finite number",
        ),
        (
            &[scaling("yarn"), number("qwen35.rope.freq_base", 1.0)],
            "rope.freq_base is 1, expected more than 1",
        ),
        (
            &[scaling("linear"), number("qwen35.rope.scaling.factor", 0.0)],
            "rope.scaling.factor is 0, expected a positive number",
        ),
        (
            &[scaling("yarn"), number("qwen35.rope.scaling.factor", -2.0)],
            "rope.scaling.factor is -2, expected a positive number",
        ),
        (
            &[scaling("linear"), number("qwen35.rope.scaling.factor", f32::NAN)],
            "rope.scaling.factor is NaN, expected a finite number",
        ),
        (
            // Its inverse is infinite.
            &[scaling("linear"), number("qwen35.rope.scaling.factor", 1e-40)],
            "rope.scaling.factor is 0.0000",
        ),
        (&[scaling("longrope")], "rope.scaling.type is longrope, expected none, linear or yarn"),
        (&[count("qwen35.context_length", 0)], "context_length is 0, expected 1 to 2147483647"),
        (&[count("qwen35.block_count", 1025)], "block_count is 1025, expected at most 1024"),
        (
            &[count("qwen35.nextn_predict_layers", 8)],
            "nextn_predict_layers is 8, expected less than the 8 layers",
        ),
        (
            &[number("qwen35.attention.layer_norm_rms_epsilon", -1.0)],
            "attention.layer_norm_rms_epsilon is -1, expected a small positive number",
        ),
    ];
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed.gguf");
    for (changes, cause) in cases {
        changed("tiny-hybrid-q4_0.gguf", &path, changes);
        run(&["-m", text(&path), "-n", "1", "x"]).failed(
            2,
            &format!("qwen35.{cause}"),
            "convert the model again",
        );
    }
}

/// Fewer layers than the file has would give garbage; llama.cpp refuses such files, too.
#[test]
fn tensors_that_nothing_reads() {
    let layers = |n: u32| Change::Key("qwen35.block_count", Value::from(n));
    let cause = "tensor blk.7.attn_k.weight belongs to a layer behind the 7 of qwen35.block_count";
    refused_changed(&layers(7), cause, "convert the model again");
    for name in ["blk.0.ffn_gate.bias", "rope_freqs.weight", "blk.seven.attn_norm.weight"] {
        let change = Change::NewTensor(name, GgmlType::F32, &[32], vec![0; 128]);
        refused_changed(
            &change,
            &format!("tensor {name} is not part of the model"),
            "convert the model again",
        );
    }
    // Layers that predict further tokens are left out by design.
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("mtp.gguf");
    changed_model(&path, &Change::Key("qwen35.nextn_predict_layers", Value::from(1u32)));
    assert!(hexflash(&["info", "-m", text(&path)]).succeeded().stdout.contains("  7 layers: "));
}

/// Each in range, but not their product.
#[test]
fn heads_and_widths_that_overflow_together() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed.gguf");
    let key = |name, value: u32| Change::Key(name, Value::from(value));
    for dim in ["qwen35.attention.key_length", "qwen35.attention.value_length"] {
        let heads = ["qwen35.attention.head_count", "qwen35.attention.head_count_kv"];
        let changes = [key(heads[0], 1 << 14), key(heads[1], 1), key(dim, 1 << 19)];
        changed("tiny-hybrid-q4_0.gguf", &path, &changes);
        refused(&path, &format!("{dim} is 524288"), "at most 64, for 16384 heads");
    }
}

/// What only `run` needs: the text side.
#[test]
fn wrong_text_side() {
    let key = |key, value: &str| Change::Key(key, Value::from(value));
    let pre = key("tokenizer.ggml.pre", "made-up");
    run_changed(&pre).failed(2, "pre-tokenizer \"made-up\" is not supported", "use a model file with one of");
    let kind = key("tokenizer.ggml.model", "bert");
    run_changed(&kind).failed(2, "tokenizer model \"bert\" is not supported", "use a model file with one of");
    let scored = key("tokenizer.ggml.model", "llama");
    run_changed(&scored).failed(2, "0 token scores for 4096 tokens", "convert the model again");
    run_changed(&Change::NoKey("tokenizer.ggml.tokens")).failed(2, "tokenizer.ggml.tokens", "convert");
    let eos = Change::Key("tokenizer.ggml.eos_token_id", Value::from(4096u32));
    run_changed(&eos).failed(2, "outside the vocabulary", "fix tokenizer.ggml.eos_token_id");
    let temp = Change::Key("general.sampling.temp", Value::from(f32::NAN));
    run_changed(&temp).failed(2, "general.sampling.temp", "set the option yourself");
    let wrong_types = [
        ("general.sampling.temp", Value::from("0.6"), "string"),
        ("general.sampling.top_k", Value::from(true), "bool"),
        ("general.sampling.top_p", Value::from(&[0.5f32][..]), "array"),
    ];
    for (key, value, kind) in wrong_types {
        let outcome = run_changed(&Change::Key(key, value));
        assert!(outcome.stderr.contains(kind), "{outcome:?}");
        outcome.failed(2, key, "number");
    }
}

//! Draft models that cannot be used, or not with this target: one line, exit code 2, at load.

use std::path::Path;

use hexflash::gguf::{GgmlType, Value};
use tempfile::TempDir;

use super::support::{Change, changed, hexflash, model, run, text};

/// All commands that take a draft refuse this one.
#[track_caller]
fn refused(path: &Path, cause: &str, remedy: &str) {
    let path = text(path);
    run(&["-md", path, "-n", "1", "x"]).failed(2, cause, remedy);
    hexflash(&["info", "-md", path]).failed(2, cause, remedy);
    hexflash(&["bench", "--no-repack-cache", "--draft", "-md", path]).failed(2, cause, remedy);
}

/// The shipped draft with changes is refused.
#[track_caller]
fn refused_changed(changes: &[Change<'_>], cause: &str, remedy: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed-draft.gguf");
    changed("tiny-hybrid-dflash-f16.gguf", &path, changes);
    refused(&path, cause, remedy);
}

/// The shipped draft with changes gives the text of plain decoding; how many drafts were accepted.
#[track_caller]
fn accepted(changes: &[Change<'_>]) -> u64 {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed-draft.gguf");
    changed("tiny-hybrid-dflash-f16.gguf", &path, changes);
    let fixed = ["--temp", "0", "-n", "24", "--json", "def __repr__(self):\n        return "];
    let plain = run(&fixed).succeeded().json();
    let report = run(&[&["-md", text(&path), "--draft-max", "7"], &fixed[..]].concat()).succeeded().json();
    assert_eq!(report["tokens"], plain["tokens"]);
    report["stats"]["speculation"]["accepted"].as_u64().unwrap()
}

fn number(key: &str, value: u32) -> Change<'_> {
    Change::Key(key, Value::from(value))
}

fn target_layers(layers: &[i32]) -> Change<'static> {
    Change::Key("dflash.target_layers", Value::from(layers))
}

fn ids(ids: impl IntoIterator<Item = i64>) -> Vec<u8> {
    ids.into_iter().flat_map(i64::to_le_bytes).collect()
}

#[test]
fn files_that_are_no_draft() {
    refused(Path::new("/nonexistent/draft.gguf"), "no such file", "check the path");
    let target = model("tiny-hybrid-q8_0.gguf");
    refused(
        &target,
        "qwen35.nextn_predict_layers is 0: the file has no MTP head",
        "give one, or a DFlash draft, that was made for the target",
    );
    let draft = model("tiny-hybrid-dflash-f16.gguf");
    let swapped = ["-m", text(&draft), "-md", text(&target)];
    run(&[&swapped[..], &["x"]].concat()).failed(
        2,
        "this is a DFlash draft model",
        "give the target model with -m",
    );
}

#[test]
fn later_kinds() {
    let tensor = |name| Change::NewTensor(name, GgmlType::F16, &[32, 1], vec![0; 64]);
    let v1 = "use a DFlash v1, DSpark or EAGLE3 draft";
    refused_changed(&[tensor("selector_hidden.weight")], "this is a DFlash v2 draft", v1);
    // A DSpark draft without the rest of its chain.
    refused_changed(&[tensor("markov_w1.weight")], "markov_w1.weight", "");
    // What nobody knows may matter.
    for name in ["blk.0.attn_gate.weight", "blk.1.attn_q.bias", "blk.2.attn_q.weight", "something.weight"] {
        refused_changed(
            &[tensor(name)],
            &format!("tensor {name} is not part of DFlash v1"),
            "wrongly without it",
        );
    }
}

#[test]
fn older_converters() {
    let again = "convert the draft again";
    refused_changed(
        &[Change::NoTensor("enc.output_norm.weight")],
        "there is no tensor enc.output_norm.weight",
        again,
    );
    // Layer ids from 0: nothing comes before the first layer.
    refused_changed(&[target_layers(&[0, 2, 4])], "[0, 2, 4], but no layer comes before the first", again);
    refused_changed(&[Change::NoKey("tokenizer.ggml.mask_token_id")], "names the mask token", again);
}

/// Files of forks have the mask token under the architecture's own key.
#[test]
fn the_mask_under_its_other_key() {
    let shipped = accepted(&[]);
    assert!(shipped > 12, "{shipped}");
    let other = [Change::NoKey("tokenizer.ggml.mask_token_id"), number("dflash.mask_token_id", 4095)];
    assert_eq!(accepted(&other), shipped);
    // Another token is no mask to this draft, but nothing worse than bad guesses.
    assert!(accepted(&[number("tokenizer.ggml.mask_token_id", 1)]) <= shipped);
}

#[test]
fn drafts_of_other_targets() {
    let other = "use the draft that was trained for this target";
    refused_changed(
        &[number("dflash.embedding_length", 128)],
        "the hidden size is 128 in the draft, 256 in the target",
        other,
    );
    refused_changed(
        &[target_layers(&[2, 4, 9])],
        "the last tapped layer is 9 in the draft, at most 8 in the target",
        other,
    );
    refused_changed(&[number("tokenizer.ggml.mask_token_id", 4096)], "the mask token's id is 4096", other);
    let head = Change::NewTensor("output.weight", GgmlType::F16, &[256, 4064], vec![0; 2 * 256 * 4064]);
    refused_changed(&[head], "the size of the vocabulary is 4064 in the draft, 4096 in the target", other);
}

#[test]
fn layers_that_are_none() {
    let list = "a rising list of at least one layer";
    let again = "convert the model again with a current converter";
    refused_changed(&[Change::NoKey("dflash.target_layers")], "missing key dflash.target_layers", again);
    for layers in [&[][..], &[4, 2, 6], &[2, 2, 6], &[-1, 2, 4]] {
        refused_changed(&[target_layers(layers)], &format!("dflash.target_layers is {layers:?}"), list);
    }
    // The features of as many layers as the weights were made for.
    refused_changed(
        &[target_layers(&[2, 4])],
        "together (fc.weight) is 768 in the draft, 512 (2 layers of 256) in the target",
        "use the draft that was trained for this target",
    );
}

#[test]
fn wrong_hyper_parameters() {
    for n in [0, 1, 17, u32::MAX] {
        refused_changed(
            &[number("dflash.block_size", n)],
            &format!("dflash.block_size is {n}"),
            "expected 2 to 16",
        );
    }
    let window = number("dflash.attention.sliding_window", 128);
    let pattern =
        "dflash.attention.sliding_window_pattern is 0 flags, expected one flag for each of 2 layers";
    refused_changed(&[window], pattern, "convert the model again");
    let short = Change::Key("dflash.attention.sliding_window_pattern", Value::from(vec![true]));
    let one = "is 1 flags, expected one flag for each of 2 layers";
    refused_changed(&[number("dflash.attention.sliding_window", 128), short], one, "convert the model again");
    let gelu = Change::Key("dflash.hidden_activation", Value::from("gelu"));
    refused_changed(&[gelu], "dflash.hidden_activation is gelu, expected silu", "convert the model again");
    for key in ["dflash.block_count", "dflash.embedding_length", "dflash.feed_forward_length"] {
        refused_changed(&[Change::NoKey(key)], &format!("missing key {key}"), "convert the model again");
        refused_changed(&[number(key, 0)], key, "convert the model again");
    }
    refused_changed(&[number("dflash.block_count", 3)], "blk.2.", "complete model");
    refused_changed(&[number("dflash.attention.head_count", 3)], "head_count", "convert the model again");
}

#[test]
fn wrong_tensors() {
    for name in ["fc.weight", "output_norm.weight", "blk.0.attn_k.weight", "blk.1.ffn_down.weight"] {
        refused_changed(&[Change::NoTensor(name)], &format!("missing tensor {name}"), "complete model");
    }
    let shape = Change::Tensor("blk.0.ffn_up.weight", GgmlType::F16, &[256, 512]);
    refused_changed(
        &[shape],
        "tensor blk.0.ffn_up.weight has shape [256, 512], expected [256, 768]",
        "convert",
    );
    let kind = Change::Tensor("blk.0.ffn_up.weight", GgmlType::IQ1_S, &[256, 768]);
    refused_changed(&[kind], "has type IQ1_S, which is not supported", "convert the original");
}

/// A head of its own for some tokens of the target only.
#[test]
fn reduced_vocabularies() {
    let head = || Change::NewTensor("output.weight", GgmlType::F16, &[256, 64], vec![0; 2 * 256 * 64]);
    let d2t = |ids: Vec<u8>| Change::NewTensor("d2t", GgmlType::I64, &[64], ids);
    let other = "use the draft that was trained for this target";
    for stranger in [4096, -1, i64::MAX] {
        let cause = format!("an id of d2t is {stranger} in the draft, below 4096 in the target");
        refused_changed(&[head(), d2t(ids((0..63).chain([stranger])))], &cause, other);
    }
    refused_changed(&[d2t(ids(0..64))], "tensor d2t has shape [64], expected [4096]", "convert");
    let short = Change::NewTensor("d2t", GgmlType::I64, &[32], ids(0..32));
    refused_changed(&[head(), short], "tensor d2t has shape [32], expected [64]", "convert");
    // A head that knows nothing guesses its first token: no reason to fail, nor for other text.
    accepted(&[head(), d2t(ids((0..64).map(|i| 63 * i)))]);
}

/// Layers that see the last tokens only guess otherwise, not otherwise text.
#[test]
fn sliding_windows() {
    let pattern = Change::Key("dflash.attention.sliding_window_pattern", Value::from(vec![true, false]));
    accepted(&[number("dflash.attention.sliding_window", 4), pattern]);
}

//! MTP heads from a user's view: in the model's own file or beside it, the same text, and refusals by name.

use std::path::{Path, PathBuf};

use hexflash::gguf::{GgmlType, Gguf, Value};
use serde_json::Value as Json;
use tempfile::TempDir;

use super::support::{Change, changed, hexflash, model, run, text};

const TARGET: &str = "tiny-hybrid-q8_0.gguf";
const HEAD: &str = "mtp-tiny-hybrid-q8_0.gguf";
/// Most of what the shipped head guesses after this is right.
const EASY: &str = "def __repr__(self):\n        return ";

/// The shipped target with the shipped head in its file, and some changes.
fn joint(dir: &TempDir, name: &str, more: Vec<Change<'_>>) -> PathBuf {
    let path = dir.path().join(name);
    let head = Gguf::open(&model(HEAD)).unwrap();
    let changes: Vec<_> = head
        .tensors()
        .filter(|tensor| tensor.name.starts_with("blk.8."))
        .map(|tensor| {
            let data = head.data(tensor).unwrap();
            Change::NewTensor(&tensor.name, tensor.ggml_type, tensor.shape(), data)
        })
        .chain([number("qwen35.block_count", 9), number("qwen35.nextn_predict_layers", 1)])
        .chain(more)
        .collect();
    changed(TARGET, &path, &changes);
    path
}

fn number(key: &str, value: u32) -> Change<'_> {
    Change::Key(key, Value::from(value))
}

fn generated(arguments: &[&str]) -> Json {
    run(&[&["--temp", "0", "-n", "40", "--json", EASY], arguments].concat()).succeeded().json()
}

fn rounds(report: &Json) -> &Json {
    &report["stats"]["speculation"]["accepted_per_round"]
}

/// A file that has a head uses it; the text is the same in any case.
#[test]
fn a_head_in_the_models_own_file_is_used() {
    let dir = TempDir::new().unwrap();
    let (joint, target, head) = (joint(&dir, "joint.gguf", Vec::new()), model(TARGET), model(HEAD));
    let plain = generated(&["-m", text(&target)]);
    let beside = generated(&["-m", text(&target), "-md", text(&head), "--draft-max", "3"]);
    assert!(rounds(&beside).as_array().unwrap().len() > 5, "{beside}");
    for kind in [&[][..], &["--spec-type", "draft-mtp"], &["--spec-type", "mtp"]] {
        let own = generated(&[&["-m", text(&joint), "--draft-max", "3"], kind].concat());
        assert_eq!((&own["tokens"], rounds(&own)), (&plain["tokens"], rounds(&beside)), "{kind:?}");
    }
    assert_eq!(generated(&["-m", text(&joint)])["tokens"], plain["tokens"], "auto");
    // Metadata that promise a head are not enough.
    let stripped = dir.path().join("stripped.gguf");
    changed(TARGET, &stripped, &[number("qwen35.block_count", 9), number("qwen35.nextn_predict_layers", 1)]);
    let report = generated(&["-m", text(&stripped)]);
    assert_eq!((&report["tokens"], &report["stats"]["speculation"]), (&plain["tokens"], &Json::Null));
    for none in [&["-m", text(&joint), "--spec-type", "none"][..], &["-m", text(&target)]] {
        let report = generated(none);
        assert_eq!((&report["tokens"], &report["stats"]["speculation"]), (&plain["tokens"], &Json::Null));
    }
    let kind = ["-m", text(&target), "-md", text(&head), "--spec-type", "draft-mtp", "--draft-max", "3"];
    assert_eq!(rounds(&generated(&kind)), rounds(&beside));
}

/// The weights of model and head lie in caches of their own: neither is packed again because of the other.
#[test]
fn a_head_in_the_models_own_file_has_a_cache_of_its_own() {
    let dir = TempDir::new().unwrap();
    let joint = joint(&dir, "joint.gguf", Vec::new());
    let fixed = ["run", "-m", text(&joint), "--temp", "0", "-n", "4", "x"];
    for arguments in [&fixed[..], &[&fixed[..], &["--spec-type", "none"]].concat(), &fixed[..]] {
        let outcome = hexflash(arguments).succeeded();
        assert!(!outcome.stderr.contains("rebuilt"), "{outcome:?}");
    }
    for cache in ["joint.gguf.hfcache", "joint.gguf.mtp.hfcache"] {
        assert!(dir.path().join(cache).exists(), "{cache}");
    }
}

/// Its memory: caches of one layer for the whole context, and its weights.
#[test]
fn info_tells_the_memory_of_a_head() {
    let dir = TempDir::new().unwrap();
    let joint = joint(&dir, "joint.gguf", Vec::new());
    let report = hexflash(&["info", "--json", "-m", text(&joint)]).succeeded().json();
    let memory = &report["memory"]["speculation"];
    // Two heads of 64 values, K and V, in half precision.
    assert_eq!(memory["draft_kv"], 512 * 2 * 64 * 2 * 2);
    assert!(memory["draft_weights"].as_u64().unwrap() > 900_000, "{memory}");
    let none = hexflash(&["info", "--json", "-m", text(&joint), "--spec-type", "none"]).succeeded().json();
    assert_eq!(none["memory"]["speculation"], Json::Null);
    assert_eq!(none["memory"]["weights"], report["memory"]["weights"]);
}

/// The shipped target does not run with this head.
#[track_caller]
fn refused(head: &Path, cause: &str, remedy: &str) {
    let arguments = ["-m", text(&model(TARGET)), "-md", text(head)].map(str::to_owned);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    run(&[&arguments[..], &["-n", "1", "x"]].concat()).failed(2, cause, remedy);
    hexflash(&[&["info"], &arguments[..]].concat()).failed(2, cause, remedy);
}

/// The shipped head with changes is refused.
#[track_caller]
fn refused_changed(changes: &[Change<'_>], cause: &str, remedy: &str) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("changed-head.gguf");
    changed(HEAD, &path, changes);
    refused(&path, cause, remedy);
}

#[test]
fn heads_that_lack_a_tensor_or_have_another_shape() {
    for name in ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_q", "attn_k_norm", "ffn_down"] {
        let name = format!("blk.8.{name}.weight");
        refused_changed(&[Change::NoTensor(&name)], &format!("missing tensor {name}"), "complete model");
    }
    for (name, shape, expected) in [
        ("blk.8.nextn.eh_proj.weight", &[256, 256][..], "[512, 256]"),
        ("blk.8.nextn.hnorm.weight", &[128], "[256]"),
        ("blk.8.attn_q.weight", &[256, 256], "[256, 512]"),
    ] {
        let change = Change::Tensor(name, GgmlType::F32, shape);
        let cause = format!("tensor {name} has shape {shape:?}, expected {expected}");
        refused_changed(&[change], &cause, "convert");
    }
    let more = Change::NewTensor("blk.8.attn_q.bias", GgmlType::F32, &[512], vec![0; 4 * 512]);
    refused_changed(&[more], "tensor blk.8.attn_q.bias is not part of an MTP head", "wrongly without it");
}

#[test]
fn heads_of_other_targets() {
    let other = "use the draft that was trained for this target";
    let vocabulary = Change::Tensor("token_embd.weight", GgmlType::Q8_0, &[256, 4064]);
    refused_changed(
        &[vocabulary],
        "the size of the vocabulary is 4064 in the draft, 4096 in the target",
        other,
    );
    refused_changed(
        &[number("qwen35.embedding_length", 128)],
        "the hidden size is 128 in the draft, 256 in the target",
        other,
    );
    refused_changed(
        &[number("qwen35.block_count", 13)],
        "the number of layers is 12 in the draft, 8 in the target",
        other,
    );
    refused_changed(&[number("qwen35.attention.head_count", 2)], "the shape of layer 3", other);
}

#[test]
fn files_that_have_no_head_or_nothing_else() {
    let (target, head) = (model(TARGET), model(HEAD));
    let none = "qwen35.nextn_predict_layers is 0: the file has no MTP head";
    refused(&target, none, "give one, or a DFlash draft");
    refused_changed(
        &[number("qwen35.nextn_predict_layers", 2)],
        "qwen35.nextn_predict_layers is 2",
        "expected 1",
    );
    run(&["-m", text(&head), "x"]).failed(2, "this is an MTP head", "give the target model with -m");
    run(&["-m", text(&target), "--spec-type", "draft-mtp", "x"]).failed(2, "needs an MTP head", "-md FILE");
    let dflash = model("tiny-hybrid-dflash-q8_0.gguf");
    for (draft, kind) in [(&dflash, "draft-mtp"), (&head, "draft-dflash")] {
        run(&["-m", text(&target), "-md", text(draft), "--spec-type", kind, "x"]).failed(
            2,
            &format!("is no draft for --spec-type {kind}"),
            "drop --spec-type",
        );
    }
}

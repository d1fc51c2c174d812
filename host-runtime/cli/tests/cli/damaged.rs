//! Models with values that no computation can use: an error in a line, never text.

use std::path::{Path, PathBuf};

use hexflash::gguf::{GgmlType, Gguf};
use tempfile::TempDir;

use super::support::{Change, changed, hexflash, model, run, text};

const MODEL: &str = "tiny-hybrid-q8_0.gguf";

/// The model with `bytes` at `at` of a tensor's data.
fn damaged(dir: &Path, name: &str, at: usize, bytes: &[u8]) -> PathBuf {
    let gguf = Gguf::open(&model(MODEL)).unwrap();
    let tensor = gguf.require_tensor(name).unwrap();
    let mut data = gguf.data(tensor).unwrap();
    data[at..at + bytes.len()].copy_from_slice(bytes);
    let path = dir.join("damaged.gguf");
    let changes = [Change::NoTensor(name), Change::NewTensor(name, tensor.ggml_type, tensor.shape(), data)];
    changed(MODEL, &path, &changes);
    path
}

#[test]
fn a_file_with_values_that_are_no_numbers_is_refused_with_tensor_and_row() {
    let dir = TempDir::new().unwrap();
    let row = 768 / 32 * GgmlType::Q8_0.block_bytes() as usize;
    for (name, at, bytes, place) in [
        // The scale of a block is NaN, and one infinite.
        ("blk.3.attn_output.weight", 0, &[0x00, 0x7e][..], "row 0"),
        ("blk.3.ffn_down.weight", 12 * row + 34, &[0x00, 0xfc], "row 12"),
        ("blk.5.attn_norm.weight", 4 * 200, &f32::NAN.to_le_bytes(), "value 200"),
        ("blk.0.ssm_conv1d.weight", 4 * (4 * 30 + 1), &f32::INFINITY.to_le_bytes(), "row 30"),
    ] {
        let path = damaged(dir.path(), name, at, bytes);
        let cause = format!("tensor \"{name}\" has a value that is infinite or not a number ({place})");
        run(&["-m", text(&path), "-n", "1", "x"]).failed(2, &cause, "download or convert it again");
        // With a cache, too, and none is left of it.
        hexflash(&["run", "-m", text(&path), "-n", "1", "x"]).failed(
            2,
            &cause,
            "download or convert it again",
        );
        assert!(!path.with_extension("gguf.hfcache").exists());
    }
}

/// Numbers, but so large that the computation gives none: greedy and sampled, plain and drafted alike.
#[test]
fn a_model_that_computes_what_is_no_number_fails_in_a_line_instead_of_writing_text() {
    let dir = TempDir::new().unwrap();
    let absurd: Vec<u8> = [3e38f32; 256].iter().flat_map(|x| x.to_le_bytes()).collect();
    let path = damaged(dir.path(), "output_norm.weight", 0, &absurd);
    let path = text(&path);
    let mut lines = Vec::new();
    for extra in [
        &["--temp", "0"][..],
        &["--temp", "0.8", "--seed", "3"],
        &["--temp", "0", "--spec-type", "ngram-simple"],
        &["--temp", "0", "--json"],
        &["--temp", "0", "--device", "inproc", "--sessions", "2"],
    ] {
        let outcome = run(&[&["-m", path, "-n", "8"], extra, &["def"]].concat());
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(["", "def"].contains(&&*outcome.stdout), "{outcome:?}");
        lines.push(outcome.stderr);
    }
    let place = "came up in the model (RMS_NORM with output_norm.weight)";
    assert!(lines[0].contains(place) && lines[0].lines().count() == 1, "{lines:?}");
    assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
}

//! `hexflash serve --models-dir`: a folder of models, of which one at a time is loaded. How requests get
//! their models is tested with the server's crate.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hexflash::gguf::GgmlType;
use hexflash::gguf::writer::GgufWriter;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::big_models::{hole, write, zeros};
use crate::serve::{Serving, serve};
use crate::support::{hexflash, model};

/// Switches between models until the allocator has most of what it keeps, and those in which what is lost
/// adds up.
const FIRST: usize = 12;
const MORE: usize = 24;
/// KiB that the allocator may keep more, as each model has threads of its own: an eighth of the weights that
/// so many switches load.
const SLACK: usize = 24 << 10;

/// A folder with two models, one of which is alone in a folder of its own, and with what is no model.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("small")).unwrap();
    symlink(model("tiny-hybrid-q8_0.gguf"), folder.path().join("eight.gguf")).unwrap();
    symlink(model("tiny-hybrid-q4_0.gguf"), folder.path().join("small/weights.gguf")).unwrap();
    fs::write(folder.path().join("mmproj-eight.gguf"), "no model").unwrap();
    fs::write(folder.path().join("broken.gguf"), "GGUF").unwrap();
    folder
}

fn text(serving: &Serving, name: &str) -> Value {
    let body = json!({ "model": name, "prompt": "def push(", "max_tokens": 6, "temperature": 0 });
    let (status, answer) = serving.post("/v1/completions", &body);
    assert_eq!((status, &answer["model"]), (200, &name.into()), "{answer}");
    answer["choices"][0]["text"].clone()
}

/// Descriptors of a process.
fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// KiB of memory that is a process's own.
fn memory(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    own.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn switching_loses_neither_descriptors_nor_memory() {
    let folder = folder();
    let arguments = ["--port", "0", "--models-dir", folder.path().to_str().unwrap()];
    let mut serving = Serving::start(serve(&arguments));
    let (_, models) = serving.ask("/v1/models", "");
    let names: Vec<_> = models["data"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(names, ["broken", "eight", "small"]);
    let process = serving.running.child().id();
    let mut texts = Vec::new();
    let mut before = (0, 0);
    for switch in 0..FIRST + MORE {
        if switch == FIRST {
            before = (descriptors(process), memory(process));
        }
        texts.push(text(&serving, ["eight", "small"][switch % 2]));
    }
    let after = memory(process);
    assert!(after < before.1 + SLACK, "{} KiB became {after}", before.1);
    // The last connection may take a moment to go.
    let start = Instant::now();
    while descriptors(process) > before.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{} became {}", before.0, descriptors(process));
        thread::sleep(Duration::from_millis(10));
    }
    assert!(texts.chunks(2).all(|pair| pair == &texts[..2]), "{texts:?}");

    let (status, answer) = serving.post("/models/load", &json!({ "model": "broken" }));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 500 && message.contains("broken.gguf"), "{answer}");
    let (code, said) = serving.end(Signal::TERM);
    assert_eq!(code, Ok(0));
    let ready = said.matches("[small is ready: 4 requests at once, 128 tokens each]").count();
    assert_eq!(ready, (FIRST + MORE) / 2, "{said}");
    assert!(said.ends_with("[ended]\n"), "{said}");
}

#[test]
fn a_model_without_room_leaves_the_other_one_where_it_is() {
    let folder = folder();
    // 96 GiB of zeros, which take no room on the disk.
    zeros(&folder.path().join("huge.gguf"), 4096, 1 << 20, 300);
    let serving = Serving::start(serve(&["--port", "0", "--models-dir", folder.path().to_str().unwrap()]));
    text(&serving, "eight");
    let body = json!({ "model": "huge", "prompt": "a", "max_tokens": 1 });
    let (status, answer) = serving.post("/v1/completions", &body);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 500 && message.contains("no room on this machine, which has"), "{answer}");
    let (_, eight) = serving.ask("/models/eight", "");
    assert_eq!(eight["status"]["value"], "loaded");
    let (code, said) = serving.end(Signal::TERM);
    assert_eq!((code, said.matches("is ready").count()), (Ok(0), 1), "{said}");
}

/// The head of an EmbeddingGemma's file, in which there is nothing to embed with.
fn embedder(path: &Path) {
    let mut writer = GgufWriter::new();
    writer.kv("general.architecture", "gemma-embedding");
    for (key, value) in [
        ("block_count", 1u32),
        ("context_length", 64),
        ("embedding_length", 64),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.sliding_window", 16),
    ] {
        writer.kv(&format!("gemma-embedding.{key}"), value);
    }
    writer.kv("gemma-embedding.attention.layer_norm_rms_epsilon", 1e-6f32);
    hole(&mut writer, "token_embd.weight", GgmlType::F32, &[64, 32]);
    write(writer, path);
}

#[test]
fn a_model_that_writes_no_text_leaves_the_other_one_where_it_is() {
    let folder = folder();
    embedder(&folder.path().join("vectors.gguf"));
    let serving = Serving::start(serve(&["--port", "0", "--models-dir", folder.path().to_str().unwrap()]));
    text(&serving, "eight");
    let body = json!({ "model": "vectors", "prompt": "a", "max_tokens": 1 });
    let (status, answer) = serving.post("/v1/completions", &body);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 500 && message.contains("write no text"), "{answer}");
    let (_, eight) = serving.ask("/models/eight", "");
    assert_eq!(eight["status"]["value"], "loaded");
    let (code, said) = serving.end(Signal::TERM);
    assert_eq!((code, said.matches("is ready").count()), (Ok(0), 1), "{said}");
}

#[test]
fn folders_and_flags_that_cannot_be_used_are_refused() {
    let folder = folder();
    let dir = folder.path().to_str().unwrap();
    let run = |arguments: &[&str]| hexflash(&[&["serve", "--port", "0"], arguments].concat());
    let model = model("tiny-hybrid-q8_0.gguf");
    let model = model.to_str().unwrap();
    run(&["--models-dir", dir, "-m", model]).failed(2, "models of its own", "leave out -m");
    run(&["--models-dir", dir, "-md", model]).failed(2, "models of its own", "leave out -m");
    run(&["--models-dir", "/no/such/folder"]).failed(2, "no folder", "make it first");
    let empty = TempDir::new().unwrap();
    run(&["--models-dir", empty.path().to_str().unwrap()]).failed(2, "no GGUF model", "put models there");
    run(&["--models-max", "2", "-m", model]).failed(2, "--models-dir", "hexflash --help");
}

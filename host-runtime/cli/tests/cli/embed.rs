//! Vectors of texts.

use tempfile::TempDir;

use hexflash::gguf::Value;

use super::support::{Change, Outcome, changed_model, hexflash, hexflash_reading, text};

const TEXTS: [&str; 3] = ["import os\n", "def push(self, x):", "a"];

fn embed(arguments: &[&str]) -> Outcome {
    hexflash(&[&["embed", "--no-repack-cache"], arguments].concat())
}

fn vectors(outcome: &Outcome) -> Vec<Vec<f64>> {
    let vector = |line: &str| line.split(' ').map(|value| value.parse().unwrap()).collect();
    outcome.stdout.lines().map(vector).collect()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn a_text_has_the_same_vector_alone_and_beside_others() {
    let all = embed(&TEXTS).succeeded();
    let lines: Vec<_> = all.stdout.lines().collect();
    assert_eq!(lines.len(), TEXTS.len());
    for (text, line) in TEXTS.iter().zip(lines) {
        assert_eq!(embed(&[text]).succeeded().stdout.trim_end(), line, "{text}");
        // However it is cut.
        assert_eq!(embed(&["-b", "2", text]).succeeded().stdout.trim_end(), line, "{text}");
    }
    for vector in vectors(&all) {
        let length: f64 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
}

#[test]
fn poolings_follow_from_the_vectors_of_tokens() {
    let raw = |pooling: &str| {
        vectors(&embed(&["--pooling", pooling, "--embd-normalize", "-1", TEXTS[1]]).succeeded())
    };
    let tokens = raw("none");
    assert!(tokens.len() > 2);
    assert!(near(&raw("cls")[0], &tokens[0]) && near(&raw("last")[0], tokens.last().unwrap()));
    let mean: Vec<f64> = (0..tokens[0].len())
        .map(|i| tokens.iter().map(|token| token[i]).sum::<f64>() / tokens.len() as f64)
        .collect();
    assert!(near(&raw("mean")[0], &mean));
    assert!(!near(&raw("mean")[0], &raw("last")[0]));
}

#[test]
fn the_file_of_a_model_names_its_pooling() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("mean.gguf");
    changed_model(&path, &Change::Key("qwen35.pooling_type", Value::U32(1)));
    let own = embed(&["-m", text(&path), TEXTS[1]]).succeeded();
    let mean = embed(&["-m", text(&path), "--pooling", "mean", TEXTS[1]]).succeeded();
    let last = embed(&["-m", text(&path), "--pooling", "last", TEXTS[1]]).succeeded();
    assert!(own.stdout == mean.stdout && own.stdout != last.stdout);
}

#[test]
fn a_pipe_has_a_text_on_each_line() {
    let piped = hexflash_reading(b"def push(self, x):\n\na\n", &["embed", "--no-repack-cache"]).succeeded();
    assert_eq!(piped.stdout, embed(&TEXTS[1..]).succeeded().stdout);
}

#[test]
fn json_is_that_of_openai() {
    let outcome = embed(&["--json", TEXTS[1], TEXTS[2]]).succeeded();
    let value = outcome.json();
    assert_eq!((&value["object"], &value["data"][1]["index"]), (&"list".into(), &1.into()));
    let shown: Vec<f64> =
        value["data"][0]["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(near(&shown, &vectors(&embed(&[TEXTS[1]]).succeeded())[0]));
    assert!(value["usage"]["total_tokens"].as_u64().unwrap() > 2);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("other.gguf");
    changed_model(&path, &Change::Key("qwen35.pooling_type", Value::U32(4)));
    embed(&["-m", text(&path), "a"]).failed(2, "pooling_type is rank", "models that score texts");
    changed_model(&path, &Change::Key("qwen35.attention.causal", Value::Bool(false)));
    embed(&["-m", text(&path), "a"]).failed(2, "attention.causal is false", "tokens see later ones");
    embed(&["--embd-normalize", "-3", "a"]).failed(2, "--embd-normalize", "give -1");
    embed(&["-c", "8", &"word ".repeat(20)]).failed(2, "context", "-c");
    hexflash_reading(b"\n", &["embed"]).failed(2, "there is no prompt", "pipe");
}

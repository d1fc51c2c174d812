//! `bench --parallel`, and `info --parallel`: several sequences.

use super::support::{hexflash, model, text};

#[test]
fn numbers_of_sequences_are_measured_against_the_first() {
    let bench = ["bench", "--no-repack-cache", "--parallel", "1,3", "-p", "4", "-n", "6", "-r", "2"];
    let table = hexflash(&bench).succeeded().stdout;
    assert!(table.contains("every sequence wrote the text that it writes alone"), "{table}");
    assert!(table.contains("|         1 |") && table.contains("|         3 |"), "{table}");
    let report = hexflash(&[&bench[..], &["--json"]].concat()).succeeded().json();
    assert_eq!((&report["n_prompt"], &report["n_gen"]), (&4.into(), &6.into()));
    let rows = report["rows"].as_array().unwrap();
    let sequences: Vec<_> = rows.iter().map(|row| row["sequences"].as_u64().unwrap()).collect();
    assert_eq!(sequences, [1, 3]);
    for row in rows {
        assert_eq!(row["runs"].as_array().unwrap().len(), 2, "{row}");
        assert!(row["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(rows[0]["speedup"], 1.0);
}

#[test]
fn numbers_of_sequences_that_cannot_be() {
    let bench = |arguments: &[&str]| hexflash(&[&["bench", "--no-repack-cache"], arguments].concat());
    bench(&["--parallel", "0"]).failed(2, "0 is not in 1..=64", "--help");
    bench(&["--parallel", "65"]).failed(2, "65 is not in 1..=64", "--help");
    bench(&["--parallel", "2", "--draft"]).failed(2, "cannot be used with", "--help");
    bench(&["--parallel", "2", "-n", "0"]).failed(2, "the text of each sequence", "at least 1 token");
    bench(&["--parallel", "2", "-p", "0"]).failed(2, "the prompt of each sequence", "at least 1 token");
    let long = ["--parallel", "2", "-p", "500", "-n", "13"];
    bench(&long).failed(2, "the length of a test must be at most the context of 512", "-c");
}

#[test]
fn memory_grows_with_sequences_and_snapshots() {
    let target = model("tiny-hybrid-q8_0.gguf");
    let memory = |arguments: &[&str]| {
        let info = hexflash(&[&["info", "-m", text(&target), "--json"], arguments].concat());
        info.succeeded().json()["memory"].clone()
    };
    let (one, four) = (memory(&[]), memory(&["--parallel", "4", "--snapshots", "1"]));
    for name in ["kv", "recurrent"] {
        assert_eq!(four[name].as_u64(), one[name].as_u64().map(|bytes| 4 * bytes), "{name}");
    }
    assert_eq!((&one["snapshots"], &four["sequences"]), (&0.into(), &4.into()));
    assert!((1..=1 << 20).contains(&four["snapshots"].as_u64().unwrap()), "{four}");
    let info = hexflash(&["info", "-m", text(&target), "--parallel", "4"]).succeeded();
    assert!(info.stdout.contains("memory for 4 sequences, each with a context of 512"), "{info:?}");
    let none = hexflash(&["info", "-m", text(&target), "--parallel", "0"]);
    none.failed(2, "the number of sequences (--parallel) must be 1 to 64, not 0", "");
    let shared = ["info", "-m", text(&target), "--parallel", "4", "--program", "shared"];
    let listing = hexflash(&shared).succeeded().stdout;
    assert!(listing.starts_with("program shared: up to 64 tokens"), "{listing}");
}

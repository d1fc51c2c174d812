//! `bench --draft`: a sweep as tables, as JSON and as a picture.

use std::fs;

use tempfile::TempDir;

use super::support::{Outcome, hexflash, model, text};

fn bench(arguments: &[&str]) -> Outcome {
    hexflash(&[&["bench", "--no-repack-cache"], arguments].concat())
}

/// With the shipped draft, as short as can be.
fn sweep(arguments: &[&str]) -> Outcome {
    let draft = model("tiny-hybrid-dflash-f16.gguf");
    bench(&[&["--draft", "-md", text(&draft), "-n", "12", "-r", "1"], arguments].concat())
}

#[test]
fn a_sweep_in_all_its_forms() {
    let dir = TempDir::new().unwrap();
    let (prompts, plot) = (dir.path().join("prompts.txt"), dir.path().join("sweep.svg"));
    fs::write(&prompts, "import os\n\n\"<def> &\\n\"\n[585, 1525, 1361, 82, 433, 7]\n").unwrap();
    let given = ["--prompts", text(&prompts), "--lengths", "7,1,1"];
    let table = sweep(&[&given[..], &["--plot", text(&plot)]].concat()).succeeded().stdout;
    for part in [
        "every run gave the tokens of plain decoding",
        "1. \"import os\": ",
        "2. \"<def> &\\n\": ",
        "3. \"[585, 1525, 1361, 82, 433, 7]\": 6 tokens, then 12",
        "|  plain |",
        "|      1 |",
        "|      7 |",
        "|   auto |",
        "mean of 3 prompts",
        "| speed-up |      by turns |",
        "times as fast as the best of one choice for all prompts, ",
        "draft head",
        "auto against the better of plain and the best length: ",
        "| prompt |   best |     auto |   error |",
    ] {
        assert!(table.contains(part), "{part:?} in {table}");
    }
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    for part in ["tokens per round", "speed-up", "&lt;def&gt; &amp;↵", ">mean<", ">auto<", ">7<"] {
        assert!(svg.contains(part), "{part:?} in {svg}");
    }

    let report = sweep(&[&given[..], &["--json"]].concat()).succeeded().json();
    assert_eq!((&report["drafter"], &report["same_as_plain"]), (&"draft-dflash".into(), &true.into()));
    let prompts = report["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 3);
    for prompt in prompts {
        assert_eq!(prompt["generated_tokens"], 12);
        assert!(prompt["auto_against_best"].as_f64().unwrap() > 0.0);
        assert_eq!(prompt["auto_error"], 0.0, "of one run");
        assert!([&"plain".into(), &1.into(), &7.into()].contains(&&prompt["best"]), "{prompt}");
        let rows = prompt["rows"].as_array().unwrap();
        let drafts: Vec<_> = rows.iter().map(|row| row["drafts"].clone()).collect();
        assert_eq!(drafts, ["plain".into(), 1.into(), 7.into(), serde_json::Value::from("auto")]);
        assert_eq!((&rows[0]["speedup"], &rows[0]["by_turns"]["median"]), (&1.0.into(), &1.0.into()));
        assert_eq!(rows[0].get("speculation"), None);
        for row in rows {
            assert_eq!(row["runs"].as_array().unwrap().len(), 1);
            assert_eq!(row["best"], row["median"], "of one run");
            assert!(row["cost_per_round"]["verify"].as_f64().unwrap() > 0.0, "{row}");
        }
        let seven = &rows[2];
        for part in ["lm_head", "accept", "taps", "draft", "draft_head"] {
            assert!(seven["cost_per_round"][part].as_f64().unwrap() > 0.0, "{part} of {seven}");
        }
        assert!(seven["speculation"]["mean_accepted_length"].as_f64().unwrap() >= 1.0);
    }
    assert_eq!(report["mean"].as_array().unwrap().len(), 4);
    let one = &report["auto_against_one"];
    let drafts = [&"plain".into(), &1.into(), &7.into()];
    assert!(drafts.contains(&&one["drafts"]) && one["median"].as_f64().unwrap() > 0.0, "{one}");
}

#[test]
fn random_prompts() {
    let report = sweep(&["--random-prompts", "3", "--lengths", "2", "--json"]).succeeded().json();
    let prompts = report["prompts"].as_array().unwrap();
    for (i, prompt) in prompts.iter().enumerate() {
        assert_eq!(prompt["prompt"], format!("random tokens, {}", i + 1));
        assert_eq!(prompt["prompt_tokens"], 32);
    }
    assert_eq!(prompts.len(), 3);
    sweep(&["--random-prompts", "2", "--prompts", "x"]).failed(
        2,
        "cannot be used with",
        "see hexflash --help",
    );
}

/// Every length of every drafter, and where target and draft model run.
#[test]
fn sweeps_of_drafters_and_placements() {
    let dir = TempDir::new().unwrap();
    let prompts = dir.path().join("prompts.txt");
    fs::write(&prompts, "import os").unwrap();
    let given = ["--prompts", text(&prompts), "--lengths", "2,5"];
    let several = [&given[..], &["--spec-type", "draft-dflash,ngram-mod"]].concat();
    let report = sweep(&[&several[..], &["--json"]].concat()).succeeded().json();
    assert_eq!(report["drafter"], "draft-dflash,ngram-mod");
    let drafts: Vec<_> = report["mean"].as_array().unwrap().iter().map(|row| row["drafts"].clone()).collect();
    let expected = ["plain", "draft-dflash 2", "draft-dflash 5", "ngram-mod 2", "ngram-mod 5", "auto"];
    assert_eq!(drafts, expected);
    // The names at the right of the panels.
    let plot = dir.path().join("sweep.svg");
    let lines = |arguments: &[&str]| -> Vec<String> {
        sweep(&[arguments, &["--plot", text(&plot)]].concat()).succeeded();
        let svg = fs::read_to_string(&plot).unwrap();
        let legend = svg.lines().filter_map(|line| line.strip_suffix("</text>"));
        let names =
            legend.filter(|line| line.contains("x=\"1052.0\"")).filter_map(|line| line.split_once('>'));
        names.map(|(_, name)| name.to_owned()).collect()
    };
    assert_eq!(lines(&several), ["draft-dflash", "ngram-mod", "auto"]);
    let all = [&several[..], &["--placements", "inproc,inproc+inproc"]].concat();
    let expected = ["inproc", "inproc+inproc"]
        .map(|place| ["draft-dflash", "ngram-mod", "auto"].map(|name| format!("{name}, {place}")));
    assert_eq!(lines(&all), expected.concat());

    let placed = [&given[..], &["--placements", "inproc,inproc+inproc"]].concat();
    let report = sweep(&[&placed[..], &["--json"]].concat()).succeeded().json();
    let placements = report["placements"].as_array().unwrap();
    for (report, name) in placements.iter().zip(["inproc", "inproc+inproc"]) {
        assert_eq!((&report["placement"], &report["same_as_plain"]), (&name.into(), &true.into()));
        assert_eq!(report["prompts"][0]["rows"].as_array().unwrap().len(), 4);
    }
    assert_eq!(placements.len(), 2);
    assert_eq!(lines(&placed), ["draft-dflash, inproc", "draft-dflash, inproc+inproc"]);
    let table = sweep(&placed).succeeded().stdout;
    for part in
        ["median tok/s, target+draft", "|     placement |    plain |", "| inproc+inproc |", "speed-up over"]
    {
        assert!(table.contains(part), "{part:?} in {table}");
    }
    for bad in ["+inproc", "inproc+", "a+b+c"] {
        sweep(&["--placements", bad]).failed(2, "give the target's device", "--help");
    }
}

#[test]
fn lengths_follow_the_drafter() {
    let dir = TempDir::new().unwrap();
    let prompts = dir.path().join("prompts.txt");
    fs::write(&prompts, "import os").unwrap();
    let drafts = |outcome: Outcome| -> Vec<String> {
        let report = outcome.succeeded().json();
        report["mean"].as_array().unwrap().iter().map(|row| row["drafts"].to_string()).collect()
    };
    let given = ["--prompts", text(&prompts), "--json"];
    let model = drafts(sweep(&given));
    assert_eq!(model, ["\"plain\"", "1", "2", "3", "4", "5", "6", "7", "\"auto\""]);
    let flags = ["--draft", "--spec-type", "ngram-simple", "-n", "8", "-r", "1"];
    let ngram = drafts(bench(&[&flags[..], &given].concat()));
    assert_eq!(ngram, ["\"plain\"", "1", "2", "3", "5", "7", "11", "15", "\"auto\""]);
}

/// Without -n, the longest prompt decides: its last token needs no place.
#[test]
fn texts_fill_the_context() {
    let dir = TempDir::new().unwrap();
    let (prompts, draft) = (dir.path().join("prompts.txt"), model("tiny-hybrid-dflash-f16.gguf"));
    fs::write(&prompts, "[1]\n[1, 2, 3]\n[4, 5]").unwrap();
    let given = ["--draft", "-md", text(&draft), "--prompts", text(&prompts), "--lengths", "7", "-r", "1"];
    let in_context_of_40 = || bench(&[&given[..], &["--json", "-c", "40"]].concat());
    let report = in_context_of_40().succeeded().json();
    assert_eq!(report["n_gen"], 38);
    for prompt in report["prompts"].as_array().unwrap() {
        assert_eq!(prompt["generated_tokens"], 38);
    }
    fs::write(&prompts, format!("[1]\n{:?}", vec![1; 40])).unwrap();
    let cause = "prompt 2 has 40 tokens, which with 2 to generate do not fit the context of 40";
    in_context_of_40().failed(2, cause, "raise the context with -c");
}

#[test]
fn sweeps_that_cannot_be() {
    let draft = model("tiny-hybrid-dflash-f16.gguf");
    let draft = text(&draft);
    let add = "add --draft, or drop -md";
    bench(&["-md", draft]).failed(2, "bench measures speculation with --draft only", add);
    bench(&["--spec-type", "ngram"]).failed(2, "bench measures speculation with --draft only", add);
    for kind in [&["--draft"][..], &["--draft", "--spec-type", "none", "-md", draft]] {
        bench(kind).failed(
            2,
            "bench --draft needs someone who drafts",
            "-md FILE, or --spec-type ngram-simple",
        );
    }
    bench(&["--draft", "--spec-type", "draft-dflash"]).failed(2, "needs a draft model", "-md FILE");
    sweep(&["--lengths", "1,8"]).failed(
        2,
        "a draft length (--lengths) must be 1 to 7, a block of the draft",
        "not 8",
    );
    for lengths in ["0", "16", "1,x", ""] {
        sweep(&["--lengths", lengths]).failed(2, "invalid value", "--lengths");
    }
    sweep(&["-n", "1"]).failed(2, "cannot be used multiple times", "see hexflash --help");
    let one = bench(&["--draft", "-md", draft, "-n", "1"]);
    one.failed(2, "the number of tokens (-n) must be at least 2 with --draft", "not 1");
    sweep(&["-p", "4"]).failed(2, "cannot be used with", "see hexflash --help");
    for flag in [["--lengths", "3"], ["--prompts", "x"], ["--random-prompts", "2"], ["--plot", "x.svg"]] {
        bench(&flag).failed(2, "--draft", "see hexflash --help");
    }
    sweep(&["--plot", "/nonexistent/x.svg"]).failed(2, "cannot write the plot", "--plot");
}

#[test]
fn prompts_that_are_none() {
    let dir = TempDir::new().unwrap();
    let with = |bytes: &[u8]| {
        let path = dir.path().join("prompts.txt");
        fs::write(&path, bytes).unwrap();
        sweep(&["--prompts", text(&path)])
    };
    with(b"").failed(2, "there are no prompts in", "one on each line");
    with(b"\n \n").failed(2, "there are no prompts in", "one on each line");
    with(b"good\nbad \xff\n").failed(2, "prompts.txt, line 2: byte 9 is not UTF-8", "give text");
    with(b"[1, \"x\"]").failed(2, "line 1: \"x\" is not a token id", "give text");
    with(b"x\n\"\"").failed(2, "line 2: the prompt is empty", "give text");
    with(b"[4096]").failed(2, "4096 is outside the vocabulary of 4096", "this model's tokenizer");
    let long = format!("x\n{:?}", vec![1; 502]);
    let cause = "prompt 2 has 502 tokens, which with 12 to generate do not fit the context of 512";
    with(long.as_bytes()).failed(2, cause, "shorten it, lower -n, or raise the context with -c");
    sweep(&["--prompts", "/nonexistent/prompts"]).failed(2, "cannot read prompts from", "--prompts");
    sweep(&["--prompts", text(dir.path())]).failed(2, "Is a directory", "check the path");
}

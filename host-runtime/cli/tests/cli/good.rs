//! What works: prompts from everywhere, output for people and for programs.

use std::fs;
use std::process::Stdio;

use serde_json::Value as Json;
use tempfile::TempDir;

use super::support::{Outcome, command, hexflash, hexflash_reading, model, run, text};

/// The first greedy case that llama.cpp generated from the shipped model without a near-tie.
const PROMPT: &str = "import os\n";
const PROMPT_IDS: &str = "1074,830,198";
const CONTINUATION: &str = "import os\nimport os\n";
const CONTINUATION_IDS: [u64; 6] = [1074, 830, 198, 1074, 830, 198];

const GREEDY: [&str; 4] = ["--temp", "0", "-n", "6"];

/// Greedy generation of six tokens.
fn greedy(arguments: &[&str]) -> Outcome {
    run(&[&GREEDY[..], arguments].concat()).succeeded()
}

fn ids(value: &Json) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn a_prompt_argument_is_continued_and_statistics_follow() {
    let outcome = greedy(&[PROMPT]);
    assert_eq!(outcome.stdout, format!("{PROMPT}{CONTINUATION}\n"));
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    for part in ["[length; prompt 3 tokens, ", "generated 6 tokens, ", "us/step; context 9/512]"] {
        assert!(outcome.stderr.contains(part), "{part:?} in {outcome:?}");
    }
}

#[test]
fn prompts_from_files_standard_input_and_ids() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("prompt.txt");
    fs::write(&file, PROMPT).unwrap();
    // What the user has in a file already is not repeated.
    let continuation = format!("{CONTINUATION}\n");
    assert_eq!(greedy(&["-f", text(&file)]).stdout, continuation);
    assert_eq!(greedy(&["--prompt-ids", PROMPT_IDS]).stdout, continuation);
    assert_eq!(greedy(&["--prompt-ids", &PROMPT_IDS.replace(',', " ")]).stdout, continuation);
    let stdin = [&["run", "--no-repack-cache", "-f", "-"], &GREEDY[..]].concat();
    assert_eq!(hexflash_reading(PROMPT.as_bytes(), &stdin).succeeded().stdout, continuation);
    let pipe = [&["run", "--no-repack-cache"], &GREEDY[..]].concat();
    let line = format!("{PROMPT}\n");
    assert_eq!(hexflash_reading(line.as_bytes(), &pipe).succeeded().stdout, continuation);
}

#[test]
fn models_are_chosen_with_m() {
    for name in ["tiny-hybrid-f16.gguf", "tiny-hybrid-q4_0.gguf"] {
        let path = model(name);
        let report = greedy(&["-m", text(&path), "--json", PROMPT]).json();
        assert_eq!(ids(&report["tokens"]), CONTINUATION_IDS, "{name}");
        assert!(report["model"].as_str().unwrap().ends_with(name), "{report}");
    }
}

#[test]
fn json_is_one_object_for_programs() {
    let outcome = greedy(&["--json", PROMPT]);
    assert_eq!(outcome.stderr, "", "nothing else is said");
    assert_eq!(outcome.stdout.lines().count(), 1);
    let report = outcome.json();
    assert_eq!(report["prompt_tokens"], 3);
    assert_eq!(ids(&report["tokens"]), CONTINUATION_IDS);
    assert_eq!(report["text"], CONTINUATION);
    assert_eq!(report["finish_reason"], "length");
    let stats = &report["stats"];
    assert_eq!(stats["prompt_tokens"], 3);
    assert_eq!(stats["generated_tokens"], 6);
    assert_eq!(stats["messages_per_step"], 1.0);
    for figure in ["prompt_per_second", "generated_per_second", "host_us_per_step"] {
        assert!(stats[figure].as_f64().unwrap() > 0.0, "{figure}: {stats}");
    }
}

#[test]
fn stop_texts_end_the_text_and_are_not_part_of_it() {
    let report = greedy(&["--json", "--stop", "os\n", "--stop", "never", PROMPT]).json();
    assert_eq!((&report["finish_reason"], &report["text"]), (&"stop".into(), &"import ".into()));
}

#[test]
fn generation_ends_where_the_context_does() {
    let report = run(&["--temp", "0", "-n", "-1", "-c", "8", "--json", PROMPT]).succeeded().json();
    assert_eq!(report["finish_reason"], "context");
    // Three of the prompt and five more fill the context; what follows the last needs no place in it.
    assert_eq!(ids(&report["tokens"]), CONTINUATION_IDS);
}

#[test]
fn a_seed_makes_sampling_repeatable() {
    let sample =
        |seed: &str| run(&["--temp", "1.5", "--seed", seed, "-n", "24", "--json", PROMPT]).succeeded().json();
    let first = sample("7");
    assert_eq!(first["seed"], 7);
    assert_eq!(first["tokens"], sample("7")["tokens"]);
    assert_ne!(first["tokens"], sample("8")["tokens"]);
    let unseeded = run(&["--temp", "1.5", "-n", "24", "--json", PROMPT]).succeeded().json();
    let seed = unseeded["seed"].as_u64().expect("the seed that was drawn is told").to_string();
    assert_eq!(unseeded["tokens"], sample(&seed)["tokens"]);
}

#[test]
fn settings_of_the_device_do_not_change_the_text() {
    let expected = greedy(&[PROMPT]).stdout;
    let settings: [&[&str]; 4] =
        [&["--threads", "1"], &["--threads", "3", "--vtcm", "262144"], &["-b", "2"], &["-c", "9"]];
    for setting in settings {
        assert_eq!(greedy(&[setting, &[PROMPT]].concat()).stdout, expected, "{setting:?}");
    }
}

#[test]
fn chat_applies_a_template() {
    let chat = ["--chat", "--chat-template", "chatml", "--json"];
    let report = greedy(&[&chat[..], &["hello"]].concat()).json();
    let prompt = ids(&report["prompt_ids"]);
    // <|im_start|>user ... <|im_end|>, <|im_start|>assistant.
    assert_eq!(prompt[0], 4093);
    assert_eq!(prompt.iter().filter(|&&id| id == 4093).count(), 2);
    assert_eq!(prompt.iter().filter(|&&id| id == 4094).count(), 1);
    let system = greedy(&[&chat[..], &["--system", "be brief", "hello"]].concat()).json();
    assert_eq!(ids(&system["prompt_ids"]).iter().filter(|&&id| id == 4093).count(), 3);

    let dir = TempDir::new().unwrap();
    let template = dir.path().join("template.jinja");
    fs::write(&template, "{% for m in messages %}{{ m.content }}\n{% endfor %}").unwrap();
    let own = greedy(&["--chat", "--chat-template", text(&template), "--json", "import os"]).json();
    assert_eq!(own["prompt_ids"].to_string(), format!("[{PROMPT_IDS}]"));
}

#[test]
fn info_shows_metadata_tensors_and_memory() {
    let shown = hexflash(&["info"]).succeeded().stdout;
    for part in [
        "tiny-hybrid-q8_0.gguf: GGUF version 3, 108 tensors",
        "general.architecture                         qwen35",
        "8 layers: 6 linear (Gated DeltaNet), 2 full attention",
        "Q8_0        63 tensors",
        "KV caches",
        "recurrent state",
        "activations",
        "weights, repacked",
        "VTCM",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    assert!(!shown.contains("blk.3.attn_q.weight"));
    let tensors = hexflash(&["info", "--tensors"]).succeeded().stdout;
    assert!(tensors.contains("blk.3.attn_q.weight"), "{tensors}");
}

/// Caches of other number formats: the memory plan has their sizes, and they write text.
#[test]
fn caches_have_the_number_formats_that_are_asked_for() {
    let kv = |types: &[&str]| {
        let report = hexflash(&[&["info", "--json", "-c", "256"], types].concat()).succeeded().json();
        report["memory"]["kv"].as_u64().unwrap()
    };
    // Positions of two heads in two layers; bytes of a key and of a value of 64.
    let of = |key: u64, value: u64| 256 * 2 * 2 * (key + value);
    assert_eq!(kv(&[]), of(128, 128));
    assert_eq!(kv(&["-ctk", "f16", "-ctv", "q8_0"]), of(128, 68));
    assert_eq!(kv(&["-ctk", "q8_0", "-ctv", "q4_r"]), of(68, 36));
    let types = ["--cache-type-k", "q4_r", "--cache-type-v", "q8_0"];
    let shown = run(&[&["--temp", "0", "-n", "8"], &types[..], &["Once"]].concat()).succeeded();
    assert!(!shown.stdout.is_empty());
}

#[test]
fn info_as_json_has_the_memory_plan() {
    let report = hexflash(&["info", "--json", "-c", "256", "--vtcm", "4194304"]).succeeded().json();
    assert_eq!(report["metadata"]["general.architecture"], "qwen35");
    assert_eq!(report["tensors"].as_array().unwrap().len(), 108);
    let memory = &report["memory"];
    assert_eq!((&memory["n_ctx"], &memory["vtcm"]), (&256.into(), &4_194_304.into()));
    // Two layers of two heads of 64 values, K and V, in half precision.
    assert_eq!(memory["kv"], 256 * 2 * 2 * 64 * 2 * 2);
    for part in ["weights", "recurrent", "activations", "io", "programs"] {
        assert!(memory[part].as_u64().unwrap() > 0, "{part}: {memory}");
    }
    let [shared, unshared] =
        ["activations", "activations_unshared"].map(|part| memory[part].as_u64().unwrap());
    assert!(shared < unshared, "activations share memory: {memory}");
}

#[test]
fn bench_measures_prefill_and_decode() {
    let bench = ["bench", "--no-repack-cache", "-p", "8", "-n", "4", "-r", "1"];
    let table = hexflash(&bench).succeeded().stdout;
    assert!(table.contains("| pp8 ") && table.contains("| tg4 "), "{table}");
    let report = hexflash(&[&bench[..], &["--json"]].concat()).succeeded().json();
    let tests = report["tests"].as_array().unwrap();
    let names: Vec<_> = tests.iter().map(|test| test["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp8", "tg4"]);
    for test in tests {
        assert!(test["mean"].as_f64().unwrap() > 0.0, "{test}");
        assert!(test["host_us_per_step"].as_f64().unwrap() > 0.0, "{test}");
    }
}

#[test]
fn devices_are_listed() {
    let list = hexflash(&["devices"]).succeeded().stdout;
    assert!(list.contains("inproc"), "{list}");
    assert!(list.lines().all(|line| line.len() < 200), "a line for each device, and no paragraph: {list}");
    let devices = hexflash(&["devices", "--json"]).succeeded().json();
    assert_eq!(devices[0]["name"], "inproc");
    assert!(devices[0]["vtcm_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn help_names_every_flag() {
    let common = [
        "--model",
        "--ctx-size",
        "--batch-size",
        "--cache-type-k",
        "--cache-type-v",
        "--device",
        "--threads",
        "--vtcm",
        "--verbose",
    ];
    let with_common = |flags: &[&'static str]| [&common[..], flags].concat();
    let commands = [
        (
            "run",
            with_common(&[
                "--file",
                "--prompt-ids",
                "--chat",
                "--system",
                "--chat-template",
                "--no-thinking",
                "--predict",
                "--stop",
                "--ignore-eos",
                "--json",
                "--temp",
                "--top-k",
                "--top-p",
                "--min-p",
                "--repeat-penalty",
                "--repeat-last-n",
                "--presence-penalty",
                "--frequency-penalty",
                "--seed",
                "--model-draft",
                "-md",
                "--spec-type",
                "--draft-max",
                "--cache-dir",
                "--no-repack-cache",
            ]),
        ),
        ("info", with_common(&["--tensors", "--json", "--model-draft"])),
        (
            "bench",
            with_common(&[
                "--n-prompt",
                "--n-gen",
                "--repetitions",
                "--json",
                "--cache-dir",
                "--draft",
                "--lengths",
                "--prompts",
                "--plot",
                "--model-draft",
                "--spec-type",
            ]),
        ),
        ("devices", vec!["--json", "--verbose"]),
    ];
    let top = hexflash(&["--help"]).succeeded().stdout;
    for (command, flags) in commands {
        assert!(top.contains(&format!("\n  {command} ")), "{top}");
        let help = hexflash(&[command, "--help"]).succeeded().stdout;
        for flag in flags {
            assert!(help.contains(flag), "{flag} in {help}");
        }
    }
    assert!(hexflash(&["--version"]).succeeded().stdout.starts_with("hexflash "));
}

/// `hexflash ... | head -c 1`: whoever read the output has seen enough.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let commands: [&[&str]; 8] = [
        &["run", "--no-repack-cache", "-n", "4", PROMPT],
        &["run", "--no-repack-cache", "-n", "4", "--json", PROMPT],
        &["info"],
        &["info", "--json"],
        &["bench", "--no-repack-cache", "-p", "4", "-n", "2", "-r", "1"],
        &["devices"],
        &["devices", "--json"],
        &["run", "--help"],
    ];
    for arguments in commands {
        let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("error"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn logs_go_to_standard_error_when_asked_for() {
    let outcome = greedy(&["-v", PROMPT]);
    assert_eq!(outcome.stdout, format!("{PROMPT}{CONTINUATION}\n"));
    assert!(outcome.stderr.contains("INFO model loaded"), "{outcome:?}");
    let mut quiet = command(&["run", "--no-repack-cache", "-v", "-n", "1", PROMPT]);
    let output = quiet.env("RUST_LOG", "off").output().unwrap();
    assert!(!String::from_utf8(output.stderr).unwrap().contains("INFO"), "RUST_LOG overrides -v");
}

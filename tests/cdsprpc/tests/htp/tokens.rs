//! Whole generations: the tokens of `inproc`, with no rule broken.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use cdsprpc::standin::{StandIn, model};

const PROMPT: &str = "def __repr__(self):";

fn run(mut command: Command) -> Value {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    assert_eq!(stderr, "", "{command:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Generates on both devices; gives the report of `htp`.
pub(crate) fn same_tokens(standin: &StandIn, arguments: &[&str]) -> Value {
    let [target, draft, head] = ["tiny-hybrid-q8_0", "tiny-hybrid-dflash-q8_0", "mtp-tiny-hybrid-q8_0"]
        .map(|name| model(&format!("{name}.gguf")));
    let mut all =
        vec!["run", "--json", "--no-repack-cache", "-t", "2", "-m", target.to_str().unwrap(), PROMPT];
    for argument in arguments {
        all.push(match *argument {
            "DRAFT" => draft.to_str().unwrap(),
            "HEAD" => head.to_str().unwrap(),
            argument => argument,
        });
    }
    let mut inproc = Command::new(env!("CARGO_BIN_EXE_hexflash-htp"));
    inproc.args(&all).env_remove("RUST_LOG");
    let (expected, found) = (run(inproc), run(standin.hexflash(&all)));
    assert_eq!(found["tokens"], expected["tokens"], "{arguments:?}");
    assert_eq!(found["device"], "htp");
    assert_eq!(standin.violations(), Vec::<String>::new(), "{arguments:?}");
    found
}

#[test]
fn plain_decoding() {
    let standin = StandIn::new("");
    let report = same_tokens(&standin, &["--temp", "0", "-n", "40"]);
    assert_eq!(report["tokens"].as_array().unwrap().len(), 40);
    same_tokens(&standin, &["--temp", "0.8", "--seed", "11", "-n", "24", "--power", "efficient"]);
    same_tokens(&standin, &["--temp", "0", "-n", "24", "--dma", "threads"]);
    same_tokens(&standin, &["--temp", "0", "-n", "24", "--poll", "100", "--cpu-mask", "1"]);
}

#[test]
fn speculation_with_a_draft_model() {
    let standin = StandIn::new("arch=79 skels=79");
    let report = same_tokens(&standin, &["-md", "DRAFT", "--draft-max", "7", "--temp", "0", "-n", "40"]);
    assert!(report["stats"]["speculation"]["rounds"].as_u64().unwrap() > 2, "{report}");
    same_tokens(&standin, &["-md", "DRAFT", "--temp", "0.7", "--seed", "5", "-n", "24"]);
    same_tokens(&standin, &["--spec-type", "ngram-simple", "--temp", "0", "-n", "24"]);
}

/// Target and draft model on two devices, one of which is the host itself, or both are sessions of the DSP:
/// the tokens of plain decoding, and the same drafts wherever they are made.
#[test]
fn target_and_draft_model_on_two_devices() {
    let standin = StandIn::new("");
    let [target, draft, head] = ["tiny-hybrid-q8_0", "tiny-hybrid-dflash-q8_0", "mtp-tiny-hybrid-q8_0"]
        .map(|name| model(&format!("{name}.gguf")));
    let fixed = ["run", "--json", "--no-repack-cache", "-t", "2", "-m", target.to_str().unwrap(), PROMPT];
    for sampling in [&["--temp", "0", "-n", "32"][..], &["--temp", "0.7", "--seed", "5", "-n", "16"]] {
        let plain = [&fixed[..], sampling].concat();
        let expected = run(standin.hexflash_on("inproc", &plain));
        for draft in [&draft, &head] {
            let mut accepted = None;
            for (of_target, of_draft) in
                [("inproc", "inproc"), ("htp", "inproc"), ("inproc", "htp"), ("htp", "htp")]
            {
                let drafts = ["-md", draft.to_str().unwrap(), "--draft-max", "5", "--device-draft", of_draft];
                let found = run(standin.hexflash_on(of_target, &[&plain[..], &drafts].concat()));
                let what = format!("{of_target}+{of_draft}, {draft:?}, {sampling:?}");
                assert_eq!(found["tokens"], expected["tokens"], "{what}");
                let rounds = &found["stats"]["speculation"]["accepted_per_round"];
                assert_eq!(accepted.get_or_insert_with(|| rounds.clone()), rounds, "{what}");
                assert!(rounds.as_array().unwrap().len() > 2, "{what}");
                assert_eq!(standin.violations(), Vec::<String>::new(), "{what}");
            }
        }
    }
}

#[test]
fn speculation_with_an_mtp_head() {
    let standin = StandIn::new("");
    for sessions in ["1", "2"] {
        let fixed = ["--sessions", sessions, "-md", "HEAD"];
        let greedy = [&fixed[..], &["--draft-max", "3", "--temp", "0", "-n", "32"]].concat();
        let report = same_tokens(&standin, &greedy);
        assert!(report["stats"]["speculation"]["rounds"].as_u64().unwrap() > 2, "{report}");
        same_tokens(&standin, &[&fixed[..], &["--temp", "0.7", "--seed", "5", "-n", "16"]].concat());
    }
}

/// Layers split over two sessions, of which each is told what the other has written.
#[test]
fn two_sessions() {
    let standin = StandIn::new("");
    same_tokens(&standin, &["--sessions", "2", "--temp", "0", "-n", "24"]);
    let rounds = ["--sessions", "2", "-md", "DRAFT", "--draft-max", "7", "--temp", "0", "-n", "40"];
    let report = same_tokens(&standin, &rounds);
    assert!(report["stats"]["speculation"]["rounds"].as_u64().unwrap() > 2, "{report}");
    same_tokens(&standin, &["--sessions", "2", "-md", "DRAFT", "--temp", "0.7", "--seed", "5", "-n", "24"]);
}

/// Where one process cannot map the whole model, two can.
#[test]
fn a_model_that_does_not_fit_one_session() {
    let standin = StandIn::new("vmem=8000000");
    let small = ["--temp", "0", "-n", "8", "-c", "128", "-b", "16", "--vtcm", "262144"];
    let one = [&["run", "--no-repack-cache", PROMPT], &small[..]].concat();
    let output = standin.hexflash(&one).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("mapping failed") && text.contains("split it over sessions (--sessions)"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(1));
    same_tokens(&standin, &[&["--sessions", "2"], &small[..]].concat());
    // What is known of the DSP's memory decides by itself.
    let told = [&one[..], &["--session-memory", "8000000"]].concat();
    let output = standin.hexflash(&told).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && text.contains("split over 2]"), "{text}");
}

/// More sessions than the DSP has.
#[test]
fn too_many_sessions() {
    let standin = StandIn::new("");
    let output = standin.hexflash(&["run", "--no-repack-cache", "--sessions", "3", PROMPT]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("RESERVE_NEW_SESSION") && text.contains("fewer sessions"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(standin.violations(), Vec::<String>::new());
}

/// Another client takes the scratchpad between two messages, and leaves its own bytes there.
#[test]
fn the_scratchpad_is_lent_and_taken_back() {
    for at in [3, 12, 30] {
        let standin = StandIn::new(&format!("wanted={at}"));
        same_tokens(&standin, &["--temp", "0", "-n", "16"]);
    }
}

#[test]
fn info_and_devices_name_it() {
    let standin = StandIn::new("arch=81");
    let output = standin.hexflash(&["info"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = Command::new(env!("CARGO_BIN_EXE_hexflash-htp")).arg("devices").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("htp ")).unwrap();
    assert!(line.contains("libcdsprpc.so"), "{line}");
    assert_eq!(standin.violations(), Vec::<String>::new());
}

/// The host program for arm64, as `cargo xtask arm64` builds it, under emulation; the DSP's process runs as
/// it is.
#[test]
fn an_arm64_host_gives_the_same_tokens() {
    let target = Path::new(env!("CARGO_BIN_EXE_hexflash-htp")).ancestors().nth(2).unwrap();
    let built = target.join("aarch64-unknown-linux-gnu/debug");
    let (program, library) = (built.join("hexflash-htp"), built.join("libcdsprpc.so"));
    if !program.is_file() || !library.is_file() {
        assert!(std::env::var_os("HEXFLASH_ARM64_REQUIRED").is_none(), "{} is not there", program.display());
        // Written past the test harness, which hides what a passing test prints.
        let _ =
            writeln!(std::io::stderr(), "skipped: no host program for arm64: cargo xtask arm64 builds it");
        return;
    }
    let (target, draft) = (model("tiny-hybrid-q8_0.gguf"), model("tiny-hybrid-dflash-q8_0.gguf"));
    let (target, draft) = (target.to_str().unwrap(), draft.to_str().unwrap());
    for speculation in [&[][..], &["-md", draft, "--draft-max", "5"]] {
        let standin = StandIn::new("");
        let arguments = ["run", "--json", "--no-repack-cache", "-t", "2", "--temp", "0", "-n", "24", "-m"];
        let arguments = arguments.into_iter().chain([target, PROMPT]).chain(speculation.iter().copied());
        let mut emulated = Command::new("qemu-aarch64");
        emulated.arg(&program).args(arguments.clone());
        emulated.args(["--device", "htp", "--htp-library"]).arg(&library);
        emulated.env("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu").env("HEXFLASH_STANDIN", standin.config());
        let mut inproc = Command::new(env!("CARGO_BIN_EXE_hexflash-htp"));
        inproc.args(arguments);
        assert_eq!(run(emulated)["tokens"], run(inproc)["tokens"], "{speculation:?}");
        assert_eq!(standin.violations(), Vec::<String>::new());
    }
}

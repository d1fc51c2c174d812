//! `hexflash doctor` on the stand-in: each check that may fail, and what is not tried after it.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use cdsprpc::standin::{StandIn, built, has_queue, model};

const CHECKS: [&str; 9] =
    ["system", "library", "nodes", "selinux", "dsp", "skel", "session", "start", "self-test"];

/// A folder with the beginning of a library for v75: what the stand-in loads is another matter.
fn skels() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut file = vec![0; 52];
    file[..6].copy_from_slice(b"\x7fELF\x01\x01");
    (file[18], file[36]) = (164, 0x75);
    fs::write(dir.path().join("libhexflash_skel_v75.so"), file).unwrap();
    dir
}

/// Findings of `hexflash doctor --json`, and its exit code.
fn findings(standin: &StandIn, skels: &Path, arguments: &[&str]) -> (Value, i32) {
    let target = model("tiny-hybrid-q8_0.gguf");
    let fixed = ["doctor", "--json", "-m", target.to_str().unwrap()];
    let mut command = standin.hexflash(&[&fixed, arguments].concat());
    let output = command.env("DSP_LIBRARY_PATH", skels).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    (found, output.status.code().unwrap())
}

/// Outcome and text of a check.
fn of<'f>(found: &'f Value, check: &str) -> (&'f str, &'f str) {
    let steps = found["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["check"] == check).unwrap();
    (step["outcome"].as_str().unwrap(), step["text"].as_str().unwrap())
}

#[test]
fn all_checks_are_made_where_all_is_well() {
    let (standin, skels) = (StandIn::new(""), skels());
    let (found, code) = findings(&standin, skels.path(), &["-t", "2", "--vtcm", "1048576"]);
    assert_eq!((code, &found["ok"]), (0, &Value::Bool(true)), "{found:#}");
    let order: Vec<_> = found["steps"].as_array().unwrap().iter().map(|step| &step["check"]).collect();
    assert_eq!(order, CHECKS);
    for (check, words) in [
        ("library", "libcdsprpc.so opens"),
        ("dsp", "Hexagon v75"),
        ("skel", "libhexflash_skel_v75.so (DSP_LIBRARY_PATH)"),
        ("session", "loaded on the DSP"),
        ("start", "2 threads, 1024 KiB of VTCM"),
        ("self-test", "tiny-hybrid-q8_0.gguf: 8 tokens are those of inproc"),
    ] {
        let (outcome, text) = of(&found, check);
        assert!(outcome == "ok" && text.contains(words), "{check}: {found:#}");
    }
    assert_eq!(standin.violations(), Vec::<String>::new());
}

/// Each failure with its check, its words and a remedy; what needs it is not tried.
#[test]
fn a_check_that_fails_is_named_and_what_needs_it_is_not_tried() {
    let (mut standin, skels) = (StandIn::new(""), skels());
    for (config, check, words, remedy) in [
        ("GET_DSP_INFO=0x14@1+", "dsp", "GET_DSP_INFO", "update the system"),
        ("arch=66", "dsp", "v66", "v68 or newer"),
        ("skels=79", "session", "AEE_EUNABLETOLOAD", "DSP_LIBRARY_PATH"),
        ("unsigned=0", "session", "UNSIGNED_MODULE", "signed"),
        ("remote_handle64_open=0x72@1", "session", "AEE_ECONNREFUSED", "/dev/fastrpc-cdsp"),
        ("remote_handle64_invoke=0x200@1", "session", "invoke(info)", "restart"),
        ("dspqueue_create=0x2@1", "start", "dspqueue_create", "try again"),
        ("hvx=1", "start", "AEE_EBUSY", "--threads"),
        ("vtcm=65536", "start", "AEE_EITEMBUSY", "--vtcm"),
        ("fastrpc_mmap=0x2@1+", "self-test", "fastrpc_mmap", "-c"),
    ] {
        if config.contains("queue") && !has_queue() {
            continue;
        }
        standin.configure(config);
        let (found, code) = findings(&standin, skels.path(), &["-t", "2", "--vtcm", "1048576"]);
        assert_eq!((code, &found["ok"]), (1, &Value::Bool(false)), "{config}: {found:#}");
        let (outcome, text) = of(&found, check);
        assert_eq!(outcome, "failed", "{config}: {found:#}");
        assert!(text.contains(words) && text.contains(remedy), "{config}: {text}");
        let at = CHECKS.iter().position(|name| *name == check).unwrap();
        for later in &CHECKS[at + 1..] {
            assert_eq!(of(&found, later).0, "not-tried", "{config}: {found:#}");
        }
        for earlier in CHECKS[..at].iter().filter(|name| !["system", "nodes", "selinux"].contains(name)) {
            assert_eq!(of(&found, earlier).0, "ok", "{config}: {found:#}");
        }
    }
}

/// The DSP has folders of its own, so that a library that is in none of those named may be found all the
/// same.
#[test]
fn a_library_that_is_not_seen_is_a_warning() {
    let (standin, nothing) = (StandIn::new(""), TempDir::new().unwrap());
    let (found, code) = findings(&standin, nothing.path(), &[]);
    let (outcome, text) = of(&found, "skel");
    assert!(code == 0 && outcome == "warning" && text.contains("cargo xtask hexagon"), "{found:#}");
    // One that the DSP cannot load is a failure, whatever the DSP would do.
    fs::write(nothing.path().join("libhexflash_skel_v75.so"), "half a file").unwrap();
    let (found, code) = findings(&standin, nothing.path(), &[]);
    assert_eq!(
        (code, of(&found, "skel").0, of(&found, "session").0),
        (1, "failed", "not-tried"),
        "{found:#}"
    );
}

/// A library beside the program needs no option; the lines are for people, and the report for others.
#[test]
fn a_report_does_not_say_whose_device_it_is() {
    let standin = StandIn::new("dsp.HAP_power_set=0x14@1+");
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = dir.path().join("home/of-alice-b");
    fs::create_dir_all(home.join("models")).unwrap();
    // A link: a copy might still be open for writing in the child of another test, and would not start.
    fs::hard_link(built("hexflash-htp"), home.join("hexflash")).unwrap();
    let skels = skels();
    let skel = "libhexflash_skel_v75.so";
    fs::copy(skels.path().join(skel), home.join(skel)).unwrap();
    fs::copy(model("tiny-hybrid-q8_0.gguf"), home.join("models/tiny-hybrid-q8_0.gguf")).unwrap();
    let report = dir.path().join("report.txt");
    let arguments = ["doctor", "--report", report.to_str().unwrap()];
    // The same command, with the program that lies there.
    let asked = standin.hexflash(&arguments);
    let mut command = std::process::Command::new(home.join("hexflash"));
    command.args(asked.get_args()).env("HOME", &home).env("USER", "of-alice-b").env_remove("RUST_LOG");
    for (name, value) in asked.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    for name in ["DSP_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "CDSP_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{lines}{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        format!("\nok         skel       {}/{skel} (DSP_LIBRARY_PATH)\n", home.display()),
        "\nok         dsp        Hexagon v75\n".to_owned(),
        "\nok         self-test  tiny-hybrid-q8_0.gguf: 8 tokens are those of inproc (".to_owned(),
    ] {
        assert!(lines.contains(&line), "{line:?} is not in:\n{lines}");
    }
    let report = fs::read_to_string(report).unwrap();
    assert!(report.contains(&format!("ok         skel       ~/{skel} (DSP_LIBRARY_PATH)\n")), "{report}");
    assert!(report.contains("\n    DSP_LIBRARY_PATH: ~\n"), "{report}");
    // What -vv would show, and what is told only there.
    let log = report.split_once("\nlog:\n").unwrap().1;
    assert!(log.contains("DEBUG the program's folder ~ is put into DSP_LIBRARY_PATH, "), "{report}");
    assert!(log.contains("WARN the DSP refused a vote for power"), "{report}");
    assert!(!report.contains("alice") && report.starts_with("hexflash doctor, version "), "{report}");
}

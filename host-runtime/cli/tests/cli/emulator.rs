//! The device `qemu` from a user's view: the emulator ends with its host, and what is missing is named.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::emulated::{self, Expected};
use super::support::{command, emulator_is_missing, hexflash, model, script};

/// Time that the system may take to end an emulator. One that does not end with its host would run for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|process| {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            status.lines().any(|line| line == format!("PPid:\t{parent}"))
        })
        .collect()
}

#[test]
fn nothing_outlives_a_killed_host() {
    if emulator_is_missing() {
        return;
    }
    for kill in [Signal::KILL, Signal::INT] {
        let model = model("tiny-hybrid-q8_0.gguf");
        let mut host =
            command(&["run", "--device", "qemu", "--threads", "2", "--ignore-eos", "-n", "400", "-m"]);
        host.arg(&model).arg("pub fn").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut host = host.spawn().unwrap();
        // Its first output: the emulator is at work.
        let mut byte = [0; 64];
        let _ = std::io::Read::read(host.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let emulators = children(host.id());
        assert_eq!(emulators.len(), 1, "{kill:?}");
        kill_process(Pid::from_child(&host), kill).unwrap();
        drop(host.stdout.take());
        host.wait().unwrap();
        let start = Instant::now();
        while Path::new(&format!("/proc/{}/exe", emulators[0])).exists() {
            assert!(start.elapsed() < PATIENCE, "{kill:?}: the emulator still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Hexagon code drafts for the host, the host for Hexagon code, and Hexagon code for itself: the same text.
#[test]
fn target_and_draft_model_on_two_devices() {
    if emulator_is_missing() {
        return;
    }
    let draft = model("tiny-hybrid-dflash-q8_0.gguf");
    let run = |device: &str, more: &[&str]| {
        let fixed =
            ["run", "--no-repack-cache", "--json", "--temp", "0", "-n", "6", "-c", "64", "--device", device];
        let target = model("tiny-hybrid-q8_0.gguf");
        let all = [&fixed[..], &["-m", target.to_str().unwrap(), "def f("], more].concat();
        hexflash(&all).succeeded().json()
    };
    let expected = run("inproc", &[]);
    for (device, device_draft) in [("inproc", "qemu"), ("qemu", "inproc"), ("qemu", "qemu")] {
        let placed = ["-md", draft.to_str().unwrap(), "--draft-max", "3", "--device-draft", device_draft];
        let found = run(device, &placed);
        assert_eq!(found["tokens"], expected["tokens"], "{device}+{device_draft}");
        assert!(found["stats"]["speculation"]["rounds"].as_u64().unwrap() > 0, "{found}");
    }
}

/// A file with the header of an image for v73, and one that calls itself the emulator and is not ours.
#[test]
fn float_code_is_not_given_to_a_stock_emulator() {
    let dir = tempfile::tempdir().unwrap();
    let (image, stock) = (dir.path().join("image"), dir.path().join("qemu-hexagon"));
    let mut header = [0; 52];
    header[..4].copy_from_slice(b"\x7fELF");
    header[36] = 0x73;
    std::fs::write(&image, header).unwrap();
    script(&stock, "#!/bin/sh\necho 'qemu-hexagon version 10.0.13 (Debian)'\n");
    let run = |arch: &str| {
        let mut run = command(&["run", "--device", "qemu", "--arch", arch, "-n", "1", "-m"]);
        run.arg(model("tiny-hybrid-q8_0.gguf")).arg("x");
        let output = run.env("HEXFLASH_QEMU_IMAGE", &image).env("HEXFLASH_QEMU", &stock).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = run("v73");
    assert!(text.contains("is a stock emulator") && text.contains("cargo xtask setup emulator"), "{text}");
    let text = run("v79");
    assert!(text.contains("is an image for v73, not for v79"), "{text}");
}

#[test]
fn only_the_emulator_has_a_choice_of_architectures() {
    for (arguments, words) in [
        (["--device", "inproc", "--arch", "v73"], "device inproc has no choice of an architecture (--arch)"),
        (["--device", "qemu", "--arch", "v71"], "the versions are v67, v68, v69, v73, v75, v79, v81"),
    ] {
        let outcome = super::support::run(&[&arguments[..], &["-n", "1", "x"]].concat());
        assert!(outcome.code == Some(2) && outcome.stderr.contains(words), "{outcome:?}");
    }
}

/// Every op by its name and weight; and of phones' code the transfers of its engines, in between.
#[test]
fn a_trace_names_ops_and_transfers() {
    if emulator_is_missing() {
        return;
    }
    let trace = |arch: &str| {
        let mut run = command(&["run", "--device", "qemu", "--arch", arch, "--threads", "1", "--trace"]);
        run.args(["-n", "2", "-m"]).arg(model("tiny-hybrid-q8_0.gguf")).arg("pub fn");
        let output = run.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let count = |text: &str, words: &str| text.lines().filter(|line| line.contains(words)).count();
    let (done, text) = trace("v67");
    assert!(done, "{text}");
    // Of two steps, and some with neither weight nor memory to move.
    assert!(count(&text, "MUL_MAT with blk.0.") >= 2 && count(&text, "ARGMAX") >= 1, "{text}");
    assert_eq!(count(&text, "dma: "), 0, "{text}");

    let (done, text) = trace("v73");
    if !done && emulated::expected("v73") == Expected::Perhaps {
        assert!(text.contains("not there"), "{text}");
        return;
    }
    assert!(done, "{text}");
    let first = text.lines().position(|line| line.starts_with("dma: thread 0 descriptor ")).unwrap();
    let op = text.lines().position(|line| line.contains(", op 0: ")).unwrap();
    assert!(op < first && count(&text, "dma: ") > 100, "{text}");
}

#[test]
fn only_the_emulator_has_a_trace() {
    let outcome = super::support::run(&["--trace", "-n", "1", "x"]);
    let words = "device inproc has no trace (--trace): only qemu sees each op; leave it out";
    assert!(outcome.code == Some(2) && outcome.stderr.contains(words), "{outcome:?}");
}

#[test]
fn what_is_missing_is_named_with_a_remedy() {
    // The header of an ELF file for v67, up to its flags: without an image, that would be what is missing.
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("hexflash-v67");
    fs::write(&image, [&b"\x7fELF"[..], &[0; 32], &0x67_u32.to_le_bytes()].concat()).unwrap();
    let run = |name: &str, value: &str| {
        let mut devices = command(&["devices"]);
        let output = devices.env("HEXFLASH_QEMU_IMAGE", &image).env(name, value).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run("HEXFLASH_QEMU", "/nowhere/qemu-hexagon");
    assert!(text.contains("not available: device qemu: HEXFLASH_QEMU names /nowhere/qemu-hexagon"), "{text}");
    let text = run("PATH", "/nowhere");
    assert!(text.contains("qemu-hexagon is not on PATH") && text.contains("install it"), "{text}");
}

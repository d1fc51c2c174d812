//! The device `qemu` from a user's view: the emulator ends with its host, and what is missing is named.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{command, emulator_is_missing, model};

/// How soon an end must be noticed.
const SOON: Duration = Duration::from_secs(2);

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
            assert!(start.elapsed() < SOON, "{kill:?}: the emulator still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn what_is_missing_is_named_with_a_remedy() {
    let run = |name: &str, value: &str| {
        let output = command(&["devices"]).env(name, value).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run("HEXFLASH_QEMU", "/nowhere/qemu-hexagon");
    assert!(text.contains("not available: device qemu: HEXFLASH_QEMU names /nowhere/qemu-hexagon"), "{text}");
    let text = run("PATH", "/nowhere");
    assert!(text.contains("qemu-hexagon is not on PATH") && text.contains("install it"), "{text}");
}

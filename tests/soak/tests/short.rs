//! The program for half a minute, on every device that is there, for a third of a minute on the server, and
//! with some hundred connections to it: nothing is wrong.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Runs look for shared files that are left over, also those of the other.
static ALONE: Mutex<()> = Mutex::new(());

/// The report of a run.
fn soak(arguments: &[&str]) -> serde_json::Value {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(env!("CARGO_BIN_EXE_hexflash-soak")).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn half_a_minute() {
    // Always the same sessions; what happens when in them differs.
    let mut arguments = vec!["--minutes", "0.5", "--seed", "1", "--json"];
    if std::env::var_os("HEXFLASH_EMULATED").is_some_and(|built| !built.is_empty()) {
        arguments.extend(["--device", "inproc", "--device", "htp", "--device", "qemu"]);
    }
    let report = soak(&arguments);
    assert!(report["generations"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn the_server_for_twenty_seconds() {
    let report = soak(&["--server", "--minutes", "0.33", "--seed", "1", "--json"]);
    assert_eq!(report["crashes"], 2, "{report}");
    assert!(report["complete"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_crowd_leaves_nothing_behind() {
    let report = soak(&["--crowd", "400", "--seed", "1", "--json"]);
    assert!(report["requests"].as_u64().unwrap() > 1000, "{report}");
    assert_eq!(report["descriptors_after"], report["descriptors_before"], "{report}");
}

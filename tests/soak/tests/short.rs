//! The program for half a minute: on every device that is there, nothing is wrong.
#![cfg(target_os = "linux")]

use std::process::Command;

#[test]
fn half_a_minute() {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_hexflash-soak"));
    // Always the same sessions; what happens when in them differs.
    soak.args(["--minutes", "0.5", "--seed", "1", "--json"]);
    if std::env::var_os("HEXFLASH_QEMU_REQUIRED").is_some() {
        soak.args(["--device", "inproc", "--device", "htp", "--device", "qemu"]);
    }
    let output = soak.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["generations"].as_u64().unwrap() > 0, "{report}");
}

//! `hexflash doctor` without a DSP: on a machine that has no library of the vendor's, and on one that adb
//! reaches. Checks of a DSP are in tests/cdsprpc.

use std::fs;
use std::os::unix::fs::symlink;

use crate::deploy::Bench;
use crate::support::{Outcome, command, hexflash, outcome, text};

/// The first two words of each line.
fn outcomes(lines: &str) -> Vec<(String, String)> {
    let words = |line: &str| {
        let (outcome, rest) = line.split_at_checked(11)?;
        Some((outcome.trim().to_owned(), rest.split_whitespace().next()?.to_owned()))
    };
    lines.lines().filter_map(words).collect()
}

#[track_caller]
fn has_no_library(outcome: &Outcome) {
    assert_eq!(outcome.code, Some(1), "{outcome:#?}");
    let lines = outcomes(&outcome.stdout);
    for (check, expected) in [("library", "failed"), ("nodes", "warning"), ("session", "not tried")] {
        assert!(lines.contains(&(expected.to_owned(), check.to_owned())), "{check}: {outcome:#?}");
    }
    assert!(outcome.stdout.contains("was not found; run on a Snapdragon device"), "{outcome:#?}");
    let last = outcome.stdout.lines().last();
    assert_eq!(last, Some("library failed; what needs it was not tried"), "{outcome:#?}");
}

/// `hexflash doctor` where the loader looks into no folder of cargo's, in which the stand-in for the vendor's
/// library may lie.
fn here(arguments: &[&str]) -> Outcome {
    let arguments = [&["doctor"], arguments].concat();
    outcome(command(&arguments).env_remove("LD_LIBRARY_PATH").output().unwrap(), &arguments)
}

#[test]
fn a_machine_without_the_vendors_library_is_told_so() {
    let outcome = here(&[]);
    has_no_library(&outcome);
    assert_eq!(outcome.stderr, "");
    if cfg!(target_arch = "x86_64") {
        assert!(outcome.stdout.contains("this is no Snapdragon; for a phone on USB"), "{outcome:#?}");
    }
    let json = here(&["--json"]).json();
    assert_eq!((&json["ok"], json["steps"].as_array().unwrap().len()), (&false.into(), 9), "{json}");
    // A library that is none.
    let named = here(&["--htp-library", "/bin/sh"]);
    assert_eq!(named.code, Some(1), "{named:#?}");
    assert!(named.stdout.contains("failed     library    /bin/sh "), "{named:#?}");
}

#[test]
fn mistakes_are_told_before_anything_is_checked() {
    for (arguments, cause) in [
        (&["--device", "qemu"][..], "invalid value 'qemu'"),
        (&["--serial", "R58", "-t", "3"], "'--serial <SERIAL>' cannot be used with"),
        (&["--adb", "adb", "--htp-library", "x"], "'--adb <FILE>' cannot be used with"),
    ] {
        hexflash(&[&["doctor"], arguments].concat()).failed(2, cause, "see hexflash --help");
    }
    let outcome = here(&["--report", "/nowhere/at/all"]);
    assert_eq!(outcome.code, Some(2), "{outcome:#?}");
    assert!(outcome.stderr.contains("cannot write the report /nowhere/at/all"), "{outcome:#?}");
}

/// The real program on a device that is a folder of this machine.
fn bench() -> Bench {
    let bench = Bench::new();
    fs::remove_file(bench.path("dist/hexflash")).unwrap();
    symlink(env!("CARGO_BIN_EXE_hexflash"), bench.path("dist/hexflash")).unwrap();
    let getprop = "case $1 in ro.serialno) echo R58SECRET ;; ro.soc.model) echo SM8650 ;; \
                   ro.board.platform) echo pineapple ;; esac";
    bench.script("adb/bin/getprop", &format!("#!/bin/sh\n{getprop}\n"));
    bench.script("adb/bin/getenforce", "#!/bin/sh\necho Enforcing\n");
    let denial = "11-29 E avc: denied { open } for comm=\"hexflash\" name=\"R58SECRET\" permissive=0";
    bench.script("adb/bin/logcat", &format!("#!/bin/sh\necho '{denial}'\n"));
    bench
}

fn doctor(bench: &Bench, rest: &[&str]) -> Outcome {
    let [adb, dist, to] = ["adb/adb", "dist", "device"].map(|name| bench.path(name));
    let paths = ["--adb", text(&adb), "--dist", text(&dist), "--to", text(&to)];
    hexflash(&[&["doctor", "--serial", "R58"], &paths[..], rest].concat())
}

/// Named by its serial number, or as a command of `deploy`.
#[test]
fn the_doctor_goes_to_a_device_that_adb_reaches() {
    let bench = bench();
    let there = doctor(&bench, &[]);
    has_no_library(&there);
    assert!(there.stdout.contains("Snapdragon 8 Gen 3 (SM8650), which has Hexagon v75"), "{there:#?}");
    assert!(there.stderr.contains("pushed to "), "{there:#?}");
    assert!(doctor(&bench, &["--json"]).json()["steps"].is_array());
    let [adb, dist, to] = ["adb/adb", "dist", "device"].map(|name| bench.path(name));
    let deploy = ["deploy", "--adb", text(&adb), "--dist", text(&dist), "--to", text(&to), "--", "doctor"];
    has_no_library(&hexflash(&deploy));
}

#[test]
fn a_report_from_a_device_lies_here_without_its_serial_number() {
    let (bench, selinux) = (bench(), std::path::Path::new("/sys/fs/selinux/enforce").exists());
    let report = bench.path("report.txt");
    let printed = doctor(&bench, &["--report", text(&report)]);
    has_no_library(&printed);
    let report = fs::read_to_string(report).unwrap();
    for text in [&report, &printed.stdout] {
        assert!(!text.contains("R58"), "{text}");
        assert!(
            selinux || text.contains("avc: denied { open } for comm=\"hexflash\" name=\"SERIAL\""),
            "{text}"
        );
    }
    assert!(
        report.starts_with("hexflash doctor, version ")
            && report.contains("    ro.board.platform pineapple\n"),
        "{report}"
    );
    // A doctor that ends before its end.
    bench.hook("case $5 in *'exec ./hexflash '*)\nexit 139;; esac\n");
    let (lost, file) = (bench.path("lost.txt"), bench.path("lost.txt"));
    let outcome = doctor(&bench, &["--report", text(&lost)]);
    assert_eq!(outcome.code, Some(1), "{outcome:#?}");
    assert!(outcome.stderr.contains("the doctor on the device did not come to its end"), "{outcome:#?}");
    assert!(!file.exists());
}

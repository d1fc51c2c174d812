//! Which program `hexflash deploy` pushes, and to which devices none.

use std::fs;
use std::path::Path;

use crate::deploy::Bench;
use crate::support::{Outcome, command, model, outcome, text};

/// A device, by what it says of itself.
struct Device {
    machine: &'static str,
    /// Properties of Android and their values; none on other systems.
    properties: &'static [(&'static str, &'static str)],
    page: &'static str,
    /// Files of the device: loaders, and what the kernel says.
    files: &'static [(&'static str, &'static str)],
}

const ANDROID: &str = "/system/bin/linker64";
const GLIBC: &str = "/lib/ld-linux-aarch64.so.1";
const MUSL: &str = "/lib/ld-musl-aarch64.so.1";

/// The beginning of a program for arm64, with its loader.
fn program(interpreter: &str) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[18..20].copy_from_slice(&183u16.to_le_bytes());
    (file[32], file[54], file[56], file[64], file[72]) = (64, 56, 1, 3, 120);
    file[96] = interpreter.len() as u8 + 1;
    file.extend(interpreter.bytes().chain([0]));
    file
}

/// adb with such a device, and both folders of programs that `cargo xtask dist` makes.
fn bench(device: &Device) -> Bench {
    let bench = Bench::new();
    bench.script("adb/bin/uname", &format!("#!/bin/sh\necho {}\n", device.machine));
    let cases: String =
        device.properties.iter().map(|(name, value)| format!("{name}) echo {value} ;;\n")).collect();
    let getprop = if cases.is_empty() { "exit 127".to_owned() } else { format!("case $1 in\n{cases}esac") };
    bench.script("adb/bin/getprop", &format!("#!/bin/sh\n{getprop}\n"));
    bench.script("adb/bin/getconf", &format!("#!/bin/sh\necho {}\n", device.page));
    fs::create_dir(bench.path("adb/root")).unwrap();
    for (file, text) in device.files {
        let path = bench.path(&format!("adb/root{file}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for (target, interpreter) in [("aarch64-linux-android", ANDROID), ("aarch64-unknown-linux-gnu", GLIBC)] {
        let dist = format!("target/dist/{target}");
        fs::create_dir_all(bench.path(&dist).join("models")).unwrap();
        bench.write(&format!("{dist}/hexflash"), &program(interpreter));
        bench.write(&format!("{dist}/libhexflash_skel_v75.so"), b"a skel");
    }
    bench.hook("case $5 in *'exec ./hexflash '*)\necho ran\nexit;; esac\n");
    bench
}

/// `hexflash deploy` in a folder with `target/dist`.
fn deploy(bench: &Bench, rest: &[&str]) -> Outcome {
    let (adb, to) = (bench.path("adb/adb"), bench.path("device"));
    let arguments = [&["deploy", "--adb", text(&adb), "--to", text(&to)], rest].concat();
    outcome(command(&arguments).current_dir(bench.path("")).output().unwrap(), &arguments)
}

#[track_caller]
fn pushes(bench: &Bench, target: &str, system: &str) {
    let ran = deploy(bench, &["--", "devices"]).succeeded();
    assert_eq!(ran.stdout, "ran\n", "{ran:?}");
    assert_eq!(ran.stderr.lines().next(), Some(&*format!("[R58: {system}]")), "{ran:?}");
    let there = fs::read(bench.path("device/hexflash")).unwrap();
    assert!(there == fs::read(bench.path(&format!("target/dist/{target}/hexflash"))).unwrap(), "{target}");
}

#[track_caller]
fn refuses(device: &Device, cause: &str, remedy: &str) {
    let bench = bench(device);
    deploy(&bench, &["--", "devices"]).failed(2, cause, remedy);
    assert!(!bench.path("device").exists());
}

const PHONE: Device = Device {
    machine: "aarch64",
    properties: &[
        ("ro.product.cpu.abi", "arm64-v8a"),
        ("ro.build.version.sdk", "34"),
        ("ro.build.version.release", "14"),
        ("ro.soc.model", "SM8650"),
        ("ro.board.platform", "pineapple"),
    ],
    page: "4096",
    files: &[(ANDROID, "")],
};

#[test]
fn android_gets_the_program_for_android_from_api_28_on() {
    pushes(
        &bench(&PHONE),
        "aarch64-linux-android",
        "Android 14 (API 34), pages of 4 KiB; Snapdragon 8 Gen 3 (SM8650), Hexagon v75: \
         libhexflash_skel_v75.so",
    );
    // The oldest: its property of the chip is not there yet.
    let oldest = Device {
        properties: &[
            ("ro.product.cpu.abi", "arm64-v8a"),
            ("ro.build.version.sdk", "28"),
            ("ro.build.version.release", "9"),
            ("ro.board.platform", "msmnile"),
        ],
        ..PHONE
    };
    let system = "Android 9 (API 28), pages of 4 KiB; a chip of platform msmnile, the DSP says which library \
         it needs";
    pushes(&bench(&oldest), "aarch64-linux-android", system);
    let older = Device {
        properties: &[("ro.product.cpu.abi", "arm64-v8a"), ("ro.build.version.sdk", "26")],
        ..PHONE
    };
    refuses(&older, "Android of API 26, and hexflash needs 28", "update its system");
}

#[test]
fn a_board_with_glibc_gets_the_program_for_linux() {
    let board = Device {
        machine: "aarch64",
        properties: &[],
        page: "4096",
        files: &[(GLIBC, ""), ("/sys/devices/soc0/machine", "QCS6490\n")],
    };
    let system = "Linux on aarch64, pages of 4 KiB; Snapdragon QCS6490 (QCS6490), Hexagon v68: \
         libhexflash_skel_v68.so, which is not there";
    pushes(&bench(&board), "aarch64-unknown-linux-gnu", system);
}

#[test]
fn devices_that_no_program_is_for_are_told_why() {
    let musl = Device { machine: "aarch64", properties: &[], page: "4096", files: &[(MUSL, "")] };
    refuses(&musl, "musl as its C library, and there is no program", "glibc");
    let emulator = Device {
        machine: "x86_64",
        properties: &[("ro.product.cpu.abi", "x86_64"), ("ro.build.version.sdk", "34")],
        ..PHONE
    };
    refuses(&emulator, "Android on x86_64, as emulators do, and has no NPU", "connect a phone");
    let narrow = Device {
        properties: &[("ro.product.cpu.abi", "armeabi-v7a"), ("ro.build.version.sdk", "30")],
        ..PHONE
    };
    refuses(&narrow, "Android is for armeabi-v7a", "arm64-v8a");
    let pc = Device { machine: "x86_64", properties: &[], page: "4096", files: &[] };
    refuses(&pc, "the device is x86_64", "--dist DIR");
    refuses(&Device { machine: "aarch64", ..pc }, "no loader for programs", "--dist DIR");
}

/// A missing folder is told with the command that makes it; and a folder that is named is taken, and checked.
#[test]
fn a_folder_that_is_not_built_is_told_with_its_command() {
    let phone = bench(&PHONE);
    let dist = phone.path("target/dist/aarch64-linux-android");
    let deploy = |rest: &[&str]| deploy(&phone, &[rest, &["--", "devices"]].concat());
    fs::remove_file(dist.join("libhexflash_skel_v75.so")).unwrap();
    deploy(&[]).failed(
        2,
        "no library for the DSP in target/dist/aarch64-linux-android",
        "cargo xtask hexagon",
    );
    fs::remove_dir_all(&dist).unwrap();
    deploy(&[]).failed(2, "no program hexflash in", "`cargo xtask dist --android`");
    let linux = phone.path("target/dist/aarch64-unknown-linux-gnu");
    deploy(&["--dist", text(&linux)]).failed(2, "needs /lib/ld-linux-aarch64.so.1", "--dist DIR");
    // A model that is none is told of before the device is asked.
    let _ = fs::remove_file(phone.path("adb/log"));
    deploy(&["-m", text(&model("README.md"))]).failed(2, "README.md", "; ");
    assert!(!Path::new(&phone.path("adb/log")).exists());
}

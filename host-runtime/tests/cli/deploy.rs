//! `hexflash deploy`, with a script that plays adb and a device that is a folder.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::signalled::Running;
use crate::support::{Outcome, command, hexflash, model, text};

/// What `hexflash deploy` pushes at once.
const PIECE: usize = 16 << 20;

/// adb, what it is to do, and what there is to deploy. The program is a shell: its arguments say what it does.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: TempDir::new().unwrap() };
        fs::create_dir_all(bench.path("dist")).unwrap();
        fs::create_dir_all(bench.path("adb/bin")).unwrap();
        bench.script("adb/adb", include_str!("adb.sh"));
        bench.write("adb/devices", b"R58\tdevice\n");
        fs::copy("/bin/sh", bench.path("dist/hexflash")).unwrap();
        for version in [73, 75] {
            bench.write(&format!("dist/libhexflash_skel_v{version}.so"), &[version; 3000]);
        }
        bench.write("dist/libother.so", b"not for the device");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn script(&self, name: &str, script: &str) {
        self.write(name, script.as_bytes());
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A model that takes several pieces: the shipped one, with bytes behind its last tensor.
    fn large_model(&self, name: &str, bytes: usize) -> PathBuf {
        let mut file = fs::read(model("tiny-hybrid-q8_0.gguf")).unwrap();
        file.extend((file.len()..bytes).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8));
        self.write(name, &file);
        self.path(name)
    }

    fn arguments<'a>(&'a self, paths: &'a [PathBuf; 3], rest: &[&'a str]) -> Vec<&'a str> {
        let [adb, dist, to] = paths;
        [&["deploy", "--adb", text(adb), "--dist", text(dist), "--to", text(to)], rest].concat()
    }

    fn paths(&self) -> [PathBuf; 3] {
        ["adb/adb", "dist", "device"].map(|name| self.path(name))
    }

    fn deploy(&self, rest: &[&str]) -> Outcome {
        hexflash(&self.arguments(&self.paths(), rest))
    }

    /// Pieces that were pushed since the last call.
    fn pieces(&self) -> usize {
        let log = fs::read_to_string(self.path("adb/log")).unwrap_or_default();
        let _ = fs::remove_file(self.path("adb/log"));
        log.lines().filter(|line| line.contains("cat >> ")).count()
    }

    #[track_caller]
    fn same(&self, name: &str, original: &Path) {
        assert!(fs::read(self.path("device").join(name)).unwrap() == fs::read(original).unwrap(), "{name}");
        assert!(!self.path("device").join(format!("{name}.part")).exists());
    }
}

const NOTHING: [&str; 3] = ["--", "-c", "true"];

#[test]
fn files_are_pushed_once_and_the_command_runs() {
    let bench = Bench::new();
    let script =
        "echo $PWD $DSP_LIBRARY_PATH $ADSP_LIBRARY_PATH $LD_LIBRARY_PATH; cat; echo 'it'\"'\"'s' >&2; exit 7";
    let outcome = crate::support::hexflash_reading(
        b"from here",
        &bench.arguments(&bench.paths(), &["--", "-c", script]),
    );
    let device = bench.path("device");
    let device = text(&device);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    assert_eq!(outcome.stdout, format!("{device} {device} {device} {device}\nfrom here"));
    let names = "hexflash, libhexflash_skel_v73.so, libhexflash_skel_v75.so";
    assert_eq!(outcome.stderr, format!("pushed to {device}: {names} (0 were there)\nit's\n"));
    assert_eq!(bench.pieces(), 3);
    bench.same("libhexflash_skel_v75.so", &bench.path("dist/libhexflash_skel_v75.so"));
    assert!(!bench.path("device/libother.so").exists());
    let rights = fs::metadata(bench.path("device/hexflash")).unwrap().permissions().mode();
    assert_eq!(rights & 0o777, 0o755);

    // Another library of the same size, and a model.
    bench.write("dist/libhexflash_skel_v73.so", &[1; 3000]);
    let target = model("tiny-hybrid-q4_0.gguf");
    let outcome = bench.deploy(&[&["-m", text(&target)], &NOTHING[..]].concat()).succeeded();
    let pushed = "libhexflash_skel_v73.so, models/tiny-hybrid-q4_0.gguf (2 were there)";
    assert_eq!(outcome.stderr, format!("pushed to {device}: {pushed}\n"));
    assert_eq!(bench.pieces(), 2);
    bench.same("libhexflash_skel_v73.so", &bench.path("dist/libhexflash_skel_v73.so"));
    bench.same("models/tiny-hybrid-q4_0.gguf", &target);
    let outcome = bench.deploy(&[&["-m", text(&target)], &NOTHING[..]].concat()).succeeded();
    assert_eq!(outcome.stderr, format!("nothing to push: all 4 files are in {device}\n"));
    assert_eq!(bench.pieces(), 0);
}

/// The real program, as far as it runs here: it finds the model that was pushed.
#[test]
fn hexflash_itself_runs_there() {
    let bench = Bench::new();
    fs::remove_file(bench.path("dist/hexflash")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hexflash"), bench.path("dist/hexflash")).unwrap();
    let (target, draft) = (model("tiny-hybrid-q8_0.gguf"), model("tiny-hybrid-dflash-q8_0.gguf"));
    let models = ["-m", text(&target), "-md", text(&draft), "--"];
    let words = ["run", "--json", "--temp", "0", "-n", "8", "--draft-max", "3", "def f(it's):"];
    let there = bench.deploy(&[&models[..], &words].concat()).succeeded().json();
    let mut here = command(&words);
    here.args(["-m", text(&target), "-md", text(&draft), "--no-repack-cache"]);
    let here: serde_json::Value = serde_json::from_slice(&here.output().unwrap().stdout).unwrap();
    assert_eq!(there["tokens"], here["tokens"]);
    assert!(
        bench.path("device/models/tiny-hybrid-q8_0.gguf.hfcache").exists(),
        "it ran in the device's folder"
    );
}

#[test]
fn a_push_that_was_cut_off_goes_on_where_it_was() {
    let bench = Bench::new();
    let large = bench.large_model("large.gguf", 2 * PIECE + 5_000_000);
    let deploy = || bench.deploy(&[&["-m", text(&large)], &NOTHING[..]].concat());
    // Three files, then three pieces of the model: the second of them is cut off, and the next command's first.
    bench.write("adb/cut-5", (PIECE / 2).to_string().as_bytes());
    deploy().failed_after("connection to device R58 broke (error: closed)", "goes on where it was");
    assert_eq!(
        fs::metadata(bench.path("device/models/large.gguf.part")).unwrap().len() as usize,
        PIECE * 3 / 2
    );
    assert!(!bench.path("device/models/large.gguf").exists());
    bench.pieces();
    bench.write("adb/cut-1", b"0");
    deploy().failed_after("broke", "goes on");
    bench.pieces();
    fs::remove_file(bench.path("adb/cut-1")).unwrap();
    let outcome = deploy().succeeded();
    assert!(outcome.stderr.contains("models/large.gguf: going on at 16 of 37 MiB"), "{outcome:?}");
    assert_eq!(bench.pieces(), 2);
    bench.same("models/large.gguf", &large);
}

/// What an earlier push left is only used as far as it is right.
#[test]
fn what_is_left_of_another_file_is_not_used() {
    let bench = Bench::new();
    let large = bench.large_model("large.gguf", 2 * PIECE + 1);
    let mut part = fs::read(&large).unwrap();
    part[PIECE + 3] ^= 1;
    part.extend([0; 100]);
    fs::create_dir_all(bench.path("device/models")).unwrap();
    bench.write("device/models/large.gguf.part", &part);
    bench.deploy(&[&["-m", text(&large)], &NOTHING[..]].concat()).succeeded();
    assert_eq!(bench.pieces(), 3 + 2);
    bench.same("models/large.gguf", &large);
}

#[test]
fn a_damaged_piece_is_sent_again() {
    let bench = Bench::new();
    bench.write("adb/bad-1", b"");
    bench.write("adb/bad-3", b"");
    bench.deploy(&NOTHING).succeeded();
    assert_eq!(bench.pieces(), 5);
    bench.same("hexflash", &bench.path("dist/hexflash"));
    bench.write("dist/libhexflash_skel_v75.so", &[1; 10]);
    for n in 1..=3 {
        bench.write(&format!("adb/bad-{n}"), b"");
    }
    bench.deploy(&NOTHING).failed(
        1,
        "libhexflash_skel_v75.so: what the device has at byte 0",
        "another cable",
    );
    assert_eq!(bench.pieces(), 3);
}

#[test]
fn a_device_without_room_is_told_of_before_the_push_and_in_it() {
    let bench = Bench::new();
    let df = "echo Filesystem 1024-blocks Used Available Capacity Mounted\necho /dev/block/dm-5 100 50 50 50% /data";
    bench.script("adb/bin/df", &format!("#!/bin/sh\n{df}\n"));
    bench.deploy(&NOTHING).failed(1, "has room for 0 MiB, and 1 MiB are missing", "delete something");
    assert_eq!(bench.pieces(), 0);
    fs::remove_file(bench.path("adb/bin/df")).unwrap();
    bench.script("adb/bin/cat", "#!/bin/sh\necho 'cat: write: No space left on device' >&2\nexit 1\n");
    bench.deploy(&NOTHING).failed(1, "is full (cat: write: No space left on device)", "goes on where it was");
    fs::remove_file(bench.path("adb/bin/cat")).unwrap();
    bench.deploy(&NOTHING).succeeded();
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let bench = Bench::new();
    bench
        .script("adb/bin/mkdir", "#!/bin/sh\necho \"mkdir: '/device': Read-only file system\" >&2\nexit 1\n");
    bench.deploy(&NOTHING).failed(
        1,
        "device on the device (mkdir: '/device': Read-only file system)",
        "--to DIR",
    );
    fs::remove_file(bench.path("adb/bin/mkdir")).unwrap();
    bench.script("adb/bin/truncate", "#!/bin/sh\necho 'truncate: Permission denied' >&2\nexit 1\n");
    bench.deploy(&NOTHING).failed(1, "(truncate: Permission denied)", "--to DIR");
    let [adb, dist, _] = bench.paths();
    let arguments = ["deploy", "--adb", text(&adb), "--dist", text(&dist), "--to", "hexflash"];
    hexflash(&arguments).failed(2, "--to hexflash is no full path", "/data/local/tmp");
}

#[test]
fn devices_that_cannot_be_used_are_told_apart() {
    let bench = Bench::new();
    for (devices, more, code, cause, remedy) in [
        ("", &[][..], 1, "adb sees no device", "USB debugging"),
        ("a\tdevice\nb\tdevice\n", &[], 2, "several devices (a, b)", "--serial"),
        ("a\tdevice\n", &["--serial", "b"], 2, "no device b; there is a", "--serial"),
        ("a\tunauthorized\n", &[], 1, "device a does not trust", "unlock"),
        ("a\toffline\n", &[], 1, "device a is offline", "reconnect"),
        ("a\trecovery\n", &[], 1, "device a is not ready (adb says \"recovery\")", "start its system"),
    ] {
        bench.write("adb/devices", devices.as_bytes());
        bench.deploy(&[more, &NOTHING[..]].concat()).failed(code, cause, remedy);
        assert!(!bench.path("device").exists());
    }
    bench.write("adb/devices", b"a\tdevice\nb\tdevice\n");
    bench.deploy(&[&["--serial", "b"], &NOTHING[..]].concat()).succeeded();
    let mut by_environment = command(&bench.arguments(&bench.paths(), &NOTHING));
    assert!(by_environment.env("ANDROID_SERIAL", "a").output().unwrap().status.success());
    let [_, dist, to] = bench.paths();
    let arguments = ["deploy", "--adb", "no-such-adb", "--dist", text(&dist), "--to", text(&to)];
    hexflash(&arguments).failed(1, "cannot start no-such-adb", "platform-tools");
    bench.script("adb/adb", "#!/bin/sh\necho 'adb: failed to start daemon' >&2\nexit 1\n");
    bench.deploy(&NOTHING).failed(1, "adb failed (adb: failed to start daemon)", "kill-server");
}

#[test]
fn what_cannot_run_there_is_not_pushed() {
    let bench = Bench::new();
    bench.script("adb/bin/uname", "#!/bin/sh\necho riscv64\n");
    bench.deploy(&NOTHING).failed(2, "and the device is riscv64", "--dist DIR");
    fs::remove_file(bench.path("adb/bin/uname")).unwrap();
    // The same program, with a loader that is not there.
    let program = fs::read(bench.path("dist/hexflash")).unwrap();
    let at = program.windows(5).position(|w| w == b"/lib6" || w == b"/lib/").unwrap();
    let changed = [&program[..at], b"/bad", &program[at + 4..]].concat();
    bench.write("dist/hexflash", &changed);
    bench.deploy(&NOTHING).failed(2, "which the device does not have", "Android");
    bench.write("dist/hexflash", b"#!/bin/sh\n");
    bench.deploy(&NOTHING).failed(2, "hexflash is no 64-bit program", "cargo xtask dist");
    fs::remove_file(bench.path("dist/hexflash")).unwrap();
    bench.deploy(&NOTHING).failed(2, "there is no program hexflash in", "cargo xtask dist");
    fs::copy("/bin/sh", bench.path("dist/hexflash")).unwrap();
    for version in [73, 75] {
        fs::remove_file(bench.path(&format!("dist/libhexflash_skel_v{version}.so"))).unwrap();
    }
    bench.deploy(&NOTHING).failed(2, "there is no library for the DSP in", "cargo xtask hexagon");
    let bench = Bench::new();
    bench.write("bad.gguf", b"GGUF?");
    let bad = bench.path("bad.gguf");
    let outcome = bench.deploy(&[&["-m", text(&bad)], &NOTHING[..]].concat());
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(!bench.path("device").exists());
}

/// No adb is left behind that runs on without the command that started it.
#[test]
fn a_signal_reaches_the_command_on_the_device() {
    let bench = Bench::new();
    let paths = bench.paths();
    let arguments = bench.arguments(&paths, &["--", "-c", "echo started; exec sleep 60"]);
    let mut running = Running::start(command(&arguments));
    let mut started = [0; 8];
    running.child().stdout.as_mut().unwrap().read_exact(&mut started).unwrap();
    running.send(Signal::TERM);
    let ended = running.end(Signal::TERM);
    assert_eq!((ended.code, &started), (Err(Signal::TERM.as_raw()), b"started\n"), "{ended:#?}");
}

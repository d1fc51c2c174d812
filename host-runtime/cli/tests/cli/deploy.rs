//! `hexflash deploy`, with a script that plays adb and a device that is a folder.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::signalled::Running;
use crate::support::{Outcome, command, hexflash, model, outcome, script, text};

/// What `hexflash deploy` pushes at once.
const PIECE: usize = 16 << 20;

/// adb, what it is to do, and what there is to deploy. The program does nothing, and does it well.
pub struct Bench {
    dir: TempDir,
}

impl Bench {
    pub fn new() -> Self {
        let bench = Self { dir: TempDir::new().unwrap() };
        fs::create_dir_all(bench.path("dist")).unwrap();
        fs::create_dir_all(bench.path("adb/bin")).unwrap();
        bench.script("adb/adb", include_str!("adb.sh"));
        bench.write("adb/devices", b"R58\tdevice\n");
        fs::copy("/bin/true", bench.path("dist/hexflash")).unwrap();
        for version in [73, 75] {
            bench.write(&format!("dist/libhexflash_skel_v{version}.so"), &[version; 3000]);
        }
        bench.write("dist/libother.so", b"not for the device");
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub fn script(&self, name: &str, text: &str) {
        script(&self.path(name), text);
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
        without_system(hexflash(&self.arguments(&self.paths(), rest)))
    }

    /// Deployment that could hang or take all memory: it is ended after a minute, and has 2 GiB of address
    /// space.
    fn bounded(&self, rest: &[&str]) -> Outcome {
        let paths = self.paths();
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -v 2097152; exec timeout 60 \"$@\"", "sh", env!("CARGO_BIN_EXE_hexflash")]);
        let output = shell.args(self.arguments(&paths, rest)).env_remove("RUST_LOG").output().unwrap();
        without_system(outcome(output, rest))
    }

    /// What adb does first in every call: lines of its shell.
    pub fn hook(&self, script: &str) {
        self.write("adb/hook", script.as_bytes());
    }

    /// What adb does first when a piece is pushed.
    fn hook_push(&self, script: &str) {
        self.hook(&format!("case $5 in *'cat >> '*)\n{script}\n;; esac\n"));
    }

    /// The last command that ran on the device.
    fn last_command(&self) -> String {
        let log = fs::read_to_string(self.path("adb/log")).unwrap();
        log.lines().last().unwrap().split_once("exec ./hexflash ").unwrap().1.to_owned()
    }

    /// A model on the device, by its file's name. It lies in a folder that is named after its contents.
    fn there(&self, name: &str) -> PathBuf {
        let folders = fs::read_dir(self.path("device/models")).unwrap().map(|entry| entry.unwrap().path());
        let mut files = folders.map(|folder| folder.join(name)).filter(|path| path.exists());
        let file = files.next().unwrap_or_else(|| panic!("there is no {name} on the device"));
        assert_eq!(files.next(), None);
        file
    }

    /// Pieces that were pushed since the log was last removed.
    fn pieces_kept(&self) -> usize {
        let log = fs::read_to_string(self.path("adb/log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("cat >> ")).count()
    }

    /// Pieces that were pushed since the last call.
    fn pieces(&self) -> usize {
        let pieces = self.pieces_kept();
        let _ = fs::remove_file(self.path("adb/log"));
        pieces
    }

    #[track_caller]
    fn same(&self, there: &Path, original: &Path) {
        assert!(fs::read(there).unwrap() == fs::read(original).unwrap(), "{}", there.display());
        assert!(!Path::new(&format!("{}.part", text(there))).exists());
    }
}

/// Drops the line that says what the device is: a test of its own has that.
fn without_system(mut outcome: Outcome) -> Outcome {
    if outcome.stderr.starts_with("[R58: ") {
        outcome.stderr = outcome.stderr.split_once('\n').unwrap().1.to_owned();
    }
    outcome
}

const NOTHING: [&str; 2] = ["--", "devices"];

/// Limit of adb's waiting: more than a script takes on a machine with other work.
const PATIENCE: [&str; 2] = ["--timeout", "3"];

#[test]
fn files_are_pushed_once_and_the_command_runs() {
    let bench = Bench::new();
    // A shell, which takes the command `run` for a script in its folder.
    fs::copy("/bin/sh", bench.path("dist/hexflash")).unwrap();
    fs::create_dir(bench.path("device")).unwrap();
    let script = "echo $PWD $DSP_LIBRARY_PATH $ADSP_LIBRARY_PATH $CDSP_LIBRARY_PATH $LD_LIBRARY_PATH; \
                  cat; echo \"$1\" >&2; exit 7";
    bench.write("device/run", script.as_bytes());
    bench.write("device/devices", b"");
    let outcome = without_system(crate::support::hexflash_reading(
        b"from here",
        &bench.arguments(&bench.paths(), &["--", "run", "it's"]),
    ));
    let device = bench.path("device");
    let device = text(&device);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    assert_eq!(outcome.stdout, format!("{}\nfrom here", [device; 5].join(" ")));
    let names = "hexflash, libhexflash_skel_v73.so, libhexflash_skel_v75.so";
    assert_eq!(outcome.stderr, format!("pushed to {device}: {names} (0 were there)\nit's\n"));
    assert_eq!(bench.pieces(), 3);
    bench.same(&bench.path("device/libhexflash_skel_v75.so"), &bench.path("dist/libhexflash_skel_v75.so"));
    assert!(!bench.path("device/libother.so").exists());
    let rights = fs::metadata(bench.path("device/hexflash")).unwrap().permissions().mode();
    assert_eq!(rights & 0o777, 0o755);

    // Another library of the same size, and a model.
    bench.write("dist/libhexflash_skel_v73.so", &[1; 3000]);
    let target = model("tiny-hybrid-q4_0.gguf");
    let outcome = bench.deploy(&[&["-m", text(&target)], &NOTHING[..]].concat()).succeeded();
    let there = bench.there("tiny-hybrid-q4_0.gguf");
    let there = text(there.strip_prefix(device).unwrap());
    let pushed = format!("libhexflash_skel_v73.so, {there} (2 were there)");
    assert_eq!(outcome.stderr, format!("pushed to {device}: {pushed}\n"));
    assert_eq!(bench.pieces(), 2);
    bench.same(&bench.path("device/libhexflash_skel_v73.so"), &bench.path("dist/libhexflash_skel_v73.so"));
    bench.same(&bench.there("tiny-hybrid-q4_0.gguf"), &target);
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
    assert!(bench.there("tiny-hybrid-q8_0.gguf.hfcache").exists(), "it ran in the device's folder");
}

#[test]
fn a_push_that_was_cut_off_goes_on_where_it_was() {
    let bench = Bench::new();
    let large = bench.large_model("large.gguf", 2 * PIECE + 5_000_000);
    let deploy = || bench.deploy(&[&["-m", text(&large)], &NOTHING[..]].concat());
    // Three files, then three pieces of the model: the second of them is cut off, and the next command's
    // first.
    bench.write("adb/cut-5", (PIECE / 2).to_string().as_bytes());
    deploy().failed_after("connection to device R58 broke (error: closed)", "goes on where it was");
    let part = bench.there("large.gguf.part");
    assert_eq!(fs::metadata(&part).unwrap().len() as usize, PIECE * 3 / 2);
    assert!(!part.with_extension("").exists());
    bench.pieces();
    bench.write("adb/cut-1", b"0");
    deploy().failed_after("broke", "goes on");
    bench.pieces();
    fs::remove_file(bench.path("adb/cut-1")).unwrap();
    let outcome = deploy().succeeded();
    assert!(outcome.stderr.contains("/large.gguf: going on at 16 of 37 MiB"), "{outcome:?}");
    assert_eq!(bench.pieces(), 2);
    bench.same(&bench.there("large.gguf"), &large);
}

/// What an earlier push left is only used as far as it is right.
#[test]
fn what_is_left_of_another_file_is_not_used() {
    let bench = Bench::new();
    let large = bench.large_model("large.gguf", 2 * PIECE + 1);
    let deploy = || bench.deploy(&[&["-m", text(&large)], &NOTHING[..]].concat()).succeeded();
    deploy();
    assert_eq!(bench.pieces(), 3 + 3);
    let there = bench.there("large.gguf");
    let mut part = fs::read(&there).unwrap();
    part[PIECE + 3] ^= 1;
    part.extend([0; 100]);
    fs::write(there.with_extension("gguf.part"), &part).unwrap();
    fs::remove_file(there).unwrap();
    deploy();
    assert_eq!(bench.pieces(), 2);
    bench.same(&bench.there("large.gguf"), &large);
}

#[test]
fn a_damaged_piece_is_sent_again() {
    let bench = Bench::new();
    bench.write("adb/bad-1", b"");
    bench.write("adb/bad-3", b"");
    bench.deploy(&NOTHING).succeeded();
    assert_eq!(bench.pieces(), 5);
    bench.same(&bench.path("device/hexflash"), &bench.path("dist/hexflash"));
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
    let df = "echo Filesystem 1024-blocks Used Available Capacity Mounted\n\
              echo /dev/block/dm-5 100 50 50 50% /data";
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
    let mut by_environment = command(&bench.arguments(&bench.paths(), &NOTHING));
    let refused = by_environment.env("ANDROID_SERIAL", OsStr::from_bytes(b"\xff")).output().unwrap();
    assert!(String::from_utf8(refused.stderr).unwrap().contains("no device \u{fffd}; there is a, b"));
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
    fs::copy("/bin/true", bench.path("dist/hexflash")).unwrap();
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
    bench.hook("case $5 in *'exec ./hexflash '*)\necho started\nexec sleep 60\n;; esac\n");
    let paths = bench.paths();
    let mut running = Running::start(command(&bench.arguments(&paths, &NOTHING)));
    let mut started = [0; 8];
    running.child().stdout.as_mut().unwrap().read_exact(&mut started).unwrap();
    running.send(Signal::TERM);
    let ended = running.end(Signal::TERM);
    assert_eq!((ended.code, &started), (Err(Signal::TERM.as_raw()), b"started\n"), "{ended:#?}");
}

/// adb's own rule: scripts set the variable to nothing to mean nothing.
#[test]
fn an_empty_android_serial_counts_as_unset() {
    let bench = Bench::new();
    let mut deploy = command(&bench.arguments(&bench.paths(), &NOTHING));
    let output = deploy.env("ANDROID_SERIAL", "").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Devices that were found over the network more than once have a number in brackets.
#[test]
fn a_serial_with_blanks_is_taken_whole() {
    let bench = Bench::new();
    let serial = "adb-R58-x (2)._adb-tls-connect._tcp";
    bench.write("adb/devices", format!("{serial}\tdevice\nadb-R58-x\tdevice\n").as_bytes());
    bench.deploy(&[&["--serial", serial], &NOTHING[..]].concat()).succeeded();
    bench.deploy(&NOTHING).failed(2, &format!("several devices ({serial}, adb-R58-x)"), "--serial");
}

/// The same file name says nothing about what is in it.
#[test]
fn models_of_the_same_name_do_not_replace_each_other() {
    let bench = Bench::new();
    let models = ["tiny-hybrid-q8_0.gguf", "tiny-hybrid-dflash-q8_0.gguf", "tiny-hybrid-q4_0.gguf"];
    let [target, draft, other] = [0, 1, 2].map(|i| {
        fs::create_dir(bench.path(&i.to_string())).unwrap();
        let path = bench.path(&format!("{i}/m.gguf"));
        fs::copy(model(models[i]), &path).unwrap();
        path
    });
    let deploy = |models: &[&str]| {
        bench.deploy(&[models, &["--", "run", "a"]].concat()).succeeded();
        let pieces = bench.pieces_kept();
        let command = bench.last_command();
        let words = command.split(' ').map(str::to_owned).collect::<Vec<_>>();
        fs::remove_file(bench.path("adb/log")).unwrap();
        (pieces, words)
    };
    let (pieces, words) = deploy(&["-m", text(&target), "-md", text(&draft)]);
    assert_eq!(pieces, 3 + 2);
    assert_eq!([&words[0], &words[1], &words[3], &words[5]], ["run", "--model", "--model-draft", "a"]);
    bench.same(Path::new(&words[2]), &target);
    bench.same(Path::new(&words[4]), &draft);
    // Another target of that name, and the first again, under another name: it is where it was.
    let (pieces, second) = deploy(&["-m", text(&other)]);
    assert_eq!(pieces, 1);
    bench.same(Path::new(&second[2]), &other);
    let (pieces, third) = deploy(&["-m", text(&target), "-md", text(&draft)]);
    assert_eq!((pieces, &third), (0, &words));
    bench.same(Path::new(&third[2]), &target);
    // One file as both is pushed once.
    let same = bench.path("same.gguf");
    bench.large_model("same.gguf", 1 << 20);
    let (pieces, both) = deploy(&["-m", text(&same), "-md", text(&same)]);
    assert_eq!((pieces, &both[2]), (1, &both[4]));
}

#[test]
fn a_mistake_in_the_command_is_told_before_anything_is_pushed() {
    let bench = Bench::new();
    let target = model("tiny-hybrid-q4_0.gguf");
    for (command, cause, remedy) in [
        (&["rnu"][..], "unrecognized subcommand 'rnu'", "hexflash --help"),
        (&["run", "--tmep", "0"], "unexpected argument '--tmep'", "hexflash --help"),
        (&["run", "-ngl", "9", "a"], "-ngl", "drop it"),
    ] {
        bench.deploy(&[&["-m", text(&target), "--"], command].concat()).failed(2, cause, remedy);
        assert!(!bench.path("device").exists() && !bench.path("adb/log").exists());
    }
}

/// Pipes hold 64 KiB: who waits for one of adb's while adb waits for another waits for ever.
#[test]
fn adb_may_complain_at_any_length_while_it_is_fed() {
    let bench = Bench::new();
    bench.hook_push("head -c 300000 /dev/zero >&2");
    let large = bench.large_model("large.gguf", 1 << 20);
    bench.bounded(&[&["-m", text(&large)], &NOTHING[..]].concat()).succeeded();
    bench.same(&bench.there("large.gguf"), &large);
}

#[test]
fn an_adb_that_hangs_is_given_up_wherever_it_does() {
    let bench = Bench::new();
    let large = bench.large_model("large.gguf", 1 << 20);
    for (hook, cause) in [
        ("[ $1 != devices ] || exec sleep 100", "while it listed its devices"),
        // Complaints are no progress.
        ("[ $1 != devices ] || exec yes >&2", "while it listed its devices"),
        ("[ $1 = devices ] || exec sleep 100", "while it was asked what it is"),
        ("[ $1 = devices ] || { exec > /dev/null 2>&1; exec sleep 100; }", "asked what it is"),
        (
            "case $5 in *large*'cat >> '*) head -c 100000 > /dev/null; exec sleep 100;; esac",
            "while it took models/",
        ),
        ("case $5 in *large*'cat >> '*) cat > /dev/null; exec sleep 100;; esac", "while it took models/"),
        ("case $5 in *'mv '*) exec sleep 100;; esac", "in its place"),
    ] {
        bench.hook(hook);
        let start = Instant::now();
        let outcome = bench.bounded(&[&["-m", text(&large)], &PATIENCE[..], &NOTHING[..]].concat());
        assert!(start.elapsed() < Duration::from_secs(50), "{outcome:?}");
        outcome.failed(1, cause, "or give it more time with --timeout");
    }
}

/// The first call of adb starts a server, which may keep the pipes that it was born with.
#[test]
fn a_server_that_keeps_adbs_pipes_is_not_waited_for() {
    let bench = Bench::new();
    bench.hook("[ $1 != devices ] || sleep 50 &");
    let start = Instant::now();
    bench.bounded(&NOTHING).succeeded();
    assert!(start.elapsed() < Duration::from_secs(45));
}

#[test]
fn a_slow_push_has_all_the_time_that_it_makes_use_of() {
    let bench = Bench::new();
    let large = bench.large_model("large.gguf", 1 << 20);
    let fifth = fs::metadata(&large).unwrap().len() / 5 + 1;
    let slowly = format!("for i in 1 2 3 4 5; do head -c {fifth}; sleep 1; done");
    bench.hook(&format!("case $5 in *large*'cat >> '*) {{ {slowly}; }} | sh -c \"$5\"; exit;; esac"));
    let start = Instant::now();
    bench.bounded(&[&["-m", text(&large)], &PATIENCE[..], &NOTHING[..]].concat()).succeeded();
    assert!(start.elapsed() > Duration::from_secs(4), "it took longer than it may make no progress");
    bench.same(&bench.there("large.gguf"), &large);
}

/// In 2 GiB of address space.
#[test]
fn output_without_end_is_not_collected() {
    let bench = Bench::new();
    bench.hook("[ $1 != devices ] || exec yes");
    bench.bounded(&NOTHING).failed(1, "adb printed more than anything that adb has to say", "--adb FILE");
    bench.hook("[ $1 = devices ] || exec yes");
    bench.bounded(&NOTHING).failed(1, "while it was asked what it is", "--adb FILE");
}

/// Neither adb nor a device may move the cursor, set the title or paint.
#[test]
fn nothing_that_adb_says_steers_the_terminal() {
    let bench = Bench::new();
    let escape = "\x1b[2J\x1b]0;owned\x07\u{202e}";
    let shown = r"\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}";
    for (devices, more, code) in [
        (format!("a\t{escape}\n"), &[][..], 1),
        (format!("{escape}\toffline\n"), &[], 1),
        (format!("{escape}\tdevice\nb\tdevice\n"), &[], 2),
        (format!("{escape}\tdevice\n"), &["--serial", "b"], 2),
    ] {
        bench.write("adb/devices", devices.as_bytes());
        bench.deploy(&[more, &NOTHING[..]].concat()).failed(code, shown, "; ");
    }
    bench.write("adb/devices", b"R58\tdevice\n");
    for (hook, code) in [
        (format!("printf '{escape}\\n' >&2; exit 1"), 1),
        (format!("[ $1 = devices ] || {{ printf 'progress\\r{escape}' >&2; exit 1; }}"), 1),
        (
            format!(
                "case $5 in *uname*) printf 'machine={escape}\\n\\nhexflash-script-ended 0\\n'; exit;; esac"
            ),
            2,
        ),
        (
            format!(
                "case $5 in *mkdir*) printf '{escape}\\n' >&2; echo hexflash-script-ended 1; exit;; esac"
            ),
            1,
        ),
    ] {
        bench.hook(&hook);
        bench.deploy(&NOTHING).failed(code, shown, "; ");
    }
}

/// A pipe without a writer would be read for ever.
#[test]
fn only_regular_files_are_pushed() {
    let bench = Bench::new();
    let fifo = |name: &str| assert!(Command::new("mkfifo").arg(bench.path(name)).status().unwrap().success());
    fs::create_dir(bench.path("dist/models")).unwrap();
    for name in ["dist/libhexflash_skel_v79.so", "dist/models/a.gguf"] {
        fifo(name);
        bench.bounded(&NOTHING).failed(2, &format!("{name} is no regular file"), "remove it");
        fs::remove_file(bench.path(name)).unwrap();
    }
    fs::create_dir(bench.path("dist/models/b.gguf")).unwrap();
    bench.bounded(&NOTHING).failed(2, "b.gguf is no regular file", "remove it");
    fs::remove_dir(bench.path("dist/models/b.gguf")).unwrap();
    fifo("m.gguf");
    let named = bench.path("m.gguf");
    bench.bounded(&[&["-m", text(&named)], &NOTHING[..]].concat()).failed(2, "m.gguf", "; ");
    fs::remove_file(bench.path("dist/hexflash")).unwrap();
    fifo("dist/hexflash");
    bench.bounded(&NOTHING).failed(2, "dist/hexflash is no regular file", "remove it");
    assert!(!bench.path("device").exists() && !bench.path("adb/log").exists());
}

/// `mv` would put the file into it.
#[test]
fn a_folder_on_the_device_with_the_name_of_a_file_is_told_of() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("device/hexflash")).unwrap();
    bench.deploy(&NOTHING).failed(1, "device/hexflash is a folder", "--to");
}

#[test]
fn a_file_that_changes_while_it_is_pushed_is_told_of() {
    let bench = Bench::new();
    let skel = bench.path("dist/libhexflash_skel_v75.so");
    bench.hook(&format!(
        "case $5 in *mkdir*) printf x >> '{0}'; printf y | dd of='{0}' conv=notrunc 2> /dev/null;; esac",
        text(&skel)
    ));
    bench.deploy(&NOTHING).failed(
        1,
        "libhexflash_skel_v75.so changed while it was pushed",
        "repeat the command",
    );
}

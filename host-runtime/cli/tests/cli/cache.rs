//! The repack cache from a user's view: built once and then silent; never a reason to fail, and never
//! silently ignored.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;

use super::support::{Outcome, command, hexflash, model, text};

/// A copy of the shipped Q4_0 model in a directory of its own.
struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self { dir: TempDir::new().unwrap() };
        fs::copy(model("tiny-hybrid-q4_0.gguf"), fixture.model()).unwrap();
        fixture
    }

    fn model(&self) -> PathBuf {
        self.dir.path().join("model.gguf")
    }

    /// Where the cache is unless the user says otherwise.
    fn cache(&self) -> PathBuf {
        self.dir.path().join("model.gguf.hfcache")
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let model = self.model();
        let fixed = ["run", "-m", text(&model), "--temp", "0", "-n", "4", "import os\n"];
        hexflash(&[&fixed[..], arguments].concat()).succeeded()
    }

    /// Runs without a word about the cache.
    #[track_caller]
    fn silent(&self) -> String {
        let outcome = self.run(&[]);
        assert_eq!(outcome.stderr.lines().count(), 1, "statistics only: {outcome:#?}");
        outcome.stdout
    }

    /// Runs with one note about the cache, and the same text as always.
    #[track_caller]
    fn noted(&self, arguments: &[&str], note: &str) {
        let outcome = self.run(arguments);
        let notes: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("WARN")).collect();
        assert!(notes.len() == 1 && notes[0].contains(note), "one note with {note:?}: {outcome:#?}");
        assert_eq!(outcome.stdout, self.run(&["--no-repack-cache"]).stdout);
    }
}

#[test]
fn written_once_and_then_reused() {
    let f = Fixture::new();
    let first = f.silent();
    let written = fs::metadata(f.cache()).unwrap().modified().unwrap();
    assert_eq!(f.silent(), first);
    assert_eq!(fs::metadata(f.cache()).unwrap().modified().unwrap(), written, "reused, not rewritten");
    let verbose = f.run(&["-v"]);
    assert!(verbose.stderr.contains("reused"), "-v says so: {verbose:#?}");
}

#[test]
fn stale_or_truncated_caches_are_rebuilt_with_a_note() {
    let f = Fixture::new();
    f.silent();
    let whole = fs::read(f.cache()).unwrap();
    for len in [0, 50, 70_000, whole.len() - 1] {
        fs::write(f.cache(), &whole[..len]).unwrap();
        f.noted(&[], "rebuilt because it was truncated");
        f.silent();
    }
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    fs::write(f.cache(), damaged).unwrap();
    f.noted(&[], "rebuilt because its header is damaged");
    // The first byte of the image, one in the middle, and the last.
    for at in [64 << 10, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(f.cache(), damaged).unwrap();
        f.noted(&[], "rebuilt because its data is damaged");
        f.silent();
    }
    // Another model under the same name.
    fs::copy(model("tiny-hybrid-q8_0.gguf"), f.model()).unwrap();
    f.noted(&[], "rebuilt because it is of another model");
    f.silent();
}

#[test]
fn a_cache_in_the_way_or_in_an_unwritable_place_is_done_without() {
    let f = Fixture::new();
    fs::create_dir(f.cache()).unwrap();
    f.noted(&[], "it is not a file");
    fs::remove_dir(f.cache()).unwrap();
    fs::write(f.cache(), "a file of the user's").unwrap();
    f.noted(&[], "it is not a weight cache");
    assert_eq!(fs::read(f.cache()).unwrap(), b"a file of the user's", "left alone");
    // Below a file there can be no directory, whoever runs the test.
    let inside_a_file = f.model().join("cache");
    f.noted(&["--cache-dir", text(&inside_a_file)], "no weight cache");
    #[cfg(target_os = "linux")]
    f.noted(&["--cache-dir", "/proc"], "cannot be written");
}

#[test]
fn a_directory_for_caches_is_made() {
    let f = Fixture::new();
    let dir = f.dir.path().join("new/caches");
    f.run(&["--cache-dir", text(&dir)]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert!(!f.cache().exists());
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_a_cache_is_left_alone() {
    let f = Fixture::new();
    let target = f.dir.path().join("empty");
    fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, f.cache()).unwrap();
    f.noted(&[], "it is a link");
    assert_eq!(fs::read(&target).unwrap(), b"");
}

/// Whether the cache is mapped or, because somebody has it open for writing, copied.
#[test]
fn text_is_right_to_the_end_when_the_cache_is_cut_meanwhile() {
    let f = Fixture::new();
    f.silent();
    let whole = fs::read(f.cache()).unwrap();
    let model = f.model();
    let arguments = ["run", "-m", text(&model), "--temp", "0", "-n", "300", "--ignore-eos", "import os\n"];
    let expected = hexflash(&[&arguments[..], &["--no-repack-cache"]].concat()).succeeded().stdout;
    for written_to in [false, true] {
        fs::write(f.cache(), &whole).unwrap();
        let open = || fs::File::options().write(true).open(f.cache()).unwrap();
        let writer = written_to.then(open);
        let mut child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut printed = vec![0; 20];
        stdout.read_exact(&mut printed).unwrap();
        writer.unwrap_or_else(open).set_len(0).unwrap();
        stdout.read_to_end(&mut printed).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
    }
}

/// Whatever it is doing at that moment.
#[test]
fn a_model_that_is_cut_while_it_is_loaded_is_refused_in_a_line() {
    let f = Fixture::new();
    let path = f.model();
    let whole = fs::read(&path).unwrap();
    let mut refused = 0;
    for moment in 0..16 {
        fs::write(&path, &whole).unwrap();
        let arguments = ["run", "-m", text(&path), "-n", "1", "--no-repack-cache", "import"];
        let cut = || {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_len(whole.len() as u64 / 4).unwrap();
        };
        // The first time before it is opened at all, so that one is refused however fast the machine is.
        if moment == 0 {
            cut();
        }
        let child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(4 * moment));
        cut();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => {}
            Some(2) => {
                refused += 1;
                assert!(stderr.lines().count() == 1 && stderr.starts_with("error: "), "{stderr:?}");
                assert!(stderr.contains("model.gguf"), "{stderr:?}");
            }
            code => panic!("after {} ms: {code:?} ({}) {stderr:?}", 4 * moment, output.status),
        }
    }
    assert!(refused > 0, "it was always cut too late");
}

//! The repack cache from a user's view: built once and then silent; never a reason to fail, and never silently
//! ignored.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::support::{Outcome, hexflash, model, text};

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

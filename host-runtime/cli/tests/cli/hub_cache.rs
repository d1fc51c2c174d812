//! Models out of the cache that programs for the Hugging Face Hub share, and `hexflash models`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use hexflash::gguf::GgmlType;
use tempfile::TempDir;

use super::support::{Change, Outcome, changed_model, command, model, outcome, text};

/// A commit of "main".
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// An address where nobody listens.
const NOBODY: &str = "http://127.0.0.1:1";

/// A cache as `huggingface_hub` lays it out.
pub struct HubCache {
    pub home: TempDir,
}

impl HubCache {
    pub fn new() -> Self {
        Self { home: TempDir::new().unwrap() }
    }

    pub fn repo(&self, repo: &str) -> PathBuf {
        self.home.path().join("hub").join(format!("models--{}", repo.replace('/', "--")))
    }

    /// The place of a file in the revision "main".
    pub fn path(&self, repo: &str, name: &str) -> PathBuf {
        self.repo(repo).join("snapshots").join(COMMIT).join(name)
    }

    /// Puts a file there, as a link to a blob.
    fn add(&self, repo: &str, name: &str, source: &Path) {
        let blob = self.repo(repo).join("blobs").join(name.replace('/', "_"));
        let path = self.path(repo, name);
        fs::create_dir_all(blob.parent().unwrap()).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(self.repo(repo).join("refs")).unwrap();
        fs::write(self.repo(repo).join("refs/main"), COMMIT).unwrap();
        fs::copy(source, &blob).unwrap();
        symlink(&blob, &path).unwrap();
    }

    /// `hexflash ARGUMENTS` with this cache, and a Hub where nobody answers.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        for name in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"] {
            command.env_remove(name);
        }
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(name);
        }
        command.env("HF_HOME", self.home.path()).env("HF_ENDPOINT", NOBODY);
        command
    }

    pub fn hexflash(&self, arguments: &[&str]) -> Outcome {
        outcome(self.command(arguments).output().unwrap(), arguments)
    }
}

const SHORT_RUN: [&str; 5] = ["--no-repack-cache", "--temp", "0", "-n", "1"];

/// Nothing is asked for what is there, by the default quantization, by another, and by name.
#[test]
fn a_model_in_the_cache_needs_no_network() {
    let cache = HubCache::new();
    let repo = "some/tiny-GGUF";
    for (name, source) in
        [("tiny-Q8_0.gguf", "tiny-hybrid-q8_0.gguf"), ("sub/tiny-Q4_K_M.gguf", "tiny-hybrid-q4_0.gguf")]
    {
        cache.add(repo, name, &model(source));
    }
    for (asked, name) in [
        (&["-hf", "some/tiny-GGUF"][..], "sub/tiny-Q4_K_M.gguf"),
        (&["-hf", "some/tiny-GGUF:q8_0"], "tiny-Q8_0.gguf"),
        (&["--hf-repo", "some/tiny-GGUF", "-hff", "tiny-Q8_0.gguf"], "tiny-Q8_0.gguf"),
        (&["-hfr", "some/tiny-GGUF:Q4_K_M", "--offline"], "sub/tiny-Q4_K_M.gguf"),
    ] {
        let info = cache.hexflash(&[&["info", "--json"], asked].concat()).succeeded().json();
        assert_eq!(info["model"], text(&cache.path(repo, name)), "{asked:?}");
    }
    let run = [&["run", "-hf", repo, "x"][..], &SHORT_RUN].concat();
    let by_path = cache.path(repo, "sub/tiny-Q4_K_M.gguf");
    let with_file = [&["run", "-m", text(&by_path), "x"][..], &SHORT_RUN].concat();
    assert_eq!(cache.hexflash(&run).succeeded().stdout, cache.hexflash(&with_file).succeeded().stdout);
    cache.hexflash(&["bench", "-hf", repo, "--no-repack-cache", "-p", "2", "-n", "1", "-r", "1"]).succeeded();
}

/// What is missing is named, with what is there.
#[test]
fn a_model_that_is_not_in_the_cache() {
    let cache = HubCache::new();
    cache.add("some/tiny", "tiny-Q8_0.gguf", &model("tiny-hybrid-q8_0.gguf"));
    let offline = |arguments: &[&str]| cache.hexflash(&[&["info", "--offline"], arguments].concat());
    offline(&["-hf", "some/tiny:Q6_K"]).failed(
        2,
        "a file with Q6_K of some/tiny is not in the cache",
        "(it has tiny-Q8_0.gguf); drop --offline",
    );
    offline(&["-hf", "some/other"]).failed(2, "some/other is not in the cache", "drop --offline");
    let mut command = cache.command(&["info", "-hf", "some/other"]);
    outcome(command.env("HF_HUB_OFFLINE", "1").output().unwrap(), &[]).failed(
        2,
        "not in the cache",
        "drop --offline",
    );
    // Whatever is there does, where nobody may be asked for the default.
    offline(&["-hf", "some/tiny"]).succeeded();
    let online = cache.hexflash(&["info", "-hf", "some/tiny"]);
    online.failed(1, "cannot download from http://127.0.0.1:1", "check the network");
    // A link whose file is gone is no model.
    fs::remove_file(cache.repo("some/tiny").join("blobs/tiny-Q8_0.gguf")).unwrap();
    offline(&["-hf", "some/tiny:Q8_0"]).failed(2, "not in the cache", "drop --offline");
}

#[test]
fn what_is_no_repository() {
    let cache = HubCache::new();
    for bad in ["tiny", "a/b/c", "../x", "a/b:", "a/b:x y"] {
        cache.hexflash(&["info", "-hf", bad]).failed(2, bad, "give owner/name");
    }
    cache.hexflash(&["info", "-hf", "a/b", "-m", "x.gguf"]).failed(2, "cannot be used with", "--model");
    cache.hexflash(&["info", "-hff", "x.gguf"]).failed(2, "--hf-repo", "see hexflash --help");
    let mut command = cache.command(&["info", "-hf", "a/b"]);
    outcome(command.env("HF_ENDPOINT", "huggingface.co").output().unwrap(), &[]).failed(
        2,
        "HF_ENDPOINT is \"huggingface.co\"",
        "https://",
    );
}

#[test]
fn what_the_cache_holds() {
    let cache = HubCache::new();
    let empty = cache.hexflash(&["models"]).succeeded().stdout;
    assert!(empty.contains("no GGUF file") && empty.contains("run -hf"), "{empty}");
    assert_eq!(cache.hexflash(&["models", "--json"]).succeeded().json(), serde_json::json!([]));

    let other = cache.home.path().join("other.gguf");
    changed_model(&other, &Change::Key("general.architecture", "mamba9".into()));
    cache.add("some/tiny", "tiny-Q4_0.gguf", &model("tiny-hybrid-q4_0.gguf"));
    cache.add("some/tiny", "drafts/tiny-dflash.gguf", &model("tiny-hybrid-dflash-q8_0.gguf"));
    cache.add("an/other", "other.gguf", &other);
    fs::write(&other, b"GGUF but no more").unwrap();
    cache.add("an/other", "broken\nname.gguf", &other);
    cache.add("an/other", "README.md", &other);
    // What other programs keep there.
    fs::create_dir_all(cache.home.path().join("hub/datasets--a--b")).unwrap();
    fs::write(cache.home.path().join("hub/version.txt"), "1").unwrap();
    fs::create_dir_all(cache.home.path().join("hub/.locks/models--some--tiny")).unwrap();
    fs::write(cache.home.path().join("hub/models--a--file"), "1").unwrap();

    let json = cache.hexflash(&["models", "--json"]).succeeded().json();
    let rows: Vec<_> = json.as_array().unwrap().iter().collect();
    let column = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("repo"), ["an/other", "an/other", "some/tiny", "some/tiny"]);
    let files = ["broken\nname.gguf", "other.gguf", "drafts/tiny-dflash.gguf", "tiny-Q4_0.gguf"];
    assert_eq!(column("file"), files);
    assert_eq!(column("runs"), ["no", "no", "as_draft", "yes"]);
    assert_eq!(rows[3]["architecture"], "qwen35");
    assert_eq!(rows[3]["bytes"], model("tiny-hybrid-q4_0.gguf").metadata().unwrap().len());
    assert_eq!(rows[3]["path"], text(&cache.path("some/tiny", "tiny-Q4_0.gguf")));
    assert_eq!(rows[1]["architecture"], "mamba9");
    assert!(rows[1]["reason"].as_str().unwrap().starts_with("architecture \"mamba9\" is not supported"));
    assert_eq!(rows[0]["architecture"], serde_json::Value::Null);

    let shown = cache.hexflash(&["models"]).succeeded().stdout;
    // A title, four models, two reasons.
    assert_eq!(shown.lines().count(), 7, "{shown}");
    assert!(shown.contains("broken\\nname.gguf"), "{shown}");
}

/// Names of strangers do nothing to a terminal.
#[test]
fn names_are_spelled_out_where_they_are_printed() {
    const EVIL: &str = "a\u{1b}]0;x\u{7}\u{9b}2J\u{202e}fugg\u{2066}b";
    let cache = HubCache::new();
    let path = cache.home.path().join(format!("{EVIL}.gguf"));
    changed_model(&path, &Change::Key("general.name", EVIL.into()));
    cache.add("some/tiny", "model.gguf", &path);
    let evil = format!("{EVIL}.gguf");
    cache.add("some/tiny", &evil, &path);
    let new = cache.home.path().join("tensor.gguf");
    changed_model(&new, &Change::NewTensor(EVIL, GgmlType::F32, &[1], vec![0; 4]));
    let broken = cache.home.path().join(format!("{EVIL}-broken.gguf"));
    fs::write(&broken, "GGUF").unwrap();
    for arguments in [
        vec!["info", "-m", text(&path)],
        vec!["info", "--tensors", "-m", text(&new)],
        vec!["info", "-m", text(&broken)],
        vec!["run", "-m", text(&broken), "x"],
        vec!["run", "-f", &format!("{}/none", text(&path))],
        vec!["run", "--chat", "--chat-template", &format!("{}/none", text(&path)), "x"],
        vec!["serve", "--port", "0", "--api-key-file", &format!("{}/none", text(&path))],
        vec!["models"],
        vec!["info", "--offline", "-hf", "some/tiny:none"],
    ] {
        let outcome = cache.hexflash(&arguments);
        let said = outcome.stdout.clone() + &outcome.stderr;
        let acts =
            |c: &char| (c.is_control() && *c != '\n') || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}');
        assert_eq!(said.chars().find(acts), None, "{arguments:?}: {said:?}");
        assert!(said.contains(r"\u{1b}]0;x"), "{arguments:?}: {said}");
    }
}

/// Whoever may write into a shared cache does not make others wait for ever.
#[test]
fn pipes_in_the_cache_are_not_opened() {
    let cache = HubCache::new();
    cache.add("some/tiny", "tiny-Q8_0.gguf", &model("tiny-hybrid-q8_0.gguf"));
    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    pipe(&cache.repo("some/tiny").join("refs/main"));
    pipe(&cache.path("some/tiny", "pipe-Q4_0.gguf"));
    pipe(&cache.home.path().join("token"));
    let shown = cache.hexflash(&["models"]).succeeded().stdout;
    assert!(shown.contains("not a regular file") && shown.contains("tiny-Q8_0.gguf"), "{shown}");
    cache.hexflash(&["info", "--offline", "-hf", "some/tiny:Q8_0"]).succeeded();
    cache.hexflash(&["info", "-hf", "some/other"]).failed(1, "cannot download", "check the network");
}

/// Over adb the home is `/`, which cannot be written.
#[test]
fn without_a_home_that_can_be_written_models_are_kept_elsewhere() {
    let (cache, folder) = (HubCache::new(), TempDir::new().unwrap());
    let models = |home: &Path, temporary: Option<&Path>| {
        let arguments = ["-vv", "models"];
        let mut command = cache.command(&arguments);
        command.env_remove("HF_HOME").env_remove("XDG_CACHE_HOME").env("HOME", home);
        match temporary {
            Some(folder) => command.env("TMPDIR", folder),
            None => command.env_remove("TMPDIR"),
        };
        outcome(command.output().unwrap(), &arguments).succeeded()
    };
    let (home, temporary) = (folder.path().join("home"), folder.path().join("temporary"));
    fs::create_dir(&temporary).unwrap();
    // A home that is not there yet can be made.
    let there = models(&home, Some(&temporary));
    assert!(there.stdout.contains(text(&home.join(".cache/huggingface/hub"))), "{there:?}");
    assert!(!there.stderr.contains("no home"), "{there:?}");
    // In a file there can be none, whoever asks.
    let nowhere = Path::new("/dev/null/home");
    let there = models(nowhere, Some(&temporary));
    assert!(there.stdout.contains(text(&temporary.join("huggingface/hub"))), "{there:?}");
    let told = format!("no home can be written: models of the Hub are kept in {}", text(&temporary));
    assert!(there.stderr.contains(&told), "{there:?}");
    let program = Path::new(env!("CARGO_BIN_EXE_hexflash")).parent().unwrap();
    for temporary in [None, Some(nowhere)] {
        let there = models(nowhere, temporary);
        assert!(there.stdout.contains(text(&program.join("huggingface/hub"))), "{there:?}");
    }
}

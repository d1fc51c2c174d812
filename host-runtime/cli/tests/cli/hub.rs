//! Downloads from a Hugging Face Hub, which is a server of these tests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::hub_cache::{COMMIT, HubCache};
use super::hub_server::{Asked, Hub, Mood, sha256};
use super::signalled::Running;
use super::support::{Outcome, hexflash, model, outcome, split, text};

const REPO: &str = "some/tiny-GGUF";
const FILE: &str = "tiny-Q4_K_M.gguf";

/// The bytes of a model that runs.
fn bytes() -> Vec<u8> {
    fs::read(model("tiny-hybrid-q4_0.gguf")).unwrap()
}

fn hub() -> Hub {
    let files = [("README.md", b"Tiny".to_vec()), ("mmproj-Q4_K_M.gguf", b"no".to_vec()), (FILE, bytes())];
    Hub::new(REPO, &files)
}

impl HubCache {
    fn asks(&self, hub: &Hub, arguments: &[&str]) -> Command {
        let mut command = self.command(arguments);
        command.env("HF_ENDPOINT", &hub.address);
        command
    }

    /// `hexflash info --json -hf REPO`.
    fn info(&self, hub: &Hub) -> Outcome {
        let arguments = ["info", "--json", "-hf", REPO];
        outcome(self.asks(hub, &arguments).output().unwrap(), &arguments)
    }

    fn blob(&self, bytes: &[u8]) -> PathBuf {
        self.repo(REPO).join("blobs").join(sha256(bytes))
    }

    fn partial(&self, bytes: &[u8]) -> PathBuf {
        self.blob(bytes).with_extension("incomplete")
    }
}

/// It failed with exit code 1 or 2 after the line that tells of the download.
#[track_caller]
fn failed(outcome: Outcome, code: i32, cause: &str, remedy: &str) {
    let last = outcome.stderr.lines().last().unwrap_or_default().to_owned();
    let told = outcome.stderr.lines().filter(|line| !line.starts_with('[')).count();
    assert_eq!(told, 1, "one line: {outcome:#?}");
    Outcome { stderr: format!("{last}\n"), ..outcome }.failed(code, cause, remedy);
}

/// Requests for files, and from which byte on.
fn starts(asked: &[Asked]) -> Vec<u64> {
    let files = asked.iter().filter(|asked| asked.path.contains("/resolve/"));
    let start = |asked: &Asked| {
        let range = asked.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?;
        range.parse().ok()
    };
    files.map(|asked| start(asked).unwrap_or(0)).collect()
}

/// The second time nobody is asked, and other programs find the file where they look for it.
#[test]
fn a_download_and_then_none() {
    let (hub, cache) = (hub(), HubCache::new());
    let first = cache.info(&hub).succeeded();
    assert!(first.stderr.contains("downloading 5.6 MiB of some/tiny-GGUF"), "{first:?}");
    let path = cache.path(REPO, FILE);
    assert_eq!(first.json()["model"], text(&path));
    assert_eq!(starts(&hub.asked()), [0]);
    assert_eq!(fs::read(&path).unwrap(), bytes());
    assert_eq!(path.canonicalize().unwrap(), cache.blob(&bytes()).canonicalize().unwrap());
    assert!(fs::read_link(&path).unwrap().starts_with("../../blobs"));
    assert_eq!(fs::read_to_string(cache.repo(REPO).join("refs/main")).unwrap(), COMMIT);
    assert!(!cache.partial(&bytes()).exists());
    let second = cache.info(&hub).succeeded();
    assert_eq!((second.stdout, second.stderr), (first.stdout, String::new()));
    assert_eq!(hub.asked().len(), 0);
    // A file that lost its name, as when "main" moved on, is not downloaded again.
    fs::remove_file(&path).unwrap();
    cache.info(&hub).succeeded();
    assert_eq!(starts(&hub.asked()).len(), 0);
}

/// Within one command, and between two; with bytes of another file where its beginning should be, too.
#[test]
fn a_broken_download_goes_on_where_it_was() {
    let (hub, cache) = (hub(), HubCache::new());
    let (all, third) = (bytes(), bytes().len() as u64 / 3 + 1);
    hub.mood(Mood::Cuts(third as usize));
    cache.info(&hub).succeeded();
    assert_eq!(starts(&hub.asked()), [0, third, 2 * third]);
    assert_eq!(fs::read(cache.path(REPO, FILE)).unwrap(), all);

    let cache = HubCache::new();
    hub.mood(Mood::CutsThenFails(third as usize, 1));
    failed(
        cache.info(&hub),
        1,
        "cannot download from http://127",
        "repeat the command, which goes on where it was",
    );
    assert_eq!(cache.partial(&all).metadata().unwrap().len(), third);
    hub.asked();
    hub.mood(Mood::Well);
    cache.info(&hub).succeeded();
    assert_eq!(starts(&hub.asked()), [third]);
    assert_eq!(fs::read(cache.path(REPO, FILE)).unwrap(), all);

    let cache = HubCache::new();
    fs::create_dir_all(cache.blob(&all).parent().unwrap()).unwrap();
    fs::write(cache.partial(&all), b"other bytes").unwrap();
    failed(cache.info(&hub), 1, "SHA-256", "repeat the command");
    assert!(!cache.partial(&all).exists());
    cache.info(&hub).succeeded();

    // A beginning that is too long, and a server that sends everything again.
    let cache = HubCache::new();
    fs::create_dir_all(cache.blob(&all).parent().unwrap()).unwrap();
    fs::write(cache.partial(&all), vec![7; all.len() + 1]).unwrap();
    cache.info(&hub).succeeded();
    let cache = HubCache::new();
    fs::create_dir_all(cache.blob(&all).parent().unwrap()).unwrap();
    fs::write(cache.partial(&all), b"other bytes").unwrap();
    hub.mood(Mood::NoRanges);
    cache.info(&hub).succeeded();
    assert_eq!(fs::read(cache.path(REPO, FILE)).unwrap(), all);
}

/// What came before the silence is kept.
#[test]
fn a_server_that_falls_silent() {
    let (hub, cache) = (hub(), HubCache::new());
    hub.mood(Mood::Stops(1000));
    let arguments = ["info", "-hf", REPO];
    let mut command = cache.asks(&hub, &arguments);
    let ended = outcome(command.env("HF_HUB_DOWNLOAD_TIMEOUT", "1").output().unwrap(), &arguments);
    failed(ended, 1, "nothing came for 1 s", "goes on where it was");
    // Each attempt brought something but the last ones.
    let asked = starts(&hub.asked());
    assert_eq!(asked, [0, 1000, 1000, 1000]);
    assert_eq!(fs::read(cache.partial(&bytes())).unwrap(), bytes()[..1000]);
}

/// It goes on with other bytes than those that are missing.
#[test]
fn a_server_that_sends_another_part() {
    let (hub, cache) = (hub(), HubCache::new());
    fs::create_dir_all(cache.blob(&bytes()).parent().unwrap()).unwrap();
    fs::write(cache.partial(&bytes()), &bytes()[..1000]).unwrap();
    hub.mood(Mood::Shifts);
    failed(cache.info(&hub), 1, "another part of the file than was asked for", "check HF_ENDPOINT");
    assert_eq!(fs::read(cache.partial(&bytes())).unwrap(), bytes()[..1000]);
    hub.mood(Mood::Well);
    cache.info(&hub).succeeded();
}

#[test]
fn bytes_that_are_not_those_of_the_file() {
    let (hub, cache) = (hub(), HubCache::new());
    for (mood, cause) in [(Mood::Damages, "SHA-256"), (Mood::Adds, "more than its 5844704 bytes")] {
        hub.mood(mood);
        failed(cache.info(&hub), 1, cause, "repeat the command");
        assert!(!cache.partial(&bytes()).exists() && !cache.path(REPO, FILE).exists());
    }
}

#[test]
fn refusals_of_the_hub() {
    let (hub, cache) = (hub(), HubCache::new());
    for (status, code, exit, cause, remedy) in [
        (404, "RepoNotFound", 2, "there is no repository some/tiny-GGUF", "HF_TOKEN"),
        (401, "RepoNotFound", 2, "there is no repository some/tiny-GGUF", "check the name"),
        (404, "", 2, "there is no repository", "check the name"),
        (401, "", 2, "there is no repository", "HF_TOKEN"),
        (401, "GatedRepo", 2, "accepted its conditions", "/some/tiny-GGUF and give your token"),
        (403, "GatedRepo", 2, "accepted its conditions", "--hf-token"),
        (500, "", 1, "answers 500", "try again later"),
        (429, "", 1, "answers 429", "try again later"),
    ] {
        hub.listing(status, code);
        cache.info(&hub).failed(exit, cause, remedy);
    }
    hub.listing(401, "");
    let arguments = ["info", "-hf", REPO, "--hf-token", "hf_old"];
    let old = outcome(cache.asks(&hub, &arguments).output().unwrap(), &arguments);
    old.failed(2, "does not accept the token from --hf-token", "make a new one");
    // Everybody may see what a gated repository has, and only some may have it.
    hub.listing(200, "");
    hub.mood(Mood::Refuses(403, "GatedRepo"));
    failed(cache.info(&hub), 2, "accepted its conditions", "HF_TOKEN");
    hub.mood(Mood::Refuses(503, ""));
    failed(cache.info(&hub), 1, "answers 503 to the request for tiny-Q4_K_M.gguf", "try again later");
}

#[test]
fn what_a_repository_does_not_have() {
    let (hub, cache) = (hub(), HubCache::new());
    let ask = |hub: &Hub, arguments: &[&str]| {
        let arguments = [&["info"], arguments].concat();
        outcome(cache.asks(hub, &arguments).output().unwrap(), &arguments)
    };
    let cause = "some/tiny-GGUF has no file with IQ3_XS";
    ask(&hub, &["-hf", "some/tiny-GGUF:IQ3_XS"]).failed(2, cause, "choose one of: tiny-Q4_K_M.gguf");
    ask(&hub, &["-hf", REPO, "-hff", "x.gguf"]).failed(
        2,
        "has no file x.gguf",
        "choose one of: tiny-Q4_K_M.gguf",
    );
    let none = Hub::new("a/b", &[("model.safetensors", vec![0]), ("mmproj-F16.gguf", vec![0])]);
    ask(&none, &["-hf", "a/b"]).failed(2, "a/b has no GGUF file", "GGUF in its name");
    let lacks = Hub::new("a/b", &[("m-Q8_0-00001-of-00002.gguf", vec![0])]);
    let cause = "lacks parts of this model: m-Q8_0-00002-of-00002.gguf";
    ask(&lacks, &["-hf", "a/b"]).failed(2, cause, "choose another");
    // Names that would leave the cache.
    let evil = Hub::new("a/b", &[("../../../m-Q4_K_M.gguf", bytes())]);
    ask(&evil, &["-hf", "a/b"]).failed(1, "no safe name or hash", "check HF_ENDPOINT");
}

/// Over TLS, with the certificates that `SSL_CERT_FILE` names, and not without.
#[test]
fn downloads_over_tls() {
    let (hub, cache) = (hub(), HubCache::new());
    let address = hub.secure();
    let arguments = ["info", "--json", "-hf", REPO];
    let mut command = cache.asks(&hub, &arguments);
    command.env("HF_ENDPOINT", &address);
    let certificate = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/localhost.cert.pem");
    let trusting = outcome(command.env("SSL_CERT_FILE", certificate).output().unwrap(), &arguments);
    trusting.succeeded();
    assert_eq!(fs::read(cache.path(REPO, FILE)).unwrap(), bytes());
    let mut command = HubCache::new().asks(&hub, &arguments);
    command.env("HF_ENDPOINT", &address).env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    let doubting = outcome(command.output().unwrap(), &arguments);
    doubting.failed(1, &format!("cannot download from {address}: "), "check the network");
}

/// From its options and from the environment; to the Hub and to nobody else.
/// Another port of the same machine may be somebody else's.
#[test]
fn tokens_are_not_shown_to_another_port() {
    let (first, other, cache) = (hub(), hub(), HubCache::new());
    first.redirect_to(&other.address);
    let arguments = ["info", "-hf", REPO, "--hf-token", "hf_secret"];
    outcome(cache.asks(&first, &arguments).output().unwrap(), &arguments).succeeded();
    let asked = other.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].headers.get("authorization"), None);
    assert!(first.asked().iter().all(|asked| asked.headers["authorization"] == "Bearer hf_secret"));
    // To the same server, by a path alone or its whole address, it is.
    for address in ["", &first.address] {
        let _ = fs::remove_dir_all(cache.home.path().join("hub"));
        first.redirect_to(address);
        outcome(cache.asks(&first, &arguments).output().unwrap(), &arguments).succeeded();
        let asked = first.asked();
        assert!(asked.last().unwrap().path.starts_with("/elsewhere/"));
        assert!(asked.iter().all(|asked| asked.headers["authorization"] == "Bearer hf_secret"));
    }
}

#[test]
fn tokens_are_shown_to_the_hub_alone() {
    let (hub, cache) = (hub(), HubCache::new());
    hub.mood(Mood::Redirects);
    fs::write(cache.home.path().join("token"), "hf_of_login\n").unwrap();
    let shown = |arguments: &[&str], environment: Option<&str>| {
        let _ = fs::remove_dir_all(cache.home.path().join("hub"));
        let mut command = cache.asks(&hub, &[&["info", "-hf", REPO], arguments].concat());
        environment.map(|token| command.env("HF_TOKEN", token));
        outcome(command.output().unwrap(), arguments).succeeded();
        let asked = hub.asked();
        assert_eq!(asked.len(), 3);
        let (elsewhere, here): (Vec<_>, Vec<_>) =
            asked.iter().partition(|asked| asked.path.starts_with("/elsewhere/"));
        assert_eq!(elsewhere[0].headers.get("authorization"), None);
        let token = here[0].headers.get("authorization").cloned();
        assert_eq!(token.as_ref(), here[1].headers.get("authorization"));
        token
    };
    assert_eq!(shown(&["--hf-token", "hf_option"], Some("hf_env")).unwrap(), "Bearer hf_option");
    assert_eq!(shown(&[], Some("hf_env")).unwrap(), "Bearer hf_env");
    assert_eq!(shown(&[], None).unwrap(), "Bearer hf_of_login");
    fs::remove_file(cache.home.path().join("token")).unwrap();
    assert_eq!(shown(&[], None), None);
    let arguments = ["info", "-hf", "other/one", "--hf-token", "hf_\u{e4}"];
    let bad = outcome(cache.asks(&hub, &arguments).output().unwrap(), &arguments);
    bad.failed(2, "the token from --hf-token has characters", "hf_...");
}

/// A model in two parts, opened by its first one, as it would be in one.
#[test]
fn a_split_model_runs() {
    let dir = TempDir::new().unwrap();
    let parts = split("tiny-hybrid-q4_0.gguf", dir.path());
    let greedy = ["--no-repack-cache", "--temp", "0", "-n", "8", "--json", "def f(x):"];
    let whole = model("tiny-hybrid-q4_0.gguf");
    let expected = hexflash(&[&["run", "-m", text(&whole)][..], &greedy].concat()).succeeded().json();
    let by_file = hexflash(&[&["run", "-m", text(&parts[0])][..], &greedy].concat()).succeeded().json();
    assert_eq!(by_file["tokens"], expected["tokens"]);
    hexflash(&[&["run", "-m", text(&parts[1])][..], &greedy].concat()).failed(
        2,
        "is shard 2 of 2",
        "open split-Q4_K_M-00001-of-00002.gguf instead",
    );
    let names: Vec<_> = parts.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    let files: Vec<_> =
        names.iter().zip(&parts).map(|(&name, path)| (name, fs::read(path).unwrap())).collect();
    let (hub, cache) = (Hub::new(REPO, &files), HubCache::new());
    let arguments = [&["run", "-hf", REPO][..], &greedy].concat();
    let downloaded = outcome(cache.asks(&hub, &arguments).output().unwrap(), &arguments).succeeded();
    assert_eq!(downloaded.json()["tokens"], expected["tokens"]);
    let listed = cache.hexflash(&["models", "--json"]).succeeded().json();
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["bytes"]), (1, &bytes.into()));
    assert_eq!((&listed[0]["file"], &listed[0]["runs"]), (&names[0].into(), &"yes".into()));
}

/// All parts come, and those that are there do not come again.
#[test]
fn split_models() {
    let parts = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"];
    // What is in them is another matter: the first one says so when it is opened.
    let files = [(parts[0], b"not a model".to_vec()), (parts[1], b"nor this".to_vec())];
    let (hub, cache) = (Hub::new(REPO, &files), HubCache::new());
    let ask = |arguments: &[&str]| {
        let arguments = [&["info", "-hf", REPO], arguments].concat();
        outcome(cache.asks(&hub, &arguments).output().unwrap(), &arguments)
    };
    failed(ask(&[]), 2, parts[0], "not a GGUF");
    for (name, bytes) in &files {
        assert_eq!(fs::read(cache.path(REPO, name)).unwrap(), *bytes);
    }
    hub.asked();
    fs::remove_file(cache.blob(&files[1].1)).unwrap();
    failed(ask(&["-hff", parts[1]]), 2, parts[0], "not a GGUF");
    let asked: Vec<_> = hub.asked().into_iter().map(|asked| asked.path).collect();
    assert!(asked.len() == 2 && asked[1].ends_with(parts[1]), "{asked:?}");
    // Where there are no links, files have their names themselves, and no blob.
    fs::remove_file(cache.path(REPO, parts[0])).unwrap();
    fs::rename(cache.blob(&files[0].1), cache.path(REPO, parts[0])).unwrap();
    fs::remove_file(cache.blob(&files[1].1)).unwrap();
    failed(ask(&[]), 2, parts[0], "not a GGUF");
    let asked: Vec<_> = hub.asked().into_iter().map(|asked| asked.path).collect();
    assert!(asked.len() == 2 && asked[1].ends_with(parts[1]), "{asked:?}");
    assert_eq!(fs::read(cache.path(REPO, parts[0])).unwrap(), files[0].1);
}

/// One downloads, the other waits and finds the file.
#[test]
fn two_commands_at_once() {
    const WAITS: &str = "another process is downloading";
    let (hub, cache) = (hub(), HubCache::new());
    // No byte comes before one of the two says that it waits for the other.
    hub.mood(Mood::Waits);
    let (says, said) = mpsc::channel();
    let both: Vec<(String, String)> = thread::scope(|scope| {
        let threads = [(); 2].map(|()| {
            let says = says.clone();
            let mut command = cache.asks(&hub, &["info", "--json", "-hf", REPO]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            scope.spawn(move || {
                let mut stderr = String::new();
                let mut lines = BufReader::new(child.stderr.take().unwrap());
                while lines.read_line(&mut stderr).unwrap() > 0 {
                    if stderr.contains(WAITS) {
                        let _ = says.send(());
                    }
                }
                let output = child.wait_with_output().unwrap();
                assert!(output.status.success(), "{stderr}");
                (String::from_utf8(output.stdout).unwrap(), stderr)
            })
        });
        drop(says);
        let waits = said.recv_timeout(Duration::from_secs(60));
        hub.mood(Mood::Well);
        let both = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        waits.expect("nobody waits");
        both
    });
    assert_eq!(starts(&hub.asked()), [0]);
    assert_eq!(both[0].0, both[1].0);
    let waited = both.iter().filter(|(_, stderr)| stderr.contains(WAITS)).count();
    assert_eq!(waited, 1, "{both:?}");
}

/// Exit code 130, and the next command goes on.
#[test]
fn interrupted_downloads() {
    let (hub, cache) = (hub(), HubCache::new());
    hub.mood(Mood::Crawls);
    for verb in ["run", "info", "bench"] {
        let prompt: &[&str] = if verb == "run" { &["x"] } else { &[] };
        let arguments = [&[verb, "-hf", REPO], prompt].concat();
        let running = Running::start(cache.asks(&hub, &arguments));
        let started = Instant::now();
        let part = cache.partial(&bytes());
        let before = part.metadata().map_or(0, |about| about.len());
        while part.metadata().map_or(0, |about| about.len()) <= before {
            assert!(started.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(20));
        }
        running.send(Signal::INT);
        let ended = running.end(Signal::INT);
        assert_eq!(ended.code, Ok(130), "{ended:?}");
        assert!(ended.stderr.contains("the same command goes on from there]"), "{ended:?}");
        assert!(ended.stderr.lines().count() == 2 && ended.stdout.is_empty(), "{ended:?}");
    }
    hub.asked();
    hub.mood(Mood::Well);
    cache.info(&hub).succeeded();
    assert!(starts(&hub.asked())[0] > 0);
}

/// A cache that cannot be written, and no room.
#[test]
fn caches_that_take_nothing() {
    let (hub, cache) = (hub(), HubCache::new());
    let full = |path: &Path| {
        let arguments = ["info", "-hf", REPO];
        let mut command = cache.asks(&hub, &arguments);
        outcome(command.env("HF_HOME", path).output().unwrap(), &arguments)
    };
    // A file where a folder should be.
    let file = cache.home.path().join("file");
    fs::write(&file, "x").unwrap();
    let outcome = full(&file);
    let code = outcome.code.unwrap();
    failed(outcome, code, "cannot write", "set HF_HOME to another folder");
    assert!(matches!(code, 1 | 2));
    // The limit on the size of files stands in for a full disk.
    let command = cache.asks(&hub, &["info", "-hf", REPO]);
    let limited = format!("ulimit -f 1000; exec {:?} info -hf {REPO}", command.get_program());
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let outcome = super::support::outcome(shell.output().unwrap(), &[]);
    failed(outcome, 2, "cannot write", "make room");
    assert!(cache.partial(&bytes()).exists());
}

/// The bytes of the file may change on the Hub: a new commit has another blob.
#[test]
fn a_file_that_changed_on_the_hub_is_another_blob() {
    let (hub, cache) = (hub(), HubCache::new());
    cache.info(&hub).succeeded();
    hub.replace(FILE, b"new".to_vec());
    // What is there is used until it is deleted.
    cache.info(&hub).succeeded();
    fs::remove_dir_all(cache.repo(REPO).join("snapshots")).unwrap();
    failed(cache.info(&hub), 2, "tiny-Q4_K_M.gguf", "GGUF");
    assert!(cache.blob(b"new").exists());
}

//! Models of the Hub whose repositories have an encoder of pictures, too.

use std::fs;
use std::process::Stdio;

use hexflash::gguf::{Gguf, Value};
use hexflash_e2e::encoder::{self, SMOLVLM};
use tempfile::TempDir;

use super::hub_cache::HubCache;
use super::hub_server::{Hub, Mood};
use super::pictures::picture;
use super::support::{Change, Outcome, changed, model, outcome, text};

const REPO: &str = "some/seeing-GGUF";
const MODEL: &str = "seeing-Q4_K_M.gguf";
const ENCODER: &str = "mmproj-seeing-F16.gguf";
/// The shipped model that is made to one of an architecture that encoders are for.
const DENSE: &str = "tiny-dense-f16.gguf";

/// A model of the architecture `llama`, for which SmolVLM's encoder is.
fn llama() -> Vec<u8> {
    let dense = Gguf::open(&model(DENSE)).unwrap();
    let renamed: Vec<(String, Value)> = dense
        .meta()
        .iter()
        .filter_map(|(key, value)| Some((format!("llama.{}", key.strip_prefix("qwen3.")?), value.clone())))
        .collect();
    let norms: Vec<&str> = dense
        .tensors()
        .map(|tensor| tensor.name.as_str())
        .filter(|name| name.contains("q_norm") || name.contains("k_norm"))
        .collect();
    let mut changes = vec![Change::Key("general.architecture", Value::from("llama"))];
    changes.extend(renamed.iter().map(|(key, value)| Change::Key(key, value.clone())));
    changes.extend(norms.iter().map(|name| Change::NoTensor(name)));
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(MODEL);
    changed(DENSE, &path, &changes);
    fs::read(path).unwrap()
}

/// An encoder for a model of this width.
fn encoder(width: usize) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(ENCODER);
    encoder::write(width, SMOLVLM, &[], &path);
    fs::read(path).unwrap()
}

fn width() -> usize {
    let dense = Gguf::open(&model(DENSE)).unwrap();
    dense.meta().u32_opt("qwen3.embedding_length").unwrap().unwrap() as usize
}

struct User {
    hub: Hub,
    cache: HubCache,
    dir: TempDir,
}

impl User {
    fn new(files: &[(&str, Vec<u8>)]) -> Self {
        Self { hub: Hub::new(REPO, files), cache: HubCache::new(), dir: TempDir::new().unwrap() }
    }

    /// `hexflash run -hf REPO` with a picture if it `shows` one.
    fn runs(&self, shows: bool, more: &[&str]) -> Outcome {
        let photo = picture(self.dir.path(), "photo.bmp", 7);
        let fixed = ["run", "-hf", REPO, "--no-repack-cache", "--temp", "0", "-n", "4", "--json"];
        let image = if shows { vec!["--image", text(&photo)] } else { Vec::new() };
        let arguments = [&fixed[..], &image, more, &["fn main() {"]].concat();
        let mut command = self.cache.command(&arguments);
        outcome(command.env("HF_ENDPOINT", &self.hub.address).output().unwrap(), &arguments)
    }

    /// `hexflash chat -hf REPO`, where nobody says anything.
    fn chats(&self) -> Outcome {
        let arguments = ["chat", "-hf", REPO, "--no-repack-cache", "-n", "4", "--chat-template", "chatml"];
        let mut command = self.cache.command(&arguments);
        command.env("HF_ENDPOINT", &self.hub.address).stdin(Stdio::null());
        outcome(command.output().unwrap(), &arguments)
    }

    /// Files that were asked for since the last time.
    fn fetched(&self) -> Vec<String> {
        let files = self.hub.asked().into_iter().filter_map(|asked| {
            let (_, name) = asked.path.rsplit_once('/')?;
            asked.path.contains("/resolve/").then(|| name.to_owned())
        });
        files.collect()
    }
}

/// A picture brings the encoder along, once; a text alone brings the model, and finds what is there.
#[test]
fn a_model_that_is_shown_a_picture_brings_its_encoder() {
    let user = User::new(&[(MODEL, llama()), (ENCODER, encoder(width())), ("mmproj-BF16.gguf", vec![0])]);
    let shown = user.runs(true, &[]).succeeded();
    assert_eq!(user.fetched(), [MODEL, ENCODER]);
    let again = user.runs(true, &[]).succeeded();
    assert_eq!(user.fetched(), [""; 0]);
    let n = |outcome: &Outcome| outcome.json()["prompt_tokens"].as_u64().unwrap();
    assert_eq!(n(&shown), n(&again));
    let plain = user.runs(false, &[]).succeeded();
    assert!(n(&shown) > n(&plain) + 8, "{shown:?}");
    user.runs(true, &["--no-mmproj"]).failed(2, "no encoder of pictures", "--mmproj");
}

/// Whoever began with texts has the encoder with the first picture; offline, a line says that there is none.
#[test]
fn an_encoder_comes_when_it_is_needed() {
    let user = User::new(&[(MODEL, llama()), (ENCODER, encoder(width()))]);
    user.runs(false, &[]).succeeded();
    assert_eq!(user.fetched(), [MODEL]);
    user.runs(true, &["--offline"]).failed(2, "no encoder of pictures", "--mmproj");
    assert!(user.hub.asked().is_empty());
    user.runs(true, &[]).succeeded();
    assert_eq!(user.fetched(), [ENCODER]);
    user.runs(true, &["--offline"]).succeeded();
}

/// The second command brings what the first one could not.
#[test]
fn an_encoder_whose_download_was_cut_off_comes_later() {
    let (model, cut) = (llama(), 1 << 19);
    let pieces = model.len().div_ceil(cut);
    let user = User::new(&[(MODEL, model), (ENCODER, encoder(width()))]);
    user.hub.mood(Mood::CutsThenFails(cut, pieces + 1));
    let talk = user.chats();
    assert!(talk.code == Some(1) && talk.stderr.contains("repeat the command"), "{talk:?}");
    user.hub.mood(Mood::Well);
    user.hub.asked();
    assert_eq!(user.chats().code, Some(0));
    assert_eq!(user.fetched(), [ENCODER]);
    assert_eq!(user.chats().code, Some(0));
    assert!(user.hub.asked().is_empty());
}

/// With a picture it is an error; a conversation goes on without pictures.
#[test]
fn an_encoder_of_another_model_is_told() {
    let user = User::new(&[(MODEL, llama()), (ENCODER, encoder(width() + 32))]);
    let refused = user.runs(true, &[]);
    let last = refused.stderr.lines().last().unwrap_or_default().to_owned();
    assert_eq!(user.fetched(), [MODEL, ENCODER]);
    Outcome { stderr: format!("{last}\n"), ..refused }.failed(2, "another model", ENCODER);
    let talk = user.chats();
    assert_eq!(talk.code, Some(0), "{talk:?}");
    assert!(talk.stderr.contains("the model takes no pictures"), "{talk:?}");
}

//! `--mmproj` and `--image`.

use std::fs;
use std::path::{Path, PathBuf};

use hexflash_e2e::encoder::{self, LFM2, SMOLVLM, Shape};
use tempfile::TempDir;

use crate::support::{Outcome, hexflash, hexflash_reading, model, text};

const MODEL: &str = "tiny-hybrid-q8_0.gguf";
/// Width of its stream.
const WIDTH: usize = 256;

/// A BMP of these colours, 60 by 40 pixels.
pub fn picture(dir: &Path, name: &str, seed: u8) -> PathBuf {
    let (width, height) = (60u32, 40u32);
    let mut bytes = b"BM".to_vec();
    let size = 3 * width * height;
    for word in [54 + size, 0, 54, 40, width, height, 1 | 24 << 16, 0, size, 2835, 2835, 0, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend((0..size).map(|i| (i % 180).wrapping_mul(u32::from(seed)) as u8));
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

struct Shown {
    dir: TempDir,
    encoder: PathBuf,
    picture: PathBuf,
}

fn shown(shape: Shape) -> Shown {
    let dir = TempDir::new().unwrap();
    let encoder = dir.path().join("mmproj.gguf");
    encoder::write(WIDTH, shape, &[], &encoder);
    let picture = picture(dir.path(), "photo.bmp", 7);
    Shown { dir, encoder, picture }
}

impl Shown {
    fn run(&self, more: &[&str]) -> Outcome {
        let (model, encoder) = (model(MODEL), text(&self.encoder).to_owned());
        let fixed =
            ["run", "--no-repack-cache", "--temp", "0", "-n", "6", "-m", text(&model), "--mmproj", &encoder];
        hexflash(&[&fixed[..], more].concat())
    }
}

#[test]
fn a_picture_is_a_part_of_the_prompt() {
    for shape in [SMOLVLM, LFM2] {
        let shown = shown(shape);
        let photo = text(&shown.picture);
        let report = |more: &[&str]| -> serde_json::Value {
            let outcome = shown.run(&[&["--json"], more].concat());
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            serde_json::from_str(&outcome.stdout).unwrap()
        };
        let plain = report(&["fn main() {"]);
        let before = report(&["--image", photo, "fn main() {"]);
        let inside = report(&["--image", photo, "fn main() {<__media__>}"]);
        let twice = report(&["--image", photo, "--image", photo, "fn main() {"]);
        let n = |report: &serde_json::Value| report["prompt_tokens"].as_u64().unwrap();
        let rows = n(&before) - n(&plain);
        assert!(rows > 8, "{before}");
        assert!(n(&twice) - n(&before) >= rows, "{twice}");
        assert!(n(&inside).abs_diff(n(&before)) < 4, "{inside}");
        let ids = before["prompt_ids"].as_array().unwrap();
        assert_eq!(ids.len() as u64, n(&before));
        // As text the same, and once more the same.
        let printed = shown.run(&["--image", photo, "fn main() {"]);
        let generated = before["text"].as_str().unwrap();
        assert_eq!(printed.stdout, format!("fn main() {{{generated}\n"), "{printed:?}");
    }
}

#[test]
fn pictures_that_cannot_be_shown_are_refused() {
    let shown = shown(SMOLVLM);
    let photo = text(&shown.picture);
    let no_picture = shown.dir.path().join("notes.txt");
    fs::write(&no_picture, "no picture").unwrap();
    shown.run(&["--image", text(&no_picture), "a"]).failed(2, "notes.txt", "PNG, JPEG");
    shown.run(&["--image", "/no/such.png", "a"]).failed(2, "/no/such.png", "");
    shown.run(&["--image", photo, "<__media__> and <__media__>"]).failed(2, "2 places", "1 pictures");
    shown.run(&["--image", photo, "--prompt-ids", "1,2"]).failed(2, "--prompt-ids", "--help");
    let draft = model("tiny-hybrid-dflash-q8_0.gguf");
    shown.run(&["-md", text(&draft), "a"]).failed(2, "-md", "--mmproj");
    hexflash(&["run", "--image", photo, "a"]).failed(2, "--mmproj", "--help");
    let wide = shown.dir.path().join("wide.gguf");
    encoder::write(WIDTH + 32, SMOLVLM, &[], &wide);
    let model = model(MODEL);
    let run =
        ["run", "-m", text(&model), "--no-repack-cache", "--mmproj", text(&wide), "--image", photo, "a"];
    hexflash(&run).failed(2, "wide.gguf", "another model");
    // The other way round.
    hexflash(&["run", "-m", text(&wide), "a"]).failed(
        2,
        "an encoder of pictures",
        "give the target model with -m",
    );
}

#[test]
fn a_conversation_shows_pictures() {
    let shown = shown(SMOLVLM);
    let (model, photo) = (model(MODEL), text(&shown.picture));
    let talk = |mmproj: &[&str], lines: &str| {
        let fixed = ["chat", "-m", text(&model), "--no-repack-cache", "--temp", "0", "-n", "6"];
        let fixed = [&fixed[..], &["--chat-template", "chatml"], mmproj].concat();
        hexflash_reading(lines.as_bytes(), &fixed)
    };
    let mmproj = ["--mmproj", text(&shown.encoder)];
    let saved = shown.dir.path().join("talk.json");
    let lines =
        format!("/image {photo}\nWhat?\n/undo\n/image {photo}\nWhat?\n/save {}\nGo on\n", text(&saved));
    let outcome = talk(&mmproj, &lines);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let answers: Vec<&str> = outcome.stdout.lines().collect();
    assert!(answers.len() >= 3 && answers[0] == answers[1], "{outcome:?}");
    assert!(outcome.stderr.contains("tokens and rows"), "{outcome:?}");
    let saved = fs::read_to_string(saved).unwrap();
    assert!(saved.contains("<__media__>What?"), "{saved}");
    let outcome = talk(&[], &format!("/image {photo}\nWhat?\n"));
    assert!(outcome.code == Some(0) && outcome.stderr.contains("give one with --mmproj"), "{outcome:?}");
}

#[test]
fn memory_of_an_encoder_is_told() {
    let shown = shown(SMOLVLM);
    let model = model(MODEL);
    let arguments = ["info", "--json", "-m", text(&model), "--mmproj", text(&shown.encoder)];
    let outcome = hexflash(&arguments);
    let report: serde_json::Value =
        serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
    assert!(report["memory"]["encoder"].as_u64() > Some(100 << 10), "{report}");
    let printed = hexflash(&[&arguments[..1], &arguments[2..]].concat());
    assert!(printed.stdout.contains("encoder of pictures"), "{printed:?}");
}

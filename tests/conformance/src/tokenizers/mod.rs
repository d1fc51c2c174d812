//! Tokenizers of published models: hexflash's ids against those of Hugging Face's library, and of llama.cpp.
//!
//! The library decides: models were trained with its ids. llama.cpp's are shown, too, where they differ.

mod published;
pub mod texts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use hexflash::gguf::Gguf;
use hexflash::text::TextModel;
use hexflash::tokenizer::{TokenKind, Tokenizer};
use hexflash_oracle::llama::Model;

use crate::compare::architecture::Architecture;
use crate::compare::random::{self, ModelShape, WeightType};
use published::{Published, Reference};
use texts::Random;

/// Compares the tokenizers of published models with Hugging Face's library.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// A folder with a `tokenizer.json`, and what a GGUF calls it: the value of `tokenizer.ggml.pre`, or
    /// `llama` or `gemma4`
    #[arg(long = "vocabulary", value_name = "NAME=DIR", required = true, value_parser = named)]
    vocabularies: Vec<(String, PathBuf)>,
    /// Texts to encode and decode
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    texts: usize,
    /// Another seed makes other texts
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The root of the repository, whose files are among the texts.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Differences that are printed, of each vocabulary.
const SHOWN: usize = 5;
/// Characters of a text that are printed.
const SHOWN_CHARS: usize = 120;
/// Of so many texts one is given to llama.cpp, too, which is slow with some patterns.
const LLAMA_EVERY: usize = 4;

/// A model that nobody runs: its vocabulary is what counts.
pub const NOBODYS: ModelShape = ModelShape {
    architecture: Architecture::Llama,
    layers: 1,
    interval: 1,
    width: 32,
    ff: 32,
    heads: 1,
    kv_heads: 1,
    head: 32,
    window: 0,
    key_heads: 1,
    value_heads: 1,
    state: 32,
    taps: 4,
    vocab: 0,
    context: 16,
    weights: WeightType::F32,
    embedding_type: None,
    expert_type: None,
    untied: false,
    biases: false,
    scaling: None,
    experts: 1,
    used: 1,
    expert_ff: 32,
    dense_layers: 0,
    fused_experts: false,
    shared: 0,
    per_layer: 32,
    mtp: false,
    seed: 1,
};

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, dir) = text.split_once('=').ok_or("write NAME=DIR")?;
    Ok((name.to_owned(), dir.into()))
}

/// The verb.
///
/// # Errors
/// What cannot be read or loaded, in words.
pub fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let files = texts::files(Path::new(ROOT))?;
    let found: Vec<Result<bool, String>> = thread::scope(|scope| {
        let start = |(name, dir): &'_ (String, PathBuf)| {
            let (name, dir, files) = (name.clone(), dir.clone(), &files);
            scope.spawn(move || one(&name, &dir, arguments, files))
        };
        let under_way: Vec<_> = arguments.vocabularies.iter().map(start).collect();
        let panicked = |_| Err("a comparison panicked, see above".to_owned());
        under_way.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let mut fine = true;
    for found in found {
        fine &= found?;
    }
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts of what was compared.
#[derive(Default)]
struct Counts {
    texts: usize,
    tokens: usize,
    /// Texts that hexflash gives other ids, or does not give back.
    wrong: usize,
    /// Texts that llama.cpp gives other ids.
    llama: usize,
    /// Texts that had to be composed first.
    composed: usize,
}

/// Compares one vocabulary, and prints what was found.
fn one(name: &str, dir: &Path, arguments: &Arguments, files: &[String]) -> Result<bool, String> {
    let published = Published::read(dir, name)?;
    let temporary = tempfile::tempdir().map_err(|e| format!("cannot make a temporary directory: {e}"))?;
    let path = temporary.path().join("vocabulary.gguf");
    let vocab = published.vocabulary.tokens.len() as u32;
    random::write_with(&ModelShape { vocab, ..NOBODYS }, &published.vocabulary, &path)?;
    let ours = TextModel::read(&Gguf::open(&path).map_err(|e| e.to_string())?);
    let ours = ours.map_err(|e| e.to_string())?.tokenizer;
    let llama = Model::load(&path).map_err(|e| e.to_string())?;
    let is_hidden = |id| matches!(ours.kind(id), Some(TokenKind::Control | TokenKind::Unknown));
    let mut reference = published.reference(is_hidden)?;
    let mut random = Random::new(arguments.seed.into());
    let mut counts = Counts::default();
    for number in 0..arguments.texts {
        let text = random.any(number, &published.specials, files);
        // For the library of these vocabularies it is a blank; for SentencePiece itself, too, but not for
        // llama.cpp. No other text has it.
        if published.is_plain() && text.contains('\u{2581}') {
            continue;
        }
        let composed = published.composed(&text)?;
        counts.composed += usize::from(composed != text);
        compare(name, &composed, &mut reference, &ours, &llama, &mut counts)?;
    }
    println!(
        "{name}: {} texts, {} tokens: {} differ from the published tokenizer{}{}",
        counts.texts,
        counts.tokens,
        counts.wrong,
        if counts.llama > 0 {
            format!("; llama.cpp in {} of {}", counts.llama, counts.texts / LLAMA_EVERY)
        } else {
            String::new()
        },
        if counts.composed > 0 {
            format!("; {} were composed (NFC) first, as it does", counts.composed)
        } else {
            String::new()
        },
    );
    Ok(counts.wrong == 0 && counts.texts > 0)
}

/// Compares one text, with special tokens and without.
fn compare(
    name: &str,
    text: &str,
    reference: &mut Reference,
    ours: &Tokenizer,
    llama: &Model,
    counts: &mut Counts,
) -> Result<(), String> {
    counts.texts += 1;
    let (mut wrong, mut llama_wrong) = (false, false);
    for special in [false, true] {
        let expected = published::ids(reference, text, special)?;
        let found = ours.encode(text, false, special).map_err(|e| e.to_string())?;
        let decoded = ours.decode(&found, false).map_err(|e| e.to_string())?;
        counts.tokens += found.len();
        let show = |who: &str, found: &[u32]| {
            let shown: String = text.chars().take(SHOWN_CHARS).collect();
            let at = found.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            let ids = |ids: &[u32]| ids.iter().skip(at).take(8).copied().collect::<Vec<_>>();
            println!(
                "{name}: {shown:?}, special tokens {special}: from token {at} on the published \
                 tokenizer has {:?}, {who} {:?}",
                ids(&expected),
                ids(found),
            );
        };
        if counts.texts.is_multiple_of(LLAMA_EVERY) {
            let theirs = llama.tokenize_with(text, false, special).map_err(|e| e.to_string())?;
            let theirs: Vec<u32> = theirs.into_iter().map(|id| id as u32).collect();
            if theirs != expected {
                if counts.llama + counts.wrong < SHOWN && !llama_wrong {
                    show("llama.cpp", &theirs);
                }
                llama_wrong = true;
            }
        }
        if found != expected || decoded != text {
            wrong = true;
            if counts.wrong < SHOWN {
                show("hexflash", &found);
                println!("{name}: the text comes back: {}", decoded == text);
            }
        }
    }
    counts.wrong += usize::from(wrong);
    counts.llama += usize::from(llama_wrong);
    Ok(())
}

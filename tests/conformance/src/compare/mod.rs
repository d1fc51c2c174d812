//! A model in llama.cpp and in hexflash, side by side: greedy tokens, logits, perplexity.
//!
//! What is left between the two is rounding: llama.cpp rounds activations to F16 for F16 weights and to int8
//! per 256 (Q8_K) for Q6_K ones, where hexflash keeps F32 and int8 per 32; and both quantize activations that
//! already differ in the last bit, which now and then moves one by a whole step. There are limits for what a
//! few layers make of that. Where they are exceeded, as they are by many layers, it is measured: the same
//! weights in F32 make llama.cpp round nothing, and hexflash may be as far from that as llama.cpp with the
//! model's own weights is.

mod exact;
mod measure;
mod pair;
pub mod random;
mod shapes;
#[cfg(test)]
mod tests;
mod verdict;
#[cfg(test)]
mod vocabularies;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgAction;
use hexflash::model::CacheType;
use measure::Chunk;
use pair::Pair;
use verdict::Outcome;

/// Compares hexflash with llama.cpp on the same model file.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// The model; given more than once, one after the other
    #[arg(short, long, value_name = "GGUF", required_unless_present = "random", action = ArgAction::Append)]
    model: Vec<PathBuf>,
    /// A DFlash draft of the model: the tokens of both with it, against those without
    #[arg(long = "model-draft", visible_alias = "md", value_name = "GGUF", conflicts_with = "random")]
    model_draft: Option<PathBuf>,
    /// The text [default: the one in tests/data]
    #[arg(short, long, value_name = "TEXT")]
    file: Option<PathBuf>,
    /// Tokens of a chunk; each starts with an empty context [default: the model's context, at most 512]
    #[arg(short = 'c', long, value_name = "N")]
    ctx: Option<u32>,
    /// Tokens to compare
    #[arg(long, value_name = "N", default_value_t = 4096)]
    tokens: usize,
    /// Tokens to generate greedily
    #[arg(long, value_name = "N", default_value_t = 64)]
    greedy: usize,
    /// The device that hexflash runs on
    #[arg(long, default_value = "inproc", value_name = "NAME")]
    device: String,
    /// Number format of hexflash's caches; llama.cpp's are F16
    #[arg(long, value_name = "TYPE", default_value_t = CacheType::F16)]
    cache_type: CacheType,
    /// One JSON object per model
    #[arg(long)]
    json: bool,
    /// Also compare llama.cpp with itself, fed token by token: what rounding alone does
    #[arg(long)]
    noise: bool,
    /// Make models with random weights in real widths, and compare those
    #[arg(long, conflicts_with_all = ["model", "file"])]
    random: bool,
    /// With --random: only shapes whose name contains this
    #[arg(long, value_name = "NAME", requires = "random")]
    shape: Option<String>,
}

/// The text to compare on when none is given.
const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/compare.txt");

/// The verb.
///
/// # Errors
/// What cannot be loaded or read, in words.
pub fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let mut fine = true;
    if arguments.random {
        let dir = tempfile::tempdir().map_err(|e| format!("cannot make a temporary directory: {e}"))?;
        let wanted = |name: &str| arguments.shape.as_deref().is_none_or(|part| name.contains(part));
        let shapes: Vec<_> = shapes::SHAPES.iter().filter(|s| wanted(s.name)).collect();
        if shapes.is_empty() {
            let names: Vec<_> = shapes::SHAPES.iter().map(|s| s.name).collect();
            return Err(format!("there is no such shape; the shapes are: {}", names.join(", ")));
        }
        for shape in shapes {
            let path = dir.path().join(format!("{}.gguf", shape.name));
            random::write(&shape.model, &path)?;
            let tokens = random::tokens(&shape.model, arguments.tokens);
            fine &= one(arguments, &path, Some(tokens), shape.name)?;
            // Models of real widths are large: one at a time.
            std::fs::remove_file(&path).map_err(|e| e.to_string())?;
        }
    }
    for path in &arguments.model {
        fine &= one(arguments, path, None, &path.display().to_string())?;
    }
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares one model, on the text or on given tokens, and prints the outcome.
fn one(arguments: &Arguments, path: &Path, tokens: Option<Vec<i32>>, name: &str) -> Result<bool, String> {
    let mut pair = Pair::load(path, &arguments.device, arguments.ctx, arguments.cache_type)?;
    let tokens = match tokens {
        Some(tokens) => tokens,
        None => {
            let file = arguments.file.clone().unwrap_or_else(|| PathBuf::from(TEXT));
            let text = std::fs::read_to_string(&file);
            let text = text.map_err(|e| format!("cannot read {}: {e}", file.display()))?;
            let mut tokens = pair.tokenize(&text)?;
            tokens.truncate(arguments.tokens);
            tokens
        }
    };
    if !arguments.json {
        println!("{name}: {} tokens in chunks of {}", tokens.len(), pair.n_ctx());
    }
    let each = |chunk: &Chunk| {
        if !arguments.json {
            println!("  {chunk}");
        }
    };
    let draft = arguments.model_draft.as_deref();
    let outcome = outcome(&mut pair, &tokens, arguments.greedy, draft, arguments.noise, each)?;
    if arguments.json {
        println!("{}", outcome.json(name));
    } else {
        print!("{outcome}");
    }
    Ok(outcome.passes())
}

/// What comes out for some tokens; `each` gets every chunk.
fn outcome(
    pair: &mut Pair,
    tokens: &[i32],
    greedy: usize,
    draft: Option<&Path>,
    noise: bool,
    each: impl FnMut(&Chunk),
) -> Result<Outcome, String> {
    let text = pair.text(tokens, noise, each)?;
    let speculation = draft.map(|draft| pair.speculate(draft, tokens, greedy)).transpose()?;
    let greedy = pair.greedy(tokens, greedy)?;
    let limits = pair.limits();
    let mut outcome = Outcome { text, greedy, speculation, limits, rounding: None };
    if !outcome.is_within_limits() {
        outcome.rounding = Some(pair.rounding(tokens));
    }
    Ok(outcome)
}

//! A model in llama.cpp and in hexflash, side by side: greedy tokens, logits, perplexity.
//!
//! What is left between the two is rounding: llama.cpp rounds activations to F16 for F16 weights and to int8
//! per 256 (Q8_K) for Q6_K ones, where hexflash keeps F32 and int8 per 32; and both quantize activations that
//! already differ in the last bit, which now and then moves one by a whole step. There are limits for what a
//! few layers make of that. Where they are exceeded, as they are by many layers, it is measured: the same
//! weights in F32 make llama.cpp round nothing, and hexflash may be as far from that as llama.cpp with the
//! model's own weights is.

pub mod architecture;
mod assistant;
mod chains;
mod chat;
mod eagle3;
mod exact;
mod measure;
mod pair;
pub mod random;
pub mod shapes;
mod table;
#[cfg(test)]
mod tests;
mod verdict;
#[cfg(test)]
mod vocabularies;
pub mod vocabulary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgAction;
use hexflash::model::CacheType;
use hexflash_oracle::llama::{FileType, quantize};

use crate::part::Part;
use measure::Chunk;
use pair::Pair;
use shapes::Draft;
use table::Row;
use verdict::Outcome;

/// Compares hexflash with llama.cpp on the same model file.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// The model; given more than once, one after the other
    #[arg(short, long, value_name = "GGUF", required_unless_present = "random", action = ArgAction::Append)]
    model: Vec<PathBuf>,
    /// A DFlash draft of the model: the tokens of both with it, against those without; or an EAGLE3 draft or
    /// a Gemma 4 assistant: the drafts of both
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
    /// Compare each model in these types, to which llama.cpp quantizes it [default: all of them]
    #[arg(long, value_name = "TYPE", num_args = 0.., value_delimiter = ',', conflicts_with = "random")]
    quantized: Option<Vec<String>>,
    /// Also compare answers to ten questions, in the chat format of the model's file
    #[arg(long, conflicts_with = "random")]
    chat: bool,
    /// Update the table of a page, docs/models.md, with what was found
    #[arg(long, value_name = "PAGE")]
    write_table: Option<PathBuf>,
    /// With --random: only a part of the shapes, I/N, counted from 0
    #[arg(long, value_name = "I/N", requires = "random", conflicts_with = "write_table")]
    part: Option<Part>,
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
    let types = file_types(arguments.quantized.as_deref())?;
    let dir = tempfile::tempdir().map_err(|e| format!("cannot make a temporary directory: {e}"))?;
    let mut rows = Vec::new();
    let mut fine = true;
    let mut take = |found: Option<Row>| match found {
        Some(row) => rows.push(row),
        None => fine = false,
    };
    if arguments.random {
        let wanted = |name: &str| arguments.shape.as_deref().is_none_or(|part| name.contains(part));
        let shapes: Vec<_> = shapes::SHAPES.iter().filter(|s| wanted(s.name)).collect();
        let drafted: Vec<_> = shapes::DRAFTED.iter().filter(|s| wanted(s.name)).collect();
        if shapes.is_empty() && drafted.is_empty() {
            let names = shapes::SHAPES.iter().map(|s| s.name);
            let names: Vec<_> = names.chain(shapes::DRAFTED.iter().map(|s| s.name)).collect();
            return Err(format!("there is no such shape; the shapes are: {}", names.join(", ")));
        }
        let part = arguments.part.unwrap_or(Part::first(1));
        for (_, shape) in (0..).zip(shapes).filter(|(place, _)| part.has(*place)) {
            let path = dir.path().join(format!("{}.gguf", shape.name));
            random::write(&shape.model, &path)?;
            let tokens = random::tokens(&shape.model, arguments.tokens);
            take(one(arguments, &path, None, Some(tokens), shape.name)?);
            // Models of real widths are large: one at a time.
            std::fs::remove_file(&path).map_err(|e| e.to_string())?;
        }
        for shape in drafted {
            let [path, draft] = ["target", "draft"].map(|of| dir.path().join(format!("{of}.gguf")));
            random::write(&shape.target, &path)?;
            match &shape.draft {
                Draft::Assistant(draft_shape) => assistant::write(&shape.target, draft_shape, &draft)?,
                Draft::Eagle3(draft_shape) => eagle3::write(&shape.target, draft_shape, &draft)?,
            }
            let tokens = random::tokens(&shape.target, arguments.tokens);
            take(one(arguments, &path, Some(&draft), Some(tokens), shape.name)?);
        }
    }
    let draft = arguments.model_draft.as_deref();
    for path in &arguments.model {
        if arguments.quantized.is_none() {
            take(one(arguments, path, draft, None, &path.display().to_string())?);
        }
        for file_type in &types {
            let made = dir.path().join("quantized.gguf");
            quantize(path, &made, *file_type).map_err(|e| e.to_string())?;
            let name = format!("{} as {}", path.display(), file_type.name());
            take(one(arguments, &made, draft, None, &name)?);
            std::fs::remove_file(&made).map_err(|e| e.to_string())?;
        }
    }
    if let Some(page) = &arguments.write_table {
        table::update(page, &rows)?;
    }
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The types with these names, or all where none is named.
fn file_types(names: Option<&[String]>) -> Result<Vec<FileType>, String> {
    let known = || FileType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let found = FileType::ALL.iter().find(|ty| ty.name().eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| format!("there is no type {name:?}; the types are: {}", known()))
    };
    match names {
        None => Ok(Vec::new()),
        Some([]) => Ok(FileType::ALL.to_vec()),
        Some(names) => names.iter().map(find).collect(),
    }
}

/// Compares one model, on the text or on given tokens, and prints the outcome. Gives a row if it passes.
fn one(
    arguments: &Arguments,
    path: &Path,
    draft: Option<&Path>,
    tokens: Option<Vec<i32>>,
    name: &str,
) -> Result<Option<Row>, String> {
    let mut pair = Pair::load(path, &arguments.device, arguments.ctx, arguments.cache_type)?;
    let is_random = tokens.is_some();
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
    let weights = pair.weights();
    if !arguments.json {
        println!("{name} ({weights}): {} tokens in chunks of {}", tokens.len(), pair.n_ctx());
    }
    let each = |chunk: &Chunk| {
        if !arguments.json {
            println!("  {chunk}");
        }
    };
    let mut outcome = outcome(&mut pair, &tokens, arguments.greedy, draft, arguments.noise, each)?;
    if arguments.chat {
        outcome.answers = chat::answers(&mut pair, arguments.greedy)?;
        // It says which of their differences are near-ties.
        outcome.rounding.get_or_insert_with(|| pair.rounding(&tokens));
    }
    if arguments.json {
        println!("{}", outcome.json(name));
    } else {
        print!("{outcome}");
    }
    let architecture = pair.gguf().meta().require_str("general.architecture").map_err(|e| e.to_string())?;
    // Of a file the name alone: where it is, is no business of the page's.
    let model = if is_random { format!("random: {name}") } else { stem(name) };
    Ok(outcome.passes().then(|| Row::new(architecture, &weights, &model, &outcome)))
}

/// The name of a file without its folder and its ending, with what follows it.
fn stem(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.replacen(".gguf", "", 1)
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
    let (speculation, chains) = match draft {
        Some(draft) => match pair.chains_of(draft, tokens, greedy)? {
            Some(chains) => (None, Some(chains)),
            None => (Some(pair.speculate(draft, tokens, greedy)?), pair.chains(tokens, greedy)?),
        },
        None => (None, pair.chains(tokens, greedy)?),
    };
    let greedy = pair.greedy(tokens, greedy)?;
    let limits = pair.limits();
    let mut outcome =
        Outcome { text, greedy, speculation, chains, limits, rounding: None, answers: Vec::new() };
    if !outcome.is_within_limits() {
        outcome.rounding = Some(pair.rounding(tokens));
    }
    Ok(outcome)
}

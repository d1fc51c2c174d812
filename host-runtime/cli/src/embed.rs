//! `hexflash embed`: texts in, vectors out.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::json;

use super::interrupt::{self, cancel_on_signals};
use super::options::{DeviceArgs, EngineArgs, ModelArgs};
use super::output::print_json;
use super::progress::Progress;
use super::{CliError, input};
use hexflash::embed::{Embedder, Norm, Pooling};
use hexflash::engine::ModelFiles;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The texts [default: the lines of what a pipe on standard input has]
    #[arg(conflicts_with = "file")]
    texts: Vec<String>,
    /// Read the texts from FILE (- for standard input), one on each line
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Vector of a text, of those of its tokens (cls is the first one's), or none for a vector of each token
    /// [default: as the model's file says, or last]
    #[arg(long, value_name = "POOLING", value_parser = one_of::<Vectors>(&["none", "mean", "cls", "last"]))]
    pooling: Option<Vectors>,
    /// How vectors are scaled: -1 not at all, 0 by their largest value to 32760, 1 by the sum of absolute
    /// values, 2 to length 1, higher by that norm
    #[arg(long, value_name = "N", default_value = "2", allow_negative_numbers = true, value_parser = norm)]
    embd_normalize: Norm,
    /// Print one JSON object, in the form of OpenAI's interface, instead of a line for each vector
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Vectors that are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vectors {
    /// One for each token.
    OfTokens,
    /// One for each text.
    OfTexts(Pooling),
}

impl FromStr for Vectors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::OfTokens),
            text => text.parse().map(Self::OfTexts).map_err(|error| format!("{error}, none")),
        }
    }
}

/// Parses one of these words, which help and completions list.
pub(super) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// Parses `--embd-normalize`.
fn norm(text: &str) -> Result<Norm, String> {
    let number = text.parse().ok().and_then(Norm::new);
    number.ok_or_else(|| "give -1 for vectors as they are, or the number of a norm from 0 on".to_owned())
}

impl Args {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        [!self.model.is_given(), false]
    }

    /// The texts; of a file, the lines that are not empty.
    fn texts(&self) -> Result<Vec<String>, CliError> {
        let file = match &self.file {
            Some(file) => file,
            None if !self.texts.is_empty() => return Ok(self.texts.clone()),
            None if io::stdin().is_terminal() => return Err(CliError::NoPrompt),
            None => Path::new("-"),
        };
        let text = input::text(file)?;
        let texts: Vec<_> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if texts.is_empty() { Err(CliError::NoPrompt) } else { Ok(texts) }
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let texts = args.texts()?;
    let cancel = cancel_on_signals();
    let gguf = args.model.open(&cancel)?;
    let options = Embedder::engine_options(&gguf, &args.engine.options())?;
    let device = args.device.open_for(ModelFiles::of(&gguf), &options)?;
    let mut embedder = args.engine.load_embedder(&gguf, &options, device, &cancel)?;
    if let Some(Vectors::OfTexts(pooling)) = args.pooling {
        embedder = embedder.pooling(pooling);
    }
    let progress = Progress::count("reading texts", texts.len());
    let (mut vectors, mut tokens) = (Vec::new(), 0);
    for (i, text) in texts.iter().enumerate() {
        if cancel.is_cancelled() {
            progress.finish();
            return Ok(interrupt::exit_code());
        }
        let ids = embedder.tokens(text)?;
        tokens += ids.len();
        let first = vectors.len();
        match args.pooling {
            Some(Vectors::OfTokens) => vectors.extend(embedder.embed_each(&ids)?),
            _ => vectors.push(embedder.embed_tokens(&ids)?),
        }
        vectors[first..].iter_mut().for_each(|vector| args.embd_normalize.apply(vector));
        progress.at(i as u64 + 1);
    }
    progress.finish();
    if args.json {
        let data: Vec<_> = vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| json!({ "object": "embedding", "index": index, "embedding": vector }))
            .collect();
        let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
        let model = gguf.path().display().to_string();
        print_json(&json!({ "object": "list", "model": model, "data": data, "usage": usage }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for vector in &vectors {
        for (i, value) in vector.iter().enumerate() {
            let blank = if i == 0 { "" } else { " " };
            write!(out, "{blank}{value}")?;
        }
        writeln!(out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

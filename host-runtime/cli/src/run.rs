//! `hexflash run`: a prompt in, text out.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use super::conversation::Conversation;
use super::interrupt::{self, cancel_on_signals};
use super::output::say;
use super::pictures::PictureArgs;
use super::progress::Progress;
use super::writing::WritingArgs;
use super::{CliError, input, template};
use hexflash::engine::EngineOptions;
use hexflash::generate::{Event, Finish, GenerateError, Generated, Generation, Limits, Request, Stats};
use hexflash::sampler::Sampler;
use hexflash::speculation::SpecStats;
use hexflash::text::{TextError, TextModel};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The prompt [default: what a pipe on standard input has]
    #[arg(conflicts_with_all = ["file", "prompt_ids"])]
    prompt: Option<String>,
    /// Read the prompt from FILE (- for standard input)
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt_ids")]
    file: Option<PathBuf>,
    /// Token ids instead of text, separated by commas or spaces
    #[arg(long, value_name = "IDS", value_delimiter = ',', num_args = 1..)]
    prompt_ids: Vec<String>,
    /// Treat the prompt as a user's message and apply the model's chat template
    #[arg(long, conflicts_with = "prompt_ids")]
    chat: bool,
    /// System message for --chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Chat template to use instead of the model's: a file, or chatml
    #[arg(long, value_name = "FILE", requires = "chat")]
    chat_template: Option<PathBuf>,
    /// Ask the template for an answer without a thinking block
    #[arg(long, requires = "chat")]
    no_thinking: bool,
    /// Tokens to generate [default: 128]; -1 or -2 until the context is full
    #[arg(short = 'n', long = "predict", value_name = "N", value_parser = count)]
    predict: Option<i64>,
    /// Text that ends the generation (may be given several times)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on after an end-of-generation token
    #[arg(long)]
    ignore_eos: bool,
    /// Print one JSON object instead of streaming text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pictures: PictureArgs,
    #[command(flatten)]
    writing: WritingArgs,
}

/// Parses `-n`: a positive count; -1 (no limit) and -2 (until the context is full) are the same here.
pub(super) fn count(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(n) if n > 0 || matches!(n, -1 | -2) => Ok(n),
        _ => Err("give a positive number of tokens, or -1 to fill the context".to_owned()),
    }
}

impl Args {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        self.writing.lacks()
    }
}

/// Tokens when the user gives no `-n`.
const DEFAULT_PREDICT: i64 = 128;

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    model: String,
    device: String,
    prompt_tokens: usize,
    prompt_ids: Vec<u32>,
    seed: Option<u64>,
    #[serde(flatten)]
    generated: Generated,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    // Cheap checks first: nobody should wait for a model to learn of a typo.
    let ids = prompt_ids(&args.prompt_ids)?;
    let text = if ids.is_none() { Some(prompt_text(args)?) } else { None };
    let template = args.chat_template.as_deref().map(template::read).transpose()?;
    let shown = args.pictures.read()?;
    let text = text.map(|text| shown.place(text)).transpose()?;
    // Not earlier: whoever waits for an input that does not come wants the first Ctrl-C to end the process.
    let cancel = cancel_on_signals();
    let writing = &args.writing;
    let wish = args.pictures.wish();
    let gguf = writing.open(wish, &cancel)?;
    let model = TextModel::read(&gguf)?;
    let params = model.sampling.clone().overridden_by(&writing.sampling.overrides());
    let sampler = Sampler::new(params)?;
    let written = match text {
        Some(text) if args.chat => {
            let (thinks, system) = (!args.no_thinking, args.system.clone());
            let mut talk = Conversation::with_model(&model, gguf.path(), template, thinks, system)?;
            talk.ask(text);
            talk.written(&model)?
        }
        text => text.unwrap_or_default(),
    };
    // A prompt with pictures has to wait for the model.
    let mut prompt = match ids {
        Some(ids) => ids,
        None if !shown.is_empty() => Vec::new(),
        None if args.chat => model.tokenizer.encode_prompt(&written).map_err(TextError::from)?,
        None => model.encode(&written)?,
    };
    if prompt.is_empty() && shown.is_empty() {
        return Err(if args.chat { CliError::EmptyChat } else { CliError::NoPrompt });
    }
    let drafter = writing.drafter(&gguf)?;
    let speculation = writing.spec.speculation(&drafter);
    let options = EngineOptions { speculate: speculation.is_on(), ..writing.engine.options() };
    let mut report = Report {
        model: gguf.path().display().to_string(),
        device: writing.device.device.clone(),
        prompt_tokens: prompt.len(),
        prompt_ids: Vec::new(),
        seed: (!sampler.is_greedy()).then(|| sampler.seed()),
        generated: Generated {
            tokens: Vec::new(),
            text: String::new(),
            finish_reason: Finish::Interrupted,
            stop: None,
            stats: Stats::default(),
        },
    };
    let engine = writing.load((&gguf, wish), &drafter, &options, &cancel);
    if args.json && engine.as_ref().is_err_and(CliError::is_cancelled) {
        report.prompt_ids = prompt;
        print_line(&mut io::stdout().lock(), &report)?;
        return Ok(interrupt::exit_code());
    }
    let mut engine = engine?;
    // Their rows are kept until the text has ended.
    let tokens = match shown.is_empty() {
        true => None,
        false => Some(shown.prompt(&mut engine, &model, &written, args.chat)?),
    };
    if let Some(tokens) = &tokens {
        prompt.clone_from(&tokens.tokens);
    }
    (report.prompt_tokens, report.prompt_ids) = (prompt.len(), prompt.clone());

    let limits = Limits {
        max_tokens: usize::try_from(args.predict.unwrap_or(DEFAULT_PREDICT)).ok(),
        stop: args.stop.iter().filter(|s| !s.is_empty()).cloned().collect(),
        ignore_eos: args.ignore_eos,
        cancel,
        ..Limits::default()
    };
    let mut out = io::stdout().lock();
    if !args.json && args.prompt.is_some() && !args.chat {
        write!(out, "{}", args.prompt.as_deref().unwrap_or_default())?;
        out.flush()?;
    }
    let cancel = limits.cancel.clone();
    let mut failed = None;
    let bar = Progress::count("reading the prompt", prompt.len());
    let request = Request::new(prompt, sampler).limits(limits).speculation(speculation);
    let generated = Generation::new(model.tokenizer.clone(), request).run(&mut engine, |event| match event {
        Event::Prompt { done, total } if done < total => bar.at(done as u64),
        Event::Prompt { .. } => bar.finish(),
        Event::Text(piece) if !args.json && !piece.is_empty() && failed.is_none() => {
            failed = out.write_all(piece.as_bytes()).and_then(|()| out.flush()).err();
            if failed.is_some() {
                cancel.cancel();
            }
        }
        Event::Text(_) | Event::Done(_) => {}
    });
    bar.finish();
    let generated = match generated {
        Ok(ended) => ended.generated,
        Err(error) => {
            if let GenerateError::Lost { tokens, text, .. } | GenerateError::Damaged { tokens, text, .. } =
                &error
            {
                if args.json {
                    let kept = json!({ "tokens": tokens, "text": text, "error": error.to_string() });
                    print_line(&mut out, &kept)?;
                } else {
                    writeln!(out)?;
                }
            }
            return Err(error.into());
        }
    };
    if let Some(error) = failed {
        return Err(error.into());
    }
    let interrupted = generated.finish_reason == Finish::Interrupted;
    if args.json {
        report.generated = generated;
        print_line(&mut out, &report)?;
    } else {
        writeln!(out)?;
        out.flush()?;
        say(statistics(&generated, engine.n_ctx()));
        if let Some(stats) = &generated.stats.speculation {
            say(drafting(stats));
        }
    }
    Ok(if interrupted { interrupt::exit_code() } else { ExitCode::SUCCESS })
}

/// Prints a value on one line, for programs to read.
fn print_line(out: &mut impl Write, value: &impl Serialize) -> Result<(), CliError> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// `--prompt-ids`, if given.
fn prompt_ids(given: &[String]) -> Result<Option<Vec<u32>>, CliError> {
    if given.is_empty() {
        return Ok(None);
    }
    let words = given.iter().flat_map(|ids| ids.split_whitespace());
    let ids = words.map(|id| id.parse().map_err(|_| CliError::PromptIds { found: id.to_owned() }));
    ids.collect::<Result<Vec<u32>, _>>().map(Some)
}

/// The prompt as text, from the argument, a file or standard input.
fn prompt_text(args: &Args) -> Result<String, CliError> {
    match (&args.prompt, &args.file) {
        (Some(prompt), _) => Ok(prompt.clone()),
        (None, Some(path)) => input::text(path),
        (None, None) if io::stdin().is_terminal() => Err(CliError::NoPrompt),
        (None, None) => {
            // As `echo` and editors end their lines.
            let mut text = input::text(Path::new("-"))?;
            text.truncate(text.strip_suffix('\n').unwrap_or(&text).len());
            if text.is_empty() { Err(CliError::NoPrompt) } else { Ok(text) }
        }
    }
}

/// The line about speculation.
pub(super) fn drafting(s: &SpecStats) -> String {
    let at: Vec<String> = s.acceptance_at().map(|share| format!("{:.0}", 100.0 * share)).collect();
    format!(
        "[drafted {}, accepted {} ({:.1} %) in {} rounds and {} plain steps; mean accepted length {:.2}; % \
         by position {}]",
        s.drafted,
        s.accepted,
        100.0 * s.acceptance(),
        s.rounds,
        s.steps,
        s.mean_accepted_length(),
        at.join(" "),
    )
}

/// The line after the text.
pub(super) fn statistics(g: &Generated, n_ctx: u32) -> String {
    let s = &g.stats;
    let reason = match g.finish_reason {
        Finish::Eog => "end of text",
        Finish::Length => "length",
        Finish::Stop => "stop text",
        Finish::Context => "context full",
        Finish::Interrupted => "interrupted",
    };
    format!(
        "[{reason}; prompt {} tokens, {:.1} tok/s; generated {} tokens, {:.1} tok/s; host {:.1} us/step; \
         context {}/{n_ctx}]",
        s.prompt_tokens,
        s.prompt_per_second,
        s.generated_tokens,
        s.generated_per_second,
        s.host_us_per_step,
        s.context_tokens,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in the context, and not what this turn has added.
    #[test]
    fn the_last_line_counts_earlier_turns() {
        let (prompt_tokens, generated_tokens, context_tokens) = (3, 5, 100);
        let stats = Stats { prompt_tokens, generated_tokens, context_tokens, ..Stats::default() };
        let generated = Generated {
            tokens: Vec::new(),
            text: String::new(),
            finish_reason: Finish::Length,
            stop: None,
            stats,
        };
        assert!(statistics(&generated, 512).ends_with("context 100/512]"));
    }
}

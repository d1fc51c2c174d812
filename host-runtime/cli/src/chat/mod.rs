//! `hexflash chat`: a conversation in the terminal, or one whose lines come from a file or a pipe.

mod line;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use super::conversation::Conversation;
use super::hub::EncoderWish;
use super::interrupt::{self, Turn, cancel_on_signals};
use super::output::say;
use super::pictures::Gallery;
use super::plain::plain_lines;
use super::progress::Progress;
use super::run::{count, drafting, statistics};
use super::writing::WritingArgs;
use super::{CliError, template};
use hexflash::cancel::Cancel;
use hexflash::engine::{Engine, EngineOptions, SequenceId};
use hexflash::generate::{Event, Finish, Generated, Generation, Limits, Request};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::Speculation;
use hexflash::text::TextModel;
use line::{Command, Line};
use terminal::{Lines, Typed};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// System message
    #[arg(long, visible_alias = "system-prompt", value_name = "TEXT")]
    system: Option<String>,
    /// Chat template to use instead of the model's: a file, or chatml
    #[arg(long, value_name = "FILE")]
    chat_template: Option<std::path::PathBuf>,
    /// Ask the template for answers without a thinking block
    #[arg(long)]
    no_thinking: bool,
    /// Tokens of an answer at most [default: -1, until the context is full]
    #[arg(short = 'n', long = "predict", value_name = "N", value_parser = count)]
    predict: Option<i64>,
    /// Show in another colour what was drafted
    #[arg(long)]
    show_drafts: bool,
    #[command(flatten)]
    writing: WritingArgs,
}

impl Args {
    /// Whether a target and a draft could be used, and are not named.
    pub(super) fn lacks(&self) -> [bool; 2] {
        self.writing.lacks()
    }
}

/// Bytes for snapshots of recurrent states: hybrids can answer a second time without reading everything anew.
const SNAPSHOTS: u64 = 256 << 20;
/// The terminal's codes for what was drafted, and for the end of that.
const GREEN: &str = "\x1b[32m";
const RESET: &str = "\x1b[0m";

pub(super) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let template = args.chat_template.as_deref().map(template::read).transpose()?;
    let (writing, cancel) = (&args.writing, cancel_on_signals());
    let gguf = writing.open(EncoderWish::WithDownload, &cancel)?;
    let text = TextModel::read(&gguf)?;
    let sampling = text.sampling.clone().overridden_by(&writing.sampling.overrides());
    let seed = Sampler::new(sampling.clone())?.seed();
    let (thinks, system) = (!args.no_thinking, args.system.clone());
    let talk = Conversation::with_model(&text, gguf.path(), template, thinks, system)?;
    let drafter = writing.drafter(&gguf)?;
    let speculation = writing.spec.speculation(&drafter);
    let options = EngineOptions {
        speculate: speculation.is_on(),
        snapshot_bytes: SNAPSHOTS,
        ..writing.engine.options()
    };
    let engine = writing.load((&gguf, EncoderWish::WithDownload), &drafter, &options, &cancel)?;
    let is_coloured = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut chat = Chat {
        talk,
        writer: Writer {
            text,
            engine,
            sampling: SamplerParams { seed: Some(seed), ..sampling },
            speculation,
            max_tokens: args.predict.and_then(|n| usize::try_from(n).ok()),
            shows_drafts: args.show_drafts && is_coloured,
            cancel,
        },
        gallery: Gallery::default(),
        last: None,
    };
    chat.run(&mut Lines::open()?)
}

/// A conversation, and who answers.
struct Chat {
    talk: Conversation,
    writer: Writer,
    /// The pictures of the conversation.
    gallery: Gallery,
    /// The last answer.
    last: Option<Generated>,
}

impl Chat {
    /// Takes turns until the user leaves.
    fn run(&mut self, lines: &mut Lines) -> Result<ExitCode, CliError> {
        if lines.is_terminal() {
            say("/help lists commands; Ctrl-D leaves.");
        }
        loop {
            let line = match lines.next()? {
                Typed::Line(line) => line,
                Typed::GivenUp => {
                    say("(Ctrl-D or /exit leaves)");
                    continue;
                }
                Typed::End => return Ok(ExitCode::SUCCESS),
            };
            match Line::parse(&line) {
                Ok(None) => {}
                Ok(Some(Line::Say(text))) => {
                    self.talk.ask(self.gallery.place(text));
                    self.answer()?;
                }
                Ok(Some(Line::Do(Command::Exit))) => return Ok(ExitCode::SUCCESS),
                Ok(Some(Line::Do(command))) => self.obey(command)?,
                Err(mistake) => say(mistake),
            }
            if interrupt::has_come() {
                return Ok(interrupt::exit_code());
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), CliError> {
        match command {
            Command::Help => say(line::help()),
            Command::Regenerate if self.talk.take_answer_back() => self.answer()?,
            Command::Undo if self.talk.undo() => say("[your last message is taken back]"),
            Command::Regenerate | Command::Undo => say("nothing was said yet"),
            Command::Clear => {
                self.talk.clear();
                say("[a new conversation]");
            }
            Command::Save(path) => match self.talk.save(&path) {
                Ok(()) => {
                    say(format_args!("[{} messages are in {}]", self.talk.messages().len(), path.display()))
                }
                Err(why) => say(why),
            },
            Command::Load(path) => match self.talk.load(&path) {
                Ok(n) => say(format_args!("[{n} messages from {}]", path.display())),
                Err(why) => say(why),
            },
            Command::Image(path) => {
                let Writer { engine, text, .. } = &mut self.writer;
                match self.gallery.add(&path, engine, text) {
                    Ok(rows) => say(format_args!("[{rows} tokens and rows; say something about it]")),
                    Err(why) => say(why),
                }
            }
            Command::Stats => match &self.last {
                Some(answer) => {
                    say(statistics(answer, self.writer.engine.n_ctx()));
                    if let Some(stats) = &answer.stats.speculation {
                        say(drafting(stats));
                    }
                }
                None => say("nothing was answered yet"),
            },
            Command::Exit => {}
        }
        Ok(())
    }

    /// The prompt for an answer to the last message, or why there is none.
    fn prompt(&mut self) -> Result<Vec<u32>, String> {
        let words = |error: &dyn std::fmt::Display| error.to_string();
        let written = self.talk.written(&self.writer.text).map_err(|error| words(&error))?;
        // Those of messages that were taken back are not among them.
        let prompt = self.gallery.prompt(&self.writer.text, &written).map_err(|error| words(&error))?;
        let n_ctx = self.writer.engine.n_ctx() as usize;
        match prompt.len() {
            0 => Err(CliError::EmptyChat.to_string()),
            n if n >= n_ctx => Err(format!(
                "the conversation has {n} tokens, and the context room for {n_ctx}; /undo or /clear it, or \
                 start with a larger -c"
            )),
            _ => Ok(prompt),
        }
    }

    /// Answers the last message, which is taken back where that cannot be done.
    fn answer(&mut self) -> Result<(), CliError> {
        let prompt = match self.prompt() {
            Ok(prompt) => prompt,
            Err(why) => {
                say(why);
                self.talk.undo();
                return Ok(());
            }
        };
        let answer = self.writer.answer(&prompt)?;
        self.talk.answer(answer.text.clone());
        match answer.finish_reason {
            Finish::Interrupted if interrupt::has_come() => {}
            Finish::Interrupted => say("[stopped; /regenerate writes it anew]"),
            Finish::Context => say("[the context is full: /undo or /clear, or start with a larger -c]"),
            Finish::Length => say("[-n tokens are written]"),
            Finish::Eog | Finish::Stop => {}
        }
        self.last = Some(answer);
        Ok(())
    }
}

/// A model that writes answers, and keeps what it has read.
struct Writer {
    text: TextModel,
    engine: Engine,
    sampling: SamplerParams,
    speculation: Speculation,
    max_tokens: Option<usize>,
    shows_drafts: bool,
    /// Ends the program's work.
    cancel: Cancel,
}

impl Writer {
    /// Writes the answer after `prompt` to standard output.
    fn answer(&mut self, prompt: &[u32]) -> Result<Generated, CliError> {
        let known = self.engine.sequence(SequenceId::FIRST)?.keep_common(prompt)?;
        let mut sampler = Sampler::new(self.sampling.clone())?;
        prompt[..known].iter().for_each(|&token| sampler.accept(token));
        // Another answer to the same question is to differ, also where the seed was given.
        self.sampling.seed = self.sampling.seed.map(|seed| seed.wrapping_add(1));
        let limits = Limits { max_tokens: self.max_tokens, cancel: self.cancel.clone(), ..Limits::default() };
        let rest = &prompt[known..];
        let bar = Progress::count("reading", rest.len());
        let request = Request::new(rest, sampler)
            .limits(limits)
            .speculation(std::mem::replace(&mut self.speculation, Speculation::off()))
            .saves(if rest.len() > 1 { vec![rest.len() - 1] } else { Vec::new() });
        let mut generation = Generation::new(self.text.tokenizer.clone(), request);
        let mut out = io::stdout().lock();
        let turn = Turn::of_model();
        loop {
            if turn.is_stopped() {
                generation.cancel();
            }
            match generation.step(&mut self.engine)? {
                Event::Prompt { done, total } if done < total => bar.at(done as u64),
                Event::Prompt { .. } => bar.finish(),
                Event::Text("") => {}
                Event::Text(piece) => {
                    let piece = plain_lines(piece);
                    let is_drafted = generation.origins().last().is_some_and(|origin| origin.drafted);
                    match self.shows_drafts && is_drafted {
                        true => write!(out, "{GREEN}{piece}{RESET}")?,
                        false => write!(out, "{piece}")?,
                    }
                    out.flush()?;
                }
                Event::Done(_) => break,
            }
        }
        bar.finish();
        writeln!(out)?;
        let ended = generation.into_ended();
        self.speculation = ended.speculation;
        Ok(ended.generated)
    }
}

//! Errors of the command line, and the exit codes that go with them.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{DeployError, HubError, interrupt};
use hexflash::Blame;
use hexflash::cancel::Cancelled;
use hexflash::device::DeviceError;
use hexflash::engine::EngineError;
use hexflash::generate::GenerateError;
use hexflash::gguf::GgufError;
use hexflash::model::ModelError;
use hexflash::sampler::SamplerError;
use hexflash::text::TextError;

/// A command failed. Every message is one line with a cause and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The library.
    #[error(transparent)]
    Library(#[from] hexflash::Error),
    /// The host's threads cannot run where they should.
    #[error(
        "cannot keep to the processors of the mask {mask:x} ({why}); see which ones there are: nproc, lscpu"
    )]
    Cores {
        /// The processors that were named, a bit each.
        mask: u128,
        /// Reason that the system gives.
        why: String,
    },
    /// The deployment.
    #[error(transparent)]
    Deploy(#[from] DeployError),
    /// The Hugging Face Hub, or the cache of its models.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The prompt cannot be read.
    #[error(
        "cannot read the prompt from {}: {source}; check the path, or give the prompt as an argument",
        path.display()
    )]
    Prompt {
        /// The file, or `-`.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A picture cannot be read.
    #[error("cannot show {}: {reason}", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A picture is shown to a model that was loaded without an encoder.
    #[error("the model has no encoder of pictures; give one with --mmproj FILE")]
    NoEncoder,
    /// The prompt is not text.
    #[error(
        "the prompt in {} is not UTF-8 (byte {at}); convert it, or pass token ids with --prompt-ids",
        path.display()
    )]
    PromptEncoding {
        /// The file, or `-`.
        path: PathBuf,
        /// First byte that is wrong.
        at: usize,
    },
    /// A token id is not a number.
    #[error("--prompt-ids: \"{found}\" is not a token id; give numbers separated by commas or spaces")]
    PromptIds {
        /// What was given.
        found: String,
    },
    /// A number is out of range.
    #[error("{what} must be {allowed}, not {found}")]
    Option {
        /// What it counts, and the option.
        what: &'static str,
        /// Its range.
        allowed: String,
        /// What was given.
        found: u64,
    },
    /// No prompt.
    #[error("there is no prompt; give one as an argument, with -f FILE, or through a pipe")]
    NoPrompt,
    /// A chat template that renders nothing.
    #[error(
        "the chat template makes an empty prompt of these messages; choose another with --chat-template (a \
         file, or chatml)"
    )]
    EmptyChat,
    /// `--chat` without a template.
    #[error(
        "{}: the model has no chat template; give one with --chat-template (a file, or chatml), or go on \
         with a text by run without --chat",
        path.display()
    )]
    NoChatTemplate {
        /// The model.
        path: PathBuf,
    },
    /// The chat template cannot be read.
    #[error(
        "cannot read the chat template {}: {source}; check the path, or use --chat-template chatml",
        path.display()
    )]
    Template {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A drafter without its model.
    #[error(
        "--spec-type draft-dflash needs a draft model; give one with -md FILE, or use --spec-type ngram-simple"
    )]
    NoDraft,
    /// An MTP head that is nowhere.
    #[error(
        "--spec-type draft-mtp needs an MTP head, and the model's file has none; give one, or a Gemma 4 \
         assistant, with -md FILE, or use --spec-type ngram-simple"
    )]
    NoHead,
    /// A draft model of another kind than the one asked for.
    #[error("{} is no draft for --spec-type {wanted}; drop --spec-type", path.display())]
    OtherDraft {
        /// The draft model's file.
        path: PathBuf,
        /// The kind that was asked for.
        wanted: &'static str,
    },
    /// Two drafters at once.
    #[error(
        "-md names a draft model, and --spec-type only drafters without one; drop -md, or name its kind, too"
    )]
    TwoDrafters,
    /// Two draft models at once.
    #[error(
        "--spec-type names two kinds of draft models, and there can be one; name one of them, and n-grams"
    )]
    TwoModels,
    /// A drafter that is named twice.
    #[error("--spec-type names {name} twice; name it once")]
    DrafterTwice {
        /// Its name.
        name: &'static str,
    },
    /// No drafts, and drafts.
    #[error("--spec-type none drafts nothing; drop it, or drop the others")]
    NoneAndOthers,
    /// Speculation without a drafter.
    #[error("{what} needs someone who drafts; give a draft model with -md FILE, or --spec-type ngram-simple")]
    NoDrafter {
        /// What was asked for.
        what: &'static str,
    },
    /// A drafter where none is measured.
    #[error("bench measures speculation with --draft only; add --draft, or drop -md and --spec-type")]
    BenchWithoutDraft,
    /// The prompts of a sweep cannot be read.
    #[error("cannot read prompts from {}: {source}; check the path given with --prompts", path.display())]
    Prompts {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line of the prompts is no prompt.
    #[error(
        "{}, line {line}: {what}; give text, a JSON string or a JSON array of token ids on each line",
        path.display()
    )]
    PromptLine {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// There are no prompts.
    #[error(
        "there are no prompts in {}; give one on each line: text, a JSON string or a JSON array of token ids",
        path.display()
    )]
    NoPrompts {
        /// The file.
        path: PathBuf,
    },
    /// A prompt of a sweep is too long.
    #[error(
        "prompt {number} has {tokens} tokens, which with {n_gen} to generate do not fit the context of {n_ctx}; \
         shorten it, lower -n, or raise the context with -c"
    )]
    PromptTooLong {
        /// Its number, from 1.
        number: usize,
        /// Its tokens.
        tokens: usize,
        /// Tokens to generate.
        n_gen: usize,
        /// Positions of the context.
        n_ctx: u32,
    },
    /// Speculation changed the text.
    #[error(
        "prompt {number} ({prompt:?}), draft length {length}: token {at} is {found}, but {expected} in plain decoding; \
         speculation must never change the text: please report this, with both models"
    )]
    Differs {
        /// The prompt's number, from 1.
        number: usize,
        /// The prompt.
        prompt: String,
        /// Tokens to draft, or auto.
        length: String,
        /// Position of the first other token, from 0.
        at: usize,
        /// What is there.
        found: String,
        /// What plain decoding has there.
        expected: String,
    },
    /// The plot cannot be written.
    #[error("cannot write the plot {}: {source}; check the path given with --plot", path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An option that llama.cpp has.
    #[error("{flag} of llama.cpp is not supported: {instead}")]
    Foreign {
        /// The option.
        flag: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// A sequence wrote another text among others than alone.
    #[error(
        "sequence {sequence} wrote another token {token} beside other sequences than alone; this is a bug of \
         hexflash, please report it with the model and this command"
    )]
    DifferentText {
        /// The sequence.
        sequence: usize,
        /// The first token that differs.
        token: usize,
    },
    /// A benchmark without tests.
    #[error("there is nothing to measure: -p and -n are both 0; give one of them a number of tokens")]
    NothingToMeasure,
    /// The shipped model is not where it should be.
    #[error("the model that ships with hexflash was not found ({}); give a model with -m FILE", path.display())]
    NoModel {
        /// Where it was expected.
        path: PathBuf,
    },
    /// A folder for models has none.
    #[error("there is no GGUF model in {}; put models there, or give one with -m FILE", folder.display())]
    NoModels {
        /// The folder.
        folder: PathBuf,
    },
    /// Two models of a folder have one name.
    #[error("{} and {} would both be called {name}; rename one", first.display(), second.display())]
    SameName {
        /// The name.
        name: String,
        /// The file that has it.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
    /// A model beside a folder of models.
    #[error("--models-dir has models of its own; leave out -m, -hf, -md, --mmproj and --alias")]
    ModelsAndModel,
    /// A model is too large.
    #[error("it needs {needs} MiB and has no room on {place}; take a smaller one, or a shorter context (-c)")]
    NoRoom {
        /// MiB that it takes.
        needs: u64,
        /// Where it was to go.
        place: String,
    },
    /// The doctor's report cannot be written.
    #[error("cannot write the report {}: {source}; check the path given with --report", path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The vectors of the self-test cannot be read.
    #[error("cannot read the vectors of {}: {reason}; give a file in the form of vectors.txt", path.display())]
    Vectors {
        /// The file.
        path: PathBuf,
        /// Line or reason of the system.
        reason: String,
    },
    /// A kernel of the self-test cannot be run.
    #[error(transparent)]
    Kernel(#[from] hexflash::selftest::kernels::KernelError),
    /// Completions for a shell that is not named.
    #[error("$SHELL names no shell that is known; name one: hexflash completions bash")]
    NoShell,
    /// A page of a command that does not exist.
    #[error("there is no command \"{name}\" to have a page; hexflash --help lists them")]
    NoPage {
        /// The name that was given.
        name: String,
    },
    /// A page cannot be written.
    #[error("cannot write the page {}: {source}; check the folder given with --out", path.display())]
    Page {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The doctor on another machine said nothing that can be read.
    #[error(
        "the doctor on the device did not come to its end; run it without --report, and see which check is the \
         last"
    )]
    NoFindings,
    /// The keys of the server cannot be read.
    #[error("cannot read API keys from {}: {source}; check the path given with --api-key-file", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The server's address.
    #[error(
        "cannot listen on {host}:{port}: {source}; choose another address with --host, or another port with --port"
    )]
    Bind {
        /// The address.
        host: String,
        /// The port.
        port: u16,
        /// The system's reason.
        source: std::io::Error,
    },
    /// This program was built without the server.
    #[error("this program was built without the server; build it without --no-default-features")]
    NoServer,
    /// The server has failed.
    #[error("{0}")]
    Serve(String),
    /// Standard output.
    #[error("cannot write the output: {0}; check the disk, or where the output is piped to")]
    Output(#[from] std::io::Error),
}

impl CliError {
    /// Whether nothing is wrong, but a signal has ended the work.
    pub fn is_cancelled(&self) -> bool {
        self.blame() == Blame::Cancelled
    }

    /// What the error is charged to.
    fn blame(&self) -> Blame {
        match self {
            Self::Library(error) => error.blame(),
            Self::Hub(error) => error.blame(),
            Self::Deploy(error) if error.is_usage() => Blame::Input,
            Self::Deploy(_)
            | Self::Output(_)
            | Self::Differs { .. }
            | Self::DifferentText { .. }
            | Self::NoFindings
            | Self::Kernel(_)
            | Self::Serve(_) => Blame::System,
            // Whoever chose a port that is taken can choose another.
            Self::Bind { .. } => Blame::Input,
            Self::Prompt { source, .. }
            | Self::Template { source, .. }
            | Self::Prompts { source, .. }
            | Self::Plot { source, .. }
            | Self::Report { source, .. }
            | Self::Page { source, .. }
            | Self::Keys { source, .. } => Blame::of_io(source),
            Self::Option { .. }
            | Self::Vectors { .. }
            | Self::Picture { .. }
            | Self::NoEncoder
            | Self::PromptEncoding { .. }
            | Self::PromptIds { .. }
            | Self::NoPrompt
            | Self::EmptyChat
            | Self::NoChatTemplate { .. }
            | Self::NoDraft
            | Self::NoHead
            | Self::OtherDraft { .. }
            | Self::TwoDrafters
            | Self::TwoModels
            | Self::NoModels { .. }
            | Self::SameName { .. }
            | Self::ModelsAndModel
            | Self::NoRoom { .. }
            | Self::DrafterTwice { .. }
            | Self::NoneAndOthers
            | Self::NoDrafter { .. }
            | Self::BenchWithoutDraft
            | Self::PromptLine { .. }
            | Self::NoPrompts { .. }
            | Self::PromptTooLong { .. }
            | Self::Foreign { .. }
            | Self::Cores { .. }
            | Self::NothingToMeasure
            | Self::NoServer
            | Self::NoShell
            | Self::NoPage { .. }
            | Self::NoModel { .. } => Blame::Input,
        }
    }

    /// 1 where the device or the system failed, 2 where the input is at fault; that of the signal where one
    /// ended the work, also if what reads the output has ended with it.
    pub fn exit_code(&self) -> ExitCode {
        match self.blame() {
            Blame::Cancelled => interrupt::exit_code(),
            Blame::System if matches!(self, Self::Output(_)) && interrupt::has_come() => {
                interrupt::exit_code()
            }
            Blame::System => ExitCode::from(1),
            Blame::Input => ExitCode::from(2),
        }
    }
}

/// Errors of the library's parts are errors of the library.
macro_rules! of_the_library {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::Library(error.into())
            }
        })*
    };
}

of_the_library!(
    Cancelled,
    DeviceError,
    EngineError,
    GenerateError,
    GgufError,
    ModelError,
    SamplerError,
    TextError
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_system_error_is_no_bad_input() {
        let prompt = |source| CliError::Prompt { path: "x".into(), source };
        let eio = std::io::Error::from_raw_os_error(5);
        assert_eq!(prompt(eio).blame(), Blame::System);
        assert_eq!(prompt(std::io::ErrorKind::NotFound.into()).blame(), Blame::Input);
    }
}

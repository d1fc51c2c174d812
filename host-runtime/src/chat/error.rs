//! Why a conversation could not be rendered.

use minijinja::ErrorKind;

use super::{FUEL, MAX_OUTPUT, MAX_SOURCE};

/// Reasons a template cannot be compiled or rendered; every message is one line with the cause and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is longer than any real one.
    #[error("the chat template has {bytes} bytes, more than {MAX_SOURCE}; choose another template")]
    SourceTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The template does not compile.
    #[error("the chat template is invalid at line {line}: {cause}; choose another template")]
    Syntax {
        /// Line of the template.
        line: usize,
        /// The engine's message on one line.
        cause: String,
    },
    /// The template called `raise_exception`.
    #[error("the chat template refuses these messages: {message}; change the messages")]
    Refused {
        /// The template's message on one line.
        message: String,
    },
    /// The template runs (almost) forever.
    #[error(
        "the chat template took more than {FUEL} steps; shorten the conversation or choose another template"
    )]
    OutOfFuel,
    /// The template writes (almost) forever.
    #[error(
        "the chat template wrote more than {MAX_OUTPUT} bytes; shorten the conversation or choose another template"
    )]
    OutputTooLong,
    /// An extra argument would replace one of the conversation's own.
    #[error(
        "template argument {name:?} is set by the conversation itself; remove it from the extra arguments"
    )]
    ReservedArgument {
        /// The argument's name.
        name: String,
    },
    /// The template engine has a bug that the template comes across.
    #[error("the chat template is too much for its engine, which {cause}; choose another template")]
    Engine {
        /// Where the engine panicked, and what it said, on one line.
        cause: String,
    },
    /// Anything else that fails while rendering.
    #[error("the chat template failed at line {line}: {cause}; check the messages and the extra arguments")]
    Render {
        /// Line of the template.
        line: usize,
        /// The engine's message on one line.
        cause: String,
    },
}

/// Marks an error as the template's own decision.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

impl ChatError {
    pub(super) fn engine(panic: &str) -> Self {
        Self::Engine { cause: one_line(panic) }
    }

    pub(super) fn syntax(error: &minijinja::Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(1), cause: cause(error) }
    }

    pub(super) fn render(error: &minijinja::Error) -> Self {
        let mut inner: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(current) = inner {
            if let Some(Raised(message)) = current.downcast_ref() {
                return Self::Refused { message: one_line(message) };
            }
            match current.downcast_ref().map(minijinja::Error::kind) {
                Some(ErrorKind::OutOfFuel) => return Self::OutOfFuel,
                Some(ErrorKind::WriteFailure) => return Self::OutputTooLong,
                _ => inner = current.source(),
            }
        }
        Self::Render { line: error.line().unwrap_or(1), cause: cause(error) }
    }
}

fn cause(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => one_line(&format!("{}: {detail}", error.kind())),
        None => error.kind().to_string(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

//! Why a conversation could not be rendered.

use minijinja::ErrorKind;

use super::limits::{FUEL, MAX_INPUT_DEPTH, MAX_SOURCE, MAX_TEXT, TIME};

/// Longest text of a template or the engine in a message, in characters.
const MAX_CAUSE: usize = 400;

/// Reasons a template cannot be compiled or rendered; every message is one line with the cause and what to
/// do.
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
    /// A step of the template takes (almost) forever.
    #[error(
        "the chat template took longer than {} ms; shorten the conversation or choose another template",
        TIME.as_millis()
    )]
    OutOfTime,
    /// The template makes a value that is too large.
    #[error("the chat template goes too far at line {line}, with {cause}; choose another template")]
    TooLarge {
        /// Line of the template.
        line: usize,
        /// What it made.
        cause: String,
    },
    /// The template writes (almost) forever.
    #[error(
        "the chat template wrote more than {MAX_TEXT} bytes; shorten the conversation or choose another \
         template"
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
    /// The messages or the extra arguments nest too deeply.
    #[error(
        "the messages or template arguments nest deeper than {MAX_INPUT_DEPTH} levels; give them flatter data"
    )]
    InputTooDeep,
    /// The system has no thread to render on.
    #[error("cannot start a thread for the chat template: {cause}; end other programs or raise `ulimit -u`")]
    Thread {
        /// The system's message.
        cause: String,
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

/// Marks an error as a limit of this program.
#[derive(Debug, thiserror::Error)]
pub(super) enum Exceeded {
    #[error("the time is up")]
    Time,
    #[error("{0}")]
    Size(String),
}

impl Exceeded {
    pub(super) fn limit(what: String) -> minijinja::Error {
        Self::Size(what).into()
    }
}

impl From<Exceeded> for minijinja::Error {
    fn from(exceeded: Exceeded) -> Self {
        Self::new(ErrorKind::InvalidOperation, exceeded.to_string()).with_source(exceeded)
    }
}

impl ChatError {
    pub(super) fn engine(panic: &str) -> Self {
        Self::Engine { cause: one_line(panic) }
    }

    pub(super) fn syntax(error: &minijinja::Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(1), cause: cause(error) }
    }

    pub(super) fn render(error: &minijinja::Error) -> Self {
        let line = error.line().unwrap_or(1);
        let mut inner: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(current) = inner {
            if let Some(Raised(message)) = current.downcast_ref() {
                return Self::Refused { message: one_line(message) };
            }
            match current.downcast_ref() {
                Some(Exceeded::Time) => return Self::OutOfTime,
                Some(Exceeded::Size(cause)) => return Self::TooLarge { line, cause: cause.clone() },
                None => {}
            }
            match current.downcast_ref().map(minijinja::Error::kind) {
                Some(ErrorKind::OutOfFuel) => return Self::OutOfFuel,
                _ => inner = current.source(),
            }
        }
        Self::Render { line, cause: cause(error) }
    }
}

fn cause(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => one_line(&format!("{}: {detail}", error.kind())),
        None => error.kind().to_string(),
    }
}

/// A text of the template or the engine for a message: words on one line, without what would act on a
/// terminal, and no longer than anyone would read.
fn one_line(text: &str) -> String {
    let visible = |c: &char| {
        !c.is_control()
            && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::new();
    let mut left = MAX_CAUSE;
    for word in text.split_whitespace() {
        let word: String = word.chars().filter(visible).take(left + 1).collect();
        if word.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        let count = word.chars().count();
        if count > left {
            out.extend(word.chars().take(left).chain(['\u{2026}']));
            break;
        }
        out.push_str(&word);
        left -= count;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_of_bounded_length_without_escape_codes() {
        assert_eq!(one_line(" a\r\n\tb \u{1b}[2Jc\u{9b}31m \u{202e}d \u{7} "), "a b [2Jc31m d");
        let long = one_line(&"ab ".repeat(1_000_000));
        assert!(long.chars().count() < 2 * MAX_CAUSE && long.ends_with('\u{2026}'), "{}", long.len());
        assert_eq!(one_line(&"x".repeat(MAX_CAUSE)), "x".repeat(MAX_CAUSE));
        assert_eq!(one_line(&"x".repeat(MAX_CAUSE + 1)), format!("{}\u{2026}", "x".repeat(MAX_CAUSE)));
    }
}

//! Where lines come from: a terminal, with a line to edit, or a file or pipe.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use crate::input::MAX_PROMPT;
use crate::interrupt::Turn;

/// A source of lines.
pub(super) enum Lines {
    /// A terminal whose lines can be edited; earlier ones come back with the arrow keys.
    #[cfg(feature = "terminal")]
    Edited(Box<edited::Editor>),
    /// Standard input as it comes, with prompts if it is a terminal.
    Plain {
        /// Whether somebody sits there.
        is_terminal: bool,
    },
}

/// What the user did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// Typed a line, which comes without its end; several where each but the last ended with a backslash.
    Line(String),
    /// Gave a line up with Ctrl-C.
    #[cfg_attr(not(feature = "terminal"), allow(dead_code, reason = "then it ends the program"))]
    GivenUp,
    /// Left with Ctrl-D, or the file is at its end.
    End,
}

impl Lines {
    /// Lines of standard input.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub(super) fn open() -> io::Result<Self> {
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        #[cfg(feature = "terminal")]
        if is_terminal {
            return Ok(Self::Edited(Box::new(edited::open()?)));
        }
        Ok(Self::Plain { is_terminal })
    }

    /// Whether somebody sits there.
    pub(super) fn is_terminal(&self) -> bool {
        match self {
            #[cfg(feature = "terminal")]
            Self::Edited(_) => true,
            Self::Plain { is_terminal } => *is_terminal,
        }
    }

    /// The next line.
    ///
    /// # Errors
    /// The system's, or what comes is no text, or too long.
    pub(super) fn next(&mut self) -> io::Result<Typed> {
        let mut text = String::new();
        loop {
            let piece = match self.piece(if text.is_empty() { "> " } else { ". " })? {
                Typed::Line(piece) => piece,
                // What was begun before a file's end is said.
                Typed::End if !text.is_empty() && !self.is_terminal() => return Ok(Typed::Line(text)),
                other => return Ok(other),
            };
            if text.len() + piece.len() >= MAX_PROMPT {
                let why = format!("a message of more than {} MiB", MAX_PROMPT >> 20);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            match piece.strip_suffix('\\') {
                Some(begun) => text = text + begun + "\n",
                None => {
                    text += &piece;
                    break;
                }
            }
        }
        #[cfg(feature = "terminal")]
        if let Self::Edited(editor) = self {
            edited::remember(editor, &text);
        }
        Ok(Typed::Line(text))
    }

    fn piece(&mut self, prompt: &str) -> io::Result<Typed> {
        let _turn = Turn::of_user();
        match self {
            #[cfg(feature = "terminal")]
            Self::Edited(editor) => edited::read(editor, prompt),
            Self::Plain { is_terminal } => {
                if *is_terminal {
                    let mut out = io::stdout().lock();
                    out.write_all(prompt.as_bytes())?;
                    out.flush()?;
                }
                let mut line = String::new();
                if io::stdin().lock().take(MAX_PROMPT as u64).read_line(&mut line)? == 0 {
                    return Ok(Typed::End);
                }
                let line = line.strip_suffix('\n').unwrap_or(&line);
                Ok(Typed::Line(line.strip_suffix('\r').unwrap_or(line).to_owned()))
            }
        }
    }
}

/// The line that can be edited, which is rustyline's.
#[cfg(feature = "terminal")]
mod edited {
    use std::io;

    use rustyline::error::ReadlineError;
    use rustyline::history::MemHistory;

    use super::Typed;

    pub(super) type Editor = rustyline::Editor<(), MemHistory>;

    pub(super) fn open() -> io::Result<Editor> {
        Editor::with_history(rustyline::Config::default(), MemHistory::new()).map_err(of_editor)
    }

    pub(super) fn read(editor: &mut Editor, prompt: &str) -> io::Result<Typed> {
        match editor.readline(prompt) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::GivenUp),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(of_editor(error)),
        }
    }

    pub(super) fn remember(editor: &mut Editor, line: &str) {
        // A history that cannot grow costs an arrow key, and nothing else.
        let _ = editor.add_history_entry(line);
    }

    fn of_editor(error: ReadlineError) -> io::Error {
        match error {
            ReadlineError::Io(error) => error,
            other => io::Error::other(other),
        }
    }
}

//! All errors of the library as one type, and what each of them is charged to.

use std::{fmt, io};

use crate::cancel::Cancelled;
use crate::chat::ChatError;
use crate::device::DeviceError;
use crate::engine::EngineError;
use crate::generate::GenerateError;
use crate::gguf::{Cause, GgufError};
use crate::model::ModelError;
use crate::record::RecordError;
use crate::sampler::SamplerError;
use crate::text::TextError;
use crate::tokenizer::TokenizerError;
use crate::weights::WeightError;

/// Something went wrong. Every message is one line with a cause and a remedy; `{:?}` is the same line,
/// because that is what a `main` shows that returns an error. `{:#?}` has all parts of it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is no model that can be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// It is none that hexflash runs.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Its tokenizer, its chat template or its recommended sampling.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Sampling settings, or logits.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model on the device.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A generation.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A picture cannot be used.
    #[error("{reason}")]
    Picture {
        /// Why, in a line.
        reason: String,
    },
}

/// What an error is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Files, settings or requests are at fault; the same again will fail again.
    Input,
    /// The machine, the device or hexflash itself failed.
    System,
    /// Nothing failed: the work was cancelled.
    Cancelled,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        let (name, error): (_, &dyn fmt::Debug) = match self {
            Self::Gguf(error) => ("Gguf", error),
            Self::Model(error) => ("Model", error),
            Self::Text(error) => ("Text", error),
            Self::Sampler(error) => ("Sampler", error),
            Self::Device(error) => ("Device", error),
            Self::Engine(error) => ("Engine", error),
            Self::Generate(error) => ("Generate", error),
            Self::Picture { reason } => ("Picture", reason),
        };
        f.debug_tuple(name).field(error).finish()
    }
}

impl Error {
    /// What the error is charged to: the input, the system, or a cancellation.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Gguf(error) => error.blame(),
            Self::Model(error) => error.blame(),
            Self::Text(error) => error.blame(),
            Self::Sampler(error) => error.blame(),
            Self::Device(error) => error.blame(),
            Self::Engine(error) => error.blame(),
            Self::Generate(error) => error.blame(),
            Self::Picture { .. } => Blame::Input,
        }
    }
}

impl From<Cancelled> for Error {
    fn from(cancelled: Cancelled) -> Self {
        EngineError::from(cancelled).into()
    }
}

impl Blame {
    /// What it is charged to if a file that a user named cannot be read or written: the input for reasons
    /// that are known to be the user's, the system for all others.
    pub fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::NotFound
            | Kind::PermissionDenied
            | Kind::AlreadyExists
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::DirectoryNotEmpty
            | Kind::ReadOnlyFilesystem
            | Kind::InvalidInput
            | Kind::InvalidData
            | Kind::InvalidFilename
            | Kind::FileTooLarge
            | Kind::UnexpectedEof => Self::Input,
            _ => Self::System,
        }
    }
}

impl GgufError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match &*self.cause {
            Cause::Io { io } => Blame::of_io(io),
            _ => Blame::Input,
        }
    }
}

impl ModelError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Gguf(error) => error.blame(),
            _ => Blame::Input,
        }
    }
}

impl TextError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Gguf(error) => error.blame(),
            Self::Tokenizer(error) => error.blame(),
            Self::Chat(error) => error.blame(),
            Self::Sampler(error) => error.blame(),
            Self::NoChatTemplate => Blame::Input,
        }
    }
}

impl TokenizerError {
    /// What the error is charged to: always the input, because tokenizers read nothing else.
    pub fn blame(&self) -> Blame {
        Blame::Input
    }
}

impl ChatError {
    /// What the error is charged to: always the input, because templates read nothing else.
    pub fn blame(&self) -> Blame {
        Blame::Input
    }
}

impl SamplerError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Parameter { .. }
            | Self::Metadata { .. }
            | Self::Constraint { .. }
            | Self::NothingAllowed { .. } => Blame::Input,
            Self::LogitCount { .. } | Self::InvalidLogit { .. } => Blame::System,
        }
    }
}

impl WeightError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Gguf(error) => error.blame(),
            Self::UnsupportedType { .. }
            | Self::CannotJoin { .. }
            | Self::NotAMatrix { .. }
            | Self::TooLarge { .. }
            | Self::NotFinite { .. } => Blame::Input,
            Self::DuplicateLabel { .. }
            | Self::Empty { .. }
            | Self::Memory { .. }
            | Self::Threads { .. }
            | Self::Changed { .. } => Blame::System,
            Self::Cancelled(_) => Blame::Cancelled,
        }
    }
}

impl RecordError {
    /// What the error is charged to: always the input, because programs follow from the model's dimensions.
    pub fn blame(&self) -> Blame {
        Blame::Input
    }
}

impl DeviceError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unknown { .. }
            | Self::NoArch { .. }
            | Self::NoFloat { .. }
            | Self::NoTrace { .. }
            | Self::Setting { .. } => Blame::Input,
            _ => Blame::System,
        }
    }
}

impl EngineError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Model(error) => error.blame(),
            Self::Weights(error) => error.blame(),
            Self::Record(error) => error.blame(),
            Self::Device(error) => error.blame(),
            Self::Cancelled(_) => Blame::Cancelled,
            Self::Setting { .. }
            | Self::ContextFull { .. }
            | Self::Token { .. }
            | Self::Without { .. }
            | Self::NoTokens
            | Self::WritesNoText { .. }
            | Self::NoSequence { .. }
            | Self::Copy(_)
            | Self::RollBack { .. }
            | Self::DoesNotFit { .. }
            | Self::DraftsWithPictures
            | Self::PartOfPicture
            | Self::PictureLast
            | Self::NoProgram { .. } => Blame::Input,
            // Files were checked when they were loaded.
            Self::NotFinite { .. }
            | Self::TooManyPictures
            | Self::Broken
            | Self::Commit { .. }
            | Self::Twice { .. } => Blame::System,
        }
    }
}

impl GenerateError {
    /// What the error is charged to.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Engine(error) => error.blame(),
            Self::Sampler(error) => error.blame(),
            Self::Tokenizer(error) => error.blame(),
            Self::Displaced | Self::Damaged { .. } | Self::Lost { .. } => Blame::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unknown kinds of errors do not count as bad input.
    #[test]
    fn what_is_unknown_is_the_systems() {
        let eio = || io::Error::from_raw_os_error(5);
        assert_eq!(Blame::of_io(&eio()), Blame::System);
        let gguf = |io| Error::from(GgufError::new("m.gguf".as_ref(), Cause::Io { io }));
        assert_eq!(gguf(eio()).blame(), Blame::System);
        assert_eq!(gguf(io::ErrorKind::PermissionDenied.into()).blame(), Blame::Input);
    }

    #[test]
    fn a_wish_for_the_end_is_no_failure() {
        assert_eq!(Error::from(Cancelled).blame(), Blame::Cancelled);
    }

    #[test]
    fn what_a_main_returns_is_shown_in_one_line() {
        let missing = Cause::Io { io: io::ErrorKind::NotFound.into() };
        let error = Error::from(GgufError::new("m.gguf".as_ref(), missing));
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(format!("{error:#?}").starts_with("Gguf("), "{error:#?}");
    }
}

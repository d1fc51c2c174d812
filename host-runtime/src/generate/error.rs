//! Why a generation cannot go on.

use crate::engine::EngineError;
use crate::sampler::SamplerError;
use crate::tokenizer::TokenizerError;

/// Restarts in a row without a token in between, after which a device counts as broken.
pub const MAX_RETRIES: u32 = 3;

/// A generation cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The engine failed, or refused a step.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The sampler could not choose a token.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The tokenizer does not know a token.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The sequence has done something else between two steps.
    #[error(
        "the sequence has done something else between two steps of a generation; step it to its end first, and \
         begin another one"
    )]
    Displaced,
    /// A step after the first token gave values that are no numbers.
    #[error("{source} (the text up to here is kept)")]
    Damaged {
        /// The error of the engine.
        source: Box<EngineError>,
        /// The tokens generated before the error.
        tokens: Vec<u32>,
        /// The text of these tokens.
        text: String,
    },
    /// The device was lost, and starting it again did not help.
    #[error(
        "{source}; starting the device again {MAX_RETRIES} times did not help (the text up to here is kept)"
    )]
    Lost {
        /// The last loss.
        source: Box<EngineError>,
        /// The tokens generated before the error.
        tokens: Vec<u32>,
        /// The text of these tokens.
        text: String,
    },
}

//! Why a generation cannot go on.

use super::MAX_RETRIES;
use crate::engine::EngineError;
use crate::sampler::SamplerError;
use crate::tokenizer::TokenizerError;

/// A generation cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The sampler.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The engine has done something else between two steps.
    #[error(
        "the engine has done something else between two steps of a generation; step it to its end first, and begin \
         another one"
    )]
    Displaced,
    /// A step gave values that are no numbers, after some text.
    #[error("{source} (the text up to here is kept)")]
    Damaged {
        /// What the engine said.
        source: Box<EngineError>,
        /// Tokens so far.
        tokens: Vec<u32>,
        /// Their text.
        text: String,
    },
    /// The device was lost, and starting it again did not help.
    #[error(
        "{source}; the device was started again {MAX_RETRIES} times in vain (the text up to here is kept)"
    )]
    Lost {
        /// The last loss.
        source: Box<EngineError>,
        /// Tokens so far.
        tokens: Vec<u32>,
        /// Their text.
        text: String,
    },
}

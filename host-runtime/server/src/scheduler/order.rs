//! What a request asks for.

use hexflash::generate::Limits;
use hexflash::picture::PicturePrompt;
use hexflash::sampler::Sampler;

use crate::grammar::Grammar;

/// An order of a request: what it wants written.
pub(crate) struct Order {
    pub(crate) prompt: Vec<u32>,
    /// The prompt as it is with pictures whose tiles are yet to be encoded, if there are any.
    pub(crate) pictures: Option<Box<PicturePrompt>>,
    pub(crate) limits: Limits,
    pub(crate) sampler: Sampler,
    /// Alternatives of each token whose probabilities are wanted, if any are.
    pub(crate) logprobs: Option<usize>,
    /// The form that the text is to have.
    pub(crate) form: Option<Grammar>,
    /// Whether the client wants pieces as they come, and not all at the end.
    pub(crate) stream: bool,
    /// What such a client wants to be told beside pieces.
    pub(crate) telemetry: Telemetry,
    /// Whether what a sequence has of the prompt may be used.
    pub(crate) reuse: bool,
    /// The number of the sequence that is to run it; any will do if there is none.
    pub(crate) slot: Option<usize>,
}

/// What a stream tells beside its text.
#[derive(Clone, Copy, Default)]
pub(crate) struct Telemetry {
    /// How much of the prompt was read, from time to time.
    pub(crate) progress: bool,
    /// The times so far, with each piece.
    pub(crate) times: bool,
}

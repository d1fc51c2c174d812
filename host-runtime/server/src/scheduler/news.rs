//! What becomes of texts, as those learn it who wait for them.

use hexflash::Blame;
use hexflash::generate::{Finish, Stats, TokenOrigin};
use hexflash::sampler::TokenLogprob;
use serde::Serialize;

/// Most updates that a text gets in a step: its last piece, and its end or a failure.
pub(super) const STEP_UPDATES: usize = 3;

/// News of one of the texts of a request.
pub(crate) struct Update {
    /// Which of them.
    pub(crate) choice: usize,
    pub(crate) news: News,
    /// The times so far, where they are wanted.
    pub(crate) times: Option<Box<Times>>,
}

/// What a text took.
pub(crate) struct Times {
    pub(crate) stats: Stats,
    /// Tokens of the prompt that its sequence had already.
    pub(crate) cached: usize,
}

/// What has become of a text.
pub(crate) enum News {
    /// More of its prompt was read.
    Progress(Progress),
    /// It has grown.
    Piece(Piece),
    /// It is complete.
    Done(Box<Outcome>),
    /// It cannot go on.
    Failed(Failure),
}

/// How far a prompt was read.
pub(crate) struct Progress {
    /// Tokens of the prompt.
    pub(crate) total: usize,
    /// Tokens of it that the sequence had already.
    pub(crate) cached: usize,
    /// Tokens of it that are in the context, those included.
    pub(crate) processed: usize,
    /// Time since the first of the others.
    pub(crate) seconds: f64,
}

/// A part of a text.
#[derive(Default)]
pub(crate) struct Piece {
    pub(crate) text: String,
    /// The tokens that became known since the piece before.
    pub(crate) tokens: Vec<u32>,
    /// Where they came from.
    pub(crate) origins: Vec<TokenOrigin>,
    /// How probable they were, if that is wanted.
    pub(crate) logprobs: Vec<TokenLogprob>,
}

/// How a text ended.
pub(crate) struct Outcome {
    pub(crate) finish: Finish,
    /// The stop text that ended it, if one did.
    pub(crate) stop: Option<String>,
    pub(crate) times: Times,
    /// The number of the sequence.
    pub(crate) slot: usize,
}

/// Why a text cannot go on.
pub(crate) struct Failure {
    pub(crate) blame: Blame,
    pub(crate) message: String,
}

/// What a sequence is doing, for `/slots`.
#[derive(Clone, Default, Serialize)]
pub(crate) struct SlotView {
    pub(crate) is_processing: bool,
    /// Number of the text, from 1; 0 if there was none.
    pub(crate) id_task: u64,
    pub(crate) n_prompt_tokens: usize,
    pub(crate) n_prompt_tokens_cache: usize,
    pub(crate) n_decoded: usize,
    /// Tokens in the context.
    pub(crate) n_past: u32,
}

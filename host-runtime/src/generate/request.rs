//! What is asked for: a prompt, how to sample and to draft, and when to stop.

#[cfg(doc)]
use super::Generation;
use crate::cancel::Cancel;
use crate::engine::SequenceId;
use crate::sampler::{Constraint, Sampler};
use crate::speculation::Speculation;

/// When to stop. By default only the model and the context end a text.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Tokens to generate at most; `None` until the context is full. With 0 the prompt is read, and no more.
    pub max_tokens: Option<usize>,
    /// Texts that end the generation; they are not part of the output.
    pub stop: Vec<String>,
    /// Whether to go on after an end-of-generation token.
    pub ignore_eos: bool,
    /// Control tokens that are part of the text nevertheless; the others are hidden.
    pub shown: Vec<u32>,
    /// Ends the generation after the step under way: after the piece of the prompt, or the token, whether it
    /// has visible text or not. Rounds that were sent by then still count.
    pub cancel: Cancel,
}

/// A request for a text.
///
/// Sampler and speculation belong to the request as long as it runs, and [come back](super::Ended) with its
/// end: in a conversation the next request takes them over, so that penalties look at earlier turns, and
/// measured costs are kept.
pub struct Request {
    /// The sequence whose text goes on.
    pub sequence: SequenceId,
    /// Tokens to run first. They follow what the sequence's context holds.
    pub prompt: Vec<u32>,
    /// When to stop.
    pub limits: Limits,
    /// Chooses the tokens of the text.
    pub sampler: Sampler,
    /// Guesses tokens before they are computed.
    pub speculation: Speculation,
    /// Whether to tell how [probable](Generation::logprobs) each token of the text was, and with how many of
    /// its alternatives.
    pub logprobs: Option<usize>,
    /// Decides which tokens may come.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Places in the prompt, ascending numbers of its tokens, at which the sequence's state is
    /// [saved](crate::engine::Sequence::save) before the next token is run. A text that parts there later
    /// can begin from what was saved.
    pub saves: Vec<usize>,
}

impl Limits {
    /// Limits of at most `n` tokens.
    pub fn tokens(n: usize) -> Self {
        Self { max_tokens: Some(n), ..Self::default() }
    }
}

impl Request {
    /// A request for the text after `prompt`, without limits and without drafts.
    pub fn new(prompt: impl Into<Vec<u32>>, sampler: Sampler) -> Self {
        Self {
            sequence: SequenceId::FIRST,
            prompt: prompt.into(),
            limits: Limits::default(),
            sampler,
            speculation: Speculation::off(),
            logprobs: None,
            constraint: None,
            saves: Vec::new(),
        }
    }

    /// This request for another sequence than the first.
    #[must_use]
    pub fn sequence(self, sequence: SequenceId) -> Self {
        Self { sequence, ..self }
    }

    /// This request within limits.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// This request with drafts.
    #[must_use]
    pub fn speculation(self, speculation: Speculation) -> Self {
        Self { speculation, ..self }
    }

    /// This request, with the probabilities of its tokens and of `n` alternatives of each.
    #[must_use]
    pub fn logprobs(self, n: usize) -> Self {
        Self { logprobs: Some(n), ..self }
    }

    /// This request, in whose text only what `constraint` allows may come.
    #[must_use]
    pub fn constraint(self, constraint: Box<dyn Constraint>) -> Self {
        Self { constraint: Some(constraint), ..self }
    }

    /// This request, whose prompt's state is saved at these places.
    #[must_use]
    pub fn saves(self, saves: Vec<usize>) -> Self {
        Self { saves, ..self }
    }
}

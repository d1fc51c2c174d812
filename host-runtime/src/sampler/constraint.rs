//! What may come next.

use super::SamplerError;

/// Decides which tokens may come next in a text: a grammar, for example. It is asked before each token is
/// chosen, and told of each that became text, in order and once, with drafts as well as without.
pub trait Constraint: Send {
    /// Sets the logits of tokens that must not come next to negative infinity.
    ///
    /// # Errors
    /// [`SamplerError::Constraint`]: it cannot decide.
    fn forbid(&mut self, logits: &mut [f32]) -> Result<(), SamplerError>;

    /// `token` has come.
    ///
    /// # Errors
    /// [`SamplerError::Constraint`]: it should not have.
    fn accept(&mut self, token: u32) -> Result<(), SamplerError>;
}

//! A few tokens.

use std::fmt;
use std::ops::Deref;

use crate::model::MAX_VERIFY;
use crate::runtime::error::EngineError;
use crate::runtime::loaded::Runtime;

/// A few tokens: those that were drafted, or those that a round emitted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftBlock {
    n: usize,
    ids: [u32; MAX_VERIFY as usize],
}

impl DraftBlock {
    /// These tokens, of which there are at most [`MAX_VERIFY`].
    pub(super) fn new(tokens: &[u32]) -> Self {
        let mut block = Self { n: tokens.len(), ..Self::default() };
        block.ids[..tokens.len()].copy_from_slice(tokens);
        block
    }

    /// The first `n` tokens that the draft guessed last, at most a block less one.
    ///
    /// # Errors
    /// There is no draft model.
    pub(super) fn drafted(runtime: &mut Runtime, n: u32) -> Result<Self, EngineError> {
        let n = n.min(runtime.draft_block()? - 1) as usize;
        let mut block = Self { n, ..Self::default() };
        runtime.read_drafts(&mut block.ids[..n])?;
        Ok(block)
    }
}

impl Deref for DraftBlock {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.ids[..self.n]
    }
}

impl fmt::Debug for DraftBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

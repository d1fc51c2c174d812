//! DFlash v1: a draft that guesses a whole block of tokens at once; and DSpark, which is DFlash with a chain.
//!
//! Per draft layer the features of a token give keys and values at the token's own position (*injection*):
//! the context, which no query ever comes from. A block is the anchor, whose features do not exist yet,
//! followed by masks; its tokens see the context and each other, and row i of the output guesses the token i
//! places after the anchor.
//!
//! DSpark's chain goes through the rows of the block: the logits of each get a bias of low rank that the
//! token guessed before it chooses, and the best of the sum is the next guess. The rows are as many as drafts
//! may be wanted, and one more for the anchor where its own row guesses nothing.
//!
//! Sources: llama.cpp's `src/models/dflash.cpp`, z-lab's `dflash` module.

mod graph;
mod hyper;

use super::kind::DraftModel;
use crate::gguf::Gguf;
use crate::model::decoder::Decoder;
use crate::model::error::ModelError;
use crate::model::keys::Keys;

/// Reads a draft and checks that it was made for `target`.
///
/// # Errors
/// Neither DFlash v1 nor DSpark, a missing key, or a draft for another target.
pub(super) fn read(
    gguf: &Gguf,
    keys: &Keys<'_>,
    target: &Decoder,
) -> Result<Box<dyn DraftModel>, ModelError> {
    Ok(Box::new(hyper::DFlash::read(gguf, keys, target)?))
}

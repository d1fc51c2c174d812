//! Who drafts.

use super::guess::Guess;

/// Guesses tokens without a model. It is `Send`, because its generation may be stepped on any thread.
pub trait Drafter: Send {
    /// Another text begins.
    fn begin(&mut self) {}

    /// Reads `text`, which is the prompt and all tokens generated so far. It is called when a text ends; a
    /// drafter that only looks at the text from which it [drafts](Self::draft) has no use for it.
    fn learn(&mut self, _text: &[u32]) {}

    /// Appends to `out` up to `most` tokens that may follow `text`, the prompt and all tokens generated so
    /// far. Only tokens that were rejected may be missing of what it was shown before.
    fn draft(&mut self, text: &[u32], most: usize, out: &mut Guess);
}

/// Where drafts come from.
pub enum DraftSource {
    /// There are no drafts: plain decoding.
    None,
    /// The engine's draft model.
    Model,
    /// A drafter on the host.
    Host(Box<dyn Drafter>),
    /// Several drafters. For each block the one is chosen whose drafts are worth most, by what became of
    /// earlier ones in this text, and by what they cost.
    Several {
        /// Whether the engine's draft model is one of them.
        model: bool,
        /// Those on the host.
        hosts: Vec<Box<dyn Drafter>>,
    },
}

impl DraftSource {
    /// Whether the engine's draft model drafts, and who on the host.
    pub(super) fn parties(self) -> (bool, Vec<Box<dyn Drafter>>) {
        match self {
            Self::None => (false, Vec::new()),
            Self::Model => (true, Vec::new()),
            Self::Host(drafter) => (false, vec![drafter]),
            Self::Several { model, hosts } => (model, hosts),
        }
    }
}

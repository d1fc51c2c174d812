//! A copy of what a text has on a device.

use super::engine::Engine;

/// What a text has on the device, on the host.
#[derive(Clone, PartialEq, Eq)]
pub struct SequenceCopy {
    /// What it was copied from: only an engine of the same origin can take it.
    pub(super) origin: u128,
    /// The tokens whose rows and states these are.
    pub(super) tokens: Vec<u32>,
    /// Positions below it may have been written, though the text may have been cut back since.
    pub(super) written: u32,
    /// Rows of caches and recurrent states, tensor after tensor.
    pub(super) state: Vec<u8>,
    /// Recurrent states after fewer tokens, ascending, and how many tokens those are.
    pub(super) snapshots: Vec<(u32, Vec<u8>)>,
}

impl SequenceCopy {
    /// A copy of these tokens that fits no engine, for tests.
    #[doc(hidden)]
    pub fn of_tokens(tokens: &[u32]) -> Self {
        Self { origin: 0, tokens: tokens.to_vec(), written: 0, state: Vec::new(), snapshots: Vec::new() }
    }

    /// The tokens of its text.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        let snapshots: usize = self.snapshots.iter().map(|(_, state)| state.len()).sum();
        size_of::<Self>() + size_of_val(&*self.tokens) + self.state.len() + snapshots
    }

    /// The most tokens, at most `n`, to which a sequence can be [rolled
    /// back](super::view::Sequence::roll_back) after the copy went into it, without computing any of them
    /// again. `engine` is one that can take it.
    pub fn reach(&self, engine: &Engine, n: u32) -> u32 {
        let n_past = self.tokens.len() as u32;
        if n >= n_past {
            return n_past;
        }
        let snapshots = self.snapshots.iter().map(|&(n, _)| n);
        let most = match engine.runtime.has_states() {
            false => n,
            true => snapshots.filter(|&found| found <= n).max().unwrap_or(0),
        };
        let slack = engine.kept().kv_ring_slack;
        if slack.is_none_or(|slack| most.saturating_add(slack) >= self.written) { most } else { 0 }
    }
}

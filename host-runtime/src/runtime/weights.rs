//! Which weights each session reads, and what of an image is mapped for it.

use std::collections::HashSet;
use std::ops::Range;

use super::error::EngineError;
use crate::device::SessionSet;
use crate::model::{Decoder, DraftModel, EmbeddingReaders, Split};
use crate::setting::Setting;
use crate::weights::WeightEntry;

/// Stretches of an image begin at a multiple of this: no system has larger pages.
const PAGE: u64 = 64 << 10;
/// Longest stretch, but for single weights that are larger: FastRPC maps less than 2 GiB at once.
const LONGEST: u64 = 1 << 30;

/// Weights next to each other in an image, read by the same sessions: what is mapped as one.
pub(super) struct Neighbours {
    /// The first byte of the image that belongs to them.
    pub(super) start: u64,
    end: u64,
    pub(super) sessions: SessionSet,
}

impl Neighbours {
    /// The bytes of the image that are mapped for them.
    pub(super) fn mapped(&self) -> Range<u64> {
        self.start / PAGE * PAGE..self.end
    }

    /// The weights of an image in groups.
    pub(super) fn of<'a>(
        entries: impl Iterator<Item = (&'a str, &'a WeightEntry)>,
        readers: impl Fn(&str) -> SessionSet,
    ) -> Vec<Self> {
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.offset);
        let mut runs: Vec<Self> = Vec::new();
        for (label, entry) in entries {
            let (sessions, end) = (readers(label), entry.offset + entry.bytes);
            match runs.last_mut() {
                Some(run) if run.sessions == sessions && end - run.start <= LONGEST => run.end = end,
                _ => runs.push(Self { start: entry.offset, end, sessions }),
            }
        }
        runs
    }
}

/// Who reads a weight of the target: a constant is in all sessions.
pub(super) fn readers<'a>(
    constants: &'a HashSet<String>,
    split: &'a Split,
    embedding: EmbeddingReaders,
) -> impl Fn(&str) -> SessionSet + use<'a> {
    move |label| match constants.contains(label) {
        true => SessionSet::all(split.sessions()),
        false => split.readers(label, embedding),
    }
}

/// The layers of each of `sessions` sessions; the first has `beside` bytes of weights besides.
pub(super) fn split<'a>(
    target: &Decoder,
    draft: Option<&dyn DraftModel>,
    weights: impl Iterator<Item = (&'a str, &'a WeightEntry)>,
    beside: u64,
    embedding: EmbeddingReaders,
    sessions: u32,
) -> Result<Split, EngineError> {
    // The draft is in the last session, with the layers whose caches it reads.
    let with_draft = draft.and_then(DraftModel::reads_caches_from).map_or(usize::MAX, |first| first + 1);
    let (layers, starts) = (target.layers.len(), target.session_starts().min(with_draft));
    let weights = weights.map(|(label, entry)| (label, entry.bytes));
    Split::balanced(layers, starts, embedding, (weights, beside), sessions as usize).ok_or_else(|| {
        EngineError::Setting {
            setting: Setting::Sessions,
            allowed: format!("1 to {starts}, the layers that a session can begin with"),
            found: sessions.into(),
        }
    })
}

/// The sessions that read the target's embedding.
pub(super) fn embedding_readers(target: &Decoder, draft: Option<&dyn DraftModel>) -> EmbeddingReaders {
    match draft {
        Some(draft) if draft.shares_embedding() => EmbeddingReaders::FirstAndLast,
        _ => target.embedding_readers(),
    }
}

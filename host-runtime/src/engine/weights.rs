//! MappedWeights on the device: each session gets what it reads, straight from the image of all.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use hexflash_abi::BufferId;

use super::EngineError;
use crate::device::{Buffer, Device, SessionSet, Source};
use crate::gguf::Gguf;
use crate::model::{Decoder, EmbeddingReaders, Split, WeightMap, WeightPlan};
use crate::setting::Setting;
use crate::weights::{ImageOptions, ImageRange, WeightEntry, WeightImage};

/// Stretches of an image begin at a multiple of this: no system has larger pages.
const PAGE: u64 = 64 << 10;
/// Longest stretch, but for single weights that are larger: FastRPC maps less than 2 GiB at once.
const LONGEST: u64 = 1 << 30;

/// MappedWeights that some sessions have mapped.
pub(super) struct MappedWeights {
    sessions: SessionSet,
    source: Arc<dyn Source>,
    pub(super) buffer: Buffer,
}

impl MappedWeights {
    fn map(device: &mut dyn Device, sessions: SessionSet, stretch: ImageRange) -> Result<Self, EngineError> {
        let source: Arc<dyn Source> = Arc::new(stretch);
        let buffer = device.import_in(sessions, Arc::clone(&source))?;
        Ok(Self { sessions, source, buffer })
    }

    /// Maps them on a device that was started again; gives the new buffer.
    pub(super) fn again(&self, device: &mut dyn Device) -> Result<Buffer, EngineError> {
        Ok(device.import_in(self.sessions, Arc::clone(&self.source))?)
    }
}

/// An image, and what it was made for.
pub(super) struct Image {
    image: WeightImage,
    plan: WeightPlan,
}

/// Weights next to each other in an image, read by the same sessions: what is mapped as one.
pub(super) struct Neighbours {
    start: u64,
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

/// The layers of each of `sessions` sessions.
pub(super) fn split<'a>(
    target: &Decoder,
    weights: impl Iterator<Item = (&'a str, &'a WeightEntry)>,
    embedding: EmbeddingReaders,
    sessions: u32,
) -> Result<Split, EngineError> {
    let (layers, starts) = (target.layers.len(), target.session_starts());
    let weights = weights.map(|(label, entry)| (label, entry.bytes));
    Split::balanced(layers, starts, embedding, weights, sessions as usize).ok_or_else(|| {
        EngineError::Setting {
            setting: Setting::Sessions,
            allowed: format!("1 to {starts}, the layers that a session can begin with"),
            found: sessions.into(),
        }
    })
}

impl Image {
    /// Repacks weights for `device`, or takes them from the cache.
    pub(super) fn load(
        gguf: &Gguf,
        plan: WeightPlan,
        options: &ImageOptions<'_>,
        device: &dyn Device,
    ) -> Result<Self, EngineError> {
        let load = if device.copies_imports() { WeightImage::load_to_copy } else { WeightImage::load };
        Ok(Self { image: load(gguf, &plan.specs, options)?, plan })
    }

    /// Bytes of all weights.
    pub(super) fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// What users should know of the cache.
    pub(super) fn warnings(&self) -> &[String] {
        self.image.warnings()
    }

    /// As [`split`], of this image.
    pub(super) fn split(
        &self,
        target: &Decoder,
        embedding: EmbeddingReaders,
        sessions: u32,
    ) -> Result<Split, EngineError> {
        split(target, self.image.entries(), embedding, sessions)
    }

    /// As [`WeightPlan::constants`].
    pub(super) fn constants(&self) -> HashSet<String> {
        self.plan.constants()
    }

    /// Maps the weights for the sessions that read them; what was mapped goes to `mapped`.
    pub(super) fn map(
        self,
        device: &mut dyn Device,
        readers: impl Fn(&str) -> SessionSet,
        mapped: &mut Vec<MappedWeights>,
    ) -> Result<WeightMap, EngineError> {
        let runs = Neighbours::of(self.image.entries(), readers);
        let mut homes: Vec<(u64, u64, BufferId)> = Vec::with_capacity(runs.len());
        for run in runs {
            let range = run.mapped();
            let first = range.start;
            let stretch = ImageRange::new(&self.image, range);
            let weights = MappedWeights::map(device, run.sessions, stretch)?;
            homes.push((run.start, first, weights.buffer.id));
            mapped.push(weights);
        }
        let home = |at| {
            let (_, first, buffer) = homes[homes.partition_point(|&(start, ..)| start <= at) - 1];
            (buffer, at - first)
        };
        Ok(WeightMap::new(self.plan, |label| self.image.entry(label).copied(), home))
    }
}

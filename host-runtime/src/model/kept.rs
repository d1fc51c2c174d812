//! Memory that outlives a step: caches, recurrent states, tapes, and what drafts keep.
//!
//! Blocks and drafts declare tensors to a [`KeptPlanner`]; programs find them by label in the [`KeptLayout`]
//! that it becomes, with the type and the shape that was declared. A [`Purpose`] says what a tensor is for,
//! and with that in which of three regions it lies.

use std::collections::HashMap;

use hexflash_abi::DType;
use hexflash_abi::dtype::TILE_ROWS;

use super::cache_types::CacheTypes;
use super::scope::Scope;
use crate::record::{RecordError, packed_bytes};

/// What a kept tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A cache of keys or values.
    Kv,
    /// A recurrent state, or the last inputs of a convolution.
    Recurrent,
    /// Factors of tokens that may be taken back.
    Tape,
    /// Inputs of a convolution that may be taken back.
    ConvRows,
    /// Copies of recurrent states and of the last inputs of convolutions.
    Snapshot,
    /// A draft's cache of keys or values.
    DraftKv,
    /// The target's last rows, by position, for a draft that keeps nothing else of the text. What of them is
    /// lost may cost a draft, so that they are no state.
    DraftRows,
    /// Blocks of tokens, features and tables of rounds.
    Rounds,
    /// Keys, values and rows of a tile of a picture, for which nothing is kept when its rows are read.
    Encoder,
}

impl Purpose {
    /// Where tensors of this purpose lie. `alone` says that between a step and the one that takes its tokens
    /// back or keeps them nothing runs but rounds: there is one sequence, and no encoder.
    pub const fn region(self, alone: bool) -> Region {
        match self {
            Self::Kv | Self::Recurrent | Self::Snapshot => Region::State,
            Self::Tape | Self::DraftKv | Self::DraftRows | Self::Rounds | Self::Encoder => {
                Region::Speculation
            }
            Self::ConvRows if alone => Region::Activations,
            // A prompt of one sequence must not overwrite what another one may take back.
            Self::ConvRows => Region::Speculation,
        }
    }
}

/// A part of memory that kept tensors lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Region {
    /// The states of all sequences, and snapshots of them. Each session has a buffer of its own for its
    /// layers.
    State,
    /// What speculation adds: one buffer, which all sessions map.
    Speculation,
    /// Behind the activations. Steps that need the memory there end the life of these tensors: prefill does,
    /// and nothing that comes between two rounds.
    Activations,
}

/// A kept tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What it is for.
    pub purpose: Purpose,
    /// Where it lies.
    pub region: Region,
    /// First byte in its region; in [`Region::State`], as if the parts of all sessions were one.
    pub offset: u64,
    /// Element type and layout.
    pub dtype: DType,
    /// Elements per axis. The outermost axis of what belongs to a sequence counts slots.
    pub ne: [u32; 4],
}

impl Kept {
    /// Bytes of the part of one slot, of `n_slots`.
    pub fn slot_bytes(&self, n_slots: u32) -> u64 {
        packed_bytes(self.dtype, self.ne).unwrap_or(0) / u64::from(n_slots)
    }
}

/// Whether tokens can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollback {
    /// No: there is plain decoding only.
    None,
    /// The last step's can: recurrent blocks keep tapes.
    LastStep,
}

/// Where all kept tensors lie.
#[derive(Clone, Debug)]
pub struct KeptLayout {
    /// Positions of every cache that is not a KV ring.
    pub n_ctx: u32,
    /// If some caches are KV rings: the positions that the shortest of them keeps beside the window.
    pub kv_ring_slack: Option<u32>,
    /// Slots: sequences that there is room for.
    pub n_slots: u32,
    /// Snapshots that there is room for.
    pub n_snapshots: u32,
    /// Whether tokens can be taken back.
    pub rollback: Rollback,
    tensors: HashMap<String, Kept>,
    /// First byte of each session's part of the state.
    parts: Vec<u64>,
    bytes: HashMap<Purpose, u64>,
    regions: HashMap<Region, u64>,
}

impl KeptLayout {
    /// The tensor called `label`, if there is one.
    pub fn get(&self, label: &str) -> Option<&Kept> {
        self.tensors.get(label)
    }

    /// The tensor called `label`.
    ///
    /// # Panics
    /// If nothing of that label was declared: what declares a tensor and what uses it are written together.
    #[expect(
        clippy::panic,
        reason = "labels depend on hyper-parameters alone, which declarations and their users share"
    )]
    pub fn place(&self, label: &str) -> Kept {
        *self.get(label).unwrap_or_else(|| panic!("nothing declares {label}"))
    }

    /// The recurrent tensors and their snapshots, with the labels of the former, in the order of their
    /// places.
    pub fn snapshots(&self) -> Vec<(&str, Kept, Kept)> {
        let pairs =
            self.iter().filter_map(|(label, &kept)| Some((label, kept, *self.get(&snapshot_label(label))?)));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_by_key(|(_, kept, _)| kept.offset);
        pairs
    }

    /// All tensors with their labels, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Kept)> {
        self.tensors.iter().map(|(label, kept)| (label.as_str(), kept))
    }

    /// Bytes of all tensors for `purpose`.
    pub fn bytes(&self, purpose: Purpose) -> u64 {
        self.bytes.get(&purpose).copied().unwrap_or(0)
    }

    /// Bytes of a region.
    pub fn region_bytes(&self, region: Region) -> u64 {
        self.regions.get(&region).copied().unwrap_or(0)
    }

    /// Where a byte of the state is: the session, and the place in its part.
    pub fn home(&self, at: u64) -> (usize, u64) {
        let session = self.parts.partition_point(|&start| start <= at) - 1;
        (session, at - self.parts[session])
    }

    /// First byte of each session's part of the state.
    pub fn parts(&self) -> &[u64] {
        &self.parts
    }

    /// Bytes of each session's part of the state.
    pub fn part_bytes(&self) -> impl Iterator<Item = u64> {
        let ends = self.parts[1..].iter().copied().chain([self.region_bytes(Region::State)]);
        self.parts.iter().zip(ends).map(|(start, end)| end - start)
    }
}

/// Collects what blocks and drafts keep.
#[derive(Debug)]
pub struct KeptPlanner {
    layout: KeptLayout,
    /// Rows of the widest step, if caches whose queries have a window are KV rings.
    kv_ring_rows: Option<u32>,
    caches: CacheTypes,
    /// Whether an encoder runs between steps.
    encodes: bool,
}

/// The label of the snapshots of a recurrent tensor.
pub(super) fn snapshot_label(label: &str) -> String {
    format!("{label}.snapshots")
}

impl KeptPlanner {
    /// Nothing yet, for one sequence with caches of `n_ctx` positions, in F16.
    pub fn new(n_ctx: u32, rollback: Rollback) -> Self {
        Self {
            layout: KeptLayout {
                n_ctx,
                kv_ring_slack: None,
                n_slots: 1,
                n_snapshots: 0,
                rollback,
                tensors: HashMap::new(),
                parts: vec![0],
                bytes: HashMap::new(),
                regions: HashMap::new(),
            },
            kv_ring_rows: None,
            caches: CacheTypes::default(),
            encodes: false,
        }
    }

    /// The same for `n_slots` sequences, and as many snapshots of a sequence's recurrent states.
    #[must_use]
    pub fn room_for(self, n_slots: u32, n_snapshots: u32) -> Self {
        Self { layout: KeptLayout { n_slots, n_snapshots, ..self.layout }, ..self }
    }

    /// The same, where caches whose queries have a window are KV rings, for steps of up to `rows` rows.
    #[must_use]
    pub fn kv_rings(self, rows: u32) -> Self {
        Self { kv_ring_rows: Some(rows), ..self }
    }

    /// Positions of a KV ring for queries that see `window` positions: those, and the rows of the widest
    /// step, in whole tiles; more where keys need the first one of their strip, seen or not. `None` if there
    /// is no window (0), or if the KV ring is not shorter than the context. Drafts have none: several tokens
    /// enter their caches late.
    pub(super) fn kv_ring(&mut self, scope: Scope, window: u32) -> Option<u32> {
        let rows = self.kv_ring_rows.filter(|_| window > 0 && !scope.is_draft())?;
        let held = if self.caches.keys.needs_first_of_strip() { TILE_ROWS as u32 - 1 } else { 0 };
        let window = window.checked_add(held)?;
        let n = window.checked_add(rows)?.checked_next_multiple_of(TILE_ROWS as u32)?;
        let n = Some(n).filter(|&n| n < self.layout.n_ctx)?;
        let slack = self.layout.kv_ring_slack.get_or_insert(u32::MAX);
        *slack = (n - window).min(*slack);
        Some(n)
    }

    /// The same with caches of these number formats.
    #[must_use]
    pub fn with_caches(self, caches: CacheTypes) -> Self {
        Self { caches, ..self }
    }

    /// This plan, where an encoder of pictures may run between steps.
    #[must_use]
    pub fn with_encoder(self) -> Self {
        Self { encodes: true, ..self }
    }

    /// Sequences that there is room for.
    pub(super) fn n_slots(&self) -> u32 {
        self.layout.n_slots
    }

    /// Positions of every cache that is not a KV ring.
    pub(super) fn n_ctx(&self) -> u32 {
        self.layout.n_ctx
    }

    /// Number formats of the caches.
    pub(super) fn caches(&self) -> CacheTypes {
        self.caches
    }

    /// Whether tokens can be taken back.
    pub(super) fn rollback(&self) -> Rollback {
        self.layout.rollback
    }

    /// The state that is declared from here on is the next session's.
    pub(super) fn next_session(&mut self) {
        self.layout.parts.push(self.layout.region_bytes(Region::State));
    }

    /// Declares a packed tensor, and the snapshots of a recurrent one. Caches of a draft count as
    /// [`Purpose::DraftKv`].
    ///
    /// # Errors
    /// It is larger than programs can describe.
    pub(super) fn keep(
        &mut self,
        scope: Scope,
        tensor: &str,
        purpose: Purpose,
        (dtype, ne): (DType, [u32; 4]),
    ) -> Result<(), RecordError> {
        let purpose = match purpose {
            Purpose::Kv if scope.is_draft() => Purpose::DraftKv,
            purpose => purpose,
        };
        let label = scope.label(tensor);
        let (n_slots, n_snapshots) = (self.layout.n_slots, self.layout.n_snapshots);
        if purpose == Purpose::Recurrent && n_snapshots > 0 {
            let [rows, width, ..] = ne;
            let matrices = ne[2] * ne[3] / n_slots;
            self.place(
                snapshot_label(&label),
                Purpose::Snapshot,
                (dtype, [rows, width, matrices, n_snapshots]),
            )?;
        }
        self.place(label, purpose, (dtype, ne))
    }

    fn place(
        &mut self,
        label: String,
        purpose: Purpose,
        (dtype, ne): (DType, [u32; 4]),
    ) -> Result<(), RecordError> {
        let bytes = packed_bytes(dtype, ne)?.next_multiple_of(hexflash_abi::VECTOR_BYTES as u64);
        let region = purpose.region(self.layout.n_slots == 1 && !self.encodes);
        let end = self.layout.regions.entry(region).or_default();
        let kept = Kept { purpose, region, offset: *end, dtype, ne };
        *end += bytes;
        *self.layout.bytes.entry(purpose).or_default() += bytes;
        self.layout.tensors.insert(label, kept);
        Ok(())
    }

    /// The layout.
    pub fn finish(self) -> KeptLayout {
        self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_its_part_of_the_state() {
        let mut planner = KeptPlanner::new(64, Rollback::LastStep);
        let floats = |n| (DType::F32, [n, 1, 1, 1]);
        let layer = |i| Scope::TARGET.layer(i);
        planner.keep(layer(0), "k", Purpose::Kv, floats(33)).unwrap();
        planner.keep(layer(0), "x", Purpose::ConvRows, floats(7)).unwrap();
        planner.next_session();
        planner.keep(layer(1), "s", Purpose::Recurrent, floats(32)).unwrap();
        planner.keep(Scope::DRAFT.layer(0), "k", Purpose::Kv, floats(1)).unwrap();
        let layout = planner.finish();
        assert_eq!(layout.part_bytes().collect::<Vec<_>>(), [256, 128]);
        assert_eq!((layout.home(255), layout.home(256)), ((0, 255), (1, 0)));
        assert_eq!((layout.bytes(Purpose::Kv), layout.bytes(Purpose::DraftKv)), (256, 128));
        assert_eq!(layout.region_bytes(Region::Activations), 128);
        let draft = layout.get("draft.blk.0.k").unwrap();
        assert_eq!((draft.purpose, draft.offset), (Purpose::DraftKv, 0));
        assert_eq!(layout.get("blk.2.k"), None);
    }
}

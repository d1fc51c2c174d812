//! Sequences off the device: what a text has in caches and states, copied to the host and back.
//!
//! A [`SequenceCopy`] has the rows of all caches that the tokens of its text wrote, the recurrent states
//! after them, and the sequence's snapshots. A sequence that it was copied into goes on with the bits of the
//! one that it was copied from. The host reads and writes the memory that both share, between two steps.
//! Where the device may have some of it in its caches alone, a message makes it [write that back](share).

mod bytes;
mod origin;
mod share;

use xxhash_rust::xxh3::xxh3_128;

use super::sequence::Outputs;
use super::{DraftBlock, Engine, EngineError, Sequence};
use crate::device::KeptAccess;
use crate::model::{Kept, Purpose, Region};
pub(super) use origin::identity;

/// What a text has on the device, on the host.
#[derive(Clone, PartialEq, Eq)]
pub struct SequenceCopy {
    /// What it was copied from: only an engine of the same origin can take it.
    origin: u128,
    /// The tokens whose rows and states these are.
    tokens: Vec<u32>,
    /// Positions below it may have been written, though the text may have been cut back since.
    written: u32,
    /// Rows of caches and recurrent states, tensor after tensor.
    state: Vec<u8>,
    /// Recurrent states after fewer tokens, ascending, and how many tokens those are.
    snapshots: Vec<(u32, Vec<u8>)>,
}

/// Bytes that cannot become a [`SequenceCopy`], or a copy that cannot go into a sequence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// They are of something else.
    #[error("this is no saved sequence of hexflash; name a file that was saved as one")]
    NotACopy,
    /// They are of another version of the format.
    #[error(
        "the sequence was saved in version {found} of the format, and this is version {known}; save it again"
    )]
    Version {
        /// The version that was found.
        found: u32,
        /// The only one that is known.
        known: u32,
    },
    /// Bytes are missing, too many or wrong.
    #[error("the saved sequence is damaged ({what}); save it again")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// It comes from elsewhere.
    #[error(
        "the sequence was saved with another model, another type of cache, on another kind of device or by another \
         version of hexflash; save it again with what runs now"
    )]
    Origin,
    /// The context is too short for it.
    #[error("the sequence has {tokens} tokens, and the context {n_ctx}; use a larger context")]
    TooLong {
        /// Its tokens.
        tokens: usize,
        /// Positions of the context.
        n_ctx: u32,
    },
    /// The host cannot see what the device has.
    #[error(
        "a model that is split over sessions keeps states in caches of each, which cannot be copied; use one session"
    )]
    Hidden,
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

    /// The most tokens, at most `n`, to which a sequence can be [rolled back](Sequence::roll_back) after the
    /// copy went into it, without computing any of them again. `engine` is one that can take it.
    pub fn reach(&self, engine: &Engine, n: u32) -> u32 {
        let n_past = self.tokens.len() as u32;
        if n >= n_past {
            return n_past;
        }
        let snapshots = self.snapshots.iter().map(|&(n, _)| n);
        let most = match engine.has_states() {
            false => n,
            true => snapshots.filter(|&found| found <= n).max().unwrap_or(0),
        };
        let slack = engine.kept.kv_ring_slack;
        if slack.is_none_or(|slack| most.saturating_add(slack) >= self.written) { most } else { 0 }
    }
}

/// A piece of what a sequence keeps: so many bytes from `offset` on, in `region`.
struct Piece {
    region: Region,
    offset: u64,
    bytes: usize,
}

impl Engine {
    /// Whether [`Sequence::copy_out`] and [`Sequence::copy_in`] work on this device.
    pub fn copies_sequences(&self) -> bool {
        self.device.kept_access() != KeptAccess::Never
    }

    /// What tells whether a copy fits: the model, its caches, the device, and what made the copy.
    fn origin(&self) -> u128 {
        let mut text = format!("{:032x}", self.identity);
        let info = self.device.info();
        // All of this machine's instruction sets give the same bits.
        let kind = if info.name == "inproc" { &info.name } else { &info.description };
        text.push_str(&format!("\n{kind}\n{}\n{:x}", env!("CARGO_PKG_VERSION"), hexflash_abi::LAYOUT_HASH));
        for (label, kept) in self.kept_by_sequences() {
            let Kept { dtype, ne: [n0, n1, n2, _], .. } = kept;
            // The positions of whole contexts do not matter: only their rows are copied.
            let n1 = if is_cache(kept.purpose) && n1 == self.kept.n_ctx { 0 } else { n1 };
            let n2 = if is_cache(kept.purpose) { n2 } else { 0 };
            text.push_str(&format!("\n{label} {dtype:?} {n0} {n1} {n2}"));
        }
        xxh3_128(text.as_bytes())
    }

    /// What sequences keep between steps, in an order that does not change.
    fn kept_by_sequences(&self) -> Vec<(&str, Kept)> {
        let is_kept = |purpose| match purpose {
            Purpose::Kv | Purpose::DraftKv | Purpose::Recurrent => true,
            // Nothing is on tapes when a copy is made, snapshots are copied apart, and rounds have ended.
            Purpose::Tape | Purpose::ConvRows | Purpose::Snapshot | Purpose::Rounds => false,
        };
        let all = self.kept.iter().filter(|(_, kept)| is_kept(kept.purpose));
        let mut all: Vec<_> = all.map(|(label, &kept)| (label, kept)).collect();
        all.sort_unstable_by_key(|&(label, _)| label);
        all
    }

    /// The rows of caches that `n` tokens wrote, and the recurrent states of a sequence.
    fn pieces(&self, slot: usize, n: u32) -> Vec<Piece> {
        let n_slots = self.kept.n_slots;
        let mut pieces = Vec::new();
        for (_, kept) in self.kept_by_sequences() {
            let bytes = kept.slot_bytes(n_slots);
            let at = kept.offset + slot as u64 * bytes;
            if !is_cache(kept.purpose) {
                pieces.push(Piece { region: kept.region, offset: at, bytes: bytes as usize });
                continue;
            }
            let [_, positions, heads, _] = kept.ne;
            // Types in tiles have whole strips of positions.
            let strip = kept.dtype.tile_group().map_or(1, |_| hexflash_abi::dtype::TILE_ROWS as u32);
            let head = bytes / u64::from(heads);
            let per_strip = head / u64::from(positions.div_ceil(strip));
            let strips = n.min(positions).div_ceil(strip);
            pieces.extend((0..u64::from(heads)).map(|i| Piece {
                region: kept.region,
                offset: at + i * head,
                bytes: (u64::from(strips) * per_strip) as usize,
            }));
        }
        pieces
    }

    /// What a place for snapshots holds.
    fn snapshot_pieces(&self, place: usize) -> Vec<Piece> {
        let tensors = self.kept.snapshots().into_iter();
        tensors
            .map(|(_, _, kept)| {
                let bytes = kept.slot_bytes(self.kept.n_snapshots);
                Piece {
                    region: kept.region,
                    offset: kept.offset + place as u64 * bytes,
                    bytes: bytes as usize,
                }
            })
            .collect()
    }

    /// The memory of a piece, and where in it the piece begins.
    fn home(&self, piece: &Piece) -> Option<(&crate::device::SharedMemory, usize)> {
        match piece.region {
            Region::State => {
                let (session, at) = self.kept.home(piece.offset);
                Some((&self.state.get(session)?.memory, at as usize))
            }
            Region::Speculation => {
                Some((&self.spec.as_ref()?.buffer.as_ref()?.memory, piece.offset as usize))
            }
            // Nothing that outlives two steps lies there.
            Region::Activations => None,
        }
    }

    fn read_pieces(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut bytes = vec![0; pieces.iter().map(|piece| piece.bytes).sum()];
        let mut rest = &mut bytes[..];
        for piece in pieces {
            let (here, after) = rest.split_at_mut(piece.bytes);
            if let Some((memory, at)) = self.home(piece) {
                memory.read(at, here);
            }
            rest = after;
        }
        bytes
    }

    /// Writes what [`read_pieces`](Self::read_pieces) gave: there are as many bytes as the pieces have.
    fn write_pieces(&self, pieces: &[Piece], mut bytes: &[u8]) {
        for piece in pieces {
            let (here, after) = bytes.split_at(piece.bytes);
            if let Some((memory, at)) = self.home(piece) {
                memory.write(at, here);
            }
            bytes = after;
        }
    }
}

/// Whether it has rows by position.
fn is_cache(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Kv | Purpose::DraftKv)
}

impl Sequence<'_> {
    /// Copies what the text has on the device to the host: its caches, states and snapshots. Tokens that the
    /// last verification kept, and that are not in recurrent states yet, are left out.
    ///
    /// # Errors
    /// The device failed, or its states cannot be copied ([`CopyError::Hidden`]).
    pub fn copy_out(&mut self) -> Result<SequenceCopy, EngineError> {
        self.prepare_copy()?;
        self.usable()?;
        self.catch_up()?;
        self.share()?;
        let (engine, slot) = (&*self.engine, self.slot);
        let state = self.state();
        let lag = if engine.has_states() { state.n_commit } else { 0 };
        let n = state.n_past - lag;
        let mut snapshots: Vec<(u32, Vec<u8>)> = engine
            .snapshots
            .of(slot)
            .map(|(place, n_past)| (n_past, engine.read_pieces(&engine.snapshot_pieces(place))))
            .collect();
        snapshots.sort_unstable_by_key(|&(n_past, _)| n_past);
        Ok(SequenceCopy {
            origin: engine.origin(),
            tokens: state.history[..n as usize].to_vec(),
            written: self.written(),
            state: engine.read_pieces(&engine.pieces(slot, n)),
            snapshots,
        })
    }

    /// Makes the sequence what another one was when it was copied. What it had before is forgotten. There are
    /// no logits until the next step.
    ///
    /// # Errors
    /// The copy does not fit this engine, or the states of its device cannot be copied. The sequence is as
    /// before then.
    pub fn copy_in(&mut self, copy: &SequenceCopy) -> Result<(), EngineError> {
        let engine = &*self.engine;
        if copy.origin != engine.origin() {
            return Err(CopyError::Origin.into());
        }
        let (tokens, n_ctx) = (copy.tokens.len(), engine.n_ctx());
        if tokens > n_ctx as usize {
            return Err(CopyError::TooLong { tokens, n_ctx }.into());
        }
        let pieces = engine.pieces(self.slot, tokens as u32);
        let of_snapshot = engine.snapshot_pieces(0);
        let bytes = |pieces: &[Piece]| pieces.iter().map(|piece| piece.bytes).sum::<usize>();
        let fits = |(_, state): &(u32, Vec<u8>)| of_snapshot.is_empty() || state.len() == bytes(&of_snapshot);
        if copy.state.len() != bytes(&pieces) || !copy.snapshots.iter().all(fits) {
            return Err(CopyError::Damaged { what: "it has not the size of its text" }.into());
        }
        let n_vocab = engine.config.n_vocab;
        if copy.tokens.iter().any(|&token| token >= n_vocab) {
            return Err(CopyError::Damaged { what: "it has tokens that are in no vocabulary" }.into());
        }
        if copy.snapshots.iter().any(|&(n, _)| n as usize > tokens) {
            return Err(CopyError::Damaged { what: "it has snapshots of a longer text" }.into());
        }
        self.prepare_copy()?;
        self.share()?;
        self.reset();
        self.engine.write_pieces(&pieces, &copy.state);
        for (n, state) in &copy.snapshots {
            if let Some(place) = self.engine.snapshots.place(self.slot, *n) {
                self.engine.write_pieces(&self.engine.snapshot_pieces(place), state);
                self.engine.snapshots.fill(place, self.slot, *n);
            }
        }
        let state = self.state_mut();
        (state.n_past, state.written) = (tokens as u32, copy.written);
        (state.verified, state.outputs) = (DraftBlock::default(), Outputs::default());
        state.history.extend_from_slice(&copy.tokens);
        Ok(())
    }

    /// Waits until the device does nothing, and sees that its memory can be used.
    fn prepare_copy(&mut self) -> Result<(), EngineError> {
        if !self.engine.copies_sequences() {
            return Err(CopyError::Hidden.into());
        }
        self.end_rounds()?;
        self.engine.displace_rounds()
    }
}

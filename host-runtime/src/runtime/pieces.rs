//! The places of what sequences keep on a device, for copies of them.

use crate::model::{Kept, KeptLayout, Purpose, Region};

/// A piece of what a sequence keeps: so many bytes from `offset` on, in `region`.
pub(crate) struct Piece {
    pub(super) region: Region,
    pub(super) offset: u64,
    pub(crate) bytes: usize,
}

/// What sequences keep between steps, in an order that does not change.
pub(super) fn kept_by_sequences(layout: &KeptLayout) -> Vec<(&str, Kept)> {
    let is_kept = |purpose| match purpose {
        Purpose::Kv | Purpose::DraftKv | Purpose::DraftRows | Purpose::Recurrent => true,
        // Nothing is on tapes when a copy is made, snapshots are copied apart, and rounds have ended.
        Purpose::Tape | Purpose::ConvRows | Purpose::Snapshot | Purpose::Rounds | Purpose::Encoder => false,
    };
    let all = layout.iter().filter(|(_, kept)| is_kept(kept.purpose));
    let mut all: Vec<_> = all.map(|(label, &kept)| (label, kept)).collect();
    all.sort_unstable_by_key(|&(label, _)| label);
    all
}

/// The rows of caches that `n` tokens wrote, and the recurrent states of a sequence.
pub(crate) fn of_sequence(layout: &KeptLayout, slot: usize, n: u32) -> Vec<Piece> {
    let n_slots = layout.n_slots;
    let mut pieces = Vec::new();
    for (_, kept) in kept_by_sequences(layout) {
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
pub(crate) fn of_snapshot(layout: &KeptLayout, place: usize) -> Vec<Piece> {
    let tensors = layout.snapshots().into_iter();
    tensors
        .map(|(_, _, kept)| {
            let bytes = kept.slot_bytes(layout.n_snapshots);
            Piece { region: kept.region, offset: kept.offset + place as u64 * bytes, bytes: bytes as usize }
        })
        .collect()
}

/// Whether a tensor of this purpose has rows by position.
pub(super) fn is_cache(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Kv | Purpose::DraftKv)
}

//! Rows of pictures: what an encoder made of tiles, kept on the host as long as a context or a caller has
//! them.
//!
//! A text names such rows by *ids* that are no tokens. So all that is done with tokens of a context, such as
//! finding what a prompt has in common with it or computing it again after the device was lost, works with
//! pictures as it is. The same tile has the same ids as long as it is kept.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::model::{FIRST_PICTURE_ROW, is_picture_row};

/// Bytes of rows beyond which those that nobody has are forgotten: some hundred tiles of a small model.
const BUDGET: usize = 64 << 20;

/// The rows of a tile. They are kept as long as this is, or a context has them.
#[derive(Clone, Debug)]
pub struct PictureRows {
    first: u32,
    /// Rows{n_embd, n}.
    values: Arc<[f32]>,
    n: u32,
}

impl PictureRows {
    /// Their ids, for prompts.
    pub fn ids(&self) -> Range<u32> {
        self.first..self.first + self.n
    }

    /// Their values, `{n_embd, n}`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }
}

/// The rows that are kept, the oldest first.
#[derive(Default)]
pub(super) struct PictureStore {
    tiles: VecDeque<(u128, PictureRows)>,
    /// Rows so far.
    given: u32,
}

impl PictureStore {
    /// The tile that has a row.
    fn tile(&self, id: u32) -> Option<&PictureRows> {
        let at = self.tiles.partition_point(|(_, tile)| tile.first <= id).checked_sub(1)?;
        Some(&self.tiles[at].1).filter(|tile| tile.ids().contains(&id))
    }

    /// Whether a row is kept.
    pub(super) fn has(&self, id: u32) -> bool {
        self.tile(id).is_some()
    }

    /// The first ids of a prompt that one step can run, and their values if they are rows of a picture: those
    /// of one tile, or tokens up to the next picture. They are kept, and as many as `most` says: of tokens,
    /// and of rows.
    pub(super) fn run<'t>(
        &self,
        ids: &'t [u32],
        [tokens, rows]: [usize; 2],
    ) -> (&'t [u32], Option<(PictureRows, usize)>) {
        let most = ids.len().min(tokens);
        let Some(tile) = ids.first().and_then(|&id| self.tile(id)) else {
            let tokens = ids[..most].iter().position(|&id| is_picture_row(id)).unwrap_or(most);
            return (&ids[..tokens], None);
        };
        let all = tile.ids();
        let n = ids.iter().zip(ids[0]..all.end).take(rows).take_while(|(found, id)| **found == *id).count();
        (&ids[..n], Some((tile.clone(), (ids[0] - all.start) as usize)))
    }

    /// The rows of a tile that is known.
    pub(super) fn find(&self, key: u128) -> Option<PictureRows> {
        self.tiles.iter().find(|(known, _)| *known == key).map(|(_, tile)| tile.clone())
    }

    /// Keeps the rows of another tile; `None` if all ids were given.
    pub(super) fn add(&mut self, key: u128, values: Vec<f32>, n: u32) -> Option<PictureRows> {
        let first = FIRST_PICTURE_ROW + self.given;
        self.given = self.given.checked_add(n).filter(|&given| given < FIRST_PICTURE_ROW)?;
        let tile = PictureRows { first, values: values.into(), n };
        self.tiles.push_back((key, tile.clone()));
        Some(tile)
    }

    /// Forgets the oldest tiles that neither a caller nor a context has, down to the budget. `have` tells
    /// whether a context has any of these rows.
    pub(super) fn prune(&mut self, have: impl Fn(Range<u32>) -> bool) {
        let bytes = |tile: &PictureRows| size_of_val(&*tile.values);
        let mut over = self.tiles.iter().map(|(_, tile)| bytes(tile)).sum::<usize>().saturating_sub(BUDGET);
        self.tiles.retain(|(_, tile)| {
            let free = over > 0 && Arc::strong_count(&tile.values) == 1 && !have(tile.ids());
            if free {
                over = over.saturating_sub(bytes(tile));
            }
            !free
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_a_picture_does() {
        let mut store = PictureStore::default();
        let a = store.add(1, vec![0.0; 6], 3).unwrap();
        let b = store.add(2, vec![1.0; 4], 2).unwrap();
        assert_eq!((a.ids(), b.ids()), (1 << 31..(1 << 31) + 3, (1 << 31) + 3..(1 << 31) + 5));
        let prompt: Vec<u32> = [7, 8].into_iter().chain(a.ids()).chain(b.ids()).chain([9]).collect();
        let run = |from: usize, most| {
            let (ids, rows) = store.run(&prompt[from..], [most; 2]);
            (ids.len(), rows.map(|(tile, at)| (tile.ids().start - (1 << 31), at)))
        };
        assert_eq!(run(0, 256), (2, None));
        assert_eq!(run(0, 1), (1, None));
        assert_eq!(run(2, 256), (3, Some((0, 0))));
        assert_eq!(run(2, 2), (2, Some((0, 0))));
        assert_eq!(run(3, 256), (2, Some((0, 1))));
        assert_eq!(run(5, 256), (2, Some((3, 0))));
        assert_eq!(run(7, 256), (1, None));
        // Rows of a picture in another order are several runs.
        let (ids, _) = store.run(&[(1 << 31) + 1, 1 << 31], [256; 2]);
        assert_eq!(ids.len(), 1);
        let (ids, _) = store.run(&prompt[2..], [1, 3]);
        assert_eq!(ids.len(), 3);
        assert!(store.has((1 << 31) + 4) && !store.has((1 << 31) + 5) && !store.has(7));
    }

    #[test]
    fn rows_that_somebody_has_are_kept() {
        let mut store = PictureStore::default();
        let large = || vec![0.0; BUDGET / 4];
        let first = store.add(1, large(), 1).unwrap();
        store.add(2, large(), 1).unwrap();
        let have = |ids: Range<u32>| ids.contains(&((1 << 31) + 2));
        store.add(3, large(), 1).unwrap();
        store.prune(have);
        assert!(store.find(1).is_some() && store.find(2).is_none() && store.find(3).is_some());
        drop(first);
        store.prune(have);
        assert!(store.find(1).is_none() && store.find(3).is_some());
    }
}

//! Snapshots of recurrent states, and rolling back to them.
//!
//! Caches of keys and values have a row per token, so that a text is cut back by forgetting rows. A recurrent
//! state cannot be cut back: it has to be restored, or computed again. A snapshot is a copy of a sequence's
//! recurrent states and convolution rings, made and restored on the device. Those that were not used for the
//! longest time give way to new ones.

/// The snapshots of all sequences.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// What each place on the device holds.
    places: Vec<Option<Snapshot>>,
    /// Uses so far: the time at which a snapshot was used.
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    slot: usize,
    /// Tokens that are in the states.
    n_past: u32,
    used: u64,
}

impl Snapshots {
    pub(super) fn new(n: u32) -> Self {
        Self { places: vec![None; n as usize], clock: 0 }
    }

    pub(super) fn forget_all(&mut self) {
        self.places.fill(None);
    }

    /// Forgets the snapshots of a sequence that have more than `n` tokens.
    pub(super) fn forget_after(&mut self, slot: usize, n: u32) {
        for place in &mut self.places {
            *place = place.filter(|snapshot| snapshot.slot != slot || snapshot.n_past <= n);
        }
    }

    /// The place for a new snapshot: a free one, or that of the snapshot that was not used for the longest
    /// time. `None` if there is no room at all, or if there is such a snapshot already.
    pub(super) fn place(&mut self, slot: usize, n_past: u32) -> Option<usize> {
        self.clock += 1;
        let used = self.clock;
        let same = |snapshot: &&mut Snapshot| snapshot.slot == slot && snapshot.n_past == n_past;
        if let Some(snapshot) = self.places.iter_mut().flatten().find(same) {
            snapshot.used = used;
            return None;
        }
        let oldest = self.places.iter_mut().enumerate().min_by_key(|(_, place)| place.map(|s| s.used));
        let (number, place) = oldest?;
        *place = None;
        Some(number)
    }

    pub(super) fn fill(&mut self, number: usize, slot: usize, n_past: u32) {
        self.places[number] = Some(Snapshot { slot, n_past, used: self.clock });
    }

    /// The snapshots of a sequence: the place of each, and its tokens.
    pub(super) fn of(&self, slot: usize) -> impl Iterator<Item = (usize, u32)> {
        let all = self.places.iter().enumerate().filter_map(|(i, place)| Some((i, (*place)?)));
        all.filter(move |(_, snapshot)| snapshot.slot == slot).map(|(i, snapshot)| (i, snapshot.n_past))
    }

    /// Tokens in the best snapshot of a sequence's first `n`; 0 if there is none.
    pub(super) fn longest(&self, slot: usize, n: u32) -> u32 {
        let of_slot = self.places.iter().flatten().filter(|snapshot| snapshot.slot == slot);
        of_slot.map(|snapshot| snapshot.n_past).filter(|&n_past| n_past <= n).max().unwrap_or(0)
    }

    /// The snapshot of a sequence that has most of its first `n` tokens: its place, and its tokens.
    pub(super) fn best(&mut self, slot: usize, n: u32) -> Option<(usize, u32)> {
        self.clock += 1;
        let used = self.clock;
        let all = self.places.iter_mut().enumerate().filter_map(|(i, place)| Some((i, place.as_mut()?)));
        let fitting = all.filter(|(_, snapshot)| snapshot.slot == slot && snapshot.n_past <= n);
        let (number, snapshot) = fitting.max_by_key(|(_, snapshot)| snapshot.n_past)?;
        snapshot.used = used;
        Some((number, snapshot.n_past))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a snapshot as `Sequence::save` does.
    fn save(snapshots: &mut Snapshots, slot: usize, n_past: u32) -> Option<usize> {
        let place = snapshots.place(slot, n_past)?;
        snapshots.fill(place, slot, n_past);
        Some(place)
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_gives_way() {
        let mut snapshots = Snapshots::new(3);
        assert_eq!([1, 2, 3].map(|n| save(&mut snapshots, 0, n)), [Some(0), Some(1), Some(2)]);
        // Using one, or saving it again, makes it young.
        assert_eq!(snapshots.best(0, 1), Some((0, 1)));
        assert_eq!(save(&mut snapshots, 0, 2), None);
        assert_eq!(save(&mut snapshots, 1, 9), Some(2));
        assert_eq!(save(&mut snapshots, 1, 8), Some(0));
        assert_eq!((snapshots.best(0, 5), snapshots.best(1, 8)), (Some((1, 2)), Some((0, 8))));
    }

    #[test]
    fn the_best_snapshot_is_the_longest_that_is_no_longer_than_the_text() {
        let mut snapshots = Snapshots::new(8);
        for (slot, n) in [(0, 5), (0, 9), (0, 7), (1, 8)] {
            save(&mut snapshots, slot, n);
        }
        let best = [4, 5, 6, 8, 9, 100].map(|n| snapshots.best(0, n).map(|(_, n)| n));
        assert_eq!(best, [None, Some(5), Some(5), Some(7), Some(9), Some(9)]);
        snapshots.forget_after(0, 7);
        assert_eq!([snapshots.best(0, 100), snapshots.best(1, 100)].map(|b| b.unwrap().1), [7, 8]);
        snapshots.forget_after(0, 0);
        assert_eq!([snapshots.best(0, 100), snapshots.best(1, 100)].map(|b| b.is_some()), [false, true]);
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut snapshots = Snapshots::new(0);
        assert_eq!((save(&mut snapshots, 0, 1), snapshots.best(0, 1)), (None, None));
    }
}

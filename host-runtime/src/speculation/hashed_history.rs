//! A table of fixed size for what a text has shown after some tokens.

/// Values by a few tokens. Their hash gives the entry; a newer value replaces one with the same entry.
#[derive(Clone, Debug)]
pub(super) struct HashedHistory<T> {
    /// Keys, 0 for none.
    places: Box<[(u64, T); PLACES]>,
}

const BITS: u32 = 10;
const PLACES: usize = 1 << BITS;

impl<T: Copy + Default> Default for HashedHistory<T> {
    fn default() -> Self {
        Self { places: Box::new([(0, T::default()); PLACES]) }
    }
}

impl<T: Copy + Default> HashedHistory<T> {
    pub(super) fn get(&self, tokens: &[u32]) -> Option<T> {
        let (key, at) = place(tokens);
        Some(self.places[at]).filter(|place| place.0 == key).map(|place| place.1)
    }

    /// The value of these tokens, to change it.
    pub(super) fn entry(&mut self, tokens: &[u32]) -> &mut T {
        let (key, at) = place(tokens);
        if self.places[at].0 != key {
            self.places[at] = (key, T::default());
        }
        &mut self.places[at].1
    }
}

/// The key of some tokens, which others hardly share, and their place.
fn place(tokens: &[u32]) -> (u64, usize) {
    // Fibonacci hashing, by 2^64 over the golden ratio: the high bits of a product depend on all bits.
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = tokens
        .iter()
        .fold(1, |key: u64, &token| (key.rotate_left(32) ^ u64::from(token) ^ 1 << 32).wrapping_mul(RATIO));
    (key | 1, (key >> (u64::BITS - BITS)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_tokens() {
        let mut recent = HashedHistory::default();
        assert_eq!(recent.get(&[1, 2]), None);
        *recent.entry(&[1, 2]) = 5;
        *recent.entry(&[u32::MAX; 4]) += 7;
        *recent.entry(&[1, 2]) += 1;
        assert_eq!(
            [&[1, 2][..], &[2, 1], &[1, 2, 0], &[0, 1, 2]].map(|tokens| recent.get(tokens)),
            [Some(6), None, None, None]
        );
        assert_eq!(recent.get(&[u32::MAX; 4]), Some(7));
    }

    /// However many there are, the last one is there, and as itself; and most of a few.
    #[test]
    fn later_ones_replace_earlier_ones() {
        let mut recent = HashedHistory::default();
        for i in 0..10_000 {
            *recent.entry(&[i, 3]) += i;
            assert_eq!(recent.get(&[i, 3]), Some(i));
        }
        let kept = (9_800..10_000).filter(|&i| recent.get(&[i, 3]) == Some(i)).count();
        assert!(kept > 150, "{kept} of 200");
    }
}

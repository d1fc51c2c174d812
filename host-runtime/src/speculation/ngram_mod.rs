//! N-grams that learn: what followed the last tokens, in this text and in earlier ones.
//!
//! llama.cpp calls the idea `ngram-mod`: a table of fixed size keeps, for a hash of the last tokens, the
//! token that came next. Here the table is asked for several numbers of last tokens, and the longest that it
//! knows decides; each drafted token counts as text for the one after it. The table is shared by all drafters
//! that are made of a [`NGramPool`]: by the texts of a server, and by the turns of a chat.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::drafter::Drafter;
use super::guess::Guess;

/// Numbers of last tokens, the longest first. Fewer than three predict hardly anything, and more than twelve
/// are known only where eight are as well.
const LENGTHS: [usize; 4] = [12, 8, 5, 3];

/// How sure a token is that followed these many tokens once. These are margins at which about a half, two
/// thirds, three quarters and four fifths of drafts are right.
const MARGINS: [f32; LENGTHS.len()] = [2.0, 1.6, 1.1, 0.6];

/// What each time more adds to that, up to [`MOST_AGAIN`] times.
const PER_AGAIN: f32 = 0.4;
const MOST_AGAIN: u8 = 3;

/// Entries of the table: 2^19 of 8 bytes are 4 MiB, room for four n-grams each of 130,000 tokens.
const BITS: u32 = 19;

/// The token that followed some tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    next: u32,
    /// More bits of the hash, so that other tokens are hardly taken for these. 0 where nothing is known.
    check: u16,
    /// How often it followed again, without another token in between.
    again: u8,
}

/// What n-grams of many texts have shown, in 4 MiB. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct NGramPool(Arc<Mutex<Box<[Entry]>>>);

impl Default for NGramPool {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(vec![Entry::default(); 1 << BITS].into_boxed_slice())))
    }
}

impl NGramPool {
    /// A pool that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A drafter of a text that learns from the pool's other texts, as they do from it.
    pub fn drafter(&self) -> NGramMod {
        NGramMod { pool: self.clone(), known: 0, guessing: Vec::new() }
    }

    /// Any content is as good as any other, so a panic of another thread has broken nothing.
    fn table(&self) -> MutexGuard<'_, Box<[Entry]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drafts tokens that followed the same tokens before, in any text of its [`NGramPool`].
#[derive(Debug)]
pub struct NGramMod {
    pool: NGramPool,
    /// Tokens of the text that the pool has seen.
    known: usize,
    /// The last tokens of the text and those that are guessed.
    guessing: Vec<u32>,
}

impl Drafter for NGramMod {
    fn begin(&mut self) {
        self.known = 0;
    }

    fn learn(&mut self, text: &[u32]) {
        // A text that was cut goes on with other tokens.
        self.known = self.known.min(text.len());
        let mut table = self.pool.table();
        for end in self.known..text.len() {
            for n in LENGTHS.into_iter().filter(|&n| n <= end) {
                let (at, check) = place(&text[end - n..end]);
                let entry = &mut table[at];
                if (entry.check, entry.next) == (check, text[end]) {
                    entry.again = (entry.again + 1).min(MOST_AGAIN);
                } else {
                    *entry = Entry { next: text[end], check, again: 0 };
                }
            }
        }
        self.known = text.len();
    }

    fn draft(&mut self, text: &[u32], most: usize, out: &mut Guess) {
        self.learn(text);
        self.guessing.clear();
        self.guessing.extend_from_slice(&text[text.len().saturating_sub(LENGTHS[0])..]);
        let table = self.pool.table();
        for _ in 0..most {
            let last = &self.guessing;
            let known = LENGTHS.into_iter().zip(MARGINS).find_map(|(n, margin)| {
                let (at, check) = place(&last[last.len().checked_sub(n)?..]);
                Some((table[at], margin)).filter(|(entry, _)| entry.check == check)
            });
            let Some((entry, margin)) = known else { break };
            out.push(entry.next, margin + PER_AGAIN * f32::from(entry.again));
            self.guessing.push(entry.next);
        }
    }
}

/// Where the token after these tokens is, and the check that its entry has.
fn place(tokens: &[u32]) -> (usize, u16) {
    // Fibonacci hashing, by 2^64 over the golden ratio: the high bits of a product depend on all bits.
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = tokens.iter().fold(tokens.len() as u64, |hash, &token| {
        (hash.rotate_left(29) ^ (u64::from(token) + 1)).wrapping_mul(RATIO)
    });
    let check = (hash >> (u64::BITS - BITS - u16::BITS)) as u16;
    ((hash >> (u64::BITS - BITS)) as usize, check | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(drafter: &mut NGramMod, text: &[u32], most: usize) -> Vec<u32> {
        let mut guess = Guess::default();
        drafter.draft(text, most, &mut guess);
        assert_eq!(guess.tokens().len(), guess.margins().len());
        guess.tokens().to_vec()
    }

    #[test]
    fn what_followed_the_same_tokens() {
        let mut drafter = NGramPool::new().drafter();
        assert!(drafts(&mut drafter, &[], 3).is_empty());
        assert!(drafts(&mut drafter, &[1, 2, 3, 4], 3).is_empty());
        assert_eq!(drafts(&mut drafter, &[1, 2, 3, 4, 5, 1, 2, 3], 3), [4, 5, 1]);
        assert_eq!(drafts(&mut drafter, &[1, 2, 3, 4, 5, 1, 2, 3], 1), [4]);
        // Its own drafts lead on, round and round.
        assert_eq!(drafts(&mut drafter, &[1, 2, 3, 4, 5, 1, 2, 3], 8), [4, 5, 1, 2, 3, 4, 5, 1]);
    }

    #[test]
    fn more_tokens_decide_and_then_the_latest_place() {
        let mut drafter = NGramPool::new().drafter();
        let text = [9, 8, 1, 2, 3, 30, 7, 7, 1, 2, 3, 40, 9, 8, 1, 2, 3];
        assert_eq!(drafts(&mut drafter, &text, 1), [30]);
        assert_eq!(drafts(&mut drafter, &[&text[..], &[50, 6, 1, 2, 3]].concat(), 1), [50]);
    }

    /// What follows again is surer, and what follows more tokens.
    #[test]
    fn how_sure_it_is() {
        let mut drafter = NGramPool::new().drafter();
        let mut margin = |text: &[u32]| {
            let mut guess = Guess::default();
            drafter.draft(text, 1, &mut guess);
            guess.margins()[0]
        };
        let once = margin(&[1, 2, 3, 4, 9, 1, 2, 3]);
        let twice = margin(&[1, 2, 3, 4, 9, 1, 2, 3, 4, 5, 1, 2, 3]);
        let longer = margin(&[1, 2, 3, 4, 9, 1, 2, 3, 4, 5, 1, 2, 3, 4, 9, 1, 2, 3, 4, 9]);
        assert!(once < twice && once < longer, "{once} {twice} {longer}");
    }

    /// Texts of a pool learn from each other; other pools do not.
    #[test]
    fn texts_of_a_pool_learn_from_each_other() {
        let pool = NGramPool::new();
        let [mut first, mut second] = [pool.drafter(), pool.drafter()];
        first.learn(&[5, 6, 7, 8, 9, 10]);
        assert_eq!(drafts(&mut second, &[5, 6, 7], 3), [8, 9, 10]);
        assert!(drafts(&mut NGramPool::new().drafter(), &[5, 6, 7], 3).is_empty());
        // Another text of the same drafter, which is longer than the first one was.
        first.begin();
        first.learn(&[1, 2, 3, 4, 20, 21, 22, 23, 24]);
        assert_eq!(drafts(&mut second, &[1, 2, 3], 2), [4, 20]);
    }

    /// Asked after every token, it drafts as if it had read the text at once.
    #[test]
    fn learning_by_and_by() {
        let text: Vec<u32> = (0..300u32).map(|i| i * i % 11).collect();
        let mut drafter = NGramPool::new().drafter();
        for n in 0..text.len() {
            let found = drafts(&mut drafter, &text[..n], 4);
            assert_eq!(found, drafts(&mut NGramPool::new().drafter(), &text[..n], 4), "{n}");
        }
    }

    /// However much it reads, it takes the same memory, and knows the last of it.
    #[test]
    fn its_memory_is_bounded() {
        let pool = NGramPool::new();
        let text: Vec<u32> = (0..1_000_000u32).map(|i| i.wrapping_mul(2_654_435_761) >> 12).collect();
        let mut drafter = pool.drafter();
        drafter.learn(&text);
        assert_eq!(pool.table().len() * size_of::<Entry>(), 4 << 20);
        let right = (999_000..999_990).filter(|&n| {
            let mut other = pool.drafter();
            other.known = n;
            drafts(&mut other, &text[..n], 1) == [text[n]]
        });
        let right = right.count();
        assert!(right > 950, "{right} of 990");
        // Nothing is known of tokens that never came, though all places are taken.
        let strangers = (0..200u32).filter(|i| {
            let text: Vec<u32> = (0..12).map(|n| 0x8000_0000 + 100 * i + n).collect();
            let mut other = pool.drafter();
            other.known = text.len();
            !drafts(&mut other, &text, 1).is_empty()
        });
        assert!(strangers.count() < 5);
    }
}

//! Prompt look-up: what followed the last time that the same tokens came.
//!
//! The idea is "prompt lookup decoding" (Saxena, 2023); llama.cpp calls it `ngram-simple`. Here the longest
//! suffix of the text that occurs earlier decides, and the latest such place: code and quotations repeat what
//! came shortly before.

use std::collections::HashMap;

use super::drafter::Drafter;
use super::guess::Guess;

/// Longest suffix that is looked for, in tokens.
const LONGEST: usize = 8;

/// Drafts tokens that followed an earlier place of the same text.
#[derive(Debug)]
pub struct NGram {
    shortest: usize,
    /// Places after every n-gram of the shortest length, latest last.
    places: HashMap<Vec<u32>, Vec<u32>>,
    /// Tokens of the text that are in `places`.
    known: usize,
}

impl NGram {
    /// A drafter that looks for earlier places with at least `shortest` equal tokens, 1 to 8.
    pub fn new(shortest: usize) -> Self {
        Self { shortest: shortest.clamp(1, LONGEST), places: HashMap::new(), known: 0 }
    }

    fn learn(&mut self, text: &[u32]) {
        if text.len() < self.known {
            // It was cut.
            self.begin();
        }
        let n = self.shortest;
        for end in self.known.max(n)..text.len() {
            // Something must come after it.
            self.places.entry(text[end - n..end].to_vec()).or_default().push(end as u32);
        }
        self.known = text.len();
    }
}

impl Default for NGram {
    fn default() -> Self {
        Self::new(2)
    }
}

/// How sure a token is that followed one token, and what each token more adds to that.
const MARGIN: f32 = 0.1;
const PER_TOKEN: f32 = 0.3;

impl Drafter for NGram {
    fn begin(&mut self) {
        self.places.clear();
        self.known = 0;
    }

    fn draft(&mut self, text: &[u32], most: usize, out: &mut Guess) {
        self.learn(text);
        let Some(suffix) = text.len().checked_sub(self.shortest) else { return };
        let Some(places) = self.places.get(&text[suffix..]) else { return };
        let same = |place: usize| {
            let before = text[..place].iter().rev().zip(text.iter().rev());
            before.take(LONGEST).take_while(|(a, b)| a == b).count()
        };
        // Latest first: of equally long ones the latest stays.
        let longest = places.iter().rev().map(|&place| (same(place as usize), place as usize));
        let best = longest.reduce(|best, other| if other.0 > best.0 { other } else { best });
        if let Some((same, place)) = best {
            let margin = MARGIN + PER_TOKEN * same as f32;
            text[place..].iter().take(most).for_each(|&token| out.push(token, margin));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(text: &[u32], most: usize) -> Vec<u32> {
        let mut out = Guess::default();
        NGram::new(2).draft(text, most, &mut out);
        out.tokens().to_vec()
    }

    #[test]
    fn what_followed_the_same_tokens() {
        assert_eq!(drafts(&[1, 2, 3, 4, 5, 1, 2], 3), [3, 4, 5]);
        assert_eq!(drafts(&[1, 2, 3, 4, 5, 1, 2], 9), [3, 4, 5, 1, 2]);
        assert_eq!(drafts(&[1, 2, 3, 9, 2, 3], 2), [9, 2]);
        assert!(drafts(&[1, 2, 3, 4], 3).is_empty());
        assert!(drafts(&[1], 3).is_empty());
        assert!(drafts(&[], 3).is_empty());
    }

    #[test]
    fn the_longest_suffix_decides_then_the_latest_place() {
        assert_eq!(drafts(&[7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2], 1), [30]);
        assert_eq!(drafts(&[7, 1, 2, 30, 7, 1, 2, 40, 7, 1, 2], 1), [40]);
    }

    /// Asked after every token, it drafts as if it had read the text at once.
    #[test]
    fn learning_by_and_by() {
        let text: Vec<u32> = (0..200u32).map(|i| i * i % 7).collect();
        let mut ngram = NGram::new(2);
        for n in 0..text.len() {
            let mut out = Guess::default();
            ngram.draft(&text[..n], 4, &mut out);
            assert_eq!(out.tokens(), drafts(&text[..n], 4), "{n}");
        }
        let mut out = Guess::default();
        ngram.draft(&[5, 5, 6, 5, 5], 1, &mut out);
        assert_eq!(out.tokens(), [6]);
    }
}

//! Which pairs of tokens merge: the ranks of a vocabulary's merge rules.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::Vocab;
use super::error::TokenizerError;
use super::merge::Symbol;

/// Ranks, the lower the earlier, and resulting tokens by the ids of left and right.
pub(super) struct Ranks(HashMap<u64, (Reverse<u32>, u32), PairHash>);

impl Ranks {
    /// Checks the rules, `left right`, best first.
    pub(super) fn new(vocab: &Vocab, rules: &[&str]) -> Result<Self, TokenizerError> {
        let id_of = |token: &str| {
            let unknown = || TokenizerError::UnknownMergeToken { token: token.to_owned() };
            vocab.get(token).copied().ok_or_else(unknown)
        };
        let mut ranks = HashMap::with_capacity_and_hasher(rules.len(), PairHash::new());
        let mut joined = String::new();
        for (index, rule) in rules.iter().enumerate() {
            match rule.split_once(' ') {
                Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                    let pair = key(id_of(left)?, id_of(right)?);
                    joined.clear();
                    joined.extend([left, right]);
                    let rank = u32::try_from(index).unwrap_or(u32::MAX);
                    // Of a rule that is there twice the best rank counts, as in llama.cpp.
                    ranks.entry(pair).or_insert((Reverse(rank), id_of(&joined)?));
                }
                _ => return Err(TokenizerError::MalformedMerge { index, text: (*rule).to_owned() }),
            }
        }
        Ok(Self(ranks))
    }

    /// Rank and token of two neighbours that merge.
    pub(super) fn get(&self, left: &Symbol, right: &Symbol) -> Option<(Reverse<u32>, u32)> {
        self.0.get(&key(left.id?, right.id?)).copied()
    }
}

/// Two ids as one number.
fn key(left: u32, right: u32) -> u64 {
    (u64::from(left) << 32) | u64::from(right)
}

/// Hashing of two ids by one product, which takes a fraction of the standard library's time. Its factors are
/// random as there: rules come from strangers, who could choose them so that all hashes collide.
#[derive(Clone)]
struct PairHash {
    term: u64,
    factor: u64,
}

impl PairHash {
    fn new() -> Self {
        let random = RandomState::new();
        Self { term: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for PairHash {
    type Hasher = PairHasher;

    fn build_hasher(&self) -> PairHasher {
        PairHasher { hash: self.term, factor: self.factor }
    }
}

struct PairHasher {
    hash: u64,
    factor: u64,
}

impl Hasher for PairHasher {
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.hash ^ value) * u128::from(self.factor);
        self.hash = (product >> 64) as u64 ^ product as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

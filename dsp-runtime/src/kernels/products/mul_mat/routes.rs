//! Which rows each expert multiplies in MUL_MAT_ID: gathered by expert, so that the weights of each are read
//! once for all of its rows, and those of the others not at all.
//!
//! The ids come from memory that the host may write at any time: each is read once, checked, then used. What
//! a row gives does not depend on which others share its expert, nor on how many tokens are gathered at once.

use heapless::Vec;
use hexflash_abi::op::MAX_EXPERTS;
use hexflash_abi::{ErrorCode, Fault};

use super::tuning::ROWS;
use crate::memory::View;

/// Rows that are gathered at once: 128 tokens with 8 experts each. The lists of so many take 11 KiB of the
/// dispatcher's stack, which has 64 on a DSP.
pub(super) const GATHERED: usize = 1024;
/// Experts that rows can have.
const EXPERTS: usize = MAX_EXPERTS as usize;
/// Shares of so many rows: each expert has one, and one more for every [`ROWS`] that it fills.
const SHARES: usize = EXPERTS + GATHERED / ROWS;
const _: () = assert!(EXPERTS <= GATHERED && GATHERED <= 1 << 16);

/// A row: which of its token's experts it belongs to.
#[derive(Clone, Copy, Default)]
struct Entry {
    slot: u16,
    /// Counted from the first of those gathered.
    token: u16,
}

/// Rows that one unit multiplies with an expert's weights.
#[derive(Clone, Copy)]
struct Share {
    expert: u16,
    first: u16,
    rows: u16,
}

/// The rows of some tokens, by expert.
pub struct Routes {
    /// The first token.
    token: usize,
    entries: Vec<Entry, GATHERED>,
    shares: Vec<Share, SHARES>,
}

impl Routes {
    /// None.
    pub fn new() -> Self {
        Self { token: 0, entries: Vec::new(), shares: Vec::new() }
    }

    /// Gathers rows from `token` on, of as many tokens as there is room for, one at least: how many. `ids` is
    /// {n_used,m}, n_used at most [`MAX_EXPERTS`].
    ///
    /// # Errors
    /// [`ErrorCode::BadRowIndex`] with the id, if one is not below `n_expert`.
    pub fn gather(&mut self, ids: &View, token: usize, n_expert: usize) -> Result<usize, Fault> {
        let [n_used, m, ..] = ids.ne;
        let tokens = (GATHERED / n_used).min(m - token);
        // Rows of each expert, then the place of its next row.
        let mut places = [0u16; EXPERTS];
        let mut experts: Vec<u16, GATHERED> = Vec::new();
        // In the order of their first rows.
        let mut used: Vec<u16, EXPERTS> = Vec::new();
        for t in 0..tokens {
            for slot in 0..n_used {
                let id = ids.int([slot, token + t, 0, 0]);
                let expert = usize::try_from(id).ok().filter(|&expert| expert < n_expert);
                let expert = expert.ok_or(Fault::new(ErrorCode::BadRowIndex, id as u32))?;
                if places[expert] == 0 {
                    push(&mut used, expert as u16)?;
                }
                places[expert] += 1;
                push(&mut experts, expert as u16)?;
            }
        }

        self.token = token;
        self.shares.clear();
        let mut first = 0;
        for &expert in &used {
            let mut left = core::mem::replace(&mut places[usize::from(expert)], first);
            while left > 0 {
                let rows = left.min(ROWS as u16);
                push(&mut self.shares, Share { expert, first, rows })?;
                (first, left) = (first + rows, left - rows);
            }
        }
        self.entries.clear();
        let room = self.entries.resize_default(experts.len());
        room.map_err(|_| Fault::new(ErrorCode::Internal, line!()))?;
        let mut rows = experts.iter();
        for token in 0..tokens as u16 {
            for (slot, &expert) in (0..n_used as u16).zip(&mut rows) {
                let place = &mut places[usize::from(expert)];
                self.entries[usize::from(*place)] = Entry { slot, token };
                *place += 1;
            }
        }
        Ok(tokens)
    }

    /// Rows that were gathered.
    pub fn rows(&self) -> usize {
        self.entries.len()
    }

    /// How many of the shares from `number` on are of one expert and have no more than `rows` rows together:
    /// at least one.
    pub fn alike(&self, number: usize, rows: usize) -> usize {
        let (expert, _, mut all) = self.share(number);
        let more = (number + 1..self.shares()).take_while(|&next| {
            let (of, _, n) = self.share(next);
            all += n;
            of == expert && all <= rows
        });
        1 + more.count()
    }

    /// Passes over weights.
    pub fn shares(&self) -> usize {
        self.shares.len()
    }

    /// The expert of pass `number`, the first of its rows, and how many it has.
    #[inline(always)]
    pub fn share(&self, number: usize) -> (usize, usize, usize) {
        let Share { expert, first, rows } = self.shares[number];
        (expert.into(), first.into(), rows.into())
    }

    /// Where row `i` lies: indices of axes 1 to 3 of x, which has `per_token` rows of a token, and of y.
    #[inline(always)]
    pub fn row(&self, i: usize, per_token: usize) -> ([usize; 3], [usize; 3]) {
        let Entry { slot, token } = self.entries[i];
        let (slot, token) = (usize::from(slot), self.token + usize::from(token));
        ([if per_token == 1 { 0 } else { slot }, token, 0], [slot, token, 0])
    }
}

/// Adds to a list that has room, by the bounds of [`Routes::gather`].
#[inline(always)]
fn push<T, const N: usize>(list: &mut Vec<T, N>, value: T) -> Result<(), Fault> {
    list.push(value).map_err(|_| Fault::new(ErrorCode::Internal, line!()))
}

#[cfg(test)]
mod tests;

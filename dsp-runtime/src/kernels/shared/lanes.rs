//! Lanes of a vector by their numbers.

use crate::hvx::{Hvx, LANES};

/// Lane numbers.
pub static INDEX: [f32; LANES] = {
    let mut index = [0.0; LANES];
    let mut i = 0;
    while i < LANES {
        index[i] = i as f32;
        i += 1;
    }
    index
};

/// `v` in the first `n` lanes, `other` in those behind them.
#[inline(always)]
pub fn up_to_end<H: Hvx>(n: usize, v: H::F, other: H::F) -> H::F {
    // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
    let lane = unsafe { H::load(INDEX.as_ptr()) };
    H::select_gt(H::splat(n as f32), lane, v, other)
}

//! 32 floats that are wanted one after the other, two at a time.

use super::Hvx;

/// 32 floats, each of which is wanted in all lanes: an even one and the odd one after it.
#[derive(Clone, Copy)]
pub struct LanePairs<H: Hvx> {
    even: H::Lanes,
    odd: H::Lanes,
}

impl<H: Hvx> LanePairs<H> {
    /// Prepares to take pairs of `x`.
    #[inline(always)]
    pub fn new(x: H::F) -> Self {
        Self { even: H::lanes(x), odd: H::odd_lanes(x) }
    }

    /// All lanes what lane 2 i was.
    #[inline(always)]
    pub fn even(&self, i: usize) -> H::F {
        H::lane(&self.even, 2 * i)
    }

    /// All lanes what lane 2 i + 1 was.
    #[inline(always)]
    pub fn odd(&self, i: usize) -> H::F {
        H::odd_lane(&self.odd, i)
    }
}

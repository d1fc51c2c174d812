//! The largest magnitudes of numbers of 16 bits, in words.

use crate::hvx::Hvx;

/// The largest magnitudes of low halves and of high halves so far, as bits of f16 or BF16 in the upper half
/// of a word.
pub struct Largest<H: Hvx>([H::I; 2]);

impl<H: Hvx> Largest<H> {
    #[inline(always)]
    pub fn new() -> Self {
        Self([H::splat_i(0); 2])
    }

    /// Takes in both halves of every word.
    #[inline(always)]
    pub fn add(&mut self, halves: H::B) {
        // What is in the lower half does not change which upper half is larger.
        let magnitudes = H::and_i(H::words(halves), H::splat_i(0x7fff_7fff));
        self.0[0] = H::max_i(self.0[0], H::shl_i::<16>(magnitudes));
        self.0[1] = H::max_i(self.0[1], magnitudes);
    }

    /// The largest of all, as 31 bits.
    #[inline(always)]
    pub fn of_both(self) -> H::I {
        let [low, high] = self.0;
        H::max_i(low, high)
    }

    /// The exponent codes of the largest low half and of the largest high half, with that of the smallest
    /// normal number for all below.
    #[inline(always)]
    pub fn exponent_codes(self) -> [H::I; 2] {
        self.0.map(|largest| H::max_i(H::shr_i::<26>(largest), H::splat_i(1)))
    }

    /// The larger one of them.
    #[inline(always)]
    pub fn exponent_code(self) -> H::I {
        let [low, high] = self.exponent_codes();
        H::max_i(low, high)
    }
}

//! The step's K and V rows, rounded to f16 (to nearest, ties to even), into their caches.

use half::f16;
use hexflash_abi::{Fault, VECTOR_BYTES};

use super::TILE;
use crate::hvx::Hvx;
use crate::kernels::Damage;
use crate::memory::View;
use crate::pool::{Kernel, Worker};

/// k{D,Hk,T,B} -> k_cache at positions n_past.., v{Dv,Hk,T,B} likewise.
pub(super) struct Append<'d> {
    pub k: View,
    pub v: View,
    pub k_cache: View,
    pub v_cache: View,
    pub n_past: usize,
    pub tokens: usize,
    /// Tokens with a key or a value that is not finite in f16.
    pub damage: &'d Damage,
}

impl Kernel for Append<'_> {
    fn units(&self) -> usize {
        self.k_cache.ne[2] * self.k_cache.ne[3]
    }

    fn work(&self) -> usize {
        self.units() * self.tokens * (self.k.ne[0] + self.v.ne[0])
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            let (head, sequence) = (unit % self.k_cache.ne[2], unit / self.k_cache.ne[2]);
            for t in 0..self.tokens {
                let found = self.key(head, sequence, t) | self.value(head, sequence, t);
                if found & SPECIAL != 0 {
                    self.damage.note(t);
                }
            }
        }
        Ok(())
    }
}

impl Append<'_> {
    /// One key into its lane of a tile; what [`special`] says of its values, together.
    #[inline(always)]
    fn key(&self, head: usize, sequence: usize, t: usize) -> u32 {
        let mut found = 0;
        let k = self.k.row([head, t, sequence]);
        let position = self.n_past + t;
        let strip = self.k_cache.at([position / TILE, head, sequence]);
        let half = |i: usize| if i < k.len() { f16::from_f32(k.get(i)).to_bits() } else { 0 };
        for pair in 0..k.len().div_ceil(2) {
            let word = u32::from(half(2 * pair)) | u32::from(half(2 * pair + 1)) << 16;
            found |= special(word);
            let at = pair * VECTOR_BYTES + position % TILE * 4;
            // SAFETY: `at` has checked the position, and the strip has a vector per pair of k: the shape rule
            // makes the cache's rows as long as k. The word is aligned, and this worker alone has claimed the
            // head's cache.
            unsafe { strip.add(at).cast::<u32>().write(word) };
        }
        found
    }

    /// One row of values; what [`special`] says of them, together.
    #[inline(always)]
    fn value(&self, head: usize, sequence: usize, t: usize) -> u32 {
        let mut found = 0;
        let v = self.v.row([head, t, sequence]);
        let row = self.v_cache.at([self.n_past + t, head, sequence]).cast::<u16>();
        for i in 0..v.len() {
            let half = f16::from_f32(v.get(i)).to_bits();
            found |= special(half.into());
            // SAFETY: `at` has checked the position, and `i` is below the length of v, which is that of the
            // cache's rows (the shape rule). An f16 is aligned there (validation), and this worker alone has
            // claimed the head's cache.
            unsafe { row.add(i).write(half) };
        }
        found
    }
}

/// The bits of [`special`] that say so.
const SPECIAL: u32 = 0x8000_8000;

/// Has the place of the sign set where one of two f16 is infinite or NaN: an exponent of ones, and no other,
/// carries into it.
#[inline(always)]
fn special(halves: u32) -> u32 {
    (halves & 0x7c00_7c00) + 0x0400_0400
}

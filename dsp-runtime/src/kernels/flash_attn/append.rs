//! The step's K and V rows, rounded to f16 (to nearest, ties to even), into their caches.

use half::f16;
use hexflash_abi::{Fault, VECTOR_BYTES};

use super::{TILE, cache_position};
use crate::hvx::Hvx;
use crate::kernels::Damage;
use crate::memory::View;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span};

/// k{D,Hk,T,B} -> k_cache of each row's slot at positions n_past.., v{Dv,Hk,T,B} likewise.
pub(super) struct Append<'d> {
    pub k: View,
    pub v: View,
    pub k_cache: View,
    pub v_cache: View,
    pub spans: &'d [Span],
    /// Tokens with a key or a value that is not finite in f16.
    pub damage: &'d Damage,
}

impl Kernel for Append<'_> {
    fn units(&self) -> usize {
        self.spans.len() * self.units_of_span()
    }

    fn work(&self) -> usize {
        let [_, heads, tokens, batches] = self.k.ne;
        heads * batches * tokens * (self.k.ne[0] + self.v.ne[0])
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let mut cursor = Cursor::new(self.spans, |_| self.units_of_span());
        while let Some(unit) = worker.claim() {
            let (span, unit) = cursor.seek(unit, |_| self.units_of_span());
            let (head, batch) = (unit % self.k.ne[1], unit / self.k.ne[1]);
            let entry = span.entry(batch, self.k.ne[3]);
            for i in 0..span.rows {
                let (token, position) = ([head, span.first + i, batch], span.n_past + i);
                let found = self.key(token, position, entry) | self.value(token, position, entry);
                if found & SPECIAL != 0 {
                    self.damage.note(span.first + i);
                }
            }
        }
        Ok(())
    }
}

impl Append<'_> {
    /// A unit is a head of a batch of a span, because neighbours share words.
    #[inline(always)]
    fn units_of_span(&self) -> usize {
        self.k.ne[1] * self.k.ne[3]
    }

    /// One key into its lane of a tile; what [`special`] says of its values, together.
    #[inline(always)]
    fn key(&self, token: [usize; 3], position: usize, entry: usize) -> u32 {
        let mut found = 0;
        let k = self.k.row(token);
        let position = cache_position(position, self.v_cache.ne[1]);
        let strip = self.k_cache.at([position / TILE, token[0], entry]);
        let half = |i: usize| if i < k.len() { f16::from_f32(k.get(i)).to_bits() } else { 0 };
        for pair in 0..k.len().div_ceil(2) {
            let word = u32::from(half(2 * pair)) | u32::from(half(2 * pair + 1)) << 16;
            found |= special(word);
            let at = pair * VECTOR_BYTES + position % TILE * 4;
            // SAFETY: `at` has checked the position, and the strip has a vector per pair of k: the shape rule
            // makes the cache's rows as long as k. The word is aligned, and this worker alone has claimed the
            // head's cache in this entry: no two spans have one slot.
            unsafe { strip.add(at).cast::<u32>().write(word) };
        }
        found
    }

    /// One row of values; what [`special`] says of them, together.
    #[inline(always)]
    fn value(&self, token: [usize; 3], position: usize, entry: usize) -> u32 {
        let mut found = 0;
        let v = self.v.row(token);
        let position = cache_position(position, self.v_cache.ne[1]);
        let row = self.v_cache.at([position, token[0], entry]).cast::<u16>();
        for i in 0..v.len() {
            let half = f16::from_f32(v.get(i)).to_bits();
            found |= special(half.into());
            // SAFETY: `at` has checked the position, and `i` is below the length of v, which is that of the
            // cache's rows (the shape rule). An f16 is aligned there (validation), and this worker alone has
            // claimed the head's cache in this entry: no two spans have one slot.
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

//! The step's K and V rows into their caches, rounded as these hold them.

use hexflash_abi::Fault;

use super::cache_position;
use super::format::{Format, Place};
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
    pub keys: Format,
    pub values: Format,
    pub spans: &'d [Span],
    /// Tokens with a key or a value that is not finite in its cache.
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
                // SAFETY: this worker alone has claimed the head's caches in this entry: no two spans have
                // one slot.
                let finite = unsafe {
                    self.key::<H>(token, position, entry) & self.value::<H>(token, position, entry)
                };
                if !finite {
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

    /// Writes one key; whether it is finite there.
    ///
    /// # Safety
    /// This worker alone has claimed the head in this entry.
    #[inline(always)]
    unsafe fn key<H: Hvx>(&self, token: [usize; 3], position: usize, entry: usize) -> bool {
        let position = cache_position(position, self.k_cache.ne[1]);
        let place = Place { cache: &self.k_cache, position, head: token[0], entry };
        // SAFETY: the format is that of the cache, whose rows are as long as k (the shape rule). The head is
        // this worker's (the caller's contract).
        unsafe { self.keys.store_key::<H>(place, self.k.row(token)) }
    }

    /// Writes one value, as [`key`](Self::key) writes a key.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn value<H: Hvx>(&self, token: [usize; 3], position: usize, entry: usize) -> bool {
        let position = cache_position(position, self.v_cache.ne[1]);
        let place = Place { cache: &self.v_cache, position, head: token[0], entry };
        // SAFETY: the format is that of the cache, whose rows are as long as v (the shape rule). The head is
        // this worker's (the caller's contract).
        unsafe { self.values.store_value::<H>(place, self.v.row(token)) }
    }
}

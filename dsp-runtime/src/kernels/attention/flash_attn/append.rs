//! The step's K and V rows into their caches, rounded as these hold them.

use hexflash_abi::Fault;

use super::format::{Axis, CachePlace, Format};
use super::positions::cache_position;
use crate::hvx::Hvx;
use crate::kernels::shared::damage::Damage;
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
    /// Queries, if they stand for those of later steps: an axis of keys is made of them.
    pub queries: Option<View>,
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
                let token = [head, span.first + i, batch];
                // Both caches have as many positions.
                let position = cache_position(span.n_past + i, self.v_cache.ne[1]);
                let place = |cache| CachePlace { cache, position, head, entry };
                // SAFETY: the formats are those of the caches, whose rows are as long as those of k and v
                // (the shape rule). This worker alone has claimed the head's caches in this entry: no two
                // spans have one slot.
                let finite = unsafe {
                    let key = self.keys.store_key::<H>(place(&self.k_cache), self.k.row(token));
                    let value = self.values.store_value::<H>(place(&self.v_cache), self.v.row(token));
                    key && value
                };
                if self.keys.rotates() && Axis::is_written_with(place(&self.k_cache)) {
                    let queries = self.queries.as_ref().map(|q| {
                        let group = q.ne[1] / self.k.ne[1];
                        (q, [head * group, span.first + i, batch], group)
                    });
                    // SAFETY: the format is that of the cache, which has the place that was written above.
                    // This worker alone has claimed the head's caches in this entry: no two spans have one
                    // slot.
                    unsafe { Axis::write::<H>(place(&self.k_cache), queries) };
                }
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
}

//! Queries as rotated keys need them.

use hexflash_abi::Fault;

use super::format::rotate;
use crate::hvx::Hvx;
use crate::memory::View;
use crate::pool::{Kernel, Worker};

/// q{D,H,T,B} -> rotated{D,H,T,B}, whose rows may be longer. A unit is a row.
pub(super) struct RotateQueries {
    pub q: View,
    pub rotated: View,
}

impl Kernel for RotateQueries {
    fn units(&self) -> usize {
        let [_, heads, tokens, batches] = self.q.ne;
        heads * tokens * batches
    }

    fn work(&self) -> usize {
        // A vector takes five stages within, and half as many operations for each stage across vectors.
        self.units().saturating_mul(self.q.ne[0] / 2)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let [_, heads, tokens, _] = self.q.ne;
        while let Some(unit) = worker.claim() {
            let at = [unit % heads, unit / heads % tokens, unit / heads / tokens];
            let q = self.q.row(at);
            // SAFETY: `claim` gave this row to this worker alone. Rotated rows are whole vectors and not
            // longer than those of y (the shape rule).
            unsafe {
                let mut row = self.rotated.part_mut(at, 0, q.len());
                row.copy::<H>(q);
                rotate::<H>(row.as_mut_ptr(), q.len());
            }
        }
        Ok(())
    }
}

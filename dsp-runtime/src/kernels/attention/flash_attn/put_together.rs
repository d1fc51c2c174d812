//! Puts together what was found in splits that were units of their own.

use hexflash_abi::Fault;

use super::attend::Attend;
use super::attention::Query;
use super::split::Found;
use super::state::LARGEST_WEIGHT;
use crate::hvx::Hvx;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span};

/// Operations that an exponential takes, about.
const EXP: usize = 40;

/// Puts together what units found that were splits: a unit is a row of y.
pub struct PutTogether<'a> {
    pub attend: &'a Attend<'a>,
    /// Splits of a row, at most.
    pub splits: usize,
}

impl PutTogether<'_> {
    #[inline(always)]
    fn units_of_span(&self, span: &Span) -> usize {
        span.rows * self.attend.of.y.ne[1] * self.attend.of.y.ne[3]
    }
}

impl Kernel for PutTogether<'_> {
    fn units(&self) -> usize {
        crate::step::units(self.attend.spans, |span| self.units_of_span(span))
    }

    fn work(&self) -> usize {
        // A split of a row takes an exponential, and about eight operations per vector of values.
        self.units().saturating_mul(self.splits * (EXP + 8 * self.attend.stage.v_vectors))
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let attend = self.attend;
        assert!(worker.own_bytes() >= attend.stage.found());
        let total = Found { first: worker.own_vtcm(), v_vectors: attend.stage.v_vectors };
        let mut cursor = Cursor::new(attend.spans, |span| self.units_of_span(span));
        while let Some(unit) = worker.claim() {
            let (span, unit) = cursor.seek(unit, |span| self.units_of_span(span));
            let (head, unit) = (unit % attend.of.y.ne[1], unit / attend.of.y.ne[1]);
            let (token, batch) = (span.first + unit % span.rows, unit / span.rows);
            let query = Query { token, head, from: 0, to: 0 };
            // SAFETY: the total is in the worker's own VTCM, which has room for it (the assertion above). The
            // places were written by the kernel before this one, and nobody writes them now. `claim` gave
            // this row of y to this worker alone.
            unsafe {
                total.clear::<H>();
                for split in 0..attend.splits_of(span).len() {
                    total.add::<H>(attend.place_of(worker, &query, batch, self.splits, split));
                }
                total.finish::<H>(&attend.of, [head, token, batch], LARGEST_WEIGHT);
            }
        }
        Ok(())
    }
}

//! The factor tape: per token what changes a state, kept until it is known how many of the tokens count.

use super::head::HeadTape;
use crate::hvx::Hvx;
use crate::memory::{Floats, View};
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span, units};
use hexflash_abi::Fault;
use hexflash_abi::op::gated_delta_net::{TAPE_DELTA, TAPE_G, TAPE_K};

/// The factor tape: k{S,Hk,N,B'*slots}, delta{S,H,N,B*slots}, g{1|S,H,N,B*slots}.
#[derive(Clone, Copy)]
pub(super) struct Tape {
    pub k: Floats,
    pub delta: Floats,
    pub g: Floats,
}

impl Tape {
    /// The op's tape, if it has one.
    pub fn of(run: &OpRun<'_>) -> Option<Self> {
        let part = |operand| run.optional(operand).map(Floats::new);
        Some(Self { k: part(TAPE_K)?, delta: part(TAPE_DELTA)?, g: part(TAPE_G)? })
    }

    /// The part of head `h` of entry `b`, whose keys are those of `key_head` of entry `from`.
    #[inline(always)]
    pub fn head(&self, key_head: usize, from: usize, h: usize, b: usize, record: bool) -> HeadTape<'_> {
        HeadTape {
            k: self.k.column(key_head, from),
            g: self.g.column(h, b),
            delta: self.delta.column_mut(h, b),
            record,
        }
    }
}

/// Keys and gates of the rows that do not fold, onto the tape. A unit is a token of a batch.
pub(super) struct Record<'s> {
    pub k: View,
    pub g: View,
    pub tape: Tape,
    pub spans: &'s [Span],
}

impl Record<'_> {
    #[inline(always)]
    fn units_of_span(&self, span: &Span) -> usize {
        if span.fold { 0 } else { span.rows * self.g.ne[3] }
    }
}

impl Kernel for Record<'_> {
    fn units(&self) -> usize {
        units(self.spans, |span| self.units_of_span(span))
    }

    fn work(&self) -> usize {
        self.units() * (self.k.ne[0] * self.k.ne[1] + self.g.ne[0] * self.g.ne[1]) / 16
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let mut cursor = Cursor::new(self.spans, |span| self.units_of_span(span));
        while let Some(unit) = worker.claim() {
            let (span, unit) = cursor.seek(unit, |span| self.units_of_span(span));
            let (t, b) = (unit % span.rows, unit / span.rows);
            for (from, to) in [(&self.k, &*self.tape.k), (&self.g, &*self.tape.g)] {
                let entry = span.entry(b, from.ne[3]);
                for h in 0..if b < from.ne[3] { from.ne[1] } else { 0 } {
                    // SAFETY: `claim` gives token `t` of batch `b` of this span, and with it its rows of the
                    // tape, to this worker alone: no two spans have one slot.
                    unsafe { to.row_mut([h, t, entry]) }.copy::<H>(from.row([h, span.first + t, b]));
                }
            }
        }
        Ok(())
    }
}

//! The factor tape: per token what changes a state, kept until it is known how many of the tokens count.

use super::head::HeadTape;
use crate::hvx::Hvx;
use crate::kernels::OpRun;
use crate::memory::{Floats, View};
use crate::pool::{Kernel, Worker};
use hexflash_abi::Fault;
use hexflash_abi::op::gated_delta_net::{TAPE_DELTA, TAPE_G, TAPE_K};

/// The factor tape: k{S,Hk,N,B'}, delta{S,H,N,B}, g{1|S,H,N,B}.
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

    /// The part of head `h` of sequence `b`, whose keys are those of `key_head` of sequence `from`.
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

/// Keys and gates of the step, onto the tape. A unit is a token of a sequence.
pub(super) struct Record {
    pub k: View,
    pub g: View,
    pub tape: Tape,
    pub tokens: usize,
}

impl Kernel for Record {
    fn units(&self) -> usize {
        self.tokens * self.g.ne[3]
    }

    fn work(&self) -> usize {
        self.units() * (self.k.ne[0] * self.k.ne[1] + self.g.ne[0] * self.g.ne[1]) / 16
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            let (t, b) = (unit % self.tokens, unit / self.tokens);
            for (from, to) in [(&self.k, &*self.tape.k), (&self.g, &*self.tape.g)] {
                for h in 0..if b < from.ne[3] { from.ne[1] } else { 0 } {
                    // SAFETY: `claim` gives token `t` of sequence `b`, and with it its rows of the tape, to
                    // this worker alone.
                    unsafe { to.row_mut([h, t, b]) }.copy::<H>(from.row([h, t, b]));
                }
            }
        }
        Ok(())
    }
}

//! SSM_CONV: a causal convolution per channel over a ring of past rows, with a tape for tokens that may be
//! taken back, and SILU of the result if wanted.

use super::rule::{Len, Operands, param, same, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{c,t,b}: the step's rows, c channels each; t is the token axis, unless the program has one slot.
        X = OperandSpec::input("x", DTypes::F32, Layout::Rows);
        /// w{c,k}: k taps, at most [`MAX_TAPS`].
        W = OperandSpec::input("w", DTypes::F32, Layout::Contiguous);
        /// ring{c,r,b*slots}: the row of position p lies at p mod r.
        RING = OperandSpec::state("ring", DTypes::F32, Layout::Contiguous);
    }
    DST: Dst {
        /// y{c,t,b}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
        /// tape_x{c,n,b*slots}: rows that may be taken back, read and (if [`SsmConv::defer`]) written.
        TAPE_X = OperandSpec::output("tape_x", DTypes::F32, Layout::Contiguous).optional();
    }
}

/// Most taps.
pub const MAX_TAPS: u32 = 32;

params! {
    /// SSM_CONV.
    pub struct SsmConv {
        /// 1 to leave the ring as the last commit has it and put the step's rows on the tape, except those of
        /// register blocks with `fold`; 0 to advance it.
        pub defer: u32,
        /// 1 for SILU of the sums, with its bits; 0 for the sums.
        pub silu: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(SsmConv::FIELDS);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (x, w, ring) = (o.operand(X)?, o.operand(W)?, o.operand(RING)?);
    same(o, X, Y)?;
    shape(x[3] == Len::ONE && o.rows_have_slots(x[1]), X)?;
    shape(w[0] == x[0] && w[1].fixed_up_to(MAX_TAPS) && w[2] == Len::ONE && w[3] == Len::ONE, W)?;
    // Fewer rows than taps would overwrite history that the step still reads.
    shape(ring == [x[0], ring[1], o.slots_of(x[2]), Len::ONE] && ring[1].covers(w[1]), RING)?;
    let p: SsmConv = o.params();
    param(p.silu <= 1, word!(SsmConv.silu))?;
    let Some(tape) = o.optional(TAPE_X) else {
        // Rows that go into the ring cannot be taken back.
        return param(p.defer == 0, word!(SsmConv.defer));
    };
    param(p.defer <= 1, word!(SsmConv.defer))?;
    let n = tape[1];
    shape(!n.cut && (p.defer == 0 || o.tape_holds(n, x[1])), TAPE_X)?;
    shape(tape == [x[0], n, o.slots_of(x[2]), Len::ONE], TAPE_X)
}

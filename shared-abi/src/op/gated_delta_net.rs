//! GATED_DELTA_NET: the gated delta rule, one recurrent state per head and slot, with a factor tape for
//! tokens that may be taken back.

use super::rule::{Len, Operands, param, same, shape};
use super::{DTypes, Layout, OpSpec, Operand, OperandSpec};
use crate::status::{ErrorCode, Fault};

operands! {
    SRC: Src {
        /// q{s,hk,t,b'}: hk divides h, b' divides b.
        Q = OperandSpec::input("q", DTypes::F32, Layout::Rows);
        /// k{s,hk,t,b'}, like q.
        K = OperandSpec::input("k", DTypes::F32, Layout::Rows);
        /// v{s,h,t,b}: t is the token axis, unless the program has one slot.
        V = OperandSpec::input("v", DTypes::F32, Layout::Rows);
        /// g{1 or s,h,t,b}: the log of the decay, per head or per key.
        G = OperandSpec::input("g", DTypes::F32, Layout::Rows);
        /// beta{1,h,t,b}.
        BETA = OperandSpec::input("beta", DTypes::F32, Layout::Rows);
        /// state{s values, s keys, h, b*slots}: the value index is the fast one, unless it is
        /// [`DeltaNet::transposed`].
        STATE = OperandSpec::state("state", DTypes::F32, Layout::Contiguous);
    }
    DST: Dst {
        /// y{s,h,t,b}.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Rows);
        /// tape_k{s,hk,n,b'*slots}. The tape's three are there together or not at all; read and (if
        /// [`DeltaNet::defer`]) written.
        TAPE_K = OperandSpec::output("tape_k", DTypes::F32, Layout::Contiguous).optional();
        /// tape_delta{s,h,n,b*slots}.
        TAPE_DELTA = OperandSpec::output("tape_delta", DTypes::F32, Layout::Contiguous).optional();
        /// tape_g{1 or s,h,n,b*slots}, like g.
        TAPE_G = OperandSpec::output("tape_g", DTypes::F32, Layout::Contiguous).optional();
    }
}

/// Largest state: key and value width of a head.
pub const MAX_STATE: u32 = 128;
/// Sizes of states that may be transposed are multiples of this: squares of it change places.
pub const TRANSPOSED_SIZES: u32 = 32;

params! {
    /// GATED_DELTA_NET.
    pub struct DeltaNet {
        /// 1 to leave the state as the last commit has it and put the step's tokens on the tape, except those
        /// of register blocks with `fold`; 0 to advance it.
        pub defer: u32,
        /// 1 if the key index of the state is the fast one, as ggml has it: state{s keys, s values, h,
        /// b*slots}, where s is a multiple of [`TRANSPOSED_SIZES`] and there is no tape; 0 otherwise.
        pub transposed: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(DeltaNet::FIELDS);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (q, v, g) = (o.operand(Q)?, o.operand(V)?, o.operand(G)?);
    let [s, h, t, b] = v;
    shape(s.fixed_up_to(MAX_STATE) && o.rows_have_slots(t), V)?;
    shape(q[0] == s && q[1].divides(h) && q[2] == t && q[3].divides(b), Q)?;
    same(o, K, Q)?;
    shape((g[0] == Len::ONE || g[0] == s) && g[1..] == v[1..], G)?;
    shape(o.operand(BETA)? == [Len::ONE, h, t, b], BETA)?;
    shape(o.operand(STATE)? == [s, s, h, o.slots_of(b)], STATE)?;
    same(o, Y, V)?;
    let p: DeltaNet = o.params();
    let squares = v[0].n.is_multiple_of(TRANSPOSED_SIZES) && o.optional(TAPE_K).is_none();
    param(p.transposed == 0 || p.transposed == 1 && squares, word!(DeltaNet.transposed))?;
    let tape = [TAPE_K, TAPE_DELTA, TAPE_G];
    let [Some(tape_k), Some(tape_delta), Some(tape_g)] = tape.map(|operand| o.optional(operand)) else {
        return match tape.into_iter().find(|&operand| o.optional(operand).is_none()) {
            Some(missing) if tape.into_iter().any(|operand| o.optional(operand).is_some()) => {
                Err(Fault::new(ErrorCode::BadOperand, missing.number()))
            }
            _ => param(p.defer == 0, word!(DeltaNet.defer)),
        };
    };
    param(p.defer <= 1, word!(DeltaNet.defer))?;
    let n = tape_k[2];
    shape(!n.cut && (p.defer == 0 || o.tape_holds(n, t)), TAPE_K)?;
    shape(tape_k == [s, q[1], n, o.slots_of(q[3])], TAPE_K)?;
    shape(tape_delta == [s, h, n, o.slots_of(b)], TAPE_DELTA)?;
    shape(tape_g == [g[0], h, n, o.slots_of(b)], TAPE_G)
}

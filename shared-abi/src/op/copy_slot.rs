//! COPY_SLOT: the state of a slot into a snapshot, or a snapshot back into a slot, for every register block
//! of the step.

use super::rule::{Operands, param, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::status::Fault;

operands! {
    SRC: Src {
        /// x{n0,n1,n2,n}: to save, the slots' states, n at least the program's `n_slots`; to restore, the
        /// snapshots.
        X = OperandSpec::input("x", DTypes::F32, Layout::Contiguous);
    }
    DST: Dst {
        /// y{n0,n1,n2,m}: to save, the snapshots; to restore, the slots' states, m at least the program's
        /// `n_slots`. The other entries stay as they are.
        Y = OperandSpec::output("y", DTypes::F32, Layout::Contiguous);
    }
}

params! {
    /// COPY_SLOT.
    pub struct CopySlot {
        /// 0 to save: entry `slot` of x goes to entry `snapshot` of y. 1 to restore: entry `snapshot` of x
        /// goes to entry `slot` of y. The register `snapshot` is checked when it is used, and no two blocks
        /// of a step may save to one entry.
        pub restore: u32,
    }
}

pub(super) const SPEC: OpSpec = OpSpec::new(SRC, DST, check).params(CopySlot::FIELDS);

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (x, y) = (o.operand(X)?, o.operand(Y)?);
    let p: CopySlot = o.params();
    param(p.restore <= 1, word!(CopySlot.restore))?;
    let slots = |n: u32, is_state: bool| !is_state || n >= o.header.n_slots;
    // A step cuts neither: entries are states, not rows.
    shape(x.iter().all(|len| !len.cut) && slots(x[3].n, p.restore == 0), X)?;
    shape(!y[3].cut && y[..3] == x[..3] && slots(y[3].n, p.restore == 1), Y)
}

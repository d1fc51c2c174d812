//! COPY_SLOT: states of slots saved as snapshots, or restored from them.

use hexflash_abi::op::{copy_slot as abi, params};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{ErrorCode, Fault};

use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};

/// For every block, entry `to` of y becomes entry `from` of x.
struct CopySlot<'s> {
    x: View,
    y: View,
    blocks: &'s [StepRegisters],
    /// The registers that have `from` and `to`.
    from: Register,
    to: Register,
}

/// COPY_SLOT: x{n0,n1,n2,n}, y{n0,n1,n2,m}, F32 both. For every register block, saves entry `slot` of x as
/// entry `snapshot` of y, or restores entry `slot` of y from entry `snapshot` of x.
///
/// # Errors
/// [`ErrorCode::BadRegister`]: there is no such snapshot, or two blocks are to be saved as one.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    let saves = run.params::<params::CopySlot>().restore == 0;
    let (from, to) =
        if saves { (Register::Slot, Register::Snapshot) } else { (Register::Snapshot, Register::Slot) };
    let snapshots = if saves { y.ne[3] } else { x.ne[3] };
    let blocks = run.step.blocks();
    for (i, block) in blocks.iter().enumerate() {
        let snapshot = block.get(Register::Snapshot);
        let taken = |other: &StepRegisters| other.get(Register::Snapshot) == snapshot;
        if snapshot as usize >= snapshots || saves && blocks[..i].iter().any(taken) {
            return Err(Fault::new(ErrorCode::BadRegister, Register::Snapshot.wire()));
        }
    }
    run.pool.run(&CopySlot { x, y, blocks, from, to }, run.plan.vtcm)
}

impl Kernel for CopySlot<'_> {
    /// One for each index of axis 2, of each block.
    fn units(&self) -> usize {
        self.blocks.len() * self.y.ne[2]
    }

    fn work(&self) -> usize {
        let [n0, n1, ..] = self.y.ne;
        (n0.div_ceil(LANES) * 2 + 4).saturating_mul(n1).saturating_mul(self.units())
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            let (block, i2) = (&self.blocks[unit / self.y.ne[2]], unit % self.y.ne[2]);
            let [from, to] = [self.from, self.to].map(|register| block.get(register) as usize);
            for i1 in 0..self.y.ne[1] {
                // SAFETY: `claim` gives the unit, and with it the rows of entry `to` of y with this index of
                // axis 2, to this worker alone: no two blocks have one slot (`check_step`) or are saved as
                // one snapshot (`run`). x does not overlap y (validation).
                let mut y = unsafe { self.y.row_mut([i1, i2, to]) };
                y.copy::<H>(self.x.row([i1, i2, from]));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

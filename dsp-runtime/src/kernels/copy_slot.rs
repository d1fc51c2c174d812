//! COPY_SLOT: states of slots saved as snapshots, or restored from them.

use hexflash_abi::op::{copy_slot as abi, params};
use hexflash_abi::registers::Register;
use hexflash_abi::{ErrorCode, Fault};

use super::OpRun;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::pool::{Kernel, Worker};

/// Entry `to` of y becomes entry `from` of x.
struct CopySlot {
    x: View,
    y: View,
    from: usize,
    to: usize,
}

/// COPY_SLOT: x{n0,n1,n2,n}, y{n0,n1,n2,m}, F32 both. Saves entry `slot` of x as entry `snapshot` of y, or
/// restores entry `slot` of y from entry `snapshot` of x.
///
/// # Errors
/// [`ErrorCode::BadRegister`]: there is no such snapshot.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    let p: params::CopySlot = run.params();
    let [slot, snapshot] = [Register::Slot, Register::Snapshot].map(|r| run.registers.get(r) as usize);
    let (from, to, snapshots) = if p.restore == 0 { (slot, snapshot, y) } else { (snapshot, slot, x) };
    if snapshot >= snapshots.ne[3] {
        return Err(Fault::new(ErrorCode::BadRegister, Register::Snapshot.wire()));
    }
    run.parallel(&CopySlot { x, y, from, to })
}

impl Kernel for CopySlot {
    /// One for each index of axis 2.
    fn units(&self) -> usize {
        self.y.ne[2]
    }

    fn work(&self) -> usize {
        let [n0, n1, n2, _] = self.y.ne;
        (n0.div_ceil(LANES) * 2 + 4).saturating_mul(n1).saturating_mul(n2)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(i2) = worker.claim() {
            for i1 in 0..self.y.ne[1] {
                // SAFETY: `claim` gives unit `i2`, and with it the rows of y with this index of axis 2, to
                // this worker alone, and x does not overlap y (validation).
                let mut y = unsafe { self.y.row_mut([i1, i2, self.to]) };
                y.copy::<H>(self.x.row([i1, i2, self.from]));
            }
        }
        Ok(())
    }
}

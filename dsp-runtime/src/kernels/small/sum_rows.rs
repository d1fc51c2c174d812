//! SUM_ROWS: the sum of each row. Compiled for one kind of vectors ([`Hvx::Everywhere`]).

use hexflash_abi::Fault;
use hexflash_abi::op::sum_rows as abi;

use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::Row;

struct SumRows {
    x: View,
    y: View,
}

/// SUM_ROWS: x{n,..} -> y{1,..}.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    run.parallel(&SumRows { x, y })
}

/// The sum of a row, in all lanes.
#[inline(always)]
pub(super) fn sum<H: Hvx>(x: Row<'_>) -> H::F {
    let mut sum = H::splat(0.0);
    for v in 0..x.vectors() {
        sum = H::add_ieee(sum, x.vector::<H>(v));
    }
    H::sum_all(sum)
}

impl SumRows {
    fn work_off<H: Hvx>(&self, worker: &mut Worker<'_>) {
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone; y overlaps no
            // operand (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            y.set_vector::<H>(0, sum::<H>(self.x.row(i)));
        }
    }
}

impl Kernel for SumRows {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // A row's reduction takes about as long as twelve of its vectors.
        self.y.rows().saturating_mul(self.x.ne[0].div_ceil(LANES) * 4 + 48)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.work_off::<H::Everywhere>(worker);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    #[test]
    fn each_row_has_its_sum() {
        for n in [1, 31, 32, 33, 500] {
            let x = random(n as u64, n * 5, -1.0, 3.0);
            let actual = everywhere(|setup| {
                let mut batch = Batch::new(1, 1);
                let a = batch.f32([n as u32, 5, 1, 1], &x);
                let y = batch.f32([1, 5, 1, 1], &[7.0; 5]);
                batch.run(setup, Op::SumRows, &[a], &[y], &[0u32; 0], StepRegisters::step(0, 1)).unwrap();
                batch.floats(y)
            });
            for (row, sum) in x.chunks_exact(n).zip(actual) {
                let want: f64 = row.iter().map(|&x| f64::from(x)).sum();
                assert!((f64::from(sum) - want).abs() < 1e-6 * n as f64, "{n}: {sum}, not {want}");
            }
        }
    }
}

//! NORM: rows without their mean, divided by their deviation. Compiled for one kind of vectors
//! ([`Hvx::Everywhere`]).

use hexflash_abi::Fault;
use hexflash_abi::op::{norm as abi, params};

use super::sum_rows;
use crate::hvx::{Hvx, LANES, functions};
use crate::kernels::shared::lanes::up_to_end;
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};

struct LayerNorm {
    eps: f32,
    x: View,
    y: View,
}

/// NORM, (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps): x{n,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let p: params::Norm = run.params();
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    run.parallel(&LayerNorm { eps: p.eps, x, y })
}

impl LayerNorm {
    #[inline(never)]
    fn row<H: Hvx>(&self, x: Row<'_>, y: &mut RowMut<'_>) {
        let share = H::splat(1.0 / x.len() as f32);
        let mean = H::mul_ieee(sum_rows::sum::<H>(x), share);
        let mut squares = H::splat(0.0);
        for v in 0..x.vectors() {
            let d = H::sub_ieee(x.vector::<H>(v), mean);
            let square = up_to_end::<H>(x.len() - v * LANES, H::mul_ieee(d, d), H::splat(0.0));
            squares = H::add_ieee(squares, square);
        }
        let variance = H::mul_ieee(H::sum_all(squares), share);
        let deviation = functions::sqrt::<H>(H::add_ieee(variance, H::splat(self.eps)));
        let factor = functions::divide::<H>(H::splat(1.0), deviation);
        for v in 0..x.vectors() {
            y.set_vector::<H>(v, H::mul_ieee(H::sub_ieee(x.vector::<H>(v), mean), factor));
        }
    }
}

impl Kernel for LayerNorm {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // Three passes, two reductions, a root and a division.
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 12 + 150)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. If x overlaps y
            // it lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            self.row::<H::Everywhere>(self.x.row(i), &mut y);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::{Op, params};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    #[test]
    fn rows_have_no_mean_and_unit_deviation() {
        for n in [2, 31, 32, 33, 500] {
            // Far from zero, where the difference of sums of squares would lose all digits.
            let x = random(n as u64, n * 3, 99.0, 101.0);
            for in_place in [false, true] {
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let a = batch.f32([n as u32, 3, 1, 1], &x);
                    let y = if in_place { a } else { batch.f32([n as u32, 3, 1, 1], &vec![7.0; n * 3]) };
                    let params = params::Norm { eps: 1e-5 };
                    batch.run(setup, Op::Norm, &[a], &[y], &params, StepRegisters::step(0, 1)).unwrap();
                    batch.floats(y)
                });
                for (x, y) in x.chunks_exact(n).zip(actual.chunks_exact(n)) {
                    let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
                    let square = |x: f32| (f64::from(x) - mean).powi(2);
                    let deviation = (x.iter().map(|&x| square(x)).sum::<f64>() / n as f64 + 1e-5).sqrt();
                    for (&x, &y) in x.iter().zip(y) {
                        let want = (f64::from(x) - mean) / deviation;
                        // The mean is off by an ulp of 100 or so.
                        assert!((f64::from(y) - want).abs() < 1e-4, "{n}: {y}, not {want}");
                    }
                }
            }
        }
    }
}

//! WEIGHTED_SUM: what the experts of a token gave, each times its weight.
//!
//! ggml multiplies, then adds one expert after the other; so does this, each result rounded, so that the bits
//! are ggml's.

use hexflash_abi::Fault;
use hexflash_abi::op::weighted_sum as abi;

use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};

/// y = sum of x(i) w(i), row by row.
struct WeightedSum {
    x: View,
    weights: View,
    y: View,
}

/// WEIGHTED_SUM: x{n,n_used,m}, weights{n_used,m} -> y{n,m}.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, weights) = (run.operand(abi::X)?, run.operand(abi::WEIGHTS)?);
    let kernel = WeightedSum { x, weights, y: run.operand(abi::Y)? };
    run.parallel(&kernel)
}

impl Kernel for WeightedSum {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        self.x.rows().saturating_mul(self.x.ne[0].div_ceil(LANES) * 4)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(token) = worker.claim() {
            let weights = self.weights.row([token, 0, 0]);
            // SAFETY: `claim` gives unit `token`, and with it this row of y, to this worker alone.
            let mut y = unsafe { self.y.row_mut([token, 0, 0]) };
            for slot in 0..weights.len() {
                let x = self.x.row([slot, token, 0]);
                let weight = H::splat(weights.get(slot));
                for v in 0..x.vectors() {
                    let product = H::mul(x.vector::<H>(v), weight);
                    let sum = if slot == 0 { product } else { H::add(y.as_row().vector::<H>(v), product) };
                    y.set_vector::<H>(v, sum);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    /// As ggml has it: products, then sums from the left.
    #[test]
    fn products_are_added_in_their_order() {
        for (n, used, m) in [(1, 1, 1), (31, 2, 3), (32, 8, 1), (33, 3, 5), (200, 5, 7)] {
            let x = random(1, n * used * m, -3.0, 3.0);
            let weights = random(2, used * m, -1.0, 1.0);
            let actual = everywhere(|setup| {
                let mut batch = Batch::new(1, 1);
                let [n, used, m] = [n, used, m].map(|n| n as u32);
                let x = batch.f32([n, used, m, 1], &x);
                let weights = batch.f32([used, m, 1, 1], &weights);
                let y = batch.f32([n, m, 1, 1], &vec![7.0; (n * m) as usize]);
                let step = StepRegisters::step(0, 1);
                batch.run(setup, Op::WeightedSum, &[x, weights], &[y], &[0u32; 0], step).unwrap();
                batch.floats(y)
            });
            let at = |t: usize, i: usize| {
                let product = |slot: usize| x[(t * used + slot) * n + i] * weights[t * used + slot];
                (1..used).fold(product(0), |sum, slot| sum + product(slot))
            };
            let expected: Vec<f32> =
                (0..m).flat_map(|t| (0..n).map(move |i| (t, i))).map(|(t, i)| at(t, i)).collect();
            assert_eq!(actual, expected, "n={n} used={used} m={m}");
        }
    }

    /// A step with fewer tokens than the program leaves the other rows alone; rows may lie apart.
    #[test]
    fn views_and_the_token_axis() {
        let (x, weights) = (random(3, 40 * 2 * 4, -1.0, 1.0), random(4, 2 * 4, 0.0, 1.0));
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(4, 8);
            let x = batch.f32([40, 2, 4, 1], &x);
            let x = batch.view(x, |t| {
                t.ne[0] = 33;
                t.token_axis = 2;
            });
            let weights = batch.f32([2, 4, 1, 1], &weights);
            let weights = batch.view(weights, |t| t.token_axis = 1);
            let y = batch.f32([33, 4, 1, 1], &[7.0; 33 * 4]);
            let y = batch.view(y, |t| t.token_axis = 1);
            let step = StepRegisters::step(0, 3);
            batch.run(setup, Op::WeightedSum, &[x, weights], &[y], &[0u32; 0], step).unwrap();
            batch.floats(y)
        });
        for (t, row) in actual.chunks_exact(33).enumerate() {
            for (i, &y) in row.iter().enumerate() {
                let product = |slot: usize| x[(t * 2 + slot) * 40 + i] * weights[t * 2 + slot];
                assert_eq!(y, if t < 3 { product(0) + product(1) } else { 7.0 });
            }
        }
    }
}

//! SWIGLU: silu(a) * b.

use hexflash_abi::Fault;
use hexflash_abi::op::{params, swiglu as abi};

use super::OpRun;
use crate::hvx::{Hvx, LANES, math};
use crate::memory::View;
use crate::pool::{Kernel, Worker};

/// y = silu(a) * b, row by row; without `b`, both are halves of `a`.
struct Swiglu {
    a: View,
    b: Option<View>,
    /// The halves have changed places: the second one goes through silu.
    swapped: bool,
    y: View,
}

/// SWIGLU: a{n,..}, b{n,..} -> y{n,..}; or a{2n,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let p: params::Swiglu = run.params();
    let (a, b, y) = (run.operand(abi::A)?, run.optional(abi::B), run.operand(abi::Y)?);
    let kernel = Swiglu { a, b, swapped: p.swapped == 1, y };
    run.parallel(&kernel)
}

impl Kernel for Swiglu {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 24)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let n = self.y.ne[0];
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            let row = self.a.row(i);
            let (a, b) = match &self.b {
                Some(b) => (row, b.row(i)),
                None if self.swapped => (row.part(n, n), row.part(0, n)),
                None => (row.part(0, n), row.part(n, n)),
            };
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. An operand that
            // overlaps y lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            for v in 0..a.vectors() {
                y.set_vector::<H>(v, H::mul(math::silu::<H>(a.vector::<H>(v)), b.vector::<H>(v)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::{Op, params};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, nmse, random};

    const STEP: StepRegisters = StepRegisters::step(0, 1);

    fn reference(a: &[f32], b: &[f32]) -> Vec<f32> {
        let one =
            |(&a, &b): (&f32, &f32)| (f64::from(a) / (1.0 + (-f64::from(a)).exp()) * f64::from(b)) as f32;
        a.iter().zip(b).map(one).collect()
    }

    #[test]
    fn two_inputs_and_in_place() {
        for (n, rows) in [(1, 3), (31, 3), (33, 2), (100, 1), (256, 3), (3000, 11)] {
            let (a, b) = (random(n as u64, n * rows, -20.0, 20.0), random(5, n * rows, -2.0, 2.0));
            let expected = reference(&a, &b);
            // Output: a tensor of its own, a, b.
            for place in 0..3 {
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let shape = [n as u32, rows as u32, 1, 1];
                    let (a, b) = (batch.f32(shape, &a), batch.f32(shape, &b));
                    let y = [batch.f32(shape, &vec![7.0; n * rows]), a, b][place];
                    batch
                        .run(setup, Op::Swiglu, &[a, b], &[y], &params::Swiglu { swapped: 0 }, STEP)
                        .unwrap();
                    batch.floats(y)
                });
                assert!(nmse(&actual, &expected) < 1e-12, "n={n} place={place}");
            }
        }
    }

    #[test]
    fn halves_of_one_input() {
        for n in [1, 31, 33, 100, 256] {
            let (rows, values) = (3, random(n as u64, n * 6, -20.0, 20.0));
            for swapped in [0, 1] {
                let expected: Vec<f32> = values
                    .chunks_exact(2 * n)
                    .map(|row| row.split_at(n))
                    .flat_map(|(a, b)| if swapped == 1 { reference(b, a) } else { reference(a, b) })
                    .collect();
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let a = batch.f32([2 * n as u32, rows, 1, 1], &values);
                    let y = batch.f32([n as u32, rows, 1, 1], &vec![7.0; n * 3]);
                    batch.run(setup, Op::Swiglu, &[a], &[y], &params::Swiglu { swapped }, STEP).unwrap();
                    batch.floats(y)
                });
                assert!(nmse(&actual, &expected) < 1e-12, "n={n} swapped={swapped}");
            }
        }
    }

    /// Rows of two matrices in one tensor, and a step with fewer tokens than the program.
    #[test]
    fn views_and_the_token_axis() {
        let (n, tokens) = (33usize, 4u32);
        let values = random(9, 100 * 4, -4.0, 4.0);
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(tokens, 8);
            let both = batch.f32([100, tokens, 1, 1], &values);
            let part = |at| {
                move |t: &mut hexflash_abi::program::TensorDesc| {
                    t.offset += at;
                    t.ne[0] = n as u32;
                    t.token_axis = 1;
                }
            };
            let (a, b) = (batch.view(both, part(0)), batch.view(both, part(4 * 60)));
            let y = batch.f32([n as u32, tokens, 1, 1], &[7.0; 4 * 33]);
            let out = batch.view(y, |t| t.token_axis = 1);
            let step = StepRegisters::step(0, 3);
            batch.run(setup, Op::Swiglu, &[a, b], &[out], &params::Swiglu { swapped: 0 }, step).unwrap();
            batch.floats(y)
        });
        for (t, row) in actual.chunks_exact(n).enumerate() {
            let x = &values[t * 100..][..100];
            let expected = if t < 3 { reference(&x[..n], &x[60..60 + n]) } else { vec![7.0; n] };
            assert!(nmse(row, &expected) < 1e-12);
        }
    }
}

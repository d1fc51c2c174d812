//! RMS_NORM and L2_NORM: rows divided by their size.

use hexflash_abi::Fault;
use hexflash_abi::op::{Op, params};

use super::OpRun;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::platform::Platform;
use crate::pool::{Kernel, Worker};
use crate::row::Row;

/// y = x * factor(x) * w, row by row.
struct Norm {
    op: Op,
    eps: f32,
    x: View,
    w: Option<View>,
    y: View,
}

/// RMS_NORM, x / sqrt(mean(x^2) + eps), and L2_NORM, x / max(sqrt(sum(x^2)), eps): x{n,..}, w{n} optional (only
/// RMS_NORM has it) -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn run<P: Platform>(op: Op, run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    let p: params::Norm = run.params();
    let kernel = Norm { op, eps: p.eps, x: run.src(0)?, w: run.src[1], y: run.dst()? };
    run.parallel(&kernel)
}

/// Sum of squares, in an order that only the length decides.
#[inline(always)]
fn sum_squares<H: Hvx>(x: Row<'_>) -> f32 {
    // Vector i goes to sum i mod 4, so that no addition waits for the last.
    let mut sums = [H::splat(0.0); 4];
    for i in (0..x.vectors()).step_by(4) {
        for (j, sum) in sums.iter_mut().enumerate() {
            if i + j < x.vectors() {
                let v = x.vector::<H>(i + j);
                *sum = H::add(*sum, H::mul(v, v));
            }
        }
    }
    let [a, b, c, d] = sums;
    H::sum(H::add(H::add(a, b), H::add(c, d)))
}

impl Kernel for Norm {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // Two passes; the reduction, the root and the division of a row cost as much as some more vectors.
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 6 + 20)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            let x = self.x.row(i);
            // SAFETY: row r was claimed by this worker alone.
            let mut y = unsafe { self.y.row_mut(i) };
            let sum = sum_squares::<H>(x);
            let size = match self.op {
                Op::L2Norm => libm::sqrtf(sum).max(self.eps),
                _ => libm::sqrtf(sum / x.len() as f32 + self.eps),
            };
            let factor = H::splat(1.0 / size);
            let w = self.w.as_ref().map(|w| w.row([0; 3]));
            for i in 0..x.vectors() {
                let v = H::mul(x.vector::<H>(i), factor);
                // Two roundings, as RMS_NORM and MUL have them.
                let v = if let Some(w) = w { H::mul(v, w.vector::<H>(i)) } else { v };
                y.set_vector::<H>(i, v);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::TensorIndex;
    use hexflash_abi::op::{Op, params};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, nmse, random};

    /// The definitions, in double precision.
    fn reference(op: Op, x: &[f32], n: usize, w: Option<&[f32]>, eps: f64) -> Vec<f32> {
        let row = |row: &[f32]| {
            let sum: f64 = row.iter().map(|&v| f64::from(v).powi(2)).sum();
            let size = if op == Op::L2Norm { sum.sqrt().max(eps) } else { (sum / n as f64 + eps).sqrt() };
            let weight = |j: usize| w.map_or(1.0, |w| f64::from(w[j]));
            row.iter().enumerate().map(|(j, &v)| (f64::from(v) / size * weight(j)) as f32).collect::<Vec<_>>()
        };
        x.chunks_exact(n).flat_map(row).collect()
    }

    #[test]
    fn norms_match_double_precision() {
        // The last two are large enough for several workers.
        for (n, rows) in
            [(1, 3), (31, 3), (32, 3), (33, 2), (100, 3), (128, 1), (256, 5), (5000, 64), (200_003, 2)]
        {
            for (op, weighted) in [(Op::RmsNorm, false), (Op::RmsNorm, true), (Op::L2Norm, false)] {
                let values = random(n as u64, n * rows, -3.0, 5.0);
                let weights = weighted.then(|| random(7, n, 0.5, 1.5));
                for in_place in [false, true] {
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let shape = [n as u32, rows as u32, 1, 1];
                        let x = batch.f32(shape, &values);
                        let mut src = vec![x];
                        src.extend(weights.as_ref().map(|w| batch.f32([n as u32, 1, 1, 1], w)));
                        let y = if in_place { x } else { batch.f32(shape, &vec![7.0; n * rows]) };
                        let p = params::Norm { eps: 1e-6 };
                        batch.run(setup, op, &src, &[y], &p, StepRegisters::step(0, 1)).unwrap();
                        batch.floats(y)
                    });
                    let expected = reference(op, &values, n, weights.as_deref(), 1e-6);
                    let error = nmse(&actual, &expected);
                    assert!(error < 1e-12, "{op} n={n} weighted={weighted} in_place={in_place}: {error}");
                }
            }
        }
    }

    /// What eps does at the ends: zeros stay zeros, and a row shorter than eps is divided by eps.
    #[test]
    fn eps_bounds_the_divisor() {
        for (op, x, eps, expected) in [
            (Op::RmsNorm, [0.0, 0.0], 1e-6, [0.0, 0.0]),
            (Op::L2Norm, [0.0, 0.0], 1e-6, [0.0, 0.0]),
            (Op::L2Norm, [0.0, 0.25], 0.5, [0.0, 0.5]),
            (Op::L2Norm, [3.0, 4.0], 0.5, [0.6, 0.8]),
            (Op::RmsNorm, [1.0, 1.0], 3.0, [0.5, 0.5]),
        ] {
            let actual = everywhere(|setup| {
                let mut batch = Batch::new(1, 1);
                let (x, y) = (batch.f32([2, 1, 1, 1], &x), batch.f32([2, 1, 1, 1], &[7.0; 2]));
                let p = params::Norm { eps };
                batch.run(setup, op, &[x], &[y], &p, StepRegisters::step(0, 1)).unwrap();
                batch.floats(y)
            });
            assert!(nmse(&actual, &expected) < 1e-12, "{op} {x:?}: {actual:?}");
        }
    }

    /// Heads inside wider rows, of which a step has fewer tokens than the program: the others stay untouched, and
    /// a row gives the same bits alone as among others.
    #[test]
    fn views_and_the_token_axis() {
        let (width, heads, tokens, n) = (100, 2, 5, 33);
        let values = random(3, width * tokens, -2.0, 2.0);
        let run = |n_tokens: u32| {
            everywhere(|setup| {
                let mut batch = Batch::new(tokens as u32, 10);
                let x = batch.f32([width as u32, tokens as u32, 1, 1], &values);
                let y = batch.f32([n as u32, heads as u32, tokens as u32, 1], &vec![7.0; n * heads * tokens]);
                let part = batch.view(x, |t| {
                    t.offset += 4;
                    t.ne = [n as u32, heads as u32, tokens as u32, 1];
                    t.nb = [4, 160, 400, 2000];
                    t.token_axis = 2;
                });
                let out: TensorIndex = batch.view(y, |t| t.token_axis = 2);
                let p = params::Norm { eps: 1e-6 };
                batch.run(setup, Op::RmsNorm, &[part], &[out], &p, StepRegisters::step(0, n_tokens)).unwrap();
                batch.floats(y)
            })
        };
        let full = run(5);
        for (r, row) in full.chunks_exact(n).enumerate() {
            let at = r / heads * width + 1 + r % heads * 40;
            let expected = reference(Op::RmsNorm, &values[at..at + n], n, None, 1e-6);
            assert!(nmse(row, &expected) < 1e-12);
        }
        let clipped = run(2);
        let done = 2 * heads * n;
        assert_eq!(clipped[..done], full[..done]);
        assert!(clipped[done..].iter().all(|&v| v == 7.0));
    }
}

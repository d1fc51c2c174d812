//! Elementwise ops: ADD, MUL, SCALE, SILU, SIGMOID, SOFTPLUS, EXP.

use hexflash_abi::Fault;
use hexflash_abi::op::{binary as pair, params, unary as single};

use super::OpRun;
use crate::hvx::{Hvx, LANES, math};
use crate::memory::View;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};

/// A function of one value.
#[derive(Clone, Copy, Debug)]
pub enum Function {
    /// `scale * x + bias`.
    Scale,
    /// x * sigmoid(x).
    Silu,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// ln(1 + exp(x)).
    Softplus,
    /// exp(x).
    Exp,
}

/// A function of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// a + b.
    Add,
    /// a * b.
    Mul,
}

/// y = f(x), row by row.
struct Unary {
    function: Function,
    x: View,
    y: View,
    scale: params::Scale,
}

/// ADD, MUL: `b` repeats over `a`.
struct Binary {
    pairing: Pairing,
    a: View,
    b: View,
    y: View,
}

/// SCALE and the unary functions: x{n,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn unary(function: Function, run: &mut OpRun<'_>) -> Result<(), Fault> {
    // The other functions have no parameters: their words are zero, and nothing reads them.
    let kernel =
        Unary { function, x: run.operand(single::X)?, y: run.operand(single::Y)?, scale: run.params() };
    run.parallel(&kernel)
}

/// ADD and MUL: a{n,..}, b{n|1,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn binary(pairing: Pairing, run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (a, b, y) = (run.operand(pair::A)?, run.operand(pair::B)?, run.operand(pair::Y)?);
    let kernel = Binary { pairing, a, b, y };
    run.parallel(&kernel)
}

impl Kernel for Unary {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // An exponential is some 20 operations.
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 20)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let (scale, bias) = (H::splat(self.scale.scale), H::splat(self.scale.bias));
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            let x = self.x.row(i);
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. An operand that
            // overlaps y lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            for i in 0..x.vectors() {
                let v = x.vector::<H>(i);
                let v = match self.function {
                    Function::Scale => H::add(H::mul(v, scale), bias),
                    Function::Silu => math::silu::<H>(v),
                    Function::Sigmoid => math::sigmoid::<H>(v),
                    Function::Softplus => math::softplus::<H>(v),
                    Function::Exp => math::exp::<H>(v),
                };
                y.set_vector::<H>(i, v);
            }
        }
        Ok(())
    }
}

/// y = a + b, or a * b: of rows of one length, or with one value for b. The operation is chosen outside of
/// the loop. Sums and products are IEEE's to the bit: a single operation takes no more instructions in that
/// form than in qfloat, which pays only where several operations follow each other.
#[inline(always)]
pub(super) fn combine<H: Hvx, const ADD: bool>(a: Row<'_>, b: Row<'_>, y: &mut RowMut<'_>) {
    let one = H::splat(b.get(0));
    for v in 0..a.vectors() {
        let b = if b.len() == 1 { one } else { b.vector::<H>(v) };
        let a = a.vector::<H>(v);
        y.set_vector::<H>(v, if ADD { H::add_ieee(a, b) } else { H::mul_ieee(a, b) });
    }
}

impl Kernel for Binary {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 4)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let add = self.pairing == Pairing::Add;
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            let a = self.a.row(i);
            let b = self.b.row([i[0] % self.b.ne[1], i[1] % self.b.ne[2], i[2] % self.b.ne[3]]);
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. An operand that
            // overlaps y lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            if b.len() == 1 || b.len() == a.len() {
                if add { combine::<H, true>(a, b, &mut y) } else { combine::<H, false>(a, b, &mut y) }
            } else {
                // A row that repeats within the row: rare, so plain.
                for j in 0..a.len() {
                    let (a, b) = (a.get(j), b.get(j % b.len()));
                    y.set(j, if add { a + b } else { a * b });
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

    use crate::testing::{Batch, nmse, random, setups};

    /// Every unary op against libm, at lengths around a vector, on values that reach the limits.
    #[test]
    fn unary_functions_match_libm() {
        type Reference = fn(f64) -> f64;
        let reference: [(Op, Reference); 4] = [
            (Op::Silu, |x| x / (1.0 + (-x).exp())),
            (Op::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
            (Op::Softplus, |x| if x > 20.0 { x } else { x.exp().ln_1p() }),
            (Op::Exp, f64::exp),
        ];
        for setup in setups() {
            for (op, f) in reference {
                for n in [1, 31, 32, 33, 100] {
                    let mut batch = Batch::new(1, 1);
                    let mut values = random(n as u64, n * 3, -30.0, 30.0);
                    values[0] = -200.0;
                    let x = batch.f32([n as u32, 3, 1, 1], &values);
                    let y = batch.f32([n as u32, 3, 1, 1], &vec![7.0; n * 3]);
                    batch.run(setup, op, &[x], &[y], &[0u32; 0], StepRegisters::step(0, 1)).unwrap();
                    let expected: Vec<f32> = values.iter().map(|&v| f(v.into()) as f32).collect();
                    let error = nmse(&batch.floats(y), &expected);
                    assert!(error < 1e-12, "{op} n={n} {setup:?}: {error}");
                }
            }
        }
    }
}

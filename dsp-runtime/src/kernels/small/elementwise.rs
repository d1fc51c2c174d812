//! Elementwise ops: ADD, MUL, DIV, SCALE, SILU, SIGMOID, SOFTPLUS, EXP.

use hexflash_abi::Fault;
use hexflash_abi::op::{binary, params, unary};

use crate::hvx::{Hvx, LANES, functions, math};
use crate::kernels::shared::map::{self, Map};
use crate::kernels::shared::pieces::{PIECE, Pieces, SIDE, side_by_side};
use crate::memory::View;
use crate::op_run::OpRun;
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
    pieces: Pieces,
}

/// ADD, MUL: `b` repeats over `a`.
struct Binary {
    pairing: Pairing,
    a: View,
    b: View,
    y: View,
    pieces: Pieces,
}

/// Fewest elements of a piece of a sum or a product: with four packets a vector, these take about as long as
/// a piece of other functions.
const BINARY_PIECE: usize = 4 * PIECE;

/// SCALE and the unary functions: x{n,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn unary(function: Function, run: &mut OpRun<'_>) -> Result<(), Fault> {
    let [x, y] = View::joined([run.operand(unary::X)?, run.operand(unary::Y)?]);
    let pieces = Pieces::of(&y, run.pool.workers(), PIECE);
    // The other functions have no parameters: their words are zero, and nothing reads them.
    let kernel = Unary { function, x, y, scale: run.params(), pieces };
    run.parallel(&kernel)
}

/// ADD and MUL: a{n,..}, b{n|1,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn binary(pairing: Pairing, run: &mut OpRun<'_>) -> Result<(), Fault> {
    let operands = [run.operand(binary::A)?, run.operand(binary::B)?, run.operand(binary::Y)?];
    let [a, b, y] = View::joined(operands);
    let pieces = Pieces::of(&y, run.pool.workers(), BINARY_PIECE);
    run.parallel(&Binary { pairing, a, b, y, pieces })
}

/// DIV: `b` repeats over `a`.
struct Div {
    a: View,
    b: View,
    y: View,
}

/// DIV: a{n,..}, b{n|1,..} -> y{n,..}. No graph of our own has it: it is compiled for one kind of vectors
/// ([`Hvx::Everywhere`]), in a plain loop.
///
/// # Errors
/// None that validation lets through.
pub fn div(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (a, b, y) = (run.operand(binary::A)?, run.operand(binary::B)?, run.operand(binary::Y)?);
    run.parallel(&Div { a, b, y })
}

impl Div {
    #[inline(never)]
    fn row<H: Hvx>(a: Row<'_>, b: Row<'_>, y: &mut RowMut<'_>) {
        let one = H::splat(b.get(0));
        for v in 0..a.vectors() {
            let b = if b.len() == 1 { one } else { b.vector::<H>(v) };
            y.set_vector::<H>(v, functions::divide::<H>(a.vector::<H>(v), b));
        }
    }
}

impl Kernel for Div {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 30)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            let a = self.a.row(i);
            let b = self.b.row([i[0] % self.b.ne[1], i[1] % self.b.ne[2], i[2] % self.b.ne[3]]);
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. An operand that
            // overlaps y lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            // A row that repeats within the row is taken as often.
            let n = if b.len() == 1 { a.len() } else { b.len() };
            for at in (0..a.len()).step_by(n) {
                Self::row::<H::Everywhere>(a.part(at, n), b, &mut y.part(at, n));
            }
        }
        Ok(())
    }
}

struct Scale(params::Scale);

impl Map for Scale {
    #[inline(always)]
    fn of<H: Hvx>(&self, v: H::F) -> H::F {
        H::add(H::mul(v, H::splat(self.0.scale)), H::splat(self.0.bias))
    }
}

map::functions! {
    math:
    Silu: silu;
    Sigmoid: sigmoid;
    Softplus: softplus;
    Exp: exp;
}

/// y = f(x), of a piece of a row.
#[inline(always)]
fn of_piece<H: Hvx>(f: &impl Map, x: Row<'_>, y: &mut RowMut<'_>) {
    assert!(x.len() == y.len());
    match (x.aligned(), y.aligned()) {
        (Some(x), Some(mut y)) => map_vectors::<H, true>(f, x, &mut y),
        _ => map_vectors::<H, false>(f, x, y),
    }
}

#[cfg_attr(target_arch = "hexagon", inline(never))]
#[cfg_attr(not(target_arch = "hexagon"), inline(always))]
fn map_vectors<H: Hvx, const A: bool>(f: &impl Map, x: Row<'_, A>, y: &mut RowMut<'_, A>) {
    let mut done = 0;
    if side_by_side::<H>() {
        for i in 0..x.whole() / SIDE {
            let at = SIDE * i;
            // SAFETY: `i` is below `whole / SIDE`, so x has the four vectors from `at` on whole, and so has
            // y, which has its length (checked by `of_piece`). They are read before any is written.
            unsafe {
                let (a, b) = (x.full_unchecked::<H>(at), x.full_unchecked::<H>(at + 1));
                let (c, d) = (x.full_unchecked::<H>(at + 2), x.full_unchecked::<H>(at + 3));
                let (a, b, c, d) = (f.of::<H>(a), f.of::<H>(b), f.of::<H>(c), f.of::<H>(d));
                y.set_full_unchecked::<H>(at, a);
                y.set_full_unchecked::<H>(at + 1, b);
                y.set_full_unchecked::<H>(at + 2, c);
                y.set_full_unchecked::<H>(at + 3, d);
            }
        }
        done = x.whole() / SIDE * SIDE;
    }
    for i in done..x.vectors() {
        y.set_vector::<H>(i, f.of::<H>(x.vector::<H>(i)));
    }
}

impl Kernel for Unary {
    fn units(&self) -> usize {
        self.pieces.units()
    }

    fn work(&self) -> usize {
        // Between the 22 packets of an exponential and a division on v73, and what a logarithm takes besides.
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 40)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            let (r, at, n) = self.pieces.of_unit(unit);
            let i = self.y.unravel(r);
            let x = self.x.row(i).part(at, n);
            // SAFETY: `claim` gives the unit, and with it this piece of row `i` of y, to this worker alone.
            // An operand that overlaps y lies in its very place, row by row (validation).
            let y = &mut unsafe { self.y.part_mut(i, at, n) };
            match self.function {
                Function::Scale => of_piece::<H>(&Scale(self.scale), x, y),
                Function::Silu => of_piece::<H>(&Silu, x, y),
                Function::Sigmoid => of_piece::<H>(&Sigmoid, x, y),
                Function::Softplus => of_piece::<H>(&Softplus, x, y),
                Function::Exp => of_piece::<H>(&Exp, x, y),
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
    let mut done = 0;
    if b.len() == a.len()
        && let (Some(a), Some(b), Some(mut y)) = (a.aligned(), b.aligned(), y.aligned())
    {
        assert!(y.len() == a.len());
        done = a.whole() / SIDE * SIDE;
        for at in (0..done).step_by(SIDE) {
            // SAFETY: `at` is a multiple of SIDE below `whole` rounded down to one, so all three rows, which
            // have one length (checked above), have the four vectors from `at` on whole. They are read before
            // any is written.
            unsafe {
                let p = pair::<H, ADD, _>(a, b, at);
                let q = pair::<H, ADD, _>(a, b, at + 1);
                let r = pair::<H, ADD, _>(a, b, at + 2);
                let s = pair::<H, ADD, _>(a, b, at + 3);
                y.set_full_unchecked::<H>(at, p);
                y.set_full_unchecked::<H>(at + 1, q);
                y.set_full_unchecked::<H>(at + 2, r);
                y.set_full_unchecked::<H>(at + 3, s);
            }
        }
    }
    let one = H::splat(b.get(0));
    for v in done..a.vectors() {
        let b = if b.len() == 1 { one } else { b.vector::<H>(v) };
        y.set_vector::<H>(v, pairing::<H, ADD>(a.vector::<H>(v), b));
    }
}

#[inline(always)]
fn pairing<H: Hvx, const ADD: bool>(a: H::F, b: H::F) -> H::F {
    if ADD { H::add_ieee(a, b) } else { H::mul_ieee(a, b) }
}

/// The operation on vector `v` of both.
///
/// # Safety
/// Both have vector `v` whole.
#[inline(always)]
unsafe fn pair<H: Hvx, const ADD: bool, const A: bool>(a: Row<'_, A>, b: Row<'_, A>, v: usize) -> H::F {
    // SAFETY: both have vector `v` whole (the caller's contract).
    unsafe { pairing::<H, ADD>(a.full_unchecked::<H>(v), b.full_unchecked::<H>(v)) }
}

impl Kernel for Binary {
    fn units(&self) -> usize {
        self.pieces.units()
    }

    fn work(&self) -> usize {
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 4)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let add = self.pairing == Pairing::Add;
        let repeats = self.b.ne[0] != self.y.ne[0];
        while let Some(unit) = worker.claim() {
            let (r, at, n) = self.pieces.of_unit(unit);
            let i = self.y.unravel(r);
            let a = self.a.row(i).part(at, n);
            let b = self.b.row([i[0] % self.b.ne[1], i[1] % self.b.ne[2], i[2] % self.b.ne[3]]);
            // SAFETY: `claim` gives the unit, and with it this piece of row `i` of y, to this worker alone.
            // An operand that overlaps y lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.part_mut(i, at, n) };
            if b.len() == 1 || !repeats {
                let b = if repeats { b } else { b.part(at, n) };
                if add { combine::<H, true>(a, b, &mut y) } else { combine::<H, false>(a, b, &mut y) }
            } else {
                // A row that repeats within the row: rare, so plain.
                for j in 0..n {
                    let (a, b) = (a.get(j), b.get((at + j) % b.len()));
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

    use crate::testing::{Batch, everywhere, nmse, random, setups};

    /// Divisors of one row, of one element, and rows that repeat, in place too.
    #[test]
    fn quotients_are_those_of_f64() {
        for n in [1, 6, 33, 96] {
            for repeat in [1, 3] {
                for rows in [1, 2] {
                    let (m, k) = (n * repeat, rows * 2);
                    let a = random(1, m * k, -9.0, 9.0);
                    let b = random(2, n * rows, 0.5, 4.0);
                    for in_place in [false, true] {
                        let actual = everywhere(|setup| {
                            let mut batch = Batch::new(1, 1);
                            let x = batch.f32([m as u32, k as u32, 1, 1], &a);
                            let z = batch.f32([n as u32, rows as u32, 1, 1], &b);
                            let y = if in_place {
                                x
                            } else {
                                batch.f32([m as u32, k as u32, 1, 1], &vec![7.0; m * k])
                            };
                            let step = StepRegisters::step(0, 1);
                            batch.run(setup, Op::Div, &[x, z], &[y], &[0u32; 0], step).unwrap();
                            batch.floats(y)
                        });
                        for (i, y) in actual.into_iter().enumerate() {
                            let divisor = b[i / m % rows * n + i % n];
                            let want = a[i] / divisor;
                            assert!(
                                (y - want).abs() <= 5e-7 * want.abs(),
                                "{n} {repeat} {rows} {i}: {y} {want}"
                            );
                        }
                    }
                }
            }
        }
    }

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

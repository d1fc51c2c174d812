//! GLU: what is between the matrices of a gated MLP.
//!
//! Formulas: ggml's `ggml_compute_forward_glu` (`ops.cpp`). In all kinds the gate is x * sigmoid(u), which is
//! x / (1 + e^-u): they differ in what x and u are, and in what becomes of the other operand.

use core::array::from_fn;

use hexflash_abi::op::params::GluKind;
use hexflash_abi::op::{glu as abi, params};
use hexflash_abi::{ErrorCode, Fault};

use crate::hvx::{Hvx, LANES, math};
use crate::kernels::shared::pieces::{PIECE, Pieces, SIDE, side_by_side};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};

/// y = f(a) * g(b), row by row; without `b`, both are halves of `a`.
struct Glu {
    kind: GluKind,
    a: View,
    b: Option<View>,
    y: View,
    params: params::Glu,
    pieces: Pieces,
}

/// GLU: a{n,..}, b{n,..} -> y{n,..}; or a{2n,..} -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let params: params::Glu = run.params();
    // Validation has parsed it.
    let kind = GluKind::parse(params.kind).ok_or(Fault::new(ErrorCode::Internal, line!()))?;
    let (mut a, mut b, mut y) = (run.operand(abi::A)?, run.optional(abi::B), run.operand(abi::Y)?);
    if let Some(b) = &mut b {
        [a, *b, y] = View::joined([a, *b, y]);
    }
    let kernel = Glu { kind, a, b, y, params, pieces: Pieces::of(&y, run.pool.workers(), PIECE) };
    run.parallel(&kernel)
}

/// A kind of GLU: x, u and the factor of x / (1 + e^-u) * factor.
trait Formula {
    fn parts<H: Hvx>(&self, a: H::F, b: H::F) -> [H::F; 3];
}

/// u = a.
struct Swiglu;

impl Formula for Swiglu {
    #[inline(always)]
    fn parts<H: Hvx>(&self, a: H::F, b: H::F) -> [H::F; 3] {
        [a, a, b]
    }
}

/// u = 2 sqrt(2 / pi) (a + 0.044715 a^3): (1 + tanh(v)) / 2 is sigmoid(2 v).
struct Geglu;

impl Geglu {
    /// 2 sqrt(2 / pi).
    const LINEAR: f32 = 1.595_769;
    /// 0.044715 times that.
    const CUBIC: f32 = 0.071_354_82;
}

impl Formula for Geglu {
    #[inline(always)]
    fn parts<H: Hvx>(&self, a: H::F, b: H::F) -> [H::F; 3] {
        let slope = H::mul_ieee(H::mul_ieee(a, a), H::splat(Self::CUBIC));
        [a, H::mul_ieee(H::add_ieee(slope, H::splat(Self::LINEAR)), a), b]
    }
}

/// u = alpha x, with bounds of both operands. NaN passes them: it is the second operand of each comparison.
struct SwigluOai {
    alpha: f32,
    limit: f32,
}

impl Formula for SwigluOai {
    #[inline(always)]
    fn parts<H: Hvx>(&self, a: H::F, b: H::F) -> [H::F; 3] {
        let limit = H::splat(self.limit);
        let x = H::min(limit, a);
        let z = H::max(H::splat(-self.limit), H::min(limit, b));
        [x, H::mul_ieee(x, H::splat(self.alpha)), H::add_ieee(z, H::splat(1.0))]
    }
}

#[inline(always)]
fn gated<H: Hvx>(formula: &impl Formula, a: H::F, b: H::F) -> H::F {
    let [x, u, factor] = formula.parts::<H>(a, b);
    // x is NaN where u is.
    H::mul_ieee(H::mul_ieee(x, math::logistic::<H>(u)), factor)
}

/// A piece of a row of y. The kind is chosen outside of the loop.
#[inline(always)]
fn piece<H: Hvx>(formula: &impl Formula, a: Row<'_>, b: Row<'_>, y: &mut RowMut<'_>) {
    assert!(a.len() == y.len() && b.len() == y.len());
    match (a.aligned(), b.aligned(), y.aligned()) {
        (Some(a), Some(b), Some(mut y)) => vectors::<H, true>(formula, a, b, &mut y),
        _ => vectors::<H, false>(formula, a, b, y),
    }
}

#[cfg_attr(target_arch = "hexagon", inline(never))]
#[cfg_attr(not(target_arch = "hexagon"), inline(always))]
fn vectors<H: Hvx, const A: bool>(
    formula: &impl Formula,
    a: Row<'_, A>,
    b: Row<'_, A>,
    y: &mut RowMut<'_, A>,
) {
    let mut done = 0;
    if side_by_side::<H>() {
        // Registers for four are not enough where none of them may go to memory.
        let side = if H::Q_STAYS { SIDE - 1 } else { SIDE };
        done = a.whole() / side * side;
        for v in (0..done).step_by(side) {
            // SAFETY: `v` is a multiple of `side` below `whole` rounded down to one, so all three rows, which
            // have one length (checked by `piece`), have the `side` vectors from `v` on whole.
            unsafe {
                if H::Q_STAYS {
                    group::<H, A, { SIDE - 1 }>(formula, a, b, y, v);
                } else {
                    group::<H, A, SIDE>(formula, a, b, y, v);
                }
            }
        }
    }
    for v in done..a.vectors() {
        y.set_vector::<H>(v, gated::<H>(formula, a.vector::<H>(v), b.vector::<H>(v)));
    }
}

/// `N` vectors side by side, from vector `v` on. They are read before any is written.
///
/// # Safety
/// All three rows have the vectors `v..v + N` whole.
#[inline(always)]
unsafe fn group<H: Hvx, const A: bool, const N: usize>(
    formula: &impl Formula,
    a: Row<'_, A>,
    b: Row<'_, A>,
    y: &mut RowMut<'_, A>,
    v: usize,
) {
    // SAFETY: `i` is below N, so the rows have vector `v + i` whole (the caller's contract).
    let read: [_; N] = from_fn(|i| unsafe { (a.full_unchecked::<H>(v + i), b.full_unchecked::<H>(v + i)) });
    let done = read.map(|(a, b)| gated::<H>(formula, a, b));
    for (i, done) in done.into_iter().enumerate() {
        // SAFETY: as many vectors as N were made, so `v + i` is one of those that y has whole (the caller's
        // contract).
        unsafe { y.set_full_unchecked::<H>(v + i, done) };
    }
}

impl Kernel for Glu {
    fn units(&self) -> usize {
        self.pieces.units()
    }

    fn work(&self) -> usize {
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 40)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let n = self.y.ne[0];
        let params::Glu { swapped, alpha, limit, .. } = self.params;
        while let Some(unit) = worker.claim() {
            let (r, at, len) = self.pieces.of_unit(unit);
            let i = self.y.unravel(r);
            let first = self.a.row(i);
            let (a, b) = match &self.b {
                Some(b) => (first.part(at, len), b.row(i).part(at, len)),
                None if swapped == 1 => (first.part(n + at, len), first.part(at, len)),
                None => (first.part(at, len), first.part(n + at, len)),
            };
            // SAFETY: `claim` gives the unit, and with it this piece of row `i` of y, to this worker alone.
            // An operand that overlaps y lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.part_mut(i, at, len) };
            match self.kind {
                GluKind::Swiglu => piece::<H>(&Swiglu, a, b, &mut y),
                GluKind::Geglu => piece::<H>(&Geglu, a, b, &mut y),
                GluKind::SwigluOai => piece::<H>(&SwigluOai { alpha, limit }, a, b, &mut y),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::op::params::{Glu, GluKind};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, nmse, random};

    const STEP: StepRegisters = StepRegisters::step(0, 1);
    /// All kinds; gpt-oss has these numbers.
    const KINDS: [Glu; 3] = [Glu::of(GluKind::Swiglu), Glu::of(GluKind::Geglu), Glu::swiglu_oai(1.702, 7.0)];

    fn reference(p: &Glu, a: &[f32], b: &[f32]) -> Vec<f32> {
        let one = |(&a, &b): (&f32, &f32)| {
            let (a, b) = (f64::from(a), f64::from(b));
            let (alpha, limit) = (f64::from(p.alpha), f64::from(p.limit));
            let swish = |x: f64, alpha: f64| x / (1.0 + (-alpha * x).exp());
            let cubed = a + 0.044715 * a.powi(3);
            match GluKind::parse(p.kind).unwrap() {
                GluKind::Swiglu => swish(a, 1.0) * b,
                GluKind::Geglu => 0.5 * a * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * cubed).tanh()) * b,
                GluKind::SwigluOai => swish(a.min(limit), alpha) * (b.clamp(-limit, limit) + 1.0),
            }
        };
        a.iter().zip(b).map(|pair| one(pair) as f32).collect()
    }

    #[test]
    fn two_inputs_and_in_place() {
        for p in KINDS {
            for (n, rows) in [(1, 3), (31, 3), (33, 2), (100, 1), (256, 3), (3000, 11)] {
                let (a, b) = (random(n as u64, n * rows, -20.0, 20.0), random(5, n * rows, -9.0, 9.0));
                let expected = reference(&p, &a, &b);
                // Output: a tensor of its own, a, b.
                for place in 0..3 {
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let shape = [n as u32, rows as u32, 1, 1];
                        let (a, b) = (batch.f32(shape, &a), batch.f32(shape, &b));
                        let y = [batch.f32(shape, &vec![7.0; n * rows]), a, b][place];
                        batch.run(setup, Op::Glu, &[a, b], &[y], &p, STEP).unwrap();
                        batch.floats(y)
                    });
                    assert!(nmse(&actual, &expected) < 1e-12, "{p:?} n={n} place={place}");
                }
            }
        }
    }

    /// Beyond the bounds, and where GELU has only its cubic term, or an exponential overflows.
    #[test]
    fn far_values_stay_what_they_are() {
        let (far, near): (Vec<f32>, Vec<f32>) =
            [-1e30, -500.0, -90.0, -7.1, 6.9, 7.1, 90.0, 500.0, 1e18].iter().map(|&x| (x, x / 1e18)).unzip();
        for p in KINDS {
            for (a, b) in [(&far, &near), (&near, &far)] {
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let shape = [far.len() as u32, 1, 1, 1];
                    let (a, b) = (batch.f32(shape, a), batch.f32(shape, b));
                    let y = batch.f32(shape, &[7.0; 9]);
                    batch.run(setup, Op::Glu, &[a, b], &[y], &p, STEP).unwrap();
                    batch.floats(y)
                });
                for (i, (found, wanted)) in actual.iter().zip(reference(&p, a, b)).enumerate() {
                    // The second part is what is left of 1 + tanh where that is nearly 0.
                    let bound = 1e-5 * wanted.abs() + 1e-15 * (a[i] * b[i]).abs();
                    assert!((found - wanted).abs() <= bound, "{p:?} {i}: {found} instead of {wanted}");
                }
            }
        }
    }

    #[test]
    fn halves_of_one_input() {
        for p in KINDS {
            for n in [1, 31, 33, 100, 256] {
                let (rows, values) = (3, random(n as u64, n * 6, -20.0, 20.0));
                for swapped in [0, 1] {
                    let p = Glu { swapped, ..p };
                    let expected: Vec<f32> = values
                        .chunks_exact(2 * n)
                        .map(|row| row.split_at(n))
                        .flat_map(
                            |(a, b)| if swapped == 1 { reference(&p, b, a) } else { reference(&p, a, b) },
                        )
                        .collect();
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let a = batch.f32([2 * n as u32, rows, 1, 1], &values);
                        let y = batch.f32([n as u32, rows, 1, 1], &vec![7.0; n * 3]);
                        batch.run(setup, Op::Glu, &[a], &[y], &p, STEP).unwrap();
                        batch.floats(y)
                    });
                    assert!(nmse(&actual, &expected) < 1e-12, "{p:?} n={n}");
                }
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
            batch.run(setup, Op::Glu, &[a, b], &[out], &KINDS[0], step).unwrap();
            batch.floats(y)
        });
        for (t, row) in actual.chunks_exact(n).enumerate() {
            let x = &values[t * 100..][..100];
            let expected = if t < 3 { reference(&KINDS[0], &x[..n], &x[60..60 + n]) } else { vec![7.0; n] };
            assert!(nmse(row, &expected) < 1e-12);
        }
    }
}

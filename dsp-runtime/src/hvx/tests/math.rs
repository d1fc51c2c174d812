//! The functions of [`math`]: the same bits on every back end, and their distance from f64.

use super::super::qf32::Qf32;
use super::super::{Hvx, Isa, LANES, WithHvx, math};
use super::edges;

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Sigmoid,
    Silu,
    Ln1p,
    Softplus,
    Tanh,
}

use Function::{Exp, Ln1p, Sigmoid, Silu, Softplus, Tanh};

impl Function {
    fn exact(self, x: f64) -> f64 {
        match self {
            Exp => x.exp(),
            Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Silu => x / (1.0 + (-x).exp()),
            Ln1p => x.ln_1p(),
            Softplus if x > 20.0 => x,
            Softplus => x.exp().ln_1p(),
            Tanh => x.tanh(),
        }
    }

    /// The function of every element; whole vectors.
    fn apply(self, isa: Isa, x: &[f32]) -> Vec<f32> {
        assert_eq!(x.len() % LANES, 0);
        let mut y = x.to_vec();
        isa.run(Apply(self, &mut y));
        y
    }
}

struct Apply<'a>(Function, &'a mut [f32]);

impl WithHvx for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn with<H: Hvx>(self) {
        for chunk in self.1.chunks_exact_mut(LANES) {
            // SAFETY: `chunk` is a slice of 32 floats (`chunks_exact_mut(LANES)`), which are 128 bytes.
            unsafe {
                let x = H::load(chunk.as_ptr());
                let y = match self.0 {
                    Exp => math::exp::<H>(x),
                    Sigmoid => math::sigmoid::<H>(x),
                    Silu => math::silu::<H>(x),
                    Ln1p => math::ln_1p::<H>(x),
                    Softplus => math::softplus::<H>(x),
                    Tanh => math::tanh::<H>(x),
                };
                H::store(chunk.as_mut_ptr(), y);
            }
        }
    }
}

/// Floats from `from` to `to` (which have one sign), both included: a vector's multiple, evenly over bit
/// patterns.
fn spread(from: f32, to: f32) -> Vec<f32> {
    spread_of::<{ 1 << 18 }>(from, to)
}

fn spread_of<const COUNT: u64>(from: f32, to: f32) -> Vec<f32> {
    assert_eq!(from.is_sign_negative(), to.is_sign_negative());
    let (low, high) = (from.to_bits().min(to.to_bits()), from.to_bits().max(to.to_bits()));
    let at = |i| low + (u64::from(high - low) * i / (COUNT - 1)) as u32;
    (0..COUNT).map(|i| f32::from_bits(at(i))).collect()
}

/// The distance between floats around `x`.
fn ulp(x: f64) -> f64 {
    let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
    2_f64.powi(exponent.max(-126) - 23)
}

#[test]
fn same_bits_on_every_back_end() {
    let mut values: Vec<f32> = edges().into_iter().map(f32::from_bits).collect();
    values.extend((0..1 << 18).map(|i: u32| f32::from_bits(i.wrapping_mul(0x9e37_79b9))));
    values.resize(values.len().next_multiple_of(LANES), 0.0);
    for function in [Exp, Sigmoid, Silu, Ln1p, Softplus, Tanh] {
        let want = function.apply(Isa::Portable, &values);
        for isa in Isa::available() {
            let got = function.apply(isa, &values);
            for ((x, got), want) in values.iter().zip(got).zip(&want) {
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(same, "{isa:?} {function:?}({x:e}): {got:e}, not {want:e}");
            }
        }
    }
}

/// The bounds that `math` states.
#[test]
fn within_the_stated_bounds() {
    let all: [(Function, f32, f32, f64); 12] = [
        (Exp, 0.0, 88.722_83, 1.0),
        (Exp, 80.0, 88.722_83, 1.0),
        (Exp, -0.0, -87.336_54, 1.0),
        (Sigmoid, 0.0, 1e30, 3.0),
        (Sigmoid, -0.0, -87.3, 3.0),
        (Silu, 0.0, 1e30, 4.0),
        (Silu, -0.0, -87.3, 4.0),
        (Ln1p, 0.0, 1e-3, 3.0),
        (Ln1p, 1e-3, 3.0, 3.0),
        (Ln1p, 3.0, 8.5e37, 3.0),
        (Softplus, 0.0, 1e30, 4.0),
        (Softplus, -0.0, -87.3, 4.0),
    ];
    for (function, from, to, bound) in all {
        let x = spread(from, to);
        for (x, got) in x.iter().zip(function.apply(Isa::detect(), &x)) {
            let want = function.exact(f64::from(*x));
            let error = (f64::from(got) - want).abs() / ulp(want);
            assert!(error <= bound, "{function:?}({x:e}): {got:e} is {error:.2} ulp from {want:e}");
        }
    }
    for (from, to) in [(0.0, 100.0), (-0.0, -100.0)] {
        let x = spread(from, to);
        for (x, got) in x.iter().zip(Tanh.apply(Isa::detect(), &x)) {
            let want = f64::from(*x).tanh();
            assert!((f64::from(got) - want).abs() <= 1.8e-7, "tanh({x:e}): {got:e}, not {want:e}");
        }
    }
}

/// Each operation is an ulp off there; what must be exact is, or errors were a hundred ulp far from zero.
#[test]
fn within_a_few_ulp_where_arithmetic_is_qfloat() {
    let all = [
        (Exp, 1e-3, 88.7, 6.0),
        (Exp, -1e-3, -87.3, 6.0),
        (Sigmoid, 1e-3, 80.0, 6.0),
        (Sigmoid, -1e-3, -80.0, 12.0),
        (Silu, 1e-3, 80.0, 8.0),
        (Silu, -1e-3, -80.0, 14.0),
        (Ln1p, 1e-3, 8.5e37, 8.0),
        (Softplus, 1e-3, 80.0, 12.0),
        (Softplus, -1e-3, -80.0, 16.0),
    ];
    for (function, from, to, bound) in all {
        let x = spread_of::<{ 1 << 12 }>(from, to);
        let mut y = x.clone();
        Apply(function, &mut y).with::<Qf32>();
        let worst = x.iter().zip(y).map(|(x, got)| {
            let want = function.exact(f64::from(*x));
            ((f64::from(got) - want).abs() / ulp(want), *x)
        });
        let worst = worst.fold((0.0, 0.0), |a, b| if a.0 > b.0 { a } else { b });
        assert!(worst.0 <= bound, "{function:?}({:e}) is {:.2} ulp off", worst.1, worst.0);
    }
}

#[test]
fn limits() {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let all = [
        (Exp, 0.0, 1.0),
        (Exp, INF, INF),
        (Exp, 88.722_84, INF),
        (Exp, -INF, 0.0),
        (Exp, -87.336_55, 0.0),
        (Exp, NAN, NAN),
        (Sigmoid, INF, 1.0),
        (Sigmoid, -INF, 0.0),
        (Sigmoid, f32::MIN, 0.0),
        (Sigmoid, 0.0, 0.5),
        (Sigmoid, NAN, NAN),
        (Silu, INF, INF),
        (Silu, f32::MAX, f32::MAX),
        (Silu, f32::MIN, -0.0),
        (Silu, -INF, NAN),
        (Silu, NAN, NAN),
        (Ln1p, 0.0, 0.0),
        (Ln1p, NAN, NAN),
        (Softplus, INF, INF),
        (Softplus, f32::MAX, f32::MAX),
        (Softplus, -INF, 0.0),
        (Softplus, f32::MIN, 0.0),
        (Softplus, NAN, NAN),
        (Tanh, INF, 1.0),
        (Tanh, -INF, -1.0),
        (Tanh, f32::MAX, 1.0),
        (Tanh, f32::MIN, -1.0),
        (Tanh, 0.0, 0.0),
        (Tanh, NAN, NAN),
    ];
    for (function, x, want) in all {
        for isa in Isa::available() {
            let got = function.apply(isa, &[x; LANES])[0];
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{isa:?} {function:?}({x:e}): {got:e}, not {want:e}");
        }
    }
}

use super::*;
use crate::hvx::portable::Portable;
use crate::hvx::qf32::Qf32;
use crate::hvx::{Isa, LANES, WithHvx};

type Exact = fn(f64) -> f64;

/// A function on vectors.
trait Function: Copy {
    fn of<H: Hvx>(x: H::F) -> H::F;
}

struct Apply<'a, F>(F, &'a mut [f32]);

impl<F: Function> WithHvx for Apply<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with<H: Hvx>(self) {
        for x in self.1.chunks_exact_mut(LANES) {
            // SAFETY: `x` is a slice of 32 floats (`chunks_exact_mut`).
            unsafe { H::store(x.as_mut_ptr(), F::of::<H>(H::load(x.as_ptr()))) };
        }
    }
}

macro_rules! functions {
    ($($name:ident: |$x:ident| $body:expr;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;

        impl Function for $name {
            #[inline(always)]
            fn of<H: Hvx>($x: H::F) -> H::F {
                $body
            }
        }
    )*};
}

functions! {
    Abs: |x| abs::<H>(x);
    Sgn: |x| sgn::<H>(x);
    Step: |x| step::<H>(x);
    Relu: |x| relu::<H>(x);
    Leaky: |x| leaky_relu::<H>(x, 0.1);
    Clamp: |x| clamp::<H>(x, -1.5, 2.5);
    Expm1: |x| expm1::<H>(x);
    Tanh: |x| tanh::<H>(x);
    Elu: |x| elu::<H>(x);
    Gelu: |x| gelu::<H>(x);
    Quick: |x| gelu_quick::<H>(x);
    Erf: |x| gelu_erf::<H>(x);
    HardSigmoid: |x| hard_sigmoid::<H>(x);
    HardSwish: |x| hard_swish::<H>(x);
    Trunc: |x| trunc::<H>(x);
    Floor: |x| floor::<H>(x);
    Ceil: |x| ceil::<H>(x);
    Round: |x| round::<H>(x);
    Sqrt: |x| sqrt::<H>(x);
    Log: |x| log::<H>(x);
    Sin: |x| sin::<H>(x);
    Cos: |x| cos::<H>(x);
    By3: |x| divide::<H>(x, H::splat(3.0));
    Of3: |x| divide::<H>(H::splat(3.0), x);
    OfInfinity: |x| divide::<H>(H::splat(f32::INFINITY), x);
}

/// The function with one division, and with that of a DSP and v73's arithmetic.
fn both<F: Function>(f: F, x: &[f32]) -> [Vec<f32>; 2] {
    let mut all = [x.to_vec(), x.to_vec()];
    let [portable, qf32] = &mut all;
    Apply(f, portable).with::<Portable>();
    Apply(f, qf32).with::<Qf32>();
    for isa in Isa::available() {
        let mut y = x.to_vec();
        isa.run(Apply(f, &mut y));
        let same =
            y.iter().zip(&all[0]).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()));
        assert!(same, "{isa:?}");
    }
    all
}

/// Values over a range, of all sizes in it.
fn values(largest: f32) -> Vec<f32> {
    let n = 1 << 12;
    let even = (0..n).map(|i| largest * (2.0 * i as f32 / n as f32 - 1.0));
    let sizes = (0..n).map(|i| {
        let size = largest * (-30.0 * i as f32 / n as f32).exp2();
        if i % 2 == 0 { size } else { -size }
    });
    even.chain(sizes).collect()
}

/// Holds a function against the exact one: `ulp` last places off at most, or `least` where that is more.
fn check<F: Function>(name: &str, f: F, exact: Exact, x: &[f32], ulp: f64, least: f64) {
    for y in both(f, x) {
        for (&x, y) in x.iter().zip(y) {
            let want = exact(x.into());
            let place = (want.abs() * (-23f64).exp2()).max(f64::from(f32::from_bits(1)));
            let fits = if want.is_nan() {
                y.is_nan()
            } else {
                (f64::from(y) - want).abs() <= (ulp * place).max(least) || f64::from(y) == want
            };
            assert!(fits, "{name}({x:e}): {y:e}, not {want:e}");
        }
    }
}

/// erf by its series or its continued fraction.
fn erf(x: f64) -> f64 {
    let z = x.abs();
    let size = if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..80 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..60).rev().fold(z, |below, n| z + f64::from(n) / 2.0 / below);
        1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt())
    };
    size.copysign(x)
}

#[test]
fn values_are_those_of_f64() {
    let x = values(20.0);
    check("expm1", Expm1, f64::exp_m1, &x, 6.0, 0.0);
    check("tanh", Tanh, f64::tanh, &x, 8.0, 0.0);
    check("elu", Elu, |x| if x > 0.0 { x } else { x.exp_m1() }, &x, 6.0, 0.0);
    let gelu =
        |x: f64| x / (1.0 + (-2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).exp());
    check("gelu", Gelu, gelu, &x, 16.0, 2e-6);
    check("gelu_quick", Quick, |x| x / (1.0 + (-1.702 * x).exp()), &x, 16.0, 1e-6);
    check("gelu_erf", Erf, |x| x / 2.0 * (1.0 + erf(x / 2f64.sqrt())), &x, 8.0, 1e-6);
    check("hardsigmoid", HardSigmoid, |x| ((x + 3.0) / 6.0).clamp(0.0, 1.0), &x, 6.0, 0.0);
    check("hardswish", HardSwish, |x| x * ((x + 3.0) / 6.0).clamp(0.0, 1.0), &x, 8.0, 0.0);
    check("leaky_relu", Leaky, |x| if x > 0.0 { x } else { f64::from(0.1f32) * x }, &x, 1.0, 0.0);
    check("sin", Sin, f64::sin, &x, 0.0, 1e-7);
    check("cos", Cos, f64::cos, &x, 0.0, 1e-7);
    let sizes: Vec<_> = values(1e30).into_iter().chain(values(3.0)).map(f32::abs).collect();
    check("sqrt", Sqrt, f64::sqrt, &sizes, 1.5, 0.0);
    check("log", Log, f64::ln, &sizes, 4.0, 6e-8);
    check("x / 3", By3, |x| x / 3.0, &values(f32::MAX), 4.0, 0.0);
    check("3 / x", Of3, |x| 3.0 / x, &values(1e20), 4.0, 0.0);
    check("3 / x", Of3, |x| 3.0 / x, &values(1e-20), 4.0, 0.0);
}

#[test]
fn these_are_exact() {
    let mut x = values(1e8);
    x.extend(values(4.0));
    x.extend((0..64).map(|i| 0.5 * (i - 32) as f32));
    x.extend([0.499_999_97, -0.499_999_97, 8_388_607.5, -8_388_607.5, 4_194_303.5, 0.0, -0.0, f32::INFINITY]);
    x.resize(x.len().next_multiple_of(LANES), f32::NEG_INFINITY);
    check("abs", Abs, f64::abs, &x, 0.0, 0.0);
    check("sgn", Sgn, |x| if x == 0.0 { 0.0 } else { x.signum() }, &x, 0.0, 0.0);
    check("step", Step, |x| f64::from(u8::from(x > 0.0)), &x, 0.0, 0.0);
    check("relu", Relu, |x| x.max(0.0), &x, 0.0, 0.0);
    check("clamp", Clamp, |x| x.clamp(-1.5, 2.5), &x, 0.0, 0.0);
    check("trunc", Trunc, f64::trunc, &x, 0.0, 0.0);
    check("floor", Floor, f64::floor, &x, 0.0, 0.0);
    check("ceil", Ceil, f64::ceil, &x, 0.0, 0.0);
    check("round", Round, f64::round, &x, 0.0, 0.0);
}

#[test]
fn limits() {
    let mut x = vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-40, -1e-40];
    x.resize(LANES, -1.0);
    check("expm1", Expm1, f64::exp_m1, &x, 6.0, 0.0);
    check("tanh", Tanh, f64::tanh, &x, 8.0, 0.0);
    check("log", Log, f64::ln, &x, 4.0, 0.0);
    check("sqrt", Sqrt, f64::sqrt, &[0.0; LANES], 0.0, 0.0);
    check("sqrt", Sqrt, f64::sqrt, &[-1.0; LANES], 0.0, 0.0);
    check("sqrt", Sqrt, f64::sqrt, &[f32::INFINITY; LANES], 0.0, 0.0);
    check("sqrt", Sqrt, f64::sqrt, &[f32::NAN; LANES], 0.0, 0.0);
    check("clamp", Clamp, |x| x.clamp(-1.5, 2.5), &x, 0.0, 0.0);
    check("floor", Floor, f64::floor, &x, 0.0, 0.0);
    check("round", Round, f64::round, &x, 0.0, 0.0);
    let beyond = |x: f64| if x.abs() > 1_048_576.0 { f64::NAN } else { x.sin() };
    check("sin", Sin, beyond, &x, 0.0, 1e-7);
    check("x / 3", By3, |x| x / 3.0, &x, 4.0, 0.0);
    check(
        "3 / x",
        Of3,
        |x| 3.0 / x,
        &x[..6].iter().chain(&[1e38; 26]).copied().collect::<Vec<_>>(),
        4.0,
        0.0,
    );
    let infinite = |x: f64| f64::INFINITY / x;
    check("inf / x", OfInfinity, infinite, &x, 0.0, 0.0);
}

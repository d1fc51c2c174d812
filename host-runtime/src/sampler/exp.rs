//! The exponential function, the same to the last bit everywhere.
//!
//! The platform's `exp` differs between C libraries in the last place, which is enough to sample another
//! token from the same seed. This one uses IEEE additions and multiplications only, and those are exact
//! specifications. A few nanoseconds a call.

use std::f64::consts::LN_2;

/// Below this the result is so small that it cannot be sampled.
const UNDERFLOW: f64 = -700.0;
/// Terms of the series; the last one is below half a unit in the last place for |r| ≤ ln 2 / 2.
const TERMS: usize = 13;
/// Reciprocals of the factorials, so that the loop needs no division.
const RECIPROCALS: [f64; TERMS + 1] = {
    let mut list = [1.0; TERMS + 1];
    let (mut factorial, mut n) = (1.0, 1);
    while n <= TERMS {
        factorial *= n as f64;
        list[n] = 1.0 / factorial;
        n += 1;
    }
    list
};

/// e to the power of `x`, for `x` ≤ 0; 0 for very negative `x`.
pub(super) fn exp_nonpositive(x: f64) -> f64 {
    if x < UNDERFLOW {
        return 0.0;
    }
    // x = k ln 2 + r. Rounding is done by hand: a library's `round` may be a libm call.
    let k = (x / LN_2 - 0.5) as i64;
    let r = x - k as f64 * LN_2;
    // Horner's form of the Taylor series, innermost term first.
    let sum = RECIPROCALS.iter().rev().fold(0.0, |sum, reciprocal| sum * r + reciprocal);
    // 2^k by its bit pattern; UNDERFLOW keeps k above -1022.
    sum * f64::from_bits(((1023 + k) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_librarys() {
        for i in 0..100_000 {
            let x = -f64::from(i) * 0.006_9;
            let (got, expected) = (exp_nonpositive(x), x.exp());
            assert!((got - expected).abs() <= 1e-13 * expected, "exp({x}) = {got}, not {expected}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(exp_nonpositive(0.0), 1.0);
        assert_eq!(exp_nonpositive(-0.0), 1.0);
        assert_eq!(exp_nonpositive(-1e9), 0.0);
        assert_eq!(exp_nonpositive(f64::NEG_INFINITY), 0.0);
        assert!(exp_nonpositive(-700.0) > 0.0);
    }

    #[test]
    fn pinned_bits() {
        let bits: Vec<u64> = [-0.1, -1.0, -20.5].map(|x| exp_nonpositive(x).to_bits()).into();
        assert_eq!(bits, [0x3fec_f46d_99d5_2b3a, 0x3fd7_8b56_362c_ef38, 0x3e15_7a3a_feed_00a6]);
    }
}

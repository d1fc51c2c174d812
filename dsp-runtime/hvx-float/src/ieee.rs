//! IEEE formats: rounding to them, and the arithmetic of instructions whose results are theirs.
//!
//! Ties round to even, subnormals count in full, and there is one NaN, whose bits are all ones but the sign.

/// An interchange format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the fraction field.
    pub fraction: i32,
    /// Bits of the exponent field.
    pub exponent_bits: i32,
}

/// Single precision.
pub const SF: Format = Format { fraction: 23, exponent_bits: 8 };
/// Half precision.
pub const HF: Format = Format { fraction: 10, exponent_bits: 5 };
/// The upper half of a single.
pub const BF: Format = Format { fraction: 7, exponent_bits: 8 };

/// What bits of a format mean; the sign is apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// No number.
    Nan,
    /// Infinity.
    Infinite,
    /// significand * 2^(exponent - fraction); the exponent of subnormals is that of the smallest normal
    /// number.
    Finite {
        /// With the leading one, where there is one.
        significand: u32,
        /// Of the leading one's place.
        exponent: i32,
    },
}

impl Format {
    /// What is added to exponents.
    pub const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The sign bit.
    pub const fn sign(self) -> u32 {
        1 << (self.fraction + self.exponent_bits)
    }

    /// Infinity.
    pub const fn infinity(self) -> u32 {
        self.sign() - (1 << self.fraction)
    }

    /// The NaN of results.
    pub const fn nan(self) -> u32 {
        self.sign() - 1
    }

    /// Whether the sign bit is set.
    pub const fn is_negative(self, bits: u32) -> bool {
        bits & self.sign() != 0
    }

    /// Whether this is no number.
    pub const fn is_nan(self, bits: u32) -> bool {
        bits & self.nan() > self.infinity()
    }

    /// What the bits mean without their sign, infinities and NaN taken for ordinary numbers.
    pub const fn number(self, bits: u32) -> (u32, i32) {
        let leading = 1 << self.fraction;
        let (field, fraction) = ((bits & self.nan()) / leading, bits % leading);
        if field == 0 {
            (fraction, 1 - self.bias())
        } else {
            (fraction + leading, field as i32 - self.bias())
        }
    }

    /// What the bits mean without their sign.
    pub const fn size(self, bits: u32) -> Size {
        if self.is_nan(bits) {
            return Size::Nan;
        }
        if bits & self.nan() == self.infinity() {
            return Size::Infinite;
        }
        let (significand, exponent) = self.number(bits);
        Size::Finite { significand, exponent }
    }

    /// The nearest number to magnitude * 2^place as bits without a sign. Exponents have no end: what is too
    /// large for the format comes out above [`Format::infinity`].
    #[inline]
    pub fn nearest(self, magnitude: u128, place: i32) -> u64 {
        let Some(leading) = magnitude.checked_ilog2() else { return 0 };
        let smallest = 1 - self.bias();
        let exponent = (leading as i32 + place).max(smallest);
        let drop = exponent - self.fraction - place;
        let significand = if drop <= 0 {
            magnitude << -drop
        } else if drop >= 128 {
            0
        } else {
            let (whole, half) = (magnitude >> drop, 1u128 << (drop - 1));
            let rest = magnitude - (whole << drop);
            whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
        };
        // A leading one, if there is one, adds one to the exponent's field.
        (((exponent - smallest) as u64) << self.fraction) + significand as u64
    }

    /// The same as bits of the format; infinity where it is too large.
    pub fn rounded(self, negative: bool, magnitude: u128, place: i32) -> u32 {
        let bits = self.nearest(magnitude, place).min(self.infinity().into()) as u32;
        bits | if negative { self.sign() } else { 0 }
    }

    /// Rounds a double, which must be an exact result.
    pub fn of_f64(self, x: f64) -> u32 {
        if x.is_nan() {
            return self.nan();
        }
        let bits = x.to_bits();
        let (field, fraction) = ((bits >> 52 & 0x7ff) as i32, u128::from(bits & ((1 << 52) - 1)));
        match field {
            0x7ff => self.infinity() | if x.is_sign_negative() { self.sign() } else { 0 },
            0 => self.rounded(x.is_sign_negative(), fraction, -1074),
            _ => self.rounded(x.is_sign_negative(), fraction | 1 << 52, field - 1075),
        }
    }

    /// As a double: exact.
    pub fn to_f64(self, bits: u32) -> f64 {
        let size = match self.size(bits) {
            Size::Nan => f64::NAN,
            Size::Infinite => f64::INFINITY,
            Size::Finite { significand, exponent } => {
                f64::from(significand) * power_of_two(exponent - self.fraction)
            }
        };
        if self.is_negative(bits) { -size } else { size }
    }

    /// Where a number is in the order of sizes and signs: NaN beyond infinity, both zeros in one place.
    pub const fn place(self, bits: u32) -> i64 {
        let size = (bits & self.nan()) as i64;
        if self.is_negative(bits) { -size } else { size }
    }
}

/// 2^n, for n of normal doubles.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The bits of a single, all NaN being one.
pub fn single(x: f32) -> u32 {
    if x.is_nan() { SF.nan() } else { x.to_bits() }
}

/// c + a * b, rounded once to half precision.
pub fn fused_half(c: u32, a: u32, b: u32) -> u32 {
    let (product, c) = (HF.to_f64(a) * HF.to_f64(b), HF.to_f64(c));
    HF.of_f64(sum_to_odd(product, c))
}

/// a + b; the last bit is set where the sum is not exact, so that it rounds as the exact sum does in formats
/// with fewer bits.
fn sum_to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() || sum == 0.0 {
        return sum;
    }
    // What the sum has lost, exactly.
    let of_b = sum - a;
    let lost = (a - (sum - of_b)) + (b - of_b);
    if lost == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // Towards the exact sum the next number is odd.
    let outwards = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if outwards { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// The sum of two products of halves and a single, rounded once to single precision. Where a term is
/// infinite or zero, it is two sums of singles: first that of the products.
pub fn dot_single(acc: u32, even: (u32, u32), odd: (u32, u32)) -> u32 {
    // Products of halves are exact in single precision.
    let product = |(a, b)| (HF.to_f64(a) * HF.to_f64(b)) as f32;
    let (even, odd, acc) = (product(even), product(odd), f32::from_bits(acc));
    if [even, odd, acc].iter().any(|x| *x == 0.0 || !x.is_finite()) {
        return single((odd + even) + acc);
    }
    // In units of 2^-48, of which products are multiples.
    let units = |x: f32| (f64::from(x) * power_of_two(48)) as i128;
    let products = units(even) + units(odd);
    let (significand, exponent) = SF.number(acc.to_bits());
    let place = exponent - SF.fraction;
    let significand = if acc < 0.0 { -i128::from(significand) } else { significand.into() };
    // The products' sum is below 2^33. It does not change what is beyond 2^70, and it is at least 2^-48.
    let (sum, unit) = if products == 0 || place > 46 {
        (significand, place)
    } else if place >= -48 {
        (products + (significand << (place + 48)), -48)
    } else if place >= -90 {
        ((products << 42) + (significand << (place + 90)), -90)
    } else {
        ((products << 42) + crate::shift_to_odd(significand, (-90 - place) as u32), -90)
    };
    SF.rounded(sum < 0, sum.unsigned_abs(), unit)
}

extern crate std;

use std::vec::Vec;

use super::*;

/// A generator of Knuth's (The Art of Computer Programming, volume 2, 3.3.4).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

fn sum(generation: Generation, a: &[u16], w: &[u16]) -> Accumulator {
    let halves = |bits: &[u16]| bits.iter().map(|&bits| Half::new(bits)).collect::<Vec<_>>();
    let (a, w) = (halves(a), halves(w));
    let mut acc = Accumulator::EMPTY;
    for (a, w) in a.chunks(generation.group()).zip(w.chunks(generation.group())) {
        acc.add(generation, a, w);
    }
    acc
}

const ONE: u16 = 0x3c00;

fn stored(generation: Generation, a: &[u16], w: &[u16]) -> u16 {
    sum(generation, a, w).store(Half::new(ONE), Half::new(0))
}

/// The half's value, with exponent 31 for numbers.
fn value(bits: u16) -> f64 {
    let half = Half::new(bits);
    f64::from(half.significand) * power(half.exponent - 10)
}

fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[test]
fn every_half_is_itself_times_one() {
    for generation in [Generation::V73, Generation::V75] {
        for bits in 0..=u16::MAX {
            let want = if bits == 0x8000 { 0 } else { bits };
            assert_eq!(stored(generation, &[bits], &[ONE]), want, "{bits:04x}");
        }
    }
}

/// Values that follow from the format, some of them published.
#[test]
fn edges() {
    for generation in [Generation::V73, Generation::V75] {
        let is =
            |a: &[u16], w: &[u16], want: u16| assert_eq!(stored(generation, a, w), want, "{a:04x?} {w:04x?}");
        // 300 * 300 has exponent 31, 32 times that is too large.
        is(&[0x5cb0], &[0x5cb0], 0x7d7e);
        is(&[0x5cb0; 32], &[0x5cb0; 32], 0x7fff);
        is(&[0x5cb0; 32], &[0xdcb0; 32], 0xffff);
        // Codes of infinity and NaN are 65536 and more.
        is(&[0x7c00], &[0x3400], 0x7400);
        is(&[0x7fff], &[ONE], 0x7fff);
        // 2049 and 2051 lie between two halves.
        is(&[0x6800, ONE], &[ONE, ONE], 0x6800);
        is(&[0x6800, 0x4200], &[ONE, ONE], 0x6802);
        // A little more than 2049, however little: within a group, in a later one, and where a store drops
        // it.
        is(&[0x6800, ONE, 0x1400], &[ONE, ONE, 0x1400], 0x6801);
        is(&[0x6800, ONE, 0, 0, 0, 0, 0, 0, 0x1400], &[ONE, ONE, 0, 0, 0, 0, 0, 0, 0x1400], 0x6801);
        is(&[0x6800, ONE, 0x2800], &[ONE, ONE, ONE], 0x6801);
        // And a little less than 2051, which lies between two halves as well.
        is(&[0x6800, 0x4200, 0x9400], &[ONE, ONE, 0x1400], 0x6801);
        // The smallest half, and what is half of it or a little more.
        is(&[1], &[ONE], 1);
        is(&[1], &[0x3800], 0);
        is(&[1], &[0xb800], 0x8000);
        is(&[1], &[0x3a00], 1);
        // What is left where the large ones cancel.
        is(&[0x63d0, 0xe3d0, 0x1400], &[ONE, ONE, ONE], 0x1400);
    }
    let scaled =
        |scale, bias| sum(Generation::V75, &[0x4500], &[ONE]).store(Half::new(scale), Half::new(bias));
    assert_eq!(scaled(0x3800, 0xc400), 0xbe00); // 5 * 0.5 - 4
    assert_eq!(scaled(ONE, 0xc500), 0);
    assert_eq!(scaled(0, 0xc500), 0xc500);
    assert_eq!(scaled(0x0001, ONE), ONE); // 1 + 5 * 2^-24
    assert_eq!(scaled(0x7bff, 0x0001), 0x7fff);
}

/// The count is right or one less, and never so large that a shift by it would change the sign.
#[test]
fn the_anticipated_shift_keeps_the_sign() {
    const WIDTH: u32 = 8;
    let limit = 1_i32 << (WIDTH - 2);
    for a in -limit..limit {
        for b in -limit..limit {
            let sum = a + b;
            let copies = if sum < 0 { !sum } else { sum }.leading_zeros() as i32 - (33 - WIDTH as i32);
            let count = anticipate(a, b, WIDTH);
            assert!((copies - 1..=copies).contains(&count), "{a} + {b}: {count}, not {copies}");
        }
    }
}

/// The exact sum, and that of |a| * |w|. Products of halves are exact in f64, and so are sums here: of
/// numbers with 22 bits whose exponents are not far apart.
fn exact(a: &[u16], w: &[u16]) -> (f64, f64) {
    let products = a.iter().zip(w).map(|(&a, &w)| value(a) * value(w));
    products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()))
}

/// Each step of a group of g products is off by less than (g + 3) units: g - 1 from aligning the products,
/// one from aligning sum and accumulator, one from the last bit of their sum, which moves up, and where the
/// sum is shifted right one of twice the size. A unit is 2^-22 of the step's exponent, which is at most a
/// quarter of S = sum of |a| |w|: that is so for each product (two significands of at least 1 count as one
/// of at least 4), and the exponent e rises only where the sum is 2^(e + 5) or more. So K / g steps
/// are off by less than (K / g) (g + 3) 2^-24 S. A store rounds to 11 bits, or to 2^-25 among subnormals.
#[test]
fn sums_are_within_the_derived_bound() {
    let mut random = Random(1);
    for generation in [Generation::V73, Generation::V75] {
        let g = generation.group();
        let mut worst = 0.0_f64;
        for round in 0..40_000 {
            let k = g * (1 + random.next() as usize % (128 / g));
            // Exponents of all sizes, of few sizes, and pairs that cancel.
            let narrow = round % 3 != 0;
            let mut half = || {
                let bits = random.next() as u16;
                if narrow { bits & 0x83ff | (0x3400 + (bits >> 2 & 0x0c00)) } else { bits & 0xbfff | 0x1000 }
            };
            let (mut a, mut w): (Vec<_>, Vec<_>) = (0..k).map(|_| (half(), half())).unzip();
            if round % 5 == 0 {
                for i in (1..k).step_by(2) {
                    (a[i], w[i]) = (a[i - 1] ^ 0x8000, w[i - 1]);
                }
            }
            let acc = sum(generation, &a, &w);
            let (want, size) = exact(&a, &w);
            let (significand, exponent) = acc.value();
            let error = (f64::from(significand) * power(exponent) - want).abs();
            let bound = (k / g * (g + 3)) as f64 * power(-24) * size;
            assert!(error <= bound, "{generation:?}: {error:e} over {bound:e} of {a:04x?} {w:04x?}");
            worst = worst.max(error / bound);
            let half = value(acc.store(Half::new(ONE), Half::new(0)));
            let rounded = want.abs().max(error) * power(-11) * 1.25 + power(-25);
            if want.abs() < 65504.0 {
                assert!((half - want).abs() <= bound + rounded, "{generation:?}: {half} for {want}");
            }
        }
        // The bound is one: sums come near it, by an order of magnitude.
        assert!(worst > 0.05, "{generation:?}: {worst}");
    }
}

/// A zero product changes nothing, and neither does a group of them.
#[test]
fn zeros_change_nothing() {
    let mut random = Random(2);
    for generation in [Generation::V73, Generation::V75] {
        for _ in 0..1000 {
            let mut half = || random.next() as u16;
            let (a, w): (Vec<_>, Vec<_>) = (0..8).map(|_| (half(), half())).unzip();
            let before = sum(generation, &a, &w);
            let mut after = before;
            after.add(generation, &[Half::new(0); 4], &[Half::new(w[0]); 4]);
            after.add(generation, &[Half::new(a[0]); 4], &[Half::new(0x8000); 4]);
            assert_eq!(after, before);
        }
    }
}

/// A row has the sums that single accumulators have, also where all products of a group are zero.
#[test]
fn rows_of_sums_are_sums() {
    let mut random = Random(7);
    for generation in [Generation::V73, Generation::V75] {
        for case in 0..400 {
            // Halves of all sizes, or of about the same size so that they cancel; every eighth is zero.
            let mut half = || {
                let word = random.next();
                let bits = if case % 2 == 0 { word as u16 } else { word as u16 & 0x8fff | 0x3000 };
                if word >> 29 == 0 { Half::new(bits & 0x8000) } else { Half::new(bits) }
            };
            let mut row = Row::EMPTY;
            let mut sums = [Accumulator::EMPTY; SIDE];
            for group in 0..6 {
                let group_of_zeros = group == case % 8;
                let a: Vec<Half> = (0..generation.group())
                    .map(|_| if group_of_zeros { Half::new(0) } else { half() })
                    .collect();
                let w: Vec<[Half; SIDE]> =
                    (0..generation.group()).map(|_| std::array::from_fn(|_| half())).collect();
                let side_by_side: Vec<Halves> = w.iter().map(|w| Halves::of(|n| w[n])).collect();
                row.add(generation, &a, &side_by_side);
                for (n, sum) in sums.iter_mut().enumerate() {
                    let column: Vec<Half> = w.iter().map(|w| w[n]).collect();
                    sum.add(generation, &a, &column);
                    assert_eq!(row.sum(n), *sum, "{generation:?}, case {case}, group {group}, column {n}");
                }
            }
        }
    }
}

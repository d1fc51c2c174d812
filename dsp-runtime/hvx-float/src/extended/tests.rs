use super::*;
use crate::ieee::SF;

fn word(bits: u32, beside: u32) -> Number {
    QF32.number(Lane { bits, beside })
}

fn single(x: f32) -> Number {
    Number::ieee(SF, x.to_bits())
}

/// What the vendor's simulator is said to give, and so published with tests of emulators.
#[test]
fn words_are_those_that_were_published() {
    let default = |bits| word(bits, DEFAULT);
    let all_ones = default(0xffff_ffff);
    let small = default(0xffff_ff80);
    for (got, bits, beside) in [
        (QF32.product(all_ones, all_ones), 0x0000_007f, 0x1),
        (QF32.sum(default(0xfde1_d91d), small.negated()), 0x7fff_ff68, 0xe),
        (QF32.sum(all_ones, small.negated()), 0x8000_00e7, 0x3),
        (QF32.sum(word(0xffff_ff80, 0xf), small.negated()), 0x0000_0080, 0x7),
    ] {
        assert_eq!(got, Lane { bits, beside }, "{got:x?}");
    }
}

/// What follows from the format.
#[test]
fn sums_and_products_follow_the_rules() {
    let float = f32::from_bits;
    for (operation, a, b, bits, beside) in [
        ('+', 1.0, 0.0, 0x4000_007f, 0x2),
        ('+', -1.0, 0.0, 0x8000_007e, 0x2),
        ('*', 1.0, 1.0, 0x4000_007f, 0x2),
        ('*', 1.0, -1.0, 0xbfff_ff7f, 0xf),
        ('+', 0.0, 0.0, 0x0000_0001, 0x2),
        ('+', -0.0, -0.0, 0xffff_ff01, 0xf),
        ('+', 1.0, -1.0, 0x0000_007f, 0x2),
        ('*', 0.0, 1.0, 0x0000_0080, 0x0),
        ('*', 0.0, -1.0, 0xffff_ff80, 0xd),
        ('+', float(2), 0.0, 0x0000_0101, 0x2),
        ('*', f32::INFINITY, 1.0, 0x7fff_ff7f, 0x8),
        ('+', float(0x7fc0_0000), 1.0, 0x7fff_ff7f, 0xd),
        ('+', f32::INFINITY, f32::NEG_INFINITY, 0x7fff_ff7f, 0xd),
    ] {
        let (x, y) = (single(a), single(b));
        let got = if operation == '+' { QF32.sum(x, y) } else { QF32.product(x, y) };
        assert_eq!(got, Lane { bits, beside }, "{a:e} {operation} {b:e}: {got:x?}");
    }
}

/// Sums of singles are those of IEEE, and so are products of singles that are not subnormal.
#[test]
fn results_are_those_of_ieee() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 ^ (state >> 40) as u32
    };
    let close = |x: u32| x & 0x807f_ffff | (120 + (x >> 24 & 15)) << 23;
    for i in 0..20_000 {
        let (a, b) = (random(), random());
        let [a, b] = if i % 2 == 0 { [a, b] } else { [close(a), close(b)] }.map(f32::from_bits);
        let same = |lane, expected: f32, what| {
            let got = QF32.number(lane).to_ieee(SF);
            assert_eq!(got & SF.nan(), crate::ieee::single(expected) & SF.nan(), "{a:e} {what} {b:e}");
        };
        same(QF32.sum(single(a), single(b)), a + b, '+');
        if a.is_normal() && b.is_normal() {
            same(QF32.product(single(a), single(b)), a * b, '*');
        }
    }
}

use super::*;
use crate::ieee::{HF, SF};

fn single(x: f32) -> Number {
    Number::ieee(SF, x.to_bits())
}

/// What the vendor's simulator is said to give, and so published with tests of emulators.
#[test]
fn words_are_those_that_were_published() {
    let all_ones = QF32.number(0xffff_ffff);
    assert_eq!(QF32.product(all_ones, all_ones), 0x7fff_ffff);
    assert_eq!(QF32.sum(QF32.number(0xfde1_d91d), QF32.number(0xffff_ff80).negated()), 0x3fff_ff69);
    assert_eq!([0x4a77, 0x7c7b].map(|half| QF16.number(half).to_ieee(HF)), [0x5ca7, 0x6fc7]);
}

/// Operations on singles: the word, and the single that it is converted to.
#[test]
fn sums_and_products_follow_the_rules() {
    let float = f32::from_bits;
    for (operation, a, b, word, as_single) in [
        ('+', 1.0, 0.0, 0x4000_007f, 0x3f80_0001),
        ('*', 1.0, 1.0, 0x4000_007f, 0x3f80_0001),
        ('*', 1.0, -1.0, 0xbfff_ff7f, 0xbf80_0001),
        ('-', 1.0, 1.0, 0x0000_0000, 0x0000_0000),
        ('*', 0.0, -1.0, 0xffff_ff00, 0x8000_0000),
        ('+', 3.0, 0.0, 0x6000_0080, 0x4040_0001),
        ('*', 3.0, 5.0, 0x7800_0082, 0x4170_0001),
        ('*', f32::MAX, 2.0, 0x7fff_ffff, 0x7fff_ffff),
        ('+', f32::MAX, 0.0, 0x7fff_fffe, 0x7f7f_ffff),
        ('+', f32::INFINITY, 0.0, 0x4000_00ff, 0x7f80_0001),
        ('+', float(0x7fc0_0000), 0.0, 0x6000_00ff, 0x7fc0_0001),
        ('+', float(1), 0.0, 0x0000_0001, 0x0000_0001),
        ('+', float(4), 0.0, 0x0000_0201, 0x0000_0005),
    ] {
        let (x, y) = (single(a), single(b));
        let got = match operation {
            '+' => QF32.sum(x, y),
            '-' => QF32.sum(x, y.negated()),
            _ => QF32.product(x, y),
        };
        let converted = QF32.number(got).to_ieee(SF);
        assert_eq!((got, converted), (word, as_single), "{a:e} {operation} {b:e}: {got:08x}");
    }
}

/// The same with halves.
#[test]
fn halves_follow_the_rules() {
    let half = |bits| Number::ieee(HF, bits);
    let sum = QF16.sum(half(0x3c00), half(0));
    assert_eq!((sum, QF16.number(sum).to_ieee(HF)), (0x400f, 0x3c01));
    let product = QF16.product(half(0x7bff), half(0x4000));
    assert_eq!(QF16.number(product).to_ieee(HF), 0x7fff);
}

/// Against double precision. Words need not be normalised, which costs a bit of a sum of them.
#[test]
fn an_operation_is_within_an_ulp_of_the_largest_number_in_it() {
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Exponents between 2^-8 and 2^7, so that sums cancel often.
        f32::from_bits((state & 0x807f_ffff) | (119 + (state >> 24 & 15)) << 23)
    };
    let number = |word| QF32.number(word);
    let value = |word| f64::from(f32::from_bits(number(word).to_ieee(SF)));
    for _ in 0..20_000 {
        let (a, b) = (random(), random());
        let (x, y) = (single(a), single(b));
        let (ab, bb) = (QF32.product(x, y), QF32.product(y, y));
        for (got, want, ulp) in [
            (QF32.sum(x, y), f64::from(a) + f64::from(b), 1.0),
            (QF32.sum(x, y.negated()), f64::from(a) - f64::from(b), 1.0),
            (ab, f64::from(a) * f64::from(b), 1.0),
            (QF32.sum(number(ab), x), value(ab) + f64::from(a), 2.0),
            (QF32.sum(number(ab), number(bb)), value(ab) + value(bb), 2.0),
        ] {
            let largest =
                [a, b, a * b, b * b].map(|x| f64::from(x.abs())).into_iter().fold(want.abs(), f64::max);
            let error = (value(got) - want).abs();
            assert!(error <= ulp * largest * 2f64.powi(-23), "{a:e} and {b:e}: {got:08x} is not {want:e}");
        }
    }
}

use super::*;

/// What the vendor's simulator is said to give, and so published with tests of emulators.
#[test]
fn words_are_those_that_were_published() {
    let all_ones = Number::qf(0xffff_ffff);
    assert_eq!(product(all_ones, all_ones), 0x7fff_ffff);
    assert_eq!(sum(Number::qf(0xfde1_d91d), Number::qf(0xffff_ff80).negated()), 0x3fff_ff69);
}

/// Operations on singles: the word, and the single that it is converted to.
#[test]
fn sums_and_products_follow_the_rules() {
    type Operation = fn(f32, f32) -> u32;
    let (add, sub, mul): (Operation, Operation, Operation) = (add_singles, sub_singles, mul_singles);
    let float = f32::from_bits;
    for (operation, a, b, word, as_single) in [
        (add, 1.0, 0.0, 0x4000_007f, 0x3f80_0001),
        (mul, 1.0, 1.0, 0x4000_007f, 0x3f80_0001),
        (mul, 1.0, -1.0, 0xbfff_ff7f, 0xbf80_0001),
        (sub, 1.0, 1.0, 0x0000_0000, 0x0000_0000),
        (mul, 0.0, -1.0, 0xffff_ff00, 0x8000_0000),
        (add, 3.0, 0.0, 0x6000_0080, 0x4040_0001),
        (mul, 3.0, 5.0, 0x7800_0082, 0x4170_0001),
        (mul, f32::MAX, 2.0, 0x7fff_ffff, 0x7fff_ffff),
        (add, f32::MAX, 0.0, 0x7fff_fffe, 0x7f7f_ffff),
        (add, f32::INFINITY, 0.0, 0x4000_00ff, 0x7f80_0001),
        (add, float(0x7fc0_0000), 0.0, 0x6000_00ff, 0x7fc0_0001),
        (add, float(1), 0.0, 0x0000_0001, 0x0000_0001),
        (add, float(4), 0.0, 0x0000_0201, 0x0000_0005),
    ] {
        let got = operation(a, b);
        assert_eq!((got, single(got).to_bits()), (word, as_single), "{a:e} and {b:e}: {got:08x}");
    }
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
    for _ in 0..20_000 {
        let (a, b) = (random(), random());
        let (ab, bb) = (mul_singles(a, b), mul_singles(b, b));
        for (got, want, ulp) in [
            (add_singles(a, b), f64::from(a) + f64::from(b), 1.0),
            (sub_singles(a, b), f64::from(a) - f64::from(b), 1.0),
            (mul_singles(a, b), f64::from(a) * f64::from(b), 1.0),
            (add_mixed(ab, a), f64::from(single(ab)) + f64::from(a), 2.0),
            (add_words(ab, bb), f64::from(single(ab)) + f64::from(single(bb)), 2.0),
        ] {
            let largest =
                [a, b, a * b, b * b].map(|x| f64::from(x.abs())).into_iter().fold(want.abs(), f64::max);
            let error = (f64::from(single(got)) - want).abs();
            assert!(error <= ulp * largest * 2f64.powi(-23), "{a:e} and {b:e}: {got:08x} is not {want:e}");
        }
    }
}

/// Why sums that must be exact are asked for by name.
#[test]
fn adding_nothing_changes_a_power_of_two() {
    let (one, zero) = (Qf32::splat(1.0), Qf32::splat(0.0));
    let bits = |x: <Qf32 as Hvx>::F| x.0[0].to_bits();
    assert_ne!(bits(Qf32::add(one, zero)), bits(one));
    assert_ne!(bits(Qf32::mul(one, one)), bits(one));
    assert_eq!(bits(Qf32::add_ieee(one, zero)), bits(one));
}

use super::*;

/// Why sums that must be exact are asked for by name.
#[test]
fn adding_nothing_changes_a_power_of_two() {
    let (one, zero) = (Qf32::splat(1.0), Qf32::splat(0.0));
    let bits = |x: <Qf32 as Hvx>::F| x.0[0].to_bits();
    assert_ne!(bits(Qf32::add(one, zero)), bits(one));
    assert_ne!(bits(Qf32::mul(one, one)), bits(one));
    assert_eq!(bits(Qf32::add_ieee(one, zero)), bits(one));
}

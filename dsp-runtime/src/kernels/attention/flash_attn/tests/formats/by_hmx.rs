//! Caches of Q8_0 under the matrix unit.

use super::*;
use crate::plan::Units;

const FAST: Case =
    Case { formats: (DType::Q8_0Cache, DType::Q8_0Cache), fast: true, past: 75, tokens: 40, ..CASE };

/// VTCM as a DSP has it.
fn large(setup: Setup) -> Setup {
    Setup { vtcm_bytes: 8 << 20, ..setup }
}

impl Case {
    /// All setups give the same bits, others than without the unit, and what the caches hold says.
    fn check_by_unit(&self) {
        self.check_within(3e-7);
    }

    fn check_within(&self, most: f64) {
        let run = |setup| self.run(setup, &[self.past], &[self.tokens]);
        let by_unit = everywhere(|setup| run(large(setup)).y);
        let without = run(Setup { units: Units::NONE, ..large(setups()[0]) });
        assert_ne!(by_unit, without.y, "{self:?}");
        let error = nmse(&by_unit, &self.expected(&without));
        assert!(error <= most, "{self:?}: {error:e}");
    }
}

#[test]
fn codes_match_the_definition() {
    for (d, dv) in [(32, 32), (64, 64), (96, 96), (128, 40), (256, 256), (64, 160)] {
        Case { d, dv, ..FAST }.check_by_unit();
    }
    for (past, tokens) in [(0, 32), (31, 33), (217, 39), (255, 70), (530, 16)] {
        for (kv_heads, group) in [(1, 2), (2, 3), (1, 8)] {
            Case { past, tokens, kv_heads, group, ..FAST }.check_by_unit();
        }
    }
    for window in [1, 31, 64, 270] {
        Case { past: 300, window, ..FAST }.check_by_unit();
        for visibility in [Visibility::Block, Visibility::Around] {
            Case { past: 90, window, visibility, ..FAST }.check_by_unit();
        }
    }
}

/// Up to what scales of f16 can say: products of codes and scales are larger than an f16.
#[test]
fn large_and_small_codes_stay_in_range() {
    for amplitude in [1e6, 1e-3] {
        Case { amplitude, ..FAST }.check_by_unit();
    }
    // Keys are rounded to 11 bits, of which what all have in common takes some.
    Case { common: 3.0, ..FAST }.check_within(1e-6);
}

/// Heads whose codes do not fit into a worker's VTCM are done without the unit.
#[test]
fn long_heads_are_done_without_the_unit() {
    let case = Case { d: 512, dv: 64, ..FAST };
    let run = |case: Case, setup| case.run(setup, &[case.past], &[case.tokens]).y;
    let exact = run(Case { fast: false, ..case }, large(setups()[0]));
    assert_eq!(run(case, large(setups()[0])), exact);
}

/// A row that sees a scale that is no number is none, and a value's is a fault.
#[test]
fn scales_that_are_no_numbers_are_never_taken_for_numbers() {
    let case = Case { kv_heads: 1, group: 1, past: 95, window: 20, ..FAST };
    for scale in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY] {
        // Position 90 of 135 is in the third strip, of one group; the half is of its first or second tile.
        for tile in [0, 1] {
            let at = (90 / 32 * 17 + 16) * 128 + 90 % 32 * 4 + tile * 2;
            let run = |keys| {
                let put = Some((keys, at, scale.to_bits()));
                Case { put, ..case }.try_run(large(setups()[0]), &[case.past], &[case.tokens])
            };
            let y = run(true).unwrap().y;
            for (t, row) in y.chunks_exact(64).enumerate() {
                assert_eq!(row.iter().any(|x| x.is_nan()), 95 + t < 90 + 20, "{scale} {tile} {t}");
            }
            assert_eq!(run(false).unwrap_err().code, ErrorCode::NotFinite);
        }
    }
}

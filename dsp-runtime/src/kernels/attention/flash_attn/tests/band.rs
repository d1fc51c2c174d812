//! Masks that hide what is before and behind a band: ATTEND has the bits that FLASH_ATTN_EXT has over caches,
//! where every position is looked at; and what nobody sees is not fetched.

use super::rows::Rows;
use super::*;
use crate::testing::setups;

/// Masks over a prompt of 300 tokens: what they hide from a token.
const MASKS: [fn(usize, usize) -> bool; 8] = [
    // Causal: a prompt from its beginning, and one after 200 positions, in rows that are longer.
    |t, p| p > t,
    |t, p| p > 200 + t,
    // Windows: from the beginning, and amid a text.
    |t, p| p > t || p + 40 < t,
    |t, p| p > 150 + t || p + 40 < 150 + t,
    // Two sequences with positions of their own.
    |t, p| if t.is_multiple_of(2) { p > t } else { p < 128 || p > 128 + t },
    // The other diagonal.
    |t, p| p + t > 250,
    // Tokens that see nothing: the first ones, the last ones, some between.
    |t, p| !(5..=20).contains(&t) || p > 2 * t,
    |t, p| t.is_multiple_of(3) || p > t,
];

/// As ggml's graphs are: rows of F16.
fn rows_of(case: &Case) -> Rows {
    Rows { inputs: case.inputs(), types: [DType::F16; 2] }
}

#[test]
fn bits_do_not_depend_on_what_is_hidden() {
    for hides in MASKS {
        for (n_past, tokens) in [(260, 40), (262, 1), (561, 3)] {
            let case = Case { n_past, tokens, hides, mask_heads: 1, ..CASE };
            case.attends_as_over_caches();
            Case { mask_heads: case.heads(), sinks: true, sequences: 2, ..case }.attends_as_over_caches();
        }
    }
}

#[test]
fn bits_by_the_matrix_unit_do_not_either() {
    for hides in MASKS {
        for (n_past, tokens) in [(260, 40), (462, 70)] {
            Case { n_past, tokens, hides, mask_heads: 1, group: 3, ..CASE }.attends_by_unit();
        }
    }
}

/// A mask that hides everything: zeros, without a look at keys.
#[test]
fn nothing_shown_gives_zeros() {
    for tokens in [1, 40] {
        let case = Case { n_past: 300, tokens, hides: |_, _| true, mask_heads: 1, ..CASE };
        for setup in setups() {
            let y = case.attend_counted(setup, 0..tokens, &rows_of(&case)).0;
            assert!(y.iter().all(|&y| y == 0.0), "{setup:?}");
        }
    }
}

/// A token over a cache of 1,024 positions of which the mask shows 40 to 139 takes the bytes of a hundred.
#[test]
fn what_is_hidden_is_not_fetched() {
    let moved = |case: Case| case.attend_counted(setups()[0], 0..1, &rows_of(&case)).1;
    let hundred = moved(Case { n_past: 99, tokens: 1, ..CASE });
    assert_eq!(hundred, 2 * 100 * 2 * 64 * 2, "keys and values of two heads");
    let hides = |_, p| !(40..140).contains(&p);
    assert_eq!(moved(Case { n_past: 1023, tokens: 1, hides, mask_heads: 1, ..CASE }), hundred);
    // Of a prompt, blocks of rows have ends of their own.
    let prompt = Case { n_past: 0, tokens: 256, mask_heads: 1, ..CASE };
    let moved = |case: Case| case.attend_counted(setups()[0], 0..256, &rows_of(&case)).1;
    let (all, causal) = (moved(prompt), moved(Case { hides: |t, p| p > t, ..prompt }));
    assert!(causal * 5 < all * 3, "{causal} of {all}");
}

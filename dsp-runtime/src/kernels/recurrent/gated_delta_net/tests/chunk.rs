//! The chunked delta rule against the recurrence, within what rounding costs: by the matrix unit and without
//! it.

use super::super::chunk::{CHUNK, LEAST};
use super::*;
use crate::plan::Units;

/// Largest NMSE between the two.
const NMSE: f64 = 1e-7;

/// All setups without a matrix unit, and all with one.
fn both() -> [Vec<Setup>; 2] {
    let with = setups();
    let without = with.iter().map(|setup| Setup { units: Units::NONE, ..*setup }).collect();
    [without, with]
}

/// A case that chunks take.
const CHUNKED: Case = Case { size: 64, tokens: 100, fast: true, ..CASE };

/// Outputs and states are those of the definition in f64, and those of the recurrence.
fn check(case: &Case, setup: Setup, steps: &[usize]) {
    let (y, state) = case.run(setup, steps);
    let exact = Case { fast: false, ..*case };
    for (what, (expected_y, expected_state)) in
        [("definition", case.expected()), ("recurrence", exact.run(setups()[0], &[case.tokens]))]
    {
        let Case { size, ratio, sequences, shared, gates, .. } = case;
        let name =
            format!("{what}, S={size} x{ratio} B={sequences}/{shared} g={gates:?} {steps:?} {setup:?}");
        for (part, error) in [("y", nmse(&y, &expected_y)), ("state", nmse(&state, &expected_state))] {
            assert!(error <= NMSE, "{part}, {name}: {error}");
        }
    }
    let bits_differ = bits(&y) != bits(&exact.run(setups()[0], &[case.tokens]).0);
    assert_eq!(bits_differ, has_chunk(steps), "{steps:?}");
}

/// Whether any part of these steps is long enough for a chunk.
fn has_chunk(steps: &[usize]) -> bool {
    let mut past = 0;
    for &tokens in steps {
        let end = past + tokens;
        while past < end {
            let rows = (end - past).min(CHUNK - past % CHUNK);
            if rows >= LEAST {
                return true;
            }
            past += rows;
        }
    }
    false
}

/// Random gates, lengths, heads, sequences, and ways to cut a text.
#[test]
fn chunks_are_the_recurrence() {
    let both = both();
    let gates = [(0.0, 0.0), (-1e-3, 0.0), (-0.1, 0.0), (-4.0, -1e-4), (-20.0, 0.0), (-20.0, -20.0)];
    for seed in 0..48 {
        let mut random = random(seed, 16, 0.0, 1.0).into_iter();
        let mut below = |n: usize| ((random.next().unwrap() * n as f32) as usize).min(n - 1);
        let longest = [8, 40, 300][below(3)];
        let tokens = 1 + below(longest);
        let (sequences, shared) = [(1, 1), (2, 1), (2, 2)][below(3)];
        let case = Case {
            size: [64, 128][below(2)],
            key_heads: 1 + below(2),
            ratio: 1 + below(3),
            sequences,
            shared,
            tokens,
            gates: gates[seed as usize % gates.len()],
            ..CHUNKED
        };
        let cut = below(tokens);
        let steps = [cut, tokens - cut];
        for setups in &both {
            check(&case, setups[seed as usize % setups.len()], if cut == 0 { &steps[1..] } else { &steps });
        }
    }
}

#[test]
fn long_texts_stay_near_the_recurrence() {
    for gates in [(-20.0, 0.0), (-0.5, 0.0), (-1e-3, 0.0)] {
        let case = Case { size: 128, key_heads: 1, tokens: 4096, gates, ..CHUNKED };
        for setups in both() {
            check(&case, setups[0], &[256; 16]);
        }
    }
}

/// The same bits from every setup, and however a text is cut where chunks end.
#[test]
fn chunks_do_not_depend_on_setups_or_steps() {
    for ((size, tokens, sequences), setups) in
        [(128, 96, 1), (64, 107, 2)].into_iter().flat_map(|shape| both().map(|setups| (shape, setups)))
    {
        let case = Case { size, tokens, sequences, ratio: 2, ..CHUNKED };
        let (y, state) = case.run(setups[0], &[tokens]);
        for setup in setups {
            for steps in [&[tokens][..], &[CHUNK, tokens - CHUNK], &[2 * CHUNK, tokens - 2 * CHUNK]] {
                let (y2, state2) = case.run(setup, steps);
                assert_eq!(bits(&y), bits(&y2), "y, S={size} {setup:?} {steps:?}");
                assert_eq!(bits(&state), bits(&state2), "state, S={size} {setup:?} {steps:?}");
            }
        }
    }
}

/// Values of any size; and of sizes that differ between tokens, of which the small ones are as good as they
/// are by themselves, once what was large is forgotten.
#[test]
fn sizes_do_not_matter() {
    let case = Case { size: 64, tokens: 64, ..CHUNKED };
    let row = case.heads() * case.size;
    let scales = [1e-12, 1.0, 1e6];
    for (scale, setup) in scales.into_iter().flat_map(|scale| both().map(|setups| (scale, setups[0]))) {
        let inputs = || {
            let mut inputs = case.inputs();
            for (t, v) in inputs.v.chunks_exact_mut(row).enumerate() {
                let size = if t % 5 == 0 { 100.0 * scale } else { scale };
                v.iter_mut().for_each(|v| *v *= size);
            }
            for (t, g) in inputs.g.chunks_exact_mut(case.heads()).enumerate() {
                g.fill(if t % 5 == 1 { -20.0 } else { -0.25 });
            }
            inputs
        };
        let (y, state) = case.run_with(setup, &[case.tokens], inputs());
        let exact = Case { fast: false, ..case };
        let (exact_y, exact_state) = exact.run_with(setup, &[case.tokens], inputs());
        let small = |y: &[f32]| -> Vec<f32> {
            y.chunks_exact(row).enumerate().filter(|(t, _)| t % 5 > 0).flat_map(|(_, y)| y.to_vec()).collect()
        };
        let errors = [nmse(&small(&y), &small(&exact_y)), nmse(&y, &exact_y), nmse(&state, &exact_state)];
        assert!(errors.iter().all(|&error| error <= NMSE), "{scale} {setup:?}: {errors:?}");
    }
}

/// What halves cannot have, and a rule that enlarges the state, is left to the recurrence, to the bit.
#[test]
fn extraordinary_values_are_left_to_the_recurrence() {
    let case = Case { key_heads: 1, tokens: CHUNK, ..CHUNKED };
    let exact = Case { fast: false, ..case };
    type Change = (&'static str, fn(&mut Inputs));
    let changes: [Change; 10] = [
        ("k is NaN", |x| x.k[70] = f32::NAN),
        ("q is infinite", |x| x.q[700] = f32::INFINITY),
        ("v is NaN", |x| x.v[1000] = f32::NAN),
        ("v is large", |x| x.v[3] = -1e20),
        ("g is NaN", |x| x.g[9] = f32::NAN),
        ("g is above 0", |x| x.g[9] = 0.25),
        ("beta is NaN", |x| x.beta[31] = f32::NAN),
        ("beta is below 0", |x| x.beta[0] = -0.5),
        ("beta is large", |x| x.beta[5] = 2.5),
        ("k is long", |x| x.k[64..128].iter_mut().for_each(|k| *k *= 40.0)),
    ];
    for (what, change) in changes {
        for setup in both().concat() {
            let run = |case: &Case| {
                let mut inputs = case.inputs();
                change(&mut inputs);
                case.run_with(setup, &[CHUNK], inputs)
            };
            let ((y, state), (exact_y, exact_state)) = (run(&case), run(&exact));
            let same = |a: &[f32], b: &[f32]| {
                a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()))
            };
            assert!(same(&y, &exact_y) && same(&state, &exact_state), "{what} {setup:?}");
        }
    }
    // A state that is no number stays one.
    for setups in both() {
        let mut bench = Bench::new(&case, CHUNK, 0);
        let mut state = vec![0.5; case.size * case.size];
        state[77] = f32::NAN;
        bench.batch.write(bench.src[5], state.as_bytes());
        let rows: Vec<_> = (0..CHUNK).collect();
        let y = bench.step(setups[0], &rows, StepRegisters::step(32, 32), None).unwrap();
        assert!(y.iter().any(|y| y.is_nan()) && bench.state().iter().any(|s| s.is_nan()));
    }
}

/// A state is read once and written once per step, however many chunks it has.
#[test]
fn states_move_once() {
    let case = Case { size: 128, ratio: 2, tokens: 256, ..CHUNKED };
    let states = (4 * case.size * case.size * case.heads()) as u64;
    for setup in both().concat() {
        let mut bench = Bench::new(&case, case.tokens, 0);
        let mut moved = |past, tokens| {
            let rows: Vec<_> = (0..tokens as usize).collect();
            bench.step(setup, &rows, StepRegisters::step(past, tokens), None).unwrap();
            bench.batch.moved
        };
        // A new state is not read.
        assert_eq!(moved(0, 256), states, "{setup:?}");
        for (past, tokens) in [(256, 256), (100, 64), (64, 32), (3, 7)] {
            assert_eq!(moved(past, tokens), 2 * states, "{past} {tokens} {setup:?}");
        }
    }
}

/// Heads go through the unit in as many passes as VTCM makes it, with the same bits.
#[test]
fn the_number_of_passes_does_not_matter() {
    let case = Case { size: 128, key_heads: 3, ratio: 3, tokens: 75, ..CHUNKED };
    let with = setups()[0];
    let wide = case.run(Setup { vtcm_bytes: 4 << 20, ..with }, &[75]);
    for kib in [352, 640, 1024] {
        let few = case.run(Setup { vtcm_bytes: kib << 10, ..with }, &[75]);
        assert!(bits(&few.0) == bits(&wide.0) && bits(&few.1) == bits(&wide.1), "{kib} KiB");
    }
    // Without room for a single one, the unit is not asked.
    let none = Setup { vtcm_bytes: 256 << 10, ..with };
    let without = Setup { units: Units::NONE, ..none };
    assert_eq!(bits(&case.run(none, &[75]).0), bits(&case.run(without, &[75]).0));
    assert_ne!(bits(&case.run(none, &[75]).0), bits(&wide.0));
}

/// Chunks that the unit does not take lie between those that it takes; the state is the same to both.
#[test]
fn the_unit_leaves_chunks_out() {
    let case = Case { size: 64, key_heads: 3, tokens: 160, ..CHUNKED };
    let row = case.heads() * case.size;
    let inputs = || {
        let mut inputs = case.inputs();
        // A value that is too large for both, in the third chunk of one head and the fourth of another.
        inputs.v[70 * row + 5] = 3e12;
        inputs.v[100 * row + case.size + 9] = -2e12;
        inputs
    };
    let exact = Case { fast: false, ..case };
    let (exact_y, exact_state) = exact.run_with(setups()[0], &[160], inputs());
    for setup in both().concat() {
        let (y, state) = case.run_with(setup, &[160], inputs());
        let third =
            |y: &[f32]| -> Vec<f32> { (64..160).flat_map(|t| y[t * row..][..case.size].to_vec()).collect() };
        for (y, exact) in [(&y[..64 * row], &exact_y[..64 * row]), (&third(&y), &third(&exact_y))] {
            assert!(nmse(y, exact) <= NMSE, "{setup:?}: {}", nmse(y, exact));
        }
        assert!(nmse(&state, &exact_state) <= NMSE, "{setup:?}");
    }
}

//! TOPK_MOE against its definition in f64, over all back ends.

use hexflash_abi::op::Op;
use hexflash_abi::op::params::{Gating, TopkMoe};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{ErrorCode, Fault};

use crate::testing::{Batch, Setup, everywhere, random, setups};

const PLAIN: TopkMoe = TopkMoe { gating: Gating::Softmax as u32, normalize: 0, scale: 1.0 };

/// Ids and weights, one after the other.
fn route(
    setup: Setup,
    logits: &[f32],
    bias: Option<&[f32]>,
    [n, used]: [usize; 2],
    params: TopkMoe,
) -> (Vec<i32>, Vec<f32>, Result<(), Fault>) {
    let m = (logits.len() / n) as u32;
    let [n, used] = [n, used].map(|n| n as u32);
    let mut batch = Batch::new(1, 1);
    let mut src = vec![batch.f32([n, m, 1, 1], logits)];
    src.extend(bias.map(|bias| batch.f32([n, 1, 1, 1], bias)));
    let ids = batch.i32([used, m, 1, 1], &vec![-7; (used * m) as usize]);
    let weights = batch.f32([used, m, 1, 1], &vec![-7.0; (used * m) as usize]);
    let outcome = batch.run(setup, Op::TopkMoe, &src, &[ids, weights], &params, StepRegisters::step(0, 1));
    (batch.ints(ids), batch.floats(weights), outcome)
}

/// The definition.
fn reference(logits: &[f32], bias: Option<&[f32]>, used: usize, params: TopkMoe) -> (Vec<i32>, Vec<f64>) {
    let gating = Gating::parse(params.gating).unwrap();
    let softmax = |x: &[f64]| {
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
        x.iter().map(|x| (x - max).exp() / sum).collect::<Vec<f64>>()
    };
    let logits: Vec<f64> = logits.iter().map(|&x| x.into()).collect();
    let scores = match gating {
        Gating::Softmax => softmax(&logits),
        Gating::Sigmoid => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        Gating::SoftmaxOfChosen => logits.clone(),
    };
    let by = |i: usize| bias.map_or(logits[i], |bias| scores[i] + f64::from(bias[i]));
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| by(b).total_cmp(&by(a)).then(a.cmp(&b)));
    order.truncate(used);
    let mut weights: Vec<f64> = order.iter().map(|&i| scores[i]).collect();
    if gating == Gating::SoftmaxOfChosen {
        weights = softmax(&weights);
    }
    let sum: f64 = weights.iter().sum();
    let divisor = if params.normalize == 1 { sum.max(2f64.powi(-14)) } else { 1.0 };
    let scaled = weights.iter().map(|weight| weight / divisor * f64::from(params.scale));
    (order.iter().map(|&i| i as i32).collect(), scaled.collect())
}

fn check(logits: &[f32], bias: Option<&[f32]>, sizes: [usize; 2], params: TopkMoe) {
    let bits = everywhere(|setup| {
        let (ids, weights, outcome) = route(setup, logits, bias, sizes, params);
        outcome.unwrap();
        ids.into_iter().chain(weights.iter().map(|weight| weight.to_bits() as i32)).collect()
    });
    let (ids, weights) = bits.split_at(bits.len() / 2);
    let rows = logits.chunks_exact(sizes[0]).map(|row| reference(row, bias, sizes[1], params));
    let (expected_ids, expected): (Vec<_>, Vec<_>) = rows.unzip();
    assert_eq!(ids, expected_ids.concat(), "{sizes:?} {params:?}");
    for (&weight, expected) in weights.iter().zip(expected.concat()) {
        let weight = f64::from(f32::from_bits(weight as u32));
        assert!((weight - expected).abs() <= 2e-6 * expected.abs() + 1e-37, "{weight} {expected} {params:?}");
    }
}

#[test]
fn experts_and_weights_are_those_of_the_definition() {
    for (n, used, m) in [(1, 1, 3), (2, 1, 5), (8, 2, 40), (32, 32, 2), (33, 4, 7), (128, 8, 9), (512, 22, 3)]
    {
        let logits = random(n as u64, n * m, -6.0, 6.0);
        let bias = random(7, n, -0.5, 0.5);
        for &gating in Gating::ALL {
            for (normalize, scale) in [(0, 1.0), (1, 1.0), (0, -2.5), (1, 2.5)] {
                for bias in [None, Some(&bias[..])] {
                    let params = TopkMoe { gating: gating.wire(), normalize, scale };
                    check(&logits, bias, [n, used], params);
                }
            }
        }
    }
}

/// All experts are used, in order; the lists of hundreds of them are sorted, too.
#[test]
fn all_experts_can_be_used() {
    check(&random(3, 512 * 2, -4.0, 4.0), None, [512, 512], PLAIN);
}

#[test]
fn of_equal_experts_the_lower_number_comes_first() {
    for (n, used) in [(5, 3), (40, 40), (300, 17)] {
        let steps: Vec<f32> = random(9, n * 6, 0.0, 4.0).iter().map(|x| x.floor()).collect();
        for normalize in [0, 1] {
            check(&steps, None, [n, used], TopkMoe { normalize, ..PLAIN });
            check(&vec![1.5; n], None, [n, used], TopkMoe { normalize, ..PLAIN });
        }
        check(&vec![0.0; n], Some(&steps[..n]), [n, used], PLAIN);
        check(&steps, Some(&vec![0.25; n]), [n, used], TopkMoe { gating: Gating::Sigmoid as u32, ..PLAIN });
    }
}

/// The order is that of the logits where weights are too small or too large to differ.
#[test]
fn weights_that_round_to_one_value_leave_the_order() {
    let logits = [-200.0, 30.0, -150.0, 40.0, -180.0, 35.0];
    for &gating in Gating::ALL {
        check(&logits, None, [6, 6], TopkMoe { gating: gating.wire(), normalize: 1, scale: 1.0 });
    }
}

/// The least sum: weights that are nearly nothing are not blown up.
#[test]
fn a_sum_of_nearly_nothing_is_not_divided_by() {
    let params = TopkMoe { gating: Gating::Sigmoid as u32, normalize: 1, scale: 1.0 };
    check(&[-12.0, -15.0, -11.0, -20.0], None, [4, 2], params);
    let (_, weights, _) = route(setups()[0], &[-12.0, -15.0, -11.0, -20.0], None, [4, 2], params);
    assert!(weights.iter().sum::<f32>() < 0.5, "{weights:?}");
}

/// A logit or a bias that is no number fails the op, which names the row; ids are in range all the same.
#[test]
fn what_is_no_number_is_reported_with_its_row() {
    let (n, used, m) = (40, 6, 3);
    let (logits, bias) = (random(1, n * m, -3.0, 3.0), random(2, n, -0.5, 0.5));
    for damage in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::INFINITY, f32::NEG_INFINITY] {
        for (row, at) in [(0, 0), (1, n - 1), (2, 33)] {
            let mut damaged = logits.clone();
            damaged[row * n + at] = damage;
            let mut bad_bias = bias.clone();
            bad_bias[at] = damage;
            for &gating in Gating::ALL {
                let params = TopkMoe { gating: gating.wire(), normalize: 1, scale: 1.0 };
                for setup in setups() {
                    for (logits, bias, row) in [
                        (&damaged, None, row),
                        (&damaged, Some(&bias[..]), row),
                        (&logits, Some(&bad_bias[..]), 0),
                    ] {
                        let (ids, _, outcome) = route(setup, logits, bias, [n, used], params);
                        let expected = Err(Fault::new(ErrorCode::NotFinite, row as u32));
                        assert_eq!(outcome, expected, "{damage} {gating} {setup:?}");
                        assert!(ids.iter().all(|id| (0..n as i32).contains(id)), "{ids:?}");
                    }
                }
            }
        }
    }
}

/// A token's experts do not depend on the others, and a step of fewer tokens leaves the rest alone.
#[test]
fn tokens_are_routed_by_themselves() {
    let (n, used, m) = (64, 5, 6);
    let logits = random(4, n * m, -3.0, 3.0);
    let params = TopkMoe { normalize: 1, ..PLAIN };
    let (all, weights, _) = route(setups()[0], &logits, None, [n, used], params);
    for (t, row) in logits.chunks_exact(n).enumerate() {
        let alone = route(setups()[0], row, None, [n, used], params);
        assert_eq!((&alone.0[..], &alone.1[..]), (&all[t * used..][..used], &weights[t * used..][..used]));
    }
    let mut batch = Batch::new(m as u32, 8);
    let [x, ids, to] = [
        batch.f32([n as u32, m as u32, 1, 1], &logits),
        batch.i32([used as u32, m as u32, 1, 1], &[-7; 30]),
        batch.f32([used as u32, m as u32, 1, 1], &[-7.0; 30]),
    ]
    .map(|tensor| batch.view(tensor, |t| t.token_axis = 1));
    batch.run(setups()[0], Op::TopkMoe, &[x], &[ids, to], &params, StepRegisters::step(0, 4)).unwrap();
    let cut = [&all[..4 * used], &[-7; 10]].concat();
    assert_eq!(batch.ints(ids), cut);
    assert_eq!(batch.floats(to)[4 * used..], [-7.0; 10]);
}

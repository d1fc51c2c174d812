//! Properties of the whole sampler.

use proptest::prelude::*;
use rand_pcg::rand_core::Rng;

use super::*;

fn greedy() -> SamplerParams {
    SamplerParams { temperature: 0.0, ..Default::default() }
}

/// No filter at all: the plain softmax distribution.
fn plain(seed: u64) -> SamplerParams {
    SamplerParams {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: Some(seed),
        ..Default::default()
    }
}

fn first_maximum(logits: &[f32]) -> u32 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|&logit| logit == best).unwrap() as u32
}

/// Deterministic logits without the generator under test.
fn noise(count: u32) -> Vec<f32> {
    (0..count).map(|i| (f64::from(i.wrapping_mul(2_654_435_761) >> 8) / 1e6) as f32).collect()
}

#[test]
fn bad_logits_are_errors() {
    for params in [greedy(), plain(1)] {
        let mut sampler = Sampler::new(params).unwrap();
        assert_eq!(sampler.sample(&[]), Err(SamplerError::LogitCount { count: 0 }));
        let nan = sampler.sample(&[0.0, f32::NAN, 1.0]).unwrap_err().to_string();
        assert!(nan.starts_with("the logit of token 1 is NaN"), "{nan}");
        let infinite = SamplerError::InvalidLogit { id: 0, value: f32::INFINITY };
        assert_eq!(sampler.sample(&[f32::INFINITY, 0.0]), Err(infinite));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY; 3]), Err(SamplerError::NothingAllowed { count: 3 }));
        assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -3.0]), Ok(1));
    }
    assert!(Sampler::new(SamplerParams { top_p: f32::NAN, ..greedy() }).is_err());
}

#[test]
fn an_overflow_by_penalties_is_an_error() {
    for params in [greedy(), plain(1)] {
        let mut sampler = Sampler::new(SamplerParams { repeat_penalty: 0.01, ..params }).unwrap();
        sampler.accept(1);
        let overflow = SamplerError::InvalidLogit { id: 1, value: f32::INFINITY };
        assert_eq!(sampler.sample(&[0.0, 3e38]), Err(overflow));
    }
}

#[test]
fn greedy_draws_nothing_and_others_draw_once() {
    let logits = noise(500);
    let mut sampler = Sampler::new(greedy()).unwrap();
    let before = sampler.rng.clone();
    sampler.sample(&logits).unwrap();
    assert_eq!(sampler.rng, before);
    for params in [plain(3), SamplerParams { top_k: 1, ..plain(3) }] {
        let mut sampler = Sampler::new(params).unwrap();
        let mut expected = sampler.rng.clone();
        for _ in 0..10 {
            sampler.sample(&logits).unwrap();
            expected.next_u64();
            assert_eq!(sampler.rng, expected);
        }
    }
}

#[test]
fn a_seed_gives_the_same_tokens_everywhere() {
    let logits = noise(1000);
    let params = SamplerParams { temperature: 5.0, seed: Some(42), ..Default::default() };
    let mut sampler = Sampler::new(params).unwrap();
    let draw =
        |sampler: &mut Sampler| -> Vec<u32> { (0..8).map(|_| sampler.sample(&logits).unwrap()).collect() };
    let tokens = draw(&mut sampler);
    let mut clone = sampler.clone();
    assert_eq!(draw(&mut sampler), draw(&mut clone), "a clone continues at the same point");
    sampler.reset();
    assert_eq!(draw(&mut sampler), tokens);
    assert_eq!(
        tokens,
        [864, 631, 254, 809, 165, 131, 432, 220],
        "pinned: a change here changes every user's seeds"
    );
}

#[test]
fn unseeded_samplers_report_their_seed() {
    let drawn = Sampler::new(SamplerParams::default()).unwrap();
    assert_ne!(drawn.seed(), Sampler::new(SamplerParams::default()).unwrap().seed());
    assert_eq!(Sampler::new(plain(9)).unwrap().seed(), 9);
}

#[test]
fn frequencies_follow_the_softmax() {
    let logits = [0.0f32, 1.0, -1.0, 0.5, 2.0, -0.5, 1.5, f32::NEG_INFINITY];
    for (temperature, top_k) in [(1.0f32, 0), (0.7, 0), (1.5, 8)] {
        let mut sampler = Sampler::new(SamplerParams { temperature, top_k, ..plain(1234) }).unwrap();
        let draws = 20_000;
        let mut counts = [0u32; 8];
        for _ in 0..draws {
            counts[sampler.sample(&logits).unwrap() as usize] += 1;
        }
        let weights = logits.map(|logit| f64::from(logit / temperature).exp());
        let total: f64 = weights.iter().sum();
        let square = |(count, weight): (&u32, &f64)| {
            let expected = weight / total * f64::from(draws);
            (f64::from(*count) - expected).powi(2) / expected
        };
        let chi: f64 = counts.iter().zip(&weights).take(7).map(square).sum();
        // 99.9 % quantile of chi-square with six degrees of freedom.
        assert!(chi < 22.46, "chi-square {chi} at temperature {temperature}: {counts:?}");
        assert_eq!(counts[7], 0);
    }
}

#[test]
fn filters_bound_what_can_come() {
    let logits = noise(1000);
    let mut order: Vec<u32> = (0..1000).collect();
    order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    let mut sampler = Sampler::new(SamplerParams { top_k: 5, temperature: 100.0, ..plain(5) }).unwrap();
    let mut seen: Vec<u32> = (0..200).map(|_| sampler.sample(&logits).unwrap()).collect();
    seen.sort_unstable();
    seen.dedup();
    order.truncate(5);
    order.sort_unstable();
    assert_eq!(seen, order);
}

#[test]
fn penalties_reach_greedy_sampling_too() {
    let mut sampler =
        Sampler::new(SamplerParams { presence_penalty: 1.0, repeat_last_n: 2, ..greedy() }).unwrap();
    assert!(sampler.is_greedy() && !sampler.is_argmax());
    let logits = [1.0, 1.5, 0.0];
    let tokens: Vec<u32> = (0..5)
        .map(|_| {
            let token = sampler.sample(&logits).unwrap();
            sampler.accept(token);
            token
        })
        .collect();
    // Token 1 falls to 0.5 below token 0, which then falls to 0.0; the second 1 drives 0 out of the window.
    assert_eq!(tokens, [1, 0, 1, 1, 0]);
}

#[test]
fn buffers_are_kept() {
    let logits = noise(50_000);
    let params = SamplerParams { top_k: 0, repeat_penalty: 1.1, ..plain(1) };
    let mut sampler = Sampler::new(SamplerParams { top_p: 0.9, ..params }).unwrap();
    let mut capacities = Vec::new();
    for _ in 0..5 {
        let token = sampler.sample(&logits).unwrap();
        sampler.accept(token);
        capacities.push(sampler.candidates.capacity());
    }
    assert!(capacities.windows(2).all(|pair| pair[0] == pair[1]), "{capacities:?}");
}

proptest! {
    #[test]
    fn greedy_and_top_k_1_take_the_first_maximum(
        quarters in proptest::collection::vec(-8i8..8, 1..50), seed: u64, temperature in 0.01f32..10.0,
    ) {
        let logits: Vec<f32> = quarters.iter().map(|&q| f32::from(q) / 4.0).collect();
        let expected = first_maximum(&logits);
        let one = SamplerParams { temperature, top_k: 1, ..plain(seed) };
        for params in [greedy(), SamplerParams { temperature: -1.0, ..greedy() }, one] {
            prop_assert_eq!(Sampler::new(params).unwrap().sample(&logits), Ok(expected));
        }
    }

    #[test]
    fn hostile_logits_never_panic(
        logits in proptest::collection::vec(any::<f32>(), 0..40), seed: u64, top_k in 0usize..9,
        temperature in 0f32..100.0, top_p in 0f32..=1.0, min_p in 0f32..=1.0,
    ) {
        let params = SamplerParams { temperature, top_p, min_p, repeat_penalty: 0.5, top_k, ..plain(seed) };
        let mut sampler = Sampler::new(params).unwrap();
        for token in [0, 3, u32::MAX] {
            sampler.accept(token);
        }
        if let Ok(token) = sampler.sample(&logits) {
            prop_assert!(logits[token as usize] > f32::NEG_INFINITY);
        }
    }
}

#[test]
fn biases_come_after_penalties_and_can_forbid() {
    let logits = [1.0, 3.0, 2.0, 0.0];
    for params in [greedy(), SamplerParams { top_k: 1, ..plain(1) }] {
        let choose = |logit_bias: &[(u32, f32)], penalty: f32| {
            let logit_bias = logit_bias.to_vec();
            let params = SamplerParams { logit_bias, presence_penalty: penalty, ..params.clone() };
            let mut sampler = Sampler::new(params).unwrap();
            assert!(!sampler.is_argmax());
            sampler.accept(2);
            sampler.sample(&logits)
        };
        assert_eq!(choose(&[(1, f32::NEG_INFINITY)], 0.0), Ok(2));
        assert_eq!(choose(&[(2, 1.5)], 0.0), Ok(2));
        assert_eq!(choose(&[(2, 1.5)], 1.0), Ok(1), "2 + 1.5 - 1 is less than 3");
        assert_eq!(choose(&[(3, 4.0), (0, 2.5), (99, 50.0)], 0.0), Ok(3));
        let none: Vec<_> = (0..4).map(|id| (id, f32::NEG_INFINITY)).collect();
        assert_eq!(choose(&none, 0.0), Err(SamplerError::NothingAllowed { count: 4 }));
    }
    for value in [f32::NAN, f32::INFINITY, 101.0] {
        let params = SamplerParams { logit_bias: vec![(0, value)], ..greedy() };
        assert!(params.validate().unwrap_err().to_string().starts_with("logit_bias"));
    }
}

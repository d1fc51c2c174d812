//! MTP heads: ids, drafts and accepted counts against llama.cpp and a reference without caches.

use hexflash::engine::{Engine, EngineOptions, SequenceId};
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::{Draft, Model, inproc, reference, report};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

use crate::common::{fresh, greedy, limits, model_drafts, quick, text};
use crate::reference::Rounds;
use crate::rounds::Compared;

/// Distance of the two best logits up to which another choice counts as a near-tie. llama.cpp rounds
/// activations to 8 bits in other places than we do for the quantized files (see `golden.rs`).
fn near_tie(model: Model) -> f32 {
    match model {
        Model::F16 => 2e-3,
        Model::Q8_0 | Model::Q4_0 => 5e-2,
    }
}

/// Every round's drafts and accepted count.
#[test]
fn rounds_are_llama_cpps_and_the_references() {
    for (file, model, draft) in [
        ("mtp-f16", Model::F16, Draft::MtpF16),
        ("mtp-q8_0", Model::Q8_0, Draft::MtpQ8_0),
        ("mtp-reference", Model::F16, Draft::MtpF16),
    ] {
        let mut engine = Draft::engine(Some(draft), model, inproc(quick()), None);
        let reference = reference::mtp(file);
        for length in 1..=3 {
            let mut found = Compared::default();
            for (number, case) in reference.cases.iter().enumerate() {
                let name = format!("{file}, case {number}, chains of {length}");
                found.follow(
                    &mut engine,
                    (&case.prompt_ids, &case.ids),
                    &case.mtp[&length],
                    near_tie(model),
                    &name,
                );
            }
            report(format!("{file}, chains of {length}: {found:?}"));
            found.assert_few();
        }
    }
}

/// Tokens per round where rounds run on the device, as long as the texts are the same: see `reference.rs`.
#[test]
fn rounds_are_as_long_as_llama_cpps() {
    for (file, model, draft) in
        [("mtp-f16", Model::F16, Draft::MtpF16), ("mtp-q8_0", Model::Q8_0, Draft::MtpQ8_0)]
    {
        let mut engine = Draft::engine(Some(draft), model, inproc(quick()), None);
        let (text, reference) = (text(model), reference::mtp(file));
        for length in 1..=3 {
            let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
            let (mut compared, mut all) = (0, 0);
            for case in &reference.cases {
                let drafts = &mut model_drafts(length as u32);
                // Some more tokens, so that the last rounds are not cut.
                let limits = limits(case.ids.len() + 8);
                let got = fresh(&mut engine, &text, &greedy(), drafts, &case.prompt_ids, &limits);
                let same = got.tokens.iter().zip(&case.ids).take_while(|(a, b)| a == b).count();
                ours.add(&got.stats.speculation.unwrap().accepted_per_round, same);
                theirs.add(&case.mtp[&length].accepted_per_round, same);
                (compared, all) = (compared + same, all + case.ids.len());
            }
            let (mean, expected) = (ours.mean(), theirs.mean());
            report(format!(
                "{file}, chains of {length}: {mean:.3} tokens per round, llama.cpp {expected:.3}, on {compared} \
                 of {all} tokens"
            ));
            assert!((mean / expected - 1.0).abs() < 0.02, "{file}, chains of {length}");
            assert!(4 * compared >= 3 * all, "{file}: {compared} of {all} tokens are the same");
        }
    }
}

/// The drafts after a text, and their margins: all bits of what the head knows.
fn guesses(engine: &mut Engine, anchor: u32) -> (Vec<u32>, Vec<u32>) {
    let drafts = engine.draft(anchor, 7).unwrap().to_vec();
    let mut margins = [0.0; 7];
    engine.read_margins(&mut margins);
    (drafts, margins.map(f32::to_bits).to_vec())
}

/// What the head knows of a text is the same to the bit, however the text came about: in prompts of any
/// length, in plain steps, in blocks of which some tokens were taken back, after drafts, and after cuts.
#[test]
fn drafts_do_not_depend_on_how_the_text_was_written() {
    let model = Model::Q8_0;
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let options = EngineOptions { batch: 16, snapshot_bytes: 8 << 20, ..EngineOptions::default() };
    let head = Draft::MtpQ8_0.gguf();
    let load = || Engine::load_with(&model.gguf(), Some(&head), Box::new(inproc(quick())), &options, &image);
    let (mut straight, mut engine) = (load().unwrap(), load().unwrap());
    let case = &reference::greedy(model).cases[9];
    let text: Vec<u32> = case.prompt_ids.iter().chain(&case.ids).copied().collect();
    let mut random = Pcg32::seed_from_u64(3);
    let mut expected = |n: usize| {
        straight.reset();
        straight.prefill(&text[..n], |_| {}).unwrap();
        guesses(&mut straight, text[n])
    };
    engine.prefill(&text[..1], |_| {}).unwrap();
    let mut ways = [0; 6];
    for turn in 0..150 {
        let past = engine.n_past() as usize;
        let way = if past + 40 > text.len() { 5 } else { random.random_range(0..6) };
        ways[way] += 1;
        let n = random.random_range(1..=16);
        let next = &text[past..past + n.min(text.len() - past)];
        match way {
            0 => engine.prefill(next, |_| {}).unwrap(),
            1 => next.iter().for_each(|&token| engine.decode(token).unwrap()),
            2 | 3 => {
                // The first `kept` tokens are the text's.
                let kept = random.random_range(0..=next.len());
                let block: Vec<u32> = (0..next.len()).map(|i| if i < kept { next[i] } else { 9 }).collect();
                engine.verify(&block).unwrap();
                engine.commit(kept as u32).unwrap();
            }
            4 => {
                engine.sequence(SequenceId::FIRST).unwrap().save().unwrap();
            }
            _ => {
                let to = random.random_range(past.saturating_sub(30).max(1)..=past);
                engine.sequence(SequenceId::FIRST).unwrap().roll_back(to as u32).unwrap();
            }
        }
        let n = engine.n_past() as usize;
        if random.random_bool(0.5) {
            assert_eq!(guesses(&mut engine, text[n]), expected(n), "turn {turn}, way {way}, {n} tokens");
        }
    }
    assert!(ways.iter().all(|&n| n > 5), "{ways:?}");
}

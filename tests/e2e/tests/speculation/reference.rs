//! Drafts against an implementation without caches, and acceptance against llama.cpp.

use hexflash::engine::{Engine, EngineOptions};
use hexflash::gguf::Gguf;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::{Draft, Model, best_two, inproc, near_tie, reference, repo_file, report};

use crate::common::{fresh, greedy, limits, model_drafts, quick, text};
use crate::rounds::Compared;

/// Every round's drafts and accepted count, on the F16 pair. Drafts have no logits to measure near-ties by,
/// so a draft that differs is counted: at most a few per thousand may, where F16 caches round.
#[test]
fn drafts_and_accepted_counts_are_the_references() {
    let mut engine = Draft::engine(Some(Draft::F16), Model::F16, inproc(quick()), None);
    let (mut rounds, mut drafts, mut differ) = (0, 0, 0);
    for (number, case) in reference::dflash("dflash-reference").cases.iter().enumerate() {
        engine.reset();
        engine.prefill(&case.prompt_ids, |_| {}).unwrap();
        let mut anchor = engine.argmax(0);
        assert_eq!(anchor, case.ids[0]);
        let mut done = 1;
        for (round, (expected, &accepted)) in case.drafts.iter().zip(&case.accepted_per_step).enumerate() {
            let place = format!("case {number}, round {round}");
            let found = engine.draft(anchor, 7).unwrap();
            differ += found.iter().zip(expected).filter(|(a, b)| a != b).count();
            if *found != **expected {
                report(format!("{place}: drafts {found:?} instead of {expected:?}"));
            }
            (rounds, drafts) = (rounds + 1, drafts + found.len());
            // The reference's own block: what follows does not depend on a draft that differed.
            let block: Vec<u32> = std::iter::once(anchor).chain(expected.iter().copied()).collect();
            engine.verify(&block).unwrap();
            let chosen: Vec<u32> = (0..block.len()).map(|row| engine.argmax(row)).collect();
            let kept = chosen.iter().zip(expected).take_while(|(a, b)| a == b).count();
            if kept != accepted {
                let [best, second] = best_two(engine.logits(kept.min(accepted)));
                let gap = best.1 - second.1;
                report(format!("{place}: {kept} accepted instead of {accepted}, {gap:.5} apart"));
                assert!(gap <= near_tie::bound(Model::F16), "{place}: not a near-tie");
            }
            engine.commit(accepted as u32 + 1).unwrap();
            let next = case.ids.get(done + accepted);
            assert!(next.is_none_or(|&id| kept != accepted || id == chosen[accepted]), "{place}");
            anchor = next.copied().unwrap_or(chosen[accepted]);
            done += accepted + 1;
        }
        assert!(done >= case.ids.len());
    }
    report(format!("{rounds} rounds, {differ} of {drafts} drafts differ"));
    assert!(differ * 200 <= drafts, "{differ} of {drafts} drafts differ");
}

/// A target without recurrent states, and a draft of which one layer sees a window of 64 positions, up to
/// more than three windows of context.
#[test]
fn a_dense_pair_with_a_window_drafts_as_the_references() {
    let [target, draft] = ["tiny-dense-f16", "tiny-dense-dflash-f16"]
        .map(|name| Gguf::open(&repo_file(&format!("models/{name}.gguf"))).unwrap());
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let options = EngineOptions::default();
    let engine = Engine::load_with(&target, Some(&draft), Box::new(inproc(quick())), &options, &image);
    let mut engine = engine.unwrap();
    for file in ["dflash-dense-f16", "dflash-dense-reference"] {
        let (mut found, near_tie) = (Compared::default(), near_tie::bound(Model::F16));
        for (number, case) in reference::dense(file).cases.iter().enumerate() {
            let name = format!("{file}, case {number}");
            found.follow(&mut engine, (&case.prompt_ids, &case.ids), case.rounds(), near_tie, &name);
        }
        report(format!("{file}: {found:?}"));
        found.assert_few();
    }
}

/// Every round's drafts and accepted count of DSpark, for blocks of 3, 7 and 8 drafts.
#[test]
fn dspark_drafts_as_llama_cpp_and_the_reference() {
    let mut engine = Draft::engine(Some(Draft::DsparkF16), Model::F16, inproc(quick()), None);
    for file in ["dspark-f16", "dspark-reference"] {
        let reference = reference::dspark(file);
        for length in reference.cases[0].dspark.keys() {
            let mut found = Compared::default();
            for (number, case) in reference.cases.iter().enumerate() {
                let name = format!("{file}, case {number}, blocks of {length}");
                let (texts, near_tie) = ((&case.prompt_ids[..], &case.ids[..]), near_tie::bound(Model::F16));
                found.follow(&mut engine, texts, &case.dspark[length], near_tie, &name);
            }
            report(format!("{file}, blocks of {length}: {found:?}"));
            found.assert_few();
        }
    }
}

/// Tokens per round on llama.cpp's own cases, for every pair of files that it was run with. Both are counted
/// as far as the texts are the same: after a near-tie (see `golden.rs`) another text is drafted for.
#[test]
fn rounds_are_as_long_as_llama_cpps() {
    let files = [
        ("dflash-f16", Model::F16, Draft::F16),
        ("dflash-q8_0", Model::Q8_0, Draft::F16),
        ("dflash-q4_0", Model::Q4_0, Draft::F16),
        ("dflash-f16-draft-q8_0", Model::F16, Draft::Q8_0),
    ];
    for (name, model, draft) in files {
        let mut engine = Draft::engine(Some(draft), model, inproc(quick()), None);
        let text = text(model);
        let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
        let (mut compared, mut all) = (0, 0);
        for case in &reference::dflash(name).cases {
            // Theirs are not cut by the number of tokens, so that some more are wanted of ours.
            let limits = limits(case.ids.len() + 8);
            let drafts = &mut model_drafts(7);
            let got = fresh(&mut engine, &text, &greedy(), drafts, &case.prompt_ids, &limits);
            let same = got.tokens.iter().zip(&case.ids).take_while(|(a, b)| a == b).count();
            ours.add(&got.stats.speculation.unwrap().accepted_per_round, same);
            theirs.add(&case.accepted_per_step, same);
            (compared, all) = (compared + same, all + case.ids.len());
        }
        let (mean, expected) = (ours.mean(), theirs.mean());
        report(format!(
            "{name}: {mean:.3} tokens per round, llama.cpp {expected:.3}, on {compared} of {all} tokens"
        ));
        assert!(mean >= 0.98 * expected, "{name}");
        assert!(4 * compared >= 3 * all, "{name}: {compared} of {all} tokens are the same");
    }
}

/// Rounds, and what they accepted.
#[derive(Default)]
pub struct Rounds {
    accepted: usize,
    count: usize,
}

impl Rounds {
    /// Adds the rounds of a text that lie within its first `tokens`, of which the first is no round's.
    pub fn add(&mut self, accepted: &[usize], tokens: usize) {
        let mut done = 1;
        for &accepted in accepted {
            done += accepted + 1;
            if done > tokens {
                break;
            }
            self.accepted += accepted;
            self.count += 1;
        }
    }

    /// Tokens per round.
    pub fn mean(&self) -> f64 {
        1.0 + self.accepted as f64 / self.count as f64
    }
}

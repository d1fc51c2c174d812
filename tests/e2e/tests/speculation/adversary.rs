//! Drafters that know the text, and lie as they are told: every accept count at every width.

use hexflash::engine::EngineError;
use hexflash::model::MAX_VERIFY;
use hexflash::speculation::{DraftLength, DraftSource, Drafter, Guess, Speculation};
use hexflash_e2e::{Draft, Model, inproc, reference, report};

use crate::common::{closed, fresh, greedy, limits, quick, text};

/// How many of the next drafts are right, given the number of the round and the width.
type Script = fn(round: usize, width: usize) -> usize;

/// Knows what greedy decoding gives.
struct Scripted {
    truth: Vec<u32>,
    round: usize,
    script: Script,
}

impl Drafter for Scripted {
    fn draft(&mut self, text: &[u32], most: usize, out: &mut Guess) {
        let right = (self.script)(self.round, most);
        self.round += 1;
        for i in 0..most {
            let Some(&token) = self.truth.get(text.len() + i) else { return };
            out.push(if i < right { token } else { token ^ 1 }, 1.0);
        }
    }
}

/// A hash that is as good as random.
fn scatter(round: usize, width: usize) -> usize {
    (round.wrapping_mul(0x9e37_79b9).wrapping_add(width * 77) >> 7) % (width + 1)
}

#[test]
fn whatever_a_drafter_says() {
    let scripts: [(&str, Script); 5] = [
        ("always wrong", |_, _| 0),
        ("always right", |_, width| width),
        ("right for a while, then wrong", |round, width| round % (width + 1)),
        ("right but for the last", |_, width| width - 1),
        ("random", scatter),
    ];
    let model = Model::Q8_0;
    let mut engine = Draft::engine(None, model, inproc(quick()), None);
    let text = text(model);
    let case = &reference::greedy(model).cases[8];
    let mut seen = [[0usize; MAX_VERIFY as usize]; MAX_VERIFY as usize];
    let limits = limits(150);
    let expected = fresh(&mut engine, &text, &greedy(), &mut Speculation::off(), &case.prompt_ids, &limits);
    let state = closed(&mut engine, 3);
    let truth: Vec<u32> = case.prompt_ids.iter().chain(&expected.tokens).copied().collect();
    for (name, script) in scripts {
        for width in 1..MAX_VERIFY {
            let drafter = Scripted { truth: truth.clone(), round: 0, script };
            let mut speculation =
                Speculation::new(DraftSource::Host(Box::new(drafter)), DraftLength::Fixed(width));
            let found = fresh(&mut engine, &text, &greedy(), &mut speculation, &case.prompt_ids, &limits);
            assert_eq!(found.tokens, expected.tokens, "{name}, {width} wide");
            state.assert_same(&closed(&mut engine, 3), &format!("{name}, {width} wide"));
            // The last rounds may be narrower.
            for &accepted in &found.stats.speculation.unwrap().accepted_per_round {
                seen[width as usize][accepted] += 1;
            }
        }
    }
    for width in 1..MAX_VERIFY as usize {
        assert!(seen[width][..=width].iter().all(|&n| n > 0), "{width} wide: {:?}", &seen[width][..=width]);
    }
    report(format!("{} rounds", seen.iter().flatten().sum::<usize>()));
}

/// A rollback deeper than the tape is refused, and the session goes on.
#[test]
fn more_than_was_verified_cannot_be_kept() {
    let mut engine = Draft::engine(None, Model::F16, inproc(quick()), None);
    engine.prefill(&[5, 6, 7], |_| {}).unwrap();
    engine.verify(&[8, 9, 10]).unwrap();
    assert!(matches!(engine.commit(4), Err(EngineError::Commit { wanted: 4, verified: 3 })));
    engine.commit(2).unwrap();
    assert!(matches!(engine.commit(1), Err(EngineError::Commit { wanted: 1, verified: 0 })));
    assert_eq!(engine.n_past(), 5);
    // What was verified and not kept is gone with the next step.
    engine.verify(&[20, 21]).unwrap();
    let state = closed(&mut engine, 10);
    engine.reset();
    engine.prefill(&[5, 6, 7, 8, 9], |_| {}).unwrap();
    closed(&mut engine, 10).assert_same(&state, "kept 2 of 3, then 0 of 2");
    // Plain engines cannot take anything back.
    let mut plain = Model::F16.engine(inproc(quick()), &hexflash::engine::EngineOptions::default());
    assert!(matches!(plain.verify(&[1]), Err(EngineError::Without { .. })));
    assert!(matches!(plain.draft(1, 1), Err(EngineError::Without { .. })));
}

//! A draft model on another device than its target's: the same texts and states, the same drafts as on one
//! device, and one message a round to each of the two.

use hexflash::device::Device;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::Generated;
use hexflash::sampler::SamplerParams;
use hexflash::speculation::{DraftLength, DraftSource, NGram, NGramPool, Speculation};
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::{Draft, Model, inproc, reference, report};

use crate::common::{closed, fresh, greedy, limits, model_drafts, quick, text};

const MODEL: Model = Model::Q8_0;
const DRAFTS: [Draft; 3] = [Draft::Q8_0, Draft::MtpQ8_0, Draft::DsparkQ8_0];
/// Any token will do to close a run with, as long as it is the same.
const CLOSE: u32 = 11;

fn placed(draft: Draft, options: &EngineOptions) -> Engine {
    let devices: [Box<dyn Device>; 2] = [Box::new(inproc(quick())), Box::new(inproc(quick()))];
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    Engine::load_placed(&MODEL.gguf(), &draft.gguf(), devices, options, &image).unwrap()
}

fn speculations() -> Vec<(String, Speculation)> {
    let fixed = [1, 3, 7].map(|n| (format!("{n} drafts"), model_drafts(n)));
    let auto = ("auto".to_owned(), Speculation::new(DraftSource::Model, DraftLength::Auto));
    let source = DraftSource::Several {
        model: true,
        hosts: vec![Box::new(NGram::default()), Box::new(NGramPool::new().drafter())],
    };
    let several = ("auto of several".to_owned(), Speculation::new(source, DraftLength::Auto));
    fixed.into_iter().chain([auto, several]).collect()
}

#[test]
fn texts_and_states_are_those_of_plain_decoding() {
    let mut plain = Draft::engine(None, MODEL, inproc(quick()), None);
    let text = text(MODEL);
    for draft in DRAFTS {
        let mut engine = placed(draft, &EngineOptions::default());
        assert_eq!(engine.draft_device().unwrap().info().name, "inproc");
        let mut rounds = 0;
        for (i, case) in reference::greedy(MODEL).cases[..4].iter().enumerate() {
            for params in [greedy(), SamplerParams { seed: Some(i as u64), temperature: 0.9, ..greedy() }] {
                let limits = limits(40 + 3 * i);
                let off = &mut Speculation::off();
                let expected = fresh(&mut plain, &text, &params, off, &case.prompt_ids, &limits);
                let state = closed(&mut plain, CLOSE);
                for (name, mut speculation) in speculations() {
                    let what = format!("{draft:?}, {:?}, {name}", case.prompt);
                    let found =
                        fresh(&mut engine, &text, &params, &mut speculation, &case.prompt_ids, &limits);
                    assert_eq!(found.tokens, expected.tokens, "{what}");
                    state.assert_same(&closed(&mut engine, CLOSE), &what);
                    rounds += found.stats.speculation.unwrap().rounds;
                }
            }
        }
        report(format!("{draft:?} on a device of its own: {rounds} rounds"));
    }
}

/// Sampled, so that the host checks the blocks on one device as well: the blocks are the same, one by one.
#[test]
fn drafts_are_those_of_one_device() {
    let text = text(MODEL);
    let mut params = SamplerParams { temperature: 0.7, ..greedy() };
    for draft in DRAFTS {
        let mut one = Draft::engine(Some(draft), MODEL, inproc(quick()), None);
        let mut two = placed(draft, &EngineOptions::default());
        let mut accepted = 0;
        for (i, case) in reference::greedy(MODEL).cases[..4].iter().enumerate() {
            params.seed = Some(i as u64);
            for n in [1, 2, 7] {
                let run = |engine: &mut Engine| -> Generated {
                    fresh(engine, &text, &params, &mut model_drafts(n), &case.prompt_ids, &limits(60))
                };
                let [one, two] = [run(&mut one), run(&mut two)].map(|run| run.stats.speculation.unwrap());
                assert_eq!(one, two, "{draft:?}, {:?}, {n} drafts", case.prompt);
                accepted += two.accepted;
            }
        }
        report(format!("{draft:?}: {accepted} drafts accepted, as on one device"));
        assert!(accepted > 100);
    }
}

/// The features of the block come from the target's device, those of its accepted tokens go to the draft
/// model's, and the drafts come back: nothing else of any size, and no message more.
#[test]
fn a_round_is_one_exchange() {
    let case = &reference::greedy(MODEL).cases[0];
    for draft in DRAFTS {
        let mut engine = placed(draft, &EngineOptions::default());
        let taps = engine.draft_model().unwrap().taps().len();
        let row = 4 * (taps * engine.config().n_embd as usize) as u64;
        engine.prefill(&case.prompt_ids, |_| {}).unwrap();
        let mut last = engine.argmax(0);
        // The features of the prompt go ahead.
        engine.draft(last, 7).unwrap();
        let (mut rounds, mut accepted) = (0, 0);
        while rounds < 20 {
            let drafts = engine.draft(last, 7).unwrap();
            let block: Vec<u32> = std::iter::once(last).chain(drafts.iter().copied()).collect();
            engine.reset_stats();
            engine.verify(&block).unwrap();
            let mut n = 0;
            loop {
                last = engine.argmax(n);
                n += 1;
                if block.get(n) != Some(&last) {
                    break;
                }
            }
            engine.commit(n as u32).unwrap();
            engine.draft(last, 7).unwrap();
            let stats = engine.stats();
            assert_eq!(stats.messages, 2, "{draft:?}, round {rounds}");
            let features = row * (block.len() + n) as u64;
            let rest = stats.host_bytes - features;
            assert!((1..=512).contains(&rest), "{draft:?}, round {rounds}: {rest} bytes beside features");
            (rounds, accepted) = (rounds + 1, accepted + n - 1);
        }
        report(format!("{draft:?}: {rounds} rounds of two messages, {accepted} drafts accepted"));
        assert!(accepted > 20);
    }
}

/// Texts that are cut back and go on otherwise; several sequences by turns; and the loss of both devices.
#[test]
fn other_texts_in_between() {
    let cases = &reference::greedy(MODEL).cases;
    let options = EngineOptions { sequences: 2, batch: 16, ..EngineOptions::default() };
    for draft in DRAFTS {
        let mut engine = placed(draft, &options);
        let mut expected = Draft::engine(Some(draft), MODEL, inproc(quick()), None);
        let tokens: Vec<u32> = cases[3].prompt_ids.iter().chain(&cases[3].ids).copied().collect();
        let [anchor, other] = [tokens[60], cases[1].ids[0]];
        let ids: Vec<_> = engine.sequences().collect();
        engine.sequence(ids[1]).unwrap().prefill(&cases[1].prompt_ids, |_| {}).unwrap();
        engine.prefill(&tokens[..60], |_| {}).unwrap();
        expected.prefill(&tokens[..60], |_| {}).unwrap();
        let first = expected.draft(anchor, 7).unwrap();
        assert_eq!(engine.draft(anchor, 7).unwrap(), first, "{draft:?}");
        engine.sequence(ids[1]).unwrap().draft(other, 7).unwrap();
        // Plain steps, more of them than a message takes, then back to where they began.
        tokens[60..100].iter().for_each(|&token| engine.decode(token).unwrap());
        engine.draft(tokens[100], 3).unwrap();
        engine.recover().unwrap();
        assert_eq!(engine.n_past(), 100);
        engine.reset();
        engine.prefill(&tokens[..60], |_| {}).unwrap();
        assert_eq!(engine.draft(anchor, 7).unwrap(), first, "{draft:?}, after other texts");
    }
}

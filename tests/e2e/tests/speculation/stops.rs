//! A generation that ends in the middle of a round leaves text and session as plain decoding would.

use hexflash::engine::{Engine, RoundLimits};
use hexflash::generate::{Finish, Limits, generate};
use hexflash::sampler::Sampler;
use hexflash::speculation::Speculation;
use hexflash::text::TextModel;
use hexflash_abi::registers::Halt;
use hexflash_e2e::{Draft, Model, inproc, reference};

use crate::common::{closed, fresh, greedy, limits, model_drafts, quick, text};

const MODEL: Model = Model::F16;

fn engines() -> (Engine, Engine, TextModel) {
    let plain = Draft::engine(None, MODEL, inproc(quick()), None);
    (plain, Draft::engine(Some(Draft::F16), MODEL, inproc(quick()), None), text(MODEL))
}

/// Every budget from 1 on: exact, and the state too.
#[test]
fn budgets_are_exact() {
    let (mut plain, mut engine, text) = engines();
    let case = &reference::greedy(MODEL).cases[7];
    for n in 1..=40 {
        let limits = limits(n);
        let expected =
            fresh(&mut plain, &text, &greedy(), &mut Speculation::off(), &case.prompt_ids, &limits);
        let found = fresh(&mut engine, &text, &greedy(), &mut model_drafts(7), &case.prompt_ids, &limits);
        assert_eq!(found.tokens, expected.tokens);
        assert_eq!(found.tokens.len(), n);
        assert_eq!(found.finish_reason, Finish::Length);
        closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), &format!("{n} tokens"));
    }
}

/// A stop text that ends within a block.
#[test]
fn stop_texts() {
    let (mut plain, mut engine, text) = engines();
    let mut stopped = 0;
    for case in &reference::greedy(MODEL).cases {
        for (from, to) in [(10, 13), (33, 37), (60, 61)] {
            let Some(stop) = case.text.get(from..to) else { continue };
            let limits = Limits { stop: vec![stop.to_owned()], ..limits(64) };
            let expected =
                fresh(&mut plain, &text, &greedy(), &mut Speculation::off(), &case.prompt_ids, &limits);
            let found = fresh(&mut engine, &text, &greedy(), &mut model_drafts(7), &case.prompt_ids, &limits);
            assert_eq!(found.text, expected.text, "{stop:?}");
            assert_eq!(found.tokens, expected.tokens);
            assert_eq!(found.finish_reason, expected.finish_reason);
            stopped += usize::from(found.finish_reason == Finish::Stop);
            closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), stop);
        }
    }
    assert!(stopped >= 10, "{stopped}");
}

/// Stop tokens end a round on the device, wherever in the block they come, and rounds in flight do nothing more.
#[test]
fn stop_tokens() {
    let (mut plain, mut engine, _) = engines();
    let case = &reference::greedy(MODEL).cases[9];
    let mut places = std::collections::BTreeSet::new();
    for at in 2..40 {
        let stop = case.ids[at];
        let Some(first) = case.ids[1..].iter().position(|&id| id == stop) else { continue };
        engine.reset();
        engine.prefill(&case.prompt_ids, |_| {}).unwrap();
        let limits = RoundLimits { draft_max: 7, tokens: 100, stops: &[4095, stop] };
        assert!(engine.begin_rounds(case.ids[0], &limits).unwrap());
        let mut emitted: Vec<u32> = Vec::new();
        loop {
            while engine.rounds_in_flight() < 2 {
                engine.submit_round().unwrap();
            }
            let report = engine.next_round().unwrap();
            emitted.extend(&*report.tokens);
            if report.halt == Halt::Finished {
                places.insert(report.tokens.len());
                break;
            }
        }
        let idle = engine.next_round().unwrap();
        assert_eq!((idle.tokens.len(), idle.halt), (0, Halt::Finished));
        assert_eq!(emitted, case.ids[1..first + 2]);
        plain.reset();
        plain.prefill(&case.prompt_ids, |_| {}).unwrap();
        case.ids[..=first].iter().for_each(|&id| plain.decode(id).unwrap());
        closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), &format!("stop at {first}"));
    }
    assert!(places.len() >= 4, "{places:?}");
}

/// Interrupted after any number of pieces: what was emitted is the beginning of the text, and the next turn goes on
/// from there.
#[test]
fn interrupts() {
    let (mut plain, mut engine, text) = engines();
    let case = &reference::greedy(MODEL).cases[6];
    let long = limits(60);
    let whole = fresh(&mut plain, &text, &greedy(), &mut Speculation::off(), &case.prompt_ids, &long);
    for pieces in 1..12 {
        engine.reset();
        let mut sampler = Sampler::new(greedy()).unwrap();
        let mut left = pieces;
        let mut shown = String::new();
        let on_text = |piece: &str| {
            shown.push_str(piece);
            left -= 1;
            left > 0
        };
        let (tokenizer, mut drafts) = (&text.tokenizer, model_drafts(7));
        let found = generate(
            &mut engine,
            tokenizer,
            &mut sampler,
            &mut drafts,
            &case.prompt_ids,
            &long,
            |_| {},
            on_text,
        );
        let found = found.unwrap();
        assert_eq!(found.finish_reason, Finish::Interrupted);
        assert_eq!(found.text, shown);
        let n = found.tokens.len();
        assert_eq!(found.tokens, whole.tokens[..n]);
        plain.reset();
        plain.prefill(&case.prompt_ids, |_| {}).unwrap();
        found.tokens[..n - 1].iter().for_each(|&id| plain.decode(id).unwrap());
        closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), &format!("{pieces} pieces"));
    }
}

/// Ten turns in one session, with and without drafts.
#[test]
fn a_conversation() {
    let (mut plain, mut engine, text) = engines();
    let turns = [
        "def quicksort(",
        "import os\n",
        "## Errors\n",
        "class Stack:",
        " returns",
        "fn main() {",
        "# Examples\n",
        "x = ",
        "The `Vec` type",
        "self.",
    ];
    let talk = |engine: &mut Engine, drafts: &mut Speculation| {
        engine.reset();
        let mut sampler = Sampler::new(greedy()).unwrap();
        let mut said = Vec::new();
        let mut last = None;
        for (i, turn) in turns.iter().enumerate() {
            let mut prompt: Vec<u32> = last.into_iter().collect();
            prompt.extend(text.encode(turn).unwrap());
            let limits = Limits { stop: vec!["\n\n".to_owned()], ..limits(12 + i) };
            let go_on = |_: &str| true;
            let tokenizer = &text.tokenizer;
            let got =
                generate(engine, tokenizer, &mut sampler, drafts, &prompt, &limits, |_| {}, go_on).unwrap();
            last = got.tokens.last().copied();
            said.push(got.text);
        }
        said
    };
    let expected = talk(&mut plain, &mut Speculation::off());
    for n in [1, 3, 7] {
        assert_eq!(talk(&mut engine, &mut model_drafts(n)), expected, "{n} drafts");
    }
    closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), "after ten turns");
}

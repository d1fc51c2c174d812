//! A generation that ends in the middle of a round leaves text and session as plain decoding would.

use hexflash::engine::{Engine, EngineError, RoundLimits};
use hexflash::generate::{Event, Finish, Limits};
use hexflash::gguf::{Gguf, writer::GgufWriter};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, NGram, Speculation};
use hexflash::text::TextModel;
use hexflash_abi::registers::Halt;
use hexflash_e2e::{Draft, Model, generate, inproc, reference, visible};

use crate::common::{closed, fresh, greedy, limits, model_drafts, quick, text};

const MODEL: Model = Model::F16;

fn engines() -> (Engine, Engine, TextModel) {
    let plain = Draft::engine(None, MODEL, inproc(quick()), None);
    (plain, Draft::engine(Some(Draft::F16), MODEL, inproc(quick()), None), text(MODEL))
}

/// Every budget, also of no tokens: exact, and the state too.
#[test]
fn budgets_are_exact() {
    let (mut plain, mut engine, text) = engines();
    let case = &reference::greedy(MODEL).cases[7];
    for n in 0..=40 {
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

/// Nothing to emit, nothing to draft, more stop tokens than there is room for: refused at once, and nothing
/// is lost.
#[test]
fn limits_that_are_none() {
    let (_, mut engine, _) = engines();
    engine.prefill(&[5, 6, 7], |_| {}).unwrap();
    let good = RoundLimits { draft_max: 3, tokens: 9, stops: &[] };
    let many = [1; 33];
    for bad in [
        RoundLimits { draft_max: 0, ..good },
        RoundLimits { tokens: 0, ..good },
        RoundLimits { stops: &many, ..good },
    ] {
        assert!(matches!(engine.rounds(8, &bad), Err(EngineError::Setting { .. })), "{bad:?}");
    }
    let mut rounds = engine.rounds(8, &good).unwrap().unwrap();
    let mut idle = rounds.idle().unwrap();
    assert!(matches!(idle.set_drafts(0, 3), Err(EngineError::Setting { .. })));
    assert!(matches!(idle.set_drafts(4, 3), Err(EngineError::Setting { .. })));
    assert!(rounds.submit().unwrap());
    assert!(rounds.idle().is_none(), "a round is in flight");
    assert_eq!(rounds.next().unwrap().unwrap().drafted, 3);
    assert_eq!(rounds.next().unwrap(), None);
}

/// Rounds that are dropped or left behind by a suspended guard end by themselves: the engine goes on after
/// all that they emitted, also where the next call is refused.
#[test]
fn rounds_that_nobody_finishes() {
    let (mut plain, mut engine, _) = engines();
    let case = &reference::greedy(MODEL).cases[9];
    let limits = RoundLimits { draft_max: 7, tokens: 100, stops: &[] };
    for (read, suspended) in [(0, false), (1, false), (2, false), (0, true), (1, true)] {
        engine.reset();
        engine.prefill(&case.prompt_ids, |_| {}).unwrap();
        let mut rounds = engine.rounds(case.ids[0], &limits).unwrap().unwrap();
        assert!(rounds.submit().unwrap() && rounds.submit().unwrap());
        assert!(!rounds.submit().unwrap(), "a third one");
        let mut known = 0;
        for _ in 0..read {
            known += rounds.next().unwrap().unwrap().tokens.len();
        }
        if suspended {
            rounds.suspend();
            let seen = engine.resume_rounds().unwrap();
            assert_eq!(seen.in_flight(), 2 - read);
            seen.suspend();
            assert!(matches!(engine.decode(u32::MAX), Err(EngineError::Token { .. })));
        } else {
            drop(rounds);
        }
        assert!(engine.resume_rounds().is_none());
        let kept = engine.n_past() as usize - case.prompt_ids.len();
        assert!(kept >= known.max(2), "{kept} tokens of two rounds, {known} known");
        plain.reset();
        plain.prefill(&case.prompt_ids, |_| {}).unwrap();
        case.ids[..kept].iter().for_each(|&id| plain.decode(id).unwrap());
        closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), &format!("{read} read, {suspended}"));
    }
}

/// What the rounds read last emitted can be cut at any token; a number beyond it keeps all.
#[test]
fn a_round_is_cut_where_the_text_ends() {
    let (mut plain, mut engine, _) = engines();
    let case = &reference::greedy(MODEL).cases[9];
    let limits = RoundLimits { draft_max: 7, tokens: 100, stops: &[] };
    for n in [0, 1, 2, 99] {
        engine.reset();
        engine.prefill(&case.prompt_ids, |_| {}).unwrap();
        let mut rounds = engine.rounds(case.ids[0], &limits).unwrap().unwrap();
        rounds.submit().unwrap();
        let emitted = rounds.next().unwrap().unwrap().tokens.len();
        rounds.finish(n).unwrap();
        let kept = emitted.min(n as usize);
        assert_eq!(engine.n_past() as usize, case.prompt_ids.len() + kept);
        plain.reset();
        plain.prefill(&case.prompt_ids, |_| {}).unwrap();
        case.ids[..kept].iter().for_each(|&id| plain.decode(id).unwrap());
        closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), &format!("{n} of {emitted} kept"));
    }
}

/// Stop tokens end a round on the device, wherever in the block they come, and rounds in flight do nothing
/// more.
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
        let mut rounds = engine.rounds(case.ids[0], &limits).unwrap().unwrap();
        let mut emitted: Vec<u32> = Vec::new();
        loop {
            while rounds.submit().unwrap() {}
            assert_eq!(rounds.in_flight(), 2);
            let report = rounds.next().unwrap().unwrap();
            emitted.extend(&*report.tokens);
            if report.halt == Halt::Finished {
                places.insert(report.tokens.len());
                break;
            }
        }
        let idle = rounds.next().unwrap().unwrap();
        assert_eq!((idle.tokens.len(), idle.halt), (0, Halt::Finished));
        assert!(!rounds.submit().unwrap(), "the text has ended");
        drop(rounds);
        assert_eq!(emitted, case.ids[1..first + 2]);
        plain.reset();
        plain.prefill(&case.prompt_ids, |_| {}).unwrap();
        case.ids[..=first].iter().for_each(|&id| plain.decode(id).unwrap());
        closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), &format!("stop at {first}"));
    }
    assert!(places.len() >= 4, "{places:?}");
}

/// Interrupted after any number of pieces: what was emitted is the beginning of the text, and the next turn
/// goes on from there.
#[test]
fn interrupts() {
    let (mut plain, mut engine, text) = engines();
    let case = &reference::greedy(MODEL).cases[6];
    let long = limits(60);
    let whole = fresh(&mut plain, &text, &greedy(), &mut Speculation::off(), &case.prompt_ids, &long);
    for pieces in 1..12_u32 {
        engine.reset();
        let mut sampler = Sampler::new(greedy()).unwrap();
        let mut left = pieces;
        let mut shown = String::new();
        let on_event = |event: Event<'_>| {
            if let Some(piece) = visible(&event) {
                shown.push_str(piece);
                left = left.saturating_sub(1);
            }
            left > 0
        };
        let (tokenizer, mut drafts) = (&text.tokenizer, model_drafts(7));
        let parties = (&mut sampler, &mut drafts);
        let found = generate(&mut engine, tokenizer, parties, &case.prompt_ids, &long, on_event);
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
            let parties = (&mut sampler, &mut *drafts);
            let got = generate(engine, &text.tokenizer, parties, &prompt, &limits, |_| true).unwrap();
            // All turns so far, whose last token is not in the context yet.
            assert_eq!(got.stats.context_tokens, engine.n_past() + 1);
            assert!(i == 0 || got.stats.context_tokens as usize > prompt.len() + got.tokens.len());
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

/// The text side of the model, with another end-of-generation token: a file with the metadata alone.
fn text_that_ends_with(eos: u32) -> TextModel {
    let mut file = GgufWriter::new();
    for (key, value) in MODEL.gguf().meta().iter() {
        file.kv(key, value.clone());
    }
    file.kv("tokenizer.ggml.eos_token_id", eos);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("eos-{eos}.gguf"));
    file.write_to(std::io::BufWriter::new(std::fs::File::create(&path).unwrap())).unwrap();
    TextModel::read(&Gguf::open(&path).unwrap()).unwrap()
}

/// How a turn ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Length,
    Stop,
    Eog,
    Interrupted,
    Context,
}

/// Twelve turns in one session, which end in every way there is, mostly in the middle of a block: after each
/// the text is that of plain decoding, and so is all that follows.
#[test]
fn turns_that_end_in_every_way() {
    let (mut plain, mut engine, text) = engines();
    let comma = text.encode(",").unwrap()[0];
    let ending = text_that_ends_with(comma);
    assert!(ending.tokenizer.eog().contains(comma) && !text.tokenizer.eog().contains(comma));
    // Long ones, which several tokens make, and short ones, one of which each way's texts have at least once.
    let stops =
        ["0, 0, 0", "module, mod", "__", "the ", "= ", "in", "er", "on", "t ", "re"].map(str::to_owned);
    let ends = [End::Length, End::Stop, End::Eog, End::Interrupted];
    let ngram = || DraftSource::Host(Box::new(NGram::default()));
    let ways: [(&str, Speculation); 6] = [
        ("1 draft", model_drafts(1)),
        ("3 drafts", model_drafts(3)),
        ("7 drafts", model_drafts(7)),
        ("auto", Speculation::new(DraftSource::Model, DraftLength::Auto)),
        ("5 by n-gram", Speculation::new(ngram(), DraftLength::Fixed(5))),
        ("auto by n-gram", Speculation::new(ngram(), DraftLength::Auto)),
    ];
    for (name, mut drafts) in ways {
        // By sampling, too, where blocks are long.
        let sampled = matches!(name, "7 drafts" | "auto").then_some(0.9);
        for temperature in [0.0].into_iter().chain(sampled) {
            let params = SamplerParams { temperature, seed: Some(3), ..greedy() };
            let [mut sampler, mut plain_sampler] = [(); 2].map(|()| Sampler::new(params.clone()).unwrap());
            let (mut finishes, mut last) = (std::collections::HashSet::new(), None);
            // Where lengths are chosen, the clock decides how many tokens an interruption leaves, and so what
            // follows. What the texts of one dialogue lack those of another one have.
            for (dialogue, turn) in (0..4).flat_map(|dialogue| (0..13).map(move |turn| (dialogue, turn))) {
                if turn == 0 {
                    if finishes.len() == 5 {
                        break;
                    }
                    engine.reset();
                    plain.reset();
                    last = None;
                }
                let end = if turn == 12 { End::Context } else { ends[turn % 4] };
                let what = format!("{name} at {temperature}, dialogue {dialogue}, turn {turn}, {end:?}");
                let mut prompt: Vec<u32> = last.into_iter().collect();
                prompt.extend(
                    text.encode(["def f(", "let x = ", "\n\nReturns", "class A:\n"][(turn + dialogue) % 4])
                        .unwrap(),
                );
                let mut limits = Limits {
                    max_tokens: (end != End::Context).then_some(17 + turn),
                    stop: if end == End::Stop { stops.to_vec() } else { Vec::new() },
                    ignore_eos: end != End::Eog,
                    ..Limits::default()
                };
                let tokenizer = if end == End::Eog { &ending.tokenizer } else { &text.tokenizer };
                let mut pieces = if end == End::Interrupted { 6 } else { usize::MAX };
                let on_event = |event: Event<'_>| {
                    pieces = pieces.saturating_sub(usize::from(visible(&event).is_some()));
                    pieces > 0
                };
                let parties = (&mut sampler, &mut drafts);
                let found = generate(&mut engine, tokenizer, parties, &prompt, &limits, on_event);
                let found = found.unwrap();
                finishes.insert(format!("{:?}", found.finish_reason));
                if found.finish_reason == Finish::Interrupted {
                    // What was under way is text like any other.
                    limits.max_tokens = Some(found.tokens.len());
                }
                let parties = (&mut plain_sampler, &mut Speculation::off());
                let expected = generate(&mut plain, tokenizer, parties, &prompt, &limits, |_| true);
                let expected = expected.unwrap();
                assert_eq!(found.tokens, expected.tokens, "{what}");
                assert_eq!(found.text, expected.text, "{what}");
                if found.finish_reason != Finish::Interrupted {
                    assert_eq!(found.finish_reason, expected.finish_reason, "{what}");
                }
                assert_eq!(engine.n_past(), plain.n_past(), "{what}");
                last = found.tokens.last().copied();
            }
            assert_eq!(finishes.len(), 5, "{name} at {temperature}: {finishes:?}");
        }
    }
}

//! A generation that is cancelled, by whoever and whenever, ends after the step under way. What it has by
//! then is the beginning of the text, and the next prompt goes on from there.

use hexflash::cancel::Cancel;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Event, Finish, Generated, Limits};
use hexflash::sampler::Sampler;
use hexflash::speculation::{DraftLength, DraftSource, NGram, Speculation};
use hexflash::text::TextModel;
use hexflash_e2e::{Draft, Model, generate, inproc, reference, visible};

use crate::common::{closed, fresh, greedy, limits, model_drafts, quick, text};

const MODEL: Model = Model::F16;

/// Generates greedily from the context that the engine has.
fn go_on(
    engine: &mut Engine,
    text: &TextModel,
    speculation: &mut Speculation,
    prompt: &[u32],
    limits: &Limits,
    mut on_prompt: impl FnMut(usize),
    mut on_text: impl FnMut(&str),
) -> Generated {
    let mut sampler = Sampler::new(greedy()).unwrap();
    let on_event = |event: Event<'_>| {
        match event {
            Event::Prompt { done, .. } => on_prompt(done),
            event => visible(&event).into_iter().for_each(&mut on_text),
        }
        true
    };
    generate(engine, &text.tokenizer, (&mut sampler, speculation), prompt, limits, on_event).unwrap()
}

/// Nobody drafts, a draft model does, n-grams do.
fn drafters() -> [Speculation; 3] {
    let ngrams = DraftSource::Host(Box::new(NGram::default()));
    [Speculation::off(), model_drafts(7), Speculation::new(ngrams, DraftLength::Fixed(7))]
}

#[test]
fn a_prompt_ends_after_the_batch_under_way_and_its_rest_can_follow() {
    let options = EngineOptions { batch: 2, ..EngineOptions::default() };
    let mut engine = MODEL.engine(inproc(quick()), &options);
    let text = text(MODEL);
    let case = &reference::greedy(MODEL).cases[7];
    let prompt = &case.prompt_ids;
    assert!(prompt.len() > 4, "{prompt:?}");
    let mut off = Speculation::off();
    let whole = fresh(&mut engine, &text, &greedy(), &mut off, prompt, &limits(12));
    for batches in 1..=2 {
        engine.reset();
        let cancel = Cancel::default();
        let cancelled = Limits { cancel: cancel.clone(), ..limits(12) };
        let mut reports = Vec::new();
        let on_prompt = |done| {
            reports.push(done);
            if reports.len() == batches {
                cancel.cancel();
            }
        };
        let found = go_on(&mut engine, &text, &mut off, prompt, &cancelled, on_prompt, |_| {});
        assert_eq!(reports.len(), batches, "{reports:?}");
        assert_eq!((found.finish_reason, found.tokens.len(), &*found.text), (Finish::Interrupted, 0, ""));
        assert_eq!(found.stats.prompt_tokens, 2 * batches);
        assert_eq!(engine.n_past() as usize, 2 * batches);
        let rest = &prompt[2 * batches..];
        let found = go_on(&mut engine, &text, &mut off, rest, &limits(12), |_| {}, |_| {});
        assert_eq!(found.tokens, whole.tokens);
    }
}

/// All of the text is held back, as it may be the beginning of a stop text. What was held back is printed at
/// the end.
#[test]
fn tokens_without_visible_text_are_no_reason_to_go_on() {
    let mut engine = Draft::engine(Some(Draft::F16), MODEL, inproc(quick()), None);
    let text = text(MODEL);
    let case = &reference::greedy(MODEL).cases[7];
    let prompt = &case.prompt_ids;
    for mut speculation in drafters() {
        let whole = fresh(&mut engine, &text, &greedy(), &mut speculation, prompt, &limits(40));
        engine.reset();
        let cancel = Cancel::default();
        let stop = vec![format!("{}\u{0}", whole.text)];
        let silent = Limits { stop, cancel: cancel.clone(), ..limits(40) };
        let mut shown = String::new();
        let on_prompt = |done| {
            if done == prompt.len() {
                cancel.cancel();
            }
        };
        let on_text = |piece: &str| {
            shown.push_str(piece);
        };
        let found = go_on(&mut engine, &text, &mut speculation, prompt, &silent, on_prompt, on_text);
        assert_eq!(found.finish_reason, Finish::Interrupted);
        assert_eq!(
            found.tokens,
            whole.tokens[..1],
            "the token that follows the prompt, and no step after it"
        );
        assert_eq!(found.text, shown);
        assert!(!shown.is_empty() && whole.text.starts_with(&shown), "{shown:?}");
    }
}

/// In plain steps, in rounds on the device and in blocks that the host checks.
#[test]
fn a_text_ends_after_the_step_under_way() {
    [Draft::F16, Draft::MtpF16].into_iter().for_each(ends_after_the_step_under_way);
}

fn ends_after_the_step_under_way(draft: Draft) {
    let mut plain = Draft::engine(None, MODEL, inproc(quick()), None);
    let mut engine = Draft::engine(Some(draft), MODEL, inproc(quick()), None);
    let text = text(MODEL);
    let case = &reference::greedy(MODEL).cases[6];
    let prompt = &case.prompt_ids;
    let whole = fresh(&mut plain, &text, &greedy(), &mut Speculation::off(), prompt, &limits(60));
    // Pieces that may come after it: none of a plain step, nor of a block that the host checks; of rounds,
    // the rest of the one at hand and two of up to 8 tokens that were sent by then.
    for (mut speculation, most) in drafters().into_iter().zip([0, 7 + 2 * 8, 0]) {
        for pieces in [1, 2, 5] {
            engine.reset();
            let cancel = Cancel::default();
            let cancelled = Limits { cancel: cancel.clone(), ..limits(60) };
            let (mut shown, mut count, mut late) = (String::new(), 0, 0);
            let on_text = |piece: &str| {
                shown.push_str(piece);
                late += usize::from(cancel.is_cancelled());
                count += 1;
                if count == pieces {
                    cancel.cancel();
                }
            };
            let found = go_on(&mut engine, &text, &mut speculation, prompt, &cancelled, |_| {}, on_text);
            assert_eq!(found.finish_reason, Finish::Interrupted, "{pieces} pieces");
            assert_eq!(found.text, shown);
            assert!(late <= most, "{late} pieces came after it was cancelled");
            let n = found.tokens.len();
            assert_eq!(found.tokens, whole.tokens[..n]);
            plain.reset();
            plain.prefill(prompt, |_| {}).unwrap();
            found.tokens[..n - 1].iter().for_each(|&id| plain.decode(id).unwrap());
            closed(&mut plain, 3).assert_same(&closed(&mut engine, 3), &format!("{pieces} pieces"));
        }
    }
}

//! Generations as a scheduler uses them: stepped by turns, on any thread, cancelled and dropped at any step.

use std::sync::Arc;

use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Event, Finish, GenerateError, Generated, Generation, Limits, Request};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, NGram, Speculation};
use hexflash::text::TextModel;
use hexflash_e2e::{Draft, Model, inproc, reference, settings};

const MODEL: Model = Model::Q8_0;

fn engine() -> Engine {
    Draft::engine(Some(Draft::Q8_0), MODEL, inproc(settings()), None)
}

/// Rounds on the device, blocks that the host checks, sampled and greedy, plain steps.
fn requests() -> Vec<Request> {
    let sampler = |temperature| {
        Sampler::new(SamplerParams { temperature, seed: Some(7), ..SamplerParams::default() }).unwrap()
    };
    let cases = reference::greedy(MODEL).cases;
    let request = |case: usize, temperature, source, length| {
        let limits = Limits { ignore_eos: true, ..Limits::tokens(50 + case) };
        let speculation = Speculation::new(source, length);
        Request::new(&*cases[case].prompt_ids, sampler(temperature)).limits(limits).speculation(speculation)
    };
    vec![
        request(3, 0.0, DraftSource::None, DraftLength::Fixed(0)),
        request(5, 0.0, DraftSource::Model, DraftLength::Fixed(7)),
        request(6, 0.0, DraftSource::Model, DraftLength::Auto),
        request(7, 0.8, DraftSource::Model, DraftLength::Fixed(3)),
        request(8, 0.0, DraftSource::Host(Box::new(NGram::default())), DraftLength::Fixed(5)),
    ]
}

fn generations() -> Vec<Generation> {
    let tokenizer = TextModel::read(&MODEL.gguf()).unwrap().tokenizer;
    requests().into_iter().map(|request| Generation::new(Arc::clone(&tokenizer), request)).collect()
}

fn alone(generation: Generation, engine: &mut Engine) -> Generated {
    engine.reset();
    generation.run(engine, |_| {}).unwrap().generated
}

fn advance(generation: &mut Generation, engine: &mut Engine, steps: usize) {
    for _ in 0..steps {
        generation.step(engine).unwrap();
    }
}

/// Each has an engine; one thread steps all of them, a token each, and another one takes over in the middle.
#[test]
fn stepped_by_turns_and_on_two_threads_each_text_is_its_own() {
    let mut one = engine();
    let expected: Vec<Generated> = generations().into_iter().map(|g| alone(g, &mut one)).collect();
    let mut all: Vec<(Generation, Engine)> = generations().into_iter().map(|g| (g, engine())).collect();
    let turn = |all: &mut Vec<(Generation, Engine)>| {
        let done = |(generation, engine): &mut (Generation, Engine)| {
            matches!(generation.step(engine).unwrap(), Event::Done(_))
        };
        all.iter_mut().map(done).filter(|&done| done).count()
    };
    (0..9).for_each(|_| assert_eq!(turn(&mut all), 0));
    let all = std::thread::spawn(move || {
        while turn(&mut all) < all.len() {}
        all
    });
    for ((generation, engine), expected) in all.join().unwrap().into_iter().zip(&expected) {
        let place = generation.tokens().len();
        let found = generation.into_ended().generated;
        assert_eq!((&found.tokens, &found.text), (&expected.tokens, &expected.text), "{place} tokens");
        assert_eq!(engine.n_past() as usize + 1, found.stats.context_tokens as usize);
    }
}

/// Cancelled after any step: the next one is the end, but for rounds that are under way; the text is the
/// beginning of the whole one, and the context is that of the text.
#[test]
fn cancelled_after_any_step_it_ends_with_the_next() {
    let mut engine = engine();
    let whole: Vec<Generated> = generations().into_iter().map(|g| alone(g, &mut engine)).collect();
    for steps in [0, 1, 2, 3, 5, 8, 13, 21] {
        for (i, (mut generation, whole)) in generations().into_iter().zip(&whole).enumerate() {
            engine.reset();
            advance(&mut generation, &mut engine, steps);
            generation.cancel();
            let mut late = 0;
            let generated = loop {
                match generation.step(&mut engine).unwrap() {
                    Event::Done(generated) => break generated.clone(),
                    _ => late += 1,
                }
            };
            let what = format!("request {i} after {steps} steps");
            let in_rounds = i == 1 || i == 2;
            assert!(late <= if in_rounds { 7 + 2 * 8 } else { 1 }, "{what}: {late} steps more");
            assert_eq!(generated.finish_reason, Finish::Interrupted, "{what}");
            assert!(whole.tokens.starts_with(&generated.tokens), "{what}");
            let tokens = generated.stats.prompt_tokens + generated.tokens.len();
            let last = usize::from(!generated.tokens.is_empty());
            assert_eq!(engine.n_past() as usize, tokens - last, "{what}");
            assert_eq!(
                engine.history()[generated.stats.prompt_tokens..],
                generated.tokens[..tokens - last - generated.stats.prompt_tokens]
            );
        }
    }
}

#[test]
fn a_prompt_stops_between_its_pieces() {
    let options = EngineOptions { batch: 2, ..EngineOptions::default() };
    let mut engine = MODEL.engine(inproc(settings()), &options);
    let mut generation = generations().remove(0);
    for done in [2, 4] {
        let event = generation.step(&mut engine).unwrap();
        assert!(matches!(event, Event::Prompt { done: n, .. } if n == done), "{event:?}");
    }
    generation.cancel();
    let Event::Done(generated) = generation.step(&mut engine).unwrap() else { panic!("it goes on") };
    assert_eq!((generated.stats.prompt_tokens, generated.tokens.len()), (4, 0));
    assert_eq!(engine.n_past(), 4);
}

/// Dropped in the middle of a block or of rounds, with others in flight: the engine can be used as if nothing
/// had been.
#[test]
fn dropped_in_the_middle_it_leaves_a_sound_engine() {
    let mut engine = engine();
    let whole: Vec<Generated> = generations().into_iter().map(|g| alone(g, &mut engine)).collect();
    for steps in [2, 4, 9] {
        for mut generation in generations() {
            engine.reset();
            advance(&mut generation, &mut engine, steps);
        }
        let again: Vec<Generated> = generations().into_iter().map(|g| alone(g, &mut engine)).collect();
        assert!(again.iter().zip(&whole).all(|(again, whole)| again.tokens == whole.tokens), "{steps} steps");
    }
}

/// Text must not go on from a context that is another's.
#[test]
fn what_the_engine_did_in_between_is_noticed() {
    let mut engine = engine();
    for (i, mut generation) in generations().into_iter().enumerate() {
        engine.reset();
        advance(&mut generation, &mut engine, 4);
        let tokens = generation.tokens().to_vec();
        engine.decode(5).unwrap();
        let error = generation.step(&mut engine).unwrap_err();
        assert!(matches!(error, GenerateError::Displaced), "request {i}: {error}");
        // It is over then, with what it had.
        let Event::Done(generated) = generation.step(&mut engine).unwrap() else { panic!("request {i}") };
        assert_eq!(
            (&generated.tokens, generated.finish_reason),
            (&tokens, Finish::Interrupted),
            "request {i}"
        );
    }
}

//! Several sequences in one engine: whatever steps they share, each is bit for bit what it is alone.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use hexflash::device::inproc::Inproc;
use hexflash::device::{Device, DeviceOptions, SplitDevice};
use hexflash::engine::{Engine, EngineError, EngineOptions, SequenceId, StepRows};
use hexflash::generate::{Event, Generation, Limits, Request, step_together};
use hexflash::gguf::Gguf;
use hexflash::model::{CacheType, CacheTypes, MAX_SHARED};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, Drafter, NGram, NGramPool, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::lossy::Lossy;
use hexflash_e2e::state::Snapshot;
use hexflash_e2e::{Draft, Model, inproc, reference, settings};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

const CONTEXT: u32 = 160;
/// A prompt longer than a shared step.
const LONG: usize = 90;

/// An engine with a draft and room for `sequences`.
fn engine(draft: Draft, model: Model, sequences: u32) -> Engine {
    engine_on(inproc(settings()), draft, model, sequences)
}

fn engine_on(device: impl Device + 'static, draft: Draft, model: Model, sequences: u32) -> Engine {
    engine_with(CacheType::F16, device, draft, model, sequences)
}

/// The same with caches of this number format.
fn engine_with(
    cache: CacheType,
    device: impl Device + 'static,
    draft: Draft,
    model: Model,
    sequences: u32,
) -> Engine {
    let options = EngineOptions {
        n_ctx: Some(CONTEXT),
        batch: 32,
        caches: CacheTypes::both(cache),
        sequences,
        speculate: true,
        ..EngineOptions::default()
    };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let draft: Gguf = draft.gguf();
    Engine::load_with(&model.gguf(), Some(&draft), Box::new(device), &options, &image).unwrap()
}

/// Token ids of a reference text, prompt and all.
fn tokens(n: usize) -> Vec<u32> {
    let cases = reference::greedy(Model::F16).cases;
    cases.iter().flat_map(|case| case.prompt_ids.iter().chain(&case.ids)).copied().take(n).collect()
}

/// What one of the eight wants.
#[derive(Clone)]
struct Wish {
    prompt: Vec<u32>,
    params: SamplerParams,
    drafts: fn() -> Speculation,
    max_tokens: usize,
}

impl Wish {
    fn generation(&self, text: &TextModel, sequence: SequenceId) -> Generation {
        let limits = Limits { max_tokens: Some(self.max_tokens), ignore_eos: true, ..Limits::default() };
        let request = Request::new(self.prompt.clone(), Sampler::new(self.params.clone()).unwrap())
            .limits(limits)
            .speculation((self.drafts)())
            .sequence(sequence);
        Generation::new(text.tokenizer.clone(), request)
    }
}

/// Eight wishes: greedy and sampled, without drafts and with those of every kind of drafter, short and long
/// prompts.
fn wishes() -> Vec<Wish> {
    let all = tokens(400);
    let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let sampled = |seed| SamplerParams { temperature: 0.9, seed: Some(seed), ..SamplerParams::default() };
    let model = || Speculation::new(DraftSource::Model, DraftLength::Fixed(6));
    let ngrams = || Speculation::new(DraftSource::Host(Box::new(NGram::default())), DraftLength::Fixed(5));
    let learning =
        || Speculation::new(DraftSource::Host(Box::new(NGramPool::new().drafter())), DraftLength::Fixed(4));
    let several = || {
        let hosts: Vec<Box<dyn Drafter>> =
            vec![Box::new(NGram::default()), Box::new(NGramPool::new().drafter())];
        Speculation::new(DraftSource::Several { model: true, hosts }, DraftLength::Auto)
    };
    let wish = |from: usize, n: usize, params: &SamplerParams, drafts, max_tokens| Wish {
        prompt: all[from..from + n].to_vec(),
        params: params.clone(),
        drafts,
        max_tokens,
    };
    vec![
        wish(20, 1, &greedy, Speculation::off, 64),
        wish(50, 33, &greedy, Speculation::off, 31),
        // Four drafters, and four seeds.
        wish(100, 17, &sampled(7), model, 40),
        wish(130, 5, &sampled(8), several, 30),
        wish(60, 25, &sampled(9), ngrams, 50),
        wish(90, 12, &sampled(10), learning, 36),
        wish(0, 9, &greedy, model, 45),
        wish(200, LONG, &greedy, Speculation::off, 50),
    ]
}

/// The state after one more plain step, which folds whatever is on the tape.
fn closed(engine: &mut Engine, id: SequenceId) -> Snapshot {
    if let Err(loss) = engine.sequence(id).unwrap().decode(42) {
        assert!(loss.is_loss(), "{loss}");
        engine.recover().unwrap();
        engine.sequence(id).unwrap().decode(42).unwrap();
    }
    Snapshot::of_sequence(engine, id)
}

/// The tokens of a generation and the state that it leaves.
type End = (Vec<u32>, Snapshot);

/// What each wish gives in an engine of its own sequence.
fn alone(draft: Draft, model: Model, text: &TextModel) -> Vec<End> {
    alone_with(CacheType::F16, draft, model, text)
}

/// The same with caches of this number format.
fn alone_with(cache: CacheType, draft: Draft, model: Model, text: &TextModel) -> Vec<End> {
    let mut engine = engine_with(cache, inproc(settings()), draft, model, 1);
    let one = |wish: Wish| {
        engine.reset();
        let generation = wish.generation(text, SequenceId::FIRST);
        let ended = generation.run(&mut engine, |_| ()).unwrap();
        (ended.generated.tokens, closed(&mut engine, SequenceId::FIRST))
    };
    wishes().into_iter().map(one).collect()
}

/// Runs all wishes in one engine: at each turn some of them together, or one by itself, in random order.
fn interleaved(engine: &mut Engine, text: &TextModel, seed: u64) -> Vec<End> {
    let mut random = Pcg32::seed_from_u64(seed);
    let mut ids: Vec<_> = engine.sequences().collect();
    ids.shuffle(&mut random);
    for &id in &ids {
        engine.sequence(id).unwrap().reset();
    }
    let mut running: HashMap<usize, Generation> = HashMap::new();
    let mut waiting: Vec<_> = wishes().into_iter().enumerate().collect();
    let mut tokens = vec![Vec::new(); waiting.len()];
    while !waiting.is_empty() || !running.is_empty() {
        if !waiting.is_empty() && (running.is_empty() || random.random_bool(0.3)) {
            let (n, wish) = waiting.swap_remove(random.random_range(0..waiting.len()));
            running.insert(n, wish.generation(text, ids[n]));
        }
        let mut chosen: Vec<_> = running.iter_mut().collect();
        chosen.sort_by_key(|(n, _)| **n);
        chosen.shuffle(&mut random);
        chosen.truncate(random.random_range(1..=chosen.len()));
        let mut done = Vec::new();
        if random.random_bool(0.25) {
            let (n, generation) = chosen.swap_remove(0);
            if let Event::Done(_) = generation.step(engine).unwrap() {
                done.push(*n);
            }
        } else {
            let (numbers, mut together): (Vec<&usize>, Vec<&mut Generation>) = chosen.into_iter().unzip();
            step_together(engine, &mut together, |i, event| {
                if let Event::Done(_) = event.unwrap() {
                    done.push(*numbers[i]);
                }
            });
        }
        for n in done {
            let ended = running.remove(&n).unwrap().into_ended();
            tokens[n] = ended.generated.tokens;
        }
    }
    let states = ids.iter().map(|&id| closed(engine, id));
    tokens.into_iter().zip(states).collect()
}

#[test]
fn texts_and_states_do_not_depend_on_neighbours() {
    for (model, draft, cache) in [
        (Model::F16, Draft::F16, CacheType::F16),
        (Model::Q8_0, Draft::F16, CacheType::F16),
        (Model::Q8_0, Draft::MtpQ8_0, CacheType::F16),
        (Model::Q8_0, Draft::F16, CacheType::Q8_0),
        (Model::Q8_0, Draft::F16, CacheType::Q4R),
    ] {
        let text = TextModel::read(&model.gguf()).unwrap();
        let expected = alone_with(cache, draft, model, &text);
        let mut engine = engine_with(cache, inproc(settings()), draft, model, 8);
        for seed in 0..6 {
            let found = interleaved(&mut engine, &text, seed);
            for (n, ((tokens, state), (right, end))) in found.iter().zip(&expected).enumerate() {
                let what = format!("{model:?} with {draft:?}, {cache} caches, seed {seed}, wish {n}");
                assert_eq!(tokens, right, "{what}");
                state.assert_same(end, &what);
            }
        }
    }
}

/// Steps between two losses: more than it takes to compute all contexts again.
const BETWEEN_LOSSES: u32 = 60;

#[test]
fn a_lost_device_gets_all_sequences_back() {
    let model = Model::F16;
    let text = TextModel::read(&model.gguf()).unwrap();
    let [dflash, mtp] = [Draft::F16, Draft::MtpF16].map(|draft| (draft, alone(draft, model, &text)));
    for (seed, (draft, expected)) in [(10, &dflash), (11, &dflash), (12, &dflash), (13, &mtp), (14, &mtp)] {
        let device = Lossy::new(inproc(settings()), BETWEEN_LOSSES);
        let losses = device.losses();
        let mut engine = engine_on(device, *draft, model, 8);
        let found = interleaved(&mut engine, &text, seed);
        for (n, ((tokens, state), (right, end))) in found.iter().zip(expected).enumerate() {
            assert_eq!(tokens, right, "seed {seed}, wish {n}");
            state.assert_same(end, &format!("seed {seed}, wish {n}"));
        }
        assert!(losses.load(Ordering::Relaxed) >= 2, "{losses:?} losses");
    }
}

/// Rounds on the device, of which some are in flight, and a neighbour who takes a step in between.
#[test]
fn rounds_wait_for_a_neighbour_who_takes_his_turn() {
    [Draft::F16, Draft::MtpQ8_0].into_iter().for_each(rounds_wait);
}

fn rounds_wait(draft: Draft) {
    let (model, all) = (Model::Q8_0, tokens(200));
    let text = TextModel::read(&model.gguf()).unwrap();
    let wish = Wish {
        prompt: all[..9].to_vec(),
        params: SamplerParams { temperature: 0.0, ..SamplerParams::default() },
        drafts: || Speculation::new(DraftSource::Model, DraftLength::Fixed(6)),
        max_tokens: 60,
    };
    let mut engine = engine(draft, model, 2);
    let ids: Vec<_> = engine.sequences().collect();
    let undisturbed = wish.generation(&text, ids[0]).run(&mut engine, |_| ()).unwrap().generated.tokens;
    let state = closed(&mut engine, ids[0]);

    for turn in [1, 2, 3, 7] {
        for &id in &ids {
            engine.sequence(id).unwrap().reset();
        }
        let mut generation = wish.generation(&text, ids[1]);
        let mut neighbour = all[100..].iter();
        for step in 1.. {
            if let Event::Done(_) = generation.step(&mut engine).unwrap() {
                break;
            }
            if step % turn == 0 {
                engine.sequence(ids[0]).unwrap().decode(*neighbour.next().unwrap()).unwrap();
            }
        }
        let stats = generation.into_ended().generated;
        assert_eq!(stats.tokens, undisturbed, "a step every {turn} tokens");
        assert!(stats.stats.speculation.unwrap().rounds > 0);
        closed(&mut engine, ids[1]).assert_same(&state, &format!("a step every {turn} tokens"));
    }
}

/// Logits of all rows of shared steps, against those of plain steps of each sequence alone.
#[test]
fn rows_of_any_kind_share_a_step() {
    let all = tokens(300);
    let mut alone = engine(Draft::F16, Model::Q8_0, 1);
    let mut expected = |prompt: &[u32], rest: &[u32]| -> Vec<Vec<f32>> {
        alone.reset();
        alone.prefill(prompt, |_| ()).unwrap();
        let mut logits = vec![alone.logits(0).to_vec()];
        for &token in rest {
            alone.decode(token).unwrap();
            logits.push(alone.logits(0).to_vec());
        }
        logits
    };
    let (a, b, c) = (&all[..40], &all[100..117], &all[200..230]);
    let [of_a, of_b, of_c] =
        [(a, 30), (b, 3), (c, 20)].map(|(tokens, prompt)| expected(&tokens[..prompt], &tokens[prompt..]));

    let mut engine = engine(Draft::F16, Model::Q8_0, 4);
    let ids: Vec<_> = engine.sequences().collect();
    let rows = [
        StepRows::append(ids[3], &a[..30]),
        StepRows::append(ids[0], &b[..3]),
        StepRows::append(ids[1], &c[..20]),
    ];
    engine.step(&rows).unwrap();
    for (id, expected) in [(ids[3], &of_a), (ids[0], &of_b), (ids[1], &of_c)] {
        assert_eq!(engine.sequence(id).unwrap().logits(0), expected[0], "{id}");
    }
    // A decoded token, a block to verify of which a part is kept, and a piece of a prompt.
    let rows = [
        StepRows::append(ids[0], &b[3..4]),
        StepRows::verify(ids[3], &a[30..40]),
        StepRows::append(ids[1], &c[20..25]),
    ];
    engine.step(&rows).unwrap();
    assert_eq!(engine.sequence(ids[0]).unwrap().logits(0), of_b[1]);
    assert_eq!(engine.sequence(ids[1]).unwrap().logits(0), of_c[5]);
    let mut verified = engine.sequence(ids[3]).unwrap();
    for (row, expected) in of_a[1..].iter().enumerate() {
        assert_eq!(verified.logits(row), expected, "row {row}");
    }
    verified.commit(4).unwrap();
    // What was taken back leaves no trace, and what was kept is folded beside the others' rows.
    let rows = [
        StepRows::append(ids[3], &a[34..35]),
        StepRows::append(ids[1], &c[25..26]),
        StepRows::verify(ids[0], &b[4..17]),
    ];
    engine.step(&rows).unwrap();
    assert_eq!(engine.sequence(ids[3]).unwrap().logits(0), of_a[5]);
    assert_eq!(engine.sequence(ids[1]).unwrap().logits(0), of_c[6]);
    assert_eq!(engine.sequence(ids[0]).unwrap().logits(12), of_b[14]);
    assert_eq!(engine.sequence(ids[2]).unwrap().n_past(), 0);
}

/// A model that is split over two sessions of the device: each has its part of every slot and snapshot.
#[test]
fn sessions_of_the_device_have_parts_of_every_sequence() {
    let (model, all) = (Model::Q8_0, tokens(200));
    let mut alone = engine(Draft::F16, model, 1);
    let mut logits_after = |tokens: &[u32]| {
        alone.reset();
        alone.prefill(tokens, |_| ()).unwrap();
        alone.logits(0).to_vec()
    };
    let device = SplitDevice::<Inproc>::open(&DeviceOptions::default(), 2).unwrap();
    let options = EngineOptions {
        n_ctx: Some(CONTEXT),
        sequences: 3,
        snapshot_bytes: 4 << 20,
        speculate: true,
        ..EngineOptions::default()
    };
    let mut engine = model.engine(device, &options);
    assert!(engine.snapshot_room() > 1);
    let ids: Vec<_> = engine.sequences().collect();
    let (a, b) = (&all[..40], &all[90..120]);
    engine.step(&[StepRows::append(ids[2], &a[..30]), StepRows::append(ids[1], &b[..9])]).unwrap();
    assert_eq!(engine.sequence(ids[1]).unwrap().logits(0), logits_after(&b[..9]));
    assert_eq!(engine.sequence(ids[2]).unwrap().save().unwrap(), 30);
    engine.step(&[StepRows::verify(ids[2], &a[30..40]), StepRows::append(ids[1], &b[9..30])]).unwrap();
    assert_eq!(engine.sequence(ids[2]).unwrap().logits(9), logits_after(a));
    assert_eq!(engine.sequence(ids[1]).unwrap().logits(0), logits_after(b));
    let mut sequence = engine.sequence(ids[2]).unwrap();
    sequence.commit(10).unwrap();
    sequence.decode(all[50]).unwrap();
    sequence.roll_back(35).unwrap();
    sequence.decode(all[60]).unwrap();
    let text: Vec<_> = a[..35].iter().copied().chain([all[60]]).collect();
    assert_eq!(sequence.logits(0), logits_after(&text));
}

#[test]
fn steps_that_make_no_sense_change_nothing() {
    let mut engine = engine(Draft::F16, Model::F16, 2);
    let ids: Vec<_> = engine.sequences().collect();
    let (few, many) = (tokens(4), tokens(MAX_SHARED as usize));
    let stranger = SequenceId::new(2);
    let wide = EngineError::Setting {
        setting: hexflash::setting::Setting::StepWidth,
        allowed: format!("at most {MAX_SHARED}, for all sequences of a step together"),
        found: u64::from(MAX_SHARED) + 4,
    };
    let none = EngineError::NoSequence { id: stranger, room: 2 };
    let cases: [(&[StepRows<'_>], EngineError); 5] = [
        (&[], EngineError::NoTokens),
        (&[StepRows::append(ids[0], &few), StepRows::append(ids[1], &[])], EngineError::NoTokens),
        (
            &[StepRows::append(ids[0], &few), StepRows::append(ids[0], &few)],
            EngineError::Twice { id: ids[0] },
        ),
        (&[StepRows::append(ids[0], &many), StepRows::append(ids[1], &few)], wide),
        (&[StepRows::append(ids[0], &few), StepRows::append(stranger, &few)], none),
    ];
    for (rows, expected) in cases {
        assert_eq!(engine.step(rows).unwrap_err().to_string(), expected.to_string());
    }
    assert_eq!(engine.stats().messages, 0);
    assert!(ids.iter().all(|&id| engine.sequence(id).unwrap().n_past() == 0));
    // A block is at most 16 tokens wide, also where others leave room for more.
    let rows = [StepRows::append(ids[0], &few), StepRows::verify(ids[1], &many[..17])];
    assert!(matches!(engine.step(&rows), Err(EngineError::Setting { found: 17, .. })));
}

/// A short request beside a prompt of 400 tokens, whenever it comes: at most a step more than alone. A server
/// adds the step that is under way.
#[test]
fn a_short_request_does_not_wait_for_a_long_prompt() {
    let (model, options) =
        (Model::Q8_0, EngineOptions { n_ctx: Some(512), sequences: 2, ..Default::default() });
    let text = TextModel::read(&model.gguf()).unwrap();
    let mut engine = model.engine(inproc(settings()), &options);
    let ids: Vec<_> = engine.sequences().collect();
    let all = tokens(400);
    let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let wish = |n: usize| Wish {
        prompt: all[..n].to_vec(),
        params: greedy.clone(),
        drafts: Speculation::off,
        max_tokens: 4,
    };
    // Steps of the short one to its first token, and those that the long one still had to read by itself.
    let mut beside = |before: Option<usize>, is_first: bool| {
        ids.iter().for_each(|&id| engine.sequence(id).unwrap().reset());
        let (mut long, mut short) = (wish(400).generation(&text, ids[0]), wish(12).generation(&text, ids[1]));
        for _ in 0..before.unwrap_or(0) {
            step_together(&mut engine, &mut [&mut long], |_, event| assert!(event.is_ok()));
        }
        for steps in 1.. {
            let (mut texts, number) = match (before, is_first) {
                (None, _) => (vec![&mut short], 0),
                (Some(_), true) => (vec![&mut short, &mut long], 0),
                (Some(_), false) => (vec![&mut long, &mut short], 1),
            };
            let mut has_token = false;
            step_together(&mut engine, &mut texts, |i, event| {
                has_token |= i == number && matches!(event.unwrap(), Event::Text(_));
            });
            if has_token {
                return (steps, long.tokens().is_empty());
            }
        }
        unreachable!("a text has tokens")
    };
    let (alone, _) = beside(None, true);
    let mut was_read = 0;
    for before in 0..6 {
        for is_first in [true, false] {
            let (steps, is_being_read) = beside(Some(before), is_first);
            assert!(steps <= alone + 1, "{steps} steps, and {alone} alone, after {before} of the long one");
            was_read += usize::from(is_being_read);
        }
    }
    assert!(was_read > 1, "the long prompt was read before");
}

//! Texts and states equal plain decoding's, for every pair of files, draft length and way to draft.

use hexflash::device::inproc::Inproc;
use hexflash::device::{DeviceOptions, SplitDevice};
use hexflash::engine::{Engine, EngineOptions, Numerics};
use hexflash::generate::Finish;
use hexflash::model::{CacheType, CacheTypes};
use hexflash::sampler::SamplerParams;
use hexflash::speculation::{DraftLength, DraftSource, Drafter, NGram, NGramPool, Speculation};
use hexflash_e2e::{Draft, Model, inproc, reference, report, settings};

use crate::common::{closed, fresh, greedy, limits, model_drafts, quick, text};

/// Any token will do to close a run with, as long as it is the same.
const CLOSE: u32 = 11;

fn speculations(draft: Draft) -> Vec<(String, Speculation)> {
    let fixed = (1..=7).map(|n| (format!("{n} drafts"), model_drafts(n)));
    let auto = ("auto".to_owned(), Speculation::new(DraftSource::Model, DraftLength::Auto));
    let ngram = [1, 4, 15].map(|n| {
        let source = DraftSource::Host(Box::new(NGram::default()));
        (format!("{n} by n-gram"), Speculation::new(source, DraftLength::Fixed(n)))
    });
    let pool = NGramPool::new();
    let several = [DraftLength::Auto, DraftLength::Fixed(5)].map(|length| {
        let hosts: Vec<Box<dyn Drafter>> = vec![Box::new(NGram::default()), Box::new(pool.drafter())];
        let source = DraftSource::Several { model: true, hosts };
        (format!("{length:?} of several"), Speculation::new(source, length))
    });
    let learning = DraftSource::Host(Box::new(pool.drafter()));
    let learning = ("7 by ngram-mod".to_owned(), Speculation::new(learning, DraftLength::Fixed(7)));
    // N-grams do not care which draft model there is.
    fixed
        .chain([auto])
        .chain(several)
        .chain([learning])
        .chain(ngram.into_iter().filter(|_| !draft.is_mtp()))
        .collect()
}

/// The ways to draft that a text takes its turn with: of `turns` texts in a row each takes others, so that
/// together they take all. With `HEXFLASH_EVERY_DRAFT` set, as `cargo xtask daily` does now and then, each
/// text takes all of them.
fn in_turn(draft: Draft, text: usize, turns: usize) -> impl Iterator<Item = (String, Speculation)> {
    let turns = if std::env::var_os("HEXFLASH_EVERY_DRAFT").is_some() { 1 } else { turns };
    let all = speculations(draft).into_iter().enumerate();
    all.filter(move |(i, _)| i % turns == text % turns).map(|(_, speculation)| speculation)
}

/// Greedy: all prompts of the reference, all lengths; tokens, then caches, rings, states and logits.
fn greedy_is_the_same(model: Model, draft: Draft, cache: CacheType) {
    let options = EngineOptions { caches: CacheTypes::both(cache), ..EngineOptions::default() };
    let mut plain = Draft::engine_with(None, model, inproc(quick()), options.clone());
    let mut engine = Draft::engine_with(Some(draft), model, inproc(quick()), options);
    let text = text(model);
    let (mut runs, mut bytes, mut rounds) = (0, 0, 0);
    for (i, case) in reference::greedy(model).cases.iter().enumerate() {
        // Lengths that are no multiple of anything.
        let limits = limits(50 + 3 * i);
        let off = &mut Speculation::off();
        let expected = fresh(&mut plain, &text, &greedy(), off, &case.prompt_ids, &limits);
        let state = closed(&mut plain, CLOSE);
        for (name, mut speculation) in in_turn(draft, i, 2) {
            let what = format!("{model:?} with {draft:?}, {cache} caches, {:?}, {name}", case.prompt);
            let found = fresh(&mut engine, &text, &greedy(), &mut speculation, &case.prompt_ids, &limits);
            assert_eq!(found.tokens, expected.tokens, "{what}");
            assert_eq!(found.text, expected.text, "{what}");
            let found_state = closed(&mut engine, CLOSE);
            state.assert_same(&found_state, &what);
            (runs, bytes) = (runs + 1, bytes + state.bytes());
            rounds += found.stats.speculation.unwrap().rounds;
        }
    }
    report(format!(
        "{model:?} with {draft:?}, {cache} caches: {runs} runs, {rounds} rounds, {bytes} bytes of state equal"
    ));
}

#[test]
fn greedy_f16() {
    greedy_is_the_same(Model::F16, Draft::F16, CacheType::F16);
}

#[test]
fn greedy_q8_0() {
    greedy_is_the_same(Model::Q8_0, Draft::Q8_0, CacheType::F16);
}

#[test]
fn greedy_q4_0() {
    greedy_is_the_same(Model::Q4_0, Draft::F16, CacheType::F16);
}

#[test]
fn greedy_mtp_f16() {
    greedy_is_the_same(Model::F16, Draft::MtpF16, CacheType::F16);
}

#[test]
fn greedy_mtp_q8_0() {
    greedy_is_the_same(Model::Q8_0, Draft::MtpQ8_0, CacheType::Q8_0);
}

#[test]
fn greedy_with_dspark() {
    greedy_is_the_same(Model::Q8_0, Draft::DsparkQ8_0, CacheType::F16);
}

/// With every product by the matrix unit, whose twin is slow: in plain steps, rounds, verified blocks and
/// prompts.
#[test]
fn greedy_by_the_matrix_unit() {
    let options = EngineOptions { numerics: Numerics::Hmx, ..EngineOptions::default() };
    let model = Model::Q4_0;
    let (text, case) = (text(model), &reference::greedy(model).cases[0]);
    let run = |draft, speculation: &mut Speculation| {
        let mut engine = Draft::engine_with(draft, model, inproc(settings()), options.clone());
        let found = fresh(&mut engine, &text, &greedy(), speculation, &case.prompt_ids, &limits(40));
        (found.tokens, closed(&mut engine, CLOSE))
    };
    let (expected, state) = run(None, &mut Speculation::off());
    let by_n_gram = DraftSource::Host(Box::new(NGram::default()));
    for (draft, mut speculation) in [
        (Draft::Q8_0, model_drafts(5)),
        (Draft::MtpQ8_0, model_drafts(3)),
        (Draft::Q8_0, Speculation::new(by_n_gram, DraftLength::Fixed(15))),
    ] {
        let (tokens, found) = run(Some(draft), &mut speculation);
        assert_eq!(tokens, expected, "{draft:?}");
        state.assert_same(&found, &format!("{draft:?}"));
    }
}

#[test]
fn greedy_with_q8_0_caches() {
    greedy_is_the_same(Model::Q8_0, Draft::Q8_0, CacheType::Q8_0);
}

#[test]
fn greedy_with_q4_r_caches() {
    greedy_is_the_same(Model::Q8_0, Draft::Q8_0, CacheType::Q4R);
}

/// Layers split over sessions, which hand the residual stream and the draft's features over: nothing changes.
#[test]
fn any_number_of_sessions() {
    let model = Model::Q8_0;
    let layers = Draft::engine(None, model, inproc(quick()), None).config().layers.len();
    let mut plain = Draft::engine(None, model, inproc(quick()), None);
    let (text, limits) = (text(model), limits(40));
    for (sessions, draft) in [
        (2, Draft::Q8_0),
        (3, Draft::Q8_0),
        (layers, Draft::Q8_0),
        (2, Draft::MtpQ8_0),
        (2, Draft::DsparkQ8_0),
        (layers, Draft::MtpF16),
    ] {
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let device = SplitDevice::<Inproc>::open(&options, sessions).unwrap();
        let mut engine = Draft::engine(Some(draft), model, device, None);
        assert_eq!(engine.memory().sessions as usize, sessions);
        assert!(engine.memory().handed_over > 0);
        for case in &reference::greedy(model).cases[..3] {
            let off = &mut Speculation::off();
            let expected = fresh(&mut plain, &text, &greedy(), off, &case.prompt_ids, &limits);
            let state = closed(&mut plain, CLOSE);
            for (name, mut speculation) in
                speculations(draft).into_iter().chain([("plain".into(), Speculation::off())])
            {
                let what = format!("{draft:?}, {sessions} sessions, {:?}, {name}", case.prompt);
                let found = fresh(&mut engine, &text, &greedy(), &mut speculation, &case.prompt_ids, &limits);
                assert_eq!(found.tokens, expected.tokens, "{what}");
                state.assert_same(&closed(&mut engine, CLOSE), &what);
            }
        }
    }
}

/// Up to the last position of the context: no token too many or too few, and nothing written behind it.
#[test]
fn until_the_context_is_full() {
    for (n_ctx, draft) in [
        (64, Draft::Q8_0),
        (77, Draft::Q8_0),
        (64, Draft::MtpQ8_0),
        (77, Draft::MtpQ8_0),
        (77, Draft::DsparkQ8_0),
    ] {
        let mut plain = Draft::engine(None, Model::Q8_0, inproc(quick()), Some(n_ctx));
        let mut engine = Draft::engine(Some(draft), Model::Q8_0, inproc(quick()), Some(n_ctx));
        let text = text(Model::Q8_0);
        let mut limits = limits(0);
        limits.max_tokens = None;
        for case in &reference::greedy(Model::Q8_0).cases[..4] {
            let prompt = &case.prompt_ids[..case.prompt_ids.len().min(40)];
            let expected = fresh(&mut plain, &text, &greedy(), &mut Speculation::off(), prompt, &limits);
            assert_eq!(expected.finish_reason, Finish::Context);
            for (name, mut speculation) in speculations(draft) {
                let found = fresh(&mut engine, &text, &greedy(), &mut speculation, prompt, &limits);
                let what = format!("{draft:?}, {:?}, {n_ctx} positions, {name}", case.prompt);
                assert_eq!(found.tokens, expected.tokens, "{what}");
                assert_eq!(found.finish_reason, Finish::Context);
                assert_eq!(engine.n_past(), n_ctx);
            }
        }
    }
}

/// With temperature and penalties: the same draws in the same order.
#[test]
fn sampled_texts_are_the_same() {
    sampled_is_the_same(Draft::Q8_0);
}

#[test]
fn sampled_texts_with_mtp_are_the_same() {
    sampled_is_the_same(Draft::MtpQ8_0);
}

#[test]
fn sampled_with_dspark() {
    sampled_is_the_same(Draft::DsparkQ8_0);
}

fn sampled_is_the_same(draft: Draft) {
    let model = Model::Q8_0;
    let mut plain = Draft::engine(None, model, inproc(quick()), None);
    let mut engine = Draft::engine(Some(draft), model, inproc(quick()), None);
    let text = text(model);
    let mut accepted = 0;
    let settings = [(0.8, 1.0), (1.5, 1.1), (0.0, 1.2)];
    for (seed, case) in reference::greedy(model).cases.iter().enumerate() {
        for (i, (temperature, repeat_penalty)) in settings.into_iter().enumerate() {
            let params = SamplerParams {
                temperature,
                repeat_penalty,
                seed: Some(seed as u64),
                ..SamplerParams::default()
            };
            let limits = limits(40);
            let expected =
                fresh(&mut plain, &text, &params, &mut Speculation::off(), &case.prompt_ids, &limits);
            let state = closed(&mut plain, CLOSE);
            for (name, mut speculation) in in_turn(draft, seed + i, 3) {
                let what = format!("{draft:?}, {:?} at {temperature}, {name}", case.prompt);
                let found = fresh(&mut engine, &text, &params, &mut speculation, &case.prompt_ids, &limits);
                assert_eq!(found.tokens, expected.tokens, "{what}");
                state.assert_same(&closed(&mut engine, CLOSE), &what);
                accepted += found.stats.speculation.unwrap().accepted;
            }
        }
    }
    report(format!("{draft:?}: {accepted} drafts accepted by sampling"));
    assert!(accepted > 0);
}

/// Prompts of one token, of exactly a batch, and around it; several requests in one session.
#[test]
fn prompts_of_any_length() {
    let model = Model::F16;
    let batch = 32;
    let load = |draft: Option<Draft>| {
        let image = hexflash::weights::ImageOptions {
            cache: hexflash::weights::CachePolicy::Off,
            ..hexflash::weights::ImageOptions::default()
        };
        let options = hexflash::engine::EngineOptions { batch, speculate: true, ..Default::default() };
        let draft = draft.map(Draft::gguf);
        Engine::load_with(&model.gguf(), draft.as_ref(), Box::new(inproc(quick())), &options, &image).unwrap()
    };
    let (mut plain, mut engines) = (load(None), [Draft::F16, Draft::MtpF16].map(|draft| load(Some(draft))));
    let text = text(model);
    let case = &reference::greedy(model).cases[9];
    let tokens: Vec<u32> = case.prompt_ids.iter().chain(&case.ids).copied().collect();
    for n in [1, 2, 13, 31, 32, 33, 64, 65, 100] {
        let expected =
            fresh(&mut plain, &text, &greedy(), &mut Speculation::off(), &tokens[..n], &limits(30));
        let state = closed(&mut plain, CLOSE);
        for engine in &mut engines {
            let found = fresh(engine, &text, &greedy(), &mut model_drafts(7), &tokens[..n], &limits(30));
            assert_eq!(found.tokens, expected.tokens, "{n} tokens");
            state.assert_same(&closed(engine, CLOSE), &format!("{n} tokens"));
        }
    }
}

/// Steps of several tokens in an engine that could take them back, among blocks of which nothing or something
/// is kept, plain steps and prompts: row by row the logits of plain decoding, and in the end its state.
#[test]
fn several_tokens_at_once() {
    let drafts = [(Model::F16, None), (Model::Q8_0, Some(Draft::Q8_0)), (Model::Q8_0, Some(Draft::MtpQ8_0))];
    for (model, draft) in drafts {
        let mut plain = model.engine(inproc(quick()), &hexflash::engine::EngineOptions::default());
        let mut engine = Draft::engine(draft, model, inproc(quick()), None);
        let case = &reference::greedy(model).cases[5];
        let ids: Vec<u32> = case.prompt_ids.iter().chain(&case.ids).copied().collect();
        let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        [&mut plain, &mut engine].into_iter().for_each(|engine| engine.prefill(&ids[..2], |_| {}).unwrap());
        let mut at = 2;
        for (turn, n) in [1, 4, 16, 2, 7, 16, 3, 5].into_iter().enumerate() {
            let mut expected = Vec::new();
            for &id in &ids[at..at + n] {
                plain.decode(id).unwrap();
                expected.push(bits(plain.logits(0)));
            }
            let (first, rest) = ids[at..at + n].split_at(if turn % 2 == 0 { 0 } else { 1 });
            if turn % 2 == 1 {
                // One token stays of a block that goes wrong, or none.
                engine.verify(&[first[0], 9, 9, 9]).unwrap();
                engine.commit(1).unwrap();
            } else {
                engine.verify(&[7; 16]).unwrap();
                engine.commit(0).unwrap();
            }
            if turn == 5 {
                engine.prefill(rest, |_| {}).unwrap();
                assert_eq!(bits(engine.logits(0)), expected[n - 1], "{model:?}, turn {turn}");
            } else if !rest.is_empty() {
                engine.decode_many(rest).unwrap();
                for row in 0..rest.len() {
                    let place = format!("{model:?}, turn {turn}, row {row}");
                    assert_eq!(bits(engine.logits(row)), expected[first.len() + row], "{place}");
                }
            }
            at += n;
            assert_eq!(engine.n_past() as usize, at);
        }
        closed(&mut plain, CLOSE).assert_same(&closed(&mut engine, CLOSE), &format!("{model:?}"));
    }
}

/// One message a round, and of what it computes only token ids leave the device.
#[test]
fn a_round_is_one_message_of_a_few_bytes() {
    [Draft::F16, Draft::MtpF16, Draft::DsparkQ8_0].into_iter().for_each(is_one_message_of_a_few_bytes);
}

fn is_one_message_of_a_few_bytes(draft: Draft) {
    let mut engine = Draft::engine(Some(draft), Model::F16, inproc(quick()), None);
    let text = text(Model::F16);
    let case = &reference::greedy(Model::F16).cases[5];
    let found = fresh(&mut engine, &text, &greedy(), &mut model_drafts(7), &case.prompt_ids, &limits(100));
    let (stats, rounds) = (found.stats.steps, found.stats.speculation.unwrap());
    let (plain, rounds) = (rounds.steps as u64, rounds.rounds as u64);
    report(format!(
        "{draft:?}: {rounds} rounds, {plain} plain steps: {} messages, {} bytes",
        stats.messages, stats.host_bytes
    ));
    // One more drafts the first block; with two in flight, one may find that the text has ended.
    assert!((rounds + plain + 1..=rounds + plain + 2).contains(&stats.messages));
    // A round's report, and once registers and stops. A row of logits alone would be 16 KiB.
    assert!(stats.host_bytes <= 512 + 100 * (rounds + plain), "{} bytes", stats.host_bytes);
}

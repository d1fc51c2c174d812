//! Gemma 4 assistants, which read the caches of their target: texts and states equal plain decoding's.

use hexflash::cancel::Cancel;
use hexflash::device::inproc::Inproc;
use hexflash::device::{DeviceOptions, SplitDevice};
use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Event, Finish, Limits};
use hexflash::model::{CacheType, CacheTypes};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::assistant::{self, BLIND, Change, ODD, Pair, SHAPES, Shape, USUAL};
use hexflash_e2e::{generate, inproc, report};

use crate::common::{closed, greedy, limits, model_drafts, quick};
use crate::rig::{CLOSE, Rig, in_turn, prompts, speculations, tokens};
use crate::written::{self, Way, cut, guesses_after};

/// A pair of this shape, and plain decoding of its target.
fn rig(shape: Shape, options: &EngineOptions) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let Pair { target, assistant } = Pair::new(dir.path(), shape);
    Rig::new(dir, [target, assistant], options)
}

#[test]
fn greedy_texts_are_the_same() {
    for shape in SHAPES {
        for cache in CacheType::ALL {
            let options = EngineOptions { caches: CacheTypes::both(cache), batch: 64, ..Default::default() };
            let mut rig = rig(shape, &options);
            let mut engine = rig.engine(&options);
            let mut accepted = 0;
            for (i, prompt) in prompts().iter().enumerate() {
                let (what, limits) = (format!("{shape:?}, {cache} caches"), limits(60 + i));
                accepted += rig.compare(&mut engine, &greedy(), prompt, &limits, in_turn(i), &what);
            }
            report(format!("{shape:?}, {cache} caches: {accepted} drafts accepted"));
            assert!(accepted > 20, "{shape:?}, {cache} caches: {accepted} drafts accepted");
        }
    }
}

#[test]
fn sampled_texts_are_the_same() {
    for shape in [USUAL, ODD] {
        let options = EngineOptions::default();
        let mut rig = rig(shape, &options);
        let mut engine = rig.engine(&options);
        let mut accepted = 0;
        for (seed, (temperature, repeat_penalty)) in
            [(0.4, 1.0), (0.9, 1.1), (0.0, 1.2)].into_iter().enumerate()
        {
            let seed = Some(seed as u64);
            let params =
                SamplerParams { temperature, repeat_penalty, seed, top_k: 4, ..SamplerParams::default() };
            for (i, prompt) in prompts()[1..3].iter().enumerate() {
                let what = format!("{shape:?} at {temperature}");
                accepted += rig.compare(&mut engine, &params, prompt, &limits(50), in_turn(i), &what);
            }
        }
        report(format!("{shape:?}: {accepted} drafts accepted by sampling"));
        assert!(accepted > 0);
    }
}

/// No token too many or too few at the end of the context.
#[test]
fn until_the_context_is_full() {
    for (shape, n_ctx) in [(USUAL, 64), (USUAL, 77), (ODD, 77)] {
        let options = EngineOptions { n_ctx: Some(n_ctx), ..EngineOptions::default() };
        let mut rig = rig(shape, &options);
        let mut engine = rig.engine(&options);
        let limits = Limits { max_tokens: None, ..limits(0) };
        for prompt in &prompts()[..3] {
            let what = format!("{shape:?}, {n_ctx} positions");
            rig.compare(&mut engine, &greedy(), prompt, &limits, speculations(), &what);
        }
    }
}

/// Layers over several sessions: the last one has the assistant and the caches that it reads.
#[test]
fn any_number_of_sessions() {
    for shape in [USUAL, ODD] {
        let mut rig = rig(shape, &EngineOptions::default());
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let load = |rig: &Rig, sessions| {
            let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
            let device = SplitDevice::<Inproc>::open(&options, sessions).unwrap();
            let [target, draft] = &rig.files;
            Engine::load_with(target, Some(draft), Box::new(device), &EngineOptions::default(), &image)
        };
        // Layers 1 and 2 have the caches of the usual shape, 3 and 4 those of the odd one.
        let most = if shape == USUAL { 2 } else { 4 };
        let error = load(&rig, most + 1).err().unwrap().to_string();
        assert!(error.contains(&format!("1 to {most}, the layers that a session can begin with")), "{error}");
        for sessions in 2..=most {
            let mut engine = load(&rig, sessions).unwrap();
            assert_eq!(engine.memory().sessions as usize, sessions);
            for (i, prompt) in prompts()[1..3].iter().enumerate() {
                let what = format!("{shape:?} in {sessions} sessions");
                rig.compare(&mut engine, &greedy(), prompt, &limits(30), in_turn(i + sessions), &what);
            }
        }
    }
}

/// A generation that is interrupted leaves the state of the tokens that it gave, and another goes on there.
#[test]
fn texts_may_be_interrupted() {
    let mut rig = rig(USUAL, &EngineOptions::default());
    let mut engine = rig.engine(&EngineOptions::default());
    let prompt = &prompts()[2];
    for drafts in [2, 7] {
        for pieces in [1, 3, 8] {
            engine.reset();
            let cancel = Cancel::default();
            let limits = Limits { cancel: cancel.clone(), ..limits(60) };
            let mut sampler = Sampler::new(greedy()).unwrap();
            let mut speculation = model_drafts(drafts);
            let mut count = 0;
            let on_event = |event: Event<'_>| {
                count += usize::from(matches!(event, Event::Text(_)));
                if count == pieces {
                    cancel.cancel();
                }
                true
            };
            let tokenizer = &rig.text.tokenizer;
            let with = (&mut sampler, &mut speculation);
            let found = generate(&mut engine, tokenizer, with, prompt, &limits, on_event).unwrap();
            assert_eq!(found.finish_reason, Finish::Interrupted);
            let what = format!("{drafts} drafts, {pieces} pieces");
            let n = found.tokens.len();
            let plain = &mut rig.plain;
            plain.reset();
            plain.prefill(prompt, |_| {}).unwrap();
            for &token in &found.tokens[..n - 1] {
                assert_eq!(plain.argmax(0), token, "{what}");
                plain.decode(token).unwrap();
            }
            closed(plain, CLOSE).assert_same(&closed(&mut engine, CLOSE), &what);
        }
    }
}

/// Several texts in one engine, which share steps, take turns, and draft.
#[test]
fn texts_do_not_depend_on_neighbours() {
    for (shape, cache) in [(USUAL, CacheType::F16), (ODD, CacheType::Q8_0)] {
        let options = EngineOptions { batch: 32, caches: CacheTypes::both(cache), ..Default::default() };
        rig(shape, &options).compare_neighbours(&options, 4, &format!("{shape:?}, {cache} caches"));
    }
}

/// Drafts are the same to the bit, however the text came about: in prompts of any length, in plain steps, in
/// blocks of which some tokens were taken back, after drafts, and after cuts.
#[test]
fn drafts_do_not_depend_on_how_the_text_was_written() {
    for shape in [USUAL, ODD] {
        let options = EngineOptions { batch: 16, ..EngineOptions::default() };
        let rig = rig(shape, &options);
        let [mut straight, mut engine] = [rig.engine(&options), rig.engine(&options)];
        // Nothing of the text is a state that a cut would have to restore.
        assert_eq!(engine.snapshot_room(), 0);
        // A cut by many tokens loses the row of the last one, and the next step gives another.
        let more: [Way; 1] = [|engine, text, random| {
            let to = cut(engine, random);
            engine.decode(text[to]).unwrap();
        }];
        written::check([&mut straight, &mut engine], &tokens(9, 300), &more, &format!("{shape:?}"));
    }
}

/// Drafts depend on the anchor, on the token before it, and on the caches; those of the shape whose window is
/// one token not on the caches.
#[test]
fn drafts_depend_on_what_they_should() {
    for shape in SHAPES {
        let rig = rig(shape, &EngineOptions::default());
        let mut engine = rig.engine(&EngineOptions::default());
        let text = tokens(5, 50);
        let mut margins = |text: &[u32]| guesses_after(&mut engine, text);
        let first = margins(&text);
        assert_eq!(margins(&text), first);
        let changed = |i: usize| {
            let mut text = text.clone();
            text[i] += 1;
            text
        };
        assert_ne!(margins(&changed(49)), first, "{shape:?}: the anchor");
        assert_ne!(margins(&changed(48)), first, "{shape:?}: the token before it");
        if shape != BLIND {
            assert_ne!(margins(&changed(47)), first, "{shape:?}: an earlier token");
            // Not even a context of no tokens is refused.
            let mut engine = rig.engine(&EngineOptions::default());
            assert_eq!(engine.draft(7, 5).unwrap().len(), 5);
        }
    }
}

/// The rows of the target are all that it keeps, and a device of its own could not have the target's caches.
#[test]
fn it_keeps_next_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let pair = Pair::new(dir.path(), USUAL);
    let engine = pair.engine(true, inproc(quick()), &EngineOptions::default());
    let memory = engine.memory().speculation.clone().unwrap();
    assert_eq!((memory.draft_kv, memory.tape), (0, 0));
    assert_eq!(engine.memory().recurrent, 0);
    // 18 rows in the ring and 32 that plain steps keep, of 64 numbers; ids.
    assert!(memory.other < 4 * 64 * (18 + 32) + 1024, "{memory:?}");
    let devices = [0; 2].map(|_| Box::new(inproc(quick())) as Box<dyn hexflash::device::Device>);
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let error =
        Engine::load_placed(&pair.target, &pair.assistant, devices, &EngineOptions::default(), &image);
    let error = error.err().unwrap().to_string();
    assert!(error.ends_with("this draft reads the caches of its target: run both on one device"), "{error}");
}

#[test]
fn assistants_of_other_targets() {
    let dir = tempfile::tempdir().unwrap();
    let Pair { target, .. } = Pair::new(dir.path(), USUAL);
    let config = hexflash::model::read(&target).unwrap();
    let refused = |shape: Shape, changes: &[Change<'_>], cause: &str| {
        let draft = assistant::assistant(dir.path(), shape, changes);
        let outcome = hexflash::model::read_draft(&draft, &config).and_then(|model| model.weights(&draft));
        let error = outcome.err().unwrap_or_else(|| panic!("{changes:?} is no error")).to_string();
        assert!(error.contains(cause) && !error.contains('\n'), "{error}");
    };
    let key = |name, value| [Change::Key(name, value)];
    refused(USUAL, &key("embedding_length_out", 65), "(embedding_length_out) is 65 in the draft, 64 in the");
    refused(USUAL, &key("attention.sliding_window", 41), "the window of attention is 41 in the draft, 40");
    refused(
        USUAL,
        &key("attention.key_length", 32),
        "the width of a key is 32 in the draft, 64 in the target",
    );
    refused(USUAL, &key("attention.value_length_swa", 33), "the width of a value is 33 in the draft, 32");
    refused(USUAL, &key("attention.head_count_kv", 2), "the number of key and value heads is 2 in the draft");
    refused(USUAL, &key("attention.head_count", 1000), "attn_q");
    refused(USUAL, &key("nextn_predict_layers", 1), "nextn_predict_layers is 1, expected 4, the number of");
    let five = [Change::Key("block_count", 5), Change::Key("nextn_predict_layers", 5)];
    refused(USUAL, &five, "sliding_window_pattern is 4 flags");
    refused(
        USUAL,
        &[Change::More("blk.0.attn_k.weight")],
        "tensor blk.0.attn_k.weight is not part of a Gemma 4",
    );
    for tensor in [
        "nextn.pre_projection.weight",
        "nextn.post_projection.weight",
        "blk.1.layer_output_scale.weight",
        "output_norm.weight",
        "token_embd.weight",
        "rope_freqs.weight",
    ] {
        refused(USUAL, &[Change::Without(tensor)], tensor);
    }
    refused(ODD, &[], "(embedding_length_out) is 96 in the draft, 64 in the target");
    // A target whose layers all see everything has nothing for a layer that sees a window.
    let far = Shape { layers: &[false, false], shared: 0, ..USUAL };
    let Pair { target, assistant } = Pair::new(dir.path(), far);
    let error =
        hexflash::model::read_draft(&assistant, &hexflash::model::read(&target).unwrap()).unwrap_err();
    let cause =
        "layer 0 of the draft reads the caches of a layer that sees a window, and the target has none";
    assert!(error.to_string().contains(cause), "{error}");
    // Another architecture, and the assistant in the target's place.
    let other = hexflash::model::read(&hexflash_e2e::Model::F16.gguf()).unwrap();
    let error = hexflash::model::read_draft(&assistant, &other).unwrap_err().to_string();
    assert!(error.contains("drafted for is gemma4 in the draft, qwen35 in the target"), "{error}");
    let error = hexflash::model::read(&assistant).unwrap_err().to_string();
    assert!(error.contains("this is a Gemma 4 assistant, which writes no text by itself"), "{error}");
}

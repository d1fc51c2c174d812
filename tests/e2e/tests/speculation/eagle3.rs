//! EAGLE3 drafts: texts and states equal plain decoding's, for a dense target and for a hybrid one.

use hexflash::device::inproc::Inproc;
use hexflash::device::{Device, DeviceOptions, SplitDevice};
use hexflash::engine::{Engine, EngineOptions, SequenceId};
use hexflash::generate::Limits;
use hexflash::model::{CacheType, CacheTypes};
use hexflash::sampler::SamplerParams;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::assistant::{Pair, USUAL};
use hexflash_e2e::eagle3::{self, Change, Tables};
use hexflash_e2e::{Model, inproc, report};

use crate::common::{greedy, limits, quick};
use crate::rig::{Rig, in_turn, prompts, speculations, tokens};
use crate::written::{self, Way, cut, guesses_after};

/// A dense target with random weights, and its draft.
fn dense(tables: Tables, options: &EngineOptions) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let Pair { target, .. } = Pair::new(dir.path(), USUAL);
    let draft = eagle3::write(&target, tables, &[], &dir.path().join("draft.gguf"));
    Rig::new(dir, [target, draft], options)
}

/// The shipped model, and a draft that knows nothing of its language.
fn hybrid(options: &EngineOptions) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let target = Model::F16.gguf();
    let draft = eagle3::write(&target, Tables::Shared, &[], &dir.path().join("draft.gguf"));
    Rig::new(dir, [target, draft], options)
}

#[test]
fn greedy_texts_are_the_same() {
    for (tables, cache) in
        [(Tables::Shared, CacheType::F16), (Tables::Own, CacheType::F16), (Tables::Shared, CacheType::Q8_0)]
    {
        let options = EngineOptions { caches: CacheTypes::both(cache), batch: 64, ..Default::default() };
        let mut rig = dense(tables, &options);
        let mut engine = rig.engine(&options);
        let what = format!("{tables:?}, {cache} caches");
        let mut accepted = 0;
        for (i, prompt) in prompts().iter().enumerate() {
            accepted += rig.compare(&mut engine, &greedy(), prompt, &limits(60 + i), in_turn(i), &what);
        }
        report(format!("{what}: {accepted} drafts accepted"));
        assert!(accepted > 20, "{what}: {accepted} drafts accepted");
    }
}

/// The row of the last token, which the first draft reads, is a state beside those of the target.
#[test]
fn texts_of_a_hybrid_target_are_the_same() {
    let options = EngineOptions::default();
    let mut rig = hybrid(&options);
    let mut engine = rig.engine(&options);
    for (i, prompt) in prompts()[..3].iter().enumerate() {
        rig.compare(&mut engine, &greedy(), prompt, &limits(24 + i), in_turn(i), "hybrid");
    }
    let params = SamplerParams { temperature: 0.8, seed: Some(5), ..SamplerParams::default() };
    rig.compare(&mut engine, &params, &prompts()[1], &limits(24), in_turn(1), "hybrid, sampled");
}

#[test]
fn until_the_context_is_full() {
    let options = EngineOptions { n_ctx: Some(77), ..EngineOptions::default() };
    let mut rig = dense(Tables::Shared, &options);
    let mut engine = rig.engine(&options);
    let limits = Limits { max_tokens: None, ..limits(0) };
    for prompt in &prompts()[..3] {
        rig.compare(&mut engine, &greedy(), prompt, &limits, speculations(), "77 positions");
    }
}

#[test]
fn texts_do_not_depend_on_neighbours() {
    let options = EngineOptions { batch: 32, ..EngineOptions::default() };
    dense(Tables::Own, &options).compare_neighbours(&options, 3, "dense");
    hybrid(&options).compare_neighbours(&options, 1, "hybrid");
}

/// Drafts are the same to the bit, however the text came about; of a hybrid target after cuts, too, which
/// restore the row of the last token with its other states.
#[test]
fn drafts_do_not_depend_on_how_the_text_was_written() {
    let options = EngineOptions { batch: 16, ..EngineOptions::default() };
    let rig = dense(Tables::Shared, &options);
    let [mut straight, mut engine] = [rig.engine(&options), rig.engine(&options)];
    let again: [Way; 1] = [|engine, text, _| {
        let n = engine.n_past() as usize / 2;
        engine.reset();
        engine.prefill(&text[..n.max(1)], |_| {}).unwrap();
    }];
    written::check([&mut straight, &mut engine], &tokens(9, 300), &again, "dense");

    let options = EngineOptions { snapshot_bytes: 8 << 20, ..options };
    let rig = hybrid(&options);
    let [mut straight, mut engine] = [rig.engine(&options), rig.engine(&options)];
    let more: [Way; 2] = [
        |engine, _, _| {
            engine.sequence(SequenceId::FIRST).unwrap().save().unwrap();
        },
        |engine, _, random| {
            cut(engine, random);
        },
    ];
    written::check([&mut straight, &mut engine], &tokens(9, 120), &more, "hybrid");
}

/// The last session has the draft, whatever layers it taps; and so may another device.
#[test]
fn sessions_and_devices_do_not_matter() {
    let options = EngineOptions::default();
    let rig = hybrid(&options);
    let [target, draft] = &rig.files;
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let threads = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    let text = tokens(6, 61);
    let expected = guesses_after(&mut rig.engine(&options), &text);
    for sessions in [2, 3] {
        let device = SplitDevice::<Inproc>::open(&threads, sessions).unwrap();
        let mut engine = Engine::load_with(target, Some(draft), Box::new(device), &options, &image).unwrap();
        assert_eq!(guesses_after(&mut engine, &text), expected, "{sessions} sessions");
    }
    let devices = [0; 2].map(|_| Box::new(inproc(quick())) as Box<dyn Device>);
    let mut engine = Engine::load_placed(target, draft, devices, &options, &image).unwrap();
    assert_eq!(guesses_after(&mut engine, &text), expected, "on a device of its own");
}

/// The first token of a text has no row before it, and no pair of its own.
#[test]
fn no_token_sees_the_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let Pair { target, .. } = Pair::new(dir.path(), USUAL);
    let mut text = tokens(5, 50);
    // None of the others, and none that the head has a row for.
    text[0] = 4001;
    let drafts = |changes: &[Change<'_>]| {
        let draft = eagle3::write(&target, Tables::Own, changes, &dir.path().join("draft.gguf"));
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let (device, options) = (Box::new(inproc(quick())), EngineOptions::default());
        let mut engine = Engine::load_with(&target, Some(&draft), device, &options, &image).unwrap();
        guesses_after(&mut engine, &text)
    };
    let expected = drafts(&[Change::Soft]);
    assert_eq!(drafts(&[Change::Soft, Change::Embedding(text[0])]), expected);
    assert_ne!(drafts(&[Change::Soft, Change::Embedding(text[1])]), expected);
}

/// Drafts depend on the anchor, on the row before it, and on earlier tokens.
#[test]
fn drafts_depend_on_what_they_should() {
    let options = EngineOptions::default();
    let rig = dense(Tables::Shared, &options);
    let mut engine = rig.engine(&options);
    let text = tokens(5, 50);
    let mut margins = |text: &[u32]| guesses_after(&mut engine, text);
    let first = margins(&text);
    assert_eq!(margins(&text), first);
    for i in [49, 48, 47, 0] {
        let mut changed = text.clone();
        changed[i] += 1;
        assert_ne!(margins(&changed), first, "token {i}");
    }
    // Not even a context of no tokens is refused.
    let mut engine = rig.engine(&options);
    assert_eq!(engine.draft(7, 5).unwrap().len(), 5);
}

#[test]
fn drafts_of_other_targets() {
    let dir = tempfile::tempdir().unwrap();
    let Pair { target, .. } = Pair::new(dir.path(), USUAL);
    let config = hexflash::model::read(&target).unwrap();
    let refused = |tables, changes: &[Change<'_>], cause: &str| {
        let draft = eagle3::write(&target, tables, changes, &dir.path().join("changed.gguf"));
        let outcome = hexflash::model::read_draft(&draft, &config).and_then(|model| model.weights(&draft));
        let error = outcome.err().unwrap_or_else(|| panic!("{changes:?} is no error")).to_string();
        assert!(error.contains(cause) && !error.contains('\n'), "{error}");
    };
    let key = |name, value| [Change::Key(name, value)];
    let shared = Tables::Shared;
    refused(shared, &key("block_count", 2), "eagle3.block_count is 2, expected 1");
    refused(shared, &key("target_hidden_size", 65), "the target's hidden size is 65 in the draft, 64 in the");
    refused(shared, &key("attention.value_length", 16), "eagle3.attention.value_length is 16, expected 32");
    refused(shared, &key("attention.head_count", 3), "head_count_kv");
    refused(shared, &[Change::Taps(&[0, 1])], "the number of tapped layers is 2 in the draft, 3 in the");
    refused(shared, &[Change::Taps(&[0, 1, 5])], "the last tapped layer is 5 in the draft, below 5 in the");
    refused(shared, &[Change::Taps(&[2, 1, 4])], "eagle3.target_layers is [2, 1, 4], expected a rising list");
    refused(
        shared,
        &[Change::More("blk.0.attn_gate.weight")],
        "blk.0.attn_gate.weight is not part of an EAGLE3",
    );
    for tensor in ["fc.weight", "blk.0.attn_norm_2.weight", "output_norm.weight", "blk.0.attn_q.weight"] {
        refused(shared, &[Change::Without(tensor)], tensor);
    }
    for tensor in ["enc.output_norm.weight", "output.weight"] {
        let cause = if tensor == "output.weight" { "d2t" } else { tensor };
        refused(Tables::Own, &[Change::Without(tensor)], cause);
    }
    let draft = eagle3::write(&target, shared, &[], &dir.path().join("draft.gguf"));
    let error = hexflash::model::read(&draft).unwrap_err().to_string();
    assert!(error.contains("this is an EAGLE3 draft, which writes no text by itself"), "{error}");
}

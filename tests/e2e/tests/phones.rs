//! The code of phones with its HVX float and its DMA engines, under the emulator that has both: greedy texts
//! are those of `inproc`, and speculation changes no bit.
//!
//! The engines move nothing before the program waits for it: what is read too early is what was there before.
//!
//! HVX float rounds in its own way, so that logits differ from `inproc`'s in their last bits. Where two
//! tokens are as likely as each other that may decide: such places are shown, and must be no more than noise
//! explains ([`hexflash_e2e::near_tie`]).
#![cfg(target_os = "linux")]

#[path = "../../../host-runtime/tests/device/emulator.rs"]
mod emulator;

use hexflash::device::qemu::{Qemu, Settings};
use hexflash::device::{Arch, DeviceOptions};
use hexflash::engine::Engine;
use hexflash::generate::{Generated, Limits};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, Speculation};
use hexflash::text::TextModel;
use hexflash_e2e::near_tie::Walk;
use hexflash_e2e::reference::{self, GreedyCase};
use hexflash_e2e::state::Snapshot;
use hexflash_e2e::{Draft, Model, generate, inproc, report, settings};

/// Tokens of a text.
const TOKENS: usize = 64;
/// Tokens of the texts of F16, of Q4_0 and of v68. In full length they take minutes under emulation, and are
/// run by hand (`the_other_texts_in_full_length`); steps named `conformance` compare their kernels, too.
const FEW: usize = 16;
/// A prompt of code, which goes on as the draft model expects.
const CASE: usize = 5;
/// Any token will do to close a run with, as long as it is the same.
const CLOSE: u32 = 11;

fn device(arch: Arch) -> Option<Qemu> {
    device_with(arch, 1, 8 << 20)
}

fn device_with(arch: Arch, threads: usize, vtcm_bytes: usize) -> Option<Qemu> {
    let options = DeviceOptions {
        threads: Some(threads),
        vtcm_bytes: Some(vtcm_bytes),
        arch: Some(arch),
        ..DeviceOptions::default()
    };
    emulator::qemu(Settings::from_options(&options).unwrap())
}

/// What is generated, and how much of it.
struct Task {
    text: TextModel,
    case: GreedyCase,
    limits: Limits,
}

impl Task {
    fn run(&self, engine: &mut Engine, mut speculation: Speculation) -> Generated {
        let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let parties = (&mut Sampler::new(greedy).unwrap(), &mut speculation);
        engine.reset();
        let prompt = &self.case.prompt_ids;
        generate(engine, &self.text.tokenizer, parties, prompt, &self.limits, |_| true).unwrap()
    }
}

/// The state after one more plain step, which folds whatever is on the tape.
fn closed(engine: &mut Engine) -> Snapshot {
    engine.decode(CLOSE).unwrap();
    Snapshot::of(engine)
}

fn texts_are_those_of_inproc(arch: Arch, model: Model, tokens: usize) {
    let what = format!("{arch}, {model:?}");
    let Some(device) = device(arch) else { return };
    let task = Task {
        text: TextModel::read(&model.gguf()).unwrap(),
        case: reference::greedy(model).cases.swap_remove(CASE),
        limits: Limits { max_tokens: Some(tokens), ignore_eos: true, ..Limits::default() },
    };
    let mut host = Draft::engine(None, model, inproc(settings()), Some(256));
    let expected = task.run(&mut host, Speculation::off()).tokens;
    assert_eq!(expected.len(), tokens);

    let mut engine = Draft::engine(Some(Draft::Q8_0), model, device, Some(256));
    let plain = task.run(&mut engine, Speculation::off());
    let state = closed(&mut engine);
    let drafts = Speculation::new(DraftSource::Model, DraftLength::Fixed(7));
    let drafted = task.run(&mut engine, drafts);
    assert_eq!(drafted.tokens, plain.tokens, "{what}: speculation changes the text");
    state.assert_same(&closed(&mut engine), &what);
    let accepted = drafted.stats.speculation.unwrap().accepted;
    assert!(accepted > 0, "{what}: no draft was accepted");
    report(format!("{what}: {accepted} of {tokens} tokens drafted"));

    if plain.tokens != expected {
        let mut walk = Walk::new(model);
        let differ = walk.follow(&mut engine, &task.case.prompt_ids, &expected, &what);
        report(&walk);
        assert!(differ > 0, "{what}: generate() and single steps disagree");
        walk.assert_explained();
    }
}

/// Steps of a text, by the tokens of each, on a device with so many threads and bytes of VTCM. The first is
/// the prompt.
const GROUPINGS: [(usize, usize, &[usize]); 4] = [
    (1, 8 << 20, &[24]),
    (1, 8 << 20, &[1; 24]),
    (3, 256 << 10, &[9, 1, 5, 4, 3, 2]),
    (4, 1 << 20, &[4, 8, 7, 1, 4]),
];

/// What is rounded when does not depend on how a text is cut into steps, nor on threads and VTCM, which
/// decide how ops are cut into pieces.
fn groupings_and_settings_do_not_matter(arch: Arch, model: Model) {
    let case = reference::greedy(model).cases.swap_remove(CASE);
    let tokens: Vec<u32> = case.prompt_ids.iter().chain(&case.ids).copied().take(24).collect();
    let mut expected: Option<Snapshot> = None;
    for (threads, vtcm, steps) in GROUPINGS {
        let Some(device) = device_with(arch, threads, vtcm) else { return };
        let mut engine = Draft::engine(None, model, device, Some(256));
        let mut rest = &tokens[..];
        for (i, &n) in steps.iter().enumerate() {
            let (now, later) = rest.split_at(n);
            if i == 0 {
                engine.prefill(now, |_| {}).unwrap()
            } else {
                engine.decode_many(now).unwrap()
            }
            rest = later;
        }
        assert!(rest.is_empty());
        let state = closed(&mut engine);
        let what = format!("{arch}, {model:?}, {threads} threads, {vtcm} bytes of VTCM, steps {steps:?}");
        match &expected {
            Some(expected) => expected.assert_same(&state, &what),
            None => expected = Some(state),
        }
    }
}

#[test]
fn v73_groupings() {
    groupings_and_settings_do_not_matter(Arch::V73, Model::Q8_0);
    groupings_and_settings_do_not_matter(Arch::V73, Model::Q4_0);
}

#[test]
fn v79_groupings() {
    groupings_and_settings_do_not_matter(Arch::V79, Model::Q8_0);
    groupings_and_settings_do_not_matter(Arch::V79, Model::Q4_0);
}

#[test]
fn v73_q8_0() {
    texts_are_those_of_inproc(Arch::V73, Model::Q8_0, TOKENS);
}

#[test]
fn v79_q8_0() {
    texts_are_those_of_inproc(Arch::V79, Model::Q8_0, TOKENS);
}

/// v68 has no instruction that makes floats of integers.
#[test]
fn v68_q8_0() {
    texts_are_those_of_inproc(Arch::V68, Model::Q8_0, FEW);
}

#[test]
fn v73_f16() {
    texts_are_those_of_inproc(Arch::V73, Model::F16, FEW);
}

#[test]
fn v73_q4_0() {
    texts_are_those_of_inproc(Arch::V73, Model::Q4_0, FEW);
}

#[test]
fn v79_f16() {
    texts_are_those_of_inproc(Arch::V79, Model::F16, FEW);
}

#[test]
fn v79_q4_0() {
    texts_are_those_of_inproc(Arch::V79, Model::Q4_0, FEW);
}

#[test]
#[ignore = "minutes: cargo test -p hexflash-e2e --test phones -- --ignored"]
fn the_other_texts_in_full_length() {
    texts_are_those_of_inproc(Arch::V68, Model::Q8_0, TOKENS);
    for arch in [Arch::V73, Arch::V79] {
        for model in [Model::F16, Model::Q4_0] {
            texts_are_those_of_inproc(arch, model, TOKENS);
        }
    }
}

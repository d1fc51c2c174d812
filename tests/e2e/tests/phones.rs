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
use hexflash::device::{Arch, Device, DeviceOptions};
use hexflash::engine::{Engine, EngineOptions, ModelFiles, Numerics};
use hexflash::generate::{Generated, Limits};
use hexflash::gguf::Gguf;
use hexflash::model::PatchGrid;
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::near_tie::Walk;
use hexflash_e2e::reference;
use hexflash_e2e::state::Snapshot;
use hexflash_e2e::{Draft, Model, assistant, eagle3, encoder, generate, inproc, repo_file, report, settings};

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
    prompt: Vec<u32>,
    limits: Limits,
}

impl Task {
    fn run(&self, engine: &mut Engine, mut speculation: Speculation) -> Generated {
        let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let parties = (&mut Sampler::new(greedy).unwrap(), &mut speculation);
        engine.reset();
        generate(engine, &self.text.tokenizer, parties, &self.prompt, &self.limits, |_| true).unwrap()
    }
}

/// The state after one more plain step, which folds whatever is on the tape.
fn closed(engine: &mut Engine) -> Snapshot {
    engine.decode(CLOSE).unwrap();
    Snapshot::of(engine)
}

/// That drafts of the model change neither text nor state; the text.
fn drafts_change_nothing(task: &Task, engine: &mut Engine, what: &str) -> Generated {
    let plain = task.run(engine, Speculation::off());
    let state = closed(engine);
    let drafted = task.run(engine, Speculation::new(DraftSource::Model, DraftLength::Fixed(7)));
    assert_eq!(drafted.tokens, plain.tokens, "{what}: speculation changes the text");
    state.assert_same(&closed(engine), what);
    let accepted = drafted.stats.speculation.unwrap().accepted;
    assert!(accepted > 0, "{what}: no draft was accepted");
    report(format!("{what}: {accepted} of {} tokens drafted", plain.tokens.len()));
    plain
}

/// Chains of drafts on a small target with random weights: of one that reads its caches, and of one that has
/// its own.
fn chains_change_nothing(arch: Arch) {
    let dir = tempfile::tempdir().unwrap();
    let assistant::Pair { target, assistant } = assistant::Pair::new(dir.path(), assistant::USUAL);
    let eagle3 = eagle3::write(&target, eagle3::Tables::Own, &[], &dir.path().join("eagle3.gguf"));
    let task = Task {
        text: TextModel::read(&target).unwrap(),
        prompt: (0..20).map(|i| 100 + i * i * 37 % 3000).collect(),
        limits: Limits { max_tokens: Some(FEW), ignore_eos: true, ..Limits::default() },
    };
    let options = EngineOptions { n_ctx: Some(64), ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    for (name, draft) in [("assistant", &assistant), ("EAGLE3", &eagle3)] {
        let Some(device) = device(arch) else { return };
        let engine = Engine::load_with(&target, Some(draft), Box::new(device), &options, &image);
        drafts_change_nothing(&task, &mut engine.unwrap(), &format!("{arch}, {name}"));
    }
}

/// A tile of a picture, and the text after it: rows and logits are those of `inproc` but for the last bits of
/// float sums, and with the matrix unit but for halves.
fn pictures_are_those_of_inproc(arch: Arch) {
    // Activations of other types are rounded to whole numbers, so that a last bit may become a step.
    let dense = Gguf::open(&repo_file("models/tiny-dense-f16.gguf")).unwrap();
    let grid = |width, height| PatchGrid { width, height };
    a_tile_is_that_of_inproc(arch, &Model::F16.gguf(), encoder::NORMED_LFM2, grid(8, 6));
    a_tile_is_that_of_inproc(arch, &dense, encoder::BOUNDED_GEMMA4, grid(6, 6));
}

fn a_tile_is_that_of_inproc(arch: Arch, target: &Gguf, shape: encoder::Shape, grid: PatchGrid) {
    let dir = tempfile::tempdir().unwrap();
    let n_embd = hexflash::model::read(target).unwrap().n_embd as usize;
    let encoder = encoder::write(n_embd, shape, &[], &dir.path().join("mmproj.gguf"));
    let files = ModelFiles::of(target).with_encoder(Some(&encoder));
    let shown = |device: Box<dyn Device>, numerics| {
        let options = EngineOptions { n_ctx: Some(64), numerics, ..EngineOptions::default() };
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let mut engine = Engine::load_files(files, device, &options, &image).unwrap();
        let n = engine.encoder().unwrap().patch_values();
        let patches: Vec<f32> = (0..grid.len() * n).map(|i| (i as f32 * 0.37).sin()).collect();
        let tile = engine.encode(grid, &patches).unwrap();
        let prompt: Vec<u32> = [5, 9].into_iter().chain(tile.ids()).chain([7, 300]).collect();
        engine.prefill(&prompt, |_| ()).unwrap();
        (tile.values().to_vec(), engine.logits(0).to_vec())
    };
    let (rows, logits) = shown(Box::new(inproc(settings())), Numerics::Exact);
    for (numerics, most) in [(Numerics::Exact, 1e-6), (Numerics::Fast, 1e-4)] {
        let Some(device) = device(arch) else { return };
        let (found, after) = shown(Box::new(device), numerics);
        let [of_rows, of_logits] = [(found, &rows), (after, &logits)].map(|(found, wanted)| {
            let pairs = found.iter().zip(wanted).map(|(a, b)| [f64::from(a - b), f64::from(*b)]);
            let [differences, all] = pairs.fold([0.0; 2], |sum, [a, b]| [sum[0] + a * a, sum[1] + b * b]);
            differences / all
        });
        report(format!(
            "{arch}, {:?}, {numerics:?}: rows {of_rows:.1e}, logits {of_logits:.1e}",
            shape.projector
        ));
        assert!(of_rows < most && of_logits < most, "{arch}, {numerics:?}: {of_rows:e}, {of_logits:e}");
    }
}

fn texts_are_those_of_inproc(arch: Arch, model: Model, tokens: usize) {
    let what = format!("{arch}, {model:?}");
    let Some(device) = device(arch) else { return };
    let task = Task {
        text: TextModel::read(&model.gguf()).unwrap(),
        prompt: reference::greedy(model).cases.swap_remove(CASE).prompt_ids,
        limits: Limits { max_tokens: Some(tokens), ignore_eos: true, ..Limits::default() },
    };
    let mut host = Draft::engine(None, model, inproc(settings()), Some(256));
    let expected = task.run(&mut host, Speculation::off()).tokens;
    assert_eq!(expected.len(), tokens);

    let mut engine = Draft::engine(Some(Draft::Q8_0), model, device, Some(256));
    let plain = drafts_change_nothing(&task, &mut engine, &what);

    if plain.tokens != expected {
        let mut walk = Walk::new(model);
        let differ = walk.follow(&mut engine, &task.prompt, &expected, &what);
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

#[test]
fn v73_chains() {
    chains_change_nothing(Arch::V73);
}

#[test]
fn v73_pictures() {
    pictures_are_those_of_inproc(Arch::V73);
}

#[test]
fn v79_pictures() {
    pictures_are_those_of_inproc(Arch::V79);
}

#[test]
fn v79_chains() {
    chains_change_nothing(Arch::V79);
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

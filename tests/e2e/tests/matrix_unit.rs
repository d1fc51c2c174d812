//! Products by the matrix unit: what that costs in perplexity, and what bits do not depend on.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use half::f16;
use hexflash::device::{Arch, Buffer, Device, DeviceError, DeviceInfo, DeviceOptions, MatrixUnit, Source};
use hexflash::engine::{Engine, EngineOptions, Numerics};
use hexflash::generate::Limits;
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_abi::Seq;
use hexflash_abi::message::{Message, Response};
use hexflash_e2e::state::Snapshot;
use hexflash_e2e::{
    Draft, Model, best_two, generate, inproc, nmse, perplexity, reference, repo_file, report, settings,
};

#[cfg(target_os = "linux")]
#[path = "../../../host-runtime/tests/device/emulator.rs"]
mod emulator;

/// Tokens of a chunk of the text, and chunks.
const CHUNK: usize = 192;
const CHUNKS: usize = 4;

fn options(numerics: Numerics) -> EngineOptions {
    EngineOptions { n_ctx: Some(CHUNK as u32), numerics, ..EngineOptions::default() }
}

fn text(model: Model) -> Vec<u32> {
    let text = std::fs::read_to_string(repo_file("tests/data/compare.txt")).unwrap();
    TextModel::read(&model.gguf()).unwrap().tokenizer.encode_prompt(&text).unwrap()
}

/// The logits after a prompt.
fn logits(engine: &mut Engine, prompt: &[u32]) -> Vec<f32> {
    engine.reset();
    engine.prefill(prompt, |_| ()).unwrap();
    engine.logits(0).to_vec()
}

/// The model with the same weights in F32, so that no activation is rounded. The embedding stays: the LM head
/// is never multiplied by the unit.
fn in_f32(model: Model, path: &Path) -> Gguf {
    let from = model.gguf();
    let mut file = GgufWriter::new();
    for (key, value) in from.meta().iter() {
        file.kv(key, value.clone());
    }
    for tensor in from.tensors() {
        let (name, data) = (&tensor.name, from.data(tensor).unwrap());
        let values: Vec<f32> = match tensor.ggml_type {
            GgmlType::F16 => {
                data.as_chunks::<2>().0.iter().map(|&v| f16::from_le_bytes(v).to_f32()).collect()
            }
            // A scale, and 32 bytes.
            GgmlType::Q8_0 => data
                .as_chunks::<34>()
                .0
                .iter()
                .flat_map(|block| {
                    let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                    block[2..].iter().map(move |&q| scale * f32::from(q.cast_signed()))
                })
                .collect(),
            // A scale, and 16 bytes: the low halves are the first 16 values, less 8.
            GgmlType::Q4_0 => data
                .as_chunks::<18>()
                .0
                .iter()
                .flat_map(|block| {
                    let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                    let value = move |q: u8| scale * (f32::from(q) - 8.0);
                    let low = block[2..].iter().map(move |&q| value(q & 15));
                    low.chain(block[2..].iter().map(move |&q| value(q >> 4)))
                })
                .collect(),
            _ => {
                file.tensor(name, tensor.ggml_type, tensor.shape(), data).unwrap();
                continue;
            }
        };
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        file.tensor(name, GgmlType::F32, tensor.shape(), bytes).unwrap();
    }
    file.write_to(File::create(path).unwrap()).unwrap();
    Gguf::open(path).unwrap()
}

/// The first half of each chunk is a prompt; the other half is scored. The unit's activations of fp16 are
/// nearer to those of F32 than the int8 of the other kernels are, in prompts alone and in all steps.
#[test]
fn the_matrix_unit_costs_no_perplexity() {
    let folder = tempfile::tempdir().unwrap();
    for model in Model::ALL {
        let tokens = text(model);
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let load = |file: &Gguf, numerics| {
            Engine::load(file, Box::new(inproc(settings())), &options(numerics), &image).unwrap()
        };
        let run = |file: &Gguf, numerics| {
            let mut engine = load(file, numerics);
            let logits = logits(&mut engine, &tokens[..CHUNK / 2]);
            (perplexity(&mut engine, &tokens, CHUNK, CHUNKS), logits)
        };
        let [plain, found] = [Numerics::Exact, Numerics::Hmx].map(|class| run(&model.gguf(), class));
        let of_fast = logits(&mut load(&model.gguf(), Numerics::Fast), &tokens[..CHUNK / 2]);
        let exact = run(&in_f32(model, &folder.path().join(model.name())), Numerics::Exact);
        let change = |of: f64| 100.0 * (of / exact.0 - 1.0);
        let errors = [&plain.1, &found.1, &of_fast].map(|of| nmse(of, &exact.1));
        report(format!(
            "{}: perplexity {:.4} with F32, {:+.3} % without the unit, {:+.3} % with it; NMSE of logits \
             {:.1e}, {:.1e}, {:.1e} by it in prompts",
            model.name(),
            exact.0,
            change(plain.0),
            change(found.0),
            errors[0],
            errors[1],
            errors[2],
        ));
        assert!(change(found.0).abs() < 0.05, "{}", model.name());
        match model {
            // Without the unit nothing is rounded.
            Model::F16 => assert!(errors[1..].iter().all(|&error| error < 1e-6), "{errors:?}"),
            Model::Q8_0 | Model::Q4_0 => {
                assert!(errors[1..].iter().all(|&error| error < errors[0]), "{errors:?}");
            }
        }
    }
}

/// A row is the same in any piece that ends where chunks do, if that has the sixteen tokens from which on the
/// unit has attention, too.
#[test]
fn pieces_of_whole_chunks_do_not_change_a_bit() {
    for model in [Model::Q8_0, Model::F16] {
        let tokens = &text(model)[..90];
        let state = |pieces: &[usize], threads| {
            let settings = hexflash::device::inproc::Settings { threads, ..settings() };
            let mut engine = model.engine(inproc(settings), &options(Numerics::Fast));
            let mut rest = tokens;
            for &n in pieces {
                let (piece, after) = rest.split_at(n);
                engine.prefill(piece, |_| ()).unwrap();
                rest = after;
            }
            Snapshot::of(&mut engine)
        };
        let whole = state(&[90], 2);
        // Chunks of the delta rule begin at multiples of 32 tokens.
        for (pieces, threads) in [(&[32, 58][..], 1), (&[64, 26], 3)] {
            state(pieces, threads).assert_same(&whole, &format!("{} {pieces:?}", model.name()));
        }
    }
}

/// The unit of the emulator, behind the code of phones: logits are those of `inproc` but for the rounding of
/// HVX float.
#[cfg(target_os = "linux")]
#[test]
fn phones_compute_the_same_logits() {
    use hexflash::device::qemu::Settings;

    let model = Model::Q8_0;
    let prompt = &text(model)[..40];
    let expected = logits(&mut model.engine(inproc(settings()), &options(Numerics::Fast)), prompt);
    for arch in [Arch::V73, Arch::V79] {
        let settings = DeviceOptions { threads: Some(2), arch: Some(arch), ..DeviceOptions::default() };
        let Some(device) = emulator::qemu(Settings::from_options(&settings).unwrap()) else { continue };
        let found = logits(&mut model.engine(device, &options(Numerics::Fast)), prompt);
        let error = nmse(&found, &expected);
        report(format!("{arch}: NMSE of logits to those of inproc {error:.1e}"));
        assert!(error < 1e-4, "{arch}: {error:e}");
        assert_eq!(best_two(&found)[0].0, best_two(&expected)[0].0, "{arch}");
    }
}

/// Decoding, rounds and prompts by the unit of the emulator: drafts change no token and no bit of state.
#[cfg(target_os = "linux")]
#[test]
fn phones_speculate_by_the_matrix_unit() {
    use hexflash::device::qemu::Settings;

    let model = Model::Q4_0;
    let text = TextModel::read(&model.gguf()).unwrap();
    let prompt = &reference::greedy(model).cases[5].prompt_ids;
    let limits = Limits { max_tokens: Some(12), ignore_eos: true, ..Limits::default() };
    let greedy = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    for arch in [Arch::V73, Arch::V79] {
        let run = |draft, mut speculation| {
            let settings = DeviceOptions { threads: Some(2), arch: Some(arch), ..DeviceOptions::default() };
            let device = emulator::qemu(Settings::from_options(&settings).unwrap())?;
            let mut engine = Draft::engine_with(draft, model, device, options(Numerics::Hmx));
            let parties = (&mut Sampler::new(greedy.clone()).unwrap(), &mut speculation);
            let found = generate(&mut engine, &text.tokenizer, parties, prompt, &limits, |_| true).unwrap();
            // One more step folds whatever is on the tape. Any token will do.
            engine.decode(11).unwrap();
            Some((found.tokens, Snapshot::of(&mut engine)))
        };
        let Some((plain, state)) = run(None, Speculation::off()) else { continue };
        let drafts = Speculation::new(DraftSource::Model, DraftLength::Fixed(5));
        let (tokens, found) = run(Some(Draft::Q8_0), drafts).unwrap();
        assert_eq!(tokens, plain, "{arch}");
        state.assert_same(&found, &format!("{arch}"));
    }
}

/// A processor without a unit refuses the program, by name.
#[cfg(target_os = "linux")]
#[test]
fn a_device_without_the_unit_refuses() {
    use hexflash::device::qemu::Settings;

    let settings = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    let Some(device) = emulator::qemu(Settings::from_options(&settings).unwrap()) else { return };
    let device: Box<dyn Device> = Box::new(device);
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let refused = Engine::load(&Model::Q8_0.gguf(), device, &options(Numerics::Fast), &image);
    let message = refused.err().expect("v67 has no matrix unit").to_string();
    assert!(message.contains("no matrix unit") && message.contains("do without it"), "{message}");
}

/// A device whose matrix unit has failed its test.
struct Untrusted {
    inner: Box<dyn Device>,
    info: DeviceInfo,
}

impl Device for Untrusted {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.inner.allocate(bytes)
    }

    fn import(&mut self, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        self.inner.import(source)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        self.inner.free(buffer)
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        self.inner.submit(message)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        self.inner.wait(timeout)
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.inner.reset()
    }
}

/// It is done without, which a warning says, and the bits are those of a run that never wanted it.
#[test]
fn a_unit_that_failed_its_test_is_done_without() {
    let model = Model::Q8_0;
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let inner: Box<dyn Device> = Box::new(inproc(settings()));
    let info = DeviceInfo { matrix_unit: MatrixUnit::Failed, ..inner.info().clone() };
    let device = Box::new(Untrusted { inner, info });
    let mut untrusted = Engine::load(&model.gguf(), device, &options(Numerics::Fast), &image).unwrap();
    let warned = untrusted.warnings().iter().any(|line| line.contains("matrix unit (HMX) failed its test"));
    assert!(warned, "{:?}", untrusted.warnings());
    let mut plain = model.engine(inproc(settings()), &options(Numerics::Exact));
    let prompt = &text(model)[..40];
    assert_eq!(logits(&mut untrusted, prompt), logits(&mut plain, prompt));
}

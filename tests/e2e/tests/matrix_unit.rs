//! Prompts by the matrix unit: what that costs in perplexity, and what bits do not depend on.

use hexflash::device::{Arch, Device};
use hexflash::engine::{Engine, EngineOptions};
use hexflash::text::TextModel;
use hexflash_e2e::state::Snapshot;
use hexflash_e2e::{Model, best_two, inproc, nmse, perplexity, repo_file, report, settings};

#[cfg(target_os = "linux")]
#[path = "../../../host-runtime/tests/device/emulator.rs"]
mod emulator;

/// Tokens of a chunk of the text, and chunks.
const CHUNK: usize = 192;
const CHUNKS: usize = 4;

fn options(matrix_unit: bool) -> EngineOptions {
    EngineOptions { n_ctx: Some(CHUNK as u32), matrix_unit, ..EngineOptions::default() }
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

/// The first half of each chunk is a prompt, which the unit computes; the other half is scored.
#[test]
fn prompts_by_the_matrix_unit_cost_no_perplexity() {
    for model in Model::ALL {
        let tokens = text(model);
        let [plain, found] = [false, true].map(|matrix_unit| {
            let mut engine = model.engine(inproc(settings()), &options(matrix_unit));
            let logits = logits(&mut engine, &tokens[..CHUNK / 2]);
            (perplexity(&mut engine, &tokens, CHUNK, CHUNKS), logits)
        });
        let (change, error) = (100.0 * (found.0 / plain.0 - 1.0), nmse(&found.1, &plain.1));
        report(format!(
            "{}: perplexity {:.4}, prompts by the matrix unit {:.4}: {change:+.3} %; NMSE of logits {error:.1e}",
            model.name(),
            plain.0,
            found.0
        ));
        assert!(change < 0.05, "{}: {change:.3} %", model.name());
        assert!(error < 1e-3, "{}: {error:e}", model.name());
    }
}

/// A row is the same in any piece, however few rows that has.
#[test]
fn pieces_of_prompts_do_not_change_a_bit() {
    for model in [Model::Q8_0, Model::F16] {
        let tokens = &text(model)[..70];
        let state = |pieces: &[usize], threads| {
            let settings = hexflash::device::inproc::Settings { threads, ..settings() };
            let mut engine = model.engine(inproc(settings), &options(true));
            let mut rest = tokens;
            for &n in pieces {
                let (piece, after) = rest.split_at(n);
                engine.prefill(piece, |_| ()).unwrap();
                rest = after;
            }
            Snapshot::of(&mut engine)
        };
        let whole = state(&[70], 2);
        for (pieces, threads) in [(&[33, 37][..], 1), (&[1, 31, 2, 36], 3)] {
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
    use hexflash_dsp::dma::DmaMode;

    let model = Model::Q8_0;
    let prompt = &text(model)[..40];
    let expected = logits(&mut model.engine(inproc(settings()), &options(true)), prompt);
    for arch in [Arch::V73, Arch::V79] {
        let dma = DmaMode::Engine;
        let settings = Settings { threads: 2, vtcm_bytes: 8 << 20, dma, arch: Some(arch), trace: None };
        let Some(device) = emulator::qemu(settings) else { continue };
        let found = logits(&mut model.engine(device, &options(true)), prompt);
        let error = nmse(&found, &expected);
        report(format!("{arch}: NMSE of logits to those of inproc {error:.1e}"));
        assert!(error < 1e-4, "{arch}: {error:e}");
        assert_eq!(best_two(&found)[0].0, best_two(&expected)[0].0, "{arch}");
    }
}

/// A processor without a unit refuses the program, by name.
#[cfg(target_os = "linux")]
#[test]
fn a_device_without_the_unit_refuses() {
    use hexflash::device::qemu::Settings;
    use hexflash::weights::{CachePolicy, ImageOptions};
    use hexflash_dsp::dma::DmaMode;

    let settings = Settings {
        threads: 1,
        vtcm_bytes: 8 << 20,
        dma: DmaMode::AtOnce,
        arch: Some(Arch::V67),
        trace: None,
    };
    let Some(device) = emulator::qemu(settings) else { return };
    let device: Box<dyn Device> = Box::new(device);
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let refused = Engine::load(&Model::Q8_0.gguf(), device, &options(true), &image);
    let message = refused.err().expect("v67 has no matrix unit").to_string();
    assert!(message.contains("no matrix unit") && message.contains("do without it"), "{message}");
}

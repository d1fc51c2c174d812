//! What the end-to-end tests share: the models of the repository, reference outputs, comparisons.

pub mod assistant;
pub mod eagle3;
pub mod encoder;
pub mod lossy;
pub mod near_tie;
pub mod npy;
mod random;
pub mod reference;
pub mod reranker;
pub mod state;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hexflash::device::Device;
use hexflash::device::inproc::{Inproc, Settings};
use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Event, GenerateError, Generated, Generation, Limits, Request};
use hexflash::gguf::Gguf;
use hexflash::model::MAX_VERIFY;
use hexflash::sampler::Sampler;
use hexflash::speculation::Speculation;
use hexflash::tokenizer::Tokenizer;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;

/// A file of the repository.
pub fn repo_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Prints a figure even where the test passes: standard error itself is not captured.
pub fn report(line: impl std::fmt::Display) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "    {line}");
}

/// A target model that ships in the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Weights in half precision.
    F16,
    /// 8-bit blocks.
    Q8_0,
    /// 4-bit blocks; the tied embedding is Q6_K.
    Q4_0,
}

impl Model {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4_0];

    /// As in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// The model file.
    pub fn path(self) -> PathBuf {
        repo_file(&format!("models/tiny-hybrid-{}.gguf", self.name()))
    }

    /// The open file.
    ///
    /// # Panics
    /// If it is not a model.
    pub fn gguf(self) -> Gguf {
        Gguf::open(&self.path()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// An engine on a device, without a repack cache.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn engine(self, device: impl Device + 'static, options: &EngineOptions) -> Engine {
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        Engine::load(&self.gguf(), Box::new(device), options, &image)
            .unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }
}

/// A draft that ships in the repository; all of them belong to every [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draft {
    /// DFlash, weights in half precision.
    F16,
    /// DFlash, 8-bit blocks.
    Q8_0,
    /// DSpark, weights in half precision.
    DsparkF16,
    /// DSpark, 8-bit blocks.
    DsparkQ8_0,
    /// An MTP head, weights in half precision.
    MtpF16,
    /// An MTP head, 8-bit blocks.
    MtpQ8_0,
}

impl Draft {
    /// The open file.
    ///
    /// # Panics
    /// If it is not a GGUF file.
    pub fn gguf(self) -> Gguf {
        Gguf::open(&self.path()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Whether it is an MTP head.
    pub fn is_mtp(self) -> bool {
        matches!(self, Self::MtpF16 | Self::MtpQ8_0)
    }

    /// The file.
    pub fn path(self) -> PathBuf {
        let name = match self {
            Self::F16 => "tiny-hybrid-dflash-f16",
            Self::Q8_0 => "tiny-hybrid-dflash-q8_0",
            Self::DsparkF16 => "tiny-hybrid-dspark-f16",
            Self::DsparkQ8_0 => "tiny-hybrid-dspark-q8_0",
            Self::MtpF16 => "mtp-tiny-hybrid-f16",
            Self::MtpQ8_0 => "mtp-tiny-hybrid-q8_0",
        };
        repo_file(&format!("models/{name}.gguf"))
    }

    /// An engine with a draft, or one that can take tokens back without one.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn engine(
        draft: Option<Self>,
        model: Model,
        device: impl Device + 'static,
        n_ctx: Option<u32>,
    ) -> Engine {
        Self::engine_with(draft, model, device, EngineOptions { n_ctx, ..EngineOptions::default() })
    }

    /// The same with other options.
    ///
    /// # Panics
    /// As there.
    pub fn engine_with(
        draft: Option<Self>,
        model: Model,
        device: impl Device + 'static,
        options: EngineOptions,
    ) -> Engine {
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let options = EngineOptions { speculate: true, ..options };
        let draft = draft.map(Self::gguf);
        Engine::load_with(&model.gguf(), draft.as_ref(), Box::new(device), &options, &image)
            .unwrap_or_else(|e| panic!("{model:?}: {e}"))
    }
}

/// What the tests run on where nothing else is said: two threads, 8 MiB of VTCM, the best instruction set.
pub fn settings() -> Settings {
    Settings { threads: 2, vtcm_bytes: 8 << 20, dma: DmaMode::AtOnce, isa: Isa::detect() }
}

/// The in-process device.
///
/// # Panics
/// If it cannot be started.
pub fn inproc(settings: Settings) -> Inproc {
    Inproc::with_settings(settings).unwrap_or_else(|e| panic!("{settings:?}: {e}"))
}

/// Generates with parties that outlive a turn. `on_event` says whether to go on; if not, the text ends.
///
/// # Errors
/// As [`Generation::step`].
pub fn generate(
    engine: &mut Engine,
    tokenizer: &Arc<Tokenizer>,
    (sampler, speculation): (&mut Sampler, &mut Speculation),
    prompt: &[u32],
    limits: &Limits,
    mut on_event: impl FnMut(Event<'_>) -> bool,
) -> Result<Generated, GenerateError> {
    let request = Request::new(prompt, sampler.clone())
        .limits(limits.clone())
        .speculation(std::mem::replace(speculation, Speculation::off()));
    let mut generation = Generation::new(Arc::clone(tokenizer), request);
    let outcome = loop {
        match generation.step(engine) {
            Ok(Event::Done(_)) => break Ok(()),
            Ok(event) => {
                if !on_event(event) {
                    generation.cancel();
                }
            }
            Err(error) => break Err(error),
        }
    };
    let ended = generation.into_ended();
    (*sampler, *speculation) = (ended.sampler, ended.speculation);
    outcome.map(|()| ended.generated)
}

/// Text that is to be seen; a token need not have any.
pub fn visible<'g>(event: &Event<'g>) -> Option<&'g str> {
    if let Event::Text(text) = event { Some(*text).filter(|text| !text.is_empty()) } else { None }
}

/// Perplexity over the first chunks of a text, of so many tokens, which start with an empty context. The
/// first half of each is a prompt, the other half is scored.
///
/// # Panics
/// If the text is too short, or the engine fails.
pub fn perplexity(engine: &mut Engine, tokens: &[u32], chunk: usize, chunks: usize) -> f64 {
    let (mut sum, mut scored) = (0.0, 0.0);
    for part in tokens.chunks_exact(chunk).take(chunks) {
        engine.reset();
        let (context, rest) = part.split_at(chunk / 2);
        engine.prefill(context, |_| ()).unwrap();
        // The logits after a token are those of the next one.
        for (n, step) in rest.chunks(MAX_VERIFY as usize).enumerate() {
            engine.decode_many(step).unwrap();
            let next = rest.iter().skip(n * MAX_VERIFY as usize + 1);
            for (row, &token) in next.take(step.len()).enumerate() {
                let logits = engine.logits(row);
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let all: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
                sum += all.ln() - f64::from(logits[token as usize] - most);
                scored += 1.0;
            }
        }
    }
    assert_eq!(scored as usize, chunks * (chunk / 2 - 1), "the text is long enough");
    (sum / scored).exp()
}

/// Normalised mean squared error: the squared distance over the squared norm of `expected`.
///
/// # Panics
/// If the lengths differ or `expected` is zero.
pub fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f64| x * x;
    let distance: f64 = found.iter().zip(expected).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    let norm: f64 = expected.iter().map(|&b| square(f64::from(b))).sum();
    assert!(norm > 0.0, "the reference is zero");
    distance / norm
}

/// The best and second logits: ids and values.
///
/// # Panics
/// If there are fewer than two.
pub fn best_two(logits: &[f32]) -> [(u32, f32); 2] {
    assert!(logits.len() >= 2);
    let mut best = [(0, f32::NEG_INFINITY); 2];
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best[0].1 {
            best = [(id as u32, logit), best[0]];
        } else if logit > best[1].1 {
            best[1] = (id as u32, logit);
        }
    }
    best
}

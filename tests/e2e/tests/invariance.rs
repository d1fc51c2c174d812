//! Results do not depend on how tokens are grouped into steps, nor on threads, VTCM, vectors or DMA: to the
//! bit.

use hexflash::device::inproc::Settings;
use hexflash::engine::{Engine, EngineOptions, Numerics};
use hexflash::model::{CacheType, CacheTypes, MAX_VERIFY, Mixer, Region};
use hexflash::testing::state_bytes;
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_e2e::{Model, best_two, inproc, nmse, reference, report, settings};

/// Tokens of a run: more than a convolution ring holds, and no multiple of every width.
const TOKENS: usize = 48;

/// What a run leaves behind.
#[derive(Clone, PartialEq)]
struct Outcome {
    /// The state buffer: KV caches, recurrent states and convolution rings.
    ///
    /// All of it is compared. A ring keeps the last rows of raw inputs however they came, so after more
    /// tokens than it has rows, even the rows that no later step reads must be the same.
    state: Vec<u8>,
    /// Logits after the last token.
    logits: Vec<f32>,
}

impl Outcome {
    fn of(engine: &mut Engine, row: usize) -> Self {
        let rings = engine.config().layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::DeltaNet(block) => Some(block.conv_kernel as usize),
            Mixer::ShortConv(block) => Some(block.taps as usize),
            Mixer::Attention(_) => None,
        });
        assert!(rings.max().is_some_and(|rows| rows <= TOKENS), "rings are full after {TOKENS} tokens");
        assert_eq!(engine.n_past() as usize, TOKENS);
        Self { state: state_bytes(engine), logits: engine.logits(row).to_vec() }
    }

    /// Fails with the place of the first difference.
    fn assert_same(&self, other: &Self, engine: &Engine, what: &str) {
        if let Some(at) = self.state.iter().zip(&other.state).position(|(a, b)| a != b) {
            panic!("{what}: the state differs from byte {at}: {}", place(engine, at as u64));
        }
        assert_eq!(self.state.len(), other.state.len());
        let differ = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
        if let Some(id) = self.logits.iter().zip(&other.logits).position(differ) {
            panic!("{what}: the logit of token {id} is {} and not {}", other.logits[id], self.logits[id]);
        }
    }
}

/// What lies at a byte of the state buffer.
fn place(engine: &Engine, at: u64) -> String {
    let state = engine.kept().iter().filter(|(_, kept)| kept.region == Region::State);
    let before = state.filter(|(_, kept)| kept.offset <= at);
    let (name, kept) = before.max_by_key(|(_, kept)| kept.offset).expect("something starts at 0");
    format!("{name}, byte {}", at - kept.offset)
}

/// The first tokens of a prompt and its greedy continuation: varied text in the model's own words.
fn tokens(n: usize) -> Vec<u32> {
    let cases = reference::greedy(Model::F16).cases;
    let case = cases.iter().rfind(|case| case.prompt.starts_with('@')).expect("a prompt of ids");
    case.prompt_ids.iter().chain(&case.ids).copied().take(n).collect()
}

fn with_caches(caches: CacheTypes) -> EngineOptions {
    EngineOptions { caches, ..EngineOptions::default() }
}

/// Every product by the matrix unit.
fn by_matrix_unit() -> EngineOptions {
    EngineOptions { numerics: Numerics::Hmx, ..EngineOptions::default() }
}

fn fresh(options: &EngineOptions, model: Model, settings: Settings, batch: u32) -> Engine {
    model.engine(inproc(settings), &EngineOptions { batch, ..options.clone() })
}

/// One token per step: what everything else must equal. Also gives the logits after every token.
fn one_by_one(engine: &mut Engine, tokens: &[u32]) -> (Outcome, Vec<Vec<f32>>) {
    engine.reset();
    let mut logits = Vec::new();
    for &token in tokens {
        engine.decode(token).unwrap();
        assert_eq!(engine.argmax(0), best_two(engine.logits(0))[0].0, "ARGMAX is the first maximum");
        logits.push(engine.logits(0).to_vec());
    }
    (Outcome::of(engine, 0), logits)
}

/// Steps of up to `width` tokens. The logits after every token must equal `expected`.
fn in_widths(engine: &mut Engine, tokens: &[u32], width: usize, expected: &[Vec<f32>]) -> Outcome {
    engine.reset();
    let (mut done, mut rows) = (0, 0);
    for chunk in tokens.chunks(width) {
        engine.decode_many(chunk).unwrap();
        rows = chunk.len();
        for row in 0..rows {
            assert_eq!(engine.logits(row), expected[done + row], "width {width}, token {}", done + row);
            assert_eq!(engine.argmax(row), best_two(engine.logits(row))[0].0);
        }
        done += rows;
    }
    Outcome::of(engine, rows - 1)
}

fn grouping_does_not_matter(model: Model, options: &EngineOptions) {
    let tokens = &tokens(TOKENS);
    let mut engine = fresh(options, model, settings(), 256);
    let (expected, logits) = one_by_one(&mut engine, tokens);
    for width in [1, 2, 3, 5, 8, MAX_VERIFY as usize] {
        let found = in_widths(&mut engine, tokens, width, &logits);
        expected.assert_same(&found, &engine, &format!("{model:?}, width {width}"));
    }
    for batch in [1, 7, 32, 128] {
        let mut engine = fresh(options, model, settings(), batch);
        engine.prefill(tokens, |_| {}).unwrap();
        let found = Outcome::of(&mut engine, 0);
        expected.assert_same(&found, &engine, &format!("{model:?}, prefill in batches of {batch}"));
    }
    report(format!(
        "{model:?}: {} bytes of state and all logits equal in 10 groupings",
        expected.state.len()
    ));
}

#[test]
fn grouping_does_not_matter_f16() {
    grouping_does_not_matter(Model::F16, &EngineOptions::default());
}

#[test]
fn grouping_does_not_matter_q8_0() {
    grouping_does_not_matter(Model::Q8_0, &EngineOptions::default());
}

#[test]
fn grouping_does_not_matter_q4_0() {
    grouping_does_not_matter(Model::Q4_0, &EngineOptions::default());
}

/// Devices that differ from the usual one in one way each, and one that differs in all.
fn devices() -> Vec<Settings> {
    let usual = settings();
    let threads = (1..=4).map(|threads| Settings { threads, ..usual });
    let vtcm = [128 << 10, 8 << 20].map(|vtcm_bytes| Settings { vtcm_bytes, ..usual });
    let isa = Isa::available().map(|isa| Settings { isa, ..usual });
    let modes = [DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder];
    let dma = modes.map(|dma| Settings { dma, ..usual });
    let all = Settings { threads: 3, vtcm_bytes: 128 << 10, dma: DmaMode::OutOfOrder, isa: Isa::Portable };
    // With weight streams, which there are in modes other than the usual one.
    let streams = [(1, 2, DmaMode::OutOfOrder), (3, 2, DmaMode::AtWait), (4, 4, DmaMode::OutOfOrder)];
    let streams =
        streams.map(|(threads, mib, dma)| Settings { threads, vtcm_bytes: mib << 20, dma, ..usual });
    threads.chain(vtcm).chain(isa).chain(dma).chain([all]).chain(streams).collect()
}

/// A prompt, a wide step and single tokens: all three programs.
fn mixed(engine: &mut Engine, tokens: &[u32]) -> Outcome {
    let (prompt, rest) = tokens.split_at(32);
    let (wide, single) = rest.split_at(5);
    engine.prefill(prompt, |_| {}).unwrap();
    engine.decode_many(wide).unwrap();
    single.iter().for_each(|&token| engine.decode(token).unwrap());
    Outcome::of(engine, 0)
}

fn the_device_does_not_matter(model: Model, options: &EngineOptions) {
    does_not_matter(&devices(), model, options);
}

fn does_not_matter(devices: &[Settings], model: Model, options: &EngineOptions) {
    let tokens = &tokens(TOKENS);
    let expected = mixed(&mut fresh(options, model, settings(), 256), tokens);
    for &settings in devices {
        let mut engine = fresh(options, model, settings, 256);
        let found = mixed(&mut engine, tokens);
        expected.assert_same(&found, &engine, &format!("{model:?}, {settings:?}"));
    }
    report(format!("{model:?}: the same on {} devices", devices.len()));
}

#[test]
fn the_device_does_not_matter_f16() {
    the_device_does_not_matter(Model::F16, &EngineOptions::default());
}

#[test]
fn the_device_does_not_matter_q8_0() {
    the_device_does_not_matter(Model::Q8_0, &EngineOptions::default());
}

#[test]
fn the_device_does_not_matter_q4_0() {
    the_device_does_not_matter(Model::Q4_0, &EngineOptions::default());
}

/// Caches of other number formats: each with itself, and one pair of different ones.
fn cache_types() -> [CacheTypes; 3] {
    let both = [CacheType::Q8_0, CacheType::Q4R].map(CacheTypes::both);
    [both[0], both[1], CacheTypes { keys: CacheType::Q8_0, values: CacheType::Q4R }]
}

#[test]
fn grouping_does_not_matter_whatever_caches_hold() {
    for caches in cache_types() {
        grouping_does_not_matter(Model::Q8_0, &with_caches(caches));
    }
}

#[test]
fn the_device_does_not_matter_whatever_caches_hold() {
    for caches in cache_types() {
        the_device_does_not_matter(Model::Q8_0, &with_caches(caches));
    }
}

/// The twin of the unit is slow: one model, whose head is of another type than its layers.
#[test]
fn grouping_does_not_matter_by_the_matrix_unit() {
    grouping_does_not_matter(Model::Q4_0, &by_matrix_unit());
}

/// Two devices: `host-runtime/tests/mul_mat.rs` has each product on all of them.
#[test]
fn the_device_does_not_matter_by_the_matrix_unit() {
    let narrow = Settings { threads: 1, vtcm_bytes: 2 << 20, dma: DmaMode::AtWait, ..settings() };
    let wide = Settings { threads: 3, dma: DmaMode::OutOfOrder, isa: Isa::Portable, ..settings() };
    does_not_matter(&[narrow, wide], Model::F16, &by_matrix_unit());
}

/// Number formats change numbers, and the memory that caches take by as much as they say.
#[test]
fn smaller_caches_are_smaller_and_not_the_same() {
    let tokens = &tokens(TOKENS);
    let mut plain = fresh(&EngineOptions::default(), Model::Q8_0, settings(), 256);
    let (logits, bytes) = (mixed(&mut plain, tokens).logits, plain.memory().kv);
    for caches in cache_types() {
        let mut engine = fresh(&with_caches(caches), Model::Q8_0, settings(), 256);
        let other = mixed(&mut engine, tokens).logits;
        assert!(other != logits, "{caches:?} give the bits of F16");
        let (error, kv) = (nmse(&other, &logits), engine.memory().kv);
        report(format!(
            "{caches:?}: {kv} bytes of caches for {bytes}, logits differ by an NMSE of {error:.1e}"
        ));
        assert!(error < 0.02 && kv * 100 < bytes * 57, "{caches:?}: NMSE {error}, {kv} bytes for {bytes}");
    }
}

/// What a longer text left in the caches and states does not leak into the next one.
#[test]
fn reset_forgets_everything() {
    let all = &tokens(128);
    let mut engine = fresh(&EngineOptions::default(), Model::Q8_0, settings(), 256);
    let expected = mixed(&mut engine, &all[..TOKENS]);
    engine.reset();
    engine.prefill(&all[TOKENS..], |_| {}).unwrap();
    assert!(engine.n_past() as usize > TOKENS);
    engine.reset();
    let found = mixed(&mut engine, &all[..TOKENS]);
    // Rows of the KV caches after the last token are another text's and may differ: nothing may look at them.
    assert!(found.logits == expected.logits, "logits depend on what was there before");
}

//! Models of every architecture but Qwen3.5, with random weights: neither steps of any width nor
//! speculation change a token, and attention alone needs no tapes for that.

use std::fs::File;
use std::path::Path;

use hexflash::device::inproc::Inproc;
use hexflash::device::{DeviceOptions, SplitDevice};
use hexflash::embed::Embedder;
use hexflash::engine::{Engine, EngineError, EngineOptions, SequenceId, StepRows};
use hexflash::generate::{Generated, Limits};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::model::{CacheType, CacheTypes, MAX_VERIFY, Purpose};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, NGram, Speculation};
use hexflash::testing::state_bytes;
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::state::{Snapshot, write_with_snapshots};
use hexflash_e2e::{Model, generate, inproc, report, settings};

const WIDTH: u64 = 64;
const MLP: u64 = 96;
const LAYERS: u64 = 4;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD: u64 = 32;
/// That of the models whose tokenizer it borrows.
const VOCABULARY: u64 = 4096;
const CONTEXT: u32 = 192;
const TAPS: u64 = 3;
const EXPERTS: u64 = 8;
const USED: u64 = 3;
const EXPERT_MLP: u64 = 40;
/// The layer of gemma4 that sees all of the context.
const FAR: u64 = 2;
const PER_LAYER: u64 = 24;

/// Whether the LM head is the embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Head {
    Tied,
    Untied,
}

/// What tells dense architectures apart.
#[derive(Clone, Copy, Debug)]
struct Kind {
    arch: &'static str,
    /// Norms of queries and keys.
    norms: bool,
    /// Biases of queries, keys and values.
    biases: bool,
    /// Divisors of the rotary embedding's angles.
    divisors: bool,
    /// Norms after mixer and MLP, windows in every other layer, and larger embeddings.
    gemma: bool,
    /// Short convolutions in every other layer, the first included.
    convolutions: bool,
    /// Experts in place of the MLP, with a bias of their choice beside convolutions.
    experts: bool,
    /// Sinks, windows in every other layer, and biases of all products, those of experts included.
    oss: bool,
    /// Besides what `gemma` has: per-layer embeddings, narrower heads in layers with windows, of which the
    /// last reads the caches of another, and bounds of logits.
    gemma4: bool,
    /// Queries, keys and values as one tensor, gate and up too, and two divisors for each angle.
    fused: bool,
    /// A gate for each head, and windows.
    gates: bool,
}

const QWEN3: Kind = Kind {
    arch: "qwen3",
    norms: true,
    biases: false,
    divisors: false,
    gemma: false,
    convolutions: false,
    experts: false,
    oss: false,
    gemma4: false,
    fused: false,
    gates: false,
};
const GEMMA3: Kind = Kind { arch: "gemma3", gemma: true, ..QWEN3 };

const LFM2: Kind = Kind { arch: "lfm2", convolutions: true, ..QWEN3 };
const GPT_OSS: Kind = Kind { arch: "gpt-oss", norms: false, biases: true, experts: true, oss: true, ..QWEN3 };

/// An architecture each, and a model that has an LM head of its own.
const TARGETS: [(Kind, Head); 17] = [
    (QWEN3, Head::Tied),
    (QWEN3, Head::Untied),
    (Kind { arch: "llama", norms: false, divisors: true, ..QWEN3 }, Head::Untied),
    (Kind { arch: "qwen2", norms: false, biases: true, ..QWEN3 }, Head::Tied),
    (Kind { arch: "smollm3", norms: false, ..QWEN3 }, Head::Tied),
    (GEMMA3, Head::Tied),
    (LFM2, Head::Tied),
    (Kind { arch: "qwen3moe", experts: true, ..QWEN3 }, Head::Tied),
    (Kind { arch: "lfm2moe", experts: true, ..LFM2 }, Head::Tied),
    (GPT_OSS, Head::Untied),
    (Kind { arch: "gemma4", gemma: true, gemma4: true, ..QWEN3 }, Head::Tied),
    (Kind { arch: "granite", norms: false, ..QWEN3 }, Head::Tied),
    (Kind { arch: "gemma2", norms: false, ..GEMMA3 }, Head::Tied),
    (Kind { arch: "phi3", norms: false, fused: true, ..QWEN3 }, Head::Untied),
    (Kind { arch: "mistral3", norms: false, ..QWEN3 }, Head::Tied),
    (Kind { arch: "qwen3vl", ..QWEN3 }, Head::Tied),
    (Kind { arch: "spark2_5", norms: false, gates: true, ..QWEN3 }, Head::Tied),
];

impl Kind {
    fn has_convolution(self, layer: u64) -> bool {
        self.convolutions && layer.is_multiple_of(2)
    }

    /// Width of a head.
    fn head(self, layer: u64) -> u64 {
        if self.gemma4 && layer != FAR { HEAD / 2 } else { HEAD }
    }

    /// The last layer of gemma4 reads those of the second.
    fn has_caches(self, layer: u64) -> bool {
        !self.gemma4 || layer + 1 < LAYERS
    }

    /// The first layer of lfm2moe has none.
    fn has_experts(self, layer: u64) -> bool {
        self.experts && !(self.convolutions && layer == 0)
    }
}

/// Uniform numbers with a standard deviation: splitmix64, from a seed that the name gives.
fn numbers(name: &str, n: u64, mean: f32, deviation: f32) -> Vec<u8> {
    let mut state = name.bytes().fold(1u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..n).flat_map(|_| (mean + deviation * 3f32.sqrt() * next()).to_le_bytes()).collect()
}

/// A file under construction whose matrices keep the size of what they read, times a gain.
struct Weights {
    file: GgufWriter<'static>,
    seed: &'static str,
}

impl Weights {
    fn add(&mut self, name: &str, ne: &[u64], mean: f32, deviation: f32) {
        let values = numbers(&format!("{} {name}", self.seed), ne.iter().product(), mean, deviation);
        self.file.tensor(name, GgmlType::F32, ne, values).unwrap();
    }

    fn norm(&mut self, name: &str, n: u64) {
        self.add(name, &[n], 1.0, 0.1);
    }

    fn matrix(&mut self, name: &str, k: u64, n: u64, gain: f32) {
        self.add(name, &[k, n], 0.0, gain / (k as f32).sqrt());
    }

    /// The hyper-parameters and layers that targets and drafts have in common.
    fn layers(&mut self, kind: Kind, layers: u64) {
        let arch = kind.arch;
        self.file.kv("general.architecture", arch);
        for (key, value) in [
            ("block_count", layers),
            ("context_length", CONTEXT.into()),
            ("embedding_length", WIDTH),
            ("feed_forward_length", MLP),
            ("attention.head_count", HEADS),
            ("attention.key_length", HEAD),
            ("attention.value_length", HEAD),
        ] {
            self.file.kv(&format!("{arch}.{key}"), value as u32);
        }
        self.file.kv(&format!("{arch}.attention.layer_norm_rms_epsilon"), 1e-6f32);
        self.file.kv(&format!("{arch}.rope.freq_base"), 1e6f32);
        let key = format!("{arch}.attention.head_count_kv");
        if kind.convolutions {
            let heads = |i| if kind.has_convolution(i) { 0 } else { KV_HEADS as i32 };
            self.file.kv(&key, (0..layers).map(heads).collect::<Vec<_>>());
            self.file.kv(&format!("{arch}.shortconv.l_cache"), TAPS as u32);
        } else {
            self.file.kv(&key, KV_HEADS as u32);
        }
        if kind.experts {
            for (key, value) in
                [("count", EXPERTS), ("used_count", USED), ("feed_forward_length", EXPERT_MLP)]
            {
                self.file.kv(&format!("{arch}.expert_{key}"), value as u32);
            }
            self.file.kv(&format!("{arch}.expert_gating_func"), 2u32);
            self.file.kv(&format!("{arch}.leading_dense_block_count"), 1u32);
        }
        if kind.gemma || kind.oss {
            self.file.kv(&format!("{arch}.attention.sliding_window"), 20u32);
            self.file.kv(&format!("{arch}.attention.sliding_window_pattern"), 2u32);
        }
        if kind.gemma4 {
            let near: Vec<bool> = (0..layers).map(|i| i != FAR).collect();
            self.file.kv("gemma4.attention.sliding_window_pattern", near);
            self.file.kv("gemma4.final_logit_softcapping", 5f32);
            for (key, value) in [
                ("attention.key_length_swa", HEAD / 2),
                ("attention.value_length_swa", HEAD / 2),
                ("attention.shared_kv_layers", 1),
                ("embedding_length_per_layer_input", PER_LAYER),
            ] {
                self.file.kv(&format!("gemma4.{key}"), value as u32);
            }
            let all = PER_LAYER * layers;
            self.matrix("per_layer_token_embd.weight", all, VOCABULARY, (all as f32).sqrt() / 5.0);
            self.matrix("per_layer_model_proj.weight", WIDTH, all, 1.0);
            self.norm("per_layer_proj_norm.weight", PER_LAYER);
        }
        for i in 0..layers {
            let name = |suffix: &str| format!("blk.{i}.{suffix}.weight");
            self.norm(&name("attn_norm"), WIDTH);
            self.norm(&name(if kind.oss { "post_attention_norm" } else { "ffn_norm" }), WIDTH);
            if kind.has_experts(i) {
                self.experts(kind, i);
            } else {
                let columns = if kind.fused { 2 * MLP } else { MLP };
                if !kind.fused {
                    self.matrix(&name("ffn_gate"), WIDTH, MLP, 1.0);
                }
                self.matrix(&name("ffn_up"), WIDTH, columns, 1.0);
                self.matrix(&name("ffn_down"), MLP, WIDTH, 0.5);
            }
            if kind.has_convolution(i) {
                self.matrix(&name("shortconv.in_proj"), WIDTH, 3 * WIDTH, 1.0);
                self.add(&name("shortconv.conv"), &[TAPS, WIDTH], 0.1, 0.5);
                self.matrix(&name("shortconv.out_proj"), WIDTH, WIDTH, 2.0);
                continue;
            }
            let head = kind.head(i);
            if kind.fused {
                self.matrix(&name("attn_qkv"), WIDTH, (HEADS + 2 * KV_HEADS) * head, 1.0);
            } else {
                self.matrix(&name("attn_q"), WIDTH, HEADS * head, 1.0);
            }
            if kind.gates {
                self.matrix(&name("attn_gate"), WIDTH, HEADS, 1.0);
            }
            if kind.has_caches(i) && !kind.fused {
                self.matrix(&name("attn_k"), WIDTH, KV_HEADS * head, 1.0);
                self.matrix(&name("attn_v"), WIDTH, KV_HEADS * head, 1.0);
            }
            if kind.norms {
                self.norm(&name("attn_q_norm"), head);
                // Without caches it is one that nothing reads, as files have.
                self.norm(&name("attn_k_norm"), head);
            }
            if kind.gemma4 {
                self.matrix(&name("inp_gate"), WIDTH, PER_LAYER, 1.0);
                self.matrix(&name("proj"), PER_LAYER, WIDTH, 1.0);
                self.add(&name("post_norm"), &[WIDTH], 0.3, 0.05);
                self.add(&name("layer_output_scale"), &[1], 0.9, 0.05);
            }
            if kind.gemma {
                self.add(&name("post_attention_norm"), &[WIDTH], 0.3, 0.05);
                self.add(&name("post_ffw_norm"), &[WIDTH], 0.3, 0.05);
            }
            if kind.biases {
                for (matrix, heads) in [("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)] {
                    self.add(&format!("blk.{i}.attn_{matrix}.bias"), &[heads * HEAD], 0.0, 0.3);
                }
            }
            if kind.oss {
                self.add(&format!("blk.{i}.attn_output.bias"), &[WIDTH], 0.0, 0.1);
                self.add(&name("attn_sinks"), &[HEADS], 0.0, 2.0);
            }
            self.matrix(&name("attn_output"), HEADS * head, WIDTH, 0.5);
        }
        if kind.fused {
            self.add("rope_factors_long.weight", &[HEAD / 2], 4.0, 2.0);
            self.add("rope_factors_short.weight", &[HEAD / 2], 1.2, 0.1);
        }
        self.own_keys(kind.arch, layers);
        if kind.divisors || kind.gemma4 {
            self.add("rope_freqs.weight", &[HEAD / 2], 4.0, 2.0);
        }
        let norm = if kind.convolutions { "token_embd_norm" } else { "output_norm" };
        self.norm(&format!("{norm}.weight"), WIDTH);
    }

    /// Keys that one architecture has, and no other.
    fn own_keys(&mut self, arch: &str, layers: u64) {
        let mut set = |keys: &[(&str, f32)]| {
            for (key, value) in keys {
                self.file.kv(&format!("{arch}.{key}"), *value);
            }
        };
        match arch {
            "granite" => set(&[
                ("embedding_scale", 4.0),
                ("residual_scale", 0.5),
                ("attention.scale", 0.2),
                ("logit_scale", 0.5),
            ]),
            "gemma2" => set(&[("attn_logit_softcapping", 1.5), ("final_logit_softcapping", 5.0)]),
            "phi3" => {
                self.file.kv("phi3.rope.scaling.original_context_length", CONTEXT / 2);
            }
            "mistral3" => {
                set(&[("attention.temperature_scale", 0.4), ("rope.scaling.factor", 4.0)]);
                self.file.kv("mistral3.rope.scaling.type", "yarn");
                self.file.kv("mistral3.rope.scaling.original_context_length", 16u32);
            }
            "qwen3vl" => {
                self.file.kv("qwen3vl.rope.dimension_sections", vec![6i32, 5, 5, 0]);
            }
            "spark2_5" => {
                set(&[("rope.freq_base_swa", 1e4)]);
                let near: Vec<bool> = (0..layers).map(|i| i % 2 == 0).collect();
                self.file.kv("spark2_5.attention.sliding_window_pattern", near);
                self.file.kv("spark2_5.attention.sliding_window", 20u32);
            }
            _ => {}
        }
    }

    fn experts(&mut self, kind: Kind, layer: u64) {
        let name = |suffix: &str| format!("blk.{layer}.ffn_{suffix}.weight");
        let mut tensor = |name: &str, ne: &[u64], gain: f32| {
            self.add(name, ne, 0.0, gain / (ne[0] as f32).sqrt());
        };
        tensor(&name("gate_inp"), &[WIDTH, EXPERTS], 2.0);
        tensor(&name("gate_exps"), &[WIDTH, EXPERT_MLP, EXPERTS], 1.0);
        tensor(&name("up_exps"), &[WIDTH, EXPERT_MLP, EXPERTS], 1.0);
        tensor(&name("down_exps"), &[EXPERT_MLP, WIDTH, EXPERTS], 1.0);
        if kind.convolutions {
            self.add(&format!("blk.{layer}.exp_probs_b.bias"), &[EXPERTS], 0.0, 0.3);
        }
        if kind.oss {
            for (matrix, n) in [("gate", EXPERT_MLP), ("up", EXPERT_MLP), ("down", WIDTH)] {
                self.add(&format!("blk.{layer}.ffn_{matrix}_exps.bias"), &[n, EXPERTS], 0.0, 0.3);
            }
            self.add(&format!("blk.{layer}.ffn_gate_inp.bias"), &[EXPERTS], 0.0, 0.3);
        }
    }

    fn write(self, path: &Path) -> Gguf {
        self.file.write_to(File::create(path).unwrap()).unwrap();
        Gguf::open(path).unwrap()
    }
}

fn target(dir: &Path, kind: Kind, head: Head) -> Gguf {
    let mut weights = Weights { file: GgufWriter::new(), seed: "target" };
    weights.layers(kind, LAYERS);
    let tokenizer = Model::F16.gguf();
    for (key, value) in tokenizer.meta().iter().filter(|(key, _)| key.starts_with("tokenizer.ggml.")) {
        weights.file.kv(key, value.clone());
    }
    let size = if kind.gemma { 1.0 } else { (WIDTH as f32).sqrt() };
    weights.matrix("token_embd.weight", WIDTH, VOCABULARY, size);
    if head == Head::Untied {
        weights.matrix("output.weight", WIDTH, VOCABULARY, 2.0);
    }
    weights.write(&dir.join(format!("{}-{head:?}.gguf", kind.arch)))
}

/// A draft that has learnt nothing, for any of the targets.
fn draft(dir: &Path) -> Gguf {
    let mut weights = Weights { file: GgufWriter::new(), seed: "draft" };
    weights.layers(Kind { arch: "dflash", ..QWEN3 }, 2);
    weights.file.kv("dflash.target_layers", vec![1i32, 3]).kv("dflash.block_size", 6u32);
    weights.file.kv("tokenizer.ggml.mask_token_id", 5u32);
    weights.matrix("fc.weight", 2 * WIDTH, WIDTH, 1.0);
    weights.norm("enc.output_norm.weight", WIDTH);
    weights.write(&dir.join("draft.gguf"))
}

fn engine(target: &Gguf, draft: Option<&Gguf>, speculate: bool) -> Engine {
    engine_with(target, draft, &EngineOptions { speculate, ..EngineOptions::default() })
}

fn engine_with(target: &Gguf, draft: Option<&Gguf>, options: &EngineOptions) -> Engine {
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    Engine::load_with(target, draft, Box::new(inproc(settings())), options, &image).unwrap()
}

/// A few prompts: short, longer than a block, longer than a tile of positions.
fn prompts() -> [Vec<u32>; 3] {
    [1, 21, 70].map(|n| (0..n).map(|i| 100 + i * i * 37 % 3000).collect())
}

/// 80 tokens after a prompt, and the state after one more.
fn run(
    engine: &mut Engine,
    text: &TextModel,
    prompt: &[u32],
    how: &mut Speculation,
) -> (Generated, Snapshot) {
    engine.reset();
    let params = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let mut sampler = Sampler::new(params).unwrap();
    let limits = Limits { max_tokens: Some(80), ignore_eos: true, ..Limits::default() };
    let text = &text.tokenizer;
    let found = generate(engine, text, (&mut sampler, how), prompt, &limits, |_| true).unwrap();
    engine.decode(7).unwrap();
    (found, Snapshot::of(engine))
}

#[test]
fn grouping_does_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    for (kind, head) in TARGETS {
        let what = format!("{}, {head:?}", kind.arch);
        let mut engine = engine(&target(dir.path(), kind, head), None, false);
        let tokens = &prompts()[2];
        let mut expected: Vec<Vec<f32>> = Vec::new();
        for &token in tokens {
            engine.decode(token).unwrap();
            expected.push(engine.logits(0).to_vec());
        }
        let states = state_bytes(&engine);
        for width in [2, 3, MAX_VERIFY as usize] {
            engine.reset();
            for (step, expected) in tokens.chunks(width).zip(expected.chunks(width)) {
                engine.decode_many(step).unwrap();
                expected.iter().enumerate().for_each(|(row, logits)| assert_eq!(engine.logits(row), logits));
            }
            assert_eq!(state_bytes(&engine), states, "{what}, width {width}");
        }
        engine.reset();
        engine.prefill(tokens, |_| {}).unwrap();
        assert_eq!(engine.logits(0), expected[tokens.len() - 1], "{what}, prefill");
        assert_eq!(state_bytes(&engine), states, "{what}, prefill");
    }
}

/// Layers in the second session read what all layers share, such as divisors of angles, from memory of its
/// own.
#[test]
fn sessions_do_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    let tokens = &prompts()[1];
    for (kind, head) in TARGETS {
        let gguf = target(dir.path(), kind, head);
        let mut one = engine(&gguf, None, false);
        one.prefill(tokens, |_| {}).unwrap();
        let device = SplitDevice::<Inproc>::open(&options, 2).unwrap();
        let mut two = Engine::load(&gguf, Box::new(device), &EngineOptions::default(), &image).unwrap();
        two.prefill(tokens, |_| {}).unwrap();
        assert_eq!(two.logits(0), one.logits(0), "{}, {head:?}", kind.arch);
        let token = one.argmax(0);
        one.decode(token).unwrap();
        two.decode(token).unwrap();
        assert_eq!(two.logits(0), one.logits(0), "{}, {head:?}", kind.arch);
    }
}

/// Such a model takes a text in one step, whatever the batch, and forgets it with the next.
#[test]
fn a_model_whose_tokens_see_later_ones_gives_vectors_and_writes_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = target(dir.path(), Kind { arch: "gemma-embedding", ..GEMMA3 }, Head::Tied);
    let options = EngineOptions { n_ctx: Some(96), batch: 16, ..EngineOptions::default() };
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let threads = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    let embedder = |gguf: &Gguf, sessions| {
        let options = Embedder::engine_options(gguf, &options).unwrap();
        let device = SplitDevice::<Inproc>::open(&threads, sessions).unwrap();
        Embedder::load(gguf, Box::new(device), &options, &image).unwrap()
    };
    let [.., text] = prompts();
    let mut alone = embedder(&gguf, 1);
    let vectors = alone.embed_each(&text).unwrap();
    assert_eq!((vectors.len(), vectors[0].len()), (text.len(), WIDTH as usize));
    let mean = alone.embed_tokens(&text).unwrap();
    let of_column = |i: usize| vectors.iter().map(|row| f64::from(row[i])).sum::<f64>() / text.len() as f64;
    assert!(mean.iter().enumerate().all(|(i, &value)| (f64::from(value) - of_column(i)).abs() < 1e-6));
    alone.embed_tokens(&prompts()[1]).unwrap();
    assert_eq!(alone.embed_each(&text).unwrap(), vectors, "after another text");
    assert_eq!(embedder(&gguf, 2).embed_each(&text).unwrap(), vectors, "in two sessions");

    let other = [&text[..text.len() - 1], &[7]].concat();
    assert_ne!(alone.embed_each(&other).unwrap()[0], vectors[0], "the first token sees the last one");
    let causal = target(dir.path(), GEMMA3, Head::Tied);
    let mut causal = embedder(&causal, 1);
    let [first, second] = [&text, &other].map(|text| causal.embed_each(text).unwrap());
    assert_eq!(first[..text.len() - 1], second[..text.len() - 1]);

    let long = vec![7; 97];
    let error = alone.embed_tokens(&long).unwrap_err().to_string();
    assert!(error.contains("97 tokens do not fit the context of 96"), "{error}");
    let error = Engine::load(&gguf, Box::new(inproc(settings())), &options, &image).err().unwrap();
    assert!(
        matches!(error, EngineError::WritesNoText { .. }) && !error.to_string().contains('\n'),
        "{error}"
    );
}

#[test]
fn speculation_gives_the_same_text_and_keeps_no_factors() {
    let dir = tempfile::tempdir().unwrap();
    let draft = draft(dir.path());
    for (kind, head) in TARGETS {
        let what = format!("{}, {head:?}", kind.arch);
        let gguf = target(dir.path(), kind, head);
        let text = TextModel::read(&gguf).unwrap();
        let mut plain = engine(&gguf, None, false);
        let mut with_ngrams = engine(&gguf, None, true);
        let mut with_draft = engine(&gguf, Some(&draft), true);
        let memory = with_ngrams.memory().speculation.clone().unwrap();
        // A copy of the state would be the inputs that the taps before the last one meet.
        let layers = (0..LAYERS).filter(|&i| kind.has_convolution(i)).count() as u64;
        let copies = u64::from(MAX_VERIFY) * layers * (TAPS - 1) * WIDTH * 4;
        assert_eq!((memory.tape, memory.other, memory.state_copies), (0, 0, copies));
        let rows = u64::from(MAX_VERIFY) * layers * WIDTH * 4;
        assert_eq!(with_ngrams.kept().bytes(Purpose::ConvRows), rows);
        assert_eq!(with_draft.kept().bytes(Purpose::Tape), 0);
        let mut accepted = 0;
        for prompt in &prompts() {
            let (expected, state) = run(&mut plain, &text, prompt, &mut Speculation::off());
            for n in [1, 4, 15] {
                let ngrams = DraftSource::Host(Box::new(NGram::default()));
                let how = &mut Speculation::new(ngrams, DraftLength::Fixed(n));
                let (found, found_state) = run(&mut with_ngrams, &text, prompt, how);
                assert_eq!(found.tokens, expected.tokens, "{what}, {n} by n-gram");
                state.assert_same(&found_state, &format!("{what}, {n} by n-gram"));
                accepted += found.stats.speculation.unwrap().accepted;
            }
            for n in [1, 5] {
                let how = &mut Speculation::new(DraftSource::Model, DraftLength::Fixed(n));
                let (found, found_state) = run(&mut with_draft, &text, prompt, how);
                assert_eq!(found.tokens, expected.tokens, "{what}, {n} by the draft");
                state.assert_same(&found_state, &format!("{what}, {n} by the draft"));
            }
        }
        report(format!("{what}: {accepted} drafts of n-grams accepted"));
        assert!(accepted > 0, "{what}: the texts repeat nothing");
    }
}

/// Logits after `text`, and the state after one more token.
fn straight(engine: &mut Engine, text: &[u32]) -> (Vec<f32>, Snapshot) {
    engine.reset();
    let logits = match text {
        [] => Vec::new(),
        _ => {
            engine.prefill(text, |_| {}).unwrap();
            engine.logits(0).to_vec()
        }
    };
    engine.decode(7).unwrap();
    (logits, Snapshot::of(engine))
}

#[test]
fn sequences_of_short_convolutions_share_steps() {
    sequences_share_steps(LFM2, Head::Tied);
}

#[test]
fn sequences_with_sinks_and_windows_share_steps() {
    sequences_share_steps(GPT_OSS, Head::Untied);
}

fn sequences_share_steps(kind: Kind, head: Head) {
    let dir = tempfile::tempdir().unwrap();
    let gguf = target(dir.path(), kind, head);
    let mut alone = engine(&gguf, None, false);
    let options = EngineOptions { sequences: 3, speculate: true, ..EngineOptions::default() };
    let mut engine = engine_with(&gguf, None, &options);
    let ids: Vec<_> = engine.sequences().collect();
    let texts = [0, 20, 30].map(|from| prompts()[2][from..from + 40].to_vec());
    let [a, b, c] = &texts;
    let mut same = |engine: &mut Engine, n: usize, row: usize, len: usize| {
        let (logits, _) = straight(&mut alone, &texts[n][..len]);
        assert_eq!(engine.sequence(ids[n]).unwrap().logits(row), logits, "text {n} of {len} tokens");
    };
    // One token, fewer than taps, more than a block.
    let rows = [
        StepRows::append(ids[2], &c[..1]),
        StepRows::append(ids[0], &a[..20]),
        StepRows::append(ids[1], &b[..2]),
    ];
    engine.step(&rows).unwrap();
    [(0, 20), (1, 2), (2, 1)].into_iter().for_each(|(n, len)| same(&mut engine, n, 0, len));
    // Blocks of which a part is kept beside a piece of a prompt; then they change places.
    let rows = [
        StepRows::verify(ids[0], &a[20..30]),
        StepRows::append(ids[1], &b[2..9]),
        StepRows::verify(ids[2], &c[1..17]),
    ];
    engine.step(&rows).unwrap();
    (0..10).for_each(|row| same(&mut engine, 0, row, 21 + row));
    (0..16).for_each(|row| same(&mut engine, 2, row, 2 + row));
    same(&mut engine, 1, 0, 9);
    engine.sequence(ids[0]).unwrap().commit(1).unwrap();
    engine.sequence(ids[2]).unwrap().commit(16).unwrap();
    let rows = [
        StepRows::append(ids[2], &c[17..30]),
        StepRows::verify(ids[1], &b[9..12]),
        StepRows::append(ids[0], &a[21..22]),
    ];
    engine.step(&rows).unwrap();
    [(0, 22), (2, 30)].into_iter().for_each(|(n, len)| same(&mut engine, n, 0, len));
    (0..3).for_each(|row| same(&mut engine, 1, row, 10 + row));
    engine.sequence(ids[1]).unwrap().commit(2).unwrap();
    for (n, len) in [22, 11, 30].into_iter().enumerate() {
        engine.sequence(ids[n]).unwrap().decode(7).unwrap();
        let (_, expected) = straight(&mut alone, &texts[n][..len]);
        Snapshot::of_sequence(&mut engine, ids[n]).assert_same(&expected, &format!("text {n}"));
    }
}

#[test]
fn texts_of_short_convolutions_can_be_cut_at_every_token() {
    const TEXT: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let gguf = target(dir.path(), LFM2, Head::Tied);
    let text = &prompts()[2][..TEXT];
    let options = EngineOptions { speculate: true, ..EngineOptions::default() };
    let mut reference = engine_with(&gguf, None, &options);
    let bytes = reference.kept().bytes(Purpose::Recurrent);
    let expected: Vec<_> = (0..=TEXT).map(|n| straight(&mut reference, &text[..n]).1).collect();
    for snapshots in [0, 3, 20] {
        let options = EngineOptions { snapshot_bytes: snapshots * bytes, ..options.clone() };
        let mut engine = engine_with(&gguf, None, &options);
        assert_eq!(engine.snapshot_room() as u64, snapshots);
        for (n, expected) in expected.iter().enumerate() {
            engine.reset();
            let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
            write_with_snapshots(&mut sequence, text, 9);
            sequence.roll_back(n as u32).unwrap();
            sequence.decode(7).unwrap();
            Snapshot::of(&mut engine).assert_same(expected, &format!("{snapshots} snapshots, cut at {n}"));
        }
    }
}

/// Layers that see a window keep little more than that. Texts longer than what they keep have the bits of a
/// cache for the whole context, and so have texts that were cut.
#[test]
fn windows_are_kept_in_rings() {
    rings(CacheType::F16, 96);
}

/// Keys that need the first one of their strip have it as long as they are seen.
#[test]
fn windows_of_rotated_keys_are_kept_in_rings() {
    rings(CacheType::Q4R, 128);
}

/// Compares rings of so many positions with caches for the whole context.
fn rings(cache: CacheType, ring: u64) {
    const TEXT: usize = 180;
    let dir = tempfile::tempdir().unwrap();
    let gguf = target(dir.path(), GEMMA3, Head::Tied);
    let text: Vec<u32> = (0..TEXT as u32).map(|i| 100 + i * i * 37 % 3000).collect();
    let caches = CacheTypes::both(cache);
    let options = EngineOptions { batch: 64, speculate: true, caches, ..EngineOptions::default() };
    let mut whole = engine_with(&gguf, None, &EngineOptions { whole_windows: true, ..options.clone() });
    let mut engine = engine_with(&gguf, None, &options);
    // Two layers of four have a window of 20. With the 64 rows of a step that is three tiles, and one more
    // with 31 positions before the window.
    let row = KV_HEADS * caches.position_bytes(HEAD as u32, HEAD as u32);
    assert_eq!(whole.kept().bytes(Purpose::Kv), u64::from(CONTEXT) * row * LAYERS);
    assert_eq!(engine.kept().bytes(Purpose::Kv), (u64::from(CONTEXT) + ring) * row * LAYERS / 2);

    let logits = |engine: &mut Engine| {
        engine.reset();
        let each = |&token: &u32| {
            engine.decode(token).unwrap();
            engine.logits(0).to_vec()
        };
        text.iter().map(each).collect::<Vec<_>>()
    };
    assert_eq!(logits(&mut engine), logits(&mut whole));

    for n in [TEXT, TEXT - 1, 170, 150, 130, 60, 1, 0] {
        let (_, expected) = straight(&mut whole, &text[..n]);
        engine.reset();
        let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
        write_with_snapshots(&mut sequence, &text, 100);
        sequence.engine_mut().reset_stats();
        sequence.roll_back(n as u32).unwrap();
        // 76 or 77 positions beside those that are needed, of which the widest step may have used 64.
        let again = if n + 12 >= TEXT { 0 } else { n.div_ceil(64) as u64 };
        assert_eq!(sequence.engine().stats().messages, again, "cut at {n}");
        sequence.decode(7).unwrap();
        Snapshot::of(&mut engine).assert_same(&expected, &format!("cut at {n}"));

        // The same for a copy of the whole text, which reaches as far back as the text did.
        engine.reset();
        let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
        sequence.prefill(&text, |_| ()).unwrap();
        let (copy, reach) = (sequence.copy_out().unwrap(), sequence.reach(n as u32));
        assert_eq!(copy.reach(sequence.engine(), n as u32), reach, "cut at {n}");
        sequence.reset();
        sequence.prefill(&text[20..], |_| ()).unwrap();
        sequence.copy_in(&copy).unwrap();
        assert_eq!(sequence.reach(n as u32), reach, "cut at {n}");
        sequence.roll_back(n as u32).unwrap();
        sequence.decode(7).unwrap();
        Snapshot::of(&mut engine).assert_same(&expected, &format!("copied, and cut at {n}"));
    }

    // Cut again and again, each time by so little that alone it costs nothing.
    engine.reset();
    let mut sequence = engine.sequence(SequenceId::FIRST).unwrap();
    sequence.prefill(&text, |_| ()).unwrap();
    (96..=168).rev().step_by(12).for_each(|n| sequence.roll_back(n).unwrap());
    sequence.decode(7).unwrap();
    Snapshot::of(&mut engine).assert_same(&straight(&mut whole, &text[..96]).1, "cut again and again");
}

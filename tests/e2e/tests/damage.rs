//! Weights, states and caches that are damaged after they were loaded: no plausible text, the same error
//! whoever decodes, and what was right before stays.

#[path = "../../../host-runtime/tests/device/damaged.rs"]
mod damaged;

use std::collections::BTreeSet;

use damaged::{Damaged, Reach, Wound, entry, nan, overwrite};
use hexflash::device::inproc::{Inproc, Settings};
use hexflash::device::{DeviceOptions, SplitDevice};
use hexflash::engine::{Engine, EngineError, EngineOptions};
use hexflash::generate::{Event, GenerateError, Generated, Limits};
use hexflash::model::{self, Mixer, Scope};
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, NGram, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions, WeightEntry, WeightImage, layout};
use hexflash_e2e::{Draft, Model, generate, inproc, settings, visible};

const PROMPT: [u32; 6] = [45, 320, 99, 17, 4, 8];
const TOKENS: usize = 40;

/// Every way to a token.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain {
        sampled: bool,
    },
    Ngrams {
        sampled: bool,
    },
    /// On the device where greedy, else checked by the host.
    Draft {
        length: DraftLength,
        sampled: bool,
    },
}

const WAYS: [Way; 7] = [
    Way::Plain { sampled: false },
    Way::Plain { sampled: true },
    Way::Ngrams { sampled: false },
    Way::Ngrams { sampled: true },
    Way::Draft { length: DraftLength::Fixed(7), sampled: false },
    Way::Draft { length: DraftLength::Auto, sampled: false },
    Way::Draft { length: DraftLength::Fixed(3), sampled: true },
];

impl Way {
    fn sampled(self) -> bool {
        match self {
            Self::Plain { sampled } | Self::Ngrams { sampled } | Self::Draft { sampled, .. } => sampled,
        }
    }

    fn speculation(self) -> Speculation {
        match self {
            Self::Plain { .. } => Speculation::off(),
            Self::Ngrams { .. } => {
                Speculation::new(DraftSource::Host(Box::new(NGram::default())), DraftLength::Fixed(4))
            }
            Self::Draft { length, .. } => Speculation::new(DraftSource::Model, length),
        }
    }

    /// Generates from an empty context; `shown` is called with each piece of text.
    fn generate(self, engine: &mut Engine, mut shown: impl FnMut(usize)) -> Result<Generated, GenerateError> {
        engine.reset();
        let temperature = if self.sampled() { 0.8 } else { 0.0 };
        let params = SamplerParams { temperature, seed: Some(5), ..SamplerParams::default() };
        let (mut sampler, mut speculation) = (Sampler::new(params).unwrap(), self.speculation());
        let tokenizer = TextModel::read(&Model::Q8_0.gguf()).unwrap().tokenizer;
        let limits = Limits { max_tokens: Some(TOKENS), ignore_eos: true, ..Limits::default() };
        let mut pieces = 0;
        let on_event = |event: Event<'_>| {
            if visible(&event).is_some() {
                pieces += 1;
                shown(pieces);
            }
            true
        };
        generate(engine, &tokenizer, (&mut sampler, &mut speculation), &PROMPT, &limits, on_event)
    }
}

fn quick() -> Settings {
    Settings { threads: 1, ..settings() }
}

/// An engine with a draft, on a device whose memory is in reach.
fn with_draft() -> (Engine, Reach) {
    let (device, reach) = Damaged::new(Box::new(inproc(quick())));
    (Draft::engine(Some(Draft::Q8_0), Model::Q8_0, device, None), reach)
}

fn place(outcome: Result<(), EngineError>) -> String {
    match outcome {
        Err(EngineError::NotFinite { place }) => place,
        other => panic!("{other:?}"),
    }
}

#[test]
fn damage_is_reported_with_its_layer() {
    for model in Model::ALL {
        damaged::damage_is_reported_with_its_layer(&model.gguf(), Box::new(inproc(quick())));
    }
}

#[test]
fn whoever_decodes_ends_with_the_same_error_and_without_text() {
    let (mut engine, reach) = with_draft();
    nan(&reach.weights(0), &entry(&Model::Q8_0.gguf(), "blk.5.ffn_down.weight"), 9);
    let errors: BTreeSet<String> = WAYS
        .iter()
        .map(|way| {
            let error = way.generate(&mut engine, |_| panic!("text from damaged weights")).unwrap_err();
            assert!(matches!(error, GenerateError::Engine(EngineError::NotFinite { .. })), "{way:?} {error}");
            error.to_string()
        })
        .collect();
    let error = errors.first().unwrap();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(error.contains("layer 5 of the model (MUL_MAT with blk.5.ffn_down.weight)"), "{error}");
    assert!(!error.contains('\n'));
}

#[test]
fn text_before_the_damage_is_kept_and_is_right() {
    let (mut engine, reach) = with_draft();
    let entry = entry(&Model::Q8_0.gguf(), "blk.1.ssm_out.weight");
    for way in WAYS {
        let whole = way.generate(&mut engine, |_| {}).unwrap();
        assert_eq!(whole.stats.restarts, 0, "{way:?}: what was said of the text before came now");
        let mut wound: Option<Wound> = None;
        let outcome = way.generate(&mut engine, |pieces| {
            if pieces == 6 {
                wound = Some(nan(&reach.weights(0), &entry, 100));
            }
        });
        wound.unwrap().heal();
        let GenerateError::Damaged { source, tokens, text } = outcome.unwrap_err() else {
            panic!("{way:?}");
        };
        assert!(source.to_string().contains("layer 1 of the model (MUL_MAT with blk.1.ssm_out.weight)"));
        assert!(tokens.len() >= 6 && tokens.len() < TOKENS, "{way:?}: {} tokens", tokens.len());
        assert!(whole.tokens.starts_with(&tokens) && whole.text.starts_with(&text), "{way:?}: {text:?}");
    }
    // Nothing of it is left: the next text is what it was.
    let way = WAYS[4];
    let [a, b] = [(); 2].map(|()| way.generate(&mut engine, |_| {}).unwrap().tokens);
    assert_eq!(a, b);
}

/// A draft that cannot compute says so, too, with the draft's own layer: it could only go on without saying
/// why it is slow.
#[test]
fn a_damaged_draft_is_named() {
    let target = Model::Q8_0.gguf();
    let config = model::read(&target).unwrap();
    let draft = Draft::Q8_0.gguf();
    let plan = model::read_draft(&draft, &config).unwrap().weights(&draft).unwrap();
    let entry = layout(&draft, &plan.specs).unwrap().0["draft.blk.0.ffn_down.weight"];
    let (mut engine, reach) = with_draft();
    nan(&reach.weights(1), &entry, 3);
    for way in WAYS {
        let outcome = way.generate(&mut engine, |_| {});
        if !matches!(way, Way::Draft { .. }) {
            outcome.unwrap();
            continue;
        }
        let error = outcome.unwrap_err().to_string();
        let found = "layer 0 of the draft (MUL_MAT with draft.blk.0.ffn_down.weight)";
        assert!(error.contains(found), "{way:?}: {error}");
    }
}

/// Where the two things that a layer keeps begin in the state.
fn kept(engine: &Engine, layer: usize) -> [u64; 2] {
    let names = match engine.config().layers[layer].mixer {
        Mixer::Attention(_) => ["cache_k", "cache_v"],
        Mixer::DeltaNet(_) => ["conv_ring", "state"],
        Mixer::ShortConv(_) => panic!("no model of the repository has such a layer"),
    };
    names.map(|name| engine.kept().place(&Scope::TARGET.layer(layer).label(name)).offset)
}

/// NaN and infinity in memory that steps write themselves. Attention to a damaged key must not look away from
/// it.
#[test]
fn damaged_states_and_caches_are_named() {
    for model in [Model::F16, Model::Q8_0] {
        let (device, reach) = Damaged::new(Box::new(inproc(quick())));
        let mut engine = model.engine(device, &EngineOptions::default());
        let f16 = |bits: u16| bits.to_le_bytes().to_vec();
        let f32 = |value: f32| value.to_le_bytes().to_vec();
        for (layer, part, bytes, found) in [
            (3, 0, f16(0x7e00), "layer 3 of the model (FLASH_ATTN_EXT after blk.3."),
            (7, 0, f16(0xfc00), "layer 7 of the model (FLASH_ATTN_EXT after blk.7."),
            (3, 1, f16(0x7c00), "layer 3 of the model (FLASH_ATTN_EXT after blk.3."),
            (7, 1, f16(0xfe00), "layer 7 of the model (FLASH_ATTN_EXT after blk.7."),
            (4, 0, f32(f32::NAN), "layer 4 of the model (SSM_CONV with blk.4."),
            (6, 1, f32(f32::NAN), "layer 6 of the model (GATED_DELTA_NET after blk.6."),
            (0, 1, f32(f32::INFINITY), "layer 0 of the model (GATED_DELTA_NET after blk.0."),
        ] {
            engine.reset();
            engine.prefill(&PROMPT[..3], |_| {}).unwrap();
            let at = kept(&engine, layer)[part];
            overwrite(&reach.state(), at as usize, &bytes);
            let place = place(engine.decode(7));
            assert!(place.starts_with(found), "{model:?} {layer} {part}: {place}");
        }
        engine.reset();
        engine.prefill(&PROMPT, |_| {}).unwrap();
    }
}

/// The first value of a row of every weight of a linear and of a full layer, and of those that are no
/// layer's.
#[test]
fn every_weight_that_is_damaged_is_named() {
    for model in Model::ALL {
        let gguf = model.gguf();
        let plan = model::read(&gguf).unwrap().weights(&gguf).unwrap();
        let entries = layout(&gguf, &plan.specs).unwrap().0;
        let (device, reach) = Damaged::new(Box::new(inproc(quick())));
        let mut engine = model.engine(device, &EngineOptions::default());
        let mut labels: Vec<&String> = entries.keys().collect();
        labels.retain(|label| {
            ["blk.0.", "blk.3."].iter().any(|l| label.starts_with(l)) || !label.starts_with("blk")
        });
        // Made up, and no layer's.
        labels.retain(|label| *label != "unit_norm");
        labels.sort();
        assert!(labels.len() > 15, "{labels:?}");
        for label in labels {
            // The embedding is the LM head, too: of another row every logit would be NaN.
            let row = if label.starts_with("token_embd") { PROMPT[1] as usize } else { 0 };
            let wound = nan(&reach.weights(0), &entries[label], row);
            engine.reset();
            let place = place(engine.prefill(&PROMPT[..2], |_| {}));
            assert!(place.ends_with(&format!("with {label})")), "{model:?} {label}: {place}");
            wound.heal();
        }
    }
}

/// A session cannot tell whether what another left to it was damaged there, or by itself when it wrote over
/// it.
#[test]
fn over_several_sessions_the_error_says_what_is_known() {
    let gguf = Model::Q8_0.gguf();
    let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
    let (device, reach) = Damaged::new(Box::new(SplitDevice::<Inproc>::open(&options, 2).unwrap()));
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let mut engine = Engine::load(&gguf, Box::new(device), &EngineOptions::default(), &image).unwrap();
    let last = |engine: &Engine| {
        let mut layers = 0..engine.config().layers.len();
        layers.rfind(|&layer| engine.kept().home(kept(engine, layer)[0]).0 == 0)
    };
    let layer = last(&engine).unwrap();
    let specs = model::read(&gguf).unwrap().weights(&gguf).unwrap().specs;
    let sound = WeightImage::load(&gguf, &specs, &image).unwrap();
    // Before the cut; at its very end; and behind it, where the stream has been written over what the first
    // session left.
    let (next, second) = (layer + 1, layer + 2);
    for (label, found) in [
        (format!("blk.{layer}.attn_norm.weight"), format!("layer {layer} of the model (RMS_NORM with")),
        (format!("blk.{layer}.ffn_down.weight"), format!("layer {next} of the model or before (MUL_MAT")),
        (format!("blk.{next}.attn_norm.weight"), format!("layer {next} of the model (RMS_NORM with")),
        (format!("blk.{next}.ffn_down.weight"), format!("layer {second} of the model or before (MUL_MAT")),
    ] {
        // Each session has mapped what it reads.
        let data = sound.data(sound.entry(&label).unwrap()).unwrap();
        let mut places = (0..reach.stretches()).filter_map(|n| Some((n, reach.find(n, &data)?)));
        let (n, at) = places.next().unwrap();
        let entry = WeightEntry { offset: at as u64, ..*sound.entry(&label).unwrap() };
        let wound = nan(&reach.weights(n), &entry, 0);
        engine.reset();
        let place = place(engine.prefill(&PROMPT[..2], |_| {}));
        assert!(place.starts_with(&found), "{label}: {place}");
        wound.heal();
    }
}

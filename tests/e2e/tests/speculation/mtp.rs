//! MTP heads: ids, drafts and accepted counts against llama.cpp and a reference without caches.

use std::fs::File;
use std::path::Path;

use hexflash::engine::{Engine, EngineOptions, SequenceId};
use hexflash::gguf::Gguf;
use hexflash::gguf::writer::GgufWriter;
use hexflash::speculation::Speculation;
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::reference::DraftRounds;
use hexflash_e2e::{Draft, Model, inproc, near_tie, reference, report};

use crate::common::{closed, fresh, greedy, limits, model_drafts, quick, text};
use crate::reference::Rounds;
use crate::rounds::Compared;
use crate::written::{self, Way, cut};

/// Every round's drafts and accepted count.
#[test]
fn rounds_are_llama_cpps_and_the_references() {
    for (file, model, draft) in [
        ("mtp-f16", Model::F16, Draft::MtpF16),
        ("mtp-q8_0", Model::Q8_0, Draft::MtpQ8_0),
        ("mtp-reference", Model::F16, Draft::MtpF16),
    ] {
        let mut engine = Draft::engine(Some(draft), model, inproc(quick()), None);
        let reference = reference::mtp(file);
        for length in 1..=3 {
            let mut found = Compared::default();
            for (number, case) in reference.cases.iter().enumerate() {
                let name = format!("{file}, case {number}, chains of {length}");
                found.follow(
                    &mut engine,
                    (&case.prompt_ids, &case.ids),
                    &case.mtp[&length],
                    near_tie::bound(model),
                    &name,
                );
            }
            report(format!("{file}, chains of {length}: {found:?}"));
            found.assert_few();
        }
    }
}

/// Tokens per round where rounds run on the device, as long as the texts are the same: see `reference.rs`.
#[test]
fn rounds_are_as_long_as_llama_cpps() {
    for (file, model, draft) in
        [("mtp-f16", Model::F16, Draft::MtpF16), ("mtp-q8_0", Model::Q8_0, Draft::MtpQ8_0)]
    {
        let mut engine = Draft::engine(Some(draft), model, inproc(quick()), None);
        let (text, reference) = (text(model), reference::mtp(file));
        for length in 1..=3 {
            let (mut ours, mut theirs) = (Rounds::default(), Rounds::default());
            let (mut compared, mut all) = (0, 0);
            for case in &reference.cases {
                let drafts = &mut model_drafts(length as u32);
                // Some more tokens, so that the last rounds are not cut.
                let limits = limits(case.ids.len() + 8);
                let got = fresh(&mut engine, &text, &greedy(), drafts, &case.prompt_ids, &limits);
                let same = got.tokens.iter().zip(&case.ids).take_while(|(a, b)| a == b).count();
                ours.add(&got.stats.speculation.unwrap().accepted_per_round, same);
                theirs.add(&case.mtp[&length].accepted_per_round, same);
                (compared, all) = (compared + same, all + case.ids.len());
            }
            let (mean, expected) = (ours.mean(), theirs.mean());
            report(format!(
                "{file}, chains of {length}: {mean:.3} tokens per round, llama.cpp {expected:.3}, on \
                 {compared} of {all} tokens"
            ));
            assert!((mean / expected - 1.0).abs() < 0.02, "{file}, chains of {length}");
            assert!(4 * compared >= 3 * all, "{file}: {compared} of {all} tokens are the same");
        }
    }
}

/// What the head knows of a text is the same to the bit, however the text came about: in prompts of any
/// length, in plain steps, in blocks of which some tokens were taken back, after drafts, and after cuts.
#[test]
fn drafts_do_not_depend_on_how_the_text_was_written() {
    let model = Model::Q8_0;
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let options = EngineOptions { batch: 16, snapshot_bytes: 8 << 20, ..EngineOptions::default() };
    let head = Draft::MtpQ8_0.gguf();
    let load = || Engine::load_with(&model.gguf(), Some(&head), Box::new(inproc(quick())), &options, &image);
    let [mut straight, mut engine] = [load().unwrap(), load().unwrap()];
    assert_eq!(engine.draft_room(), 7);
    let case = &reference::greedy(model).cases[9];
    let text: Vec<u32> = case.prompt_ids.iter().chain(&case.ids).copied().collect();
    let more: [Way; 2] = [
        |engine, _, _| {
            engine.sequence(SequenceId::FIRST).unwrap().save().unwrap();
        },
        |engine, _, random| {
            cut(engine, random);
        },
    ];
    written::check([&mut straight, &mut engine], &text, &more, "MTP");
}

/// Experts of each layer, and those that a token goes to.
const EXPERTS: [u32; 2] = [3, 2];

/// The F16 target with its head in one file, of architecture `qwen35moe`: every expert is the layer's MLP,
/// and the one that tokens share gives zeros. So the router decides, and whatever it decides changes nothing.
fn with_experts(path: &Path) -> Gguf {
    let [target, head] = [Model::F16.gguf(), Draft::MtpF16.gguf()];
    let mut file = GgufWriter::new();
    for (key, value) in head.meta().iter() {
        file.kv(&key.replace("qwen35.", "qwen35moe."), value.clone());
    }
    let [experts, used] = EXPERTS;
    file.kv("general.architecture", "qwen35moe");
    file.kv("qwen35moe.expert_count", experts).kv("qwen35moe.expert_used_count", used);
    for of in ["expert", "expert_shared"] {
        file.kv(&format!("qwen35moe.{of}_feed_forward_length"), MLP as u32);
    }
    let all = target.tensors().map(|tensor| (&target, tensor));
    let of_head = head.tensors().filter(|tensor| tensor.name.starts_with("blk.8."));
    for (from, tensor) in all.chain(of_head.map(|tensor| (&head, tensor))) {
        let (name, kind, ne) = (&tensor.name, tensor.ggml_type, tensor.shape());
        let data = from.data(tensor).unwrap();
        let Some((layer, which)) = name.split_once(".ffn_") else {
            file.tensor(name, kind, ne, data).unwrap();
            continue;
        };
        let which = which.trim_end_matches(".weight");
        let n = experts as usize;
        let whole = data.repeat(n);
        file.tensor(&format!("{layer}.ffn_{which}_exps.weight"), kind, &[ne[0], ne[1], n as u64], whole)
            .unwrap();
        let shared = if which == "down" { vec![0; data.len()] } else { data.clone() };
        file.tensor(&format!("{layer}.ffn_{which}_shexp.weight"), kind, ne, shared).unwrap();
        if which == "gate" {
            // Any rows will do for the router, and for the gate of the expert that tokens share.
            let row = 2 * ne[0] as usize;
            let router = data[..n * row].to_vec();
            file.tensor(&format!("{layer}.ffn_gate_inp.weight"), kind, &[ne[0], n as u64], router).unwrap();
            let gate = data[n * row..][..row].to_vec();
            file.tensor(&format!("{layer}.ffn_gate_inp_shexp.weight"), kind, &[ne[0]], gate).unwrap();
        }
    }
    file.write_to(File::create(path).unwrap()).unwrap();
    Gguf::open(path).unwrap()
}

/// Width inside of the shipped model's MLPs.
const MLP: u64 = 768;

/// A target with experts, as its trunk is the same function, and its drafts are those of the one without.
struct WithExperts {
    plain: Engine,
    engine: Engine,
    text: TextModel,
    found: Compared,
}

impl WithExperts {
    fn new(target: &Gguf, draft: &Gguf) -> Self {
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let load = |draft: Option<&Gguf>, speculate| {
            let options = EngineOptions { speculate, ..EngineOptions::default() };
            Engine::load_with(target, draft, Box::new(inproc(quick())), &options, &image).unwrap()
        };
        let (plain, engine) = (load(None, false), load(Some(draft), true));
        Self { plain, engine, text: text(Model::F16), found: Compared::default() }
    }

    /// Drafts and accepted counts are the reference's; text and states are those of plain decoding.
    fn follow(&mut self, prompt: &[u32], ids: &[u32], rounds: &DraftRounds, drafts: u32, name: &str) {
        let Self { plain, engine, text, found } = self;
        found.follow(engine, (prompt, ids), rounds, near_tie::bound(Model::F16), name);
        let off = &mut Speculation::off();
        let expected = fresh(plain, text, &greedy(), off, prompt, &limits(60));
        let state = closed(plain, 5);
        let got = fresh(engine, text, &greedy(), &mut model_drafts(drafts), prompt, &limits(60));
        assert_eq!(got.tokens, expected.tokens, "{name}");
        state.assert_same(&closed(engine, 5), name);
    }

    fn finish(self, what: &str) {
        report(format!("{what}: {:?}", self.found));
        self.found.assert_few();
    }
}

/// A head with a mixture of experts drafts as the one with an MLP that is the same function, from the file of
/// its own model.
#[test]
fn heads_with_experts() {
    let dir = tempfile::tempdir().unwrap();
    let joint = with_experts(&dir.path().join("experts.gguf"));
    let mut pair = WithExperts::new(&joint, &joint);
    for (number, case) in reference::mtp("mtp-f16").cases.iter().take(4).enumerate() {
        pair.follow(
            &case.prompt_ids,
            &case.ids,
            &case.mtp[&3],
            3,
            &format!("head with experts, case {number}"),
        );
    }
    pair.finish("head with experts");
}

/// So does a DFlash draft of the target without experts.
#[test]
fn a_dflash_draft_of_a_target_with_experts() {
    let dir = tempfile::tempdir().unwrap();
    let joint = with_experts(&dir.path().join("experts.gguf"));
    let mut pair = WithExperts::new(&joint, &Draft::F16.gguf());
    for (number, case) in reference::dflash("dflash-reference").cases.iter().take(4).enumerate() {
        let rounds =
            DraftRounds { accepted_per_round: case.accepted_per_step.clone(), drafts: case.drafts.clone() };
        pair.follow(&case.prompt_ids, &case.ids, &rounds, 7, &format!("DFlash with experts, case {number}"));
    }
    pair.finish("DFlash with experts");
}

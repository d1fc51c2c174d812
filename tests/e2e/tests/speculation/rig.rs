//! A target with a draft model: texts and states equal plain decoding's.

use std::collections::HashMap;

use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Event, Finish, Generation, Limits, Request, step_together};
use hexflash::gguf::Gguf;
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::{DraftLength, DraftSource, Drafter, NGram, NGramPool, Speculation};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_e2e::inproc;
use hexflash_e2e::state::Snapshot;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

use crate::common::{closed, fresh, greedy, limits, model_drafts, quick};

/// Any token will do to close a run with.
pub const CLOSE: u32 = 11;

/// Tokens in no order.
pub fn tokens(seed: u32, n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (100 + seed * 631 + i * i * 37 + i * 11) % 3900).collect()
}

/// Prompts: of one token, shorter than a block, longer than a tile, longer than a KV ring.
pub fn prompts() -> [Vec<u32>; 4] {
    [(1, 1), (2, 6), (3, 45), (4, 180)].map(|(seed, n)| tokens(seed, n))
}

/// Every width, `auto`, and n-grams beside the draft model.
pub fn speculations() -> Vec<(String, Speculation)> {
    let fixed = (1..=7).map(|n| (format!("{n} drafts"), model_drafts(n)));
    let auto = ("auto".to_owned(), Speculation::new(DraftSource::Model, DraftLength::Auto));
    let hosts: Vec<Box<dyn Drafter>> = vec![Box::new(NGram::default()), Box::new(NGramPool::new().drafter())];
    let several = DraftSource::Several { model: true, hosts };
    let several = ("several".to_owned(), Speculation::new(several, DraftLength::Fixed(5)));
    fixed.chain([auto, several]).collect()
}

/// The ways that a text takes its turn with: of three texts in a row each takes others.
pub fn in_turn(text: usize) -> impl Iterator<Item = (String, Speculation)> {
    let all = speculations().into_iter().enumerate();
    all.filter(move |(way, _)| way % 3 == text % 3).map(|(_, way)| way)
}

/// A target and its draft, and plain decoding of the target.
pub struct Rig {
    _dir: tempfile::TempDir,
    pub files: [Gguf; 2],
    pub text: TextModel,
    pub plain: Engine,
}

impl Rig {
    /// Of a target and its draft in a folder.
    pub fn new(dir: tempfile::TempDir, files: [Gguf; 2], options: &EngineOptions) -> Self {
        let text = TextModel::read(&files[0]).unwrap();
        let plain = load([&files[0], &files[1]], false, options);
        Self { _dir: dir, files, text, plain }
    }

    /// An engine with the draft.
    pub fn engine(&self, options: &EngineOptions) -> Engine {
        load([&self.files[0], &self.files[1]], true, options)
    }

    /// That the text and the state after a prompt do not depend on how they were drafted; the drafts that
    /// were kept.
    pub fn compare(
        &mut self,
        engine: &mut Engine,
        params: &SamplerParams,
        prompt: &[u32],
        limits: &Limits,
        ways: impl IntoIterator<Item = (String, Speculation)>,
        what: &str,
    ) -> usize {
        let Self { plain, text, .. } = self;
        let off = &mut Speculation::off();
        let expected = fresh(plain, text, params, off, prompt, limits);
        let full = expected.finish_reason == Finish::Context;
        let state = (!full).then(|| closed(plain, CLOSE));
        let mut accepted = 0;
        for (name, mut speculation) in ways {
            let what = format!("{what}, {} tokens, {name}", prompt.len());
            let found = fresh(engine, text, params, &mut speculation, prompt, limits);
            assert_eq!(found.tokens, expected.tokens, "{what}");
            assert_eq!(found.finish_reason, expected.finish_reason, "{what}");
            match &state {
                Some(state) => state.assert_same(&closed(engine, CLOSE), &what),
                None => assert_eq!(engine.n_past(), engine.n_ctx(), "{what}"),
            }
            accepted += found.stats.speculation.unwrap().accepted;
        }
        accepted
    }

    /// That texts in one engine, which share steps, take turns, and draft, are those that they are alone; in
    /// so many orders of turns.
    pub fn compare_neighbours(&mut self, options: &EngineOptions, orders: u64, what: &str) {
        const TEXTS: usize = 5;
        let params = |n: usize| match n {
            1 | 3 => SamplerParams { temperature: 0.5, top_k: 3, seed: Some(n as u64), ..Default::default() },
            _ => greedy(),
        };
        let prompt = |n: usize| tokens(n as u32, [1, 20, 70, 7, 33][n]);
        let drafts = |n: usize| if n == 4 { Speculation::off() } else { model_drafts(2 + n as u32) };
        let expected: Vec<_> = (0..TEXTS)
            .map(|n| {
                let off = &mut Speculation::off();
                let limits = limits(30 + n);
                let found = fresh(&mut self.plain, &self.text, &params(n), off, &prompt(n), &limits);
                (found.tokens, closed(&mut self.plain, CLOSE))
            })
            .collect();
        let mut engine = self.engine(&EngineOptions { sequences: TEXTS as u32, ..options.clone() });
        let ids: Vec<_> = engine.sequences().collect();
        for seed in 0..orders {
            let mut random = Pcg32::seed_from_u64(seed);
            ids.iter().for_each(|&id| engine.sequence(id).unwrap().reset());
            let mut running: HashMap<usize, Generation> = HashMap::new();
            let mut waiting: Vec<usize> = (0..TEXTS).collect();
            let mut found = vec![Vec::new(); TEXTS];
            while !waiting.is_empty() || !running.is_empty() {
                if !waiting.is_empty() && (running.is_empty() || random.random_bool(0.3)) {
                    let n = waiting.swap_remove(random.random_range(0..waiting.len()));
                    let request = Request::new(prompt(n), Sampler::new(params(n)).unwrap())
                        .limits(limits(30 + n))
                        .speculation(drafts(n))
                        .sequence(ids[n]);
                    running.insert(n, Generation::new(self.text.tokenizer.clone(), request));
                }
                let mut chosen: Vec<_> = running.iter_mut().collect();
                chosen.sort_by_key(|(n, _)| **n);
                while chosen.len() > 1 && random.random_bool(0.4) {
                    chosen.swap_remove(random.random_range(0..chosen.len()));
                }
                let (numbers, mut together): (Vec<usize>, Vec<&mut Generation>) =
                    chosen.into_iter().map(|(&n, generation)| (n, generation)).unzip();
                let mut done = Vec::new();
                step_together(&mut engine, &mut together, |i, event| {
                    if let Event::Done(_) = event.unwrap() {
                        done.push(numbers[i]);
                    }
                });
                for n in done {
                    found[n] = running.remove(&n).unwrap().into_ended().generated.tokens;
                }
            }
            for (n, (tokens, state)) in expected.iter().enumerate() {
                let what = format!("{what}, seed {seed}, text {n}");
                assert_eq!(&found[n], tokens, "{what}");
                engine.sequence(ids[n]).unwrap().decode(CLOSE).unwrap();
                Snapshot::of_sequence(&mut engine, ids[n]).assert_same(state, &what);
            }
        }
    }
}

/// An engine of these files, with the draft if that is wanted.
fn load([target, draft]: [&Gguf; 2], drafts: bool, options: &EngineOptions) -> Engine {
    let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
    let options = EngineOptions { speculate: true, ..options.clone() };
    let draft = drafts.then_some(draft);
    Engine::load_with(target, draft, Box::new(inproc(quick())), &options, &image).unwrap()
}

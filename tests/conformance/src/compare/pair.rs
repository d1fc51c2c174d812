//! One model file, loaded by both.

use std::path::Path;

use hexflash::device::{DeviceOptions, open};
use hexflash::engine::{Engine, EngineOptions, RoundLimits};
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::model::{CacheType, CacheTypes, MAX_VERIFY};
use hexflash::text::TextModel;
use hexflash::weights::{CachePolicy, ImageOptions};
use hexflash_oracle::llama::{
    Assistant, Choice, Context, ContextOptions, DFlash, Drafts, Eagle3, FlashAttn, KvType, Model, Mtp,
};
use hexflash_oracle::nmse;

use super::chains::Chains;
use super::measure::{Chunk, Parting, Rounding};
use super::verdict::Limits;
use super::{assistant, eagle3, exact};

/// Positions of a chunk when none are asked for.
const CHUNK: u32 = 512;
/// Bytes of logits that llama.cpp hands over at once, about.
const LOGITS: usize = 64 << 20;
/// Tokens of the prompt before greedy ones.
const PROMPT: usize = 32;

/// A model in llama.cpp and in hexflash.
pub struct Pair {
    gguf: Gguf,
    /// The file that llama.cpp has: the same, but for tests.
    reference: Gguf,
    llama: Model,
    engine: Engine,
    n_ctx: u32,
    /// That of hexflash's caches.
    cache: CacheType,
}

/// Greedy tokens of both.
#[derive(Clone, Debug)]
pub struct Greedy {
    /// Tokens that are the same from the start.
    pub same: usize,
    /// Tokens generated.
    pub of: usize,
    /// Where they part.
    pub parting: Option<Parting>,
}

/// Greedy tokens of both with a draft, against those without one.
#[derive(Clone, Debug)]
pub struct Speculation {
    /// Tokens generated.
    pub of: usize,
    /// Runs of the target after the prompt.
    pub rounds: usize,
    /// Drafts that the target confirmed.
    pub accepted: usize,
    /// Drafts made.
    pub drafted: usize,
    /// Tokens that are those of llama.cpp without the draft, from the start.
    pub same_as_plain: usize,
    /// Tokens that are those of hexflash with the draft, from the start.
    pub same_as_hexflash: usize,
    /// hexflash's rounds, and the drafts that its target confirmed.
    pub hexflash: (usize, usize),
    /// Whether hexflash gives the same tokens with and without the draft, which it must.
    pub lossless: bool,
}

impl Pair {
    /// Loads `path` twice.
    pub fn load(path: &Path, device: &str, n_ctx: Option<u32>, cache: CacheType) -> Result<Self, String> {
        Self::load_each(path, path, device, n_ctx, cache)
    }

    /// Loads a file in hexflash, with caches of this type, and one in llama.cpp.
    pub fn load_each(
        path: &Path,
        reference: &Path,
        device: &str,
        n_ctx: Option<u32>,
        cache: CacheType,
    ) -> Result<Self, String> {
        let gguf = Gguf::open(path).map_err(|e| e.to_string())?;
        let config = hexflash::model::read(&gguf).map_err(|e| e.to_string())?;
        let n_ctx = n_ctx.unwrap_or(config.n_ctx_train.min(CHUNK));
        if n_ctx < 4 {
            return Err(format!("a context of {n_ctx} has nothing to compare; use at least 4"));
        }
        let device = open(device, &DeviceOptions::default()).map_err(|e| e.to_string())?;
        let caches = CacheTypes::both(cache);
        let options = EngineOptions { n_ctx: Some(n_ctx), caches, ..EngineOptions::default() };
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        let engine = Engine::load(&gguf, device, &options, &image).map_err(|e| e.to_string())?;
        let llama = Model::load(reference).map_err(|e| e.to_string())?;
        let reference = Gguf::open(reference).map_err(|e| e.to_string())?;
        if llama.n_vocab() != config.n_vocab as usize {
            return Err(format!(
                "llama.cpp has a vocabulary of {}, hexflash one of {}",
                llama.n_vocab(),
                config.n_vocab
            ));
        }
        Ok(Self { gguf, reference, llama, engine, n_ctx, cache })
    }

    /// The file that hexflash has.
    pub fn gguf(&self) -> &Gguf {
        &self.gguf
    }

    /// The types of the matrices, that with most weights first.
    pub fn weights(&self) -> String {
        let mut sizes: Vec<(GgmlType, u64)> = Vec::new();
        for tensor in self.gguf.tensors().filter(|tensor| tensor.shape().len() > 1) {
            let weights = tensor.shape().iter().product::<u64>();
            match sizes.iter_mut().find(|(ty, _)| *ty == tensor.ggml_type) {
                Some((_, sum)) => *sum += weights,
                None => sizes.push((tensor.ggml_type, weights)),
            }
        }
        sizes.sort_by_key(|(_, weights)| std::cmp::Reverse(*weights));
        // Small matrices, such as the taps of convolutions, are F32 in all files.
        let main = sizes.iter().enumerate().filter(|(i, (ty, _))| *i == 0 || *ty != GgmlType::F32);
        main.map(|(_, (ty, _))| ty.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Positions of a chunk.
    pub fn n_ctx(&self) -> u32 {
        self.n_ctx
    }

    /// How far apart the two may be.
    pub fn limits(&self) -> Limits {
        if self.cache == CacheType::F16 { Limits::of(self.coarse()) } else { Limits::OTHER_CACHES }
    }

    /// Whether some weights make llama.cpp round activations to 8 bits: quantized ones, and BF16.
    pub fn coarse(&self) -> bool {
        self.gguf.tensors().any(|t| t.ggml_type.block_len() > 1 || t.ggml_type == GgmlType::BF16)
    }

    /// Ids of a text, on which both must agree.
    pub fn tokenize(&self, text: &str) -> Result<Vec<i32>, String> {
        // First, as it refuses files without a tokenizer: llama.cpp would end the process.
        let model = TextModel::read(&self.gguf).map_err(|e| e.to_string())?;
        let ours = model.tokenizer.encode_prompt(text).map_err(|e| e.to_string())?;
        let theirs = self.llama.tokenize(text, true).map_err(|e| e.to_string())?;
        let differ = theirs.iter().zip(&ours).position(|(&a, &b)| a as u32 != b);
        match differ.or((theirs.len() != ours.len()).then_some(theirs.len().min(ours.len()))) {
            None => Ok(theirs),
            Some(at) => Err(format!(
                "the tokenizers part at token {at}: llama.cpp {:?}, hexflash {:?}",
                theirs.get(at),
                ours.get(at)
            )),
        }
    }

    /// Logits after every token, chunk by chunk; the second half of each chunk is scored. Then the chunk as a
    /// prompt.
    pub fn text(
        &mut self,
        tokens: &[i32],
        noise: bool,
        mut each: impl FnMut(&Chunk),
    ) -> Result<Chunk, String> {
        let n = self.n_ctx as usize;
        let Self { llama, engine, .. } = &mut *self;
        let (mut context, rows) = context(llama, n)?;
        let mut all = Chunk::default();
        for (number, chunk) in chunks(tokens, n)?.enumerate() {
            let mut found = Chunk::default();
            let (mut last, mut kept) = (Vec::new(), Vec::new());
            walk([&mut context], engine, chunk, rows, |at, [theirs], ours| {
                found.add(number * n + at, theirs, ours, scored(chunk, at));
                if at + 1 == n {
                    last = ours.to_vec();
                }
                if noise {
                    kept.extend_from_slice(theirs);
                }
            })?;
            engine.reset();
            let ids: Vec<u32> = chunk.iter().map(|&t| t as u32).collect();
            engine.prefill(&ids, |_| {}).map_err(|e| e.to_string())?;
            found.prefill = nmse(&last, engine.logits(0));
            if noise {
                context.clear();
                let mut single = Vec::with_capacity(kept.len());
                for token in chunk {
                    single.extend(context.decode_last(&[*token]).map_err(|e| e.to_string())?);
                }
                found.noise = Some(nmse(&kept, &single));
            }
            each(&found);
            all.join(&found);
        }
        Ok(all)
    }

    /// How far both are from llama.cpp with the same weights in F32, where it rounds neither activations nor
    /// keys and values. Takes the room of that model, on disk and in memory.
    pub fn rounding(&mut self, tokens: &[i32]) -> Result<Rounding, String> {
        let n = self.n_ctx as usize;
        let dir = tempfile::tempdir().map_err(|e| format!("cannot make a temporary directory: {e}"))?;
        let path = dir.path().join("f32.gguf");
        exact::write(&self.reference, &path)?;
        let exact = Model::load(&path).map_err(|e| e.to_string())?;
        let Self { llama, engine, .. } = &mut *self;
        let (mut theirs, rows) = context(llama, n)?;
        let options = ContextOptions {
            n_ctx: n as u32,
            n_batch: rows as u32,
            kv: KvType::F32,
            flash_attn: FlashAttn::Off,
            ..ContextOptions::default()
        };
        let mut exact = Context::new(&exact, options).map_err(|e| e.to_string())?;
        let mut found = Rounding::default();
        for chunk in chunks(tokens, n)? {
            walk([&mut exact, &mut theirs], engine, chunk, rows, |at, [exact, theirs], ours| {
                found.add(exact, theirs, ours, scored(chunk, at));
            })?;
        }
        Ok(found)
    }

    /// Greedy tokens after the start of the text, by prefill and decode.
    pub fn greedy(&mut self, tokens: &[i32], n: usize) -> Result<Greedy, String> {
        let (prompt, n) = self.prompt(tokens, n);
        self.greedy_after(prompt, n)
    }

    /// Greedy tokens after a prompt.
    pub fn greedy_after(&mut self, prompt: &[i32], n: usize) -> Result<Greedy, String> {
        let theirs = context(&self.llama, self.n_ctx as usize)?.0.greedy(prompt, n, false);
        let (theirs, ours) = (theirs.map_err(|e| e.to_string())?, self.decoded(prompt, n)?);
        let same = theirs.iter().zip(&ours).take_while(|(a, b)| a.id == b.id).count();
        let parting = (same < n).then(|| Parting { at: same, llama: theirs[same], hexflash: ours[same] });
        Ok(Greedy { same, of: n, parting })
    }

    /// The same tokens with a DFlash draft.
    pub fn speculate(&mut self, draft: &Path, tokens: &[i32], n: usize) -> Result<Speculation, String> {
        let (prompt, n) = self.prompt(tokens, n);
        let path = draft;
        let draft = Model::load(path).map_err(|e| e.to_string())?;
        let options = ContextOptions { n_ctx: self.n_ctx, ..ContextOptions::default() };
        let plain = Context::new(&self.llama, options).and_then(|mut c| c.greedy(prompt, n, false));
        // As many drafts per round as the draft was trained for.
        let drafted =
            DFlash::new(&self.llama, &draft, options, usize::MAX).and_then(|mut d| d.generate(prompt, n));
        let (plain, drafted) = (plain.map_err(|e| e.to_string())?, drafted.map_err(|e| e.to_string())?);
        let plain_ours: Vec<i32> = self.decoded(prompt, n)?.iter().map(|choice| choice.id).collect();
        let mut engine = self.with_draft(&Gguf::open(path).map_err(|e| e.to_string())?)?;
        let (ours, hexflash) = rounds(&mut engine, prompt, n)?;
        let plain: Vec<i32> = plain.iter().map(|choice| choice.id).collect();
        let same = |ids: &[i32]| drafted.ids.iter().zip(ids).take_while(|(a, b)| a == b).count();
        Ok(Speculation {
            of: n,
            rounds: drafted.accepted.len(),
            accepted: drafted.accepted.iter().sum(),
            drafted: drafted.drafted,
            same_as_plain: same(&plain),
            same_as_hexflash: same(&ours),
            hexflash,
            lossless: ours == plain_ours,
        })
    }

    /// The start of the text, and how many tokens fit after it.
    fn prompt<'t>(&self, tokens: &'t [i32], n: usize) -> (&'t [i32], usize) {
        let prompt = &tokens[..PROMPT.min(tokens.len()).min(self.n_ctx as usize / 2)];
        (prompt, n.min(self.n_ctx as usize - prompt.len()))
    }

    /// Chains of drafts from the MTP head in the file, if there is one, and tokens with them.
    pub fn chains(&mut self, tokens: &[i32], n: usize) -> Result<Option<Chains>, String> {
        if !hexflash::model::has_mtp_head(&self.gguf) {
            return Ok(None);
        }
        let plain = self.plain(tokens, n)?;
        let options = self.chain_options()?;
        let mut llama = Mtp::new(&self.llama, options).map_err(|e| e.to_string())?;
        let mut engine = self.with_draft(&self.gguf)?;
        self.compared("MTP head", &mut llama, &mut engine, tokens, &plain).map(Some)
    }

    /// Chains of drafts from a model in a file of its own whose drafts are made one after the other, and
    /// tokens with them; `None` if it makes them otherwise.
    pub fn chains_of(&mut self, draft: &Path, tokens: &[i32], n: usize) -> Result<Option<Chains>, String> {
        let gguf = Gguf::open(draft).map_err(|e| e.to_string())?;
        let arch = gguf.meta().require_str("general.architecture").map_err(|e| e.to_string())?;
        if ![assistant::ARCH, eagle3::ARCH].contains(&arch) {
            return Ok(None);
        }
        let plain = self.plain(tokens, n)?;
        // For one token llama.cpp's FLASH_ATTN_EXT sums values in F16, which in seven passes through several
        // layers comes to more than the limit.
        let options = ContextOptions { flash_attn: FlashAttn::Off, ..self.chain_options()? };
        let theirs = Model::load(draft).map_err(|e| e.to_string())?;
        let mut engine = self.with_draft(&gguf)?;
        let chains = if arch == eagle3::ARCH {
            let mut llama = Eagle3::new(&self.llama, &theirs, options).map_err(|e| e.to_string())?;
            self.compared("EAGLE3", &mut llama, &mut engine, tokens, &plain)
        } else {
            let mut llama = Assistant::new(&self.llama, &theirs, options).map_err(|e| e.to_string())?;
            self.compared("assistant", &mut llama, &mut engine, tokens, &plain)
        };
        chains.map(Some)
    }

    /// hexflash's tokens after the start of the text, without drafts.
    fn plain(&mut self, tokens: &[i32], n: usize) -> Result<Vec<i32>, String> {
        let (prompt, n) = self.prompt(tokens, n);
        Ok(self.decoded(prompt, n)?.iter().map(|choice| choice.id).collect())
    }

    /// A context of llama.cpp for chains of drafts.
    fn chain_options(&self) -> Result<ContextOptions, String> {
        let (_, rows) = context(&self.llama, self.n_ctx as usize)?;
        Ok(ContextOptions { n_ctx: self.n_ctx, n_batch: rows as u32, ..ContextOptions::default() })
    }

    /// Chains of drafts of both, and whether hexflash's tokens with them are those without.
    fn compared(
        &self,
        by: &'static str,
        llama: &mut impl Drafts,
        engine: &mut Engine,
        tokens: &[i32],
        plain: &[i32],
    ) -> Result<Chains, String> {
        let mut found = Chains::compare(by, llama, engine, tokens)?;
        engine.reset();
        let (prompt, _) = self.prompt(tokens, plain.len());
        found.lossless = rounds(engine, prompt, plain.len())?.0 == plain;
        Ok(found)
    }

    /// Another engine, which has a draft model too.
    fn with_draft(&self, draft: &Gguf) -> Result<Engine, String> {
        let name = &self.engine.device().info().name;
        let device = open(name, &DeviceOptions::default()).map_err(|e| e.to_string())?;
        let caches = CacheTypes::both(self.cache);
        let options = EngineOptions { n_ctx: Some(self.n_ctx), caches, ..EngineOptions::default() };
        let image = ImageOptions { cache: CachePolicy::Off, ..ImageOptions::default() };
        Engine::load_with(&self.gguf, Some(draft), device, &options, &image).map_err(|e| e.to_string())
    }

    /// hexflash's greedy tokens, one by one.
    fn decoded(&mut self, prompt: &[i32], n: usize) -> Result<Vec<Choice>, String> {
        let engine = &mut self.engine;
        engine.reset();
        let ids: Vec<u32> = prompt.iter().map(|&t| t as u32).collect();
        engine.prefill(&ids, |_| {}).map_err(|e| e.to_string())?;
        let mut out = Vec::with_capacity(n);
        while out.len() < n {
            let choice = Choice::of(engine.logits(0));
            if engine.argmax(0) != choice.id as u32 {
                return Err(format!("ARGMAX gives {}, the logits {}", engine.argmax(0), choice.id));
            }
            out.push(choice);
            if out.len() < n {
                engine.decode(choice.id as u32).map_err(|e| e.to_string())?;
            }
        }
        Ok(out)
    }
}

/// hexflash's greedy tokens by speculative rounds; rounds and accepted drafts.
fn rounds(engine: &mut Engine, prompt: &[i32], n: usize) -> Result<(Vec<i32>, (usize, usize)), String> {
    let ids: Vec<u32> = prompt.iter().map(|&t| t as u32).collect();
    engine.prefill(&ids, |_| {}).map_err(|e| e.to_string())?;
    let mut out = vec![engine.argmax(0)];
    let (mut rounds, mut accepted) = (0, 0);
    let limits = RoundLimits { draft_max: MAX_VERIFY, tokens: n.max(2) as u32 - 1, stops: &[] };
    if n > 1
        && let Some(mut under_way) = engine.rounds(out[0], &limits).map_err(|e| e.to_string())?
    {
        while under_way.submit().map_err(|e| e.to_string())? {
            let Some(report) = under_way.next().map_err(|e| e.to_string())? else { break };
            (rounds, accepted) = (rounds + 1, accepted + report.tokens.len() - 1);
            out.extend(&*report.tokens);
        }
    }
    // The end of the context has no room for a block.
    while out.len() < n {
        engine.decode(out[out.len() - 1]).map_err(|e| e.to_string())?;
        out.push(engine.argmax(0));
    }
    out.truncate(n);
    Ok((out.into_iter().map(|id| id as i32).collect(), (rounds, accepted)))
}

/// Whole chunks of `n` tokens.
fn chunks(tokens: &[i32], n: usize) -> Result<impl Iterator<Item = &[i32]>, String> {
    if tokens.len() < n {
        return Err(format!(
            "{} tokens are less than a chunk of {n}; give a longer text or -c",
            tokens.len()
        ));
    }
    Ok(tokens.chunks_exact(n))
}

/// The token that follows position `at`, if it is scored: in the second half of a chunk.
fn scored(chunk: &[i32], at: usize) -> Option<i32> {
    chunk.get(at + 1).copied().filter(|_| at >= chunk.len() / 2)
}

/// Runs a chunk from an empty context, `rows` tokens at once, and calls `each` with the logits after every
/// position: those of the contexts, and hexflash's.
fn walk<const N: usize>(
    mut contexts: [&mut Context<'_>; N],
    engine: &mut Engine,
    chunk: &[i32],
    rows: usize,
    mut each: impl FnMut(usize, [&[f32]; N], &[f32]),
) -> Result<(), String> {
    contexts.iter_mut().for_each(|context| context.clear());
    engine.reset();
    let mut at = 0;
    for part in chunk.chunks(rows) {
        let mut theirs = Vec::with_capacity(N);
        for context in &mut contexts {
            theirs.push(context.decode(part).map_err(|e| e.to_string())?);
        }
        let mut row = 0;
        for step in part.chunks(MAX_VERIFY as usize) {
            let ids: Vec<u32> = step.iter().map(|&t| t as u32).collect();
            engine.decode_many(&ids).map_err(|e| e.to_string())?;
            for i in 0..ids.len() {
                each(at, std::array::from_fn(|context| theirs[context].row(row)), engine.logits(i));
                (at, row) = (at + 1, row + 1);
            }
        }
    }
    Ok(())
}

/// A context of llama.cpp, and the rows of logits that it hands over at once.
fn context(llama: &Model, n_ctx: usize) -> Result<(Context<'_>, usize), String> {
    let rows = (LOGITS / 4 / llama.n_vocab()).next_power_of_two().clamp(MAX_VERIFY as usize, 512);
    let (n_ctx, n_batch) = (n_ctx as u32, rows as u32);
    let options = ContextOptions { n_ctx, n_batch, ..ContextOptions::default() };
    Ok((Context::new(llama, options).map_err(|e| e.to_string())?, rows))
}

//! llama.cpp on the CPU: logits, greedy ids, perplexity, speed, DFlash speculation, MTP heads, EAGLE3,
//! Gemma 4 assistants, pictures, quantization.
//!
//! llama.cpp's log is off unless [`set_verbose`] turns it on.

mod assistant;
mod dflash;
mod eagle3;
mod ffi;
mod measure;
mod mtp;
mod pictures;
mod quantize;

use std::path::{Path, PathBuf};

pub use assistant::Assistant;
pub use dflash::{DFlash, Speculated};
pub use eagle3::Eagle3;
use ffi::{Outputs, RawContext, RawModel, Rows};
pub use measure::{Perplexity, Speed, speed};
pub use mtp::Mtp;
pub use pictures::{Chunk, Pictures};
pub use quantize::{FileType, quantize};

/// Why llama.cpp could not do something. Its log ([`set_verbose`]) has the details.
#[derive(Debug, thiserror::Error)]
pub enum LlamaError {
    /// Not a model that this llama.cpp loads.
    #[error("cannot load {0}")]
    Load(PathBuf),
    /// No context with these options.
    #[error("cannot make a context: {0:?}")]
    Context(ContextOptions),
    /// `llama_decode` returned an error.
    #[error("llama_decode returned {code} at position {pos}")]
    Decode {
        /// Its return value.
        code: i32,
        /// First position of the batch.
        pos: usize,
    },
    /// The context is too short.
    #[error("{needed} positions in a context of {n_ctx}")]
    Full {
        /// Positions that would be occupied.
        needed: usize,
        /// Positions there are.
        n_ctx: usize,
    },
    /// Text that cannot be tokenized, or a token list too short for the measurement.
    #[error("{0}")]
    Input(String),
    /// A recurrent memory cannot go back so far.
    #[error("cannot roll back to position {0}")]
    Rollback(usize),
}

type Result<T> = std::result::Result<T, LlamaError>;

/// Whether llama.cpp's log goes to standard error. Off at the start.
pub fn set_verbose(on: bool) {
    ffi::set_verbose(on);
}

/// The instruction sets and options that llama.cpp was built with.
pub fn system_info() -> String {
    ffi::system_info()
}

/// Element type of the KV cache; the numbers are ggml's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum KvType {
    /// Single.
    F32 = 0,
    /// Half: llama.cpp's default.
    F16 = 1,
    /// 8 bit; needs flash attention.
    Q8_0 = 8,
}

/// Whether attention runs as FLASH_ATTN_EXT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum FlashAttn {
    /// As llama.cpp decides: its default.
    Auto = -1,
    /// MUL_MAT, SOFT_MAX, MUL_MAT.
    Off = 0,
    /// FLASH_ATTN_EXT.
    On = 1,
}

/// Options of a [`Context`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContextOptions {
    /// Positions.
    pub n_ctx: u32,
    /// Rows of one `llama_decode`; longer lists are decoded in chunks of this size.
    pub n_batch: u32,
    /// Threads.
    pub threads: usize,
    /// KV cache.
    pub kv: KvType,
    /// Attention.
    pub flash_attn: FlashAttn,
    /// Tokens that recurrent layers can be rolled back (llama.cpp's `n_rs_seq`).
    pub rollback: u32,
}

impl Default for ContextOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let (kv, flash_attn) = (KvType::F16, FlashAttn::Auto);
        Self { n_ctx: 512, n_batch: 512, threads, kv, flash_attn, rollback: 0 }
    }
}

/// A model in memory.
pub struct Model(RawModel);

impl Model {
    /// Loads a GGUF as llama.cpp does by default (weights repacked for the CPU where it knows how).
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_with(path, true)
    }

    /// Loads a GGUF; without `repack` weights stay in the file's layout.
    pub fn load_with(path: impl AsRef<Path>, repack: bool) -> Result<Self> {
        let path = path.as_ref();
        RawModel::load(path, repack).map(Self).ok_or_else(|| LlamaError::Load(path.to_owned()))
    }

    /// Entries of the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    /// Width of the residual stream.
    pub fn n_embd(&self) -> usize {
        self.0.n_embd()
    }

    /// Token ids of a text. `special` adds BOS and the like, and reads special tokens in the text.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<i32>> {
        self.tokenize_with(text, special, special)
    }

    /// Token ids of a text: `add` adds BOS and the like, `parse` reads special tokens in the text.
    pub fn tokenize_with(&self, text: &str, add: bool, parse: bool) -> Result<Vec<i32>> {
        let bad = || LlamaError::Input(format!("cannot tokenize {} bytes", text.len()));
        self.0.tokenize(text, add, parse).ok_or_else(bad)
    }

    /// Text of token ids; bytes that are not UTF-8 become replacement characters.
    pub fn detokenize(&self, tokens: &[i32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&t| self.piece(t)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes of a token, up to 256, which need not be whole characters; special tokens are shown.
    pub fn piece(&self, token: i32) -> Vec<u8> {
        self.0.piece(token)
    }

    /// Whether a token ends generation.
    pub fn is_eog(&self, token: i32) -> bool {
        self.0.is_eog(token)
    }

    /// A metadata value as llama.cpp prints it.
    pub fn meta(&self, key: &str) -> Option<String> {
        self.0.meta(key)
    }
}

/// Logits of consecutive positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Logits {
    /// Floats in a row.
    pub n_vocab: usize,
    /// Rows, one after the other.
    pub values: Vec<f32>,
}

impl Logits {
    /// Logits after position `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.n_vocab..][..self.n_vocab]
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.n_vocab)
    }
}

/// A model and what drafts for it, token by token.
pub trait Drafts {
    /// Appends tokens to the model's context, and to what the draft knows of the text.
    ///
    /// # Errors
    /// The context is too short, or llama.cpp refuses the tokens.
    fn feed(&mut self, tokens: &[i32]) -> Result<()>;

    /// The logits of `n` drafts after `anchor`, which follows the tokens so far. Each is the best token after
    /// the one before it. Nothing of them stays.
    ///
    /// # Errors
    /// llama.cpp refuses a step.
    fn chain(&mut self, anchor: i32, n: usize) -> Result<Logits>;
}

/// The logits of a draft at these positions, each for the best token of the one before and the row that was
/// kept of it; the first for `anchor` and `row`.
fn links(
    draft: &mut RawContext<'_>,
    (anchor, row): (i32, &[f32]),
    n_vocab: usize,
    positions: impl ExactSizeIterator<Item = usize>,
) -> Result<Logits> {
    let (mut token, mut row) = (anchor, row.to_vec());
    let mut values = Vec::with_capacity(positions.len() * n_vocab);
    for pos in positions {
        let code = draft.decode(Rows::Paired(&[token], &row), pos, Outputs::All);
        if code != 0 {
            return Err(LlamaError::Decode { code, pos });
        }
        let logits = draft.logits(0).expect("the row is an output");
        values.extend_from_slice(logits);
        token = Choice::of(logits).id;
        row = draft.kept_rows(1, row.len()).expect("rows of outputs are kept").to_vec();
    }
    Ok(Logits { n_vocab, values })
}

/// The best token of a row of logits, and how clearly it won. Of equal logits the first wins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The best.
    pub id: i32,
    /// The second best.
    pub second: i32,
    /// Best logit minus second.
    pub gap: f32,
}

impl Choice {
    /// Reads a row of at least two logits.
    pub fn of(row: &[f32]) -> Self {
        let (mut best, mut second) = (0, 1);
        if row[1] > row[0] {
            (best, second) = (1, 0);
        }
        for (i, &x) in row.iter().enumerate().skip(2) {
            if x > row[best] {
                (best, second) = (i, best);
            } else if x > row[second] {
                second = i;
            }
        }
        Self { id: best as i32, second: second as i32, gap: row[best] - row[second] }
    }
}

/// A sequence being decoded.
pub struct Context<'m> {
    raw: RawContext<'m>,
    model: &'m Model,
    options: ContextOptions,
    n_past: usize,
    /// First position that a recurrent state can still go back to.
    floor: usize,
}

impl<'m> Context<'m> {
    /// An empty sequence.
    pub fn new(model: &'m Model, options: ContextOptions) -> Result<Self> {
        let raw = RawContext::new(&model.0, &options).ok_or(LlamaError::Context(options))?;
        Ok(Self { raw, model, options, n_past: 0, floor: 0 })
    }

    /// Tokens decoded so far.
    pub fn n_past(&self) -> usize {
        self.n_past
    }

    /// Forgets the sequence.
    pub fn clear(&mut self) {
        self.raw.clear();
        (self.n_past, self.floor) = (0, 0);
    }

    /// Goes back to the first `n` tokens. A model with recurrent layers can do this once after a decode, by
    /// at most [`ContextOptions::rollback`] tokens, and must keep at least one token of that decode (of its
    /// last chunk): llama.cpp accepts more and then goes on from a wrong state, so more is refused here.
    pub fn truncate(&mut self, n: usize) -> Result<()> {
        if n >= self.n_past {
            return Ok(());
        }
        if n == 0 {
            self.clear();
            return Ok(());
        }
        if self.model.0.is_recurrent() && n < self.floor || !self.raw.forget_from(n) {
            return Err(LlamaError::Rollback(n));
        }
        (self.n_past, self.floor) = (n, n);
        Ok(())
    }

    fn decode_chunks(
        &mut self,
        tokens: &[i32],
        outputs: impl Fn(usize) -> Outputs,
        mut each: impl FnMut(&mut RawContext<'m>, usize, usize),
    ) -> Result<()> {
        let needed = self.n_past + tokens.len();
        if needed > self.options.n_ctx as usize {
            return Err(LlamaError::Full { needed, n_ctx: self.options.n_ctx as usize });
        }
        let mut done = 0;
        for chunk in tokens.chunks(self.options.n_batch as usize) {
            done += chunk.len();
            let code = self.raw.decode(Rows::Tokens(chunk), self.n_past, outputs(tokens.len() - done));
            if code != 0 {
                return Err(LlamaError::Decode { code, pos: self.n_past });
            }
            each(&mut self.raw, self.n_past, chunk.len());
            self.floor = self.n_past + 1;
            self.n_past += chunk.len();
        }
        Ok(())
    }

    /// Appends tokens and returns the logits after each of them.
    pub fn decode(&mut self, tokens: &[i32]) -> Result<Logits> {
        let n_vocab = self.model.n_vocab();
        let mut values = Vec::with_capacity(tokens.len() * n_vocab);
        self.decode_chunks(
            tokens,
            |_| Outputs::All,
            |raw, _, n| {
                for i in 0..n {
                    values.extend_from_slice(raw.logits(i).expect("every row is an output"));
                }
            },
        )?;
        Ok(Logits { n_vocab, values })
    }

    /// Appends tokens and returns the vector of each of them, `{n_embd}`, as embeddings are made of.
    pub fn vectors(&mut self, tokens: &[i32]) -> Result<Vec<Vec<f32>>> {
        let n_embd = self.model.n_embd();
        let mut vectors = Vec::with_capacity(tokens.len());
        self.raw.give_vectors();
        self.decode_chunks(
            tokens,
            |_| Outputs::All,
            |raw, _, n| {
                vectors
                    .extend((0..n).map(|i| raw.vector(i, n_embd).expect("every row is an output").to_vec()));
            },
        )?;
        Ok(vectors)
    }

    /// Appends tokens and returns the scores of the text, one for each label of a model that ranks.
    pub fn scores(&mut self, tokens: &[i32]) -> Result<Vec<f32>> {
        let (mut scores, model) = (Vec::new(), self.model);
        self.raw.give_vectors();
        self.decode_chunks(
            tokens,
            |_| Outputs::All,
            |raw, _, _| scores = raw.scores(&model.0).expect("the model ranks").to_vec(),
        )?;
        Ok(scores)
    }

    /// Appends rows `{n_embd, n}` in place of tokens.
    pub fn feed_rows(&mut self, rows: &[f32], is_seen_whole: bool) -> Result<()> {
        let n_embd = self.model.n_embd();
        if is_seen_whole && rows.len() > n_embd * self.options.n_batch as usize {
            return Err(LlamaError::Input("rows that see each other are more than a batch".to_owned()));
        }
        if !rows.len().is_multiple_of(n_embd) {
            return Err(LlamaError::Input("rows of another width than the model's".to_owned()));
        }
        for chunk in rows.chunks(n_embd * self.options.n_batch as usize) {
            let n = chunk.len() / n_embd;
            let (needed, n_ctx) = (self.n_past + n, self.options.n_ctx as usize);
            if needed > n_ctx {
                return Err(LlamaError::Full { needed, n_ctx });
            }
            self.raw.set_causal(!is_seen_whole);
            let code = self.raw.decode(Rows::Embd(chunk, n), self.n_past, Outputs::None);
            self.raw.set_causal(true);
            if code != 0 {
                return Err(LlamaError::Decode { code, pos: self.n_past });
            }
            self.n_past = needed;
        }
        Ok(())
    }

    /// Appends tokens and returns the logits after the last one.
    pub fn decode_last(&mut self, tokens: &[i32]) -> Result<Vec<f32>> {
        let mut last = Vec::new();
        let outputs = |left| if left == 0 { Outputs::Last } else { Outputs::None };
        self.decode_chunks(tokens, outputs, |raw, _, n| {
            last = raw.logits(n - 1).map(<[f32]>::to_vec).unwrap_or_default();
        })?;
        Ok(last)
    }

    /// Clears, decodes the prompt, and takes the best token `n` times (or up to and including the first that
    /// ends generation, if `stop`).
    pub fn greedy(&mut self, prompt: &[i32], n: usize, stop: bool) -> Result<Vec<Choice>> {
        if prompt.is_empty() {
            return Err(LlamaError::Input("an empty prompt".to_owned()));
        }
        self.clear();
        let mut out = Vec::with_capacity(n);
        let mut row = self.decode_last(prompt)?;
        while out.len() < n {
            let choice = Choice::of(&row);
            out.push(choice);
            if out.len() == n || stop && self.model.is_eog(choice.id) {
                break;
            }
            row = self.decode_last(&[choice.id])?;
        }
        Ok(out)
    }
}

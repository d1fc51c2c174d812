//! The drafts of an MTP head, with llama.cpp's graphs.
//!
//! llama.cpp's own loop is C++ (`common/speculative.cpp`) and not exported by the -sys crate; the graphs and
//! what they keep are llama.cpp's, the loop around them is here: one sequence, the best token of each link.

use super::ffi::{Outputs, RawContext, Rows};
use super::{Context, ContextOptions, Drafts, LlamaError, Logits, Model, Result, links};

/// A model and the head in its file.
pub struct Mtp<'m> {
    head: RawContext<'m>,
    target: Context<'m>,
    /// The row that the head reads beside the next token: that of the token before it, zeros at the start.
    before: Vec<f32>,
}

impl<'m> Mtp<'m> {
    /// An empty sequence.
    pub fn new(model: &'m Model, options: ContextOptions) -> Result<Self> {
        if model.0.n_heads() != 1 {
            return Err(LlamaError::Input(format!("{} MTP heads, not one", model.0.n_heads())));
        }
        let mut target = Context::new(model, options)?;
        target.raw.keep_rows(true);
        let mut head = RawContext::head(&model.0, &options).ok_or(LlamaError::Context(options))?;
        head.keep_rows(false);
        Ok(Self { head, target, before: vec![0.0; model.n_embd()] })
    }
}

impl Drafts for Mtp<'_> {
    fn feed(&mut self, tokens: &[i32]) -> Result<()> {
        let Self { head, target, before } = self;
        let n_embd = before.len();
        let (mut failed, mut left) = (None, tokens);
        target.decode_chunks(
            tokens,
            |_| Outputs::None,
            |raw, pos, n| {
                let rows = raw.kept_rows(n, n_embd).expect("all rows are kept");
                // The row of each token stands beside the token after it.
                let mut beside = std::mem::take(before);
                beside.extend_from_slice(rows);
                before.extend(beside.drain(n * n_embd..));
                let (chunk, rest) = left.split_at(n);
                left = rest;
                let code = head.decode(Rows::Paired(chunk, &beside), pos, Outputs::None);
                if code != 0 {
                    failed = Some(LlamaError::Decode { code, pos });
                }
            },
        )?;
        failed.map_or(Ok(()), Err)
    }

    fn chain(&mut self, anchor: i32, n: usize) -> Result<Logits> {
        let Self { head, target, before } = self;
        let (n_vocab, start) = (target.model.n_vocab(), target.n_past());
        let logits = links(head, (anchor, &before[..]), n_vocab, start..start + n)?;
        if !head.forget_from(start) {
            return Err(LlamaError::Rollback(start));
        }
        Ok(logits)
    }
}

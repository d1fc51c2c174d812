//! The drafts of a Gemma 4 assistant, with llama.cpp's graphs.
//!
//! llama.cpp's own loop is C++ (`common/speculative.cpp`) and not exported by the -sys crate; the graphs are
//! llama.cpp's, the loop around them is here: one sequence, the best token of each link.

use super::ffi::{Outputs, RawContext};
use super::{Context, ContextOptions, Drafts, LlamaError, Logits, Model, Result, links};

/// A target and its assistant. Fields drop in order: the assistant's context refers to the target's.
pub struct Assistant<'m> {
    draft: RawContext<'m>,
    target: Context<'m>,
    /// The target's row of the last token, zeros at the start.
    last: Vec<f32>,
}

impl<'m> Assistant<'m> {
    /// An empty sequence.
    pub fn new(target: &'m Model, draft: &'m Model, options: ContextOptions) -> Result<Self> {
        if draft.meta("general.architecture").as_deref() != Some("gemma4-assistant") {
            return Err(LlamaError::Input("not a Gemma 4 assistant".to_owned()));
        }
        // The width of the rows that it reads, and gives.
        let key = "gemma4-assistant.embedding_length_out";
        let width = draft.meta(key).and_then(|value| value.parse::<usize>().ok());
        if (width, draft.n_vocab()) != (Some(target.n_embd()), target.n_vocab()) {
            return Err(LlamaError::Input("the draft was made for another target".to_owned()));
        }
        let mut of_target = Context::new(target, options)?;
        of_target.raw.keep_rows(true);
        // SAFETY: both contexts end in one `Assistant`, whose field order drops the draft first, and which
        // gives neither away.
        let mut draft = unsafe { RawContext::draft(&draft.0, &options, &of_target.raw) }
            .ok_or(LlamaError::Context(options))?;
        draft.keep_rows(false);
        Ok(Self { draft, target: of_target, last: vec![0.0; target.n_embd()] })
    }
}

impl Drafts for Assistant<'_> {
    fn feed(&mut self, tokens: &[i32]) -> Result<()> {
        let Self { target, last, .. } = self;
        let n_embd = last.len();
        target.decode_chunks(
            tokens,
            |_| Outputs::None,
            |raw, _, n| {
                let rows = raw.kept_rows(n, n_embd).expect("all rows are kept");
                last.copy_from_slice(&rows[(n - 1) * n_embd..]);
            },
        )
    }

    /// All drafts are made at the position of the anchor, which no cache has.
    fn chain(&mut self, anchor: i32, n: usize) -> Result<Logits> {
        let Self { draft, target, last } = self;
        let (n_vocab, pos) = (target.model.n_vocab(), target.n_past());
        links(draft, (anchor, &last[..]), n_vocab, std::iter::repeat_n(pos, n))
    }
}

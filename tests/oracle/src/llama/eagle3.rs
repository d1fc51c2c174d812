//! The drafts of an EAGLE3 draft, with llama.cpp's graphs.
//!
//! llama.cpp's own loop is C++ (`common/speculative.cpp`) and not exported by the -sys crate; the graphs and
//! what they keep are llama.cpp's, the loop around them is here: one sequence, the best token of each link.
//! At the position of a row the draft has the pair of that row and the token after it, so that the last row
//! waits for its token.

use super::ffi::{Outputs, RawContext, Rows};
use super::{Context, ContextOptions, Drafts, LlamaError, Logits, Model, Result, links};

/// A target and its draft. Fields drop in order: the draft's context refers to the target's.
pub struct Eagle3<'m> {
    draft: RawContext<'m>,
    target: Context<'m>,
    layers: Vec<u32>,
    /// Width of the draft's rows.
    n_embd: usize,
    /// The fused row of the last token, which waits for the next one; none at the start.
    waiting: Option<Vec<f32>>,
}

impl<'m> Eagle3<'m> {
    /// An empty sequence.
    pub fn new(target: &'m Model, draft: &'m Model, options: ContextOptions) -> Result<Self> {
        let layers = draft.0.target_layers();
        if draft.meta("general.architecture").as_deref() != Some("eagle3") || layers.len() != 3 {
            return Err(LlamaError::Input("not an EAGLE3 draft".to_owned()));
        }
        // The width of the rows that it reads.
        let width = draft.meta("eagle3.target_hidden_size").and_then(|value| value.parse::<usize>().ok());
        let last = layers.iter().copied().max().unwrap_or(0) as usize;
        if width != Some(target.n_embd()) || last >= target.0.n_layer() {
            return Err(LlamaError::Input("the draft was made for another target".to_owned()));
        }
        let mut of_target = Context::new(target, options)?;
        for &layer in &layers {
            of_target.raw.tap_layer(layer);
        }
        // SAFETY: both contexts end in one `Eagle3`, whose field order drops the draft first, and which gives
        // neither away.
        let mut raw = unsafe { RawContext::draft(&draft.0, &options, &of_target.raw) }
            .ok_or(LlamaError::Context(options))?;
        raw.keep_rows(false);
        Ok(Self { draft: raw, target: of_target, layers, n_embd: draft.n_embd(), waiting: None })
    }
}

impl Drafts for Eagle3<'_> {
    fn feed(&mut self, tokens: &[i32]) -> Result<()> {
        let Self { draft, target, layers, n_embd, waiting } = self;
        let width = target.model.n_embd();
        let (mut failed, mut left) = (None, tokens);
        target.decode_chunks(
            tokens,
            |_| Outputs::None,
            |raw, pos, n| {
                let mut taps = vec![0f32; n * layers.len() * width];
                for (k, &layer) in layers.iter().enumerate() {
                    let tap = raw.layer_input(layer, n, width).expect("the layer is tapped");
                    for (row, tap) in taps.chunks_exact_mut(layers.len() * width).zip(tap.chunks_exact(width))
                    {
                        row[k * width..][..width].copy_from_slice(tap);
                    }
                }
                let (chunk, rest) = left.split_at(n);
                left = rest;
                // The encoder reads no positions, but llama.cpp wants those after the last pair.
                let pairs = if waiting.is_some() { pos - 1 } else { pos };
                let mut codes = vec![draft.encode(Rows::Embd(&taps, n), pairs)];
                let fused = draft.kept_rows(n, *n_embd).expect("rows of the encoder are kept").to_vec();
                // Each row stands beside the token after it; the last one waits.
                let (before, first) = match waiting.take() {
                    Some(row) => (row, 0),
                    None => (Vec::new(), 1),
                };
                let mut rows = [before, fused].concat();
                *waiting = Some(rows.split_off(rows.len() - *n_embd));
                if !rows.is_empty() {
                    codes.push(draft.decode(Rows::Paired(&chunk[first..], &rows), pairs, Outputs::None));
                }
                failed = failed.take().or(codes.into_iter().find(|&code| code != 0).map(|code| (code, pos)));
            },
        )?;
        failed.map_or(Ok(()), |(code, pos)| Err(LlamaError::Decode { code, pos }))
    }

    fn chain(&mut self, anchor: i32, n: usize) -> Result<Logits> {
        let Self { draft, target, waiting, .. } = self;
        let Some(row) = waiting else {
            return Err(LlamaError::Input("no token before the chain".to_owned()));
        };
        let (n_vocab, start) = (target.model.n_vocab(), target.n_past() - 1);
        let logits = links(draft, (anchor, &row[..]), n_vocab, start..start + n)?;
        if !draft.forget_from(start) {
            return Err(LlamaError::Rollback(start));
        }
        Ok(logits)
    }
}

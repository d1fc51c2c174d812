//! DFlash v1 speculative decoding with llama.cpp's graphs.
//!
//! llama.cpp's own loop is C++ (`common/speculative.cpp`) and not exported by the -sys crate; the graphs, the
//! taps and the rollback of recurrent layers are llama.cpp's, the loop around them is here: greedy, one
//! sequence, drafts of fixed length (p_min 0).

use super::ffi::{Outputs, RawContext, Rows};
use super::{Choice, Context, ContextOptions, LlamaError, Model, Result};

/// A target and its draft. Fields drop in order: the draft's context refers to the target's.
pub struct DFlash<'m> {
    draft: RawContext<'m>,
    target: Context<'m>,
    layers: Vec<u32>,
    mask: i32,
    n_max: usize,
}

/// What a speculative run gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Speculated {
    /// Generated ids.
    pub ids: Vec<i32>,
    /// Accepted drafts of each round.
    pub accepted: Vec<usize>,
    /// Drafts proposed.
    pub drafted: usize,
}

impl<'m> DFlash<'m> {
    /// `options.rollback` is set to the draft length. `n_max` is at most the trained block minus one.
    pub fn new(
        target: &'m Model,
        draft: &'m Model,
        mut options: ContextOptions,
        n_max: usize,
    ) -> Result<Self> {
        let layers = draft.0.target_layers();
        if draft.meta("general.architecture").as_deref() != Some("dflash") || layers.is_empty() {
            return Err(LlamaError::Input("not a DFlash draft".to_owned()));
        }
        // The width of the rows that the draft reads follows from its own width: it must be the target's.
        let fits = (draft.n_embd(), draft.n_vocab()) == (target.n_embd(), target.n_vocab());
        if !fits || layers.iter().any(|&l| l as usize >= target.0.n_layer()) {
            return Err(LlamaError::Input("the draft was made for another target".to_owned()));
        }
        let number = |key| draft.meta(key).and_then(|v| v.parse::<usize>().ok());
        let block = number("dflash.block_size").unwrap_or(16);
        let n_max = n_max.clamp(1, block - 1);
        options.rollback = n_max as u32;
        let mut target_ctx = Context::new(target, options)?;
        for &layer in &layers {
            target_ctx.raw.tap_layer(layer);
        }
        options.rollback = 0;
        // SAFETY: both contexts end in one `DFlash`, whose field order drops the draft first, and which gives
        // neither away.
        let mut draft_ctx = unsafe { RawContext::draft(&draft.0, &options, &target_ctx.raw) }
            .ok_or(LlamaError::Context(options))?;
        draft_ctx.set_block_draft(draft.meta("dflash.attention.causal").as_deref() == Some("true"));
        Ok(Self { draft: draft_ctx, target: target_ctx, layers, mask: draft.0.mask_token(), n_max })
    }

    /// Decodes tokens on the target and appends their features to the draft's cache. Returns the target's
    /// choice after each token, or after the last one only.
    fn feed(&mut self, tokens: &[i32], all: bool) -> Result<Vec<Choice>> {
        let Self { draft, target, layers, .. } = self;
        let n_embd = target.model.n_embd();
        let mut choices = Vec::new();
        let mut failed = None;
        let outputs = |left| match (all, left) {
            (true, _) => Outputs::All,
            (false, 0) => Outputs::Last,
            (false, _) => Outputs::None,
        };
        target.decode_chunks(tokens, outputs, |raw, pos, n| {
            let first = if all { 0 } else { n - 1 };
            choices.extend((first..n).filter_map(|i| raw.logits(i).map(Choice::of)));
            let mut rows = vec![0f32; n * layers.len() * n_embd];
            for (k, &layer) in layers.iter().enumerate() {
                let taps = raw.layer_input(layer, n, n_embd).expect("the layer is tapped");
                for (row, tap) in rows.chunks_exact_mut(layers.len() * n_embd).zip(taps.chunks_exact(n_embd))
                {
                    row[k * n_embd..][..n_embd].copy_from_slice(tap);
                }
            }
            let code = draft.decode(Rows::Embd(&rows, n), pos, Outputs::None);
            if code != 0 {
                failed = Some(LlamaError::Decode { code, pos });
            }
        })?;
        failed.map_or(Ok(choices), Err)
    }

    /// Greedy generation of `n` ids; the same ids as [`Context::greedy`], but for near-ties. As in
    /// llama-server, the first id comes from the prompt alone; rounds start after it.
    pub fn generate(&mut self, prompt: &[i32], n: usize) -> Result<Speculated> {
        if prompt.is_empty() {
            return Err(LlamaError::Input("an empty prompt".to_owned()));
        }
        self.target.clear();
        self.draft.clear();
        let mut last = self.feed(prompt, false)?.last().expect("the last row is an output").id;
        let mut out = Speculated { ids: vec![last], ..Speculated::default() };
        while out.ids.len() < n {
            let pos = self.target.n_past();
            let mut block = vec![self.mask; self.n_max + 1];
            block[0] = last;
            let code = self.draft.decode(Rows::Tokens(&block), pos, Outputs::All);
            if code != 0 {
                return Err(LlamaError::Decode { code, pos });
            }
            for (i, slot) in block.iter_mut().enumerate().skip(1) {
                *slot = Choice::of(self.draft.logits(i).expect("every row is an output")).id;
            }
            // The block's own keys and values are noise: they must not stay.
            if !self.draft.forget_from(pos) {
                return Err(LlamaError::Rollback(pos));
            }
            out.drafted += self.n_max;
            let choices = self.feed(&block, true)?;
            let accepted = choices.iter().zip(&block[1..]).take_while(|(c, d)| c.id == **d).count();
            out.ids.extend(choices[..=accepted].iter().map(|c| c.id));
            out.accepted.push(accepted);
            last = choices[accepted].id;
            self.target.truncate(pos + 1 + accepted)?;
            if !self.draft.forget_from(pos + 1 + accepted) {
                return Err(LlamaError::Rollback(pos + 1 + accepted));
            }
        }
        out.ids.truncate(n);
        Ok(out)
    }
}

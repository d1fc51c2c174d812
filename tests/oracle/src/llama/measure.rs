//! Perplexity as llama-perplexity defines it, speed as llama-bench measures it.

use std::time::Instant;

use super::{Context, ContextOptions, LlamaError, Model, Result};

/// Perplexity over the chunks of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Perplexity {
    /// exp of the mean negative log likelihood over all scored tokens.
    pub value: f64,
    /// The same over the chunks up to each one, as llama-perplexity prints it.
    pub running: Vec<f64>,
    /// Negative log likelihood of each chunk, summed.
    pub nll: Vec<f64>,
    /// Scored tokens of a chunk.
    pub scored: usize,
}

/// Negative log likelihood of `token` under a row of logits.
pub(super) fn nll(row: &[f32], token: i32) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|&x| f64::from((x - max).exp())).sum();
    sum.ln() - f64::from(row[token as usize] - max)
}

impl Context<'_> {
    /// Perplexity by llama-perplexity's default method: the text is cut into chunks of `chunk` tokens (the
    /// rest is dropped), each decoded from an empty context; the second half of each chunk is scored. If the
    /// model wants a BOS, it replaces the first token of each chunk.
    pub fn perplexity(&mut self, tokens: &[i32], chunk: usize) -> Result<Perplexity> {
        let count = tokens.len() / chunk.max(1);
        if chunk < 4 || count == 0 {
            return Err(LlamaError::Input(format!("{} tokens for chunks of {chunk}", tokens.len())));
        }
        let bos = self.model.0.add_bos();
        let first = chunk / 2;
        let scored = chunk - 1 - first;
        let (mut nlls, mut running) = (Vec::new(), Vec::new());
        for c in tokens.chunks_exact(chunk) {
            let mut input = c.to_vec();
            if let Some(bos) = bos {
                input[0] = bos;
            }
            self.clear();
            let logits = self.decode(&input)?;
            nlls.push((first..chunk - 1).map(|i| nll(logits.row(i), c[i + 1])).sum::<f64>());
            running.push((nlls.iter().sum::<f64>() / (nlls.len() * scored) as f64).exp());
        }
        let value = *running.last().expect("at least one chunk");
        Ok(Perplexity { value, running, nll: nlls, scored })
    }
}

/// Tokens per second, one entry per repetition.
#[derive(Debug, Clone, PartialEq)]
pub struct Speed {
    /// A prompt of the given length in batches of `n_batch`, empty if none was asked for.
    pub prompt: Vec<f64>,
    /// Single tokens from an empty context.
    pub generation: Vec<f64>,
}

/// Measures like llama-bench: arbitrary tokens, one warm-up of each kind, no sampling.
pub fn speed(
    model: &Model,
    options: ContextOptions,
    pp: usize,
    tg: usize,
    repetitions: usize,
) -> Result<Speed> {
    let n = model.n_vocab() as u64;
    // A multiplicative walk over the vocabulary: ids do not matter, but should not repeat.
    let tokens: Vec<i32> =
        (0..pp.max(tg) as u64).map(|i| ((i * 2_654_435_761 + 12_345) % n) as i32).collect();
    let mut ctx = Context::new(model, options)?;
    let mut out = Speed { prompt: Vec::new(), generation: Vec::new() };
    for round in 0..=repetitions {
        if pp > 0 {
            ctx.clear();
            let start = Instant::now();
            ctx.decode_last(&tokens[..pp])?;
            ctx.raw.synchronize();
            if round > 0 {
                out.prompt.push(pp as f64 / start.elapsed().as_secs_f64());
            }
        }
        if tg > 0 {
            ctx.clear();
            let start = Instant::now();
            for t in &tokens[..tg] {
                ctx.decode_last(std::slice::from_ref(t))?;
            }
            ctx.raw.synchronize();
            if round > 0 {
                out.generation.push(tg as f64 / start.elapsed().as_secs_f64());
            }
        }
    }
    Ok(out)
}

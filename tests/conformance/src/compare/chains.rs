//! The drafts of an MTP head, an EAGLE3 draft or a Gemma 4 assistant, in both.

use std::fmt;

use hexflash::engine::Engine;
use hexflash_oracle::llama::{Choice, Drafts};

use super::verdict::Limits;

/// Tokens between two chains.
const STRIDE: usize = 8;
/// Tokens in front of the last chain, at most.
const TEXT: usize = 128;

/// What was found in some chains of drafts.
#[derive(Clone, Debug, Default)]
pub struct Chains {
    /// Name of who drafts.
    pub by: &'static str,
    /// Chains.
    pub chains: usize,
    /// Drafts that both were asked for after the same tokens.
    pub drafts: usize,
    /// Those that are the same.
    pub same: usize,
    /// Where they differ, the largest lead that llama.cpp gave its own.
    pub widest: f32,
    /// Sum of squared differences of the leads of the same drafts.
    error: f64,
    /// Sum of squares of llama.cpp's logits, and their number.
    norm: f64,
    logits: usize,
    /// Whether rounds give hexflash's tokens without them.
    pub lossless: bool,
}

impl Chains {
    /// Runs both through a text, and asks for as many drafts as there can be at every few tokens of it.
    pub fn compare(
        by: &'static str,
        llama: &mut impl Drafts,
        engine: &mut Engine,
        tokens: &[i32],
    ) -> Result<Self, String> {
        let mut found = Self { by, ..Self::default() };
        engine.reset();
        let text = &tokens[..tokens.len().min(TEXT + 1)];
        for (number, part) in text[..text.len() - 1].chunks(STRIDE).enumerate() {
            llama.feed(part).map_err(|e| e.to_string())?;
            let ids: Vec<u32> = part.iter().map(|&t| t as u32).collect();
            engine.prefill(&ids, |_| {}).map_err(|e| e.to_string())?;
            let n = engine.draft_room();
            if n == 0 {
                break;
            }
            let anchor = text[number * STRIDE + part.len()];
            let theirs = llama.chain(anchor, n as usize).map_err(|e| e.to_string())?;
            let ours = engine.draft(anchor as u32, n).map_err(|e| e.to_string())?;
            let mut leads = vec![0.0; n as usize];
            engine.read_margins(&mut leads);
            found.chains += 1;
            for ((row, &draft), lead) in theirs.rows().zip(&*ours).zip(leads) {
                if !found.add(row, draft, lead) {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Takes a draft in; whether it is the same, so that the next ones follow the same tokens.
    fn add(&mut self, row: &[f32], draft: u32, lead: f32) -> bool {
        let choice = Choice::of(row);
        self.drafts += 1;
        // A head that has rows for some tokens only gives the others no logit.
        for &logit in row.iter().filter(|logit| logit.is_finite()) {
            self.norm += f64::from(logit).powi(2);
            self.logits += 1;
        }
        if choice.id as u32 != draft {
            self.widest = self.widest.max(choice.gap);
            return false;
        }
        self.same += 1;
        self.error += (f64::from(choice.gap) - f64::from(lead)).powi(2);
        true
    }

    /// NMSE of the logits, as the leads show it: a lead is the difference of two logits, and has the errors
    /// of both. NaN where no draft is the same.
    pub fn nmse(&self) -> f64 {
        self.error / (2.0 * self.same as f64) / self.mean_square()
    }

    /// Mean square of llama.cpp's logits.
    fn mean_square(&self) -> f64 {
        self.norm / self.logits as f64
    }

    /// The widest lead that errors within the limit may undo: four standard deviations of a lead's error.
    fn near_tie(&self, limits: &Limits) -> f64 {
        4.0 * (2.0 * limits.nmse * self.mean_square()).sqrt()
    }

    /// Whether logits are within the limit, drafts differ at near-ties only, and tokens do not depend on
    /// them.
    pub fn fits(&self, limits: &Limits) -> bool {
        self.nmse() <= limits.nmse && f64::from(self.widest) <= self.near_tie(limits) && self.lossless
    }
}

impl fmt::Display for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} of {} drafts in {} chains are llama.cpp's (widest lead lost {:.2e}), NMSE of their logits \
             {:.2e}; tokens with it are {}those without it",
            self.by,
            self.same,
            self.drafts,
            self.chains,
            self.widest,
            self.nmse(),
            if self.lossless { "" } else { "NOT " },
        )
    }
}

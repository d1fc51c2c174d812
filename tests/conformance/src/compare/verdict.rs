//! Whether a comparison passes, in words and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::chains::Chains;
use super::measure::{Chunk, Parting, Rounding};
use super::pair::{Greedy, Speculation};

/// How far apart the two may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// NMSE of the logits.
    pub nmse: f64,
    /// Relative difference of the perplexities.
    pub perplexity: f64,
}

impl Limits {
    /// Where caches have other number formats than llama.cpp's, which changes logits in earnest.
    pub const OTHER_CACHES: Self = Self { nmse: 0.05, perplexity: 0.02 };

    /// Those of a model whose activations are rounded to 8 bits (with quantized weights; by llama.cpp, with
    /// BF16 ones too), or of one where they keep F16's or F32's precision.
    pub fn of(coarse: bool) -> Self {
        if coarse { Self { nmse: 1e-4, perplexity: 3e-3 } } else { Self { nmse: 1e-6, perplexity: 1e-3 } }
    }
}

/// The comparison of a model.
pub struct Outcome {
    /// Logits and perplexity over the text.
    pub text: Chunk,
    /// Greedy tokens.
    pub greedy: Greedy,
    /// Greedy tokens with a draft, if there is one.
    pub speculation: Option<Speculation>,
    /// Drafts of the MTP head in the file, or of an assistant, if there is one.
    pub chains: Option<Chains>,
    /// Its limits.
    pub limits: Limits,
    /// Where they are exceeded: what rounding alone does to this model, or why that cannot be told.
    pub rounding: Option<Result<Rounding, String>>,
    /// Greedy answers to questions, if they were asked for.
    pub answers: Vec<(&'static str, Greedy)>,
}

impl Outcome {
    /// Whether logits, taken together, and perplexity are within the limits. Greedy tokens may part where two
    /// logits are nearly equal.
    pub fn is_within_limits(&self) -> bool {
        self.text.nmse() <= self.limits.nmse && self.text.perplexity_error() <= self.limits.perplexity
    }

    /// Whether all is well: within the limits or, as rounding grows from layer to layer, no further from the
    /// unrounded result than llama.cpp; the same logits for a prompt in batches, the same tokens with a
    /// draft, drafts that are llama.cpp's but at near-ties, and answers that part only at near-ties.
    pub fn passes(&self) -> bool {
        let rounding = self.rounding.as_ref().is_some_and(|r| r.as_ref().is_ok_and(Rounding::fits));
        let lossless = self.speculation.as_ref().is_none_or(|s| s.lossless);
        (self.is_within_limits() || rounding)
            && self.text.prefill == 0.0
            && lossless
            && self.chains.as_ref().is_none_or(|chains| chains.fits(&self.limits))
            && self.parts_near_ties()
    }

    /// Whether answers part only where llama.cpp's choice had a lead that rounding undoes.
    fn parts_near_ties(&self) -> bool {
        let near = self.near_tie();
        let mut partings = self.answers.iter().filter_map(|(_, answer)| answer.parting);
        partings.all(|parting| near.is_some_and(|near| f64::from(parting.llama.gap) <= near))
    }

    /// The lead that rounding undoes, where that was measured.
    fn near_tie(&self) -> Option<f64> {
        self.rounding.as_ref().and_then(|r| r.as_ref().ok()).map(Rounding::near_tie)
    }

    /// As one JSON object.
    pub fn json(&self, name: &str) -> Value {
        let parting = |p: &Parting| {
            json!({
                "at": p.at,
                "llama": { "id": p.llama.id, "second": p.llama.second, "gap": p.llama.gap },
                "hexflash": { "id": p.hexflash.id, "second": p.hexflash.second, "gap": p.hexflash.gap },
            })
        };
        let [llama, hexflash] = self.text.perplexity();
        json!({
            "model": name, "passes": self.passes(), "positions": self.text.rows,
            "nmse": self.text.nmse(), "worst_nmse": self.text.worst, "worst_at": self.text.worst_at,
            "prefill_nmse": self.text.prefill, "nmse_limit": self.limits.nmse,
            "top1": self.text.agreed, "first_parting": self.text.parting.as_ref().map(parting),
            "widest_lead_lost": self.text.widest,
            "rounding": self.rounding.as_ref().and_then(|r| r.as_ref().ok()).map(|r| json!({
                "llama": { "nmse": r.nmse()[0], "divergence": r.divergence()[0] },
                "hexflash": { "nmse": r.nmse()[1], "divergence": r.divergence()[1] },
                "room": Rounding::ROOM,
            })),
            "perplexity": { "llama": llama, "hexflash": hexflash, "limit": self.limits.perplexity },
            "greedy": { "same": self.greedy.same, "of": self.greedy.of,
                        "parting": self.greedy.parting.as_ref().map(parting) },
            "answers": self.answers.iter().map(|(question, answer)| json!({
                "question": question, "same": answer.same, "of": answer.of,
                "parting": answer.parting.as_ref().map(parting),
            })).collect::<Vec<_>>(),
            "chains": self.chains.as_ref().map(|c| json!({
                "chains": c.chains, "drafts": c.drafts, "same": c.same, "widest_lead_lost": c.widest,
                "nmse": c.nmse(), "same_as_plain": c.lossless,
            })),
            "speculation": self.speculation.as_ref().map(|s| json!({
                "of": s.of, "rounds": s.rounds, "accepted": s.accepted, "drafted": s.drafted,
                "same_as_plain": s.same_as_plain, "same_as_hexflash": s.same_as_hexflash,
                "hexflash": { "rounds": s.hexflash.0, "accepted": s.hexflash.1, "same_as_plain": s.lossless },
            })),
        })
    }
}

/// The accepted drafts and one of the target's own.
fn tokens_per_round(rounds: usize, accepted: usize) -> f64 {
    (accepted + rounds) as f64 / rounds.max(1) as f64
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (t, l) = (&self.text, &self.limits);
        writeln!(f, "  all: {t}")?;
        if let Some(parting) = &t.parting {
            writeln!(f, "  best tokens first part {parting}; widest lead lost {:.2e}", t.widest)?;
        }
        if t.prefill > 0.0 {
            writeln!(
                f,
                "  prompts run in batches end in other logits than step by step: NMSE {:.2e}",
                t.prefill
            )?;
        }
        match &self.greedy.parting {
            None => writeln!(f, "  greedy: {} tokens, all the same", self.greedy.of)?,
            Some(parting) => writeln!(f, "  greedy: {} tokens, then part {parting}", self.greedy.same)?,
        }
        for (question, answer) in &self.answers {
            match &answer.parting {
                None => writeln!(f, "  {question:?}: {} tokens, all the same", answer.of)?,
                Some(parting) => writeln!(f, "  {question:?}: {} tokens, then part {parting}", answer.same)?,
            }
        }
        if let (Some(near), false) = (self.near_tie(), self.answers.is_empty()) {
            writeln!(f, "  answers may part where the lead is at most {near:.2e}: rounding undoes it")?;
        }
        if let Some(s) = &self.speculation {
            writeln!(
                f,
                "  llama.cpp with the draft: {:.2} tokens per round ({} drafts of {} accepted); \
                 of {} tokens the \
                 first {} are those without it, the first {} hexflash's",
                tokens_per_round(s.rounds, s.accepted),
                s.accepted,
                s.drafted,
                s.of,
                s.same_as_plain,
                s.same_as_hexflash
            )?;
            let (rounds, accepted) = s.hexflash;
            writeln!(
                f,
                "  hexflash with the draft: {:.2} tokens per round; the tokens are {}those without it",
                tokens_per_round(rounds, accepted),
                if s.lossless { "" } else { "NOT " },
            )?;
        }
        if let Some(chains) = &self.chains {
            writeln!(f, "  {chains}")?;
        }
        match &self.rounding {
            None => {}
            Some(Ok(rounding)) => {
                writeln!(f, "  {rounding}; allowed are {} times llama.cpp's", Rounding::ROOM)?
            }
            Some(Err(error)) => writeln!(f, "  what rounding alone does cannot be told: {error}")?,
        }
        let verdict = if self.passes() { "ok" } else { "FAIL" };
        writeln!(f, "  {verdict}: limits NMSE {:.0e}, perplexity {} %", l.nmse, l.perplexity * 100.0)
    }
}

//! TOPK_MOE: the router of a mixture of experts.
//!
//! Formulas: llama.cpp's `llm_graph_context::build_moe_ffn`. Where no bias is added, experts are chosen by
//! their logits: softmax and sigmoid keep the order, and logits that they round to one weight stay apart.
//!
//! A logit that is infinite or no number makes all that follows from it up, so the op fails on such a row. It
//! is found by scalar comparisons, which every processor makes as IEEE has them. Ids are in range all the
//! same.

use heapless::Vec;
use hexflash_abi::op::params::{Gating, TopkMoe};
use hexflash_abi::op::{MAX_EXPERTS, topk_moe as abi};
use hexflash_abi::{ErrorCode, Fault};

use crate::hvx::{Hvx, LANES, math};
use crate::kernels::shared::damage::Damage;
use crate::kernels::shared::lanes::INDEX;
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};

const EXPERTS: usize = MAX_EXPERTS as usize;

/// Sum of weights below which they are divided by it in its place: ggml's bound, 2^-14.
const LEAST_SUM: f32 = 6.103_515_6e-5;

/// Routes each token by itself.
struct TopK {
    logits: View,
    bias: Option<View>,
    ids: View,
    weights: View,
    gating: Gating,
    params: TopkMoe,
    damage: Damage,
}

/// TOPK_MOE: logits{n_expert,m}, bias{n_expert} -> ids{n_used,m}, weights{n_used,m}.
///
/// # Errors
/// A row of logits, or of what experts are chosen by, that has NaN or infinity.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let params: TopkMoe = run.params();
    let kernel = TopK {
        logits: run.operand(abi::LOGITS)?,
        bias: run.optional(abi::BIAS),
        ids: run.operand(abi::IDS)?,
        weights: run.operand(abi::WEIGHTS)?,
        // Validation has parsed it.
        gating: Gating::parse(params.gating).ok_or(Fault::new(ErrorCode::Internal, line!()))?,
        params,
        damage: Damage::none(),
    };
    run.parallel(&kernel)?;
    kernel.damage.outcome()
}

/// A value for each expert: whole vectors.
#[repr(C, align(128))]
struct Values([f32; EXPERTS]);
const _: () = assert!(EXPERTS.is_multiple_of(LANES));

impl Values {
    const fn zero() -> Self {
        Self([0.0; EXPERTS])
    }

    #[inline(always)]
    fn vectors(&self) -> impl Iterator<Item = &[f32; LANES]> {
        self.0.as_chunks().0.iter()
    }

    #[inline(always)]
    fn vectors_mut(&mut self) -> impl Iterator<Item = &mut [f32; LANES]> {
        self.0.as_chunks_mut().0.iter_mut()
    }
}

/// An expert, and what it is chosen by.
#[derive(Clone, Copy)]
struct Candidate {
    expert: u16,
    value: f32,
}

/// The best `n_used` of these values, best first; of equal ones the first.
#[inline(always)]
fn best(values: &[f32], n_used: usize) -> Vec<Candidate, EXPERTS> {
    let mut best: Vec<Candidate, EXPERTS> = Vec::new();
    for (expert, &value) in values.iter().enumerate() {
        let full = best.len() == n_used;
        if full && best.last().is_some_and(|last| value <= last.value) {
            continue;
        }
        if full {
            best.pop();
        }
        // From the end: most that get in get in low.
        let mut at = best.len();
        while at > 0 && best[at - 1].value < value {
            at -= 1;
        }
        // There is room: a full list gave up its last entry, and `n_used` is `EXPERTS` at most.
        let _ = best.insert(at, Candidate { expert: expert as u16, value });
    }
    best
}

/// The largest value.
#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    values.iter().fold(f32::NEG_INFINITY, |max, &value| if value > max { value } else { max })
}

/// The softmax of the first `n` values.
#[inline(always)]
fn softmax<H: Hvx>(x: &Values, n: usize, y: &mut Values) {
    let max = H::splat(largest(&x.0[..n]));
    // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
    let lane = unsafe { H::load(INDEX.as_ptr()) };
    let mut sum = H::splat(0.0);
    for (v, (x, y)) in x.vectors().zip(y.vectors_mut()).take(n.div_ceil(LANES)).enumerate() {
        // SAFETY: `x` is an array of 32 floats, which are 128 bytes.
        let e = math::exp::<H>(H::sub(unsafe { H::load(x.as_ptr()) }, max));
        // Lanes past the end are nothing.
        let e = H::select_gt(H::splat((n - v * LANES) as f32), lane, e, H::splat(0.0));
        // SAFETY: `y` is an array of 32 floats, which are 128 bytes.
        unsafe { H::store(y.as_mut_ptr(), e) };
        sum = H::pin(H::add(sum, e));
    }
    let inverse = 1.0 / H::sum(sum);
    y.0[..n].iter_mut().for_each(|e| *e *= inverse);
}

impl TopK {
    /// What each of `n` experts counts: its weight as far as it does not depend on which are chosen.
    #[inline(always)]
    fn scores<H: Hvx>(&self, logits: &Values, n: usize, to: &mut Values) {
        match self.gating {
            Gating::Softmax => softmax::<H>(logits, n, to),
            Gating::Sigmoid => {
                for (x, y) in logits.vectors().zip(to.vectors_mut()).take(n.div_ceil(LANES)) {
                    // SAFETY: `x` and `y` are arrays of 32 floats, which are 128 bytes.
                    unsafe { H::store(y.as_mut_ptr(), math::sigmoid::<H>(H::load(x.as_ptr()))) };
                }
            }
            Gating::SoftmaxOfChosen => to.0[..n].copy_from_slice(&logits.0[..n]),
        }
    }

    /// The weights of the chosen experts from their scores, in place.
    #[inline(always)]
    fn weigh<H: Hvx>(&self, chosen: &mut Values, n_used: usize) {
        if self.gating == Gating::SoftmaxOfChosen {
            let mut weights = Values::zero();
            softmax::<H>(chosen, n_used, &mut weights);
            *chosen = weights;
        }
        let (weights, scale) = (&mut chosen.0[..n_used], self.params.scale);
        if self.params.normalize == 1 {
            let sum = weights.iter().fold(0.0, |sum: f32, weight| sum + weight);
            let sum = if sum > LEAST_SUM { sum } else { LEAST_SUM };
            weights.iter_mut().for_each(|weight| *weight = *weight / sum * scale);
        } else {
            weights.iter_mut().for_each(|weight| *weight *= scale);
        }
    }
}

impl Kernel for TopK {
    fn units(&self) -> usize {
        self.logits.ne[1]
    }

    fn work(&self) -> usize {
        // An exponential is some 20 operations, and choosing some 4 scalar ones for each expert.
        self.logits.ne[1].saturating_mul(self.logits.ne[0].div_ceil(LANES) * 150)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let [mut logits, mut scores, mut keys] = [const { Values::zero() }; 3];
        let [n, n_used] = [self.logits.ne[0], self.ids.ne[0]];
        while let Some(token) = worker.claim() {
            let row = self.logits.row([token, 0, 0]);
            for (v, to) in logits.vectors_mut().take(row.vectors()).enumerate() {
                // SAFETY: `to` is an array of 32 floats, which are 128 bytes.
                unsafe { H::store(to.as_mut_ptr(), row.vector::<H>(v)) };
            }
            self.scores::<H>(&logits, n, &mut scores);
            let mut sound = logits.0[..n].iter().all(|logit| logit.is_finite());
            let by = match &self.bias {
                None => &logits.0[..n],
                Some(bias) => {
                    let bias = bias.row([0; 3]);
                    for (i, (key, score)) in keys.0[..n].iter_mut().zip(&scores.0).enumerate() {
                        *key = score + bias.get(i);
                        sound &= key.is_finite();
                    }
                    &keys.0[..n]
                }
            };
            if !sound {
                self.damage.note(token);
            }

            let best = best(by, n_used);
            let mut chosen = Values::zero();
            for (to, candidate) in chosen.0.iter_mut().zip(&best) {
                *to = scores.0[usize::from(candidate.expert)];
            }
            self.weigh::<H>(&mut chosen, n_used);
            // SAFETY: `claim` gives unit `token`, and with it this row of the weights, to this worker alone.
            let mut weights = unsafe { self.weights.row_mut([token, 0, 0]) };
            for (slot, (candidate, &weight)) in best.iter().zip(&chosen.0).enumerate() {
                weights.set(slot, weight);
                // SAFETY: `claim` gives unit `token`, and with it this row of the ids, to this worker alone;
                // `set_int` checks the indices.
                unsafe { self.ids.set_int([slot, token, 0, 0], candidate.expert.into()) };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

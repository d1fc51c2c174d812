//! Recent tokens and the penalties they cause.

use std::collections::{HashMap, VecDeque};

use super::SamplerParams;

/// Space made in advance, so that usual windows never allocate later.
const RESERVED: usize = 4096;

/// The last tokens of a sequence, counted.
#[derive(Debug, Clone)]
pub(super) struct History {
    window: VecDeque<u32>,
    counts: HashMap<u32, u32>,
    limit: usize,
}

impl History {
    pub(super) fn new(limit: usize) -> Self {
        // One more than the window: a token comes in before the oldest leaves.
        let reserved = limit.min(RESERVED) + 1;
        Self { window: VecDeque::with_capacity(reserved), counts: HashMap::with_capacity(reserved), limit }
    }

    /// Takes the next token; the oldest leaves a full window.
    pub(super) fn push(&mut self, token: u32) {
        if self.limit == 0 {
            return;
        }
        *self.counts.entry(token).or_insert(0) += 1;
        self.window.push_back(token);
        if self.window.len() > self.limit
            && let Some(oldest) = self.window.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.window.clear();
        self.counts.clear();
    }

    /// Replaces `out` with the changed logits of recent tokens, by ascending id.
    pub(super) fn penalize(&self, params: &SamplerParams, logits: &[f32], out: &mut Vec<(u32, f32)>) {
        out.clear();
        if !params.has_penalties() {
            return;
        }
        for (&id, &count) in &self.counts {
            // Tokens of another vocabulary, such as a larger draft's, have no logit here.
            if let Some(&logit) = logits.get(id as usize) {
                out.push((id, penalized(params, logit, count)));
            }
        }
        out.sort_unstable_by_key(|&(id, _)| id);
    }
}

/// The logit of a token that occurred `count` times.
fn penalized(params: &SamplerParams, logit: f32, count: u32) -> f32 {
    // Dividing a negative logit would make the token more likely.
    let scaled = if logit <= 0.0 { logit * params.repeat_penalty } else { logit / params.repeat_penalty };
    scaled - (count as f32 * params.frequency_penalty + params.presence_penalty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn penalties_by_hand() {
        let params = SamplerParams {
            repeat_penalty: 2.0,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            ..Default::default()
        };
        let mut history = History::new(8);
        [2, 0, 2, 9].into_iter().for_each(|token| history.push(token));
        let mut out = vec![(7, 7.0)];
        history.penalize(&params, &[4.0, 1.0, -4.0, f32::NEG_INFINITY], &mut out);
        assert_eq!(out, [(0, 2.0 - 0.25 - 0.5), (2, -8.0 - 0.5 - 0.5)]);
        history.clear();
        history.penalize(&params, &[4.0], &mut out);
        assert_eq!(out, []);
    }

    proptest! {
        #[test]
        fn counts_equal_a_count_over_the_last_tokens(
            tokens in proptest::collection::vec(0u32..6, 0..40), limit in 0usize..10,
            frequency in -2f32..2.0, presence in -2f32..2.0, repeat in 0.5f32..2.0,
        ) {
            let params = SamplerParams {
                repeat_penalty: repeat, presence_penalty: presence, frequency_penalty: frequency,
                repeat_last_n: limit, ..Default::default()
            };
            let logits = [1.5, -0.5, 0.0, 3.0, f32::NEG_INFINITY, -9.0];
            let mut history = History::new(limit);
            tokens.iter().for_each(|&token| history.push(token));
            let mut out = Vec::new();
            history.penalize(&params, &logits, &mut out);

            let recent = &tokens[tokens.len().saturating_sub(limit)..];
            let expected: Vec<(u32, f32)> = (0..6u32)
                .filter_map(|id| {
                    let count = recent.iter().filter(|&&token| token == id).count();
                    let logit = logits[id as usize];
                    let scaled = if logit > 0.0 { logit / repeat } else { logit * repeat };
                    (count > 0).then_some((id, scaled - (count as f32 * frequency + presence)))
                })
                .collect();
            prop_assert_eq!(out, expected);
        }
    }
}

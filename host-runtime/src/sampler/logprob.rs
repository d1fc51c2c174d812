//! How probable tokens were.

use super::candidates::Candidates;
use super::exp::exp_nonpositive;

/// A token of a text, and how probable the model found it and the best of its alternatives: natural
/// logarithms of the probabilities over the whole vocabulary, before penalties, biases, filters and
/// temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub token: u32,
    /// Its logarithm.
    pub logprob: f32,
    /// The best tokens with theirs, best first.
    pub top: Vec<(u32, f32)>,
}

impl TokenLogprob {
    /// That of `token`, with the `n` best tokens; from the logits of a row, of which one is above negative
    /// infinity.
    pub fn new(logits: &[f32], token: u32, n: usize) -> Self {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| exp_nonpositive(f64::from(logit) - f64::from(best))).sum();
        let whole = f64::from(best) + sum.ln();
        let logprob = |logit: f32| (f64::from(logit) - whole) as f32;
        let top = match n {
            0 => Vec::new(),
            n => {
                let mut candidates = Candidates::default();
                candidates.fill(logits, &[], n);
                candidates.iter().map(|(id, logit)| (id, logprob(logit))).collect()
            }
        };
        let own = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        Self { token, logprob: logprob(own), top }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_by_hand() {
        // e^0 + e^1 + e^1 = 1 + 2e
        let row = [0.0, 1.0, f32::NEG_INFINITY, 1.0];
        let whole = (1.0 + 2.0 * std::f64::consts::E).ln();
        let found = TokenLogprob::new(&row, 0, 3);
        let expected = |logit: f64| (logit - whole) as f32;
        let top = vec![(1, expected(1.0)), (3, expected(1.0)), (0, expected(0.0))];
        assert_eq!(found, TokenLogprob { token: 0, logprob: expected(0.0), top });
        assert_eq!(TokenLogprob::new(&row, 2, 0).logprob, f32::NEG_INFINITY);
    }

    #[test]
    fn they_add_up_to_one() {
        let row: Vec<f32> =
            (0..3000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32 / 16.0).collect();
        let all = TokenLogprob::new(&row, 7, row.len());
        let sum: f64 = all.top.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        assert!(all.top.is_sorted_by(|a, b| a.1 >= b.1));
    }
}

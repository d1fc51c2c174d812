//! The candidate list that the filters narrow down.
//!
//! Order is by logit, and by id among equals: the first maximum is the best everywhere, so device argmax,
//! greedy sampling and `top_k = 1` agree.

use std::cmp::Ordering;

use super::exp::exp_nonpositive;

/// Room beyond twice `k` in which top-k collects before it selects.
const SLACK: usize = 1024;
/// First step of partial sorting; nucleus filters seldom need more.
const SORT_STEP: usize = 256;

/// A token that may still be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logit: f32,
    /// Probability relative to the best candidate, before temperature; set by [`Candidates::weigh`].
    weight: f64,
}

fn best_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Candidates in a buffer that is kept between tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    /// How many at the front are in final order; the rest is worse than they are.
    sorted: usize,
    best: f32,
}

impl Candidates {
    /// Takes the `k` best logits (0: all), leaving out -inf; `changed` replaces some logits, by ascending id.
    pub(super) fn fill(&mut self, logits: &[f32], changed: &[(u32, f32)], k: usize) {
        self.list.clear();
        self.sorted = 0;
        let k = if k == 0 { usize::MAX } else { k };
        let room = k.saturating_mul(2).saturating_add(SLACK);
        let mut threshold = f32::NEG_INFINITY;
        let mut changed = changed.iter().copied().peekable();
        for (id, &logit) in (0..).zip(logits) {
            let logit = changed.next_if(|change| change.0 == id).map_or(logit, |change| change.1);
            // Ids ascend, so an equal logit met later is the worse one.
            if logit > threshold {
                self.list.push(Candidate { id, logit: logit + 0.0, weight: 0.0 });
                if self.list.len() == room {
                    self.keep_best(k);
                    threshold = self.list[k - 1].logit;
                }
            }
        }
        if self.list.len() > k {
            self.keep_best(k);
        }
        if k != usize::MAX {
            self.sort_front(self.list.len());
        }
        self.best = self.list.iter().fold(f32::NEG_INFINITY, |best, c| best.max(c.logit));
    }

    /// Drops all but the `k` best, which is linear in the length.
    fn keep_best(&mut self, k: usize) {
        self.list.select_nth_unstable_by(k - 1, best_first);
        self.list.truncate(k);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Largest logit.
    pub(super) fn best(&self) -> f32 {
        self.best
    }

    /// The candidates with their logits.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, f32)> {
        self.list.iter().map(|c| (c.id, c.logit))
    }

    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<u32> {
        self.list.iter().map(|c| c.id).collect()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.list.capacity()
    }

    /// Computes weights, which top-p and min-p compare.
    pub(super) fn weigh(&mut self) {
        for c in &mut self.list {
            c.weight = exp_nonpositive(f64::from(c.logit) - f64::from(self.best));
        }
    }

    /// Puts the `upto` best into order at the front.
    fn sort_front(&mut self, upto: usize) {
        let (_, rest) = self.list.split_at_mut(self.sorted);
        let step = upto - self.sorted;
        if step < rest.len() {
            rest.select_nth_unstable_by(step, best_first);
        }
        rest[..step].sort_unstable_by(best_first);
        self.sorted = upto;
    }

    /// Keeps the best candidates that together reach the share `p` of all weights, at least one.
    pub(super) fn top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let target = self.list.iter().map(|c| c.weight).sum::<f64>() * f64::from(p);
        let mut sum = 0.0;
        for i in 0..self.list.len() {
            if i == self.sorted {
                self.sort_front((4 * i).max(SORT_STEP).min(self.list.len()));
            }
            sum += self.list[i].weight;
            if sum >= target {
                self.list.truncate(i + 1);
                self.sorted = self.list.len();
                return;
            }
        }
    }

    /// Drops candidates below the fraction `p` of the best one's probability; the best one has weight 1.
    pub(super) fn min_p(&mut self, p: f32) {
        if p > 0.0 {
            self.list.retain(|c| c.weight >= f64::from(p));
            self.sorted = self.sorted.min(self.list.len());
        }
    }

    /// The candidate at `point` (0 to below 1) of the distribution at `temperature`.
    pub(super) fn pick(&mut self, temperature: f32, point: f64) -> u32 {
        let mut sum = 0.0;
        for c in &mut self.list {
            c.weight = exp_nonpositive((f64::from(c.logit) - f64::from(self.best)) / f64::from(temperature));
            sum += c.weight;
        }
        let target = sum * point;
        let mut run = 0.0;
        // The best candidate has weight 1, so there is one with weight; the last such catches rounding.
        let mut chosen = 0;
        for c in self.list.iter().filter(|c| c.weight > 0.0) {
            run += c.weight;
            chosen = c.id;
            if run > target {
                break;
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules spelled out on a fully sorted list: ids that are left, best first.
    fn naive(logits: &[f32], k: usize, p: f32, min_p: f32) -> Vec<u32> {
        let mut list: Vec<(u32, f64)> =
            (0..).zip(logits).filter(|(_, l)| l.is_finite()).map(|(id, &l)| (id, f64::from(l))).collect();
        list.sort_by(|a, b| b.1.total_cmp(&a.1));
        if k > 0 {
            list.truncate(k);
        }
        let best = list[0].1;
        list.iter_mut().for_each(|c| c.1 = (c.1 - best).exp());
        if p < 1.0 {
            let total: f64 = list.iter().map(|c| c.1).sum();
            let mut reached = 0.0;
            let before_target = |c: &&(u32, f64)| {
                reached += c.1;
                reached < total * f64::from(p)
            };
            let keep = list.iter().take_while(before_target).count() + 1;
            list.truncate(keep);
        }
        list.into_iter().filter(|c| c.1 >= f64::from(min_p)).map(|c| c.0).collect()
    }

    /// Multiples of a quarter: many ties, and no sum so close to a bound that rounding decides.
    fn logits() -> impl Strategy<Value = Vec<f32>> {
        let logit =
            prop_oneof![20 => (-40i8..40).prop_map(|q| f32::from(q) / 4.0), 1 => Just(f32::NEG_INFINITY)];
        let list = prop_oneof![4 => proptest::collection::vec(logit.clone(), 1..60), 1 => proptest::collection::vec(logit, 1500..4000)];
        list.prop_filter("one must be allowed", |list| list.iter().any(|l| l.is_finite()))
    }

    proptest! {
        #[test]
        fn filters_equal_the_sorted_reference(
            logits in logits(), k in prop_oneof![Just(0usize), 1usize..50, Just(1200)],
            p in prop_oneof![Just(1f32), Just(0.0), 0.01f32..0.99], min_p in prop_oneof![Just(0f32), 0.01f32..1.0],
        ) {
            let mut candidates = Candidates::default();
            candidates.fill(&logits, &[], k);
            candidates.weigh();
            candidates.top_p(p);
            candidates.min_p(min_p);
            let expected = naive(&logits, k, p, min_p);
            let mut got = candidates.ids();
            if k == 0 && p >= 1.0 {
                // Nothing needed an order: ids ascend.
                prop_assert!(got.is_sorted());
                got.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
            }
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn rising_logits_select_again_and_again() {
        let logits: Vec<f32> = (0..100_000u32).map(|i| i as f32).collect();
        let mut candidates = Candidates::default();
        candidates.fill(&logits, &[(99_999, -1.0)], 3);
        assert_eq!(candidates.ids(), [99_998, 99_997, 99_996]);
        assert_eq!(candidates.best(), 99_998.0);
    }

    #[test]
    fn the_first_of_equals_is_best() {
        let mut candidates = Candidates::default();
        candidates.fill(&[-0.0, 0.0, 0.0], &[], 1);
        assert_eq!(candidates.ids(), [0], "negative zero is zero");
    }

    #[test]
    fn picking_walks_the_distribution() {
        let mut candidates = Candidates::default();
        candidates.fill(&[0.0, 0.0, f32::NEG_INFINITY, 0.0], &[], 0);
        let picks = [0.0, 0.33, 0.34, 0.66, 0.67, 0.999].map(|point| candidates.pick(1.0, point));
        assert_eq!(picks, [0, 0, 1, 1, 3, 3]);
    }
}

//! Drafters on the host: what they guess next, and the best of it.

use super::drafter::Drafter;
use super::guess::Guess;
use super::odds::Odds;
use crate::model::is_picture_row;

/// A drafter and what is known of its drafts.
struct HostDrafter {
    drafter: Box<dyn Drafter>,
    guess: Guess,
    odds: Odds,
}

/// The drafters on the host. They guess for nothing, so all of them are asked each time, and what they guess
/// is compared with the text whether it was verified or not.
#[derive(Default)]
pub(super) struct HostDrafters {
    drafters: Vec<HostDrafter>,
    /// The one whose guess was chosen last.
    chosen: usize,
    text: Vec<u32>,
}

impl HostDrafters {
    pub(super) fn new(drafters: impl IntoIterator<Item = Box<dyn Drafter>>) -> Self {
        let host = |drafter| HostDrafter { drafter, guess: Guess::default(), odds: Odds::default() };
        Self { drafters: drafters.into_iter().map(host).collect(), chosen: 0, text: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.drafters.is_empty()
    }

    /// Another text begins, of which nothing is known yet.
    pub(super) fn begin(&mut self) {
        self.text.clear();
        for host in &mut self.drafters {
            host.drafter.begin();
            host.odds = Odds::default();
        }
    }

    /// The text goes on with these tokens, or with a prompt.
    pub(super) fn read(&mut self, tokens: &[u32]) {
        if !self.is_empty() {
            self.text.extend_from_slice(tokens);
        }
    }

    /// The text went on with `tokens`, which shows what was right.
    pub(super) fn show(&mut self, tokens: &[u32]) {
        for host in &mut self.drafters {
            tokens.iter().for_each(|&token| host.odds.push(token));
        }
    }

    /// All may learn from the text so far.
    pub(super) fn learn(&mut self) {
        for host in &mut self.drafters {
            host.drafter.learn(&self.text);
        }
    }

    /// Lets all guess up to `most` tokens after the text and `unseen` ones that are yet to become text. The
    /// best guess is the one that `worth` gives the highest value for: of the chances that the first 1, 2, ..
    /// tokens are all right, it makes a number of drafts and their value. `None` if it wants none of them.
    pub(super) fn guess(
        &mut self,
        unseen: &[u32],
        most: usize,
        worth: impl Fn(&[f64]) -> Option<(u32, f64)>,
    ) -> Option<Offer> {
        let known = self.text.len();
        self.text.extend_from_slice(unseen);
        let mut best: Option<(Offer, usize)> = None;
        for (i, host) in self.drafters.iter_mut().enumerate() {
            host.guess.truncate(0);
            let Some(&anchor) = self.text.last().filter(|_| most > 0) else { break };
            host.drafter.draft(&self.text, most, &mut host.guess);
            let tokens = host.guess.tokens().iter().position(|&id| is_picture_row(id));
            host.guess.truncate(tokens.unwrap_or(most).min(most));
            let n = host.guess.tokens().len();
            let chances = host.odds.of(anchor, host.guess.tokens(), Some(host.guess.margins()));
            let offer = worth(&chances[..n]).map(|(n, value)| Offer { n, value });
            best = match (best, offer) {
                (Some((best, _)), Some(offer)) if offer.value > best.value => Some((offer, i)),
                (None, Some(offer)) => Some((offer, i)),
                (best, _) => best,
            };
        }
        self.text.truncate(known);
        let (mut offer, chosen) = best?;
        self.chosen = chosen;
        offer.n = offer.n.min(self.drafters[chosen].guess.tokens().len() as u32);
        Some(offer)
    }

    /// The first `n` tokens of the guess that was best.
    pub(super) fn best(&self, n: u32) -> &[u32] {
        let tokens = self.drafters.get(self.chosen).map_or(&[][..], |host| host.guess.tokens());
        &tokens[..tokens.len().min(n as usize)]
    }
}

/// The best that drafters on the host have to offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// Drafts to verify, at least 1.
    pub n: u32,
    /// What that is worth, in tokens.
    pub value: f64,
}

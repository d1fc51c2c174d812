//! Rounds of a reference, run again: its drafts are those that are verified, so that a near-tie changes
//! nothing after it.

use hexflash::engine::Engine;
use hexflash_e2e::reference::DraftRounds;
use hexflash_e2e::{best_two, report};

/// What was compared, and what differed.
#[derive(Debug, Default)]
pub struct Compared {
    pub rounds: usize,
    pub tokens: usize,
    pub drafts: usize,
    pub other_drafts: usize,
    pub other_counts: usize,
}

impl Compared {
    /// Compares every round's drafts and accepted count. Where the two best logits are no more than
    /// `near_tie` apart ([`hexflash_e2e::near_tie`]), another choice is shown and counted.
    pub fn follow(
        &mut self,
        engine: &mut Engine,
        (prompt, ids): (&[u32], &[u32]),
        rounds: &DraftRounds,
        near_tie: f32,
        name: &str,
    ) {
        engine.reset();
        engine.prefill(prompt, |_| {}).unwrap();
        let (mut anchor, mut done) = (ids[0], 1);
        // A draft at the end of a text is cut, and not made for less: rows of a block see each other.
        let longest = rounds.drafts.iter().map(Vec::len).max().unwrap_or(0);
        for (round, (expected, &accepted)) in rounds.drafts.iter().zip(&rounds.accepted_per_round).enumerate()
        {
            let place = format!("{name}, round {round}");
            let drafts = engine.draft(anchor, longest as u32).unwrap();
            let drafts = &drafts[..expected.len()];
            let mut margins = vec![0.0; expected.len()];
            engine.read_margins(&mut margins);
            if let Some(i) = (0..drafts.len()).find(|&i| drafts[i] != expected[i]) {
                // What a chain has after a draft that differs is drafted for another text.
                report(format!("{place}: {drafts:?} instead of {expected:?}, {:.5} apart", margins[i]));
                assert!(margins[i] <= near_tie, "{place}: not a near-tie");
                self.other_drafts += 1;
            }
            let block: Vec<u32> = std::iter::once(anchor).chain(expected.iter().copied()).collect();
            engine.verify(&block).unwrap();
            let chosen: Vec<u32> = (0..block.len()).map(|row| engine.argmax(row)).collect();
            let kept = chosen.iter().zip(expected).take_while(|(a, b)| a == b).count();
            let next = ids.get(done + accepted);
            // Another token behind the accepted ones is another choice, too.
            if kept != accepted || next.is_some_and(|&id| id != chosen[accepted]) {
                let [best, second] = best_two(engine.logits(kept.min(accepted)));
                let gap = best.1 - second.1;
                report(format!(
                    "{place}: {kept} accepted and then {} instead of {accepted} and then {next:?}, {gap:.5} apart",
                    chosen[kept]
                ));
                assert!(gap <= near_tie, "{place}: not a near-tie");
                self.other_counts += 1;
            }
            engine.commit(accepted as u32 + 1).unwrap();
            anchor = next.copied().unwrap_or(chosen[accepted]);
            done += accepted + 1;
            self.rounds += 1;
            self.tokens += accepted + 1;
            self.drafts += drafts.len();
        }
        // What is left of the budget may be too little for a round.
        assert!(done + longest >= ids.len());
    }

    /// That a few per thousand differ at most.
    pub fn assert_few(&self) {
        assert!(200 * (self.other_drafts + self.other_counts) <= self.drafts, "{self:?}");
    }
}

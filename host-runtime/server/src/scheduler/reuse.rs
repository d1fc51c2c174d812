//! What a sequence at rest has of a new prompt, and where prompts leave snapshots for later ones.
//!
//! Dense models go back to any token. The state of a hybrid goes back only to places at which it was saved,
//! so that prompts are read in pieces that end where a later prompt is likely to part: where a turn begins,
//! every so many tokens, and a few tokens before the end.

use std::cmp::Reverse;

/// Turns of a prompt at whose beginnings the state is saved, the last ones: who edits a conversation seldom
/// goes further back, and a piece of a prompt that is cut short costs time.
const TURNS: usize = 8;
/// Fewest tokens between two places. Computing fewer again is not worth a snapshot.
const GAP: usize = 16;
/// The state is saved after every so many tokens in any case.
const EVERY: usize = 512;
/// Tokens before the end of the prompt at which it is saved. The next prompt is often the same up to there:
/// the last tokens open the turn of the model, or the answer's text was split into other tokens together with
/// what came before it.
const BEFORE_END: usize = 4;

/// Tokens that two texts have in common at their beginning.
pub(super) fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A sequence at rest that a prompt could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its slot.
    pub(super) slot: usize,
    /// Tokens of the prompt that it could go on from.
    pub(super) reach: usize,
    /// Tokens of an earlier prompt that it would forget. What was generated after that does not count.
    pub(super) forgets: usize,
    /// When it was last used; 0 if never.
    pub(super) used: u64,
}

/// The sequence for a prompt of so many tokens: the one that spares most, unless it would forget more than it
/// spares, as the text of another conversation that begins alike; then the one that was not used for the
/// longest time. Where most of the prompt is there, an earlier turn of the same conversation was edited, and
/// what followed it may be twice as much.
pub(super) fn choose(prompt: usize, candidates: impl Iterator<Item = Candidate>) -> Option<Candidate> {
    let spares = |c: &Candidate| {
        let is_edited = 2 * c.reach >= prompt && 2 * c.reach >= c.forgets;
        if c.reach >= c.forgets || is_edited { c.reach } else { 0 }
    };
    candidates.max_by_key(|c| (spares(c), Reverse(c.used)))
}

/// Places in `prompt` behind the first `from` tokens at which its state is to be saved, ascending: the last
/// `most` of them. `is_control` says which tokens are no text.
pub(super) fn places(
    prompt: &[u32],
    from: usize,
    most: usize,
    is_control: impl Fn(u32) -> bool,
) -> Vec<usize> {
    let end = prompt.len().saturating_sub(BEFORE_END);
    let mut found = Vec::new();
    let mut last = prompt.len();
    let mut turns = 0;
    for place in (from + 1..=end).rev() {
        if found.len() == most {
            break;
        }
        let begins_turn = turns < TURNS && is_control(prompt[place]) && last - place >= GAP;
        let is_due = place % EVERY == 0;
        if place == end || begins_turn || is_due {
            turns += usize::from(begins_turn);
            last = place;
            found.push(place);
        }
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(slot: usize, reach: usize, forgets: usize, used: u64) -> Candidate {
        Candidate { slot, reach, forgets, used }
    }

    fn chosen(candidates: &[Candidate]) -> usize {
        choose(1000, candidates.iter().copied()).unwrap().slot
    }

    #[test]
    fn the_sequence_that_spares_most_is_taken() {
        assert_eq!(chosen(&[candidate(0, 10, 0, 5), candidate(1, 30, 0, 2), candidate(2, 0, 0, 0)]), 1);
    }

    #[test]
    fn another_conversation_that_begins_alike_is_spared() {
        let (other, empty) = (candidate(0, 50, 400, 9), candidate(1, 0, 0, 0));
        assert_eq!(chosen(&[other, empty]), 1);
        // A short one is not worth that.
        assert_eq!(chosen(&[candidate(0, 50, 20, 9), empty]), 0);
        // Where there is none that spares anything, the oldest goes.
        assert_eq!(chosen(&[other, candidate(1, 3, 90, 4), candidate(2, 3, 90, 7)]), 1);
        assert_eq!(choose(10, [].into_iter()), None);
        // An edit of an early turn: most of the prompt is there, and more comes after it. Where that is too
        // much, or little of the prompt is there, another sequence takes it.
        let edited = |prompt, forgets| {
            let all = [candidate(0, 115, forgets, 9), candidate(1, 0, 0, 0)];
            choose(prompt, all.into_iter()).map(|found| found.slot)
        };
        assert_eq!([edited(153, 129), edited(153, 300), edited(400, 129)], [Some(0), Some(1), Some(1)]);
    }

    /// More places than any of these prompts has.
    const MANY: usize = 100;

    /// Turns of 20 tokens that begin with token 0.
    fn conversation(turns: usize) -> Vec<u32> {
        (0..turns * 20).map(|i| u32::from(i % 20 != 0)).collect()
    }

    #[test]
    fn places_are_the_beginnings_of_the_last_turns_and_the_end() {
        let is_control = |token| token == 0;
        assert_eq!(places(&conversation(4), 0, MANY, is_control), [20, 40, 60, 76]);
        assert_eq!(places(&conversation(4), 40, MANY, is_control), [60, 76], "the others were there before");
        assert_eq!(
            places(&conversation(30), 0, MANY, is_control),
            [420, 440, 460, 480, 512, 520, 540, 560, 580, 596]
        );
        assert!(places(&conversation(4), 79, MANY, is_control).is_empty());
        assert_eq!(places(&conversation(4), 0, 2, is_control), [60, 76], "the last two");
        assert!(places(&[1, 1], 0, MANY, is_control).is_empty());
    }

    #[test]
    fn long_texts_without_turns_have_places_too() {
        let text = vec![1; 3 * EVERY];
        assert_eq!(places(&text, 0, MANY, |_| false), [EVERY, 2 * EVERY, 3 * EVERY - BEFORE_END]);
    }

    #[test]
    fn texts_are_compared_from_their_beginning() {
        assert_eq!(common(&[1, 2, 3], &[1, 2, 4, 3]), 2);
        assert_eq!(common(&[], &[1]), 0);
    }
}

//! Texts that come about in many ways: what a draft model then knows is what it knows of a prompt.

use hexflash::engine::{Engine, SequenceId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// The drafts after a text, as many as there may be, and their margins: all bits of what the model knows.
pub fn guesses(engine: &mut Engine, anchor: u32) -> (Vec<u32>, Vec<u32>) {
    let n = engine.draft_room();
    let drafts = engine.draft(anchor, n).unwrap().to_vec();
    let mut margins = vec![0.0; n as usize];
    engine.read_margins(&mut margins);
    (drafts, margins.into_iter().map(f32::to_bits).collect())
}

/// The guesses of an engine that has all of a text but its last token, which is the anchor.
pub fn guesses_after(engine: &mut Engine, text: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (&anchor, before) = text.split_last().unwrap();
    engine.reset();
    engine.prefill(before, |_| {}).unwrap();
    guesses(engine, anchor)
}

/// A way to change a text that was written so far, which the whole text begins with.
pub type Way = fn(&mut Engine, text: &[u32], &mut Pcg32);

/// Goes back by up to 30 tokens; gives the place.
pub fn cut(engine: &mut Engine, random: &mut Pcg32) -> usize {
    let past = engine.n_past() as usize;
    let to = random.random_range(past.saturating_sub(30).max(1)..=past);
    engine.sequence(SequenceId::FIRST).unwrap().roll_back(to as u32).unwrap();
    to
}

/// Writes a text in prompts of any length, in plain steps, in blocks of which some tokens were taken back,
/// after drafts, and in `more` ways, the last of which makes it shorter. Its drafts are those of `straight`,
/// which gets the text as one prompt.
pub fn check([straight, engine]: [&mut Engine; 2], text: &[u32], more: &[Way], what: &str) {
    let mut random = Pcg32::seed_from_u64(3);
    let mut expected = |n: usize| guesses_after(straight, &text[..=n]);
    engine.prefill(&text[..1], |_| {}).unwrap();
    let mut ways = vec![0; 4 + more.len()];
    for turn in 0..150 {
        let past = engine.n_past() as usize;
        let way = if past + 40 > text.len() { ways.len() - 1 } else { random.random_range(0..ways.len()) };
        ways[way] += 1;
        let n = random.random_range(1..=16);
        let next = &text[past..past + n.min(text.len() - past)];
        match way {
            0 => engine.prefill(next, |_| {}).unwrap(),
            1 => next.iter().for_each(|&token| engine.decode(token).unwrap()),
            2 | 3 => {
                // The first `kept` tokens are the text's.
                let kept = random.random_range(0..=next.len());
                let block: Vec<u32> = (0..next.len()).map(|i| if i < kept { next[i] } else { 9 }).collect();
                engine.verify(&block).unwrap();
                engine.commit(kept as u32).unwrap();
            }
            _ => more[way - 4](engine, text, &mut random),
        }
        let n = engine.n_past() as usize;
        if random.random_bool(0.5) {
            assert_eq!(guesses(engine, text[n]), expected(n), "{what}, turn {turn}, way {way}, {n} tokens");
        }
    }
    assert!(ways.iter().all(|&n| n > 5), "{ways:?}");
}

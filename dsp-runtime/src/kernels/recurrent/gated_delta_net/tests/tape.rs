//! The factor tape: whatever is deferred, taken back and folded later, outputs and states are bit for bit
//! those of plain decoding.

use hexflash_abi::ErrorCode;
use hexflash_abi::registers::Register;

use super::*;

/// Width of a block, and depth of the tape, unless a test says otherwise.
const WIDTH: usize = 16;

/// What plain decoding gives: y {S,H,B} per token, and the states after so many.
struct Plain {
    y: Vec<Vec<f32>>,
    states: Vec<Vec<f32>>,
}

impl Plain {
    fn of(case: &Case) -> Self {
        let mut bench = Bench::new(case, 1, 0);
        let (mut y, mut states) = (Vec::new(), vec![Vec::new()]);
        for t in 0..case.tokens {
            y.push(bench.step(setups()[0], &[t], StepRegisters::step(t as u32, 1), None).unwrap());
            states.push(bench.state());
        }
        Self { y, states }
    }
}

/// A sequence under way, some of its tokens in the state and the others on the tape.
struct Run<'p> {
    bench: Bench,
    plain: &'p Plain,
    setup: Setup,
    name: String,
    past: usize,
    /// Tokens on the tape that were kept.
    kept: usize,
}

impl<'p> Run<'p> {
    fn new(case: &Case, plain: &'p Plain, setup: Setup) -> Self {
        let Case { size, key_heads, ratio, sequences, shared, each, .. } = case;
        let name = format!("S={size} Hk={key_heads} x{ratio} B={sequences}/{shared} each={each} {setup:?}");
        Self { bench: Bench::new(case, WIDTH, WIDTH), plain, setup, name, past: 0, kept: 0 }
    }

    /// The next `right` tokens, then `wrong` others; checks the outputs of the right ones.
    fn go(&mut self, right: usize, wrong: usize, defer: Option<bool>) {
        let last = self.plain.y.len() - 1;
        let mut rows: Vec<_> = (self.past..self.past + right).collect();
        rows.extend((0..wrong).map(|i| (last - i + self.past) % last));
        let step = StepRegisters::step(self.past as u32, rows.len() as u32)
            .with(Register::NCommit, self.kept as u32);
        let y = self.bench.step(self.setup, &rows, step, defer).unwrap();
        let (sequences, n) = (self.bench.shapes[2].1, rows.len());
        let row = y.len() / n / sequences;
        for t in 0..right {
            let y = (0..sequences).flat_map(|b| &y[(b * n + t) * row..][..row]).copied();
            let (y, expected) = (y.collect::<Vec<_>>(), &self.plain.y[self.past + t]);
            assert_eq!(bits(&y), bits(expected), "y of token {}, {}", self.past + t, self.name);
        }
        // What was on the tape is in the state now. A state of nothing is not in memory.
        let folded = if defer == Some(true) { self.past } else { self.past + n };
        if folded > 0 && (wrong == 0 || defer == Some(true)) {
            let state = bits(&self.bench.state());
            assert!(state == bits(&self.plain.states[folded]), "state after {folded}, {}", self.name);
        }
        (self.past, self.kept) = (self.past + right, if defer == Some(true) { right } else { 0 });
    }
}

/// Shapes of every kind: head ratios, sequences, states that do and do not fill vectors.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for each in [false, true] {
        for (size, key_heads, ratio, sequences, shared) in
            [(128, 2, 2, 1, 1), (64, 1, 3, 2, 1), (33, 2, 3, 4, 2), (16, 3, 1, 2, 2), (1, 1, 1, 1, 1)]
        {
            cases.push(Case { size, key_heads, ratio, sequences, shared, tokens: 44, each, ..CASE });
        }
    }
    cases
}

/// However wide the block and whatever follows: the state's memory is as it was, even if that is garbage.
#[test]
fn deferred_steps_leave_the_state_alone() {
    for case in cases() {
        let plain = Plain::of(&case);
        for setup in setups() {
            for past in [0, 5] {
                let mut run = Run::new(&case, &plain, setup);
                if past > 0 {
                    run.go(past, 0, Some(false));
                }
                let before = bits(&run.bench.state());
                for tokens in [1, 2, 7, 16] {
                    run.go(tokens, 0, Some(true));
                    assert_eq!(bits(&run.bench.state()), before, "{}", run.name);
                    // All of it is taken back.
                    (run.past, run.kept) = (past, 0);
                }
                // And nothing of it was left anywhere.
                run.go(3, 0, Some(false));
            }
        }
    }
}

/// Blocks of T tokens of which m are kept, for all T and m, from nothing and from a state; then a step that
/// folds them, deferred or not, and one more.
#[test]
fn every_prefix_can_be_kept() {
    for (i, case) in cases().into_iter().enumerate() {
        let plain = Plain::of(&case);
        let setups = setups();
        for (tokens, kept) in (1..=WIDTH).flat_map(|t| (0..=t).map(move |m| (t, m))) {
            for defer in [false, true] {
                for past in [0, 5] {
                    // In turn, so that every setup meets every T.
                    let setup = setups[(tokens + kept + past + i) % setups.len()];
                    let mut run = Run::new(&case, &plain, setup);
                    if past > 0 {
                        run.go(past, 0, Some(false));
                    }
                    run.go(kept, tokens - kept, Some(true));
                    run.go(1 + kept % 4, 0, Some(defer));
                    run.go(2, 0, Some(false));
                }
            }
        }
    }
}

/// Rounds of random widths and luck, with plain steps in between, some of them without the tape's operands.
#[test]
fn chains_of_rounds() {
    for case in cases().into_iter().map(|case| Case { tokens: 100, ..case }) {
        let plain = Plain::of(&case);
        for (seed, setup) in setups().into_iter().enumerate() {
            let mut dice = random(7 + seed as u64, 1000, 0.0, 1.0).into_iter();
            let mut below = |n: usize| (dice.next().unwrap() * n as f32) as usize;
            let mut run = Run::new(&case, &plain, setup);
            while run.past + WIDTH <= case.tokens {
                let tokens = 1 + below(WIDTH);
                match below(10) {
                    0 if run.kept == 0 => run.go(tokens, 0, None),
                    1 => run.go(tokens, 0, Some(false)),
                    _ => {
                        let kept = below(tokens + 1);
                        run.go(kept, tokens - kept, Some(true));
                    }
                }
            }
            run.go(1, 0, Some(false));
        }
    }
}

/// A tape wants a place for the copy that is thrown away, next to the state: less is refused at `Load`, and
/// where one state fits at a time, the bits are the same.
#[test]
fn little_vtcm() {
    let case = Case { size: 128, key_heads: 8, tokens: 44, ..CASE };
    let plain = Plain::of(&case);
    for setup in setups() {
        let tight = Setup { vtcm_bytes: setup.workers * (133 << 10), ..setup };
        let mut run = Run::new(&case, &plain, tight);
        for (right, wrong) in [(3, 4), (0, 2), (16, 0), (1, 7)] {
            run.go(right, wrong, Some(true));
        }
        run.go(2, 0, Some(false));

        let less = Setup { vtcm_bytes: setup.workers * (68 << 10), ..setup };
        let fault =
            Run::new(&case, &plain, less).bench.step(less, &[0], StepRegisters::step(0, 1), Some(true));
        assert_eq!(fault.unwrap_err().code, ErrorCode::VtcmTooSmall);
        Run::new(&case, &plain, less).go(2, 0, None);
    }
}

/// A commit of what no tape holds, or of more than there was. Nothing is read or written for it.
#[test]
fn commits_that_cannot_be() {
    let case = Case { size: 32, ..CASE };
    for setup in setups() {
        for (depth, past, commit, defer) in [
            (4, 10, 5, Some(false)),
            (4, 10, 5, Some(true)),
            (4, 10, u32::MAX, Some(true)),
            (4, 2, 3, Some(false)),
            (4, 0, 1, Some(true)),
            (4, 10, 1, None),
            (0, 10, 1, None),
        ] {
            let mut bench = Bench::new(&case, 4, depth);
            let before = bits(&bench.state());
            let step = StepRegisters::step(past, 2).with(Register::NCommit, commit);
            let fault = bench.step(setup, &[0, 1], step, defer).unwrap_err();
            assert_eq!((fault.code, fault.detail), (ErrorCode::BadRegister, Register::NCommit.wire()));
            let untouched = bench.tape.iter().chain([&bench.y]);
            assert!(untouched.flat_map(|&t| bench.batch.floats(t)).all(|x| x.is_nan()));
            assert_eq!((bits(&bench.state()), bench.batch.moved), (before, 0));
        }
    }
}

/// A program for single tokens folds what one for blocks has taped.
#[test]
fn a_tape_deeper_than_the_token_axis() {
    let case = Case { size: 64, ratio: 2, ..CASE };
    let plain = Plain::of(&case);
    for setup in setups() {
        // Five tokens taped in a step of up to 6, read by a program for steps of one.
        let mut wide = Bench::new(&case, 6, 9);
        wide.step(setup, &[0, 1, 2, 3, 4, 15], StepRegisters::step(0, 6), Some(true)).unwrap();
        let mut narrow = Bench::new(&case, 1, 9);
        for (from, to) in wide.tape.iter().zip(&narrow.tape) {
            narrow.batch.write(*to, wide.batch.read(*from));
        }
        let step = StepRegisters::step(5, 1).with(Register::NCommit, 5);
        let y = narrow.step(setup, &[5], step, Some(true)).unwrap();
        assert_eq!(bits(&y), bits(&plain.y[5]));
        assert_eq!(bits(&narrow.state()), bits(&plain.states[5]));
    }
}

/// Bytes moved: a state comes in unless it is zeros, and goes out if it is another then.
#[test]
fn traffic() {
    for (size, sequences) in [(128, 1), (64, 2), (33, 2), (16, 1)] {
        let case = Case { size, sequences, ratio: 2, ..CASE };
        let states = (4 * size * size * case.heads() * sequences) as u64;
        for setup in setups() {
            let mut bench = Bench::new(&case, WIDTH, WIDTH);
            let mut moved = |past, tokens, commit, defer| {
                let step = StepRegisters::step(past, tokens).with(Register::NCommit, commit);
                let rows: Vec<_> = (0..tokens as usize).collect();
                bench.step(setup, &rows, step, defer).unwrap();
                assert_eq!(bench.batch.moved % states, 0);
                bench.batch.moved / states
            };
            for tokens in [1, 2, 16] {
                // The first block of a sequence, and the one that folds it.
                assert_eq!(moved(0, tokens, 0, Some(true)), 0, "{setup:?}");
                assert_eq!(moved(tokens, tokens, tokens, Some(true)), 1);
                // Later ones: one read and one write, however many tokens; nothing to fold, nothing to write.
                assert_eq!(moved(2 * tokens, tokens, 1, Some(true)), 2);
                assert_eq!(moved(2 * tokens, tokens, tokens, Some(true)), 2);
                assert_eq!(moved(2 * tokens, tokens, 0, Some(true)), 1);
                // As for plain tokens.
                assert_eq!(moved(2 * tokens, tokens, tokens, Some(false)), 2);
                assert_eq!(moved(0, tokens, 0, None), 1);
                assert_eq!(moved(1, tokens, 0, None), 2);
            }
        }
    }
}

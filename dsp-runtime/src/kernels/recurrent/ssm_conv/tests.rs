use hexflash_abi::ErrorCode;
use hexflash_abi::op::{Op, params};
use hexflash_abi::registers::{Register, StepRegisters};

use crate::testing::{Batch, Setup, nmse, random, setups};

/// A convolution over a whole sequence, fed in steps.
struct Case {
    channels: usize,
    taps: usize,
    ring: usize,
    sequences: usize,
    tokens: usize,
    silu: bool,
}

impl Case {
    fn x(&self) -> Vec<f32> {
        random(1, self.channels * self.tokens * self.sequences, -1.0, 1.0)
    }

    fn w(&self) -> Vec<f32> {
        random(2, self.channels * self.taps, -1.0, 1.0)
    }

    /// As `run`, by blocks of `block` rows of which (in turn) the first `kept` stay: the others are garbage
    /// that is taken back. A plain step of one row ends it, which commits what is on the tape.
    fn run_deferred(&self, setup: Setup, block: usize, kept: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let &Case { channels, taps, ring, sequences, tokens, .. } = self;
        let mut batch = Batch::new(block as u32, (tokens + block) as u32);
        let ne = |n: usize| [channels as u32, n as u32, sequences as u32, 1];
        let nothing = |n: usize| vec![f32::NAN; channels * n * sequences];
        let [x, y] = [(); 2].map(|()| {
            let whole = batch.f32(ne(block), &nothing(block));
            batch.view(whole, |t| t.token_axis = 1)
        });
        let w = batch.f32([channels as u32, taps as u32, 1, 1], &self.w());
        let [ring, tape] = [ring, block + 1].map(|n| batch.f32(ne(n), &nothing(n)));
        let (all, mut out, mut past, mut commit) = (self.x(), vec![0.0; channels * tokens * sequences], 0, 0);
        let mut turns = kept.iter().cycle();
        while past < tokens {
            let left = tokens - past;
            let (n, kept) = if left == 1 { (1, 1) } else { (block, (*turns.next().unwrap()).min(left - 1)) };
            let mut rows = nothing(block);
            for b in 0..sequences {
                let (from, to, good) =
                    ((b * tokens + past) * channels, b * block * channels, kept * channels);
                rows[to..to + good].copy_from_slice(&all[from..from + good]);
            }
            batch.write(x, zerocopy::IntoBytes::as_bytes(&rows[..]));
            let step = StepRegisters::step(past as u32, n as u32).with(Register::NCommit, commit as u32);
            let params = params::SsmConv { defer: u32::from(left > 1), silu: u32::from(self.silu) };
            batch.run(setup, Op::SsmConv, &[x, w, ring], &[y, tape], &params, step).unwrap();
            let found = batch.floats(y);
            for b in 0..sequences {
                let (to, from, good) =
                    ((b * tokens + past) * channels, b * block * channels, kept * channels);
                out[to..to + good].copy_from_slice(&found[from..from + good]);
            }
            (past, commit) = (past + kept, if left == 1 { 0 } else { kept });
        }
        (out, batch.floats(ring))
    }

    /// y and the final ring, by [sequence][token][channel]. The ring starts with garbage.
    fn run(&self, setup: Setup, steps: &[usize]) -> (Vec<f32>, Vec<f32>) {
        let &Case { channels, taps, ring, sequences, tokens, .. } = self;
        assert_eq!(steps.iter().sum::<usize>(), tokens);
        let most = steps.iter().copied().max().unwrap();
        let mut batch = Batch::new(most as u32, tokens as u32);
        let ne = |n: usize| [channels as u32, n as u32, sequences as u32, 1];
        // Room for the longest step; the token axis cuts it.
        let tokened = |batch: &mut Batch| {
            let whole = batch.f32(ne(most), &vec![f32::NAN; channels * most * sequences]);
            batch.view(whole, |t| t.token_axis = 1)
        };
        let (x, y) = (tokened(&mut batch), tokened(&mut batch));
        let w = batch.f32([channels as u32, taps as u32, 1, 1], &self.w());
        let ring = batch.f32(ne(ring), &vec![f32::NAN; channels * ring * sequences]);
        let (all, mut out, mut past) = (self.x(), vec![0.0; channels * tokens * sequences], 0);
        for &n in steps {
            let mut part = vec![f32::NAN; channels * most * sequences];
            for b in 0..sequences {
                let (from, to) = ((b * tokens + past) * channels, b * most * channels);
                part[to..to + n * channels].copy_from_slice(&all[from..from + n * channels]);
            }
            batch.write(x, zerocopy::IntoBytes::as_bytes(&part[..]));
            let step = StepRegisters::step(past as u32, n as u32);
            batch
                .run(
                    setup,
                    Op::SsmConv,
                    &[x, w, ring],
                    &[y],
                    &params::SsmConv { defer: 0, silu: u32::from(self.silu) },
                    step,
                )
                .unwrap();
            let part = batch.floats(y);
            for b in 0..sequences {
                let (to, from) = ((b * tokens + past) * channels, b * most * channels);
                out[to..to + n * channels].copy_from_slice(&part[from..from + n * channels]);
            }
            past += n;
        }
        (out, batch.floats(ring))
    }

    fn expected(&self) -> Vec<f32> {
        let &Case { channels, taps, sequences, tokens, .. } = self;
        let (x, w) = (self.x(), self.w());
        let mut y = Vec::new();
        for b in 0..sequences {
            for t in 0..tokens {
                y.extend((0..channels).map(|c| {
                    let term = |j: usize| {
                        let p = (t + j).checked_sub(taps - 1)?;
                        Some(f64::from(w[j * channels + c]) * f64::from(x[(b * tokens + p) * channels + c]))
                    };
                    (0..taps).filter_map(term).sum::<f64>() as f32
                }));
            }
        }
        y
    }
}

#[test]
fn matches_the_definition_however_it_is_fed() {
    let cases = [
        Case { channels: 33, taps: 4, ring: 4, sequences: 1, tokens: 16, silu: false },
        Case { channels: 6 * 256 + 37, taps: 4, ring: 19, sequences: 2, tokens: 40, silu: false },
        Case { channels: 300, taps: 1, ring: 1, sequences: 2, tokens: 5, silu: false },
        Case { channels: 256, taps: 2, ring: 3, sequences: 3, tokens: 9, silu: false },
        Case { channels: 192, taps: 4, ring: 4, sequences: 2, tokens: 23, silu: false },
        Case { channels: 96, taps: 3, ring: 5, sequences: 1, tokens: 10, silu: false },
        Case { channels: 64, taps: 32, ring: 33, sequences: 1, tokens: 70, silu: false },
    ];
    for case in cases {
        let whole = case.run(setups()[0], &[case.tokens]);
        let error = nmse(&whole.0, &case.expected());
        assert!(error <= 1e-10, "C={} K={}: {error}", case.channels, case.taps);
        // The last R rows that there are, each at its position mod R.
        for p in case.tokens.saturating_sub(case.ring)..case.tokens {
            let (x, at) = (case.x(), p % case.ring * case.channels);
            assert_eq!(whole.1[at..at + case.channels], x[p * case.channels..][..case.channels], "row {p}");
        }
        let n = case.tokens;
        let feeds = [vec![n], vec![1; n], vec![2, n - 3, 1], vec![n - 1, 1]];
        for setup in setups() {
            for steps in &feeds {
                let (y, ring) = case.run(setup, steps);
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&y), bits(&whole.0), "C={} {setup:?} {steps:?}", case.channels);
                assert_eq!(bits(&ring), bits(&whole.1), "ring, C={} {setup:?} {steps:?}", case.channels);
            }
        }
    }
}

/// Blocks of which any number of rows stay: the same results, and in the end the same ring, as without
/// blocks.
#[test]
fn rows_that_are_taken_back_leave_no_trace() {
    let cases = [
        Case { channels: 33, taps: 4, ring: 4, sequences: 1, tokens: 40, silu: false },
        Case { channels: 2 * 256 + 37, taps: 4, ring: 4, sequences: 2, tokens: 61, silu: true },
        Case { channels: 64, taps: 4, ring: 19, sequences: 1, tokens: 50, silu: false },
        Case { channels: 96, taps: 3, ring: 3, sequences: 2, tokens: 50, silu: true },
        Case { channels: 300, taps: 1, ring: 1, sequences: 2, tokens: 9, silu: false },
        Case { channels: 64, taps: 7, ring: 7, sequences: 1, tokens: 70, silu: false },
    ];
    for case in cases {
        let (y, ring) = case.run(setups()[0], &vec![1; case.tokens]);
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        // No row at all may stay, and all: then there is more to commit than a ring holds.
        for (block, kept) in
            [(1, &[1][..]), (2, &[2, 0, 1]), (5, &[3, 0, 0, 5, 1, 2]), (16, &[16, 4, 0, 9, 1])]
        {
            for setup in setups() {
                let (found, last) = case.run_deferred(setup, block, kept);
                let what = format!("C={} K={} {setup:?}, {block}: {kept:?}", case.channels, case.taps);
                assert_eq!(bits(&found), bits(&y), "{what}");
                assert_eq!(bits(&last), bits(&ring), "ring, {what}");
            }
        }
    }
}

/// No more can be committed than a tape holds, nor than there is.
#[test]
fn commits_without_a_tape() {
    let mut batch = Batch::new(4, 100);
    let [x, y] = [(); 2].map(|()| {
        let whole = batch.f32([32, 4, 1, 1], &[1.0; 128]);
        batch.view(whole, |t| t.token_axis = 1)
    });
    let [w, ring, tape] = [(); 3].map(|()| batch.f32([32, 4, 1, 1], &[1.0; 128]));
    let mut run = |dst: &[_], past, commit| {
        let step = StepRegisters::step(past, 1).with(Register::NCommit, commit);
        let params = params::SsmConv { defer: 0, silu: 0 };
        batch.run(setups()[0], Op::SsmConv, &[x, w, ring], dst, &params, step).map_err(|f| (f.code, f.detail))
    };
    let refused = Err((ErrorCode::BadRegister, Register::NCommit.wire()));
    assert_eq!(run(&[y], 9, 0), Ok(()));
    assert_eq!(run(&[y], 9, 1), refused);
    assert_eq!(run(&[y, tape], 9, 4), Ok(()));
    assert_eq!(run(&[y, tape], 9, 5), refused);
}

/// In one op and in two: the same bits, in whole vectors, in parts of one, and wherever rows begin.
#[test]
fn silu_of_the_result_is_that_of_the_op() {
    for (channels, offset, taps) in [(33, 0, 4), (6 * 256 + 37, 0, 4), (1024, 4, 4), (512, 0, 3), (448, 0, 7)]
    {
        let n = channels * 3;
        let [x, w] = [n, channels * taps].map(|n| random(n as u64, n, -8.0, 8.0));
        let run = |setup, silu| {
            let mut batch = Batch::new(3, 9);
            let [from, sums, y] = [(); 3].map(|()| {
                let whole = batch.f32([channels as u32, 4, 1, 1], &vec![0.0; 4 * channels]);
                batch.view(whole, |t| (t.ne[1], t.offset) = (3, t.offset + offset))
            });
            batch.write(from, zerocopy::IntoBytes::as_bytes(&x[..]));
            let w = batch.f32([channels as u32, taps as u32, 1, 1], &w);
            let ring = batch.f32([channels as u32, 9, 1, 1], &vec![f32::NAN; channels * 9]);
            let step = StepRegisters::step(0, 3);
            let p = params::SsmConv { defer: 0, silu };
            batch.run(setup, Op::SsmConv, &[from, w, ring], &[sums], &p, step).unwrap();
            if silu == 0 {
                batch.run(setup, Op::Silu, &[sums], &[y], &[0u32; 0], step).unwrap();
            }
            batch.floats(if silu == 0 { y } else { sums }).iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        for setup in setups() {
            assert_eq!(run(setup, 1), run(setup, 0), "C={channels} K={taps} {setup:?}");
        }
    }
}

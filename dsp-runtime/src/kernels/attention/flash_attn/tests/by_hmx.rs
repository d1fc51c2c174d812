//! Attention of prompts by the matrix unit, against its definition in f64.

use hexflash_abi::Fault;

use super::*;
use crate::plan::Units;

const FAST: Case = Case { fast: true, tokens: 40, ..CASE };

/// VTCM as a DSP has it.
pub(super) fn large(setup: Setup) -> Setup {
    Setup { vtcm_bytes: 8 << 20, ..setup }
}

impl Case {
    /// The error of a step by the unit; all setups give the same bits, and others than without the unit.
    fn error_by_unit(&self) -> f64 {
        let steps = [self.tokens];
        let by_unit = everywhere(|setup| self.run(large(setup), &steps));
        let without = self.run(Setup { units: Units::NONE, ..large(setups()[0]) }, &steps);
        assert_ne!(by_unit, without, "{self:?}");
        nmse(&by_unit, &self.expected())
    }

    fn check_by_unit(&self) {
        let error = self.error_by_unit();
        assert!(error <= 3e-7, "{self:?}: {error:e}");
    }
}

#[test]
fn matches_the_definition() {
    for (d, dv) in [(32, 32), (64, 64), (96, 96), (128, 128), (256, 256), (64, 96), (128, 40), (512, 512)] {
        Case { d, dv, n_past: 75, ..FAST }.check_by_unit();
    }
    // Matrix tiles that are not full.
    for (d, dv) in [(2, 2), (40, 40), (72, 72), (80, 80), (66, 64), (510, 2)] {
        Case { d, dv, n_past: 75, ..FAST }.check_by_unit();
    }
    // Blocks have 256 positions, parts of rows eight, and matrix tiles 32.
    for (n_past, tokens) in [(0, 32), (0, 40), (31, 33), (217, 39), (216, 40), (530, 16), (255, 70)] {
        for (kv_heads, group) in [(1, 2), (2, 3), (1, 8)] {
            Case { n_past, tokens, kv_heads, group, ..FAST }.check_by_unit();
        }
    }
    Case { n_past: 100, group: 1, sequences: 3, ..FAST }.check_by_unit();
    Case { n_past: 100, group: 5, kv_heads: 3, tokens: 16, append: false, ..FAST }.check_by_unit();
}

/// Queries that see the past alone are left to HVX, with its bits.
#[test]
fn the_past_is_seen_without_the_unit() {
    let bits = |y: Vec<f32>| y.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for (n_past, window) in [(0, 0), (90, 0), (300, 5), (256, 70)] {
        let case = Case { n_past, window, visibility: Visibility::Past, ..FAST };
        for setup in setups().into_iter().map(large) {
            let [by_unit, without] =
                [true, false].map(|fast| Case { fast, ..case }.run(setup, &[case.tokens]));
            assert_eq!(bits(by_unit), bits(without), "{case:?} {setup:?}");
        }
    }
}

#[test]
fn windows_caps_sinks_and_blocks() {
    for n_past in [0, 90, 300] {
        for visibility in [Visibility::Causal, Visibility::Block, Visibility::Around] {
            for window in [0, 1, 31, 64, 270] {
                Case { n_past, window, visibility, ..FAST }.check_by_unit();
            }
        }
        for ring in [false, true] {
            Case { n_past, window: 70, sinks: true, ring, ..FAST }.check_by_unit();
        }
        Case { n_past, softcap: 2.0, window: 50, ..FAST }.check_by_unit();
        Case { n_past, first: n_past, ..FAST }.check_by_unit();
        Case { n_past, softcap: 5.0, sinks: true, kv_heads: 1, group: 3, ..FAST }.check_by_unit();
    }
}

/// What a mask hides, in caches where that is no number; and what it adds.
#[test]
fn masks_hide_and_add() {
    for (n_past, tokens) in [(0, 40), (75, 40), (217, 39), (530, 16), (255, 70)] {
        for append in [true, false] {
            Case { n_past, tokens, append, mask_heads: 1, ..FAST }.check_by_unit();
        }
    }
    for n_past in [0, 300] {
        let case = Case { n_past, append: false, mask_heads: 1, ..FAST };
        for (kv_heads, group) in [(3, 1), (1, 3), (2, 8), (1, 12)] {
            Case { kv_heads, group, max_bias: 8.0, ..case }.check_by_unit();
        }
        let case = Case { visibility: Visibility::Block, ..case };
        Case { window: 70, sinks: true, ..case }.check_by_unit();
        Case { softcap: 5.0, max_bias: 3.0, ..case }.check_by_unit();
        Case { sequences: 2, d: 80, dv: 40, ..case }.check_by_unit();
    }
}

/// Masks that differ from head to head.
#[test]
fn masks_of_heads_are_done_without_the_unit() {
    let case = Case { mask_heads: 4, ..FAST };
    let exact = Case { fast: false, ..case };
    assert_eq!(case.run(large(setups()[0]), &[40]), exact.run(large(setups()[0]), &[40]));
}

/// Scores of tens, which f16 would hold to a hundredth.
#[test]
fn large_scores_keep_their_bits() {
    for (steepness, most) in [(20.0, 5e-7), (60.0, 2e-6), (200.0, 6e-6)] {
        let error = Case { steepness, n_past: 300, ..FAST }.error_by_unit();
        assert!(error <= most, "{steepness}: {error:e}");
    }
}

/// Passes of fewer rows, where VTCM is small; and no unit where it is too small.
#[test]
fn passes_do_not_change_a_bit() {
    for case in [
        Case { n_past: 200, tokens: 100, group: 4, kv_heads: 1, ..FAST },
        Case { n_past: 300, tokens: 100, group: 2, window: 90, ..FAST },
    ] {
        let run =
            |vtcm_bytes, workers| case.run(Setup { vtcm_bytes, workers, ..setups()[0] }, &[case.tokens]);
        let whole = run(8 << 20, 1);
        for (kib, workers) in [(640, 1), (768, 1), (1024, 1), (1024, 3), (2048, 3)] {
            assert_eq!(run(kib << 10, workers), whole, "{kib} {workers}");
        }
        let exact = Case { fast: false, ..case };
        assert_eq!(run(256 << 10, 1), exact.run(setups()[0], &[case.tokens]));
    }
}

/// However a prompt is cut: pieces that are too short are done without the unit, in the same program.
#[test]
fn short_steps_are_done_without_the_unit() {
    let case = Case { n_past: 20, group: 1, ..FAST };
    let exact = Case { fast: false, ..case }.run(large(setups()[0]), &[40]);
    for setup in setups().into_iter().map(large) {
        assert_eq!(case.run(setup, &[20, 20]), exact);
        let mixed = case.run(setup, &[35, 5]);
        let (by_unit, without) = mixed.split_at(35 * 128);
        assert!(by_unit != &exact[..35 * 128] && without == &exact[35 * 128..]);
    }
}

/// Operands of a step of 40 tokens after 40 others, of one head.
struct Step {
    batch: Batch,
    src: Vec<TensorIndex>,
    y: TensorIndex,
}

impl Step {
    const ROWS: usize = 40;

    fn new(q: f32, k: f32, v: f32) -> Self {
        let mut batch = Batch::new(40, 80).fast();
        let rows = batch.f32([64, 1, 40, 1], &random(1, 64 * 40, -q, q));
        let rows = batch.view(rows, |t| t.token_axis = 2);
        let y = batch.f32([64, 1, 40, 1], &[0.0; 64 * 40]);
        let y = batch.view(y, |t| t.token_axis = 2);
        let k_cache = batch.tensor(DType::F16x32, [64, 80, 1, 1]);
        let v_cache = batch.tensor(DType::F16, [64, 80, 1, 1]);
        for (seed, cache, most) in [(2, k_cache, k), (3, v_cache, v)] {
            let halves: Vec<_> = random(seed, batch.read(cache).len() / 2, -most, most)
                .into_iter()
                .map(|x| f16::from_f32(x).to_bits())
                .collect();
            batch.write(cache, halves.as_bytes());
        }
        Self { batch, src: vec![rows, k_cache, v_cache], y }
    }

    /// With a mask that has `bits` at some places (token, position), and zero at others.
    fn masked(bits: u16, at: impl Fn(usize, usize) -> bool) -> Self {
        let mut step = Self::new(1.0, 1.0, 1.0);
        let mask = step.batch.tensor(DType::F16, [80, 40, 1, 1]);
        let all: Vec<_> = (0..80 * 40).map(|i| if at(i / 80, i % 80) { bits } else { 0 }).collect();
        step.batch.write(mask, all.as_bytes());
        let mask = step.batch.view(mask, |t| t.token_axis = 1);
        step.src.extend([TensorIndex::NONE, TensorIndex::NONE, mask]);
        step
    }

    /// Where the caches have dimension `i` of position `p`, in halves.
    fn put(&mut self, cache: usize, p: usize, i: usize, bits: u16) {
        let at = if cache == 1 { p / 32 * 2048 + i / 2 * 64 + p % 32 * 2 + i % 2 } else { p * 64 + i };
        let mut bytes = self.batch.read(self.src[cache]).to_vec();
        bytes[2 * at..][..2].copy_from_slice(&bits.to_le_bytes());
        self.batch.write(self.src[cache], &bytes);
    }

    /// y, with a factor on scores.
    fn run(&mut self, scale: f32) -> Result<Vec<f32>, Fault> {
        let params = FlashAttn {
            scale,
            visibility: Visibility::Causal.wire(),
            window: 0,
            softcap: 0.0,
            max_bias: 0.0,
            first: 0,
        };
        let step = StepRegisters::step(40, 40);
        let setup = large(setups()[0]);
        self.batch.run(setup, Op::FlashAttnExt, &self.src, &[self.y], &params, step)?;
        Ok(self.batch.floats(self.y))
    }
}

/// Powers of two on queries, keys and values change nothing but themselves, up to the largest numbers.
#[test]
fn results_stay_in_range_and_keep_their_bits() {
    let run = |[q, k, v]: [f32; 3], scale| Step::new(1.5 * q, 1.5 * k, 1.5 * v).run(scale).unwrap();
    let plain = run([1.0; 3], 0.5);
    let (up, down) = (32768.0, 1.0 / 1024.0);
    for [q, k, v] in [[up * up, 1.0, 1.0], [1.0, up, 1.0], [down * down, down, 1.0], [1.0, 1.0, up]] {
        let back: Vec<_> = run([q, k, v], 0.5 / q / k).iter().map(|y| y / v).collect();
        let error = nmse(&back, &plain);
        assert!(error <= 1e-7, "{q} {k} {v}: {error:e}");
    }
    // Values as small as f16 has them.
    let y = Step::new(1.0, 1.0, 1.0 / 65536.0).run(0.5).unwrap();
    assert!(y.iter().all(|y| y.abs() < 1.0 / 65536.0) && y.iter().any(|&y| y != 0.0));
}

/// The rows of y that are NaN.
fn nan_rows(y: &[f32]) -> Vec<bool> {
    y.chunks_exact(64).map(|row| row.iter().any(|x| x.is_nan())).collect()
}

/// f16 bits of -infinity.
const HIDDEN: u16 = 0xfc00;

/// What a mask hides from all has no influence. A key that it hides from some is not there for them; a value
/// that it shows to any is.
#[test]
fn what_a_mask_hides_has_no_influence() {
    let hidden = |_: usize, p: usize| p % 5 == 2;
    let plain = Step::masked(HIDDEN, hidden).run(0.5).unwrap();
    assert!(plain.iter().all(|y| y.is_finite()));
    for bits in [0x7c00, 0xfc00, 0x7e01, 0x7bff, 0x0001] {
        for (cache, p) in [(1, 2), (1, 42), (2, 2), (2, 42), (2, 37)] {
            let mut step = Step::masked(HIDDEN, hidden);
            step.put(cache, p, 11, bits);
            assert_eq!(step.run(0.5).unwrap(), plain, "{bits:x} {cache} {p}");
        }
    }
    let mut step = Step::masked(HIDDEN, |t, p| t < 30 && p == 20);
    step.put(1, 20, 11, 0x7e01);
    assert_eq!(nan_rows(&step.run(0.5).unwrap()), (0..40).map(|t| t >= 30).collect::<Vec<_>>());
    let mut step = Step::masked(HIDDEN, |t, p| t != 30 && p == 20);
    step.put(2, 20, 11, 0x7e01);
    assert_eq!(step.run(0.5).unwrap_err().code, ErrorCode::NotFinite);
}

/// A mask that is no number where a row sees it; and a row that sees nothing, which is zero whatever it is.
#[test]
fn masks_are_never_taken_for_other_numbers() {
    for bits in [0x7c00, 0x7e00, 0x7fff] {
        let y = Step::masked(bits, |t, p| (t, p) == (7, 10) || (t, p) == (9, 60)).run(0.5).unwrap();
        assert_eq!(nan_rows(&y), (0..40).map(|t| t == 7).collect::<Vec<_>>(), "{bits:x}");
    }
    for x in [1.0, f32::NAN, f32::INFINITY] {
        let mut step = Step::masked(HIDDEN, |t, _| t == 7);
        let mut q = random(1, 64 * 40, -1.0, 1.0);
        q[64 * 7 + 20] = x;
        step.batch.write(step.src[0], q.as_bytes());
        let y = step.run(0.5).unwrap();
        assert!(y[64 * 7..64 * 8].iter().all(|&y| y == 0.0), "{x}");
        assert_eq!(nan_rows(&y), [false; 40], "{x}");
    }
}

/// What is not finite makes a row NaN that sees it, and nothing else; a value like that is a fault.
#[test]
fn what_is_not_finite_is_never_taken_for_a_number() {
    for bits in [0x7c00, 0xfc00, 0x7e01, 0xfe00, 0x7fff] {
        for (p, i) in [(0, 0), (33, 63), (39, 5), (60, 17)] {
            let mut step = Step::new(1.0, 1.0, 1.0);
            step.put(1, p, i, bits);
            let want: Vec<_> = (0..Step::ROWS).map(|t| 40 + t >= p).collect();
            assert_eq!(nan_rows(&step.run(0.5).unwrap()), want, "{bits:x} {p} {i}");
            let mut step = Step::new(1.0, 1.0, 1.0);
            step.put(2, p, i, bits);
            let fault = step.run(0.5).unwrap_err();
            assert_eq!((fault.code, fault.detail), (ErrorCode::NotFinite, 0));
        }
    }
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut step = Step::new(1.0, 1.0, 1.0);
        let mut q = random(1, 64 * 40, -1.0, 1.0);
        q[64 * 7 + 20] = x;
        step.batch.write(step.src[0], q.as_bytes());
        let want: Vec<_> = (0..Step::ROWS).map(|t| t == 7).collect();
        assert_eq!(nan_rows(&step.run(0.5).unwrap()), want, "{x}");
    }
}

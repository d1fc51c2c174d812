//! ROPE: rotary position embedding.
//!
//! Angles are ggml's to the bit, or nearly: f32, and each the product of the one before and a constant. That
//! order matters: far into a context an ulp of the constant is a visible part of a turn. Cosines and sines of
//! a token are the same for all its heads, so they are computed once per token.

use core::f32::consts::PI;

use hexflash_abi::op::params::{self, RopeMode};
use hexflash_abi::op::rope as abi;
use hexflash_abi::{ErrorCode, Fault};

use super::OpRun;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};
use crate::step::{Cursor, Span};

/// Pairs that a table holds; heads with more are done in several rounds.
const PAIRS: usize = 256;

/// Turns the pairs of every head of a token.
struct Rope<'s> {
    p: params::Rope,
    mode: RopeMode,
    /// Factor from one angle to the next.
    theta_scale: f32,
    yarn: Option<Yarn>,
    /// Whose the tokens are, where positions follow from that.
    spans: &'s [Span],
    x: View,
    positions: Option<View>,
    factors: Option<View>,
    y: View,
}

/// YaRN's blend of interpolated and extrapolated angles.
struct Yarn {
    /// Pairs where the blend begins and ends.
    low: f32,
    high: f32,
    /// Factor on cos and sin, besides `attn_factor`.
    magnitude: f32,
}

/// Cosines and sines of a token, as the heads use them: one per pair in the modes that turn (i, i + n/2), one
/// per element, the sine with its sign, in the mode that turns (2i, 2i+1).
#[repr(C, align(128))]
struct Table {
    cos: [f32; 2 * PAIRS],
    sin: [f32; 2 * PAIRS],
}

/// ROPE: x{d,h,t,b}, positions{t,1 or 4} optional (else token t of a span is at its n_past + t),
/// factors{n_dims/2} optional -> y{d,h,t,b}.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let p: params::Rope = run.params();
    let (y, positions) = (run.operand(abi::Y)?, run.optional(abi::POSITIONS));
    // Tokens with positions of their own are all alike.
    let (mut only, anybody) = (None, [Span { rows: y.ne[2], ..Span::NONE }]);
    let spans = if positions.is_some() { &anybody } else { run.step.spans_over(y.ne[2], &mut only) };
    let kernel = Rope {
        p,
        mode: RopeMode::parse(p.mode).ok_or(Fault::new(ErrorCode::Internal, line!()))?,
        theta_scale: powf(p.freq_base, -2.0 / p.n_dims as f32),
        yarn: (p.ext_factor != 0.0).then(|| Yarn::new(&p)),
        spans,
        x: run.operand(abi::X)?,
        positions,
        factors: run.optional(abi::FACTORS),
        y,
    };
    run.pool.run(&kernel, run.plan.vtcm)
}

/// The f32 nearest to x^y, which C libraries' `powf` gives in all but the closest cases.
fn powf(x: f32, y: f32) -> f32 {
    libm::pow(x.into(), y.into()) as f32
}

/// The f32 nearest to ln(x).
fn logf(x: f32) -> f32 {
    libm::log(x.into()) as f32
}

impl Yarn {
    fn new(p: &params::Rope) -> Self {
        // The pair that makes `turns` turns over the training context.
        let n = p.n_dims as f32;
        let pair =
            |turns: f32| n * logf(p.n_ctx_orig as f32 / (turns * 2.0 * PI)) / (2.0 * logf(p.freq_base));
        Self {
            low: libm::floorf(pair(p.beta_fast)).max(0.0),
            high: libm::ceilf(pair(p.beta_slow)).min(n - 1.0),
            magnitude: 1.0 + 0.1 * logf(1.0 / p.freq_scale),
        }
    }

    /// Share of the extrapolated angle in pair `i`.
    fn share(&self, i: usize) -> f32 {
        let y = (i as f32 - self.low) / (self.high - self.low).max(0.001);
        1.0 - y.clamp(0.0, 1.0)
    }
}

impl Rope<'_> {
    /// The position row that turns pair `i`: time, height, width or extra.
    fn section(&self, i: usize) -> usize {
        let sections = self.p.sections.map(|s| s as usize);
        match self.mode {
            RopeMode::Mrope => {
                let mut sector = i % sections.iter().sum::<usize>();
                // What is past the first three is the fourth's.
                for (row, &length) in sections[..3].iter().enumerate() {
                    match sector.checked_sub(length) {
                        Some(rest) => sector = rest,
                        None => return row,
                    }
                }
                3
            }
            RopeMode::Imrope => {
                let sector = i % sections.iter().sum::<usize>();
                // Time, height and width take turns for as long as they have pairs.
                let (row, turn) = (sector % 3, sector / 3);
                if turn < sections[row] { row } else { 3 }
            }
            _ => 0,
        }
    }

    /// Angles of the first pair of token `i` of a span, per position row.
    fn first_angles(&self, span: &Span, i: usize) -> [f32; 4] {
        match &self.positions {
            None => [(span.n_past + i) as f32; 4],
            Some(positions) => {
                let rows = positions.ne[1];
                core::array::from_fn(|s| {
                    if s < rows { positions.int([span.first + i, s, 0, 0]) as f32 } else { 0.0 }
                })
            }
        }
    }

    /// Fills `table` with `n` pairs from pair `first` on; `theta`, an angle per position row, goes from that
    /// pair's angles to the next round's.
    #[inline(always)]
    fn fill<const ROWS: usize>(&self, table: &mut Table, theta: &mut [f32; ROWS], first: usize, n: usize) {
        let factors = self.factors.as_ref().map(|f| f.row([0; 3]));
        for j in 0..n {
            let i = first + j;
            let angle =
                theta[if ROWS == 1 { 0 } else { self.section(i) }] / factors.map_or(1.0, |f| f.get(i));
            let mut turned = self.p.freq_scale * angle;
            let mut magnitude = self.p.attn_factor;
            if let Some(yarn) = &self.yarn {
                let share = yarn.share(i) * self.p.ext_factor;
                turned = turned * (1.0 - share) + angle * share;
                magnitude *= yarn.magnitude;
            }
            let (sin, cos) = libm::sincosf(turned);
            let (sin, cos) = (sin * magnitude, cos * magnitude);
            if self.mode == RopeMode::Norm {
                (table.cos[2 * j], table.cos[2 * j + 1]) = (cos, cos);
                (table.sin[2 * j], table.sin[2 * j + 1]) = (-sin, sin);
            } else {
                (table.cos[j], table.sin[j]) = (cos, sin);
            }
            for theta in theta.iter_mut() {
                *theta *= self.theta_scale;
            }
        }
    }
}

/// Turns the pairs (a[i], b[i]) into (ya[i], yb[i]), which may be the same memory.
#[inline(always)]
fn turn_halves<H: Hvx>(table: &Table, a: Row<'_>, b: Row<'_>, y: &mut RowMut<'_>, half: usize, at: usize) {
    let n = a.len();
    assert!(n <= PAIRS && b.len() == n);
    let ya = y.part(at, n).as_mut_ptr();
    let yb = y.part(half + at, n).as_mut_ptr();
    for i in (0..n).step_by(LANES) {
        let lanes = LANES.min(n - i);
        // SAFETY: elements i..i + lanes are inside the four rows; the table has whole vectors from i on,
        // because i is a multiple of 32 below PAIRS. Both inputs are read before the outputs are written.
        unsafe {
            let (cos, sin) = (H::load(table.cos.as_ptr().add(i)), H::load(table.sin.as_ptr().add(i)));
            let (a, b) = (load::<H>(a.as_ptr().add(i), lanes), load::<H>(b.as_ptr().add(i), lanes));
            store::<H>(ya.add(i), H::sub(H::mul(a, cos), H::mul(b, sin)), lanes);
            store::<H>(yb.add(i), H::add(H::mul(a, sin), H::mul(b, cos)), lanes);
        }
    }
}

/// Turns the pairs (x[2i], x[2i+1]) into y's, which may be the same memory.
#[inline(always)]
fn turn_neighbours<H: Hvx>(table: &Table, x: Row<'_>, mut y: RowMut<'_>) {
    let n = x.len();
    assert!(n <= 2 * PAIRS && n.is_multiple_of(2) && y.len() == n);
    let odd: [f32; LANES] = core::array::from_fn(|i| (i % 2) as f32);
    // SAFETY: `odd` is an array of 32 floats, which are 128 bytes.
    let odd = unsafe { H::load(odd.as_ptr()) };
    let half = H::splat(0.5);
    // A vector with a float on either side of it, to see both neighbours of every lane.
    let mut stage = [0.0; LANES + 2];
    for i in (0..n).step_by(LANES) {
        let lanes = LANES.min(n - i);
        // SAFETY: elements i..i + lanes are inside both rows; the table has whole vectors from i on, because
        // i is a multiple of 32 below 2 * PAIRS; vectors at 0, 1 and 2 are inside `stage`.
        unsafe {
            let (cos, sin) = (H::load(table.cos.as_ptr().add(i)), H::load(table.sin.as_ptr().add(i)));
            let x = load::<H>(x.as_ptr().add(i), lanes);
            H::store(stage.as_mut_ptr().add(1), x);
            let (before, after) = (H::load(stage.as_ptr()), H::load(stage.as_ptr().add(2)));
            let partner = H::select_gt(odd, half, before, after);
            store::<H>(y.as_mut_ptr().add(i), H::add(H::mul(x, cos), H::mul(partner, sin)), lanes);
        }
    }
}

/// Loads `n` (1 to 32) floats.
///
/// # Safety
/// Points 1 and 2 of [`Hvx::load_n`]: `n` is 1 to 32, and `p` aligned and valid for reading `n` floats.
#[inline(always)]
unsafe fn load<H: Hvx>(p: *const f32, n: usize) -> H::F {
    // SAFETY: `n` is 1 to 32, and `p` is aligned and valid for reading `n` floats (the caller's contract); 32
    // of them are 128 bytes.
    unsafe { if n == LANES { H::load(p) } else { H::load_n(p, n) } }
}

/// Stores `n` (1 to 32) floats.
///
/// # Safety
/// Points 1 and 2 of [`Hvx::store_n`]: `n` is 1 to 32, and `p` aligned and valid for writing `n` floats.
#[inline(always)]
unsafe fn store<H: Hvx>(p: *mut f32, v: H::F, n: usize) {
    // SAFETY: `n` is 1 to 32, and `p` is aligned and valid for writing `n` floats (the caller's contract); 32
    // of them are 128 bytes.
    unsafe { if n == LANES { H::store(p, v) } else { H::store_n(p, v, n) } }
}

impl Kernel for Rope<'_> {
    /// A unit is a token, with all its heads.
    fn units(&self) -> usize {
        self.y.ne[2] * self.y.ne[3]
    }

    fn work(&self) -> usize {
        let heads = self.y.ne[1] * self.y.ne[0].div_ceil(LANES) * 6;
        // A sine and a cosine are some 60 scalar operations in double precision.
        self.units().saturating_mul(heads.saturating_add((self.p.n_dims as usize / 2).saturating_mul(60)))
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let mut table = Table { cos: [0.0; 2 * PAIRS], sin: [0.0; 2 * PAIRS] };
        let units = |span: &Span| span.rows * self.y.ne[3];
        let mut cursor = Cursor::new(self.spans, units);
        while let Some(unit) = worker.claim() {
            let (span, unit) = cursor.seek(unit, units);
            // Without a division, which is a function call on a DSP.
            let (i, b) = if unit < span.rows { (unit, 0) } else { (unit % span.rows, unit / span.rows) };
            // SAFETY: `claim` gives token `i` of this span and batch `b`, with the rows of all its heads, to
            // this worker alone.
            unsafe { self.turn::<H>(&mut table, span, i, b) };
        }
        Ok(())
    }
}

impl Rope<'_> {
    /// Turns all heads of token `i` of a span, in batch `b`. A function of its own, where that costs no
    /// instructions: registers are then its alone.
    ///
    /// # Safety
    /// This worker alone has claimed the token.
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    unsafe fn turn<H: Hvx>(&self, table: &mut Table, span: &Span, i: usize, b: usize) {
        let (t, mut theta) = (span.first + i, self.first_angles(span, i));
        let n_dims = self.p.n_dims as usize;
        let half = n_dims / 2;
        for first in (0..half).step_by(PAIRS) {
            let n = PAIRS.min(half - first);
            // One angle, where all rows have the same, stays in a register.
            if matches!(self.mode, RopeMode::Norm | RopeMode::Neox) {
                let mut only = [theta[0]];
                self.fill(table, &mut only, first, n);
                [theta[0]] = only;
            } else {
                self.fill(table, &mut theta, first, n);
            }
            for h in 0..self.y.ne[1] {
                let x = self.x.row([h, t, b]);
                // SAFETY: this worker alone has claimed the token, with the rows of all its heads (the
                // caller's contract). x lies in y's very place or apart from it (validation).
                let mut y = unsafe { self.y.row_mut([h, t, b]) };
                if self.mode == RopeMode::Norm {
                    turn_neighbours::<H>(table, x.part(2 * first, 2 * n), y.part(2 * first, 2 * n));
                } else {
                    let (a, b) = (x.part(first, n), x.part(half + first, n));
                    turn_halves::<H>(table, a, b, &mut y, half, first);
                }
                if first == 0 && x.as_ptr() != y.as_mut_ptr().cast_const() {
                    let rest = x.len() - n_dims;
                    y.part(n_dims, rest).copy::<H>(x.part(n_dims, rest));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::op::params::{Rope, RopeMode};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, nmse, random};

    const PLAIN: Rope = Rope {
        n_dims: 64,
        mode: RopeMode::Neox as u32,
        n_ctx_orig: 4096,
        freq_base: 10000.0,
        freq_scale: 1.0,
        ext_factor: 0.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        sections: [0; 4],
    };

    /// A case: x{d,h,t,b}, positions per token and section.
    struct Case {
        p: Rope,
        ne: [usize; 4],
        positions: Vec<[i32; 4]>,
        factors: Option<Vec<f32>>,
    }

    impl Case {
        fn values(&self) -> Vec<f32> {
            random(self.ne[0] as u64, self.ne.iter().product(), -1.0, 1.0)
        }

        fn multi(&self) -> bool {
            self.p.mode == RopeMode::Mrope.wire() || self.p.mode == RopeMode::Imrope.wire()
        }

        /// Runs it in every setup; `positions` as a tensor, or left to n_past.
        fn run(&self, in_place: bool, tensor: bool) -> Vec<f32> {
            let values = self.values();
            let shape = self.ne.map(|n| n as u32);
            let t = shape[2];
            everywhere(|setup| {
                let mut batch = Batch::new(t, 200_000);
                let x = batch.f32(shape, &values);
                let rows = if self.multi() { 4 } else { 1 };
                let positions: Vec<i32> =
                    (0..rows).flat_map(|s| self.positions.iter().map(move |p| p[s])).collect();
                let mut src = vec![x, hexflash_abi::TensorIndex::NONE];
                if tensor {
                    src[1] = batch.i32([t, rows as u32, 1, 1], &positions);
                }
                src.extend(self.factors.as_ref().map(|f| batch.f32([f.len() as u32, 1, 1, 1], f)));
                let y = if in_place { x } else { batch.f32(shape, &vec![7.0; values.len()]) };
                let n_past = if tensor { 0 } else { self.positions[0][0] as u32 };
                batch.run(setup, Op::Rope, &src, &[y], &self.p, StepRegisters::step(n_past, t)).unwrap();
                batch.floats(y)
            })
        }

        /// ggml's definition: angles in f32 as ggml has them, the turn in double precision.
        fn expected(&self) -> Vec<f32> {
            let (p, values) = (&self.p, self.values());
            let [d, h, t, _] = self.ne;
            let n = p.n_dims as usize;
            let scale = p.freq_base.powf(-2.0 / n as f32);
            let dim = |beta: f32| {
                n as f32 * (p.n_ctx_orig as f32 / (beta * 2.0 * std::f32::consts::PI)).ln()
                    / (2.0 * p.freq_base.ln())
            };
            let (low, high) =
                (dim(p.beta_fast).floor().max(0.0), dim(p.beta_slow).ceil().min(n as f32 - 1.0));
            let mut y = values.clone();
            for (r, y) in y.chunks_exact_mut(d).enumerate() {
                let x = &values[r * d..][..d];
                let mut theta = self.positions[r / h % t].map(|p| p as f32);
                for i in 0..n / 2 {
                    let s = p.sections.map(|s| s as usize);
                    let sector = if self.multi() { i % (s[0] + s[1] + s[2] + s[3]) } else { 0 };
                    let section = if p.mode == RopeMode::Mrope.wire() {
                        (1..4).rev().find(|&k| sector >= s[..k].iter().sum()).unwrap_or(0)
                    } else if p.mode == RopeMode::Imrope.wire() {
                        (0..3).find(|&k| sector % 3 == k && sector < 3 * s[k]).unwrap_or(3)
                    } else {
                        0
                    };
                    let angle = theta[section] / self.factors.as_ref().map_or(1.0, |f| f[i]);
                    let (mut turned, mut magnitude) = (p.freq_scale * angle, f64::from(p.attn_factor));
                    if p.ext_factor != 0.0 {
                        let ramp = ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                        let mix = (1.0 - ramp) * p.ext_factor;
                        turned = turned * (1.0 - mix) + angle * mix;
                        magnitude *= 1.0 + 0.1 * (1.0 / f64::from(p.freq_scale)).ln();
                    }
                    let (sin, cos) = f64::from(turned).sin_cos();
                    let (sin, cos) = (sin * magnitude, cos * magnitude);
                    let (a, b) =
                        if p.mode == RopeMode::Norm.wire() { (2 * i, 2 * i + 1) } else { (i, n / 2 + i) };
                    let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
                    (y[a], y[b]) = ((xa * cos - xb * sin) as f32, (xa * sin + xb * cos) as f32);
                    theta = theta.map(|v| v * scale);
                }
            }
            y
        }

        fn check(&self, what: &str) {
            let expected = self.expected();
            for in_place in [false, true] {
                let error = nmse(&self.run(in_place, true), &expected);
                // ggml's bound is 1e-7; angles to the bit leave only the rounding of cos and sin.
                assert!(error < 1e-12, "{what} in_place={in_place}: {error}");
            }
        }
    }

    fn same(positions: impl Iterator<Item = i32>) -> Vec<[i32; 4]> {
        positions.map(|p| [p; 4]).collect()
    }

    /// Both pairings, whole and partial heads, lengths around a vector and past a table.
    #[test]
    fn pairings_and_partial_heads() {
        for mode in [RopeMode::Norm, RopeMode::Neox] {
            for (d, n_dims) in [
                (2, 2),
                (31, 30),
                (33, 2),
                (64, 64),
                (100, 98),
                (128, 128),
                (256, 64),
                (600, 600),
                (1300, 1100),
            ] {
                for base in [10_000.0, 1e6] {
                    let p = Rope { n_dims, mode: mode.wire(), freq_base: base, ..PLAIN };
                    let case = Case {
                        p,
                        ne: [d, 3, 4, 2],
                        positions: same([0, 1, 511, 77].into_iter()),
                        factors: None,
                    };
                    case.check(&format!("{mode} d={d} n_dims={n_dims}"));
                }
            }
        }
    }

    /// Far into a context, with positions from n_past as well.
    #[test]
    fn long_contexts() {
        for mode in [RopeMode::Norm, RopeMode::Neox] {
            for (n_dims, base) in [(64, 1e7), (128, 1e6), (128, 10_000.0), (128, 500_000.0), (64, 150_000.0)]
            {
                let p = Rope { n_dims, mode: mode.wire(), freq_base: base, ..PLAIN };
                let positions = same(100_000..100_006);
                let case = Case { p, ne: [n_dims as usize, 2, 6, 1], positions, factors: None };
                case.check(&format!("{mode} n_dims={n_dims} base={base}"));
                assert_eq!(case.run(false, false), case.run(false, true));
            }
        }
    }

    #[test]
    fn yarn_and_frequency_factors() {
        let factors = random(5, 32, 0.9, 1.1);
        for (freq_scale, ext_factor, attn_factor) in [
            (1.0, 0.0, 1.0),
            (0.25, 0.0, 1.2),
            (1.0 / 32.0, 1.0, 1.0),
            (1.0 / 32.0, 1.0, 0.743),
            (0.5, 0.6, 1.0),
        ] {
            for factors in [None, Some(factors.clone())] {
                for mode in [RopeMode::Norm, RopeMode::Neox] {
                    let p = Rope { mode: mode.wire(), freq_scale, ext_factor, attn_factor, ..PLAIN };
                    let positions = same([3, 4095, 131_071].into_iter());
                    let case = Case { p, ne: [64, 2, 3, 1], positions, factors: factors.clone() };
                    case.check(&format!("{mode} {freq_scale} {ext_factor} {attn_factor}"));
                }
            }
        }
    }

    /// Four different positions per token, the sections of published models and odd ones.
    #[test]
    fn sections() {
        let positions = vec![[5, 17, 300, 2], [6, 18, 301, 3], [1000, 0, 9, 40], [99_999, 8, 7, 6]];
        for sections in
            [[16, 24, 24, 0], [11, 11, 10, 0], [8, 8, 8, 8], [24, 20, 20, 0], [0, 3, 0, 2], [1, 0, 0, 0]]
        {
            for mode in [RopeMode::Mrope, RopeMode::Imrope] {
                for (d, n_dims) in [(128, 128), (256, 64)] {
                    let p = Rope { n_dims, mode: mode.wire(), sections, freq_base: 1e6, ..PLAIN };
                    let case = Case { p, ne: [d, 3, 4, 1], positions: positions.clone(), factors: None };
                    case.check(&format!("{mode} {sections:?} n_dims={n_dims}"));
                }
            }
        }
    }

    /// With equal positions, sections make no difference: text through IMROPE is NEOX.
    #[test]
    fn text_needs_no_sections() {
        let ne = [256, 2, 3, 1];
        let case = |mode: RopeMode, sections| Case {
            p: Rope { mode: mode.wire(), sections, ..PLAIN },
            ne,
            positions: same(70..73),
            factors: None,
        };
        let neox = case(RopeMode::Neox, [0; 4]).run(false, false);
        for mode in [RopeMode::Mrope, RopeMode::Imrope] {
            assert_eq!(case(mode, [11, 11, 10, 0]).run(false, false), neox);
        }
    }

    /// Heads inside wider rows, enough of them for several workers, and fewer tokens than the program has.
    #[test]
    fn views_and_the_token_axis() {
        let (d, heads, tokens, width) = (64usize, 8usize, 40usize, 64 * 12);
        let values = random(2, width * tokens, -1.0, 1.0);
        let run = |n_tokens: u32| {
            everywhere(|setup| {
                let mut batch = Batch::new(tokens as u32, 1000);
                let x = batch.f32([width as u32, tokens as u32, 1, 1], &values);
                let heads = batch.view(x, |t| {
                    t.offset += 4 * 128;
                    t.ne = [d as u32, heads as u32, tokens as u32, 1];
                    t.nb = [4, 256, 4 * width as u32, 4 * width as u32 * tokens as u32];
                    t.token_axis = 2;
                });
                batch
                    .run(setup, Op::Rope, &[heads], &[heads], &PLAIN, StepRegisters::step(9, n_tokens))
                    .unwrap();
                batch.floats(x)
            })
        };
        let (full, clipped) = (run(40), run(13));
        assert_eq!(clipped[..13 * width], full[..13 * width]);
        assert_eq!(clipped[13 * width..], values[13 * width..]);
        for (row, before) in full.chunks_exact(width).zip(values.chunks_exact(width)) {
            assert_eq!(row[..128], before[..128]);
            assert_eq!(row[128 + d * heads..], before[128 + d * heads..]);
            assert_ne!(row[128..192], before[128..192]);
        }
    }
}

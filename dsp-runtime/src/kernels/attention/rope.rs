//! ROPE: rotary position embedding.
//!
//! Angles are ggml's to the bit, or nearly: f32, and each the product of the one before and a constant. That
//! order matters: far into a context an ulp of the constant is a visible part of a turn. Cosines and sines of
//! a token are the same for all its heads: of a vector of pairs they are computed once, and stay in registers
//! while all heads are turned.

use core::f32::consts::PI;
use core::mem::MaybeUninit;

use hexflash_abi::op::params::{self, RopeMode};
use hexflash_abi::op::rope as abi;
use hexflash_abi::{ErrorCode, Fault};

use crate::hvx::sin_cos::{self, sin_cos};
use crate::hvx::{BYTES, Hvx, LANES, math};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::step::{Cursor, Span};

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

/// Angles of a vector: one per pair in the modes that turn (i, i + n/2), two in the mode that turns
/// (2i, 2i+1). What is past the last one is some other angle.
#[repr(C, align(128))]
struct Angles([f32; LANES]);

impl Angles {
    /// Zeros, in one instruction where a vector is a register.
    #[inline(always)]
    fn zero<H: Hvx>() -> Self {
        let mut angles = MaybeUninit::<Self>::uninit();
        // SAFETY: `Angles` is 32 floats, which are 128 bytes, at a multiple of 128, and the store sets all.
        unsafe {
            H::store_aligned(angles.as_mut_ptr().cast(), H::splat(0.0));
            angles.assume_init()
        }
    }
}

/// Cosines and sines of a vector, as the heads use them: in the mode that turns neighbours, the sine of the
/// first of them is negative.
struct Turn<H: Hvx> {
    cos: H::F,
    sin: H::F,
    /// -sin.
    back: H::F,
}

/// Signs of the sines of neighbours.
static NEIGHBOURS: Angles = {
    let mut signs = [0.0; LANES];
    let mut i = 0;
    while i < LANES {
        signs[i] = -0.0;
        i += 2;
    }
    Angles(signs)
};

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
    let mode = RopeMode::parse(p.mode).ok_or(Fault::new(ErrorCode::Internal, line!()))?;
    // What angles are spread over.
    let spread = if mode == RopeMode::Vision { p.n_dims / 2 } else { p.n_dims } as f32;
    let kernel = Rope {
        p,
        mode,
        theta_scale: powf(p.freq_base, -2.0 / spread),
        yarn: (p.ext_factor != 0.0).then(|| Yarn::new(&p, spread)),
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
    /// That of angles that are spread over `n` values.
    fn new(p: &params::Rope, n: f32) -> Self {
        // The pair that makes `turns` turns over the training context.
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
            RopeMode::Mrope | RopeMode::Vision => {
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
            RopeMode::Norm | RopeMode::Neox => 0,
        }
    }

    /// Whether the angles of section `row` begin anew with pair `i`, which is in it.
    fn begins_anew(&self, i: usize, row: usize) -> bool {
        let sections = self.p.sections.map(|s| s as usize);
        let sector = i % sections.iter().sum::<usize>();
        sector == sections[..row].iter().sum()
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

    /// The angles of `n` pairs from pair `first` on; `theta`, an angle per position row, goes from that
    /// pair's angles to the next vector's. `start` are the angles of pair 0.
    #[inline(always)]
    fn angles<const ROWS: usize>(
        &self,
        angles: &mut Angles,
        (theta, start): (&mut [f32; ROWS], [f32; ROWS]),
        first: usize,
        n: usize,
    ) {
        let neighbours = self.mode == RopeMode::Norm;
        if ROWS == 1 && self.factors.is_none() && self.yarn.is_none() {
            let (mut angle, pairs) = (theta[0], if neighbours { 2 * n } else { n });
            let angles = &mut angles.0[..pairs];
            if neighbours {
                for pair in angles.chunks_exact_mut(2) {
                    pair.fill(self.p.freq_scale * angle);
                    angle *= self.theta_scale;
                }
            } else {
                for turned in angles {
                    *turned = self.p.freq_scale * angle;
                    angle *= self.theta_scale;
                }
            }
            theta[0] = angle;
            return;
        }
        let factors = self.factors.as_ref().map(|f| f.row([0; 3]));
        for j in 0..n {
            let i = first + j;
            let row = if ROWS == 1 { 0 } else { self.section(i) };
            if ROWS > 1 && self.mode == RopeMode::Vision && self.begins_anew(i, row) {
                theta[row] = start[row];
            }
            let angle = theta[row] / factors.map_or(1.0, |f| f.get(i));
            let mut turned = self.p.freq_scale * angle;
            if let Some(yarn) = &self.yarn {
                let share = yarn.share(i) * self.p.ext_factor;
                turned = turned * (1.0 - share) + angle * share;
            }
            if neighbours {
                (angles.0[2 * j], angles.0[2 * j + 1]) = (turned, turned);
            } else {
                angles.0[j] = turned;
            }
            for theta in theta.iter_mut() {
                *theta *= self.theta_scale;
            }
        }
    }

    /// Size of the cosines and sines of a token whose first angle is its position.
    #[inline(always)]
    fn magnitude(&self, position: f32) -> f32 {
        let magnitude = self.p.attn_factor * self.yarn.as_ref().map_or(1.0, |yarn| yarn.magnitude);
        if self.p.temperature == 0.0 { magnitude } else { magnitude * self.growth(position) }
    }

    /// Growth of what is turned at a position. In ggml's graphs this is a factor that the host
    /// computes in f64; registers can move positions here, without the host.
    #[cold]
    #[inline(never)]
    fn growth(&self, position: f32) -> f32 {
        let steps = libm::floorf(position / self.p.temperature_span as f32);
        // Positions given as data may be below 0.
        let logarithm = libm::log(1.0 + f64::from(steps.max(0.0)));
        (1.0 + f64::from(self.p.temperature) * logarithm) as f32
    }

    /// Cosines and sines of these angles, of this size.
    #[inline(always)]
    fn turn_by<H: Hvx>(&self, angles: &Angles, magnitude: f32) -> Turn<H> {
        // SAFETY: `angles` is an array of 32 floats, which are 128 bytes, at a multiple of 128.
        let x = unsafe { H::load_aligned(angles.0.as_ptr()) };
        let size = math::abs::<H>(x);
        let (sin, cos) =
            if H::max_lane(size) <= sin_cos::LARGEST { sin_cos::<H>(x) } else { far::<H>(angles) };
        let magnitude = H::splat(magnitude);
        let (sin, cos) = (H::mul_ieee(sin, magnitude), H::mul_ieee(cos, magnitude));
        let sin = if self.mode == RopeMode::Norm {
            // SAFETY: `NEIGHBOURS` is an array of 32 floats, which are 128 bytes, at a multiple of 128.
            let signs = unsafe { H::load_aligned(NEIGHBOURS.0.as_ptr()) };
            H::from_bits(H::add_i(H::bits(sin), H::bits(signs)))
        } else {
            sin
        };
        Turn { cos, sin, back: math::negate::<H>(sin) }
    }
}

/// Sines and cosines of angles beyond those that vectors are for: positions above a million.
#[cold]
#[inline(never)]
fn far_angles(angles: &Angles) -> [Angles; 2] {
    let mut far = [Angles([0.0; LANES]), Angles([0.0; LANES])];
    for (i, &angle) in angles.0.iter().enumerate() {
        (far[0].0[i], far[1].0[i]) = libm::sincosf(angle);
    }
    far
}

#[inline(always)]
fn far<H: Hvx>(angles: &Angles) -> (H::F, H::F) {
    let [sin, cos] = far_angles(angles);
    // SAFETY: both are arrays of 32 floats, which are 128 bytes, at a multiple of 128.
    unsafe { (H::load_aligned(sin.0.as_ptr()), H::load_aligned(cos.0.as_ptr())) }
}

/// Turns the pairs (x[i], x[i + half]) of a head into those of y, which may be the same memory. WHOLE: 32 of
/// them, at whole vectors.
///
/// # Safety
/// 1. `n` is 1 to 32, and 32 if WHOLE.
/// 2. `x` is aligned for f32, and floats i to i + n - 1 from it are valid for reading, for i = 0 and `half`;
///    so is `y`, for writing. If WHOLE, these four addresses are multiples of 128.
#[inline(always)]
unsafe fn turn_halves<H: Hvx, const WHOLE: bool>(
    turn: &Turn<H>,
    x: *const f32,
    y: *mut f32,
    half: usize,
    n: usize,
) {
    let &Turn { cos, sin, back } = turn;
    // SAFETY: `n` is 1 to 32, and the floats are valid for reading and writing; if WHOLE they are 32 each, at
    // multiples of 128 (points 1 and 2 of the caller's contract). Both are read before any is written.
    unsafe {
        let (a, b) = (load::<H, WHOLE>(x, n), load::<H, WHOLE>(x.add(half), n));
        let first = H::add_q(H::mul_q(a, cos), H::mul_q(b, back));
        let second = H::add_q(H::mul_q(a, sin), H::mul_q(b, cos));
        store::<H, WHOLE>(y, H::float(first), n);
        store::<H, WHOLE>(y.add(half), H::float(second), n);
    }
}

/// Turns the pairs (x[2i], x[2i+1]) of a head into those of y, as [`turn_halves`] with `half` = 0.
///
/// # Safety
/// Points 1 and 2 of [`turn_halves`] with `half` = 0.
#[inline(always)]
unsafe fn turn_neighbours<H: Hvx, const WHOLE: bool>(turn: &Turn<H>, x: *const f32, y: *mut f32, n: usize) {
    // SAFETY: `n` is 1 to 32, and the floats are valid for reading and writing; if WHOLE they are 32, at
    // multiples of 128 (points 1 and 2 of the caller's contract).
    unsafe {
        let x = load::<H, WHOLE>(x, n);
        let turned = H::add_q(H::mul_q(x, turn.cos), H::mul_q(H::swap_lanes::<1>(x), turn.sin));
        store::<H, WHOLE>(y, H::float(turned), n);
    }
}

/// Loads `n` floats.
///
/// # Safety
/// `n` is 1 to 32, and `p` aligned for f32 and valid for reading `n` floats. If WHOLE, `n` is 32 and `p` a
/// multiple of 128.
#[inline(always)]
unsafe fn load<H: Hvx, const WHOLE: bool>(p: *const f32, n: usize) -> H::F {
    // SAFETY: `n` is 1 to 32, and `p` is aligned and valid for reading `n` floats; 32 of them are 128 bytes,
    // and if WHOLE `p` is a multiple of 128 (the caller's contract).
    unsafe {
        match (WHOLE, n) {
            (true, _) => H::load_aligned(p),
            (false, LANES) => H::load(p),
            _ => H::load_n(p, n),
        }
    }
}

/// Stores `n` floats.
///
/// # Safety
/// `n` is 1 to 32, and `p` aligned for f32 and valid for writing `n` floats. If WHOLE, `n` is 32 and `p` a
/// multiple of 128.
#[inline(always)]
unsafe fn store<H: Hvx, const WHOLE: bool>(p: *mut f32, v: H::F, n: usize) {
    // SAFETY: `n` is 1 to 32, and `p` is aligned and valid for writing `n` floats; 32 of them are 128 bytes,
    // and if WHOLE `p` is a multiple of 128 (the caller's contract).
    unsafe {
        match (WHOLE, n) {
            (true, _) => H::store_aligned(p, v),
            (false, LANES) => H::store(p, v),
            _ => H::store_n(p, v, n),
        }
    }
}

impl Kernel for Rope<'_> {
    /// A unit is a token, with all its heads.
    fn units(&self) -> usize {
        self.y.ne[2] * self.y.ne[3]
    }

    fn work(&self) -> usize {
        let half = self.p.n_dims as usize / 2;
        let heads = self.y.ne[1] * self.y.ne[0].div_ceil(LANES) * 8;
        self.units().saturating_mul(heads.saturating_add(half.div_ceil(LANES).saturating_mul(250)))
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let units = |span: &Span| span.rows * self.y.ne[3];
        let mut cursor = Cursor::new(self.spans, units);
        while let Some(unit) = worker.claim() {
            let (span, unit) = cursor.seek(unit, units);
            // Without a division, which is a function call on a DSP.
            let (i, b) = if unit < span.rows { (unit, 0) } else { (unit % span.rows, unit / span.rows) };
            // SAFETY: `claim` gives token `i` of this span and batch `b`, with the rows of all its heads, to
            // this worker alone.
            unsafe { self.turn::<H>(span, i, b) };
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
    unsafe fn turn<H: Hvx>(&self, span: &Span, i: usize, b: usize) {
        let (t, start) = (span.first + i, self.first_angles(span, i));
        let (mut theta, magnitude) = (start, self.magnitude(start[0]));
        let half = self.p.n_dims as usize / 2;
        let mut angles = Angles::zero::<H>();
        let step = if self.mode == RopeMode::Norm { LANES / 2 } else { LANES };
        for first in (0..half).step_by(step) {
            let n = step.min(half - first);
            // One angle, where all rows have the same, stays in a register.
            if matches!(self.mode, RopeMode::Norm | RopeMode::Neox) {
                let mut only = [theta[0]];
                self.angles(&mut angles, (&mut only, [start[0]]), first, n);
                [theta[0]] = only;
            } else {
                self.angles(&mut angles, (&mut theta, start), first, n);
            }
            let turn = self.turn_by::<H>(&angles, magnitude);
            // Every head's floats begin at whole vectors, if those of the first one do and the strides are
            // whole vectors.
            let places = [&self.x, &self.y].map(|v| v.at([0, t, b]).addr() | v.nb[1]);
            let whole = n == step && (places[0] | places[1] | (half * 4)).is_multiple_of(BYTES);
            // SAFETY: `n` pairs from `first` on are among the `half` pairs; if they are a vector of them,
            // `whole` says that it begins at a multiple of 128 in all heads, as the vectors before it have as
            // many. This worker alone has claimed the token (the caller's contract).
            unsafe {
                if whole {
                    self.turn_heads::<H, true>(&turn, (t, b), first, n);
                } else {
                    self.turn_heads::<H, false>(&turn, (t, b), first, n);
                }
            }
        }
        let n_dims = self.p.n_dims as usize;
        if self.x.at([0, t, b]) != self.y.at([0, t, b]) && self.y.ne[0] > n_dims {
            let rest = self.y.ne[0] - n_dims;
            for h in 0..self.y.ne[1] {
                // SAFETY: this worker alone has claimed the token, with the rows of all its heads (the
                // caller's contract).
                let mut y = unsafe { self.y.part_mut([h, t, b], n_dims, rest) };
                y.copy::<H>(self.x.row([h, t, b]).part(n_dims, rest));
            }
        }
    }

    /// Turns `n` pairs from pair `first` on, of all heads of token `t` in batch `b`.
    ///
    /// # Safety
    /// 1. This worker alone has claimed the token. `n` is at least 1, and a vector's pairs at most; `first +
    ///    n` is at most half of `n_dims`.
    /// 2. If WHOLE, `n` is a vector's pairs, which in all heads of x and y begin at multiples of 128, both
    ///    halves of them.
    #[inline(always)]
    unsafe fn turn_heads<H: Hvx, const WHOLE: bool>(
        &self,
        turn: &Turn<H>,
        (t, b): (usize, usize),
        first: usize,
        n: usize,
    ) {
        let (n_dims, heads) = (self.p.n_dims as usize, self.y.ne[1]);
        assert!(n_dims <= self.x.ne[0] && n_dims <= self.y.ne[0] && heads == self.x.ne[1]);
        let mut x = self.x.row([0, t, b]).as_ptr();
        // SAFETY: this worker alone has claimed the token, with the rows of all its heads (point 1).
        let mut y = unsafe { self.y.row_mut([0, t, b]) }.as_mut_ptr();
        for _ in 0..heads {
            // SAFETY: x and y are rows of F32 with adjacent elements at [h, t, b], for all `heads` indices h
            // (checked by `row` for the first one; the others are a stride apart), so their first `n_dims`
            // floats (the assertion) are aligned for f32, readable and writable (the view's invariant). The
            // pairs are among those (point 1); `n` of them, or twice as many neighbours, are a vector at
            // most, and if WHOLE they are one, at a multiple of 128 (point 2). x lies in y's very place or
            // apart from it (validation).
            unsafe {
                if self.mode == RopeMode::Norm {
                    turn_neighbours::<H, WHOLE>(turn, x.add(2 * first), y.add(2 * first), 2 * n);
                } else {
                    turn_halves::<H, WHOLE>(turn, x.add(first), y.add(first), n_dims / 2, n);
                }
            }
            x = x.wrapping_byte_add(self.x.nb[1]);
            y = y.wrapping_byte_add(self.y.nb[1]);
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
        temperature: 0.0,
        temperature_span: 0,
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
            let modes = [RopeMode::Mrope, RopeMode::Vision, RopeMode::Imrope];
            modes.map(RopeMode::wire).contains(&self.p.mode)
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
            let vision = p.mode == RopeMode::Vision.wire();
            let spread = if vision { n / 2 } else { n } as f32;
            let scale = p.freq_base.powf(-2.0 / spread);
            let dim = |beta: f32| {
                spread * (p.n_ctx_orig as f32 / (beta * 2.0 * std::f32::consts::PI)).ln()
                    / (2.0 * p.freq_base.ln())
            };
            let (low, high) = (dim(p.beta_fast).floor().max(0.0), dim(p.beta_slow).ceil().min(spread - 1.0));
            let mut y = values.clone();
            for (r, y) in y.chunks_exact_mut(d).enumerate() {
                let x = &values[r * d..][..d];
                let start = self.positions[r / h % t].map(|p| p as f32);
                let mut theta = start;
                for i in 0..n / 2 {
                    let s = p.sections.map(|s| s as usize);
                    let sector = if self.multi() { i % (s[0] + s[1] + s[2] + s[3]) } else { 0 };
                    let section = if vision || p.mode == RopeMode::Mrope.wire() {
                        (1..4).rev().find(|&k| sector >= s[..k].iter().sum()).unwrap_or(0)
                    } else if p.mode == RopeMode::Imrope.wire() {
                        (0..3).find(|&k| sector % 3 == k && sector < 3 * s[k]).unwrap_or(3)
                    } else {
                        0
                    };
                    if vision && sector == s[..section].iter().sum() {
                        theta[section] = start[section];
                    }
                    let angle = theta[section] / self.factors.as_ref().map_or(1.0, |f| f[i]);
                    let (mut turned, mut magnitude) = (p.freq_scale * angle, f64::from(p.attn_factor));
                    if p.ext_factor != 0.0 {
                        let ramp = ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                        let mix = (1.0 - ramp) * p.ext_factor;
                        turned = turned * (1.0 - mix) + angle * mix;
                        magnitude *= 1.0 + 0.1 * (1.0 / f64::from(p.freq_scale)).ln();
                    }
                    if p.temperature != 0.0 {
                        let steps = (self.positions[r / h % t][0] / p.temperature_span as i32).max(0);
                        magnitude *= 1.0 + f64::from(p.temperature) * f64::from(1 + steps).ln();
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

    /// Positions before, at and past a whole span, from n_past as well.
    #[test]
    fn what_is_turned_grows_with_its_position() {
        for (mode, n_dims) in [(RopeMode::Norm, 128), (RopeMode::Neox, 64), (RopeMode::Norm, 30)] {
            for (temperature, temperature_span) in [(0.1, 4), (0.5, 16384), (2.0, 1)] {
                let plain = Rope { n_dims, mode: mode.wire(), ..PLAIN };
                let p = Rope { temperature, temperature_span, attn_factor: 0.9, ..plain };
                let positions = same([0, 3, 4, 16383, 16384, 120_000].into_iter());
                let case = Case { p, ne: [n_dims as usize, 3, 6, 2], positions, factors: None };
                case.check(&format!("{mode} {temperature} every {temperature_span}"));
                let positions = same(16380..16388);
                let in_a_row = Case { positions, ne: [n_dims as usize, 3, 8, 1], ..case };
                assert_eq!(in_a_row.run(false, false), in_a_row.run(false, true));
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
            for mode in [RopeMode::Mrope, RopeMode::Vision, RopeMode::Imrope] {
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

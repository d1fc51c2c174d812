//! RMS_NORM and L2_NORM: rows divided by their size.

mod squares;

use hexflash_abi::Fault;
use hexflash_abi::op::{norm as abi, params};

use self::squares::{SIDE, four, gather, sum_squares, sums_of_four};
use crate::hvx::{Hvx, LANES};
use crate::memory::{Lines, View};
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::{Row, RowMut};

/// Vectors of a unit, about: short rows (heads) are claimed several at a time.
const UNIT: usize = 128;

/// What a row is divided by.
#[derive(Clone, Copy, Debug)]
pub enum NormKind {
    /// sqrt(mean(x^2) + eps).
    Rms,
    /// max(sqrt(sum(x^2)), eps).
    L2,
}

/// y = x * factor(x) * w, row by row.
struct Norm {
    kind: NormKind,
    eps: f32,
    /// 1 / n, and 1 / eps.
    share: f32,
    largest: f32,
    x: View,
    w: Option<View>,
    y: View,
    /// Rows of a unit.
    rows: usize,
}

/// RMS_NORM, x / sqrt(mean(x^2) + eps), and L2_NORM, x / max(sqrt(sum(x^2)), eps): x{n,..}, w{n} optional
/// (only RMS_NORM has it) -> y{n,..}.
///
/// # Errors
/// None that validation lets through.
pub fn run(kind: NormKind, run: &mut OpRun<'_>) -> Result<(), Fault> {
    let p: params::Norm = run.params();
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    // L2_NORM has none, which validation sees to.
    let w = run.optional(abi::W);
    // Rows that are neighbours on axis 1 can share a root: it should be the longer axis.
    let [x, y] = if y.ne[2] > y.ne[1] { [x.exchanged(), y.exchanged()] } else { [x, y] };
    let rows = (UNIT / y.ne[0].div_ceil(LANES)).max(1);
    let (share, largest) = (1.0 / y.ne[0] as f32, 1.0 / p.eps);
    run.parallel(&Norm { kind, eps: p.eps, share, largest, x, w, y, rows })
}

/// Vectors 8 i to 8 i + 7.
///
/// # Safety
/// The row has vectors `8 * i` to `8 * i + 7` whole.
#[inline(always)]
unsafe fn eight<H: Hvx, const A: bool>(x: Row<'_, A>, i: usize) -> [H::F; 8] {
    // SAFETY: the row has vectors `8 * i` to `8 * i + 7` whole (the caller's contract).
    unsafe {
        [
            x.full_unchecked::<H>(8 * i),
            x.full_unchecked::<H>(8 * i + 1),
            x.full_unchecked::<H>(8 * i + 2),
            x.full_unchecked::<H>(8 * i + 3),
            x.full_unchecked::<H>(8 * i + 4),
            x.full_unchecked::<H>(8 * i + 5),
            x.full_unchecked::<H>(8 * i + 6),
            x.full_unchecked::<H>(8 * i + 7),
        ]
    }
}

/// Eight vectors times a factor, on their way to memory.
#[inline(always)]
fn times<H: Hvx>(v: [H::F; 8], factor: H::F) -> [H::Q; 8] {
    let mut product = [H::zero_q(); 8];
    for (product, v) in product.iter_mut().zip(v) {
        *product = H::mul_q(v, factor);
    }
    product
}

/// y = x * factor, and with W times w, in two roundings, as RMS_NORM and MUL have them.
#[inline(always)]
fn scale<H: Hvx, const A: bool, const W: bool>(
    x: Row<'_, A>,
    factor: H::F,
    w: Row<'_, A>,
    y: &mut RowMut<'_, A>,
) {
    assert!(y.len() == x.len() && (!W || w.len() == x.len()));
    let eights = x.whole() / 8;
    if eights > 0 {
        // Eight vectors are read and multiplied before the eight before them are written: x may be y, so that
        // the compiler could not move a load before a store.
        // SAFETY: `eights` is above 0, so x has vectors 0 to 7 whole.
        let mut product = unsafe { times::<H>(eight::<H, A>(x, 0), factor) };
        for i in 1..eights {
            // SAFETY: `i` is below `eights`, so x has vectors `8 * i` to `8 * i + 7` whole.
            let next = unsafe { eight::<H, A>(x, i) };
            // SAFETY: `i - 1` is below `eights`, so x has these eight vectors whole, and so have y and, with
            // W, w, which have its length.
            unsafe { put::<H, A, W>(y, w, i - 1, product) };
            product = times::<H>(next, factor);
        }
        // SAFETY: `eights - 1` is below `eights`, so x has these eight vectors whole, and so have y and, with
        // W, w, which have its length.
        unsafe { put::<H, A, W>(y, w, eights - 1, product) };
    }
    for i in 8 * eights..x.vectors() {
        let w = if W { w.vector::<H>(i) } else { factor };
        y.set_vector::<H>(i, product::<H, W>(x.vector::<H>(i), factor, w));
    }
}

/// v times a factor, and with W times w.
#[inline(always)]
fn product<H: Hvx, const W: bool>(v: H::F, factor: H::F, w: H::F) -> H::F {
    let v = H::mul(v, factor);
    if W { H::mul(v, w) } else { v }
}

/// Writes vectors 8 i to 8 i + 7 of y: `product`, with W times w.
///
/// # Safety
/// y has vectors `8 * i` to `8 * i + 7` whole, and with W so has w.
#[inline(always)]
unsafe fn put<H: Hvx, const A: bool, const W: bool>(
    y: &mut RowMut<'_, A>,
    w: Row<'_, A>,
    i: usize,
    product: [H::Q; 8],
) {
    for (j, product) in product.into_iter().enumerate() {
        let mut v = H::float(product);
        if W {
            // SAFETY: with W, w has vectors `8 * i` to `8 * i + 7` whole (the caller's contract).
            v = H::mul(v, unsafe { w.full_unchecked::<H>(8 * i + j) });
        }
        // SAFETY: y has vectors `8 * i` to `8 * i + 7` whole (the caller's contract).
        unsafe { y.set_full_unchecked::<H>(8 * i + j, v) };
    }
}

/// Vectors 4 i to 4 i + 3 times a factor, and with W times w.
///
/// # Safety
/// The row has these vectors whole.
#[inline(always)]
unsafe fn scaled_four<H: Hvx, const W: bool>(
    x: Row<'_, true>,
    i: usize,
    factor: H::F,
    w: [H::F; 4],
) -> [H::F; 4] {
    // SAFETY: the row has these vectors whole (the caller's contract).
    let [a, b, c, d] = unsafe { four::<H, true>(x, 4 * i) };
    [
        product::<H, W>(a, factor, w[0]),
        product::<H, W>(b, factor, w[1]),
        product::<H, W>(c, factor, w[2]),
        product::<H, W>(d, factor, w[3]),
    ]
}

/// Writes vectors 4 i to 4 i + 3.
///
/// # Safety
/// The row has these vectors whole.
#[inline(always)]
unsafe fn put_four<H: Hvx>(y: &mut RowMut<'_, true>, i: usize, v: [H::F; 4]) {
    // SAFETY: the row has these vectors whole (the caller's contract).
    unsafe {
        y.set_full_unchecked::<H>(4 * i, v[0]);
        y.set_full_unchecked::<H>(4 * i + 1, v[1]);
        y.set_full_unchecked::<H>(4 * i + 2, v[2]);
        y.set_full_unchecked::<H>(4 * i + 3, v[3]);
    }
}

/// The bits of a NaN that takes one instruction to make.
const NAN: i32 = -1;

/// Rows that share a root.
const BATCH: usize = 4 * SIDE;

impl Norm {
    /// What a row with this sum of squares is multiplied by: NaN where the sum is not finite. Otherwise the
    /// root of infinity would turn a row of values too large to be true into zeros, and qfloat arithmetic
    /// would make numbers of it.
    #[inline(always)]
    fn factor<H: Hvx>(&self, sum: H::F) -> H::F {
        match self.kind {
            NormKind::L2 => {
                let factor = H::min(H::rsqrt(sum), H::splat(self.largest));
                // Infinity is above neither infinity nor NaN, whether or not a comparison knows NaN.
                H::select_gt(H::splat(f32::INFINITY), sum, factor, H::from_bits(H::splat_i(NAN)))
            }
            NormKind::Rms => {
                let mean = H::mul(sum, H::splat(self.share));
                let factor = H::rsqrt(H::add(mean, H::splat(self.eps)));
                // The root of NaN is NaN where a comparison knows NaN, and elsewhere NaN is above all
                // numbers.
                H::select_gt(sum, H::splat(f32::MAX), H::from_bits(H::splat_i(NAN)), factor)
            }
        }
    }

    /// A function of its own, where that costs no instructions: registers are then its alone.
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    fn row<H: Hvx, const A: bool, const W: bool>(&self, x: Row<'_, A>, w: Row<'_, A>, y: &mut RowMut<'_, A>) {
        scale::<H, A, W>(x, self.factor::<H>(sum_squares::<H, A>(x)), w, y);
    }

    /// As many of the rows as can be, side by side; gives how many that are.
    ///
    /// # Safety
    /// This worker alone has claimed the rows.
    #[inline(always)]
    unsafe fn batches<H: Hvx, const W: bool>(
        &self,
        w: Option<Row<'_, true>>,
        first: usize,
        rows: usize,
    ) -> usize {
        if !self.y.ne[0].is_multiple_of(4 * LANES) {
            return 0;
        }
        let (Some(x), Some(y)) = (self.x.lines(first, rows), self.y.lines(first, rows)) else { return 0 };
        let mut done = 0;
        while rows - done >= SIDE {
            let some = if rows - done >= BATCH { BATCH } else { SIDE };
            // SAFETY: this worker alone has claimed the rows (the caller's contract), `some` more of which
            // there are. They have whole fours of vectors (checked above).
            unsafe { self.batch::<H, W>(x, y, w, done, some) };
            done += some;
        }
        done
    }

    /// Rows `first..first + n`, where `n` is [`SIDE`] or [`BATCH`]. A function of its own: else the
    /// compiler converts a constant of the root to qfloat once for all batches, and keeps it in memory, where
    /// v79 would lose its bits.
    ///
    /// # Safety
    /// 1. This worker alone has claimed the rows.
    /// 2. They have at least four vectors, and whole fours of them.
    #[cfg_attr(target_arch = "hexagon", inline(never))]
    #[cfg_attr(not(target_arch = "hexagon"), inline(always))]
    unsafe fn batch<H: Hvx, const W: bool>(
        &self,
        x: Lines<'_>,
        y: Lines<'_>,
        w: Option<Row<'_, true>>,
        first: usize,
        n: usize,
    ) {
        let fours = self.y.ne[0] / (4 * LANES);
        // SAFETY: x has y's shape (validation), so its rows have whole fours of vectors (point 2 of the
        // contract).
        let sums = |at: usize| unsafe { sums_of_four::<H>(x.rows(first + at), fours) };
        let sums = if n == BATCH {
            gather::<H>([sums(0), sums(SIDE), sums(2 * SIDE), sums(3 * SIDE)])
        } else {
            sums(0)
        };
        let factors = H::lanes(self.factor::<H>(sums));
        // That of row `i` of the rows from `at` on.
        let factor = |at: usize, i: usize| H::lane(&factors, (8 * i + at / SIDE) % LANES);
        for at in (0..n).step_by(SIDE) {
            let from: [Row<'_, true>; SIDE] = x.rows(first + at);
            // SAFETY: this worker alone has claimed the rows (point 1 of the contract), and x is y or apart
            // from it (validation).
            let mut to: [RowMut<'_, true>; SIDE] = unsafe { y.rows_mut(first + at) };
            for v in 0..fours {
                // SAFETY: the rows have whole fours of vectors (point 2 of the contract), and so has w
                // (validation). All are read before any is written, so that they can overlap in time.
                unsafe {
                    let w = if W { four::<H, true>(w.unwrap_or(from[0]), 4 * v) } else { [factor(at, 0); 4] };
                    let a = scaled_four::<H, W>(from[0], v, factor(at, 0), w);
                    let b = scaled_four::<H, W>(from[1], v, factor(at, 1), w);
                    let c = scaled_four::<H, W>(from[2], v, factor(at, 2), w);
                    let d = scaled_four::<H, W>(from[3], v, factor(at, 3), w);
                    let [to_a, to_b, to_c, to_d] = &mut to;
                    put_four::<H>(to_a, v, a);
                    put_four::<H>(to_b, v, b);
                    put_four::<H>(to_c, v, c);
                    put_four::<H>(to_d, v, d);
                }
            }
        }
    }
}

impl Kernel for Norm {
    fn units(&self) -> usize {
        self.y.rows().div_ceil(self.rows)
    }

    fn work(&self) -> usize {
        // Two passes; the reduction and the root of a row cost as much as some more vectors.
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 6 + 20)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let w = self.w.as_ref().map(|w| w.row([0; 3]));
        while let Some(unit) = worker.claim() {
            let first = unit * self.rows;
            let rows = self.rows.min(self.y.rows() - first);
            // SAFETY: `claim` gives the unit, and with it its rows of y, to this worker alone.
            let done = unsafe {
                match w.map(Row::aligned) {
                    _ if rows < SIDE => 0,
                    Some(None) => 0,
                    Some(w) => self.batches::<H, true>(w, first, rows),
                    None => self.batches::<H, false>(None, first, rows),
                }
            };
            let (first, rows) = (first + done, rows - done);
            if rows == 0 {
                continue;
            }
            // SAFETY: `claim` gives the unit, and with it its rows of y, to this worker alone, and `batches`
            // is done with those that it has written.
            let written = unsafe { self.y.rows_mut_from(first, rows) };
            for (x, mut y) in self.x.rows_from(first, rows).zip(written) {
                // Without weights the row stands in for them, unread.
                let (weighted, w) = (w.is_some(), w.unwrap_or(x));
                match (x.aligned(), w.aligned(), y.aligned()) {
                    (Some(x), Some(w), Some(mut y)) if weighted => self.row::<H, true, true>(x, w, &mut y),
                    (Some(x), Some(w), Some(mut y)) => self.row::<H, true, false>(x, w, &mut y),
                    _ if weighted => self.row::<H, false, true>(x, w, &mut y),
                    _ => self.row::<H, false, false>(x, w, &mut y),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::TensorIndex;
    use hexflash_abi::op::{Op, params};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, nmse, random};

    /// The definitions, in double precision.
    fn reference(op: Op, x: &[f32], n: usize, w: Option<&[f32]>, eps: f64) -> Vec<f32> {
        let row = |row: &[f32]| {
            let sum: f64 = row.iter().map(|&v| f64::from(v).powi(2)).sum();
            let size = if op == Op::L2Norm { sum.sqrt().max(eps) } else { (sum / n as f64 + eps).sqrt() };
            let weight = |j: usize| w.map_or(1.0, |w| f64::from(w[j]));
            row.iter().enumerate().map(|(j, &v)| (f64::from(v) / size * weight(j)) as f32).collect::<Vec<_>>()
        };
        x.chunks_exact(n).flat_map(row).collect()
    }

    #[test]
    fn norms_match_double_precision() {
        // The last two are large enough for several workers.
        for (n, rows) in
            [(1, 3), (31, 3), (32, 3), (33, 2), (100, 3), (128, 1), (256, 5), (5000, 64), (200_003, 2)]
        {
            for (op, weighted) in [(Op::RmsNorm, false), (Op::RmsNorm, true), (Op::L2Norm, false)] {
                let values = random(n as u64, n * rows, -3.0, 5.0);
                let weights = weighted.then(|| random(7, n, 0.5, 1.5));
                for in_place in [false, true] {
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let shape = [n as u32, rows as u32, 1, 1];
                        let x = batch.f32(shape, &values);
                        let mut src = vec![x];
                        src.extend(weights.as_ref().map(|w| batch.f32([n as u32, 1, 1, 1], w)));
                        let y = if in_place { x } else { batch.f32(shape, &vec![7.0; n * rows]) };
                        let p = params::Norm { eps: 1e-6 };
                        batch.run(setup, op, &src, &[y], &p, StepRegisters::step(0, 1)).unwrap();
                        batch.floats(y)
                    });
                    let expected = reference(op, &values, n, weights.as_deref(), 1e-6);
                    let error = nmse(&actual, &expected);
                    assert!(error < 1e-12, "{op} n={n} weighted={weighted} in_place={in_place}: {error}");
                }
            }
        }
    }

    /// What eps does at the ends: zeros stay zeros, and a row shorter than eps is divided by eps.
    #[test]
    fn eps_bounds_the_divisor() {
        for (op, x, eps, expected) in [
            (Op::RmsNorm, [0.0, 0.0], 1e-6, [0.0, 0.0]),
            (Op::L2Norm, [0.0, 0.0], 1e-6, [0.0, 0.0]),
            (Op::L2Norm, [0.0, 0.25], 0.5, [0.0, 0.5]),
            (Op::L2Norm, [3.0, 4.0], 0.5, [0.6, 0.8]),
            (Op::RmsNorm, [1.0, 1.0], 3.0, [0.5, 0.5]),
        ] {
            let actual = everywhere(|setup| {
                let mut batch = Batch::new(1, 1);
                let (x, y) = (batch.f32([2, 1, 1, 1], &x), batch.f32([2, 1, 1, 1], &[7.0; 2]));
                let p = params::Norm { eps };
                batch.run(setup, op, &[x], &[y], &p, StepRegisters::step(0, 1)).unwrap();
                batch.floats(y)
            });
            assert!(nmse(&actual, &expected) < 1e-12, "{op} {x:?}: {actual:?}");
        }
    }

    /// Rows that share a root with others have the bits that they have alone, whatever axis is the longer
    /// one.
    #[test]
    fn rows_do_not_depend_on_their_neighbours() {
        for (n, heads, tokens) in [(128, 3, 50), (128, 37, 2), (256, 2, 21), (384, 16, 1), (1024, 1, 7)] {
            let (width, rows) = (n * heads + 32, heads * tokens);
            let values = random(n as u64, width * tokens, -3.0, 5.0);
            let weights = random(7, n, 0.5, 1.5);
            let p = params::Norm { eps: 1e-6 };
            let together = everywhere(|setup| {
                let mut batch = Batch::new(tokens as u32, 100);
                let x = batch.f32([width as u32, tokens as u32, 1, 1], &values);
                let shape = [n as u32, heads as u32, tokens as u32, 1];
                let x = batch.view(x, |t| {
                    t.ne = shape;
                    t.nb = [1, n, width, width * tokens].map(|floats| 4 * floats as u32);
                    t.token_axis = 2;
                });
                let y = batch.f32(shape, &vec![7.0; n * rows]);
                let y = batch.view(y, |t| t.token_axis = 2);
                let w = batch.f32([n as u32, 1, 1, 1], &weights);
                let step = StepRegisters::step(0, tokens as u32);
                batch.run(setup, Op::RmsNorm, &[x, w], &[y], &p, step).unwrap();
                batch.floats(y)
            });
            for (r, row) in together.chunks_exact(n).enumerate() {
                let from = &values[r / heads * width + r % heads * n..][..n];
                let alone = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let shape = [n as u32, 1, 1, 1];
                    let (x, w, y) =
                        (batch.f32(shape, from), batch.f32(shape, &weights), batch.f32(shape, &vec![7.0; n]));
                    batch.run(setup, Op::RmsNorm, &[x, w], &[y], &p, StepRegisters::step(0, 1)).unwrap();
                    batch.floats(y)
                });
                assert_eq!(alone, row, "{n} {heads} {tokens}, row {r}");
            }
        }
    }

    /// Heads inside wider rows, of which a step has fewer tokens than the program: the others stay untouched,
    /// and a row gives the same bits alone as among others.
    #[test]
    fn views_and_the_token_axis() {
        let (width, heads, tokens, n) = (100, 2, 5, 33);
        let values = random(3, width * tokens, -2.0, 2.0);
        let run = |n_tokens: u32| {
            everywhere(|setup| {
                let mut batch = Batch::new(tokens as u32, 10);
                let x = batch.f32([width as u32, tokens as u32, 1, 1], &values);
                let y = batch.f32([n as u32, heads as u32, tokens as u32, 1], &vec![7.0; n * heads * tokens]);
                let part = batch.view(x, |t| {
                    t.offset += 4;
                    t.ne = [n as u32, heads as u32, tokens as u32, 1];
                    t.nb = [4, 160, 400, 2000];
                    t.token_axis = 2;
                });
                let out: TensorIndex = batch.view(y, |t| t.token_axis = 2);
                let p = params::Norm { eps: 1e-6 };
                batch.run(setup, Op::RmsNorm, &[part], &[out], &p, StepRegisters::step(0, n_tokens)).unwrap();
                batch.floats(y)
            })
        };
        let full = run(5);
        for (r, row) in full.chunks_exact(n).enumerate() {
            let at = r / heads * width + 1 + r % heads * 40;
            let expected = reference(Op::RmsNorm, &values[at..at + n], n, None, 1e-6);
            assert!(nmse(row, &expected) < 1e-12);
        }
        let clipped = run(2);
        let done = 2 * heads * n;
        assert_eq!(clipped[..done], full[..done]);
        assert!(clipped[done..].iter().all(|&v| v == 7.0));
    }
}

//! ARGMAX: the index of the first maximum of each row.
//!
//! The first, as greedy samplers have it; ggml's CPU op gives the last. The result does not depend on how a
//! row is split, so few long rows (logits) are split over the workers.
//!
//! A row is read once, for its maximum and the block that it is first in. Only that block is then searched
//! for the element: an index per element would take more operations than the maximum does.
//!
//! The maximum of a row with NaN or infinity means nothing, so the op fails on such a row. It still writes an
//! index for every row: NaN is never chosen, and a row of NaN alone gives 0. NaN is found by its bits,
//! because on some processors comparisons take it for a large number; a part with NaN is then gone through
//! again, element by element.
//!
//! On demand it also tells the margin: how far the maximum is above the second-best value. For logits that is
//! the log of how much likelier the best token is than any other, which tells a good guess from a bad one for
//! two more operations per vector.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::Fault;
use hexflash_abi::op::argmax as abi;

use crate::hvx::{Hvx, LANES, math};
use crate::kernels::shared::damage::Damage;
use crate::kernels::shared::lanes::INDEX;
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::Row;

/// Parts of rows that one run may have.
const PARTS: usize = 64;

/// Elements of a part, at least: half a microsecond of work.
const PART: usize = 16_384;

/// Vectors of a block: few, as one is searched in the end, but enough for their loads, of which one can start
/// per packet, to hide what a block takes besides.
const BLOCK: usize = 16;

/// The maximum of some elements.
#[derive(Clone, Copy)]
struct Found {
    /// The first element of the block that it is first in.
    index: usize,
    value: f32,
    /// The largest value of all the others, -infinity if there are none; only where the margin is wanted.
    second: f32,
}

/// A part's maximum, or `None` if all is NaN.
type Best = Option<Found>;

/// A [`Best`] on its way from a worker to the dispatcher.
struct SharedBest {
    /// Index in the row; `NOTHING` for none.
    index: AtomicU32,
    /// Bits of the value.
    value: AtomicU32,
    /// Bits of the second-best value.
    second: AtomicU32,
}

const NOTHING: u32 = u32::MAX;

/// The maximum of every part of every row. Rows in one part get their result at once.
struct Argmax {
    x: View,
    y: View,
    margin: Option<View>,
    /// Parts of a row.
    parts: usize,
    /// Elements of a part but the last.
    part: usize,
    /// Results of the parts of split rows, in order.
    found: [SharedBest; PARTS],
    damage: Damage,
}

/// ARGMAX: x{n,m} -> y{m} I32, margin{m} F32 if wanted: infinity for a row of one, 0 where there is no
/// maximum.
///
/// # Errors
/// A row with NaN or infinity.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, y, margin) = (run.operand(abi::X)?, run.operand(abi::Y)?, run.optional(abi::MARGIN));
    let [n, m, ..] = x.ne;
    let wanted = n.div_ceil(PART).min(PARTS / m).max(1);
    let part = n.div_ceil(wanted).next_multiple_of(BLOCK * LANES);
    let empty =
        || SharedBest { index: AtomicU32::new(NOTHING), value: AtomicU32::new(0), second: AtomicU32::new(0) };
    let found = core::array::from_fn(|_| empty());
    let kernel = Argmax { x, y, margin, parts: n.div_ceil(part), part, found, damage: Damage::none() };
    run.parallel(&kernel)?;
    if kernel.parts > 1 {
        run.parallel(&Answers(&kernel))?;
    }
    kernel.damage.outcome()
}

impl SharedBest {
    // Relaxed: the end of the job orders what workers store before what those of the next job load.
    fn set(&self, best: Best) {
        if let Some(best) = best {
            self.value.store(best.value.to_bits(), Ordering::Relaxed);
            self.second.store(best.second.to_bits(), Ordering::Relaxed);
            self.index.store(best.index as u32, Ordering::Relaxed);
        }
    }

    fn get(&self) -> Best {
        let index = self.index.load(Ordering::Relaxed);
        let float = |bits: &AtomicU32| f32::from_bits(bits.load(Ordering::Relaxed));
        (index != NOTHING).then(|| Found {
            index: index as usize,
            value: float(&self.value),
            second: float(&self.second),
        })
    }
}

impl Argmax {
    /// Writes the op's answer for row `r`.
    ///
    /// # Safety
    /// Nobody else reads or writes element `r` of the outputs.
    #[inline(always)]
    unsafe fn answer<H: Hvx>(&self, r: usize, best: Best) {
        let index = match best {
            Some(best) => first_equal::<H>(self.x.row([r, 0, 0]), best.index, best.value),
            None => 0,
        };
        // Validation bounds rows to i32::MAX elements.
        // SAFETY: nobody else uses element `r` of y (the caller's contract), and `set_int` checks the index.
        unsafe { self.y.set_int([r, 0, 0, 0], index as i32) };
        if let Some(margin) = &self.margin {
            let above = best.map_or(0.0, |best| best.value - best.second);
            // SAFETY: nobody else uses element `r` of the margins (the caller's contract), and `part_mut`
            // checks the index; validation gives them the shape of y.
            let mut to = unsafe { margin.part_mut([0; 3], r, 1) };
            // Equals are not above each other: not by -0, nor infinities by NaN.
            to.set(0, if above > 0.0 { above } else { 0.0 });
        }
    }
}

/// The larger of two; the one with the lower index where they are equal.
#[inline(always)]
fn first_max(a: Best, b: Best) -> Best {
    match (a, b) {
        (Some(a), Some(b)) => {
            let b_wins = b.value > a.value || (b.value == a.value && b.index < a.index);
            let (best, other) = if b_wins { (b, a) } else { (a, b) };
            Some(Found { second: best.second.max(other.value).max(other.second), ..best })
        }
        (a, b) => a.or(b),
    }
}

/// Per lane the largest value of some vectors, and the largest of the others.
#[derive(Clone, Copy)]
struct Top<H: Hvx> {
    value: H::F,
    second: H::F,
}

impl<H: Hvx> Top<H> {
    #[inline(always)]
    fn nothing() -> Self {
        let lowest = H::splat(f32::NEG_INFINITY);
        Self { value: lowest, second: lowest }
    }

    /// With another vector.
    #[inline(always)]
    fn with<const MARGIN: bool>(self, v: H::F) -> Self {
        let second = if MARGIN { H::larger(self.second, H::smaller(v, self.value)) } else { self.second };
        Self { value: H::larger(v, self.value), second }
    }

    /// With the vectors of block number `block`, and which block each lane is of, `first` until now. Only
    /// what is strictly greater comes in, so that the first block stays.
    #[inline(always)]
    fn then<const MARGIN: bool>(self, first: H::I, other: Self, block: usize) -> (Self, H::I) {
        let turn = H::from_bits(H::splat_i(block as i32));
        let first = H::bits(H::select_gt(other.value, self.value, turn, H::from_bits(first)));
        (self.and::<MARGIN>(other), first)
    }

    /// With the vectors of another.
    #[inline(always)]
    fn and<const MARGIN: bool>(self, other: Self) -> Self {
        let both = self.with::<MARGIN>(other.value);
        let second = if MARGIN { H::larger(both.second, other.second) } else { both.second };
        Self { second, ..both }
    }
}

/// The bits but the sign: above those of infinity for NaN.
#[inline(always)]
fn size<H: Hvx>(v: H::F) -> H::I {
    H::and_i(H::bits(v), H::splat_i(i32::MAX))
}

/// The smallest lane.
#[inline(always)]
fn min_lane<H: Hvx>(x: H::F) -> f32 {
    -H::max_lane(math::negate::<H>(x))
}

/// Vectors that are looked at in a turn.
const TURN: usize = 4;

/// The maximum of `row`, whose first element has index `start`, with the second-best value if `MARGIN`; and
/// whether it has values that no logit may have: NaN, or infinity. (-infinity may be one of a token that is
/// not to be chosen.)
#[inline(always)]
fn find<H: Hvx, const A: bool, const MARGIN: bool>(row: Row<'_, A>, start: usize) -> (Best, bool) {
    let (mut best, mut first) = (Top::<H>::nothing(), H::splat_i(0));
    // NaN is looked for in the largest and the smallest floats, or by the bits of all.
    let (mut sizes, mut least) = (H::splat_i(0), H::splat(0.0));
    let whole = row.whole() / BLOCK;
    for block in 0..whole {
        // By name: as an array they would be in memory.
        let (mut a, mut b) = (Top::<H>::nothing(), Top::<H>::nothing());
        for i in 0..BLOCK / TURN {
            let at = block * BLOCK + TURN * i;
            // SAFETY: `block` is below `whole`, and `i` below the turns of a block, so all four vectors are
            // of a block that the row has whole.
            let (v0, v1, v2, v3) = unsafe {
                (
                    row.full_unchecked::<H>(at),
                    row.full_unchecked::<H>(at + 1),
                    row.full_unchecked::<H>(at + 2),
                    row.full_unchecked::<H>(at + 3),
                )
            };
            a = a.with::<MARGIN>(v0).with::<MARGIN>(v2);
            b = b.with::<MARGIN>(v1).with::<MARGIN>(v3);
            if H::NAN_HAS_A_PLACE {
                least = H::smaller(least, H::smaller(H::smaller(v0, v1), H::smaller(v2, v3)));
            } else {
                let larger = H::max_i(H::max_i(size::<H>(v0), size::<H>(v1)), size::<H>(v2));
                sizes = H::max_i(sizes, H::max_i(larger, size::<H>(v3)));
            }
        }
        (best, first) = best.then::<MARGIN>(first, a.and::<MARGIN>(b), block);
    }
    // Fewer vectors than a block, and perhaps a part of one.
    let mut a = Top::<H>::nothing();
    for i in whole * BLOCK..row.whole() {
        let v = row.full::<H>(i);
        a = a.with::<MARGIN>(v);
        sizes = H::max_i(sizes, size::<H>(v));
    }
    if row.whole() < row.vectors() {
        let (v, lanes) = (row.vector::<H>(row.whole()), row.len() % LANES);
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        let v = H::select_gt(H::splat(lanes as f32), lane, v, H::splat(f32::NEG_INFINITY));
        a = a.with::<MARGIN>(v);
        sizes = H::max_i(sizes, size::<H>(v));
    }
    (best, first) = best.then::<MARGIN>(first, a, whole);
    if H::NAN_HAS_A_PLACE {
        sizes = H::max_i(sizes, H::max_i(size::<H>(best.value), size::<H>(least)));
    }
    let above = H::to_float(H::sub_i(sizes, H::splat_i(f32::INFINITY.to_bits() as i32)));
    if H::max_lane(above) > 0.0 {
        return (careful(row, start), true);
    }
    let value = H::max_lane(best.value);
    let block = H::select_gt(H::splat(value), best.value, H::splat(f32::MAX), H::to_float(first));
    let index = start + min_lane::<H>(block) as usize * BLOCK * LANES;
    let second = if MARGIN { second_lane::<H>(best) } else { f32::NEG_INFINITY };
    (Some(Found { index, value, second }), value == f32::INFINITY)
}

/// The second-best value.
#[inline(always)]
fn second_lane<H: Hvx>(best: Top<H>) -> f32 {
    let (mut values, mut seconds) = ([0.0f32; LANES], [0.0f32; LANES]);
    // SAFETY: both arrays have 32 floats, which are 128 bytes.
    unsafe {
        H::store(values.as_mut_ptr(), best.value);
        H::store(seconds.as_mut_ptr(), best.second);
    }
    let (mut top, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (value, other) in values.into_iter().zip(seconds) {
        second = second.max(top.min(value)).max(other);
        top = top.max(value);
    }
    second
}

/// As [`find`], element by element: for rows with NaN, of which vectors know too little.
#[cold]
fn careful<const A: bool>(row: Row<'_, A>, start: usize) -> Best {
    (0..row.len()).fold(None, |best, i| {
        let (index, value) = (start + i, row.get(i));
        let found = (!value.is_nan()).then_some(Found { index, value, second: f32::NEG_INFINITY });
        first_max(best, found)
    })
}

/// The first element of `row` that equals `value`, which is in the block from `at` on.
#[inline(always)]
fn first_equal<H: Hvx>(row: Row<'_>, at: usize, value: f32) -> usize {
    let block = row.part(at, (BLOCK * LANES).min(row.len() - at));
    // Per lane the first vector with it. Backwards, so that the first one stays. What follows the row may be
    // taken for it, too, but is no lower than all in the row.
    let (wanted, mut first) = (H::splat(value), H::splat(BLOCK as f32));
    for i in (0..block.vectors()).rev() {
        first = H::select_gt(wanted, block.vector::<H>(i), first, H::splat(i as f32));
    }
    // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
    let lane = unsafe { H::load(INDEX.as_ptr()) };
    let index = min_lane::<H>(H::add_ieee(H::mul_ieee(first, H::splat(LANES as f32)), lane)) as usize;
    if index < block.len() && block.get(index) == value {
        return at + index;
    }
    // NaN is in front of it, or the host has changed it since.
    at + (0..block.len()).find(|&i| block.get(i) == value).unwrap_or(0)
}

impl Kernel for Argmax {
    fn units(&self) -> usize {
        self.x.ne[1] * self.parts
    }

    fn work(&self) -> usize {
        self.x.ne[1].saturating_mul(self.x.ne[0].div_ceil(LANES) * 2 + 200)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            let (r, start) = (unit / self.parts, unit % self.parts * self.part);
            let row = self.x.row([r, 0, 0]);
            let part = row.part(start, self.part.min(row.len() - start));
            let (best, damaged) = match (part.aligned(), &self.margin) {
                (Some(part), None) => find::<H, true, false>(part, start),
                (Some(part), Some(_)) => find::<H, true, true>(part, start),
                (None, None) => find::<H, false, false>(part, start),
                (None, Some(_)) => find::<H, false, true>(part, start),
            };
            if damaged {
                self.damage.note(r);
            }
            if self.parts > 1 {
                self.found[unit].set(best);
            } else {
                // SAFETY: `claim` gives row `r`, and with it element `r` of the outputs, to this worker
                // alone.
                unsafe { self.answer::<H>(r, best) };
            }
        }
        Ok(())
    }
}

/// The answers of rows in several parts.
struct Answers<'a>(&'a Argmax);

impl Kernel for Answers<'_> {
    fn units(&self) -> usize {
        self.0.x.ne[1]
    }

    fn work(&self) -> usize {
        self.units().saturating_mul(2 * BLOCK + 200)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let parts = self.0.parts;
        while let Some(r) = worker.claim() {
            let found = &self.0.found[r * parts..][..parts];
            let best = found.iter().fold(None, |best, slot| first_max(best, slot.get()));
            // SAFETY: `claim` gives row `r`, and with it element `r` of the outputs, to this worker alone.
            unsafe { self.0.answer::<H>(r, best) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    /// The definition, element by element.
    fn reference(row: &[f32]) -> i32 {
        let mut best = None;
        for (i, &v) in row.iter().enumerate() {
            if best.is_none_or(|(_, b)| v > b) {
                best = Some((i as i32, v));
            }
        }
        best.map_or(0, |(i, _)| i)
    }

    /// The same for margins: the largest value less the largest of the others.
    fn margin(row: &[f32]) -> f32 {
        let mut sorted: Vec<f32> = row.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let above = match sorted[..] {
            [] => 0.0,
            [best] => best - f32::NEG_INFINITY,
            [best, second, ..] => best - second,
        };
        if above > 0.0 { above } else { 0.0 }
    }

    fn check(n: usize, values: &[f32]) {
        let m = (values.len() / n) as u32;
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(1, 1);
            let x = batch.f32([n as u32, m, 1, 1], values);
            let [y, z] = [(); 2].map(|()| batch.i32([m, 1, 1, 1], &vec![-7; m as usize]));
            let margins = batch.f32([m, 1, 1, 1], &vec![-7.0; m as usize]);
            let step = StepRegisters::step(0, 1);
            batch.run(setup, Op::Argmax, &[x], &[y], &[0u32; 0], step).unwrap();
            batch.run(setup, Op::Argmax, &[x], &[z, margins], &[0u32; 0], step).unwrap();
            assert_eq!(batch.ints(z), batch.ints(y), "with margins, n={n} m={m}");
            let margins = batch.floats(margins);
            batch
                .ints(y)
                .iter()
                .zip(&margins)
                .map(|(&best, margin)| [best, margin.to_bits() as i32])
                .collect()
        });
        let bits = |row| margin(row).to_bits() as i32;
        let expected: Vec<_> = values.chunks_exact(n).map(|row| [reference(row), bits(row)]).collect();
        assert_eq!(actual, expected, "n={n} m={m}");
    }

    #[test]
    fn random_rows() {
        for (n, m) in
            [(1, 3), (31, 3), (32, 2), (33, 5), (100, 7), (256, 70), (4097, 65), (248_320, 1), (20_000, 9)]
        {
            check(n, &random(n as u64, n * m, -9.0, 5.0));
        }
    }

    /// Few distinct values: ties within a vector, between vectors, between accumulators and between parts.
    #[test]
    fn the_first_of_equals_wins() {
        for (n, m) in [(33, 40), (300, 20), (8192 * 3 + 5, 3), (100_000, 2)] {
            check(n, &random(1, n * m, 0.0, 3.0).iter().map(|v| v.floor()).collect::<Vec<_>>());
            check(n, &vec![-1.0; n * m]);
            let mut row = vec![-5.0; n];
            for at in [n - 1, n - 2, n / 2, n / 3] {
                row[at] = -1.0;
                check(n, &row);
            }
        }
        check(2, &[0.0, -0.0, -0.0, 0.0]);
    }

    #[test]
    fn rows_of_nothing_but_minus_infinity() {
        let low = f32::NEG_INFINITY;
        check(3, &[low, low, low]);
        let n = 50_000;
        for at in [0, 31, 32, 9000, n - 1] {
            let mut row = vec![low; n];
            check(n, &row);
            row[at] = -1.0;
            check(n, &row);
        }
    }

    /// Rows apart, and a step with fewer tokens than the program.
    #[test]
    fn views_and_the_token_axis() {
        let values = random(8, 50 * 6, -1.0, 1.0);
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(6, 8);
            let x = batch.f32([50, 6, 1, 1], &values);
            let x = batch.view(x, |t| (t.ne[0], t.offset, t.token_axis) = (40, t.offset + 20, 1));
            let y = batch.i32([6, 1, 1, 1], &[-7; 6]);
            let out = batch.view(y, |t| t.token_axis = 0);
            batch.run(setup, Op::Argmax, &[x], &[out], &[0u32; 0], StepRegisters::step(0, 4)).unwrap();
            batch.ints(y)
        });
        let expected = |t: usize| if t < 4 { reference(&values[50 * t + 5..][..40]) } else { -7 };
        assert_eq!(actual, (0..6).map(expected).collect::<Vec<_>>());
    }
}

//! ARGMAX: the index of the first maximum of each row.
//!
//! The first, as greedy samplers have it; ggml's CPU op gives the last. The result does not depend on how a
//! row is split, so few long rows (logits) are split over the workers.
//!
//! The maximum of a row with NaN or infinity means nothing, so the op fails on such a row. It still writes an
//! index for every row: NaN is never chosen, and a row of NaN alone gives 0. NaN is found by its bits,
//! because on some processors comparisons take it for a large number.
//!
//! On demand it also tells the margin: how far the maximum is above the second-best value. For logits that is
//! the log of how much likelier the best token is than any other, which tells a good guess from a bad one for
//! two more operations per vector.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::Fault;
use hexflash_abi::op::argmax as abi;

use super::{Damage, INDEX, OpRun};
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::pool::{Kernel, Worker};
use crate::row::Row;

/// Parts of rows that one run may have.
const PARTS: usize = 64;

/// Elements of a part, at least: some microseconds of work.
const PART: usize = 8192;

/// The first maximum of some elements.
#[derive(Clone, Copy)]
struct Found {
    index: usize,
    value: f32,
    /// The largest value of all the others, -infinity if there are none; only where the margin is wanted.
    second: f32,
}

/// A part's first maximum, or `None` if all is NaN.
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

/// The first maximum of every part of every row. Rows in one part get their result at once.
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
    let part = n.div_ceil(wanted).next_multiple_of(4 * LANES);
    let empty =
        || SharedBest { index: AtomicU32::new(NOTHING), value: AtomicU32::new(0), second: AtomicU32::new(0) };
    let found = core::array::from_fn(|_| empty());
    let kernel = Argmax { x, y, margin, parts: n.div_ceil(part), part, found, damage: Damage::none() };
    run.parallel(&kernel)?;
    if kernel.parts > 1 {
        for (r, parts) in kernel.found.chunks(kernel.parts).take(m).enumerate() {
            let best = parts.iter().fold(None, |best, slot| first_max(best, slot.get()));
            // SAFETY: `parallel` has returned, so the workers are done, and this thread alone uses the
            // outputs.
            unsafe { kernel.answer(r, best) };
        }
    }
    kernel.damage.outcome()
}

impl SharedBest {
    // Relaxed: the end of the job orders what workers store before what the dispatcher loads.
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
    unsafe fn answer(&self, r: usize, best: Best) {
        // Validation bounds rows to i32::MAX elements.
        let index = best.map_or(0, |best| best.index as i32);
        // SAFETY: nobody else uses element `r` of y (the caller's contract), and `set_int` checks the index.
        unsafe { self.y.set_int([r, 0, 0, 0], index) };
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

/// Per lane the largest value so far, the turn it came in, -1 while nothing is above -infinity, and the
/// largest of the other values.
#[derive(Clone, Copy)]
struct Lanes<H: Hvx> {
    value: H::F,
    turn: H::I,
    second: H::F,
}

impl<H: Hvx> Lanes<H> {
    #[inline(always)]
    fn nothing() -> Self {
        let lowest = H::splat(f32::NEG_INFINITY);
        Self { value: lowest, turn: H::splat_i(-1), second: lowest }
    }

    /// With another vector. Only what is strictly greater comes in, so that the first stays.
    #[inline(always)]
    fn with<const MARGIN: bool>(self, v: H::F, turn: H::I) -> Self {
        let Self { value, turn: at, mut second } = self;
        let at = H::bits(H::select_gt(v, value, H::from_bits(turn), H::from_bits(at)));
        if MARGIN {
            let loser = H::select_gt(v, value, value, v);
            second = H::select_gt(loser, second, loser, second);
        }
        Self { value: H::select_gt(v, value, v, value), turn: at, second }
    }
}

/// Has the sign bit of each lane set in which `v` is NaN.
#[inline(always)]
fn nan<H: Hvx>(v: H::F) -> H::I {
    let size = H::and_i(H::bits(v), H::splat_i(i32::MAX));
    // What is above infinity, and nothing else, carries into the sign.
    H::add_i(size, H::splat_i(i32::MAX - f32::INFINITY.to_bits() as i32))
}

/// Vectors that are looked at in a turn.
const TURN: usize = 4;

/// The first maximum of `row`, whose first element has index `start`, with the second-best value if `MARGIN`;
/// and whether it has values that no logit may have: NaN, or infinity. (-infinity may be one of a token that
/// is not to be chosen.)
#[inline(always)]
fn find<H: Hvx, const MARGIN: bool>(row: Row<'_>, start: usize) -> (Best, bool) {
    // By name: as an array they would be in memory.
    let none = Lanes::<H>::nothing();
    let (mut a, mut b, mut c, mut d) = (none, none, none, none);
    let mut wrong = H::splat_i(0);
    let turns = row.whole() / TURN;
    for i in 0..turns {
        let turn = H::splat_i(i as i32);
        // SAFETY: `i` is below `turns`, so all four vectors are below `TURN * turns`, which is at most the
        // row's `whole` vectors.
        let (v0, v1, v2, v3) = unsafe {
            (
                row.full_unchecked::<H>(TURN * i),
                row.full_unchecked::<H>(TURN * i + 1),
                row.full_unchecked::<H>(TURN * i + 2),
                row.full_unchecked::<H>(TURN * i + 3),
            )
        };
        a = a.with::<MARGIN>(v0, turn);
        b = b.with::<MARGIN>(v1, turn);
        c = c.with::<MARGIN>(v2, turn);
        d = d.with::<MARGIN>(v3, turn);
        let nans = [nan::<H>(v0), nan::<H>(v1), nan::<H>(v2), nan::<H>(v3)];
        wrong = H::or_i(wrong, H::or_i(H::or_i(nans[0], nans[1]), H::or_i(nans[2], nans[3])));
    }
    let mut best = [a, b, c, d];
    for (best, i) in best.iter_mut().zip(TURN * turns..row.vectors()) {
        let (v, lanes) = (row.vector::<H>(i), row.len() - i * LANES);
        // SAFETY: `INDEX` is an array of 32 floats, which are 128 bytes.
        let lane = unsafe { H::load(INDEX.as_ptr()) };
        let v = H::select_gt(H::splat(lanes as f32), lane, v, H::splat(f32::NEG_INFINITY));
        *best = best.with::<MARGIN>(v, H::splat_i(turns as i32));
        wrong = H::or_i(wrong, nan::<H>(v));
    }
    let (mut found, mut words) = (None, [0i32; LANES]);
    for (j, best) in best.into_iter().enumerate() {
        let (mut values, mut turns, mut seconds) = ([0.0f32; LANES], [0i32; LANES], [0.0f32; LANES]);
        // SAFETY: each of the three arrays has 32 elements of 4 bytes, which are a vector.
        unsafe {
            H::store(values.as_mut_ptr(), best.value);
            H::store(seconds.as_mut_ptr(), best.second);
            H::store_b(turns.as_mut_ptr().cast(), H::bytes(best.turn));
        }
        for lane in 0..LANES {
            let place = usize::try_from(turns[lane]).ok().map(|turn| Found {
                index: start + (TURN * turn + j) * LANES + lane,
                value: values[lane],
                second: seconds[lane],
            });
            found = first_max(found, place);
        }
    }
    // SAFETY: `words` is an array of 32 words, which are 128 bytes.
    unsafe { H::store_b(words.as_mut_ptr().cast(), H::bytes(wrong)) };
    let nan = words.iter().fold(0, |all, word| all | word) < 0;
    // Nothing above -infinity: a first -infinity is the maximum then.
    let found = found.or_else(|| {
        let first = (0..row.len()).find(|&i| !row.get(i).is_nan());
        first.map(|i| Found { index: start + i, value: f32::NEG_INFINITY, second: f32::NEG_INFINITY })
    });
    (found, nan || found.is_some_and(|best| best.value == f32::INFINITY))
}

impl Kernel for Argmax {
    fn units(&self) -> usize {
        self.x.ne[1] * self.parts
    }

    fn work(&self) -> usize {
        self.x.ne[1].saturating_mul(self.x.ne[0].div_ceil(LANES) * 4 + 100)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(unit) = worker.claim() {
            let (r, start) = (unit / self.parts, unit % self.parts * self.part);
            let row = self.x.row([r, 0, 0]);
            let part = row.part(start, self.part.min(row.len() - start));
            let (best, damaged) = match self.margin {
                None => find::<H, false>(part, start),
                Some(_) => find::<H, true>(part, start),
            };
            if damaged {
                self.damage.note(r);
            }
            if self.parts > 1 {
                self.found[unit].set(best);
            } else {
                // SAFETY: `claim` gives row `r`, and with it element `r` of the outputs, to this worker
                // alone.
                unsafe { self.answer(r, best) };
            }
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

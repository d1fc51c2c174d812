//! ARGMAX: the index of the first maximum of each row.
//!
//! The first, as greedy samplers have it; ggml's CPU op gives the last. NaN is never chosen: a row of nothing else
//! gives 0. The result does not depend on how a row is split, so few long rows (logits) are split over the workers.
//!
//! On demand it also tells the margin: how far the maximum is above the second-best value. For logits that is the log
//! of how much likelier the best token is than any other, which tells a good guess from a bad one for two more
//! operations per vector.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::Fault;

use super::OpRun;
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
struct Slot {
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
    found: [Slot; PARTS],
}

/// ARGMAX: x{n,m} -> y{m} I32, margin{m} F32 if wanted: infinity for a row of one, 0 where there is no maximum.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, y, margin) = (run.src(0)?, run.dst()?, run.dst[1]);
    let [n, m, ..] = x.ne;
    let wanted = n.div_ceil(PART).min(PARTS / m).max(1);
    let part = n.div_ceil(wanted).next_multiple_of(4 * LANES);
    let empty =
        || Slot { index: AtomicU32::new(NOTHING), value: AtomicU32::new(0), second: AtomicU32::new(0) };
    let found = core::array::from_fn(|_| empty());
    let kernel = Argmax { x, y, margin, parts: n.div_ceil(part), part, found };
    run.parallel(&kernel)?;
    if kernel.parts > 1 {
        for (r, parts) in kernel.found.chunks(kernel.parts).take(m).enumerate() {
            let best = parts.iter().fold(None, |best, slot| first_max(best, slot.get()));
            // SAFETY: the workers are done; only this thread writes.
            unsafe { kernel.answer(r, best) };
        }
    }
    Ok(())
}

impl Slot {
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
    /// Nobody else reads or writes what the outputs have for this row.
    unsafe fn answer(&self, r: usize, best: Best) {
        // Validation bounds rows to i32::MAX elements.
        let index = best.map_or(0, |best| best.index as i32);
        // SAFETY: per the caller's promise.
        unsafe { self.y.set_int([r, 0, 0, 0], index) };
        if let Some(margin) = &self.margin {
            let above = best.map_or(0.0, |best| best.value - best.second);
            // SAFETY: per the caller's promise. Validation gives the margins the shape of y.
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

/// The first maximum of `row`, whose first element has index `start`; with the second-best value if `MARGIN`.
#[inline(always)]
fn find<H: Hvx, const MARGIN: bool>(row: Row<'_>, start: usize) -> Best {
    let lowest = H::splat(f32::NEG_INFINITY);
    let lane: [f32; LANES] = core::array::from_fn(|i| i as f32);
    // SAFETY: `lane` holds a vector.
    let lane = unsafe { H::load(lane.as_ptr()) };
    // Per lane the largest value so far, the number of its vector, -1 while nothing is above -infinity, and the largest
    // of the other values.
    let mut best = [(lowest, H::splat_i(-1), lowest); 4];
    for first in (0..row.vectors()).step_by(4) {
        for (j, best) in best.iter_mut().enumerate() {
            let i = first + j;
            if i >= row.vectors() {
                break;
            }
            let (v, lanes) = (row.vector::<H>(i), row.len() - i * LANES);
            let v = if lanes < LANES { H::select_gt(H::splat(lanes as f32), lane, v, lowest) } else { v };
            let here = H::from_bits(H::splat_i(i as i32));
            // Strictly greater: the first stays, and NaN never comes in.
            let (value, at, mut second) = *best;
            let at = H::bits(H::select_gt(v, value, here, H::from_bits(at)));
            if MARGIN {
                let loser = H::select_gt(v, value, value, v);
                second = H::select_gt(loser, second, loser, second);
            }
            *best = (H::select_gt(v, value, v, value), at, second);
        }
    }
    let mut found = None;
    for (value, at, second) in best {
        let (mut values, mut vectors, mut seconds) = ([0.0f32; LANES], [0i32; LANES], [0.0f32; LANES]);
        // SAFETY: the arrays hold a vector each.
        unsafe {
            H::store(values.as_mut_ptr(), value);
            H::store(seconds.as_mut_ptr(), second);
            H::store_b(vectors.as_mut_ptr().cast(), H::bytes(at));
        }
        for lane in 0..LANES {
            let place = usize::try_from(vectors[lane]).ok().map(|vector| Found {
                index: start + vector * LANES + lane,
                value: values[lane],
                second: seconds[lane],
            });
            found = first_max(found, place);
        }
    }
    // Nothing above -infinity: a first -infinity is the maximum then.
    found.or_else(|| {
        let first = (0..row.len()).find(|&i| !row.get(i).is_nan());
        first.map(|i| Found { index: start + i, value: f32::NEG_INFINITY, second: f32::NEG_INFINITY })
    })
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
            let best = match self.margin {
                None => find::<H, false>(part, start),
                Some(_) => find::<H, true>(part, start),
            };
            if self.parts > 1 {
                self.found[unit].set(best);
            } else {
                // SAFETY: row r was claimed by this worker alone, and its result with it.
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
            if !v.is_nan() && best.is_none_or(|(_, b)| v > b) {
                best = Some((i as i32, v));
            }
        }
        best.map_or(0, |(i, _)| i)
    }

    /// The same for margins: the largest value less the largest of the others.
    fn margin(row: &[f32]) -> f32 {
        let mut sorted: Vec<f32> = row.iter().copied().filter(|v| !v.is_nan()).collect();
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
    fn nan_and_infinities() {
        let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
        check(3, &[nan, 1.0, 2.0, 1.0, nan, 0.5, nan, nan, nan, low, low, low, nan, low, low, nan, nan, low]);
        check(2, &[f32::INFINITY, f32::INFINITY, nan, f32::INFINITY, f32::MAX, f32::INFINITY]);
        let n = 50_000;
        check(n, &vec![nan; n]);
        for at in [0, 31, 32, 9000, n - 1] {
            for value in [low, -1.0, f32::INFINITY] {
                let mut row = vec![nan; n];
                row[at] = value;
                check(n, &row);
                row.fill(low);
                row[at] = value;
                check(n, &row);
            }
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

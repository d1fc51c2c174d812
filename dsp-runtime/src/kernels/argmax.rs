//! ARGMAX: the index of the first maximum of each row.
//!
//! The first, as greedy samplers have it; ggml's CPU op gives the last. NaN is never chosen: a row of nothing else
//! gives 0. The result does not depend on how a row is split, so few long rows (logits) are split over the workers.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::Fault;

use super::OpRun;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::platform::Platform;
use crate::pool::{Kernel, Worker};
use crate::row::Row;

/// Parts of rows that one run may have.
const PARTS: usize = 64;

/// Elements of a part, at least: some microseconds of work.
const PART: usize = 8192;

/// A part's first maximum: an index and its value, or `None` if all is NaN.
type Best = Option<(usize, f32)>;

/// A [`Best`] on its way from a worker to the dispatcher.
struct Slot {
    /// Index in the row; `NOTHING` for none.
    index: AtomicU32,
    /// Bits of the value.
    value: AtomicU32,
}

const NOTHING: u32 = u32::MAX;

/// The first maximum of every part of every row. Rows in one part get their result at once.
struct Argmax {
    x: View,
    y: View,
    /// Parts of a row.
    parts: usize,
    /// Elements of a part but the last.
    part: usize,
    /// Results of the parts of split rows, in order.
    found: [Slot; PARTS],
}

/// ARGMAX: x{n,m} -> y{m} I32.
///
/// # Errors
/// None that validation lets through.
pub fn run<P: Platform>(run: &mut OpRun<'_, '_, '_, P>) -> Result<(), Fault> {
    let (x, y) = (run.src(0)?, run.dst()?);
    let [n, m, ..] = x.ne;
    let wanted = n.div_ceil(PART).min(PARTS / m).max(1);
    let part = n.div_ceil(wanted).next_multiple_of(4 * LANES);
    let empty = || Slot { index: AtomicU32::new(NOTHING), value: AtomicU32::new(0) };
    let found = core::array::from_fn(|_| empty());
    let kernel = Argmax { x, y, parts: n.div_ceil(part), part, found };
    run.parallel(&kernel)?;
    if kernel.parts > 1 {
        for (r, parts) in kernel.found.chunks(kernel.parts).take(m).enumerate() {
            let best = parts.iter().fold(None, |best, slot| first_max(best, slot.get()));
            // SAFETY: the workers are done; only this thread writes.
            unsafe { y.set_int([r, 0, 0, 0], index(best)) };
        }
    }
    Ok(())
}

impl Slot {
    // Relaxed: the end of the job orders what workers store before what the dispatcher loads.
    fn set(&self, best: Best) {
        if let Some((index, value)) = best {
            self.value.store(value.to_bits(), Ordering::Relaxed);
            self.index.store(index as u32, Ordering::Relaxed);
        }
    }

    fn get(&self) -> Best {
        let index = self.index.load(Ordering::Relaxed);
        (index != NOTHING).then(|| (index as usize, f32::from_bits(self.value.load(Ordering::Relaxed))))
    }
}

/// The op's answer for a row.
fn index(best: Best) -> i32 {
    // Validation bounds rows to i32::MAX elements.
    best.map_or(0, |(index, _)| index as i32)
}

/// The larger of two; the one with the lower index where they are equal.
#[inline(always)]
fn first_max(a: Best, b: Best) -> Best {
    match (a, b) {
        (Some((i, x)), Some((j, y))) => Some(if y > x || (y == x && j < i) { (j, y) } else { (i, x) }),
        (a, b) => a.or(b),
    }
}

/// The first maximum of `row`, whose first element has index `start`.
#[inline(always)]
fn find<H: Hvx>(row: Row<'_>, start: usize) -> Best {
    let lowest = H::splat(f32::NEG_INFINITY);
    let lane: [f32; LANES] = core::array::from_fn(|i| i as f32);
    // SAFETY: `lane` holds a vector.
    let lane = unsafe { H::load(lane.as_ptr()) };
    // Per lane the largest value so far and the number of its vector, -1 while nothing is above -infinity.
    let mut best = [(lowest, H::splat_i(-1)); 4];
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
            let (value, at) = *best;
            let at = H::bits(H::select_gt(v, value, here, H::from_bits(at)));
            *best = (H::select_gt(v, value, v, value), at);
        }
    }
    let mut found = None;
    for (value, at) in best {
        let (mut values, mut vectors) = ([0.0f32; LANES], [0i32; LANES]);
        // SAFETY: both arrays hold a vector.
        unsafe {
            H::store(values.as_mut_ptr(), value);
            H::store_b(vectors.as_mut_ptr().cast(), H::bytes(at));
        }
        for (lane, (&value, &vector)) in values.iter().zip(&vectors).enumerate() {
            let place = usize::try_from(vector).ok().map(|vector| (start + vector * LANES + lane, value));
            found = first_max(found, place);
        }
    }
    // Nothing above -infinity: a first -infinity is the maximum then.
    found.or_else(|| (0..row.len()).find(|&i| !row.get(i).is_nan()).map(|i| (start + i, f32::NEG_INFINITY)))
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
            let best = find::<H>(row.part(start, self.part.min(row.len() - start)), start);
            if self.parts > 1 {
                self.found[unit].set(best);
            } else {
                // SAFETY: row r was claimed by this worker alone, and its result with it.
                unsafe { self.y.set_int([r, 0, 0, 0], index(best)) };
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

    fn check(n: usize, values: &[f32]) {
        let m = (values.len() / n) as u32;
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(1, 1);
            let x = batch.f32([n as u32, m, 1, 1], values);
            let y = batch.i32([m, 1, 1, 1], &vec![-7; m as usize]);
            batch.run(setup, Op::Argmax, &[x], &[y], &[0u32; 0], StepRegisters::step(0, 1)).unwrap();
            batch.ints(y)
        });
        let expected: Vec<_> = values.chunks_exact(n).map(reference).collect();
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

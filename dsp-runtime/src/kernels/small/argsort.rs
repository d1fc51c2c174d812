//! ARGSORT: indices of the first elements of each row when it is sorted (TOP_K in ggml, where these are not
//! all).
//!
//! y is the memory that is sorted in: a heap of the best indices so far, the worst on top, which is taken
//! apart at last. That needs no other memory, and few comparisons where few of many are wanted.

use core::cmp::Ordering;

use hexflash_abi::Fault;
use hexflash_abi::op::{argsort as abi, params};

use crate::hvx::Hvx;
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::Row;

struct Argsort {
    descending: bool,
    x: View,
    y: View,
}

/// ARGSORT: x{n,..} -> y{k,..} I32. NaN counts as beyond infinity, on the side of its sign.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let p: params::Argsort = run.params();
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    run.parallel(&Argsort { descending: p.descending == 1, x, y })
}

/// A row of x and, in its row of y, a heap of indices.
struct Heap<'a> {
    descending: bool,
    x: Row<'a>,
    y: &'a View,
    at: [usize; 3],
}

impl Heap<'_> {
    /// Index `i` of the heap. What the host may have written there in the meantime is some index, but one of
    /// the row.
    fn get(&self, i: usize) -> usize {
        let [r, s, t] = self.at;
        (self.y.int([i, r, s, t]) as usize).min(self.x.len() - 1)
    }

    /// Sets index `i` of the heap.
    ///
    /// # Safety
    /// No other worker uses this row of y.
    unsafe fn set(&self, i: usize, index: usize) {
        let [r, s, t] = self.at;
        // SAFETY: no other worker uses this row (the caller's contract); `set_int` checks the indices. Rows
        // have fewer than 2^31 elements (validation).
        unsafe { self.y.set_int([i, r, s, t], index as i32) }
    }

    /// Whether element `a` comes after element `b`.
    fn after(&self, a: usize, b: usize) -> bool {
        let order = self.x.get(a).total_cmp(&self.x.get(b));
        let order = if self.descending { order.reverse() } else { order };
        order.then(a.cmp(&b)) == Ordering::Greater
    }

    /// Puts an index into the place on top of the first `n`, and from there down to where it belongs.
    ///
    /// # Safety
    /// No other worker uses this row of y.
    unsafe fn sift(&self, top: usize, n: usize, index: usize) {
        let mut place = top;
        loop {
            let mut child = 2 * place + 1;
            if child >= n {
                break;
            }
            let mut lower = self.get(child);
            if child + 1 < n && self.after(self.get(child + 1), lower) {
                child += 1;
                lower = self.get(child);
            }
            if !self.after(lower, index) {
                break;
            }
            // SAFETY: no other worker uses this row (the caller's contract).
            unsafe { self.set(place, lower) };
            place = child;
        }
        // SAFETY: no other worker uses this row (the caller's contract).
        unsafe { self.set(place, index) };
    }

    /// Leaves the first `k` indices, in order.
    ///
    /// # Safety
    /// No other worker uses this row of y.
    unsafe fn sort(&self, k: usize) {
        // SAFETY: no other worker uses this row, in all of these (the caller's contract).
        unsafe {
            for i in 0..k {
                self.set(i, i);
            }
            for top in (0..k / 2).rev() {
                self.sift(top, k, self.get(top));
            }
            for index in k..self.x.len() {
                if self.after(self.get(0), index) {
                    self.sift(0, k, index);
                }
            }
            for last in (1..k).rev() {
                let (largest, index) = (self.get(0), self.get(last));
                self.sift(0, last, index);
                self.set(last, largest);
            }
        }
    }
}

impl Kernel for Argsort {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // About 30 packets for a step down the heap.
        let [n, k] = [self.x.ne[0], self.y.ne[0]];
        let steps = k.saturating_mul(2 * (k.ilog2() as usize + 1));
        self.y.rows().saturating_mul(n.saturating_mul(10).saturating_add(steps.saturating_mul(30)))
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(r) = worker.claim() {
            let at = self.y.unravel(r);
            let heap = Heap { descending: self.descending, x: self.x.row(at), y: &self.y, at };
            // SAFETY: `claim` gives unit `r`, and with it row `at` of y, to this worker alone.
            unsafe { heap.sort(self.y.ne[0]) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::{Op, params};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    /// All and some of the indices, up and down, with equal elements and NaN among them.
    #[test]
    fn indices_are_those_of_a_stable_sort() {
        for n in [1, 2, 7, 33, 300] {
            let mut x: Vec<f32> = random(n as u64, n * 3, -4.0, 4.0).iter().map(|x| x.round()).collect();
            x[n - 1] = f32::NAN;
            for k in [1, n.div_ceil(3), n] {
                for descending in [0, 1] {
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let a = batch.f32([n as u32, 3, 1, 1], &x);
                        let y = batch.i32([k as u32, 3, 1, 1], &vec![-1; k * 3]);
                        let params = params::Argsort { descending };
                        batch
                            .run(setup, Op::Argsort, &[a], &[y], &params, StepRegisters::step(0, 1))
                            .unwrap();
                        batch.ints(y)
                    });
                    for (x, y) in x.chunks_exact(n).zip(actual.chunks_exact(k)) {
                        let mut want: Vec<i32> = (0..n as i32).collect();
                        want.sort_by(|&a, &b| {
                            let order = x[a as usize].total_cmp(&x[b as usize]);
                            if descending == 1 { order.reverse() } else { order }
                        });
                        assert_eq!(y, &want[..k], "{n} {k} {descending}");
                    }
                }
            }
        }
    }
}

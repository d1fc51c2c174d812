//! ADD_ID: to each of the rows that a token's experts gave, the row of a matrix that is its expert's.
//!
//! Ids come from memory that the host may write at any time: each is read once, checked, then used.

use hexflash_abi::Fault;
use hexflash_abi::op::add_id as abi;

use super::elementwise::combine;
use super::rows::row_id;
use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};

/// y = a + rows of `b`.
struct AddId {
    a: View,
    b: View,
    ids: View,
    y: View,
}

/// ADD_ID: a{n,n_used,m}, b{n,n_expert}, ids{n_used,m} -> y{n,n_used,m}.
///
/// # Errors
/// [`ErrorCode::BadRowIndex`](hexflash_abi::ErrorCode::BadRowIndex) with the id, if one is not a row of b.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (a, b, ids) = (run.operand(abi::A)?, run.operand(abi::B)?, run.operand(abi::IDS)?);
    let kernel = AddId { a, b, ids, y: run.operand(abi::Y)? };
    run.parallel(&kernel)
}

impl Kernel for AddId {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 4)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            let id = row_id(&self.ids, i, &self.b)?;
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. If a overlaps y
            // it lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            combine::<H, true>(self.a.row(i), self.b.row([id, 0, 0]), &mut y);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::Op;
    use hexflash_abi::registers::StepRegisters;
    use hexflash_abi::{ErrorCode, Fault};

    use crate::testing::{Batch, everywhere, random, setups};

    const STEP: StepRegisters = StepRegisters::step(0, 1);

    #[test]
    fn rows_get_those_of_their_experts() {
        for (n, used, m, experts) in
            [(1, 1, 1, 1), (31, 2, 3, 5), (32, 8, 1, 8), (33, 3, 5, 4), (200, 5, 7, 9)]
        {
            let (a, b) = (random(1, n * used * m, -3.0, 3.0), random(2, n * experts, -1.0, 1.0));
            let ids: Vec<i32> = (0..used * m).map(|i| (i * 7 % experts) as i32).collect();
            let expected: Vec<f32> =
                (0..a.len()).map(|i| a[i] + b[ids[i / n] as usize * n + i % n]).collect();
            for in_place in [false, true] {
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let [n, used, m, experts] = [n, used, m, experts].map(|n| n as u32);
                    let a = batch.f32([n, used, m, 1], &a);
                    let b = batch.f32([n, experts, 1, 1], &b);
                    let ids = batch.i32([used, m, 1, 1], &ids);
                    let y = if in_place {
                        a
                    } else {
                        batch.f32([n, used, m, 1], &vec![7.0; (n * used * m) as usize])
                    };
                    batch.run(setup, Op::AddId, &[a, b, ids], &[y], &[0u32; 0], STEP).unwrap();
                    batch.floats(y)
                });
                assert_eq!(actual, expected, "n={n} used={used} m={m} in_place={in_place}");
            }
        }
    }

    /// A step with fewer tokens than the program leaves the other rows alone; rows and ids may lie apart.
    #[test]
    fn views_and_the_token_axis() {
        let (a, b) = (random(3, 40 * 2 * 4, -1.0, 1.0), random(4, 33 * 3, -1.0, 1.0));
        let ids = [2, 0, 9, 1, 1, 9, 0, 2, 9, -1, -1, 9];
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(4, 8);
            let a = batch.f32([40, 2, 4, 1], &a);
            let a = batch.view(a, |t| {
                t.ne[0] = 33;
                t.token_axis = 2;
            });
            let b = batch.f32([33, 3, 1, 1], &b);
            let ids = batch.i32([3, 4, 1, 1], &ids);
            let ids = batch.view(ids, |t| {
                t.ne[0] = 2;
                t.token_axis = 1;
            });
            let y = batch.f32([33, 2, 4, 1], &[7.0; 33 * 2 * 4]);
            let y = batch.view(y, |t| t.token_axis = 2);
            let step = StepRegisters::step(0, 3);
            batch.run(setup, Op::AddId, &[a, b, ids], &[y], &[0u32; 0], step).unwrap();
            batch.floats(y)
        });
        for (r, row) in actual.chunks_exact(33).enumerate() {
            for (i, &y) in row.iter().enumerate() {
                let id = ids[r / 2 * 3 + r % 2];
                assert_eq!(y, if r / 2 < 3 { a[r * 40 + i] + b[id as usize * 33 + i] } else { 7.0 });
            }
        }
    }

    #[test]
    fn ids_that_no_row_has_are_refused() {
        for setup in setups() {
            for id in [3, -1, i32::MIN, i32::MAX] {
                let mut batch = Batch::new(1, 1);
                let (a, b) = (batch.f32([8, 1, 1, 1], &[1.0; 8]), batch.f32([8, 3, 1, 1], &[1.0; 24]));
                let ids = batch.i32([1, 1, 1, 1], &[id]);
                let outcome = batch.run(setup, Op::AddId, &[a, b, ids], &[a], &[0u32; 0], STEP);
                assert_eq!(outcome, Err(Fault::new(ErrorCode::BadRowIndex, id as u32)), "{setup:?}");
            }
        }
    }
}

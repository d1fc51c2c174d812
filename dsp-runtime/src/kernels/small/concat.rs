//! CONCAT: two tensors joined along an axis.

use hexflash_abi::Fault;
use hexflash_abi::op::{concat as abi, params};

use crate::hvx::{Hvx, LANES};
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};

/// y = a, then b, along `axis`.
struct Concat {
    axis: usize,
    a: View,
    b: View,
    y: View,
}

/// CONCAT: a{..,l,..}, b{..,m,..} -> y{..,l+m,..}, l and m being the lengths of the axis.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let p: params::Concat = run.params();
    let (a, b, y) = (run.operand(abi::A)?, run.operand(abi::B)?, run.operand(abi::Y)?);
    let kernel = Concat { axis: p.axis as usize, a, b, y };
    run.parallel(&kernel)
}

impl Kernel for Concat {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 2 + 4)
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let first = self.a.ne[self.axis];
        while let Some(r) = worker.claim() {
            let mut i = self.y.unravel(r);
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone, and no operand
            // overlaps y (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            if self.axis == 0 {
                y.part(0, first).copy::<H>(self.a.row(i));
                y.part(first, self.b.ne[0]).copy::<H>(self.b.row(i));
            } else if let Some(past) = i[self.axis - 1].checked_sub(first) {
                i[self.axis - 1] = past;
                y.copy::<H>(self.b.row(i));
            } else {
                y.copy::<H>(self.a.row(i));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::op::{Op, params};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    /// The value at `i` of a packed tensor.
    fn at(values: &[f32], ne: [u32; 4], i: [u32; 4]) -> f32 {
        values[(i[0] + ne[0] * (i[1] + ne[1] * (i[2] + ne[2] * i[3]))) as usize]
    }

    fn elements(ne: [u32; 4]) -> usize {
        ne.iter().product::<u32>() as usize
    }

    /// y{ne} from a and b, element by element.
    fn reference(axis: usize, a: (&[f32], [u32; 4]), b: (&[f32], [u32; 4]), ne: [u32; 4]) -> Vec<f32> {
        let mut y = Vec::new();
        for n in 0..elements(ne) as u32 {
            let mut i = [0; 4];
            let mut rest = n;
            for (i, ne) in i.iter_mut().zip(ne) {
                (*i, rest) = (rest % ne, rest / ne);
            }
            let first = a.1[axis];
            y.push(if i[axis] < first {
                at(a.0, a.1, i)
            } else {
                i[axis] -= first;
                at(b.0, b.1, i)
            });
        }
        y
    }

    #[test]
    fn every_axis() {
        let shapes = [[1, 3, 2, 2], [31, 3, 2, 2], [33, 2, 3, 1], [100, 1, 1, 3], [256, 40, 2, 1]];
        for ne in shapes {
            for axis in 0..4 {
                let (mut ne_b, mut ne_y) = (ne, ne);
                ne_b[axis] += 2;
                ne_y[axis] += ne_b[axis];
                let a = random(1, elements(ne), -1.0, 1.0);
                let b = random(2, elements(ne_b), -1.0, 1.0);
                let actual = everywhere(|setup| {
                    let mut batch = Batch::new(1, 1);
                    let (a, b) = (batch.f32(ne, &a), batch.f32(ne_b, &b));
                    let y = batch.f32(ne_y, &vec![7.0; elements(ne_y)]);
                    let p = params::Concat { axis: axis as u32 };
                    batch.run(setup, Op::Concat, &[a, b], &[y], &p, StepRegisters::step(0, 1)).unwrap();
                    batch.floats(y)
                });
                assert_eq!(actual, reference(axis, (&a, ne), (&b, ne_b), ne_y), "{ne:?} axis {axis}");
            }
        }
    }

    /// Inputs inside wider rows, and a step with fewer tokens than the program.
    #[test]
    fn views_and_the_token_axis() {
        let values = random(4, 60 * 5, -1.0, 1.0);
        let actual = everywhere(|setup| {
            let mut batch = Batch::new(5, 8);
            let both = batch.f32([60, 5, 1, 1], &values);
            let a = batch.view(both, |t| (t.ne[0], t.token_axis) = (33, 1));
            let b = batch.view(both, |t| (t.ne[0], t.token_axis, t.offset) = (10, 1, t.offset + 160));
            let y = batch.f32([43, 5, 1, 1], &[7.0; 43 * 5]);
            let out = batch.view(y, |t| t.token_axis = 1);
            let p = params::Concat { axis: 0 };
            batch.run(setup, Op::Concat, &[a, b], &[out], &p, StepRegisters::step(0, 3)).unwrap();
            batch.floats(y)
        });
        for (t, row) in actual.chunks_exact(43).enumerate() {
            let x = &values[60 * t..][..60];
            let expected = if t < 3 { [&x[..33], &x[40..50]].concat() } else { vec![7.0; 43] };
            assert_eq!(row, expected);
        }
    }
}

//! SOFT_MAX: the rows of graphs without FLASH_ATTN_EXT.
//!
//! A row becomes exponents, then their exponentials, in its place in y; the sum of these is divided by at
//! last. Compiled for one kind of vectors ([`Hvx::Everywhere`]).

use hexflash_abi::op::{params, soft_max as abi};
use hexflash_abi::{DType, Fault};

use crate::hvx::{Hvx, LANES, functions, math};
use crate::kernels::shared::alibi::slope;
use crate::kernels::shared::lanes::up_to_end;
use crate::memory::View;
use crate::op_run::OpRun;
use crate::pool::{Kernel, Worker};
use crate::row::RowMut;

struct SoftMax {
    params: params::SoftMax,
    x: View,
    mask: Option<View>,
    sinks: Option<View>,
    y: View,
}

/// SOFT_MAX: x{n,t,h,b}, mask{n,t',h',b'} and sinks{h} if wanted -> y{n,t,h,b}.
///
/// A row whose elements all have the exponent -infinity is NaN, as in ggml.
///
/// # Errors
/// None that validation lets through.
pub fn run(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (x, y) = (run.operand(abi::X)?, run.operand(abi::Y)?);
    let (mask, sinks) = (run.optional(abi::MASK), run.optional(abi::SINKS));
    run.parallel(&SoftMax { params: run.params(), x, mask, sinks, y })
}

impl SoftMax {
    /// Vector `v` of the mask's row at these indices of axes 1 to 3; 0 past its end.
    #[inline(always)]
    fn mask<H: Hvx>(mask: &View, i: [usize; 3], v: usize) -> H::F {
        let at = [i[0], i[1] % mask.ne[2], i[2] % mask.ne[3]];
        if mask.dtype == DType::F32 {
            return mask.row(at).vector::<H>(v);
        }
        let first = v * LANES;
        let n = (mask.ne[0] - first).min(LANES);
        // SAFETY: `at` gives the row's address after it has checked the indices, and `first` and `n` stay
        // below its length, which is F16 here: the elements lie inside the buffer, one after the other
        // (layout `Rows`), and are aligned for u16 (the view's invariant).
        unsafe { math::load_f16_n::<H>(mask.at(at).cast::<u16>().add(first), n) }
    }

    #[inline(never)]
    fn row<H: Hvx>(&self, i: [usize; 3], y: &mut RowMut<'_>) {
        let (x, head) = (self.x.row(i), i[1]);
        let scale = H::splat(self.params.scale);
        let slope = slope::<H>(self.params.max_bias, self.y.ne[2], head);
        let sink = self.sinks.map(|sinks| H::splat(sinks.row([0; 3]).get(head)));
        let lowest = H::splat(f32::NEG_INFINITY);
        let mut largest = sink.unwrap_or(lowest);
        for v in 0..x.vectors() {
            let mut e = H::mul_ieee(x.vector::<H>(v), scale);
            if let Some(mask) = &self.mask {
                e = H::add_ieee(e, H::mul_ieee(slope, Self::mask::<H>(mask, i, v)));
            }
            y.set_vector::<H>(v, e);
            largest = H::larger(largest, up_to_end::<H>(x.len() - v * LANES, e, lowest));
        }
        let largest = H::max_all(largest);
        let mut sum = H::splat(0.0);
        for v in 0..x.vectors() {
            let e = math::exp::<H>(H::sub_ieee(y.as_row().vector::<H>(v), largest));
            y.set_vector::<H>(v, e);
            sum = H::add_ieee(sum, up_to_end::<H>(x.len() - v * LANES, e, H::splat(0.0)));
        }
        let mut sum = H::sum_all(sum);
        if let Some(sink) = sink {
            sum = H::add_ieee(sum, math::exp::<H>(H::sub_ieee(sink, largest)));
        }
        let share = functions::divide::<H>(H::splat(1.0), sum);
        for v in 0..x.vectors() {
            let e = y.as_row().vector::<H>(v);
            y.set_vector::<H>(v, H::mul_ieee(e, share));
        }
    }
}

impl Kernel for SoftMax {
    fn units(&self) -> usize {
        self.y.rows()
    }

    fn work(&self) -> usize {
        // An exponential, and three passes over the row.
        self.y.rows().saturating_mul(self.y.ne[0].div_ceil(LANES) * 40)
    }

    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        while let Some(r) = worker.claim() {
            let i = self.y.unravel(r);
            // SAFETY: `claim` gives unit `r`, and with it row `i` of y, to this worker alone. If x overlaps y
            // it lies in its very place, row by row (validation).
            let mut y = unsafe { self.y.row_mut(i) };
            self.row::<H::Everywhere>(i, &mut y);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::TensorIndex;
    use hexflash_abi::op::{Op, params};
    use hexflash_abi::registers::StepRegisters;

    use crate::testing::{Batch, everywhere, random};

    /// Against f64, with and without mask, sinks and slopes, in place too.
    #[test]
    fn rows_are_shares_of_their_exponentials() {
        const H: usize = 3;
        for (n, t) in [(1, 1), (31, 2), (33, 3), (200, 5)] {
            for (masked, sinks, max_bias) in
                [(false, false, 0.0), (true, false, 0.0), (true, true, 8.0), (false, true, 0.0)]
            {
                let x = random(1, n * t * H, -9.0, 9.0);
                let (mask, sink) = (random(2, n * t, -4.0, 0.0), random(3, H, -2.0, 9.0));
                let scale = 0.5;
                let mut expected = Vec::new();
                for (r, row) in x.chunks_exact(n).enumerate() {
                    let (t, h) = (r % t, r / t);
                    // Of three heads two are within the power of two.
                    let slope = match (max_bias > 0.0, h < 2) {
                        (false, _) => 1.0,
                        (true, true) => (-max_bias / 2.0 * (h + 1) as f64).exp2(),
                        (true, false) => (-max_bias / 4.0 * (2 * (h - 2) + 1) as f64).exp2(),
                    };
                    let of = |i: usize| {
                        let bias = if masked { slope * f64::from(mask[t * n + i]) } else { 0.0 };
                        (f64::from(row[i]) * scale + bias).exp()
                    };
                    let all: f64 = (0..n).map(of).sum();
                    let all = if sinks { all + f64::from(sink[h]).exp() } else { all };
                    expected.extend((0..n).map(|i| (of(i) / all) as f32));
                }
                for in_place in [false, true] {
                    let params = params::SoftMax { scale: scale as f32, max_bias: max_bias as f32 };
                    let actual = everywhere(|setup| {
                        let mut batch = Batch::new(1, 1);
                        let ne = [n as u32, t as u32, H as u32, 1];
                        let a = batch.f32(ne, &x);
                        let m = masked.then(|| batch.f32([n as u32, t as u32, 1, 1], &mask));
                        let s = sinks.then(|| batch.f32([H as u32, 1, 1, 1], &sink));
                        let src = [a, m.unwrap_or(TensorIndex::NONE), s.unwrap_or(TensorIndex::NONE)];
                        let y = if in_place { a } else { batch.f32(ne, &vec![7.0; x.len()]) };
                        batch
                            .run(setup, Op::SoftMax, &src, &[y], &params, StepRegisters::step(0, 1))
                            .unwrap();
                        batch.floats(y)
                    });
                    for (y, want) in actual.into_iter().zip(&expected) {
                        assert!((y - want).abs() <= 2e-6 * want.max(1e-3), "{n}: {y}, not {want}");
                    }
                }
            }
        }
    }
}

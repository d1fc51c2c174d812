//! Recurrent ops: SSM_CONV and GATED_DELTA_NET. ggml hands states over as operands, and takes new ones as
//! parts of the result; hexflash advances states in place. So they are copied to scratch memory and back.

use hexflash_abi::{DType, Op as DspOp};

use super::operand::{Operand, Value};
use super::{N_PAST, Refusal, Translator};
use crate::abi::Tensor;

const NO_PARAMS: [u32; 0] = [];

/// Axes 0 and 1 exchanged.
const TRANSPOSED: [usize; 4] = [1, 0, 2, 3];

impl Translator<'_> {
    /// SSM_CONV: x{taps - 1 + t, channels, seqs}, w{taps, channels} -> y{channels, t, seqs}. The first
    /// columns of x are the history.
    pub(super) fn ssm_conv(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (x, w, dst) = (self.src(node, 0)?, self.src(node, 1)?, self.float_result(node)?);
        let [taps, channels, ..] = w.ne;
        let [_, t, seqs, _] = dst.ne;
        if !(2..=N_PAST).contains(&taps) || x.ne != [taps - 1 + t, channels, seqs, 1] {
            return Err(Refusal("the shape of SSM_CONV"));
        }
        if [x.dtype, w.dtype, dst.dtype] != [DType::F32; 3] {
            return Err(Refusal("the types of SSM_CONV"));
        }
        let history = taps - 1;
        let weights = self.transposed(&w, w.ne)?;
        let rows = self.transposed(
            &x.view(u64::from(history) * u64::from(x.nb[0]), [t, channels, seqs, 1], x.nb),
            [t, channels, seqs, 1],
        )?;
        // The row of position p lies at p mod N_PAST: those before the step at the ring's end.
        let ring = self.scratch(DType::F32, [channels, N_PAST, seqs, 1]);
        let nb = self.out.recorder.nb(ring.tensor);
        let at = u64::from(N_PAST - history) * u64::from(nb[1]);
        let end = self.out.recorder.view(ring.tensor, at, [channels, history, seqs, 1], nb, None);
        let before = x.view(0, [history, channels, seqs, 1], x.nb).permuted(TRANSPOSED);
        let before = self.source(&before);
        self.emit(DspOp::Cpy, &[Some(before)], Value { tensor: end, at: None }, &NO_PARAMS);
        let src = [rows, weights, ring].map(Some);
        self.emit_into(DspOp::SsmConv, &src, (&dst, DType::F32), &NO_PARAMS)
    }

    /// A dense copy with axes 0 and 1 exchanged.
    fn transposed(&mut self, x: &Operand, [a, b, c, d]: [u32; 4]) -> Result<Value, Refusal> {
        let source = self.source(&x.permuted(TRANSPOSED));
        let copy = self.scratch(DType::F32, [b, a, c, d]);
        self.emit(DspOp::Cpy, &[Some(source)], copy, &NO_PARAMS);
        Ok(copy)
    }

    /// GATED_DELTA_NET: q, k{s,hk,t,b'}, v{s,h,t,b}, g{1 or s,h,t,b}, beta{1,h,t,b}, state{s keys, s
    /// values, h, b} -> y{s,h,t,b}, then K states {s,s,h,b}: plane i is the state i tokens before the end.
    /// Where there are fewer tokens than planes, the others are left alone.
    pub(super) fn gated_delta_net(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let src = [0, 1, 2, 3, 4].map(|i| self.src(node, i));
        let [q, k, v, g, beta] = src;
        let inputs = [q?, k?, v?, g?, beta?];
        let (state, dst) = (self.src(node, 5)?, self.float_result(node)?);
        let planes = u32::try_from(node.op_params[0]).map_err(|_| Refusal("planes of a state"))?;
        let [s, h, t, b] = inputs[2].ne;
        if !dst.is_contiguous() || dst.dtype != DType::F32 || state.ne != [s, s, h, b] || planes == 0 {
            return Err(Refusal("the result of GATED_DELTA_NET"));
        }
        if state.dtype != DType::F32 || inputs.iter().any(|x| x.dtype != DType::F32 || x.overlaps(&dst)) {
            return Err(Refusal("the operands of GATED_DELTA_NET"));
        }
        let floats = |ne: [u32; 4]| ne.iter().map(|&n| u64::from(n)).product::<u64>() * 4;
        let (outputs, plane) = (floats([s, h, t, b]), floats([s, s, h, b]));
        if dst.bytes() != outputs + u64::from(planes) * plane {
            return Err(Refusal("the result of GATED_DELTA_NET"));
        }
        let y = dst.view(0, [s, h, t, b], dst.nb).reshaped([s, h, t, b])?;
        let kept = self.scratch(DType::F32, [s, s, h, b]);
        let before = self.source(&state.permuted(TRANSPOSED));
        self.emit(DspOp::Cpy, &[Some(before)], kept, &NO_PARAMS);
        // All tokens but those after which a state is wanted, then one at a time.
        let wanted = planes.min(t);
        let mut from = 0;
        for back in (0..wanted).rev() {
            let to = t - back;
            let part = |x: &Operand| {
                let ne = [x.ne[0], x.ne[1], to - from, x.ne[3]];
                x.view(u64::from(from) * u64::from(x.nb[2]), ne, x.nb)
            };
            let mut src = Vec::with_capacity(6);
            for input in &inputs {
                src.push(Some(self.rows(&part(input))?));
            }
            src.push(Some(kept));
            self.emit_into(DspOp::GatedDeltaNet, &src, (&part(&y), DType::F32), &NO_PARAMS)?;
            let after = dst.view(outputs + u64::from(back) * plane, [s, s, h, b], dst.nb);
            let after = after.reshaped([s, s, h, b])?.permuted(TRANSPOSED);
            self.copy(kept, &after)?;
            from = to;
        }
        Ok(())
    }
}

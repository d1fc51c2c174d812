//! Recurrent ops: SSM_CONV and GATED_DELTA_NET. ggml hands states over as operands, and takes new ones as
//! parts of the result; hexflash advances states in place. So they are copied to scratch memory and back,
//! unless the new state replaces the old one anyway.

use hexflash::record::Tensor as Recorded;
use hexflash_abi::op::gated_delta_net::TRANSPOSED_SIZES;
use hexflash_abi::op::params;
use hexflash_abi::{DType, Op as DspOp};

use super::operand::{Operand, Value};
use super::{N_PAST, Refusal, Translator, source_of};
use crate::abi::Tensor;

const NO_PARAMS: [u32; 0] = [];

/// Axes 0 and 1 exchanged.
const TRANSPOSED: [usize; 4] = [1, 0, 2, 3];

/// Columns of a convolution, as rows in scratch memory: history, then new ones.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// {channels,length,seqs}.
    rows: Recorded,
    /// Rows of history.
    history: u32,
}

impl Translator<'_> {
    /// CONCAT of history{h,channels,seqs} and new columns{t,channels,seqs}: rows of channels in scratch
    /// memory, where SSM_CONV and copies find them.
    pub(super) fn window(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (before, new) = (self.src(node, 0)?, self.src(node, 1)?);
        let [history, channels, seqs, _] = before.ne;
        let length = history + new.ne[0];
        let rows = self.scratch(DType::F32, [channels, length, seqs, 1]);
        let window = Window { rows: rows.tensor, history };
        for (part, first) in [(before, 0), (new, history)] {
            let columns = self.source(&part.permuted(TRANSPOSED));
            let into = self.rows_of(&window, first, part.ne[0]);
            self.emit(DspOp::Cpy, &[Some(columns)], into, &NO_PARAMS);
        }
        self.windows.insert(std::ptr::from_ref(node), window);
        Ok(())
    }

    /// Rows of a window.
    fn rows_of(&mut self, window: &Window, first: u32, n: u32) -> Value {
        let rec = &mut self.out.recorder;
        let ([channels, _, seqs, _], nb) = (rec.ne(window.rows), rec.nb(window.rows));
        let at = u64::from(first) * u64::from(nb[1]);
        Value { tensor: rec.view(window.rows, at, [channels, n, seqs, 1], nb, None), at: None }
    }

    /// CPY of some columns of a window; `false` if the node is another one.
    pub(super) fn copy_of_columns(&mut self, node: &Tensor) -> Result<bool, Refusal> {
        let Some(view) = source_of(node, 0) else { return Ok(false) };
        let Some(whole) = source_of(view, 0).map(std::ptr::from_ref) else { return Ok(false) };
        let Some(&window) = self.windows.get(&whole) else { return Ok(false) };
        let dst = self.operand(Some(node))?;
        let [n, channels, seqs] = [view.ne[0], view.ne[1], view.ne[2]].map(|n| n as u32);
        let rows = self.rows_of(&window, (view.view_offs / view.nb[0]) as u32, n);
        let columns = self.transposed_view(rows);
        let nb = [dst.nb[0], n * dst.nb[0], dst.nb[1], 0];
        self.copy(columns, &dst.view(0, [n, channels, seqs, 1], nb))?;
        Ok(true)
    }

    /// Where a copy puts a state of this shape.
    fn home(&self, copy: &Tensor, ne: [u32; 4]) -> Result<Operand, Refusal> {
        let dst = self.operand(Some(copy))?;
        if !dst.is_contiguous() || dst.dtype != DType::F32 {
            return Err(Refusal("the copy of a state"));
        }
        dst.reshaped(ne)
    }

    /// The same with axes 0 and 1 exchanged.
    fn transposed_view(&mut self, value: Value) -> Value {
        let rec = &mut self.out.recorder;
        let (ne, nb) = (rec.ne(value.tensor), rec.nb(value.tensor));
        let tensor = rec.view(value.tensor, 0, TRANSPOSED.map(|i| ne[i]), TRANSPOSED.map(|i| nb[i]), None);
        Value { tensor, at: None }
    }

    /// SSM_CONV: x{taps - 1 + t, channels, seqs}, w{taps, channels} -> y{channels, t, seqs}, of which
    /// `result` may be SILU. The first columns of x are the history.
    pub(super) fn convolution(&mut self, node: &Tensor, result: &Tensor, silu: bool) -> Result<(), Refusal> {
        let (w, dst) = (self.src(node, 1)?, self.float_result(result)?);
        let [taps, channels, ..] = w.ne;
        let [_, t, seqs, _] = dst.ne;
        let x = source_of(node, 0).ok_or(Refusal("a missing operand"))?;
        let fits = x.ne == [taps - 1 + t, channels, seqs, 1].map(i64::from);
        if !(2..=N_PAST).contains(&taps) || !fits {
            return Err(Refusal("the shape of SSM_CONV"));
        }
        if [w.dtype, dst.dtype] != [DType::F32; 2] {
            return Err(Refusal("the types of SSM_CONV"));
        }
        let history = taps - 1;
        let weights = self.transposed(&w, w.ne)?;
        let (before, rows) = match self.windows.get(&std::ptr::from_ref(x)).copied() {
            Some(window) if window.history == history => {
                (self.rows_of(&window, 0, history), self.rows_of(&window, history, t))
            }
            Some(_) => return Err(Refusal("the shape of SSM_CONV")),
            None => self.columns(&self.src(node, 0)?, history)?,
        };
        // The row of position p lies at p mod N_PAST: those before the step at the ring's end.
        let ring = self.scratch(DType::F32, [channels, N_PAST, seqs, 1]);
        let nb = self.out.recorder.nb(ring.tensor);
        let at = u64::from(N_PAST - history) * u64::from(nb[1]);
        let end = self.out.recorder.view(ring.tensor, at, [channels, history, seqs, 1], nb, None);
        self.emit(DspOp::Cpy, &[Some(before)], Value { tensor: end, at: None }, &NO_PARAMS);
        let src = [rows, weights, ring].map(Some);
        let params = params::SsmConv { defer: 0, silu: u32::from(silu) };
        self.emit_into(DspOp::SsmConv, &src, (&dst, DType::F32), &params)
    }

    /// History and new columns of x{history + t, channels, seqs}, as rows.
    fn columns(&mut self, x: &Operand, history: u32) -> Result<(Value, Value), Refusal> {
        if x.dtype != DType::F32 {
            return Err(Refusal("the types of SSM_CONV"));
        }
        let [length, channels, seqs, _] = x.ne;
        let new = [length - history, channels, seqs, 1];
        let rows = self.transposed(&x.view(u64::from(history) * u64::from(x.nb[0]), new, x.nb), new)?;
        let before = x.view(0, [history, channels, seqs, 1], x.nb).permuted(TRANSPOSED);
        Ok((self.source(&before), rows))
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
    /// Where a copy fetches the only state, it is advanced where the copy would put it, and nowhere else.
    pub(super) fn delta_net(&mut self, node: &Tensor, copy: Option<&Tensor>) -> Result<(), Refusal> {
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
        // States are advanced as ggml has them, where the op can do that.
        let as_they_are = s.is_multiple_of(TRANSPOSED_SIZES);
        let order = if as_they_are { [0, 1, 2, 3] } else { TRANSPOSED };
        let params = params::DeltaNet { defer: 0, transposed: as_they_are.into() };
        let home = copy.map(|copy| self.home(copy, [s, s, h, b])).transpose()?;
        let meets = |home: Operand| inputs.iter().any(|x| self.found(x).overlaps(&home));
        if home.is_some_and(|home| home.overlaps(&dst) || meets(home)) {
            return Err(Refusal("the copy of a state"));
        }
        let before = self.source(&state.permuted(order));
        let kept = match home {
            Some(home) if as_they_are => {
                self.copy(before, &home)?;
                self.target(&home)
            }
            _ => {
                let kept = self.scratch(DType::F32, [s, s, h, b]);
                self.emit(DspOp::Cpy, &[Some(before)], kept, &NO_PARAMS);
                kept
            }
        };
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
            self.emit_into(DspOp::GatedDeltaNet, &src, (&part(&y), DType::F32), &params)?;
            let after = match home {
                Some(home) => home,
                None => dst
                    .view(outputs + u64::from(back) * plane, [s, s, h, b], dst.nb)
                    .reshaped([s, s, h, b])?,
            };
            if kept.at != Some(after) {
                self.copy(kept, &after.permuted(order))?;
            }
            from = to;
        }
        Ok(())
    }
}

//! Building blocks of model graphs: weights, projections, norms, with quantized activations shared.

use std::collections::HashMap;

use hexflash_abi::op::params;
use hexflash_abi::program::{NO_TOKEN_AXIS, TensorFlags};
use hexflash_abi::{DType, Op};

use super::tensors::UNIT_NORM;
use super::{RopeConfig, WeightMap};
use crate::record::{Recorder, Tensor};

/// A graph under construction.
pub(super) struct Graph<'w> {
    pub(super) rec: Recorder,
    weights: &'w WeightMap,
    /// int8 form of activations that some matrix has read already. Whoever overwrites an activation in place after
    /// that must make a new one.
    quantized: HashMap<Tensor, Tensor>,
    known: HashMap<String, Tensor>,
}

impl<'w> Graph<'w> {
    pub(super) fn new(rec: Recorder, weights: &'w WeightMap) -> Self {
        Self { rec, weights, quantized: HashMap::new(), known: HashMap::new() }
    }

    /// A weight by its label.
    pub(super) fn weight(&mut self, label: &str) -> Tensor {
        if let Some(&tensor) = self.known.get(label) {
            return tensor;
        }
        let place = self.weights.get(label);
        let tensor = self.rec.tensor(place.buffer, place.offset, place.dtype, place.ne, TensorFlags::CONST);
        if label != UNIT_NORM {
            // That one belongs to no layer, and to no file.
            self.rec.name(tensor, label);
        }
        self.known.insert(label.to_owned(), tensor);
        tensor
    }

    /// A packed F32 activation whose last given axis is the token axis, if `tokens`.
    pub(super) fn activation(&mut self, ne: [u32; 4], token_axis: Option<u8>) -> Tensor {
        let tensor = self.rec.activation(DType::F32, ne);
        match token_axis {
            Some(axis) => self.rec.tokens_on(tensor, axis),
            None => tensor,
        }
    }

    /// Token axis of a matrix of rows.
    fn rows_axis(&self, x: Tensor) -> Option<u8> {
        (self.rec.token_axis(x) != NO_TOKEN_AXIS).then_some(1)
    }

    /// rms_norm(x) * w, into a new activation.
    pub(super) fn rms_norm(&mut self, x: Tensor, weight: &str, eps: f32) -> Tensor {
        let y = self.activation(self.rec.ne(x), self.rows_axis(x));
        self.rms_norm_into(x, weight, eps, y);
        y
    }

    /// rms_norm(x) * w per row, into `y`, which may be `x`.
    pub(super) fn rms_norm_into(&mut self, x: Tensor, weight: &str, eps: f32, y: Tensor) {
        let w = self.weight(weight);
        self.rec.op_with(Op::RmsNorm, &[Some(x), Some(w)], &[y], &params::Norm { eps });
    }

    /// W x per row of x{k,t}: a new activation {n,t}.
    pub(super) fn linear(&mut self, x: Tensor, weight: &str) -> Tensor {
        let w = self.weight(weight);
        let [_, n, ..] = self.rec.ne(w);
        let [_, t, ..] = self.rec.ne(x);
        let y = self.activation([n, t, 1, 1], self.rows_axis(x));
        self.linear_into(x, weight, y);
        y
    }

    /// W x per row of x{k,t}, into y{n,t}.
    pub(super) fn linear_into(&mut self, x: Tensor, weight: &str, y: Tensor) {
        let w = self.weight(weight);
        let x = if self.rec.dtype(w).wants_q8_activations() { self.quantize(x) } else { x };
        self.rec.op(Op::MulMat, &[w, x], y);
    }

    fn quantize(&mut self, x: Tensor) -> Tensor {
        if let Some(&q) = self.quantized.get(&x) {
            return q;
        }
        let q = self.rec.activation(DType::Q8Act, self.rec.ne(x));
        if let Some(axis) = self.rows_axis(x) {
            self.rec.tokens_on(q, axis);
        }
        self.rec.op(Op::Quantize, &[x], q);
        self.quantized.insert(x, q);
        q
    }

    /// The outputs of a projection of x{k,t}, as views {rows,t} of as few products as possible.
    pub(super) fn project(&mut self, x: Tensor, name: &str) -> Vec<Tensor> {
        let outputs = self.weights.projection(name).outputs.clone();
        let mut products: HashMap<String, Tensor> = HashMap::new();
        let t = self.rec.ne(x)[1];
        let axis = self.rows_axis(x);
        outputs
            .into_iter()
            .map(|(label, row, rows)| {
                let product = match products.get(&label) {
                    Some(&product) => product,
                    None => {
                        let product = self.linear(x, &label);
                        products.insert(label, product);
                        product
                    }
                };
                let nb = self.rec.nb(product);
                self.rec.view(product, u64::from(row) * 4, [rows, t, 1, 1], nb, axis)
            })
            .collect()
    }

    /// Rows {d*h,t} as heads {d,h,t}, `stride` bytes from head to head.
    pub(super) fn heads(&mut self, x: Tensor, offset: u64, d: u32, h: u32, stride: u32) -> Tensor {
        let [_, t, ..] = self.rec.ne(x);
        let row = self.rec.nb(x)[1];
        let axis = self.rows_axis(x).map(|_| 2);
        self.rec.view(x, offset, [d, h, t, 1], [4, stride, row, 0], axis)
    }

    /// down(silu(gate a) * up a), a{n_embd,t}.
    pub(super) fn mlp(&mut self, a: Tensor, n_ff: u32, name: &dyn Fn(&str) -> String) -> Tensor {
        let parts = self.project(a, &name("ffn_in"));
        let y = self.activation([n_ff, self.rec.ne(a)[1], 1, 1], self.rows_axis(a));
        let src = [Some(parts[0]), Some(parts[1])];
        self.rec.op_with(Op::Swiglu, &src, &[y], &params::Swiglu { swapped: 0 });
        self.linear(y, &name("ffn_down.weight"))
    }

    /// Rotary embedding of x{d,h,t} by absolute position, in place. For text the position rows of a (interleaved)
    /// M-RoPE are equal, which makes it plain NEOX.
    pub(super) fn rope(&mut self, x: Tensor, c: &RopeConfig) {
        let rope = params::Rope {
            n_dims: c.n_dims,
            mode: params::RopeMode::Neox.wire(),
            n_ctx_orig: c.n_ctx_orig,
            freq_base: c.freq_base,
            freq_scale: c.freq_scale,
            ext_factor: c.ext_factor,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            sections: [0; 4],
        };
        self.rec.op_with(Op::Rope, &[Some(x)], &[x], &rope);
    }

    /// Appends k and v to their caches, and attends: q{d,h,t} -> {dv,h,t}.
    pub(super) fn attend(
        &mut self,
        [q, k, v]: [Tensor; 3],
        [k_cache, v_cache]: [Tensor; 2],
        attn: params::FlashAttn,
    ) -> Tensor {
        let ([_, h, t, _], [dv, ..]) = (self.rec.ne(q), self.rec.ne(v));
        let y = self.activation([dv, h, t, 1], Some(2));
        self.rec.op_with(Op::FlashAttnExt, &[q, k_cache, v_cache, k, v].map(Some), &[y], &attn);
        y
    }

    /// Heads {d,h,t} as rows {d*h,t}.
    pub(super) fn joined(&mut self, x: Tensor) -> Tensor {
        let [d, h, t, _] = self.rec.ne(x);
        self.rec.view(x, 0, [d * h, t, 1, 1], [4, 4 * d * h, 0, 0], Some(1))
    }

    /// y = op(x) in place.
    pub(super) fn apply(&mut self, op: Op, x: Tensor) {
        self.rec.op(op, &[x], x);
    }

    /// a = op(a, b) in place.
    pub(super) fn update(&mut self, op: Op, a: Tensor, b: Tensor) {
        self.rec.op(op, &[a, b], a);
    }
}

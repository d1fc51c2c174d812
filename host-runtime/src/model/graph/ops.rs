//! Ops and groups of ops that all blocks use: norms, products with activations quantized once, heads,
//! attention.

use std::collections::HashMap;

use hexflash_abi::op::params;
use hexflash_abi::program::NO_TOKEN_AXIS;
use hexflash_abi::{DType, Op};

use super::program::Graph;
use crate::record::Tensor;

impl Graph<'_> {
    /// rms_norm(x) * w, into a new activation.
    pub(in crate::model) fn rms_norm(&mut self, x: Tensor, weight: &str, eps: f32) -> Tensor {
        let y = self.activation(self.rec.ne(x), self.rows_axis(x));
        self.rms_norm_into(x, weight, eps, y);
        y
    }

    /// rms_norm(x) * w per row, into `y`, which may be `x`.
    pub(in crate::model) fn rms_norm_into(&mut self, x: Tensor, weight: &str, eps: f32, y: Tensor) {
        let w = self.weight(weight);
        self.rec.op_with(Op::RmsNorm, &[Some(x), Some(w)], &[y], &params::Norm { eps });
    }

    /// rms_norm(x) per row, without weights, in place.
    pub(in crate::model) fn normalize(&mut self, x: Tensor, eps: f32) {
        self.rec.op_with(Op::RmsNorm, &[Some(x)], &[x], &params::Norm { eps });
    }

    /// s x, in place.
    pub(in crate::model) fn scale(&mut self, x: Tensor, scale: f32) {
        self.rec.op_with(Op::Scale, &[Some(x)], &[x], &params::Scale { scale, bias: 0.0 });
    }

    /// cap tanh(x / cap), in place. tanh(y) is 2 sigmoid(2 y) - 1.
    pub(in crate::model) fn cap(&mut self, x: Tensor, cap: f32) {
        self.scale(x, 2.0 / cap);
        self.apply(Op::Sigmoid, x);
        let bounds = params::Scale { scale: 2.0 * cap, bias: -cap };
        self.rec.op_with(Op::Scale, &[Some(x)], &[x], &bounds);
    }

    /// W x per row of x{k,t}: a new activation {n,t}.
    pub(in crate::model) fn linear(&mut self, x: Tensor, weight: &str) -> Tensor {
        let w = self.weight(weight);
        let [_, n, ..] = self.rec.ne(w);
        let y = self.activation_like(x, n);
        self.linear_into(x, weight, y);
        y
    }

    /// W x per row of x{k,t}, into y{n,t}.
    pub(in crate::model) fn linear_into(&mut self, x: Tensor, weight: &str, y: Tensor) {
        let w = self.weight(weight);
        let [_, rows, ..] = self.rec.ne(x);
        let x = if self.rec.by_matrix_unit(w, rows) { x } else { self.as_read_by(weight, x) };
        self.rec.op(Op::MulMat, &[w, x], y);
    }

    /// The products of each row of x{k,t} with the matrices that ids{n_used,t} name: {n,n_used,t}.
    pub(in crate::model) fn linear_by_id(&mut self, x: Tensor, ids: Tensor, weight: &str) -> Tensor {
        let x = self.as_read_by_id(weight, x, ids);
        let ([k, t, ..], [first, row, ..]) = (self.rec.ne(x), self.rec.nb(x));
        let axis = self.rows_axis(x).map(|_| 2);
        let x = self.rec.view(x, 0, [k, 1, t, 1], [first, row, row, 0], axis);
        self.product_by_id(x, ids, weight)
    }

    /// The products of row (i, j) of x{k,n_used,t} with the matrix that ids(i, j) names: {n,n_used,t}.
    pub(in crate::model) fn linear_each_by_id(&mut self, x: Tensor, ids: Tensor, weight: &str) -> Tensor {
        let x = self.as_read_by_id(weight, x, ids);
        self.product_by_id(x, ids, weight)
    }

    fn product_by_id(&mut self, x: Tensor, ids: Tensor, weight: &str) -> Tensor {
        let w = self.weight(weight);
        let [_, n, ..] = self.rec.ne(w);
        let y = self.activation_of_each(ids, n);
        self.rec.op(Op::MulMatId, &[w, x, ids], y);
        y
    }

    /// Adds to each row of x{n,n_used,t} the row of the weight {n,n_expert} that ids{n_used,t} name, in
    /// place.
    pub(in crate::model) fn add_by_id(&mut self, x: Tensor, ids: Tensor, weight: &str) {
        let w = self.weight(weight);
        self.rec.op(Op::AddId, &[x, w, ids], x);
    }

    /// f(gate) * up, into `y`, which may be either.
    pub(in crate::model) fn gated(&mut self, [gate, up]: [Tensor; 2], glu: params::Glu, y: Tensor) {
        self.rec.op_with(Op::Glu, &[Some(gate), Some(up)], &[y], &glu);
    }

    /// x(0) w(0) + x(1) w(1) + .. of each token: x{n,n_used,t}, weights{n_used,t} -> {n,t}.
    pub(in crate::model) fn weighted_sum(&mut self, x: Tensor, weights: Tensor) -> Tensor {
        let [n, ..] = self.rec.ne(x);
        let y = self.activation_like(weights, n);
        self.rec.op(Op::WeightedSum, &[x, weights], y);
        y
    }

    /// Activations as products with a weight read them: int8, if its type wants that.
    fn as_read_by(&mut self, weight: &str, x: Tensor) -> Tensor {
        let w = self.weight(weight);
        if self.rec.dtype(w).wants_q8_activations() { self.quantize(x) } else { x }
    }

    /// Activations as products with the experts of a weight read them.
    fn as_read_by_id(&mut self, weight: &str, x: Tensor, ids: Tensor) -> Tensor {
        let w = self.weight(weight);
        if self.rec.by_matrix_unit_id(w, ids) { x } else { self.as_read_by(weight, x) }
    }

    fn quantize(&mut self, x: Tensor) -> Tensor {
        if let Some(&q) = self.quantized.get(&x) {
            return q;
        }
        let q = self.rec.activation(DType::Q8Act, self.rec.ne(x));
        self.rec.tokens_on(q, self.rec.token_axis(x));
        self.rec.op(Op::Quantize, &[x], q);
        self.quantized.insert(x, q);
        q
    }

    /// The outputs of a projection of x{k,t}, as views {rows,t} of as few products as possible.
    pub(in crate::model) fn project(&mut self, x: Tensor, name: &str) -> Vec<Tensor> {
        let outputs = self.cx().weights.projection(name).outputs.clone();
        let mut products: HashMap<String, Tensor> = HashMap::new();
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
                self.columns(product, row, rows)
            })
            .collect()
    }

    /// `n` values of each row of x{k,t}, from value `first` on.
    pub(in crate::model) fn columns(&mut self, x: Tensor, first: u32, n: u32) -> Tensor {
        let ([_, t, ..], nb, axis) = (self.rec.ne(x), self.rec.nb(x), self.rows_axis(x));
        self.rec.view(x, 4 * u64::from(first), [n, t, 1, 1], nb, axis)
    }

    /// `n` values of each row of x{k,n_used,t}, from value `first` on.
    pub(in crate::model) fn columns_of_each(&mut self, x: Tensor, first: u32, n: u32) -> Tensor {
        let ([_, n_used, t, _], nb, axis) = (self.rec.ne(x), self.rec.nb(x), self.rec.token_axis(x));
        let axis = (axis != NO_TOKEN_AXIS).then_some(axis);
        self.rec.view(x, 4 * u64::from(first), [n, n_used, t, 1], nb, axis)
    }

    /// Rows {d*h,t} as heads {d,h,t}, `stride` bytes from head to head.
    pub(in crate::model) fn heads(&mut self, x: Tensor, offset: u64, d: u32, h: u32, stride: u32) -> Tensor {
        let [_, t, ..] = self.rec.ne(x);
        let row = self.rec.nb(x)[1];
        let axis = self.rows_axis(x).map(|_| 2);
        self.rec.view(x, offset, [d, h, t, 1], [4, stride, row, 0], axis)
    }

    /// Appends `new` k and v to their caches, and attends: q{d,h,t} -> {dv,h,t}. `sinks` is a weight {h}.
    pub(in crate::model) fn attend(
        &mut self,
        q: Tensor,
        new: Option<[Tensor; 2]>,
        [k_cache, v_cache]: [Tensor; 2],
        sinks: Option<&str>,
        attn: params::FlashAttn,
    ) -> Tensor {
        let ([_, h, t, _], [dv, ..]) = (self.rec.ne(q), self.rec.ne(v_cache));
        let y = self.activation([dv, h, t, 1], Some(2));
        let sinks = sinks.map(|sinks| self.weight(sinks));
        let [k, v] = new.map_or([None; 2], |new| new.map(Some));
        let src = [Some(q), Some(k_cache), Some(v_cache), k, v, None, sinks];
        self.rec.op_with(Op::FlashAttnExt, &src, &[y], &attn);
        y
    }

    /// Heads {d,h,t} as rows {d*h,t}.
    pub(in crate::model) fn joined(&mut self, x: Tensor) -> Tensor {
        let [d, h, t, _] = self.rec.ne(x);
        self.rec.view(x, 0, [d * h, t, 1, 1], [4, 4 * d * h, 0, 0], Some(1))
    }

    /// y = op(x) in place.
    pub(in crate::model) fn apply(&mut self, op: Op, x: Tensor) {
        self.rec.op(op, &[x], x);
    }

    /// x = f(x) for every element, in place.
    pub(in crate::model) fn unary(&mut self, kind: params::UnaryKind, x: Tensor) {
        self.rec.op_with(Op::Unary, &[Some(x)], &[x], &params::Unary::of(kind));
    }

    /// a = op(a, b) in place.
    pub(in crate::model) fn update(&mut self, op: Op, a: Tensor, b: Tensor) {
        self.rec.op(op, &[a, b], a);
    }
}

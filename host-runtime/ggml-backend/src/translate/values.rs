//! Element by element and row by row: copies, arithmetic, gates, norms, ROPE.

use hexflash_abi::op::params::{self, GluKind, RopeMode, UnaryKind};
use hexflash_abi::{DType, Op as DspOp};

use super::operand::Operand;
use super::{Refusal, Translator, Value, float, source_of};
use crate::abi::Tensor;
use crate::op::{GluOp, UnaryOp};

const NO_PARAMS: [u32; 0] = [];

impl Translator<'_> {
    /// DUP, CPY, CONT: elements in order, whatever the shapes.
    pub(super) fn copy_node(&mut self, node: &Tensor) -> Result<(), Refusal> {
        if self.copy_of_columns(node)? {
            return Ok(());
        }
        let (src, dst) = (self.rows_of_source(node, 0)?, Operand::of_rows(node, self.places)?);
        if src.ne == dst.ne {
            let src = self.source(&src);
            return self.copy(src, &dst);
        }
        if src.is_contiguous() {
            let src = self.source(&src.reshaped(dst.ne)?);
            return self.copy(src, &dst);
        }
        if dst.is_contiguous() {
            let src_value = self.source(&src);
            return self.copy(src_value, &dst.reshaped(src.ne)?);
        }
        if !Operand::is_whole(src.dtype, dst.ne[0]) {
            return Err(Refusal("rows of parts of blocks"));
        }
        let dense = self.scratch(src.dtype, src.ne);
        let from = self.source(&src);
        self.emit(DspOp::Cpy, &[Some(from)], dense, &NO_PARAMS);
        let packed = hexflash::record::packed(src.dtype, dst.ne).map_err(|_| Refusal("a stride of 4 GiB"))?;
        let tensor = self.out.recorder.view(dense.tensor, 0, dst.ne, packed.nb, None);
        self.copy(Value { tensor, at: None }, &dst)
    }

    /// ADD, MUL.
    pub(super) fn binary(&mut self, op: DspOp, node: &Tensor) -> Result<(), Refusal> {
        let (a, b, dst) = (self.src(node, 0)?, self.src(node, 1)?, self.float_result(node)?);
        let src = [self.rows(&a)?, self.rows(&b)?].map(Some);
        self.emit_into(op, &src, (&dst, DType::F32), &NO_PARAMS)
    }

    /// a - b as a + (-b), which is the same number in IEEE's arithmetic.
    pub(super) fn sub(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (a, b, dst) = (self.src(node, 0)?, self.src(node, 1)?, self.float_result(node)?);
        let b = self.rows(&b)?;
        let ne = self.out.recorder.ne(b.tensor);
        let negative = self.made(DspOp::Scale, &[Some(b)], ne, &params::Scale { scale: -1.0, bias: 0.0 });
        let a = self.rows(&a)?;
        self.emit_into(DspOp::Add, &[Some(a), negative], (&dst, DType::F32), &NO_PARAMS)
    }

    /// SQR: a * a.
    pub(super) fn sqr(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (a, dst) = (self.src(node, 0)?, self.float_result(node)?);
        let a = self.rows(&a)?;
        self.emit_into(DspOp::Mul, &[Some(a), Some(a)], (&dst, DType::F32), &NO_PARAMS)
    }

    /// SCALE.
    pub(super) fn scale(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let params = params::Scale { scale: float(node, 0), bias: float(node, 1) };
        self.of_each(DspOp::Scale, node, &params)
    }

    /// UNARY.
    pub(super) fn unary(&mut self, node: &Tensor) -> Result<(), Refusal> {
        match UnaryOp::of(node.op_params[0]).ok_or(Refusal("the unary op"))? {
            UnaryOp::Neg => self.of_each(DspOp::Scale, node, &params::Scale { scale: -1.0, bias: 0.0 }),
            UnaryOp::Sigmoid => self.of_each(DspOp::Sigmoid, node, &NO_PARAMS),
            UnaryOp::Silu => self.of_each(DspOp::Silu, node, &NO_PARAMS),
            UnaryOp::Exp => self.of_each(DspOp::Exp, node, &NO_PARAMS),
            UnaryOp::Softplus => self.of_each(DspOp::Softplus, node, &NO_PARAMS),
            UnaryOp::Abs => self.named(UnaryKind::Abs, node),
            UnaryOp::Sgn => self.named(UnaryKind::Sgn, node),
            UnaryOp::Step => self.named(UnaryKind::Step, node),
            UnaryOp::Tanh => self.named(UnaryKind::Tanh, node),
            UnaryOp::Elu => self.named(UnaryKind::Elu, node),
            UnaryOp::Relu => self.named(UnaryKind::Relu, node),
            UnaryOp::Gelu => self.named(UnaryKind::Gelu, node),
            UnaryOp::GeluQuick => self.named(UnaryKind::GeluQuick, node),
            UnaryOp::GeluErf => self.named(UnaryKind::GeluErf, node),
            UnaryOp::HardSwish => self.named(UnaryKind::HardSwish, node),
            UnaryOp::HardSigmoid => self.named(UnaryKind::HardSigmoid, node),
            UnaryOp::Expm1 => self.named(UnaryKind::Expm1, node),
            UnaryOp::Xielu => self.xielu(node),
            UnaryOp::Floor => self.named(UnaryKind::Floor, node),
            UnaryOp::Ceil => self.named(UnaryKind::Ceil, node),
            UnaryOp::Round => self.named(UnaryKind::Round, node),
            UnaryOp::Trunc => self.named(UnaryKind::Trunc, node),
        }
    }

    /// A function of UNARY without parameters.
    pub(super) fn named(&mut self, kind: UnaryKind, node: &Tensor) -> Result<(), Refusal> {
        self.of_each(DspOp::Unary, node, &params::Unary::of(kind))
    }

    /// XIELU: a x^2 + b x for positive x, else c (e^m - 1 - x) + b x. Here m is the smaller one of x and
    /// `most`, a negative number near zero.
    ///
    /// The op table has no choice between two values. So all terms are added, and those that do not apply are
    /// zero: a RELU(x)^2 + c (e^m - e^most - MIN(x, 0)) + b x. With e^most in place of 1, the middle term is
    /// zero for positive x, and elsewhere off by c times about `most`.
    fn xielu(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let [of_negative, of_square, linear, most] = [1, 2, 3, 4].map(|i| float(node, i));
        let (a, dst) = (self.src(node, 0)?, self.float_result(node)?);
        let (x, ne) = (Some(self.rows(&a)?), dst.ne);
        let unary = |kind: UnaryKind, b: f32| params::Unary {
            a: if kind == UnaryKind::Clamp { f32::NEG_INFINITY } else { 0.0 },
            b,
            ..params::Unary::of(kind)
        };
        let scale = |scale: f32, bias: f32| params::Scale { scale, bias };
        let positive = self.made(DspOp::Unary, &[x], ne, &unary(UnaryKind::Relu, 0.0));
        let square = self.made(DspOp::Mul, &[positive, positive], ne, &NO_PARAMS);
        let square = self.made(DspOp::Scale, &[square], ne, &scale(of_square, 0.0));
        let bounded = self.made(DspOp::Unary, &[x], ne, &unary(UnaryKind::Clamp, most));
        let power = self.made(DspOp::Unary, &[bounded], ne, &unary(UnaryKind::Expm1, 0.0));
        let power = self.made(DspOp::Scale, &[power], ne, &scale(1.0, -most.exp_m1()));
        let negative = self.made(DspOp::Unary, &[x], ne, &unary(UnaryKind::Clamp, 0.0));
        let negative = self.made(DspOp::Scale, &[negative], ne, &scale(-1.0, 0.0));
        let bend = self.made(DspOp::Add, &[power, negative], ne, &NO_PARAMS);
        let bend = self.made(DspOp::Scale, &[bend], ne, &scale(of_negative, 0.0));
        let line = self.made(DspOp::Scale, &[x], ne, &scale(linear, 0.0));
        let sum = self.made(DspOp::Add, &[square, bend], ne, &NO_PARAMS);
        self.emit_into(DspOp::Add, &[sum, line], (&dst, DType::F32), &NO_PARAMS)
    }

    /// A result of `ne` floats in scratch memory.
    fn made<P>(&mut self, op: DspOp, src: &[Option<Value>], ne: [u32; 4], params: &P) -> Option<Value>
    where
        P: zerocopy::IntoBytes + zerocopy::Immutable,
    {
        let y = self.scratch(DType::F32, ne);
        self.emit(op, src, y, params);
        Some(y)
    }

    /// LEAKY_RELU.
    pub(super) fn leaky_relu(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let slope = params::Unary { a: float(node, 0), ..params::Unary::of(UnaryKind::LeakyRelu) };
        self.of_each(DspOp::Unary, node, &slope)
    }

    /// CLAMP.
    pub(super) fn clamp(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (a, b) = (float(node, 0), float(node, 1));
        self.of_each(DspOp::Unary, node, &params::Unary { a, b, ..params::Unary::of(UnaryKind::Clamp) })
    }

    /// SOFT_MAX, with a mask and sinks if it has them.
    pub(super) fn soft_max(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (a, dst) = (self.src(node, 0)?, self.float_result(node)?);
        let mut optional = |i: usize, types: &[DType]| match source_of(node, i) {
            None => Ok(None),
            Some(tensor) => {
                let operand = self.operand(Some(tensor))?;
                let fits = types.contains(&operand.dtype) && operand.has_rows();
                let refusal = Refusal("the mask or the sinks of SOFT_MAX");
                if fits { Ok(Some(self.source(&operand))) } else { Err(refusal) }
            }
        };
        let (mask, sinks) = (optional(1, &[DType::F32, DType::F16])?, optional(2, &[DType::F32])?);
        let src = [Some(self.rows(&a)?), mask, sinks];
        let params = params::SoftMax { scale: float(node, 0), max_bias: float(node, 1) };
        self.emit_into(DspOp::SoftMax, &src, (&dst, DType::F32), &params)
    }

    /// SUM_ROWS, or MEAN: the sums, each divided by a row's length.
    pub(super) fn sum_rows(&mut self, node: &Tensor, mean: bool) -> Result<(), Refusal> {
        let (a, dst) = (self.src(node, 0)?, self.float_result(node)?);
        let rows = self.rows(&a)?;
        if !mean {
            return self.emit_into(DspOp::SumRows, &[Some(rows)], (&dst, DType::F32), &NO_PARAMS);
        }
        let sums = self.made(DspOp::SumRows, &[Some(rows)], dst.ne, &NO_PARAMS);
        let share = params::Scale { scale: 1.0 / a.ne[0] as f32, bias: 0.0 };
        self.emit_into(DspOp::Scale, &[sums], (&dst, DType::F32), &share)
    }

    /// ARGSORT, and TOP_K, whose result has fewer elements.
    pub(super) fn argsort(&mut self, node: &Tensor, descending: bool) -> Result<(), Refusal> {
        let (a, dst) = (self.src(node, 0)?, self.operand(Some(node))?);
        let a = self.rows(&a)?;
        let params = params::Argsort { descending: descending.into() };
        self.emit_into(DspOp::Argsort, &[Some(a)], (&dst, DType::I32), &params)
    }

    /// REPEAT: a copy for each part of the result.
    pub(super) fn repeat(&mut self, node: &Tensor) -> Result<(), Refusal> {
        /// A program has room for some hundred ops; what is repeated more often is left to the CPU.
        const MOST: u32 = 64;
        let (a, dst) = (self.src(node, 0)?, self.operand(Some(node))?);
        let times: [u32; 4] = std::array::from_fn(|axis| dst.ne[axis] / a.ne[axis]);
        if times.iter().try_fold(1u32, |all, &n| all.checked_mul(n)).is_none_or(|all| all > MOST) {
            return Err(Refusal("a tensor that is repeated more than 64 times"));
        }
        let source = self.source(&a);
        for part in 0..times.iter().product::<u32>() {
            let (mut rest, mut at) = (part, 0);
            for (axis, times) in times.into_iter().enumerate() {
                at += u64::from(rest % times * a.ne[axis]) * u64::from(dst.nb[axis]);
                rest /= times;
            }
            self.copy(source, &dst.view(at, a.ne, dst.nb))?;
        }
        Ok(())
    }

    /// RMS_NORM, L2_NORM.
    pub(super) fn norm(&mut self, op: DspOp, node: &Tensor) -> Result<(), Refusal> {
        self.of_each(op, node, &params::Norm { eps: float(node, 0) })
    }

    /// MUL after RMS_NORM: a norm with weights.
    pub(super) fn weighted_norm(&mut self, norm: &Tensor, mul: &Tensor) -> Result<(), Refusal> {
        let (x, weights, dst) = (self.src(norm, 0)?, self.other_operand(mul, norm)?, self.float_result(mul)?);
        let src = [self.rows(&x)?, self.rows(&weights)?].map(Some);
        self.emit_into(DspOp::RmsNorm, &src, (&dst, DType::F32), &params::Norm { eps: float(norm, 0) })
    }

    /// MUL after SILU of one of its operands: a gate.
    pub(super) fn gate(&mut self, silu: &Tensor, mul: &Tensor) -> Result<(), Refusal> {
        let (gate, values, dst) =
            (self.src(silu, 0)?, self.other_operand(mul, silu)?, self.float_result(mul)?);
        let src = [self.rows(&gate)?, self.rows(&values)?].map(Some);
        self.emit_into(DspOp::Glu, &src, (&dst, DType::F32), &params::Glu::of(GluKind::Swiglu))
    }

    /// What a node of two operands reads besides `first`.
    fn other_operand(&self, node: &Tensor, first: &Tensor) -> Result<Operand, Refusal> {
        let is_first = source_of(node, 0).is_some_and(|source| std::ptr::eq(source, first));
        self.src(node, usize::from(is_first))
    }

    /// An op of one operand whose result has its shape.
    fn of_each<P>(&mut self, op: DspOp, node: &Tensor, params: &P) -> Result<(), Refusal>
    where
        P: zerocopy::IntoBytes + zerocopy::Immutable,
    {
        let (a, dst) = (self.src(node, 0)?, self.float_result(node)?);
        let a = self.rows(&a)?;
        self.emit_into(op, &[Some(a)], (&dst, DType::F32), params)
    }

    /// GLU of two tensors, or of the halves of one.
    pub(super) fn glu(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let kind = GluOp::of(node.op_params[0]).ok_or(Refusal("the GLU op"))?;
        let (a, dst) = (self.src(node, 0)?, self.float_result(node)?);
        let [first, second] = match source_of(node, 1) {
            Some(b) => [a, self.operand(Some(b))?],
            None => {
                let half = a.ne[0] / 2;
                let ne = [half, a.ne[1], a.ne[2], a.ne[3]];
                let halves = [0, u64::from(half) * u64::from(a.nb[0])].map(|at| a.view(at, ne, a.nb));
                if node.op_params[1] == 0 { halves } else { [halves[1], halves[0]] }
            }
        };
        let src = [self.rows(&first)?, self.rows(&second)?].map(Some);
        let to = (&dst, DType::F32);
        let function = match kind {
            GluOp::Swiglu => return self.emit_into(DspOp::Glu, &src, to, &params::Glu::of(GluKind::Swiglu)),
            GluOp::Geglu => return self.emit_into(DspOp::Glu, &src, to, &params::Glu::of(GluKind::Geglu)),
            GluOp::SwigluOai => {
                let params = params::Glu::swiglu_oai(float(node, 2), float(node, 3));
                return self.emit_into(DspOp::Glu, &src, to, &params);
            }
            GluOp::SwigluClamp => {
                // The gate is bounded above, the other operand on both sides.
                let limit = float(node, 3);
                let bounds = [f32::NEG_INFINITY, -limit];
                let mut bounded = src;
                for (value, a) in bounded.iter_mut().zip(bounds) {
                    let clamp = params::Unary { a, b: limit, ..params::Unary::of(UnaryKind::Clamp) };
                    *value = self.made(DspOp::Unary, &[*value], dst.ne, &clamp);
                }
                return self.emit_into(DspOp::Glu, &bounded, to, &params::Glu::of(GluKind::Swiglu));
            }
            GluOp::Reglu => UnaryKind::Relu,
            GluOp::GegluErf => UnaryKind::GeluErf,
            GluOp::GegluQuick => UnaryKind::GeluQuick,
        };
        // The op table has no GLU of these: a function, then a product.
        let gate = self.made(DspOp::Unary, &src[..1], dst.ne, &params::Unary::of(function));
        self.emit_into(DspOp::Mul, &[gate, src[1]], to, &NO_PARAMS)
    }

    /// ROPE with positions as data.
    pub(super) fn rope(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let p = &node.op_params;
        let mode = RopeMode::parse(p[2] as u32).ok_or(Refusal("the mode of ROPE"))?;
        let (n_dims, sections) = match mode {
            RopeMode::Mrope | RopeMode::Imrope => (p[1] as u32, 4),
            RopeMode::Vision => (2 * p[1] as u32, 4),
            RopeMode::Norm | RopeMode::Neox => (p[1] as u32, 1),
        };
        let words = |i: usize| if sections == 4 { p[i] as u32 } else { 0 };
        let params = params::Rope {
            n_dims,
            mode: mode.wire(),
            n_ctx_orig: p[4] as u32,
            freq_base: float(node, 5),
            freq_scale: float(node, 6),
            ext_factor: float(node, 7),
            attn_factor: float(node, 8),
            beta_fast: float(node, 9),
            beta_slow: float(node, 10),
            sections: [11, 12, 13, 14].map(words),
            temperature: 0.0,
            temperature_span: 0,
        };
        let (a, positions, dst) = (self.src(node, 0)?, self.src(node, 1)?, self.float_result(node)?);
        let t = a.ne[2];
        if positions.dtype != DType::I32 || positions.ne != [t * sections, 1, 1, 1] || !positions.has_rows() {
            return Err(Refusal("the positions of ROPE"));
        }
        let positions = self.source(&positions.view(0, [t, sections, 1, 1], [4, 4 * t, 0, 0]));
        let factors = match source_of(node, 2) {
            None => None,
            Some(factors) => {
                let factors = self.operand(Some(factors))?;
                let n = params.n_dims / 2;
                if factors.ne[0] < n || factors.dtype != DType::F32 || !factors.has_rows() {
                    return Err(Refusal("the factors of ROPE"));
                }
                Some(self.source(&factors.view(0, [n, 1, 1, 1], [4, 0, 0, 0])))
            }
        };
        // What is before the first value that is turned is copied.
        let before =
            u32::try_from(p[15]).ok().filter(|&n| n < a.ne[0]).ok_or(Refusal("the place of ROPE"))?;
        let (mut from, mut to) = (a, dst);
        if before > 0 {
            let [first, rest] = [&from, &to].map(|whole| {
                let [n, h, t, b] = whole.ne;
                let at = u64::from(before) * u64::from(whole.nb[0]);
                let first = whole.view(0, [before, h, t, b], whole.nb);
                [first, whole.view(at, [n - before, h, t, b], whole.nb)]
            });
            let value = self.source(&first[0]);
            self.copy(value, &rest[0])?;
            (from, to) = (first[1], rest[1]);
        }
        let x = self.rows(&from)?;
        self.emit_into(DspOp::Rope, &[Some(x), Some(positions), factors], (&to, DType::F32), &params)
    }

    /// CONCAT: each of the two is copied to its part.
    pub(super) fn concat(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let axis = usize::try_from(node.op_params[0]).ok().filter(|&axis| axis < 4);
        let axis = axis.ok_or(Refusal("the axis of CONCAT"))?;
        let (a, b, dst) = (self.src(node, 0)?, self.src(node, 1)?, self.operand(Some(node))?);
        let second = u64::from(a.ne[axis]) * u64::from(dst.nb[axis]);
        for (part, at) in [(a, 0), (b, second)] {
            let value = self.source(&part);
            self.copy(value, &dst.view(at, part.ne, dst.nb))?;
        }
        Ok(())
    }

    /// ARGMAX.
    pub(super) fn argmax(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (a, dst) = (self.src(node, 0)?, self.operand(Some(node))?);
        let a = self.rows(&a)?;
        self.emit_into(DspOp::Argmax, &[Some(a)], (&dst, DType::I32), &NO_PARAMS)
    }

    /// ADD_ID.
    pub(super) fn add_id(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let (a, b, dst) = (self.src(node, 0)?, self.src(node, 1)?, self.float_result(node)?);
        let ids = self.src(node, 2)?;
        let ids = self.source(&ids);
        let src = [self.rows(&a)?, self.rows(&b)?, ids].map(Some);
        self.emit_into(DspOp::AddId, &src, (&dst, DType::F32), &NO_PARAMS)
    }

    /// The operand that an op of floats writes.
    pub(super) fn float_result(&self, node: &Tensor) -> Result<Operand, Refusal> {
        let dst = self.operand(Some(node))?;
        if dst.dtype == DType::I32 { Err(Refusal("a result of integers")) } else { Ok(dst) }
    }
}

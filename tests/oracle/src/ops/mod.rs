//! One function per ggml operation, computed by ggml's own CPU back end in its reference mode.
//!
//! Inputs are [`Tensor`]s, permuted or strided ones included; the result is contiguous. Shapes are in ggml's
//! order. What ggml does not check and would read out of bounds for is checked here and returned as
//! [`Error`]; what ggml does check, it answers by aborting the process with its own message.

mod ffi;

use ffi::{Graph, Node};
use llama_cpp_sys_2 as sys;

use crate::tensor::{Error, GgmlType, Tensor};

type Result<T> = std::result::Result<T, Error>;

/// Rotary variants; the numbers are ggml's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum RopeMode {
    /// Pairs (2i, 2i+1).
    Norm = 0,
    /// Pairs (i, i + n/2).
    Neox = 2,
    /// Neox pairs, angles by sections of the four position rows.
    Mrope = 8,
    /// Neox pairs, two sections restarting their angles.
    Vision = 24,
    /// Neox pairs, sections interleaved.
    Imrope = 40,
}

impl RopeMode {
    /// Whether there are four position rows (t, h, w, e) instead of one.
    pub fn is_multi(self) -> bool {
        !matches!(self, Self::Norm | Self::Neox)
    }
}

/// Parameters of ROPE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Rotated dimensions (half of them for [`RopeMode::Vision`]).
    pub n_dims: i32,
    /// Which pairs, which positions.
    pub mode: RopeMode,
    /// Pairs per position row; multi modes only.
    pub sections: [i32; 4],
    /// Context length of training (YaRN).
    pub n_ctx_orig: i32,
    /// Theta.
    pub freq_base: f32,
    /// Position interpolation.
    pub freq_scale: f32,
    /// YaRN mix; 0 switches it off.
    pub ext_factor: f32,
    /// Magnitude.
    pub attn_factor: f32,
    /// YaRN correction, fast end.
    pub beta_fast: f32,
    /// YaRN correction, slow end.
    pub beta_slow: f32,
}

impl Rope {
    /// Plain rotary over `n_dims` at base `freq_base`.
    pub fn plain(mode: RopeMode, n_dims: i32, freq_base: f32) -> Self {
        Self {
            n_dims,
            mode,
            sections: [0; 4],
            n_ctx_orig: 0,
            freq_base,
            freq_scale: 1.0,
            ext_factor: 0.0,
            attn_factor: 1.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
        }
    }
}

/// Parameters of FLASH_ATTN_EXT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Factor on q.k.
    pub scale: f32,
    /// ALiBi; needs a mask if above 0.
    pub max_bias: f32,
    /// logit = softcap * tanh(scale * q.k / softcap), if not 0.
    pub softcap: f32,
}

/// Unary operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    /// x * sigmoid(x)
    Silu,
    /// 1 / (1 + exp(-x))
    Sigmoid,
    /// x above 20, else ln(1 + exp(x))
    Softplus,
    /// exp(x)
    Exp,
    /// -x
    Neg,
    /// |x|
    Abs,
    /// -1, 0 or 1
    Sgn,
    /// 1 where x is positive, else 0
    Step,
    /// tanh(x)
    Tanh,
    /// x where it is positive, else exp(x) - 1
    Elu,
    /// x where it is positive, else 0
    Relu,
    /// GELU by tanh. ggml's CPU takes it from a table of F16.
    Gelu,
    /// x / (1 + exp(-1.702 x)). ggml's CPU takes it from a table of F16.
    GeluQuick,
    /// GELU by erf
    GeluErf,
    /// x times HARDSIGMOID
    HardSwish,
    /// (x + 3) / 6, between 0 and 1
    HardSigmoid,
    /// exp(x) - 1
    Expm1,
    /// the next integer below
    Floor,
    /// the next integer above
    Ceil,
    /// the nearest integer, ties away from zero
    Round,
    /// the next integer towards zero
    Trunc,
    /// sqrt(x)
    Sqrt,
    /// ln(x)
    Log,
    /// sin(x)
    Sin,
    /// cos(x)
    Cos,
    /// x where it is positive, else 0.1 x
    LeakyRelu,
    /// x between -0.5 and 0.5
    Clamp,
}

impl Unary {
    /// Of [`LeakyRelu`](Self::LeakyRelu), as in upstream's tests.
    pub const SLOPE: f32 = 0.1;
    /// Of [`Clamp`](Self::Clamp), as in upstream's tests.
    pub const RANGE: [f32; 2] = [-0.5, 0.5];
}

/// Functions of a gated MLP.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Glu {
    /// silu(a) * b
    Swiglu,
    /// gelu(a) * b, by tanh. ggml's CPU takes it from a table of F16.
    Geglu,
    /// x = min(a, limit), x * sigmoid(alpha * x) * (1 + clamp(b, -limit, limit))
    SwigluOai {
        /// Of the sigmoid.
        alpha: f32,
        /// Of both operands.
        limit: f32,
    },
}

/// Binary operations; the second operand is repeated to the first one's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b
    Div,
}

/// The CPU, with a number of threads.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    threads: usize,
}

impl Default for Cpu {
    /// All cores.
    fn default() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }
}

fn shape(op: &'static str, ok: bool, why: impl FnOnce() -> String) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::Shape { op, why: why() }) }
}

impl Cpu {
    /// The CPU with so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads }
    }

    fn run<const N: usize>(
        self,
        inputs: [&Tensor; N],
        build: impl FnOnce(&Graph, [Node; N]) -> Node,
    ) -> Result<Tensor> {
        let mut g = Graph::new();
        let mut nodes = Vec::with_capacity(N);
        for t in inputs {
            nodes.push(g.input(t)?);
        }
        let nodes: [Node; N] = nodes.try_into().unwrap_or_else(|_| unreachable!("one node per input"));
        let out = build(&g, nodes);
        g.compute(out, self.threads)
    }

    fn run_with<const N: usize, const M: usize>(
        self,
        inputs: [&Tensor; N],
        optional: [Option<&Tensor>; M],
        build: impl FnOnce(&Graph, [Node; N], [Option<Node>; M]) -> Node,
    ) -> Result<Tensor> {
        let mut g = Graph::new();
        let mut nodes = Vec::with_capacity(N);
        for t in inputs {
            nodes.push(g.input(t)?);
        }
        let mut maybe = [None; M];
        for (slot, t) in maybe.iter_mut().zip(optional) {
            *slot = t.map(|t| g.input(t)).transpose()?;
        }
        let nodes: [Node; N] = nodes.try_into().unwrap_or_else(|_| unreachable!("one node per input"));
        let out = build(&g, nodes, maybe);
        g.compute(out, self.threads)
    }

    /// `a {k, m, A2, A3}`, `b {k, n, B2, B3}` to `{m, n, B2, B3}` F32. A2 divides B2, A3 divides B3; matrix
    /// `i` of `b` meets matrix `i / (B2 / A2)` of `a`. ggml rounds `b` to the dot type of `a` (Q8_0 and the
    /// like).
    pub fn mul_mat(self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.run([a, b], |g, [a, b]| g.mul_mat(a, b))
    }

    /// `experts {k, m, E}`, `b {k, 1 or used, T}`, `ids {used, T}` I32 to `{m, used, T}` F32.
    pub fn mul_mat_id(self, experts: &Tensor, b: &Tensor, ids: &Tensor) -> Result<Tensor> {
        let n = experts.ne[2] as i32;
        ids.check()?;
        let inside = ids.to_i32().iter().all(|i| (0..n).contains(i));
        shape("MUL_MAT_ID", inside, || format!("an id is not below {n}"))?;
        self.run([experts, b, ids], |g, [e, b, i]| g.mul_mat_id(e, b, i))
    }

    /// Adds row `ids[u, t]` of `b {n, E}` to `a {n, used, T}`; `ids {used, T}` I32.
    pub fn add_id(self, a: &Tensor, b: &Tensor, ids: &Tensor) -> Result<Tensor> {
        self.run([a, b, ids], |g, [a, b, i]| g.add_id(a, b, i))
    }

    /// `a {n, rows, B1, B2}` any type, `rows {r, B1, B2}` I32 to `{n, r, B1, B2}` F32 (I32 stays I32).
    pub fn get_rows(self, a: &Tensor, rows: &Tensor) -> Result<Tensor> {
        self.run([a, rows], |g, [a, r]| g.get_rows(a, r))
    }

    /// `a {n, R, A2, A3}` with rows of `b {n, r, A2, A3}` (F32 or F16) written at `rows {r, C1, C2}` (I64 or
    /// I32; repeated over dimensions 2 and 3). Returns all of `a`, in its own type.
    pub fn set_rows(self, a: &Tensor, b: &Tensor, rows: &Tensor) -> Result<Tensor> {
        self.run([a, b, rows], |g, [a, b, r]| g.set_rows(a, b, r))
    }

    /// `a op b`, with `b` repeated.
    pub fn binary(self, op: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.run([a, b], |g, [a, b]| match op {
            Binary::Add => g.add(a, b),
            Binary::Sub => g.sub(a, b),
            Binary::Mul => g.mul(a, b),
            Binary::Div => g.div(a, b),
        })
    }

    /// `a + b`, with `b` repeated.
    pub fn add(self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.binary(Binary::Add, a, b)
    }

    /// `a * b`, with `b` repeated.
    pub fn mul(self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.binary(Binary::Mul, a, b)
    }

    /// `s * a + b`
    pub fn scale(self, a: &Tensor, s: f32, b: f32) -> Result<Tensor> {
        self.run([a], |g, [a]| g.scale(a, s, b))
    }

    /// Elementwise, in the type of `a`.
    pub fn unary(self, op: Unary, a: &Tensor) -> Result<Tensor> {
        self.run([a], |g, [a]| match op {
            Unary::Silu => g.silu(a),
            Unary::Sigmoid => g.sigmoid(a),
            Unary::Softplus => g.softplus(a),
            Unary::Exp => g.exp(a),
            Unary::Neg => g.neg(a),
            Unary::Abs => g.unary(a, sys::GGML_UNARY_OP_ABS),
            Unary::Sgn => g.unary(a, sys::GGML_UNARY_OP_SGN),
            Unary::Step => g.unary(a, sys::GGML_UNARY_OP_STEP),
            Unary::Tanh => g.unary(a, sys::GGML_UNARY_OP_TANH),
            Unary::Elu => g.unary(a, sys::GGML_UNARY_OP_ELU),
            Unary::Relu => g.unary(a, sys::GGML_UNARY_OP_RELU),
            Unary::Gelu => g.unary(a, sys::GGML_UNARY_OP_GELU),
            Unary::GeluQuick => g.unary(a, sys::GGML_UNARY_OP_GELU_QUICK),
            Unary::GeluErf => g.unary(a, sys::GGML_UNARY_OP_GELU_ERF),
            Unary::HardSwish => g.unary(a, sys::GGML_UNARY_OP_HARDSWISH),
            Unary::HardSigmoid => g.unary(a, sys::GGML_UNARY_OP_HARDSIGMOID),
            Unary::Expm1 => g.unary(a, sys::GGML_UNARY_OP_EXPM1),
            Unary::Floor => g.unary(a, sys::GGML_UNARY_OP_FLOOR),
            Unary::Ceil => g.unary(a, sys::GGML_UNARY_OP_CEIL),
            Unary::Round => g.unary(a, sys::GGML_UNARY_OP_ROUND),
            Unary::Trunc => g.unary(a, sys::GGML_UNARY_OP_TRUNC),
            Unary::Sqrt => g.sqrt(a),
            Unary::Log => g.log(a),
            Unary::Sin => g.sin(a),
            Unary::Cos => g.cos(a),
            Unary::LeakyRelu => g.leaky_relu(a, Unary::SLOPE, false),
            Unary::Clamp => g.clamp(a, Unary::RANGE[0], Unary::RANGE[1]),
        })
    }

    /// x * sigmoid(x)
    pub fn silu(self, a: &Tensor) -> Result<Tensor> {
        self.unary(Unary::Silu, a)
    }

    /// 1 / (1 + exp(-x))
    pub fn sigmoid(self, a: &Tensor) -> Result<Tensor> {
        self.unary(Unary::Sigmoid, a)
    }

    /// x above 20, else ln(1 + exp(x))
    pub fn softplus(self, a: &Tensor) -> Result<Tensor> {
        self.unary(Unary::Softplus, a)
    }

    /// exp(x)
    pub fn exp(self, a: &Tensor) -> Result<Tensor> {
        self.unary(Unary::Exp, a)
    }

    /// `a {2n, ..}` to `{n, ..}`: of its halves, exchanged if `swapped`. ggml has no such form of SWIGLU_OAI.
    pub fn glu(self, op: Glu, a: &Tensor, swapped: bool) -> Result<Tensor> {
        shape("GLU", !matches!(op, Glu::SwigluOai { .. }), || format!("{op:?} of one tensor"))?;
        self.run([a], |g, [a]| match (op, swapped) {
            (Glu::Swiglu, false) => g.swiglu(a),
            (Glu::Swiglu, true) => g.swiglu_swapped(a),
            (Glu::Geglu, false) => g.geglu(a),
            (Glu::Geglu, true) => g.geglu_swapped(a),
            (Glu::SwigluOai { .. }, _) => unreachable!("refused above"),
        })
    }

    /// Of two tensors of one shape.
    pub fn glu_split(self, op: Glu, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.run([a, b], |g, [a, b]| match op {
            Glu::Swiglu => g.swiglu_split(a, b),
            Glu::Geglu => g.geglu_split(a, b),
            Glu::SwigluOai { alpha, limit } => g.swiglu_oai(a, b, alpha, limit),
        })
    }

    /// x / sqrt(mean of x^2 + eps), per row.
    pub fn rms_norm(self, a: &Tensor, eps: f32) -> Result<Tensor> {
        self.run([a], |g, [a]| g.rms_norm(a, eps))
    }

    /// RMS_NORM times a weight that is repeated over the rows.
    pub fn rms_norm_mul(self, a: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        self.run([a, weight], |g, [a, w]| g.mul(g.rms_norm(a, eps), w))
    }

    /// x / max(sqrt(sum of x^2), eps), per row.
    pub fn l2_norm(self, a: &Tensor, eps: f32) -> Result<Tensor> {
        self.run([a], |g, [a]| g.l2_norm(a, eps))
    }

    /// `a {D, H, T, B}` F32 or F16, `pos {T}` I32 (`{4 T}` in multi modes, row by row),
    /// `factors {>= n_dims / 2}` F32. Dimensions beyond `n_dims` are copied.
    pub fn rope(self, a: &Tensor, pos: &Tensor, factors: Option<&Tensor>, p: &Rope) -> Result<Tensor> {
        shape("ROPE", p.n_dims > 0 && i64::from(p.n_dims) <= a.ne[0], || {
            format!("{} of {} dims", p.n_dims, a.ne[0])
        })?;
        self.run_with([a, pos], [factors], |g, [a, pos], [f]| {
            if p.mode.is_multi() {
                g.rope_multi([a, pos], f, p)
            } else {
                let (mode, ctx, base) = (p.mode as i32, p.n_ctx_orig, p.freq_base);
                let (scale, ext, attn) = (p.freq_scale, p.ext_factor, p.attn_factor);
                g.rope_ext(a, pos, f, p.n_dims, mode, ctx, base, scale, ext, attn, p.beta_fast, p.beta_slow)
            }
        })
    }

    /// `x {K - 1 + T, C, B}`, `w {K, C}` to `{C, T, B}`: y[c, t] = sum over j of x[t + j, c] * w[j, c].
    pub fn ssm_conv(self, x: &Tensor, w: &Tensor) -> Result<Tensor> {
        self.run([x, w], |g, [x, w]| g.ssm_conv(x, w))
    }

    /// `q`, `k {S, Hk, T, Bk}`, `v {S, Hv, T, B}`, `g {1 or S, Hv, T, B}`, `beta {1, Hv, T, B}`,
    /// `state {S, S, Hv, B}` to one F32 tensor `{S * Hv, T * B + K * S * B}`.
    ///
    /// Its floats are: the outputs `[B][T][Hv][S]`, then `snapshots` = K planes `[B][Hv][S][S]`. Row j of a
    /// state is the value index, the contiguous index i the key. Plane 0 is the final state, plane s the
    /// state s tokens earlier; planes from T on are not written by ggml and zero here. Key head of value head
    /// h is h mod Hk, key sequence of b is b / (B / Bk).
    pub fn gated_delta_net(self, x: &DeltaNet<'_>, snapshots: i64) -> Result<Tensor> {
        const OP: &str = "GATED_DELTA_NET";
        let [s, hv, t, b] = x.v.ne;
        for (name, y) in [("q", x.q), ("k", x.k)] {
            let fits = y.ne[0] == s && y.ne[2] == t && hv % y.ne[1] == 0 && b % y.ne[3] == 0;
            shape(OP, fits, || format!("{name} {:?} against v {:?}", y.ne, x.v.ne))?;
        }
        for (name, y) in [("g", x.g), ("beta", x.beta)] {
            shape(OP, y.ne[1..] == [hv, t, b], || format!("{name} {:?} against v {:?}", y.ne, x.v.ne))?;
        }
        shape(OP, (1..1 << 16).contains(&snapshots), || format!("{snapshots} snapshots"))?;
        self.run([x.q, x.k, x.v, x.g, x.beta, x.state], |gr, [q, k, v, g, beta, state]| {
            gr.gated_delta_net(q, k, v, g, beta, state, snapshots)
        })
    }

    /// `q {D, Tq, Hq, B}` F32, `k {D, Tk, Hkv, B}`, `v {Dv, Tk, Hkv, B}`, `mask {Tk, >= Tq, ..}` F16 added to
    /// the logits, `sinks {Hq}` F32 to `{Dv, Hq, Tq, B}` F32. A query that sees nothing gives zeros.
    pub fn flash_attn_ext(
        self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        sinks: Option<&Tensor>,
        p: &Attention,
    ) -> Result<Tensor> {
        const OP: &str = "FLASH_ATTN_EXT";
        let fits = v.ne[1] == k.ne[1] && v.ne[2] == k.ne[2] && q.ne[2] % k.ne[2] == 0;
        shape(OP, fits, || format!("q {:?}, k {:?}, v {:?}", q.ne, k.ne, v.ne))?;
        if let Some(m) = mask {
            let fits = m.ne[0] == k.ne[1] && m.ne[1] >= q.ne[1];
            shape(OP, fits, || format!("mask {:?} for {} queries, {} keys", m.ne, q.ne[1], k.ne[1]))?;
        }
        self.run_with([q, k, v], [mask, sinks], |g, qkv, [m, s]| g.flash_attn(qkv, m, s, p))
    }

    /// softmax(scale * a + slope * mask) per row of `a {n, T, H, B}`; `mask {n, >= T, H', B'}` F32 or F16,
    /// repeated; `sinks {H}` join the denominator.
    pub fn soft_max_ext(
        self,
        a: &Tensor,
        mask: Option<&Tensor>,
        sinks: Option<&Tensor>,
        scale: f32,
        max_bias: f32,
    ) -> Result<Tensor> {
        self.run_with([a], [mask, sinks], |g, [a], [m, s]| {
            let node = g.soft_max(a, m, scale, max_bias);
            g.soft_max_sinks(node, s);
            node
        })
    }

    /// (x - mean) / sqrt(variance + eps) per row.
    pub fn norm(self, a: &Tensor, eps: f32) -> Result<Tensor> {
        self.run([a], |g, [a]| g.norm(a, eps))
    }

    /// The sum of each row.
    pub fn sum_rows(self, a: &Tensor) -> Result<Tensor> {
        self.run([a], |g, [a]| g.sum_rows(a))
    }

    /// Where the elements of each row come from when it is sorted, I32.
    pub fn argsort(self, a: &Tensor, descending: bool) -> Result<Tensor> {
        let order = if descending { sys::GGML_SORT_ORDER_DESC } else { sys::GGML_SORT_ORDER_ASC };
        self.run([a], |g, [a]| g.argsort(a, order))
    }

    /// Index of the largest element per row, I32 `{rows}`. Of equal ones ggml's CPU takes the **last**.
    pub fn argmax(self, a: &Tensor) -> Result<Tensor> {
        self.run([a], |g, [a]| g.argmax(a))
    }

    /// `a` made contiguous.
    pub fn cont(self, a: &Tensor) -> Result<Tensor> {
        self.run([a], |g, [a]| g.cont(a))
    }

    /// `a` in another type, contiguous.
    pub fn cast(self, a: &Tensor, ty: GgmlType) -> Result<Tensor> {
        self.run([a], |g, [a]| g.cast(a, ty))
    }

    /// The elements of `a` in order, written into the elements of `dst` in order; returns `dst`'s elements.
    pub fn cpy(self, a: &Tensor, dst: &Tensor) -> Result<Tensor> {
        self.run([a, dst], |g, [a, d]| g.cpy(a, d))
    }

    /// `a` and `b` joined along dimension `dim`.
    pub fn concat(self, a: &Tensor, b: &Tensor, dim: usize) -> Result<Tensor> {
        self.run([a, b], |g, [a, b]| g.concat(a, b, dim as i32))
    }

    /// `a` repeated to shape `ne`.
    pub fn repeat(self, a: &Tensor, ne: [i64; 4]) -> Result<Tensor> {
        self.run([a, &Tensor::zeros(a.ty, ne)], |g, [a, like]| g.repeat(a, like))
    }
}

/// Inputs of [`Cpu::gated_delta_net`].
#[derive(Debug, Clone, Copy)]
pub struct DeltaNet<'a> {
    /// Queries.
    pub q: &'a Tensor,
    /// Keys.
    pub k: &'a Tensor,
    /// Values.
    pub v: &'a Tensor,
    /// Log decay.
    pub g: &'a Tensor,
    /// Write strength.
    pub beta: &'a Tensor,
    /// State before the first token.
    pub state: &'a Tensor,
}

/// Rows of `n` floats in `ty`, encoded by ggml's quantizer (F32, F16 and BF16 too).
///
/// # Panics
/// If the rows are not whole blocks, or for integer types.
pub fn quantize(ty: GgmlType, rows: &[f32], n: usize) -> Vec<u8> {
    assert!(
        n > 0 && rows.len().is_multiple_of(n) && n.is_multiple_of(ty.block_len()),
        "rows of {n} in {} floats",
        rows.len()
    );
    match ty {
        GgmlType::F32 => rows.iter().flat_map(|v| v.to_le_bytes()).collect(),
        GgmlType::I32 | GgmlType::I64 => panic!("integers are not quantized"),
        _ => ffi::quantize(ty, rows, n),
    }
}

/// The floats of whole quantized blocks, decoded by ggml.
///
/// # Panics
/// For types that are not quantized: [`Tensor::to_f32`] converts those.
pub fn dequantize(ty: GgmlType, data: &[u8]) -> Vec<f32> {
    assert!(ty.is_quantized(), "{ty:?} is not quantized");
    ffi::dequantize(ty, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_ggmls() {
        for &ty in GgmlType::ALL {
            assert_eq!((ty.block_len(), ty.block_bytes()), ffi::block_of(ty), "{ty:?}");
            assert_eq!(GgmlType::from_id(ty as u32), Some(ty));
        }
    }

    #[test]
    fn shapes_that_ggml_would_not_check_are_refused() {
        let cpu = Cpu::new(1);
        let t = |ne| Tensor::zeros(GgmlType::F32, ne);
        let (q, v, g) = (t([16, 2, 3, 1]), t([16, 2, 4, 1]), t([1, 2, 4, 1]));
        let x = DeltaNet { q: &q, k: &v, v: &v, g: &g, beta: &g, state: &t([16, 16, 2, 1]) };
        assert!(matches!(cpu.gated_delta_net(&x, 1), Err(Error::Shape { .. })));
        let mask = Tensor::zeros(GgmlType::F16, [8, 1, 1, 1]);
        let p = Attention { scale: 1.0, max_bias: 0.0, softcap: 0.0 };
        let (q, k) = (t([64, 2, 1, 1]), t([64, 8, 1, 1]));
        assert!(matches!(cpu.flash_attn_ext([&q, &k, &k], Some(&mask), None, &p), Err(Error::Shape { .. })));
    }
}

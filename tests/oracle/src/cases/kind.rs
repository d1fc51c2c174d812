//! What a case computes: one variant per operation, flat and typed.
//!
//! Inputs are named as in the variant's documentation and come in ggml's source order
//! ([`Case::inputs`](super::Case::inputs)). Shapes are in ggml's order.

use crate::ops::{Attention, Binary, Glu, Rope, Unary};
use crate::tensor::GgmlType;

/// How the gate of GATED_DELTA_NET is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Uniform in [-20, -1e-4), as upstream.
    Uniform,
    /// Uniform in [-0.5, 0): decays that keep the state alive, as trained models have them.
    Slow,
    /// All 0: nothing is forgotten.
    Zero,
    /// All -inf: everything is forgotten.
    NegInf,
    /// 0, -inf and uniform values in turn.
    Limits,
}

/// Which keys a query of FLASH_ATTN_EXT sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// No mask at all.
    None,
    /// Uniform in [-1, 1), with 20 % of 128 x 64 blocks set to -inf or 0, as upstream.
    Random,
    /// Query i sees keys up to `kv - nq + i`: the end of a sequence.
    Causal,
    /// As `Causal`, but the last query sees nothing.
    Blind,
}

/// Where the second operand of GLU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GluForm {
    /// One tensor, the gate is the first half.
    Fused,
    /// One tensor, the gate is the second half.
    Swapped,
    /// Two tensors, the gate is the first.
    Split,
}

/// How a row of ARGMAX is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// All different, shuffled: 0, 1, 2, ..
    Unique,
    /// Small integers: the maximum occurs many times.
    Ties,
    /// All equal.
    Equal,
    /// All -inf.
    NegInf,
    /// Ascending: the maximum is the very last.
    Last,
}

/// How an input lies in its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Contiguous.
    Dense,
    /// A corner of a larger tensor.
    Padded,
    /// The second half of each row of a tensor twice as wide (ROPE only).
    SecondHalf,
}

/// One operation with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "fields are documented with their variant")]
pub enum CaseKind {
    /// `a {k, m, batch0, batch1}`, `b {k, n, batch0 * repeat0, batch1 * repeat1}`. Both are stored so that
    /// `permute(perm)` gives these shapes. If `k_alloc` is not 0, both are the first `k` of rows of that
    /// width.
    MulMat {
        a: GgmlType,
        b: GgmlType,
        m: i64,
        n: i64,
        k: i64,
        batch: [i64; 2],
        repeat: [i64; 2],
        perm: [usize; 4],
        k_alloc: i64,
    },
    /// `as {k, m, n_mats}`, `b {k, n_used, n}` F32, or `{k, 1, n}` if one row is `shared` by all experts of a
    /// token, `ids {n_used, n}` I32, all of a token different.
    MulMatId { a: GgmlType, n_mats: i64, n_used: i64, shared: bool, m: i64, n: i64, k: i64 },
    /// `a {ne}` F32, encoded as int8 with a scale per 32, as a product with quantized weights reads it. The
    /// result is what the encoding is worth, F32.
    Quantize { ne: [i64; 4], layout: Layout, amplitude: f32 },
    /// `a {n, m, b1, b2}`, `rows {r, b1, b2}` I32; of a `view` only the first r / 2 rows are taken.
    GetRows { ty: GgmlType, n: i64, m: i64, r: i64, b1: i64, b2: i64, view: bool },
    /// `dst {ne0, ne1, ne2 * repeat0, ne3 * repeat1}` of `ty`, `src` F32 with r rows, `rows {r, ne2, ne3}` of
    /// `idx`, all different; of a `view` only the first r / 2. The result is all of `dst`.
    SetRows { ty: GgmlType, idx: GgmlType, ne: [i64; 4], repeat: [i64; 2], r: i64, view: bool },
    /// `a {ne * repeat}`, `b {ne}`; `perm` stores `b` as a permutation by (1, 2, 0, 3).
    Binary { op: Binary, ty: GgmlType, ne: [i64; 4], repeat: [i64; 4], perm: bool },
    /// `a {ne}` F32; `s * a + b`.
    Scale { ne: [i64; 4], s: f32, b: f32 },
    /// `a {ne}`, uniform in [min, max).
    Unary { op: Unary, ty: GgmlType, ne: [i64; 4], layout: Layout, min: f32, max: f32 },
    /// `a {ne}` fused (the result has ne0 / 2), or `a {ne}` and `b {ne}` split. SWIGLU_OAI has the split form
    /// only.
    Glu { op: Glu, ty: GgmlType, ne: [i64; 4], form: GluForm, layout: Layout },
    /// `a {n, used, t}` F32, `b {n, experts}` F32, `ids {used, t}` I32, all of a token different.
    AddId { n: i64, used: i64, t: i64, experts: i64 },
    /// `a {ne}` F32, and `weight {ne0}` if there is one. Uniform in [-10, 10) with a weight, as upstream.
    RmsNorm { ne: [i64; 4], eps: f32, weight: bool, layout: Layout, amplitude: f32 },
    /// `a {ne}` F32.
    L2Norm { ne: [i64; 4], eps: f32, layout: Layout, amplitude: f32 },
    /// `a {ne}`, `pos {ne2}` or `{4 * ne2}` I32 below `max_pos`, and `factors {n_dims / 2}` if there are any.
    Rope { ty: GgmlType, ne: [i64; 4], rope: Rope, factors: bool, layout: Layout, max_pos: usize },
    /// `x {taps - 1 + t, channels, seqs}`, `w {taps, channels}`, F32.
    SsmConv { taps: i64, channels: i64, t: i64, seqs: i64 },
    /// `q`, `k {s, heads, t, b}` (rows L2-normed), `v {s, heads * vrep, t, b}`, `g {kda ? s : 1, ..}`,
    /// `beta`, `state {s, s, heads * vrep, b}`; `perm` stores q, k and v as `{s, t, heads, b}`. The result
    /// has `snapshots` state planes, of which ggml writes min(t, snapshots); the rest is not compared.
    GatedDeltaNet {
        heads: i64,
        s: i64,
        t: i64,
        b: i64,
        vrep: i64,
        perm: bool,
        kda: bool,
        snapshots: i64,
        gate: Gate,
    },
    /// `q {dk, nq, heads * group, seqs}` F32, `k {dk, kv, heads, seqs}` and `v {dv, kv, heads, seqs}` of
    /// `kv_ty`, `mask {kv, nq, 1, seqs}` F16, `sinks {heads * group}` F32 in [-10, 10); `perm` stores q, k
    /// and v as `{d, heads, n, seqs}`.
    FlashAttn {
        dk: i64,
        dv: i64,
        heads: i64,
        group: i64,
        seqs: i64,
        kv: i64,
        nq: i64,
        mask: Mask,
        sinks: bool,
        params: Attention,
        kv_ty: GgmlType,
        perm: bool,
    },
    /// `a {ne0, ne1, ne2 * repeat0, ne3 * repeat1}` F32, `mask {ne}` and `sinks {ne2 * repeat0}` if there are
    /// any.
    SoftMax { ne: [i64; 4], mask: Option<GgmlType>, repeat: [i64; 2], sinks: bool, scale: f32, max_bias: f32 },
    /// `a {ne}` F32.
    Norm { ne: [i64; 4], eps: f32, layout: Layout, amplitude: f32 },
    /// `a {ne}` F32 to `{1, ne1, ne2, ne3}`.
    SumRows { ne: [i64; 4], layout: Layout },
    /// `a {ne}` F32, all elements of a row different, to I32 `{ne}`.
    Argsort { ne: [i64; 4], descending: bool },
    /// `a {cols, rows}` F32 to I32. Compared exactly; where a maximum occurs more than once the **first** is
    /// right (ggml's CPU takes the last: [`Case::expected`](super::Case::expected) corrects it).
    Argmax { cols: i64, rows: i64, values: Values },
    /// `src {ne}` permuted by `src_perm`, written in order into `dst` of type `dst`: shape `dst_ne` (or that
    /// of the permuted source), permuted by `dst_perm`. The result is `dst`'s elements in order.
    Cpy {
        src: GgmlType,
        dst: GgmlType,
        ne: [i64; 4],
        dst_ne: Option<[i64; 4]>,
        src_perm: [usize; 4],
        dst_perm: [usize; 4],
    },
    /// `a` is `{ne}` with dimensions 0 and 1 exchanged, or a corner of a larger one if `slice`.
    Cont { ty: GgmlType, ne: [i64; 4], slice: bool },
    /// `a {ne}` and `b`, the same but `other` long in dimension `dim`. Bit 0 of `views` makes `a` a view, bit
    /// 1 `b`.
    Concat { ty: GgmlType, ne: [i64; 4], other: i64, dim: usize, views: u8 },
    /// `a {ne}` to `{ne * repeat}`.
    Repeat { ty: GgmlType, ne: [i64; 4], repeat: [i64; 4] },
}

fn list(v: &[i64]) -> String {
    let items: Vec<String> = v.iter().map(i64::to_string).collect();
    format!("[{}]", items.join(","))
}

fn perm(v: &[usize; 4]) -> String {
    format!("[{},{},{},{}]", v[0], v[1], v[2], v[3])
}

impl CaseKind {
    /// ggml's name of the operation.
    pub fn op(&self) -> &'static str {
        match self {
            Self::MulMat { .. } => "MUL_MAT",
            Self::MulMatId { .. } => "MUL_MAT_ID",
            Self::Quantize { .. } => "QUANTIZE",
            Self::GetRows { .. } => "GET_ROWS",
            Self::SetRows { .. } => "SET_ROWS",
            Self::Binary { op: Binary::Add, .. } => "ADD",
            Self::Binary { op: Binary::Sub, .. } => "SUB",
            Self::Binary { op: Binary::Mul, .. } => "MUL",
            Self::Binary { op: Binary::Div, .. } => "DIV",
            Self::Scale { .. } => "SCALE",
            Self::Unary { op: Unary::Silu, .. } => "SILU",
            Self::Unary { op: Unary::Sigmoid, .. } => "SIGMOID",
            Self::Unary { op: Unary::Softplus, .. } => "SOFTPLUS",
            Self::Unary { op: Unary::Exp, .. } => "EXP",
            Self::Unary { op: Unary::Neg, .. } => "NEG",
            Self::Unary { op: Unary::Abs, .. } => "ABS",
            Self::Unary { op: Unary::Sgn, .. } => "SGN",
            Self::Unary { op: Unary::Step, .. } => "STEP",
            Self::Unary { op: Unary::Tanh, .. } => "TANH",
            Self::Unary { op: Unary::Elu, .. } => "ELU",
            Self::Unary { op: Unary::Relu, .. } => "RELU",
            Self::Unary { op: Unary::Gelu, .. } => "GELU",
            Self::Unary { op: Unary::GeluQuick, .. } => "GELU_QUICK",
            Self::Unary { op: Unary::GeluErf, .. } => "GELU_ERF",
            Self::Unary { op: Unary::HardSwish, .. } => "HARDSWISH",
            Self::Unary { op: Unary::HardSigmoid, .. } => "HARDSIGMOID",
            Self::Unary { op: Unary::Expm1, .. } => "EXPM1",
            Self::Unary { op: Unary::Floor, .. } => "FLOOR",
            Self::Unary { op: Unary::Ceil, .. } => "CEIL",
            Self::Unary { op: Unary::Round, .. } => "ROUND",
            Self::Unary { op: Unary::Trunc, .. } => "TRUNC",
            Self::Unary { op: Unary::Sqrt, .. } => "SQRT",
            Self::Unary { op: Unary::Log, .. } => "LOG",
            Self::Unary { op: Unary::Sin, .. } => "SIN",
            Self::Unary { op: Unary::Cos, .. } => "COS",
            Self::Unary { op: Unary::LeakyRelu, .. } => "LEAKY_RELU",
            Self::Unary { op: Unary::Clamp, .. } => "CLAMP",
            Self::Glu { op: Glu::Swiglu, .. } => "SWIGLU",
            Self::Glu { op: Glu::Geglu, .. } => "GEGLU",
            Self::Glu { op: Glu::SwigluOai { .. }, .. } => "SWIGLU_OAI",
            Self::AddId { .. } => "ADD_ID",
            Self::RmsNorm { weight: false, .. } => "RMS_NORM",
            Self::RmsNorm { weight: true, .. } => "RMS_NORM_MUL",
            Self::L2Norm { .. } => "L2_NORM",
            Self::Rope { .. } => "ROPE",
            Self::SsmConv { .. } => "SSM_CONV",
            Self::GatedDeltaNet { .. } => "GATED_DELTA_NET",
            Self::FlashAttn { .. } => "FLASH_ATTN_EXT",
            Self::SoftMax { .. } => "SOFT_MAX",
            Self::Norm { .. } => "NORM",
            Self::SumRows { .. } => "SUM_ROWS",
            Self::Argsort { .. } => "ARGSORT",
            Self::Argmax { .. } => "ARGMAX",
            Self::Cpy { .. } => "CPY",
            Self::Cont { .. } => "CONT",
            Self::Concat { .. } => "CONCAT",
            Self::Repeat { .. } => "REPEAT",
        }
    }

    /// The parameters as they stand in the case's name.
    pub fn params(&self) -> String {
        match self {
            Self::MulMat { a, b, m, n, k, batch, repeat, perm: p, k_alloc } => format!(
                "a={},b={},m={m},n={n},k={k},bs={},nr={},perm={},k_alloc={k_alloc}",
                a.name(), b.name(), list(batch), list(repeat), perm(p)
            ),
            Self::MulMatId { a, n_mats, n_used, shared, m, n, k } => format!(
                "a={},n_mats={n_mats},n_used={n_used},b={},m={m},n={n},k={k}",
                a.name(), u8::from(*shared)
            ),
            Self::Quantize { ne, layout, amplitude } => {
                format!("ne={},layout={layout:?},amplitude={amplitude}", list(ne))
            }
            Self::GetRows { ty, n, m, r, b1, b2, view } => {
                format!("type={},n={n},m={m},r={r},b1={b1},b2={b2},view={}", ty.name(), u8::from(*view))
            }
            Self::SetRows { ty, idx, ne, repeat, r, view } => format!(
                "type={},idx={},ne={},nr={},r={r},view={}",
                ty.name(), idx.name(), list(ne), list(repeat), u8::from(*view)
            ),
            Self::Binary { ty, ne, repeat, perm, .. } => {
                format!("type={},ne={},nr={},perm={}", ty.name(), list(ne), list(repeat), u8::from(*perm))
            }
            Self::Scale { ne, s, b } => format!("ne={},s={s},b={b}", list(ne)),
            Self::Unary { ty, ne, layout, min, max, .. } => {
                format!("type={},ne={},layout={layout:?},range={min}..{max}", ty.name(), list(ne))
            }
            Self::Glu { op, ty, ne, form, layout } => {
                let mut out = format!("type={},ne={},form={form:?},layout={layout:?}", ty.name(), list(ne));
                if let Glu::SwigluOai { alpha, limit } = op {
                    out += &format!(",alpha={alpha},limit={limit}");
                }
                out
            }
            Self::AddId { n, used, t, experts } => format!("n={n},used={used},t={t},experts={experts}"),
            Self::SumRows { ne, layout } => format!("ne={},layout={layout:?}", list(ne)),
            Self::Argsort { ne, descending } => format!("ne={},descending={}", list(ne), u8::from(*descending)),
            Self::RmsNorm { ne, eps, layout, amplitude, .. }
            | Self::L2Norm { ne, eps, layout, amplitude }
            | Self::Norm { ne, eps, layout, amplitude } => {
                format!("ne={},eps={eps},layout={layout:?},amplitude={amplitude}", list(ne))
            }
            Self::Rope { ty, ne, rope: r, factors, layout, max_pos } => format!(
                "type={},ne={},mode={:?},n_dims={},sections={:?},base={},fs={},ef={},af={},beta={}:{},ctx={},ff={},layout={layout:?},pos={max_pos}",
                ty.name(), list(ne), r.mode, r.n_dims, r.sections, r.freq_base, r.freq_scale, r.ext_factor,
                r.attn_factor, r.beta_fast, r.beta_slow, r.n_ctx_orig, u8::from(*factors)
            )
            .replace(", ", ","),
            Self::SsmConv { taps, channels, t, seqs } => format!("taps={taps},channels={channels},t={t},b={seqs}"),
            Self::GatedDeltaNet { heads, s, t, b, vrep, perm, kda, snapshots, gate } => {
                let mut out = format!(
                    "heads={heads},s={s},t={t},b={b},vrep={vrep},perm={},kda={}",
                    u8::from(*perm), u8::from(*kda)
                );
                if *snapshots != 1 {
                    out += &format!(",K={snapshots}");
                }
                if *gate != Gate::Uniform {
                    out += &format!(",gate={gate:?}");
                }
                out
            }
            Self::FlashAttn { dk, dv, heads, group, seqs, kv, nq, mask, sinks, params, kv_ty, perm } => format!(
                "dk={dk},dv={dv},heads={heads},group={group},b={seqs},kv={kv},nq={nq},mask={mask:?},sinks={},scale={},bias={},softcap={},type={},perm={}",
                u8::from(*sinks), params.scale, params.max_bias, params.softcap, kv_ty.name(), u8::from(*perm)
            ),
            Self::SoftMax { ne, mask, repeat, sinks, scale, max_bias } => format!(
                "ne={},mask={},nr={},sinks={},scale={scale},bias={max_bias}",
                list(ne), mask.map_or("none", GgmlType::name), list(repeat), u8::from(*sinks)
            ),
            Self::Argmax { cols, rows, values } => format!("cols={cols},rows={rows},values={values:?}"),
            Self::Cpy { src, dst, ne, dst_ne, src_perm, dst_perm } => format!(
                "src={},dst={},ne={},dst_ne={},perm={},dst_perm={}",
                src.name(), dst.name(), list(ne), dst_ne.map_or("same".to_owned(), |d| list(&d)),
                perm(src_perm), perm(dst_perm)
            ),
            Self::Cont { ty, ne, slice } => format!("type={},ne={},slice={}", ty.name(), list(ne), u8::from(*slice)),
            Self::Concat { ty, ne, other, dim, views } => {
                format!("type={},ne={},other={other},dim={dim},views={views}", ty.name(), list(ne))
            }
            Self::Repeat { ty, ne, repeat } => format!("type={},ne={},nr={}", ty.name(), list(ne), list(repeat)),
        }
    }

    /// Roughly how many multiplies or element moves this takes: for choosing a subset or an order.
    pub fn work(&self) -> u64 {
        let p = |v: &[i64]| v.iter().product::<i64>();
        (match self {
            Self::MulMat { m, n, k, batch, repeat, .. } => m * n * k * p(batch) * p(repeat),
            Self::MulMatId { n_used, m, n, k, .. } => n_used * m * n * k,
            Self::GetRows { n, r, b1, b2, .. } => n * r * b1 * b2,
            Self::SetRows { ne, repeat, .. } => p(ne) * p(repeat),
            Self::Binary { ne, repeat, .. } | Self::Repeat { ne, repeat, .. } => p(ne) * p(repeat),
            Self::SoftMax { ne, repeat, .. } => 8 * p(ne) * p(repeat),
            Self::Unary { ne, .. } | Self::Glu { ne, .. } => 8 * p(ne),
            Self::AddId { n, used, t, .. } => n * used * t,
            Self::RmsNorm { ne, .. } | Self::L2Norm { ne, .. } | Self::Norm { ne, .. } => 2 * p(ne),
            Self::SumRows { ne, .. } => p(ne),
            Self::Argsort { ne, .. } => 20 * p(ne),
            Self::Scale { ne, .. } | Self::Quantize { ne, .. } => 2 * p(ne),
            Self::Rope { ne, .. } => 8 * p(ne),
            Self::SsmConv { taps, channels, t, seqs } => taps * channels * t * seqs,
            Self::GatedDeltaNet { heads, s, t, b, vrep, .. } => 4 * heads * vrep * s * s * t * b,
            Self::FlashAttn { dk, dv, heads, group, seqs, kv, nq, .. } => {
                (dk + dv) * heads * group * seqs * kv * nq
            }
            Self::Argmax { cols, rows, .. } => cols * rows,
            Self::Cpy { ne, .. } | Self::Cont { ne, .. } => p(ne),
            Self::Concat { ne, other, dim, .. } => p(ne) + p(ne) / ne[*dim] * other,
        }) as u64
    }
}

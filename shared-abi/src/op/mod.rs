//! The op table: per op its operands, their types and layouts, its parameters and its shape rule.
//!
//! Names and semantics are ggml's. Where hexflash fuses or keeps state in its own layout, the entry says so.

pub mod params;
mod shapes;

use crate::DType::{self, *};
pub use shapes::{MAX_HEAD, MAX_STATE, MAX_TAPS, Operands};

wire_enum! {
    /// Opcode.
    pub enum Op: u16 {
        /// x / sqrt(mean(x^2) + eps) per row, times an optional weight row.
        RmsNorm = 1 "RMS_NORM",
        /// x / max(sqrt(sum(x^2)), eps) per row.
        L2Norm = 2 "L2_NORM",
        /// Weights (tiled) times activations.
        MulMat = 3 "MUL_MAT",
        /// F32 rows to int8 activations, once for all matrices that read them.
        Quantize = 4 "QUANTIZE",
        /// Rows by index, to F32.
        GetRows = 5 "GET_ROWS",
        /// Rows written by index.
        SetRows = 6 "SET_ROWS",
        /// a + b, b repeated over a.
        Add = 7 "ADD",
        /// a * b, b repeated over a.
        Mul = 8 "MUL",
        /// s * x + b.
        Scale = 9 "SCALE",
        /// x * sigmoid(x).
        Silu = 10 "SILU",
        /// 1 / (1 + exp(-x)).
        Sigmoid = 11 "SIGMOID",
        /// ln(1 + exp(x)); x above 20.
        Softplus = 12 "SOFTPLUS",
        /// exp(x).
        Exp = 13 "EXP",
        /// silu(a) * b, of two tensors or of the two halves of one.
        Swiglu = 14 "SWIGLU",
        /// Rotary position embedding.
        Rope = 15 "ROPE",
        /// Causal convolution per channel over a ring of past rows; with a tape for tokens that may be taken back.
        SsmConv = 16 "SSM_CONV",
        /// Gated delta rule, recurrent; with a factor tape for tokens that may be taken back.
        GatedDeltaNet = 17 "GATED_DELTA_NET",
        /// Appends K and V to their caches, then attends.
        FlashAttnExt = 18 "FLASH_ATTN_EXT",
        /// Index of the first maximum of each row, and how far it is above the second-best value.
        Argmax = 19 "ARGMAX",
        /// Copy with conversion; also CONT.
        Cpy = 20 "CPY",
        /// Two tensors joined along an axis.
        Concat = 21 "CONCAT",
        /// Keeps the drafted tokens that the target agrees with, and advances the step registers.
        Accept = 22 "ACCEPT",
        /// Sets `n_tokens` to another register's value plus a constant.
        SetTokens = 23 "SET_TOKENS",
        /// Appends K and V rows to their caches.
        KvAppend = 24 "KV_APPEND",
    }
}

/// How an operand may lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Any strides.
    Strided,
    /// Elements of a row adjacent; rows anywhere.
    Rows,
    /// No gaps at all.
    Contiguous,
    /// A tiled type, strips adjacent; matrices anywhere.
    Tiled,
    /// Tiled or [`Layout::Rows`], as the type has it.
    TiledOrRows,
}

/// One operand of an op.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Name in messages and traces.
    pub name: &'static str,
    /// Types it may have.
    pub types: &'static [DType],
    /// How it may lie in memory.
    pub layout: Layout,
    /// Whether the op can do without.
    pub optional: bool,
    /// Whether an op writes it (outputs, and states that are inputs as well).
    pub written: bool,
}

/// An entry of the op table.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// Inputs, in operand order.
    pub src: &'static [Slot],
    /// Outputs, in operand order.
    pub dst: &'static [Slot],
    /// Bytes of the parameter struct.
    pub params: usize,
    /// Whether output 0 may be exactly input 0 or 1: same bytes, same strides.
    pub in_place: bool,
    /// Shape rule and parameter ranges.
    pub check: fn(&Operands<'_>) -> Result<(), crate::Fault>,
}

const F: &[DType] = &[F32];
const INDEX: &[DType] = &[I32];
const PLAIN: &[DType] = &[F32, F16, I32];
const ROWS: &[DType] = &[F32, F16];
const WEIGHTS: &[DType] = &[F32x32, F16x32, Q8_0x32, Q4_0x32, Q6Kx32];
const TABLES: &[DType] = &[F32, F16, I32, F32x32, F16x32, Q8_0x32, Q4_0x32, Q6Kx32];
const VALUES: &[DType] = &[F32, I32];

const fn slot(name: &'static str, types: &'static [DType], layout: Layout) -> Slot {
    Slot { name, types, layout, optional: false, written: false }
}

const fn optional(slot: Slot) -> Slot {
    Slot { optional: true, ..slot }
}

/// Read and written.
const fn state(slot: Slot) -> Slot {
    Slot { written: true, ..slot }
}

const fn out(name: &'static str, types: &'static [DType], layout: Layout) -> Slot {
    Slot { name, types, layout, optional: false, written: true }
}

const fn params_of<T>() -> usize {
    core::mem::size_of::<T>()
}

const UNARY: OpSpec = OpSpec {
    src: const { &[slot("x", F, Layout::Rows)] },
    dst: const { &[out("y", F, Layout::Rows)] },
    params: 0,
    in_place: true,
    check: shapes::same_shape,
};

const BINARY: OpSpec = OpSpec {
    src: const { &[slot("a", F, Layout::Rows), slot("b", F, Layout::Rows)] },
    dst: const { &[out("y", F, Layout::Rows)] },
    params: 0,
    in_place: true,
    check: shapes::binary,
};

impl Op {
    /// The op's entry in the table. Shapes are written `{ne0, ne1, ne2, ne3}`.
    pub const fn spec(self) -> OpSpec {
        use Layout::{Contiguous, Rows, Strided, Tiled, TiledOrRows};
        match self {
            // x{n,..}, w{n} optional -> y{n,..}
            Self::RmsNorm => OpSpec {
                src: const { &[slot("x", F, Rows), optional(slot("w", F, Contiguous))] },
                dst: const { &[out("y", F, Rows)] },
                params: params_of::<params::Norm>(),
                in_place: true,
                check: shapes::rms_norm,
            },
            // x{n,..} -> y{n,..}
            Self::L2Norm => OpSpec { params: params_of::<params::Norm>(), check: shapes::l2_norm, ..UNARY },
            // w{k,n,r2,r3}, x{k,m,b2,b3} -> y{n,m,b2,b3}; r divides b
            Self::MulMat => OpSpec {
                src: const { &[slot("w", WEIGHTS, Tiled), slot("x", &[F32, Q8Act], Rows)] },
                dst: const { &[out("y", F, Rows)] },
                params: 0,
                in_place: false,
                check: shapes::mul_mat,
            },
            // x{k,m,..} F32 -> y{k,m,..} Q8_ACT
            Self::Quantize => OpSpec {
                src: const { &[slot("x", F, Rows)] },
                dst: const { &[out("y", &[Q8Act], Rows)] },
                params: 0,
                in_place: false,
                check: shapes::same_shape,
            },
            // table{k,n,b2,b3}, ids{m,b2,b3} -> y{k,m,b2,b3}, I32 if the table is
            Self::GetRows => OpSpec {
                src: const { &[slot("table", TABLES, TiledOrRows), slot("ids", INDEX, Strided)] },
                dst: const { &[out("y", VALUES, Rows)] },
                params: 0,
                in_place: false,
                check: shapes::get_rows,
            },
            // x{k,m,b2,b3}, ids{m,c2,c3} -> y{k,n,b2,b3}, rows named by ids replaced; c divides b
            Self::SetRows => OpSpec {
                src: const { &[slot("x", F, Rows), slot("ids", INDEX, Strided)] },
                dst: const { &[out("y", ROWS, Rows)] },
                params: 0,
                in_place: false,
                check: shapes::set_rows,
            },
            Self::Add | Self::Mul => BINARY,
            Self::Scale => OpSpec { params: params_of::<params::Scale>(), check: shapes::scale, ..UNARY },
            Self::Silu | Self::Sigmoid | Self::Softplus | Self::Exp => UNARY,
            // a{n,..}, b{n,..} -> y{n,..}; or a{2n,..} -> y{n,..}
            Self::Swiglu => OpSpec {
                src: const { &[slot("a", F, Rows), optional(slot("b", F, Rows))] },
                params: params_of::<params::Swiglu>(),
                check: shapes::swiglu,
                ..BINARY
            },
            // x{d,h,t,b}, positions{t,sections} optional (else n_past + t), factors{n_dims/2} optional -> y like x
            Self::Rope => OpSpec {
                src: const {
                    &[
                        slot("x", F, Rows),
                        optional(slot("positions", INDEX, Strided)),
                        optional(slot("factors", F, Contiguous)),
                    ]
                },
                dst: const { &[out("y", F, Rows)] },
                params: params_of::<params::Rope>(),
                in_place: true,
                check: shapes::rope,
            },
            // x{c,t,b}, w{c,k}, ring{c,r,b}: row of position p at p mod r -> y{c,t,b}; optional tape_x{c,n,b}: rows that
            // may be taken back, read and (if params.defer) written
            Self::SsmConv => OpSpec {
                src: const { &[slot("x", F, Rows), slot("w", F, Contiguous), state(slot("ring", F, Contiguous))] },
                dst: const { &[out("y", F, Rows), optional(out("tape_x", F, Contiguous))] },
                params: params_of::<params::SsmConv>(),
                in_place: false,
                check: shapes::ssm_conv,
            },
            // q,k{s,hk,t,b'}, v{s,h,t,b}, g{1|s,h,t,b}, beta{1,h,t,b},
            // state{s values, s keys, h, b} (the value index is the fast one) -> y{s,h,t,b}; optional, together:
            // the factor tape tape_k{s,hk,n,b'}, tape_delta{s,h,n,b}, tape_g{1|s,h,n,b}, read and (if params.defer)
            // written
            Self::GatedDeltaNet => OpSpec {
                src: const {
                    &[
                        slot("q", F, Rows),
                        slot("k", F, Rows),
                        slot("v", F, Rows),
                        slot("g", F, Rows),
                        slot("beta", F, Rows),
                        state(slot("state", F, Contiguous)),
                    ]
                },
                dst: const {
                    &[
                        out("y", F, Rows),
                        optional(out("tape_k", F, Contiguous)),
                        optional(out("tape_delta", F, Contiguous)),
                        optional(out("tape_g", F, Contiguous)),
                    ]
                },
                params: params_of::<params::DeltaNet>(),
                in_place: false,
                check: shapes::gated_delta_net,
            },
            // q{d,h,t,b}, k_cache{d,n,hk,b} tiled, v_cache{dv,n,hk,b}, k{d,hk,t,b} and v{dv,hk,t,b} to append
            // (optional), mask{n,t,h',b'} F16 optional, sinks{h} optional -> y{dv,h,t,b}
            Self::FlashAttnExt => OpSpec {
                src: const {
                    &[
                        slot("q", F, Rows),
                        state(slot("k_cache", &[F16x32], Tiled)),
                        state(slot("v_cache", &[F16], Rows)),
                        optional(slot("k", F, Rows)),
                        optional(slot("v", F, Rows)),
                        optional(slot("mask", &[F16], Rows)),
                        optional(slot("sinks", F, Contiguous)),
                    ]
                },
                dst: const { &[out("y", F, Rows)] },
                params: params_of::<params::FlashAttn>(),
                in_place: false,
                check: shapes::flash_attn,
            },
            // x{n,m} -> y{m}, margin{m} optional
            Self::Argmax => OpSpec {
                src: const { &[slot("x", F, Rows)] },
                dst: const { &[out("y", INDEX, Contiguous), optional(out("margin", F, Contiguous))] },
                params: 0,
                in_place: false,
                check: shapes::argmax,
            },
            // x -> y, same shape, any strides
            Self::Cpy => OpSpec {
                src: const { &[slot("x", PLAIN, Strided)] },
                dst: const { &[out("y", PLAIN, Rows)] },
                params: 0,
                in_place: false,
                check: shapes::cpy,
            },
            // a, b -> y, lengths added along params.axis
            Self::Concat => OpSpec {
                src: const { &[slot("a", F, Rows), slot("b", F, Rows)] },
                dst: const { &[out("y", F, Rows)] },
                params: params_of::<params::Concat>(),
                in_place: false,
                check: shapes::concat,
            },
            // best{t}, tokens{t}, stops{s} -> out{4 + t, 2} (see `crate::accept`), anchor{1}
            Self::Accept => OpSpec {
                src: const {
                    &[
                        slot("best", INDEX, Contiguous),
                        slot("tokens", INDEX, Contiguous),
                        slot("stops", INDEX, Contiguous),
                    ]
                },
                dst: const { &[out("out", INDEX, Rows), out("anchor", INDEX, Contiguous)] },
                params: params_of::<params::Accept>(),
                in_place: false,
                check: shapes::accept,
            },
            Self::SetTokens => OpSpec {
                src: const { &[] },
                dst: const { &[] },
                params: params_of::<params::SetTokens>(),
                in_place: false,
                check: shapes::set_tokens,
            },
            // k{d,hk,t,b}, v{dv,hk,t,b} -> rows n_past.. of k_cache{d,n,hk,b} (tiled), v_cache{dv,n,hk,b}
            Self::KvAppend => OpSpec {
                src: const { &[slot("k", F, Rows), slot("v", F, Rows)] },
                dst: const { &[out("k_cache", &[F16x32], Tiled), out("v_cache", &[F16], Rows)] },
                params: 0,
                in_place: false,
                check: shapes::kv_append,
            },
        }
    }
}

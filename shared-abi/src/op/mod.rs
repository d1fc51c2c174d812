//! The op table: what each op takes, gives and checks.
//!
//! An op is described in one file: its operands by name, its parameters, its shape rule, its flags. Shapes
//! are written `{ne0, ne1, ne2, ne3}`, in ggml's order. Names and semantics are ggml's; where hexflash fuses
//! or keeps state in its own layout, the file says so. The catalogue has some ops and parameters that no
//! graph of today records: L2_NORM, EXP, CONCAT, the modes of ROPE besides NEOX, masks and soft caps of
//! FLASH_ATTN_EXT. The backend of ggml records these, and ATTEND, UNARY, DIV, NORM, SOFT_MAX, SUM_ROWS and
//! ARGSORT.

#[macro_use]
mod operand;
#[macro_use]
mod param;
pub mod accept;
pub mod add_id;
pub mod argmax;
pub mod argsort;
pub mod attend;
pub mod binary;
pub mod concat;
pub mod copy_slot;
pub mod cpy;
mod explain;
pub mod flash_attn;
pub mod gated_delta_net;
pub mod get_rows;
pub mod glu;
pub mod mul_mat;
pub mod mul_mat_id;
pub mod norm;
pub mod quantize;
pub mod rope;
mod rule;
pub mod set_rows;
pub mod soft_max;
mod spec;
pub mod ssm_conv;
pub mod sum_rows;
pub mod topk_moe;
pub mod unary;
pub mod weighted_sum;

pub use crate::opcode::Op;
pub use accept::MAX_STOPS;
pub use explain::Explained;
pub use flash_attn::{MAX_HEAD, kv_append};
pub use gated_delta_net::MAX_STATE;
pub use operand::{Dst, FIRST_DST, Layout, Operand, OperandSpec, Src};
pub use param::Field;
pub use rule::Operands;
pub use spec::OpSpec;
pub use ssm_conv::MAX_TAPS;
pub use topk_moe::MAX_EXPERTS;

use crate::dtype::DTypes;
use crate::wire::Fingerprint;

/// The parameter structs of all ops, for those who record them.
pub mod params {
    pub use super::accept::{Accept, NextDraft, SetTokens};
    pub use super::argsort::Argsort;
    pub use super::attend::Attend;
    pub use super::concat::Concat;
    pub use super::copy_slot::CopySlot;
    pub use super::flash_attn::{FlashAttn, Visibility};
    pub use super::gated_delta_net::DeltaNet;
    pub use super::glu::{Glu, GluKind};
    pub use super::norm::Norm;
    pub use super::rope::{Rope, RopeMode};
    pub use super::soft_max::SoftMax;
    pub use super::ssm_conv::SsmConv;
    pub use super::topk_moe::{Gating, TopkMoe};
    pub use super::unary::{Scale, Unary, UnaryKind};
}

impl Op {
    /// The op's entry in the table.
    pub const fn spec(self) -> OpSpec {
        match self {
            Self::RmsNorm => norm::RMS,
            Self::L2Norm => norm::L2,
            Self::MulMat => mul_mat::SPEC,
            Self::Quantize => quantize::SPEC,
            Self::GetRows => get_rows::SPEC,
            Self::SetRows => set_rows::SPEC,
            Self::Add | Self::Mul | Self::Div => binary::SPEC,
            Self::Scale => unary::SCALE,
            Self::Silu | Self::Sigmoid | Self::Softplus | Self::Exp => unary::SPEC,
            Self::Glu => glu::SPEC,
            Self::Rope => rope::SPEC,
            Self::SsmConv => ssm_conv::SPEC,
            Self::GatedDeltaNet => gated_delta_net::SPEC,
            Self::FlashAttnExt => flash_attn::SPEC,
            Self::Argmax => argmax::SPEC,
            Self::Cpy => cpy::SPEC,
            Self::Concat => concat::SPEC,
            Self::Accept => accept::ACCEPT,
            Self::SetTokens => accept::SET_TOKENS,
            Self::KvAppend => kv_append::SPEC,
            Self::CopySlot => copy_slot::SPEC,
            Self::MulMatId => mul_mat_id::SPEC,
            Self::TopkMoe => topk_moe::SPEC,
            Self::WeightedSum => weighted_sum::SPEC,
            Self::AddId => add_id::SPEC,
            Self::NextDraft => accept::NEXT_DRAFT,
            Self::Attend => attend::SPEC,
            Self::Unary => unary::NAMED,
            Self::Norm => norm::LAYER,
            Self::SoftMax => soft_max::SPEC,
            Self::SumRows => sum_rows::SPEC,
            Self::Argsort => argsort::SPEC,
        }
    }
}

/// Operands and parameters of every op, by name and place.
pub(crate) const FINGERPRINT: Fingerprint = {
    let mut all = Fingerprint::new("ops");
    let mut i = 0;
    while i < Op::ALL.len() {
        let spec = Op::ALL[i].spec();
        all = all.number(Op::ALL[i].wire() as u64);
        let lists = [spec.src, spec.dst];
        let mut list = 0;
        while list < lists.len() {
            let mut at = 0;
            while at < lists[list].len() {
                all = all.value(lists[list][at].name, at as u64);
                at += 1;
            }
            list += 1;
        }
        let mut at = 0;
        while at < spec.params.len() {
            all = all.field(spec.params[at].name, spec.params[at].word, spec.params[at].words);
            at += 1;
        }
        i += 1;
    }
    all
};

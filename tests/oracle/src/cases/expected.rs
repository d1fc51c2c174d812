//! The result of a case, by ggml.

use super::Inputs;
use super::kind::{CaseKind, GluForm};
use crate::ops::{Cpu, DeltaNet, dequantize, quantize};
use crate::tensor::{Error, GgmlType, Tensor};

pub(super) fn expected(kind: &CaseKind, x: &Inputs, cpu: Cpu) -> Result<Tensor, Error> {
    match *kind {
        CaseKind::MulMat { .. } => cpu.mul_mat(x.get("a"), x.get("b")),
        CaseKind::MulMatId { .. } => cpu.mul_mat_id(x.get("as"), x.get("b"), x.get("ids")),
        CaseKind::Quantize { .. } => {
            // ggml has no such op, but its blocks: those of Q8_0.
            let a = x.get("a");
            let blocks = quantize(GgmlType::Q8_0, &a.to_f32(), a.ne[0] as usize);
            Ok(Tensor::f32(a.ne, &dequantize(GgmlType::Q8_0, &blocks)))
        }
        CaseKind::GetRows { .. } => cpu.get_rows(x.get("a"), x.get("rows")),
        CaseKind::SetRows { .. } => cpu.set_rows(x.get("dst"), x.get("src"), x.get("rows")),
        CaseKind::Binary { op, .. } => cpu.binary(op, x.get("a"), x.get("b")),
        CaseKind::Scale { s, b, .. } => cpu.scale(x.get("a"), s, b),
        CaseKind::Unary { op, .. } => cpu.unary(op, x.get("a")),
        CaseKind::Glu { op, form: GluForm::Split, .. } => cpu.glu_split(op, x.get("a"), x.get("b")),
        CaseKind::Glu { op, form, .. } => cpu.glu(op, x.get("a"), form == GluForm::Swapped),
        CaseKind::AddId { .. } => cpu.add_id(x.get("a"), x.get("b"), x.get("ids")),
        CaseKind::RmsNorm { eps, .. } => match x.find("weight") {
            Some(w) => cpu.rms_norm_mul(x.get("a"), w, eps),
            None => cpu.rms_norm(x.get("a"), eps),
        },
        CaseKind::L2Norm { eps, .. } => cpu.l2_norm(x.get("a"), eps),
        CaseKind::Rope { rope, .. } => cpu.rope(x.get("a"), x.get("pos"), x.find("factors"), &rope),
        CaseKind::SsmConv { .. } => cpu.ssm_conv(x.get("x"), x.get("w")),
        CaseKind::GatedDeltaNet { snapshots, .. } => {
            let net = DeltaNet {
                q: x.get("q"),
                k: x.get("k"),
                v: x.get("v"),
                g: x.get("g"),
                beta: x.get("beta"),
                state: x.get("state"),
            };
            cpu.gated_delta_net(&net, snapshots)
        }
        CaseKind::FlashAttn { params, .. } => {
            cpu.flash_attn_ext([x.get("q"), x.get("k"), x.get("v")], x.find("mask"), x.find("sinks"), &params)
        }
        CaseKind::SoftMax { scale, max_bias, .. } => {
            cpu.soft_max_ext(x.get("a"), x.find("mask"), x.find("sinks"), scale, max_bias)
        }
        CaseKind::Norm { eps, .. } => cpu.norm(x.get("a"), eps),
        CaseKind::SumRows { .. } => cpu.sum_rows(x.get("a")),
        CaseKind::Argsort { descending, .. } => cpu.argsort(x.get("a"), descending),
        CaseKind::Argmax { .. } => cpu.argmax(x.get("a")).map(|last| first_of_ties(x.get("a"), &last)),
        CaseKind::Cpy { .. } => cpu.cpy(x.get("src"), x.get("dst")),
        CaseKind::Cont { .. } => cpu.cont(x.get("a")),
        CaseKind::Concat { dim, .. } => cpu.concat(x.get("a"), x.get("b"), dim),
        CaseKind::Repeat { ne, repeat, .. } => {
            cpu.repeat(x.get("a"), std::array::from_fn(|i| ne[i] * repeat[i]))
        }
    }
}

/// hexflash, like every greedy sampler, takes the first of equal maxima; ggml's ARGMAX the last. The value
/// there is ggml's, the place is the first one with that value.
fn first_of_ties(a: &Tensor, last: &Tensor) -> Tensor {
    let values = a.to_f32();
    let rows = values.chunks_exact(a.ne[0] as usize);
    let first: Vec<i32> = rows
        .zip(last.to_i32())
        .map(|(row, i)| row.iter().position(|v| *v == row[i as usize]).map_or(i, |p| p as i32))
        .collect();
    Tensor::i32(last.ne, &first)
}

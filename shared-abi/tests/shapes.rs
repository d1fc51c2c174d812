//! The shape and parameter rule of each op, broken in every way that its definition in the op table excludes.

mod common;

use common::{ATTEND, Case, FLASH, N_CTX, OUT, ROPE, TOPK, valid};
use hexflash_abi::op::params::{Glu, GluKind};
use hexflash_abi::op::{MAX_EXPERTS, Op, params};
use hexflash_abi::{DType, ErrorCode, TensorIndex};

/// Gives one operand another shape and asserts that `detail` is blamed for it.
#[track_caller]
fn bad_shape(op: Op, operand: usize, ne: [u32; 4], detail: usize) {
    let mut case = valid(op);
    case.operand(operand).token_axis = 0xff;
    case.reshape(operand, ne);
    case.refused(ErrorCode::BadShape, detail);
}

/// A valid case without cuts, so that every length can be changed.
fn uncut(op: Op) -> Case {
    let mut case = valid(op);
    case.tensors.iter_mut().for_each(|t| t.token_axis = 0xff);
    assert_eq!(case.check(), Ok(()));
    case
}

#[test]
fn same_shape() {
    let functions = [Op::Scale, Op::Silu, Op::Sigmoid, Op::Softplus, Op::Exp, Op::Unary];
    for op in functions.into_iter().chain([Op::L2Norm, Op::Norm, Op::Cpy]) {
        for ne in [[31, 4, 1, 1], [32, 3, 1, 1], [32, 4, 2, 1], [32, 4, 1, 2]] {
            bad_shape(op, 0, ne, 0);
            bad_shape(op, OUT, ne, 0);
        }
    }
    bad_shape(Op::Quantize, OUT, [255, 4, 1, 1], 0);
    bad_shape(Op::RmsNorm, OUT, [39, 4, 1, 1], 0);
}

#[test]
fn rms_norm() {
    for w in [[39, 1, 1, 1], [40, 2, 1, 1], [40, 1, 2, 1], [40, 1, 1, 2]] {
        bad_shape(Op::RmsNorm, 1, w, 1);
    }
    for op in [Op::RmsNorm, Op::L2Norm, Op::Norm] {
        for eps in [-1e-6, f32::NAN, f32::INFINITY] {
            let mut case = valid(op);
            case.set_params(&params::Norm { eps });
            case.refused(ErrorCode::BadParam, 0);
        }
    }
}

#[test]
fn unary() {
    use params::{Unary, UnaryKind};
    let refused = |params: Unary, word| {
        let mut case = valid(Op::Unary);
        case.set_params(&params);
        case.refused(ErrorCode::BadParam, word);
    };
    let of = Unary::of;
    refused(Unary { kind: 0, ..of(UnaryKind::Abs) }, 0);
    refused(Unary { kind: 1 + UnaryKind::ALL.len() as u32, ..of(UnaryKind::Abs) }, 0);
    for &kind in UnaryKind::ALL {
        let (leaky, clamp) = (kind == UnaryKind::LeakyRelu, kind == UnaryKind::Clamp);
        let a = if leaky || clamp { f32::NAN } else { 1.0 };
        refused(Unary { a, ..of(kind) }, 1);
        let b = if clamp { -1.0 } else { 1.0 };
        refused(Unary { b, ..of(kind) }, 2);
    }
    refused(Unary { b: f32::NAN, ..of(UnaryKind::Clamp) }, 2);
    refused(Unary { a: f32::INFINITY, ..of(UnaryKind::LeakyRelu) }, 1);
}

#[test]
fn soft_max() {
    // x{40,4,2}, mask{40,4}, sinks{2}
    for ne in [[39, 4, 2, 1], [40, 3, 2, 1], [40, 4, 3, 1], [40, 4, 2, 2]] {
        bad_shape(Op::SoftMax, OUT, ne, 0);
    }
    for mask in [[39, 4, 1, 1], [41, 4, 1, 1], [40, 3, 1, 1], [40, 4, 3, 1], [40, 4, 1, 2]] {
        bad_shape(Op::SoftMax, 1, mask, 1);
    }
    for sinks in [[1, 1, 1, 1], [3, 1, 1, 1], [2, 2, 1, 1]] {
        bad_shape(Op::SoftMax, 2, sinks, 2);
    }
    for (scale, max_bias, word) in
        [(f32::NAN, 0.0, 0), (f32::INFINITY, 0.0, 0), (1.0, -1.0, 1), (1.0, f32::NAN, 1)]
    {
        let mut case = valid(Op::SoftMax);
        case.set_params(&params::SoftMax { scale, max_bias });
        case.refused(ErrorCode::BadParam, word);
    }
}

#[test]
fn sum_rows_and_argsort() {
    for ne in [[2, 4, 1, 1], [1, 3, 1, 1], [1, 4, 2, 1], [1, 4, 1, 2]] {
        bad_shape(Op::SumRows, OUT, ne, OUT);
    }
    for ne in [[33, 4, 1, 1], [8, 3, 1, 1], [8, 4, 2, 1], [8, 4, 1, 2]] {
        bad_shape(Op::Argsort, OUT, ne, OUT);
    }
    let mut all = uncut(Op::Argsort);
    all.reshape(OUT, [32, 4, 1, 1]);
    assert_eq!(all.check(), Ok(()));
    let mut case = valid(Op::Argsort);
    case.set_params(&params::Argsort { descending: 2 });
    case.refused(ErrorCode::BadParam, 0);
}

#[test]
fn mul_mat() {
    // w{256,64,2,1}, x{256,4,4,1} -> y{64,4,4,1}
    bad_shape(Op::MulMat, 0, [255, 64, 2, 1], 1);
    bad_shape(Op::MulMat, 0, [256, 64, 3, 1], 1);
    bad_shape(Op::MulMat, 0, [256, 64, 8, 1], 1);
    bad_shape(Op::MulMat, 0, [256, 64, 2, 2], 1);
    bad_shape(Op::MulMat, 0, [256, 63, 2, 1], OUT);
    for y in [[65, 4, 4, 1], [64, 5, 4, 1], [64, 4, 2, 1], [64, 4, 4, 2]] {
        bad_shape(Op::MulMat, OUT, y, OUT);
    }
}

#[test]
fn products_take_the_activations_that_go_with_their_weights() {
    for &weights in DType::ALL.iter().filter(|t| t.is_weight()) {
        for activations in [DType::F32, DType::Q8Act] {
            for op in [Op::MulMat, Op::MulMatId] {
                let mut case = valid(op);
                case.retype(0, weights);
                case.retype(1, activations);
                // A matrix unit multiplies F32 with any: whether there is a kernel is known when programs are
                // planned.
                let by_unit = activations == DType::F32;
                if by_unit || weights.wants_q8_activations() == (activations == DType::Q8Act) {
                    assert_eq!(case.check(), Ok(()), "{op}: {weights} with {activations}");
                } else {
                    case.refused(ErrorCode::BadType, 1);
                }
            }
        }
    }
}

#[test]
fn mul_mat_id() {
    // w{256,64,5,1}, x{256,1,4,1}, ids{2,4,1,1} -> y{64,2,4,1}
    let op = Op::MulMatId;
    bad_shape(op, 0, [255, 64, 5, 1], 1);
    bad_shape(op, 0, [256, 63, 5, 1], OUT);
    bad_shape(op, 0, [256, 64, 5, 2], 0);
    for x in [[255, 1, 4, 1], [256, 3, 4, 1], [256, 5, 4, 1], [256, 1, 1, 1], [256, 1, 4, 2]] {
        bad_shape(op, 1, x, 1);
    }
    for ids in [[2, 4, 2, 1], [2, 4, 1, 2]] {
        bad_shape(op, 2, ids, 2);
    }
    for y in [[65, 2, 4, 1], [64, 1, 4, 1], [64, 2, 5, 1], [64, 2, 4, 2]] {
        bad_shape(op, OUT, y, OUT);
    }
    // A row of x for each expert of a token.
    let mut case = uncut(op);
    case.reshape(1, [256, 2, 4, 1]);
    assert_eq!(case.check(), Ok(()));

    // As many as there are, and one more.
    let used = |n_expert: u32, n_used: u32| {
        let mut case = uncut(op);
        case.reshape(0, [256, 64, n_expert, 1]);
        case.reshape(2, [n_used, 4, 1, 1]);
        case.reshape(OUT, [64, n_used, 4, 1]);
        case
    };
    for n in [1, 5, MAX_EXPERTS] {
        assert_eq!(used(n, n).check(), Ok(()));
        used(n, n + 1).refused(ErrorCode::BadShape, 2);
    }
    used(MAX_EXPERTS + 1, 1).refused(ErrorCode::BadShape, 0);
    // A step of fewer tokens would have fewer experts to each.
    let mut case = used(5, 4);
    case.operand(2).token_axis = 0;
    case.refused(ErrorCode::BadShape, 2);
}

#[test]
fn topk_moe() {
    // logits{40,4,1,1}, bias{40,1,1,1} -> ids{3,4,1,1}, weights{3,4,1,1}
    let op = Op::TopkMoe;
    for logits in [[40, 4, 2, 1], [40, 4, 1, 2]] {
        bad_shape(op, 0, logits, 0);
    }
    for bias in [[39, 1, 1, 1], [40, 2, 1, 1], [40, 1, 2, 1], [40, 1, 1, 2]] {
        bad_shape(op, 1, bias, 1);
    }
    for ids in [[3, 5, 1, 1], [3, 4, 2, 1], [3, 4, 1, 2]] {
        bad_shape(op, OUT, ids, OUT);
    }
    for weights in [[2, 4, 1, 1], [3, 5, 1, 1], [3, 4, 2, 1], [3, 4, 1, 2]] {
        bad_shape(op, OUT + 1, weights, OUT + 1);
    }
    let used = |n_expert: u32, n_used: u32| {
        let mut case = uncut(op);
        case.reshape(0, [n_expert, 4, 1, 1]);
        case.reshape(1, [n_expert, 1, 1, 1]);
        case.reshape(OUT, [n_used, 4, 1, 1]);
        case.reshape(OUT + 1, [n_used, 4, 1, 1]);
        case
    };
    for n in [1, 40, MAX_EXPERTS] {
        assert_eq!(used(n, n).check(), Ok(()));
        used(n, n + 1).refused(ErrorCode::BadShape, OUT);
    }
    used(MAX_EXPERTS + 1, 1).refused(ErrorCode::BadShape, 0);
    for (word, params) in [
        (0, params::TopkMoe { gating: 0, ..TOPK }),
        (0, params::TopkMoe { gating: 4, ..TOPK }),
        (1, params::TopkMoe { normalize: 2, ..TOPK }),
        (2, params::TopkMoe { scale: f32::NAN, ..TOPK }),
        (2, params::TopkMoe { scale: f32::INFINITY, ..TOPK }),
    ] {
        let mut case = valid(op);
        case.set_params(&params);
        case.refused(ErrorCode::BadParam, word);
    }
}

#[test]
fn weighted_sum() {
    // x{32,3,4,1}, weights{3,4,1,1} -> y{32,4,1,1}
    let op = Op::WeightedSum;
    bad_shape(op, 0, [32, 3, 4, 2], 0);
    for weights in [[2, 4, 1, 1], [3, 5, 1, 1], [3, 4, 2, 1], [3, 4, 1, 2]] {
        bad_shape(op, 1, weights, 1);
    }
    for y in [[31, 4, 1, 1], [32, 5, 1, 1], [32, 4, 2, 1], [32, 4, 1, 2]] {
        bad_shape(op, OUT, y, OUT);
    }
}

#[test]
fn add_id() {
    // a{32,3,4,1}, b{32,5,1,1}, ids{3,4,1,1} -> y{32,3,4,1}
    let op = Op::AddId;
    bad_shape(op, 0, [32, 2, 4, 1], 0);
    for b in [[31, 5, 1, 1], [1, 5, 1, 1], [32, 5, 2, 1], [32, 5, 1, 2]] {
        bad_shape(op, 1, b, 1);
    }
    for ids in [[2, 4, 1, 1], [3, 5, 1, 1], [3, 4, 2, 1], [3, 4, 1, 2]] {
        bad_shape(op, 2, ids, 2);
    }
    let mut case = uncut(op);
    for n in [0, OUT] {
        case.reshape(n, [32, 3, 4, 2]);
    }
    case.refused(ErrorCode::BadShape, 0);
    // As many experts as tokens, but not fewer in a shorter step.
    let mut case = valid(op);
    case.reshape(1, [32, 4, 1, 1]);
    assert_eq!(case.check(), Ok(()));
    case.operand(1).token_axis = 1;
    case.refused(ErrorCode::BadShape, 1);
}

#[test]
fn get_rows() {
    // table{128,96,1,1}, ids{4,1,1,1} -> y{128,4,1,1}
    bad_shape(Op::GetRows, 1, [4, 2, 1, 1], 1);
    bad_shape(Op::GetRows, 1, [4, 1, 2, 1], 1);
    bad_shape(Op::GetRows, 1, [4, 1, 1, 2], 1);
    bad_shape(Op::GetRows, 0, [128, 96, 2, 1], 1);
    for y in [[127, 4, 1, 1], [128, 5, 1, 1], [128, 4, 2, 1], [128, 4, 1, 2]] {
        bad_shape(Op::GetRows, OUT, y, OUT);
    }
}

#[test]
fn set_rows() {
    // x{32,4,2,1}, ids{4,1,1,1} -> y{32,64,2,1}
    for ids in [[3, 1, 1, 1], [4, 3, 1, 1], [4, 4, 1, 1], [4, 1, 2, 1], [4, 1, 1, 2]] {
        bad_shape(Op::SetRows, 1, ids, 1);
    }
    for y in [[31, 64, 2, 1], [32, 64, 1, 1], [32, 64, 2, 2]] {
        bad_shape(Op::SetRows, OUT, y, OUT);
    }
    // More rows than there are to set: with stride 0, work without bound.
    bad_shape(Op::SetRows, OUT, [32, 3, 2, 1], 0);
    let mut case = valid(Op::SetRows);
    for (operand, rows) in [(0, 1), (1, 0)] {
        let t = case.operand(operand);
        t.token_axis = 0xff;
        (t.ne[rows], t.nb[rows]) = (i32::MAX as u32, 0);
    }
    case.refused(ErrorCode::BadShape, 0);
}

#[test]
fn binary() {
    for op in [Op::Add, Op::Mul] {
        for b in [[15, 1, 1, 1], [64, 1, 1, 1], [32, 3, 1, 1], [32, 4, 2, 1], [32, 4, 1, 2]] {
            bad_shape(op, 1, b, 1);
        }
        bad_shape(op, OUT, [32, 5, 1, 1], 0);
        // Two rows over a cut axis of four: a step of three tokens is no whole number of them.
        bad_shape(op, 1, [32, 2, 1, 1], 1);
        let mut case = uncut(op);
        case.reshape(1, [32, 2, 1, 1]);
        assert_eq!(case.check(), Ok(()));
        // Four cut rows over a whole axis of eight.
        case.reshape(0, [32, 8, 1, 1]);
        case.reshape(OUT, [32, 8, 1, 1]);
        case.reshape(1, [32, 4, 1, 1]);
        assert_eq!(case.check(), Ok(()));
        case.operand(1).token_axis = 1;
        case.refused(ErrorCode::BadShape, 1);
    }
}

#[test]
fn scale() {
    let check = |scale, bias| {
        let mut case = valid(Op::Scale);
        case.set_params(&params::Scale { scale, bias });
        case
    };
    check(f32::NAN, 0.0).refused(ErrorCode::BadParam, 0);
    check(0.0, f32::NAN).refused(ErrorCode::BadParam, 1);
    assert_eq!(check(f32::INFINITY, f32::NEG_INFINITY).check(), Ok(()));
}

#[test]
fn glu() {
    bad_shape(Op::Glu, 0, [31, 4, 1, 1], 0);
    bad_shape(Op::Glu, 1, [64, 4, 1, 1], 1);
    let plain = Glu::of(GluKind::Geglu);
    let with = |params: Glu| {
        let mut case = valid(Op::Glu);
        case.set_params(&params);
        case
    };
    for kind in [0, 4, u32::MAX] {
        with(Glu { kind, ..plain }).refused(ErrorCode::BadParam, 0);
    }
    with(Glu { swapped: 1, ..plain }).refused(ErrorCode::BadParam, 1);
    with(Glu { alpha: 1.0, ..plain }).refused(ErrorCode::BadParam, 2);
    with(Glu { limit: f32::NAN, ..plain }).refused(ErrorCode::BadParam, 3);
    assert_eq!(with(Glu::swiglu_oai(-1.702, 0.0)).check(), Ok(()));
    for alpha in [f32::NAN, f32::INFINITY] {
        with(Glu::swiglu_oai(alpha, 7.0)).refused(ErrorCode::BadParam, 2);
    }
    for limit in [f32::NAN, f32::INFINITY, -1.0] {
        with(Glu::swiglu_oai(1.702, limit)).refused(ErrorCode::BadParam, 3);
    }

    let fused = |width, swapped| {
        let mut case = uncut(Op::Glu);
        case.ops[0].src[1] = TensorIndex::NONE;
        case.reshape(0, [width, 4, 1, 1]);
        case.set_params(&Glu { swapped, ..plain });
        case
    };
    assert_eq!(fused(64, 0).check(), Ok(()));
    assert_eq!(fused(64, 1).check(), Ok(()));
    fused(64, 2).refused(ErrorCode::BadParam, 1);
    fused(63, 0).refused(ErrorCode::BadShape, 0);
    fused(65, 0).refused(ErrorCode::BadShape, 0);
    fused(32, 0).refused(ErrorCode::BadShape, 0);
    // The two halves of an axis that a step cuts are nowhere.
    let mut case = fused(64, 0);
    case.reshape(0, [4, 4, 1, 1]);
    case.reshape(OUT, [2, 4, 1, 1]);
    assert_eq!(case.check(), Ok(()));
    case.operand(0).token_axis = 0;
    case.refused(ErrorCode::BadShape, 0);
}

#[test]
fn rope_shapes() {
    bad_shape(Op::Rope, OUT, [64, 2, 5, 1], 0);
    for positions in [[5, 1, 1, 1], [4, 4, 1, 1], [4, 1, 2, 1], [4, 1, 1, 2]] {
        bad_shape(Op::Rope, 1, positions, 1);
    }
    for factors in [[31, 1, 1, 1], [64, 1, 1, 1], [32, 2, 1, 1], [32, 1, 2, 1], [32, 1, 1, 2]] {
        bad_shape(Op::Rope, 2, factors, 2);
    }
    for mode in [8, 40] {
        let mut case = valid(Op::Rope);
        case.set_params(&params::Rope { mode, sections: [16, 8, 8, 0], ..ROPE });
        case.refused(ErrorCode::BadShape, 1);
        case.reshape(1, [4, 4, 1, 1]);
        assert_eq!(case.check(), Ok(()));
    }
    // A head that a step cuts could be shorter than n_dims.
    let mut case = uncut(Op::Rope);
    case.ops[0].src[2] = TensorIndex::NONE;
    case.set_params(&params::Rope { n_dims: 4, ..ROPE });
    for operand in [0, OUT] {
        case.reshape(operand, [4, 2, 4, 1]);
        case.operand(operand).token_axis = 0;
    }
    case.refused(ErrorCode::BadShape, 0);
}

#[test]
fn rope_params() {
    let refused = |edit: &dyn Fn(&mut params::Rope), detail| {
        let mut case = valid(Op::Rope);
        case.reshape(1, [4, if edit_is_multi(edit) { 4 } else { 1 }, 1, 1]);
        let mut params = ROPE;
        edit(&mut params);
        case.set_params(&params);
        case.refused(ErrorCode::BadParam, detail);
    };
    for n_dims in [0, 1, 63, 66, u32::MAX - 1] {
        refused(&|p| p.n_dims = n_dims, 0);
    }
    for mode in [1, 3, 23, u32::MAX] {
        refused(&|p| p.mode = mode, 1);
    }
    for base in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        refused(&|p| p.freq_base = base, 3);
    }
    for x in [f32::NAN, f32::INFINITY] {
        refused(&|p| p.freq_scale = x, 4);
        refused(&|p| p.ext_factor = x, 5);
        refused(&|p| p.attn_factor = x, 6);
        refused(&|p| p.beta_fast = x, 7);
        refused(&|p| p.beta_slow = x, 8);
    }
    // Sections are a divisor in the multi modes: none, more than the head, or a sum that wraps.
    for sections in [[0; 4], [65, 0, 0, 0], [u32::MAX, 1, 0, 0]] {
        refused(&|p| (p.mode, p.sections) = (8, sections), 9);
        refused(&|p| (p.mode, p.sections) = (40, sections), 9);
    }
    let heated = params::Rope { temperature: 0.1, temperature_span: 1, ..ROPE };
    let mut case = valid(Op::Rope);
    case.set_params(&heated);
    assert_eq!(case.check(), Ok(()));
    for x in [f32::NAN, f32::INFINITY, -0.1] {
        refused(&|p| *p = params::Rope { temperature: x, ..heated }, 13);
    }
    refused(&|p| p.temperature = 0.1, 14);
    // Values that are not turned do not grow, and of several positions none is the one to grow by.
    refused(&|p| *p = params::Rope { n_dims: 62, ..heated }, 13);
    refused(&|p| *p = params::Rope { mode: 8, sections: [16, 8, 8, 0], ..heated }, 13);
}

fn edit_is_multi(edit: &dyn Fn(&mut params::Rope)) -> bool {
    let mut params = ROPE;
    edit(&mut params);
    [8, 40].contains(&params.mode)
}

#[test]
fn ssm_conv() {
    // x{32,4,1,1}, w{32,4}, ring{32,8,1}
    for w in [[31, 4, 1, 1], [32, 33, 1, 1], [32, 4, 2, 1], [32, 4, 1, 2]] {
        bad_shape(Op::SsmConv, 1, w, 1);
    }
    for ring in [[31, 8, 1, 1], [32, 3, 1, 1], [32, 8, 2, 1], [32, 8, 1, 2]] {
        bad_shape(Op::SsmConv, 2, ring, 2);
    }
    bad_shape(Op::SsmConv, OUT, [32, 5, 1, 1], 0);
    let mut case = uncut(Op::SsmConv);
    case.reshape(0, [32, 4, 1, 2]);
    case.reshape(OUT, [32, 4, 1, 2]);
    case.refused(ErrorCode::BadShape, 0);
    // A ring that a step cuts has fewer rows than taps.
    let mut case = valid(Op::SsmConv);
    case.reshape(2, [32, 4, 1, 1]);
    assert_eq!(case.check(), Ok(()));
    case.operand(2).token_axis = 1;
    case.refused(ErrorCode::BadShape, 2);
}

/// `rounds.rs` has the rules of the tape.
fn without_tape() -> Case {
    let mut case = valid(Op::GatedDeltaNet);
    case.ops[0].dst[1..].fill(TensorIndex::NONE);
    case.set_params(&params::DeltaNet { defer: 0, transposed: 0 });
    assert_eq!(case.check(), Ok(()));
    case
}

#[test]
fn gated_delta_net() {
    // q,k{16,1,4,1}, v{16,2,4,1}, g,beta{1,2,4,1}, state{16,16,2,1}
    for q in [[15, 1, 4, 1], [16, 3, 4, 1], [16, 4, 4, 1], [16, 1, 5, 1], [16, 1, 4, 2]] {
        bad_shape(Op::GatedDeltaNet, 0, q, 0);
    }
    bad_shape(Op::GatedDeltaNet, 1, [16, 2, 4, 1], 1);
    for g in [[2, 2, 4, 1], [1, 1, 4, 1], [1, 2, 5, 1], [1, 2, 4, 2]] {
        bad_shape(Op::GatedDeltaNet, 3, g, 3);
    }
    for beta in [[16, 2, 4, 1], [1, 1, 4, 1], [1, 2, 5, 1], [1, 2, 4, 2]] {
        bad_shape(Op::GatedDeltaNet, 4, beta, 4);
    }
    for state in [[15, 16, 2, 1], [16, 15, 2, 1], [16, 16, 1, 1], [16, 16, 2, 2]] {
        bad_shape(Op::GatedDeltaNet, 5, state, 5);
    }
    bad_shape(Op::GatedDeltaNet, OUT, [16, 2, 5, 1], OUT);
    bad_shape(Op::GatedDeltaNet, 2, [129, 2, 4, 1], 2);
    // States that are transposed are squares of 32.
    let mut case = without_tape();
    case.set_params(&params::DeltaNet { defer: 0, transposed: 1 });
    case.refused(ErrorCode::BadParam, 1);
    for (operand, ne) in [(0, 1), (1, 1), (2, 2), (OUT, 2)].map(|(operand, h)| (operand, [32, h, 4, 1])) {
        case.reshape(operand, ne);
    }
    case.reshape(5, [32, 32, 2, 1]);
    assert_eq!(case.check(), Ok(()));
    case.set_params(&params::DeltaNet { defer: 0, transposed: 2 });
    case.refused(ErrorCode::BadParam, 1);
    // One gate per key is fine.
    let mut case = without_tape();
    case.reshape(3, [16, 2, 4, 1]);
    assert_eq!(case.check(), Ok(()));
    // Key heads that a step cuts do not divide the value heads in every step.
    let mut case = without_tape();
    case.tensors.iter_mut().for_each(|t| t.token_axis = 0xff);
    for (operand, ne) in [(0, [16, 4, 4, 1]), (1, [16, 4, 4, 1]), (2, [16, 8, 4, 1]), (OUT, [16, 8, 4, 1])] {
        case.reshape(operand, ne);
    }
    case.reshape(3, [1, 8, 4, 1]);
    case.reshape(4, [1, 8, 4, 1]);
    case.reshape(5, [16, 16, 8, 1]);
    assert_eq!(case.check(), Ok(()));
    (case.operand(0).token_axis, case.operand(1).token_axis) = (1, 1);
    case.refused(ErrorCode::BadShape, 0);
}

#[test]
fn flash_attn_shapes() {
    let op = Op::FlashAttnExt;
    // q{64,2,4,1}, k_cache{64,64,1,1}, v_cache{64,64,1,1}, k,v{64,1,4,1}, mask{64,4,1,1}, sinks{2}
    bad_shape(op, 0, [513, 2, 4, 1], 0);
    for kc in [[63, 64, 1, 1], [64, N_CTX - 1, 1, 1], [64, 64, 3, 1], [64, 64, 4, 1], [64, 64, 1, 2]] {
        bad_shape(op, 1, kc, 1);
    }
    for vc in [[513, 64, 1, 1], [64, 65, 1, 1], [64, 64, 2, 1], [64, 64, 1, 2]] {
        bad_shape(op, 2, vc, 2);
    }
    for y in [[63, 2, 4, 1], [64, 1, 4, 1], [64, 2, 5, 1], [64, 2, 4, 2]] {
        bad_shape(op, OUT, y, OUT);
    }
    for operand in [3, 4] {
        for kv in [[63, 1, 4, 1], [64, 2, 4, 1], [64, 1, 5, 1], [64, 1, 4, 2]] {
            bad_shape(op, operand, kv, operand);
        }
    }
    for mask in [[N_CTX - 1, 4, 1, 1], [64, 3, 1, 1], [64, 4, 3, 1], [64, 4, 4, 1], [64, 4, 1, 2]] {
        bad_shape(op, 5, mask, 5);
    }
    for sinks in [[1, 1, 1, 1], [2, 2, 1, 1], [2, 1, 2, 1], [2, 1, 1, 2]] {
        bad_shape(op, 6, sinks, 6);
    }
}

/// Every pair of number formats; a rotated one is of whole tiles, and its query waits in the output's row.
#[test]
fn flash_attn_takes_caches_of_every_format() {
    let (op, rotated) = (Op::FlashAttnExt, DType::Q4RCache);
    let retyped = |keys: DType, values: DType| {
        let mut case = valid(op);
        case.retype(1, keys);
        case.retype(2, values);
        case
    };
    for keys in [DType::F16x32, DType::Q8_0Cache, rotated] {
        for values in [DType::F16, DType::Q8_0Cache, rotated] {
            assert_eq!(retyped(keys, values).check(), Ok(()), "{keys} {values}");
        }
    }
    let widths = |keys, values, d, dv| {
        let mut case = retyped(keys, values);
        let of = [(0, [d, 2, 4, 1]), (1, [d, 64, 1, 1]), (2, [dv, 64, 1, 1])];
        for (n, ne) in of.into_iter().chain([(3, [d, 1, 4, 1]), (4, [dv, 1, 4, 1]), (OUT, [dv, 2, 4, 1])]) {
            case.reshape(n, ne);
        }
        case
    };
    for (d, dv) in [(32, 32), (96, 160), (512, 512)] {
        assert_eq!(widths(rotated, rotated, d, dv).check(), Ok(()));
    }
    for d in [16, 80, 100, 128] {
        widths(rotated, DType::F16, d, 112).refused(ErrorCode::BadShape, 1);
        assert_eq!(widths(DType::Q8_0Cache, DType::F16, d, 112).check(), Ok(()));
    }
    for dv in [16, 80, 100] {
        widths(DType::F16x32, rotated, 16, dv).refused(ErrorCode::BadShape, 2);
        assert_eq!(widths(DType::F16x32, DType::Q8_0Cache, 16, dv).check(), Ok(()));
    }
    // Values are tiles, or rows: not tiles of F16.
    retyped(DType::F16x32, DType::F16x32).refused(ErrorCode::BadType, 2);
}

/// Rows are appended from `n_past`, and the registers only keep `n_past + n_tokens` inside the cache: rows
/// that are not cut to `n_tokens` would leave it.
#[test]
fn flash_attn_appends_no_more_rows_than_the_step_has_tokens() {
    for tokens in [4, 8] {
        let mut case = valid(Op::FlashAttnExt);
        for (operand, heads) in [(0, 2), (3, 1), (4, 1), (OUT, 2)] {
            case.operand(operand).token_axis = 0xff;
            case.reshape(operand, [64, heads, tokens, 1]);
        }
        case.reshape(5, [64, 8, 1, 1]);
        case.operand(5).token_axis = 0xff;
        case.refused(ErrorCode::BadShape, 0);
    }
    // Even where queries are cut, what is appended must be.
    for operand in [3, 4] {
        let mut case = valid(Op::FlashAttnExt);
        case.operand(operand).token_axis = 0xff;
        case.refused(ErrorCode::BadShape, operand);
    }
}

/// Caches shorter than the context are rings: they need a window, whole tiles, and room for a step.
#[test]
fn flash_attn_rings() {
    let ring_of = |keys: DType, op, n: u32, window: u32| {
        let mut case = valid(op);
        case.header.n_ctx = 1000;
        let caches = if op == Op::FlashAttnExt {
            case.set_params(&params::FlashAttn { window, ..FLASH });
            case.reshape(5, [1000, 4, 1, 1]);
            [1, 2]
        } else {
            [OUT, OUT + 1]
        };
        for cache in caches {
            case.reshape(cache, [64, n, 1, 1]);
        }
        case.retype(caches[0], keys);
        case.check().map_err(|fault| (fault.code, fault.detail))
    };
    let ring = |op, n, window| ring_of(DType::F16x32, op, n, window);
    let refused = Err((ErrorCode::BadShape, 1));
    // Rows of a step: 4.
    for (n, most) in [(32, 29), (64, 61), (992, 989)] {
        assert_eq!(ring(Op::FlashAttnExt, n, most), Ok(()));
        for (n, window) in [(n, most + 1), (n, 0), (n, u32::MAX), (n - 1, 1), (n - 16, 1)] {
            assert_eq!(ring(Op::FlashAttnExt, n, window), refused, "{n} positions, window of {window}");
        }
        assert_eq!(ring(Op::KvAppend, n, 0), Ok(()));
    }
    // Keys that are shares of their strip's first one need that as long as they are seen.
    let rotated = |n, window| ring_of(DType::Q4RCache, Op::FlashAttnExt, n, window);
    for (n, most) in [(64, 30), (992, 958)] {
        assert_eq!(rotated(n, most), Ok(()));
        for window in [most + 1, 0, u32::MAX] {
            assert_eq!(rotated(n, window), refused, "{n} rotated positions, window of {window}");
        }
    }
    for n in [1, 4, 31, 33] {
        assert_eq!(ring(Op::KvAppend, n, 0), Err((ErrorCode::BadShape, OUT as u32)));
    }
}

#[test]
fn flash_attn_mask_columns_are_not_cut() {
    let mut case = valid(Op::FlashAttnExt);
    case.header.n_ctx = common::TOKENS;
    case.reshape(5, [4, 4, 1, 1]);
    assert_eq!(case.check(), Ok(()));
    case.operand(5).token_axis = 0;
    case.refused(ErrorCode::BadShape, 5);
}

#[test]
fn flash_attn_params() {
    let refused = |params: params::FlashAttn, detail| {
        let mut case = valid(Op::FlashAttnExt);
        case.set_params(&params);
        case.refused(ErrorCode::BadParam, detail);
    };
    for x in [f32::NAN, f32::INFINITY] {
        refused(params::FlashAttn { scale: x, ..FLASH }, 0);
        refused(params::FlashAttn { softcap: x, ..FLASH }, 3);
        refused(params::FlashAttn { max_bias: x, ..FLASH }, 4);
    }
    for visibility in [0, 5, u32::MAX] {
        refused(params::FlashAttn { visibility, ..FLASH }, 1);
    }
    refused(params::FlashAttn { softcap: -1.0, ..FLASH }, 3);
    refused(params::FlashAttn { max_bias: -1.0, ..FLASH }, 4);
}

#[test]
fn attend_shapes() {
    let op = Op::Attend;
    // q{64,2,4,1}, k{64,40,1,1}, v{64,40,1,1}, mask{40,4,1,1}, sinks{2} -> y{64,2,4,1}
    bad_shape(op, 0, [513, 2, 4, 1], 0);
    for k in [[63, 40, 1, 1], [64, 40, 3, 1], [64, 40, 4, 1], [64, 40, 1, 2]] {
        bad_shape(op, 1, k, 1);
    }
    for v in [[513, 40, 1, 1], [64, 41, 1, 1], [64, 39, 1, 1], [64, 40, 2, 1], [64, 40, 1, 2]] {
        bad_shape(op, 2, v, 2);
    }
    for y in [[63, 2, 4, 1], [64, 1, 4, 1], [64, 2, 5, 1], [64, 2, 4, 2]] {
        bad_shape(op, OUT, y, OUT);
    }
    for mask in [[39, 4, 1, 1], [40, 3, 1, 1], [40, 4, 3, 1], [40, 4, 4, 1], [40, 4, 1, 2]] {
        bad_shape(op, 3, mask, 3);
    }
    for sinks in [[1, 1, 1, 1], [2, 2, 1, 1], [2, 1, 2, 1], [2, 1, 1, 2]] {
        bad_shape(op, 4, sinks, 4);
    }
    // A mask may be longer and wider.
    let mut case = valid(op);
    case.operand(3).token_axis = 0xff;
    case.reshape(3, [64, 32, 2, 1]);
    assert_eq!(case.check(), Ok(()));
}

/// Keys are as many in every step.
#[test]
fn attend_keys_are_not_cut() {
    let mut case = valid(Op::Attend);
    for operand in [1, 2] {
        case.reshape(operand, [64, common::TOKENS, 1, 1]);
    }
    assert_eq!(case.check(), Ok(()));
    for operand in [1, 2] {
        case.operand(operand).token_axis = 1;
    }
    case.refused(ErrorCode::BadShape, 1);
}

#[test]
fn attend_params() {
    let refused = |params: params::Attend, detail| {
        let mut case = valid(Op::Attend);
        case.set_params(&params);
        case.refused(ErrorCode::BadParam, detail);
    };
    for x in [f32::NAN, f32::INFINITY] {
        refused(params::Attend { scale: x, ..ATTEND }, 0);
        refused(params::Attend { softcap: x, ..ATTEND }, 1);
        refused(params::Attend { max_bias: x, ..ATTEND }, 2);
    }
    refused(params::Attend { softcap: -1.0, ..ATTEND }, 1);
    refused(params::Attend { max_bias: -1.0, ..ATTEND }, 2);
}

#[test]
fn argmax() {
    let mut case = uncut(Op::Argmax);
    case.reshape(0, [100, 2, 2, 1]);
    case.refused(ErrorCode::BadShape, 0);
    case.reshape(0, [100, 2, 1, 2]);
    case.refused(ErrorCode::BadShape, 0);
    for y in [[5, 1, 1, 1], [4, 2, 1, 1], [4, 1, 2, 1], [4, 1, 1, 2]] {
        bad_shape(Op::Argmax, OUT, y, OUT);
        bad_shape(Op::Argmax, OUT + 1, y, OUT + 1);
    }
    // A step would cut the answers and not the margins.
    let mut case = valid(Op::Argmax);
    case.operand(OUT + 1).token_axis = 0xff;
    case.refused(ErrorCode::BadShape, OUT + 1);
}

#[test]
fn cpy_keeps_integers_integers() {
    for &from in &[DType::F32, DType::F16, DType::I32] {
        for &to in &[DType::F32, DType::F16, DType::I32] {
            let mut case = valid(Op::Cpy);
            case.retype(0, from);
            case.retype(OUT, to);
            if (from == DType::I32) == (to == DType::I32) {
                assert_eq!(case.check(), Ok(()), "{from} to {to}");
            } else {
                case.refused(ErrorCode::BadType, OUT);
            }
        }
    }
}

#[test]
fn concat() {
    for axis in [4, u32::MAX] {
        let mut case = valid(Op::Concat);
        case.set_params(&params::Concat { axis });
        case.refused(ErrorCode::BadParam, 0);
    }
    for b in [[16, 5, 1, 1], [16, 4, 2, 1], [16, 4, 1, 2]] {
        bad_shape(Op::Concat, 1, b, 1);
    }
    for y in [[47, 4, 1, 1], [48, 5, 1, 1], [48, 4, 2, 1]] {
        bad_shape(Op::Concat, OUT, y, OUT);
    }
    for axis in 0..4usize {
        let mut case = uncut(Op::Concat);
        let (mut a, mut b, mut y) = ([32, 4, 2, 3], [32, 4, 2, 3], [32, 4, 2, 3]);
        (a[axis], b[axis], y[axis]) = (4, 3, 7);
        case.reshape(0, a);
        case.reshape(1, b);
        case.reshape(OUT, y);
        case.set_params(&params::Concat { axis: axis as u32 });
        assert_eq!(case.check(), Ok(()), "axis {axis}");
        // The end of a cut tensor moves from step to step.
        case.operand(0).token_axis = axis as u8;
        case.refused(ErrorCode::BadShape, 1);
    }
}

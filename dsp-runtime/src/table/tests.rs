//! The choice of kernels, and what holds for many of them.

mod damage;
mod slots;

use hexflash_abi::op::{
    Dst, Operand, Src, flash_attn as attention, gated_delta_net as delta, mul_mat as product,
};
use hexflash_abi::program::{MAX_DST, MAX_SRC, Numerics, TensorDesc};
use hexflash_abi::{DType, ErrorCode, VECTOR_BYTES};

use super::*;
use crate::plan::{Resources, Units};

/// The plan of an op with these inputs and outputs in an exact program, for two workers.
fn planned(
    op: Op,
    inputs: &[(Src, DType, [u32; 4])],
    outputs: &[(Dst, DType, [u32; 4])],
) -> Result<Plan, Fault> {
    planned_in(Numerics::Exact, op, inputs, outputs)
}

/// The same, in a program of a class.
fn planned_in(
    numerics: Numerics,
    op: Op,
    inputs: &[(Src, DType, [u32; 4])],
    outputs: &[(Dst, DType, [u32; 4])],
) -> Result<Plan, Fault> {
    planned_with(Units::default(), numerics, op, inputs, outputs)
}

/// The same, where a session has units.
fn planned_with(
    units: Units,
    numerics: Numerics,
    op: Op,
    inputs: &[(Src, DType, [u32; 4])],
    outputs: &[(Dst, DType, [u32; 4])],
) -> Result<Plan, Fault> {
    let packed = |dtype, ne| TensorDesc::packed(dtype, ne).unwrap();
    let (mut src, mut dst) = ([const { None }; MAX_SRC], [const { None }; MAX_DST]);
    for &(at, dtype, ne) in inputs {
        src[at.place()] = Some((packed(dtype, ne), dtype));
    }
    for &(at, dtype, ne) in outputs {
        dst[at.place()] = Some((packed(dtype, ne), dtype));
    }
    let resources = Resources { workers: 2, vtcm_bytes: 1 << 20, units };
    let [src, dst] =
        [&src[..], &dst[..]].map(|list| list.iter().map(|slot| slot.as_ref().map(|(t, dtype)| (t, *dtype))));
    let mut shapes = OpShapes { src: [None; MAX_SRC], dst: [None; MAX_DST], resources, numerics };
    shapes.src.iter_mut().zip(src).for_each(|(slot, operand)| *slot = operand);
    shapes.dst.iter_mut().zip(dst).for_each(|(slot, operand)| *slot = operand);
    plan(op, &shapes)
}

#[test]
fn every_weight_type_has_a_kernel_of_its_own() {
    let mut variants = std::vec::Vec::new();
    for &dtype in DType::ALL {
        let plan = planned(Op::MulMat, &[(product::W, dtype, [256, 64, 1, 1])], &[]);
        if product_takes(dtype) {
            let Plan { variant, vtcm } = plan.unwrap();
            assert!(!variants.contains(&variant), "{dtype} shares {}", variant.name());
            assert!(vtcm.own > 0 && vtcm.own.is_multiple_of(VECTOR_BYTES));
            variants.push(variant);
        } else {
            assert_eq!(plan.unwrap_err().code, ErrorCode::Internal, "{dtype}");
        }
    }
}

/// The class decides, and the number of rows does not. Only in `fast` HVX takes single rows, if it can.
#[test]
fn the_class_decides_what_the_matrix_unit_multiplies() {
    let chosen = |hmx, numerics, w: DType, rows| {
        let inputs = [(product::W, w, [256, 64, 1, 1]), (product::X, DType::F32, [256, rows, 1, 1])];
        let units = Units { hmx, ..Units::NONE };
        planned_with(units, numerics, Op::MulMat, &inputs, &[]).map(|plan| plan.variant)
    };
    let refused = |code| move |fault: Fault| assert_eq!(fault.code, code);
    for rows in [1, 2, 64] {
        let by_unit = |w, variant| {
            assert_eq!(chosen(1, Numerics::Hmx, w, rows), Ok(variant));
            chosen(0, Numerics::Hmx, w, rows).map_err(refused(ErrorCode::NoMatrixUnit)).unwrap_err();
            chosen(0, Numerics::Hmx, DType::F32x32, rows).unwrap();
        };
        by_unit(DType::F16x32, Variant::MulMatHmxF16);
        by_unit(DType::Q8_0x32, Variant::MulMatHmxQ8_0);
        for hmx in [0, 1] {
            let exact = |w| chosen(hmx, Numerics::Exact, w, rows);
            assert_eq!(exact(DType::F16x32), Ok(Variant::MulMatF16));
            exact(DType::Q8_0x32).map_err(refused(ErrorCode::BadType)).unwrap_err();
        }
        let of_many = if rows > 1 { Variant::MulMatHmxF16 } else { Variant::MulMatF16 };
        assert_eq!(chosen(1, Numerics::Fast, DType::F16x32, rows), Ok(of_many));
        assert_eq!(chosen(0, Numerics::Fast, DType::F16x32, rows), Ok(Variant::MulMatF16));
        assert_eq!(chosen(1, Numerics::Fast, DType::Q8_0x32, rows), Ok(Variant::MulMatHmxQ8_0));
        let none = chosen(0, Numerics::Fast, DType::Q8_0x32, rows);
        none.map_err(refused(ErrorCode::NoMatrixUnit)).unwrap_err();
    }
    for (w, fewest) in [(DType::F16x32, 2), (DType::BF16x32, 2), (DType::Q8_0x32, 5), (DType::Q4Kx32, 5)] {
        let preferred = |numerics, rows| mul_mat::prefers_hmx(numerics, w, rows);
        assert!(!preferred(Numerics::Fast, fewest - 1) && preferred(Numerics::Fast, fewest), "{w}");
        assert!(preferred(Numerics::Hmx, 1) && !preferred(Numerics::Exact, 512), "{w}");
    }
}

fn product_takes(dtype: DType) -> bool {
    Op::MulMat.spec().operand(product::W.number()).unwrap().types.contains(dtype)
}

#[test]
fn gates_and_states_decide_how_the_delta_rule_runs() {
    let chosen = |numerics, size, gates| {
        let state = (delta::STATE, DType::F32, [size, size, 2, 1]);
        let g = (delta::G, DType::F32, [gates, 2, 1, 1]);
        planned_in(numerics, Op::GatedDeltaNet, &[g, state], &[]).unwrap().variant
    };
    let variant = |size, gates| chosen(Numerics::Exact, size, gates);
    for size in [32, 64, 96, 128] {
        assert_eq!(variant(size, 1), Variant::GatedDeltaNetWhole);
        assert_eq!(variant(size, size), Variant::GatedDeltaNetGeneral);
    }
    assert_eq!(variant(31, 1), Variant::GatedDeltaNetGeneral);
    // Chunks of tokens round in another way.
    for size in [64, 128] {
        assert_eq!(chosen(Numerics::Fast, size, 1), Variant::GatedDeltaNetChunked);
        assert_eq!(chosen(Numerics::Fast, size, size), Variant::GatedDeltaNetGeneral);
    }
    for size in [32, 96] {
        assert_eq!(chosen(Numerics::Fast, size, 1), Variant::GatedDeltaNetWhole);
    }
}

/// Prompts with whole chunks of the delta rule, in programs of the class `fast`.
#[test]
fn the_matrix_unit_takes_whole_chunks_of_the_delta_rule() {
    let chosen = |hmx, numerics, [size, tokens, heads]: [u32; 3]| {
        let inputs = [
            (delta::V, DType::F32, [size, heads, tokens, 1]),
            (delta::G, DType::F32, [1, heads, tokens, 1]),
            (delta::STATE, DType::F32, [size, size, heads, 1]),
        ];
        let units = Units { hmx, ..Units::NONE };
        planned_with(units, numerics, Op::GatedDeltaNet, &inputs, &[]).unwrap().variant
    };
    assert_eq!(chosen(1, Numerics::Fast, [128, 32, 16]), Variant::GatedDeltaNetHmx);
    assert_eq!(chosen(1, Numerics::Fast, [64, 512, 1]), Variant::GatedDeltaNetHmx);
    for (hmx, tokens) in [(0, 32), (1, 31)] {
        assert_eq!(chosen(hmx, Numerics::Fast, [128, tokens, 16]), Variant::GatedDeltaNetChunked);
    }
    assert_eq!(chosen(1, Numerics::Fast, [96, 32, 16]), Variant::GatedDeltaNetWhole);
    assert_eq!(chosen(1, Numerics::Hmx, [128, 32, 16]), Variant::GatedDeltaNetWhole);
}

/// Pieces of prompts over caches of F16 and Q8_0, in programs of the class `fast`. Masks have any number
/// of heads, 0 for none.
#[test]
fn the_matrix_unit_attends_where_there_are_rows_enough() {
    let chosen = |hmx, numerics, [keys, values]: [DType; 2], [d, tokens, kv_heads]: [u32; 3], mask: u32| {
        let mut inputs = std::vec![
            (attention::Q, DType::F32, [d, 8, tokens, 1]),
            (attention::K_CACHE, keys, [d, 512, kv_heads, 1]),
            (attention::V_CACHE, values, [d, 512, kv_heads, 1]),
        ];
        if mask > 0 {
            inputs.push((attention::MASK, DType::F16, [512, tokens, mask, 1]));
        }
        let units = Units { hmx, ..Units::NONE };
        planned_with(units, numerics, Op::FlashAttnExt, &inputs, &[]).unwrap().variant
    };
    let f16 = [DType::F16x32, DType::F16];
    let fast = |types, shape, mask| chosen(1, Numerics::Fast, types, shape, mask);
    assert_eq!(fast(f16, [64, 16, 2], 0), Variant::FlashAttnHmx);
    assert_eq!(fast(f16, [64, 32, 8], 0), Variant::FlashAttnHmx);
    assert_eq!(fast([DType::Q8_0Cache; 2], [128, 16, 2], 0), Variant::FlashAttnHmx);
    assert_eq!(fast(f16, [80, 16, 2], 1), Variant::FlashAttnHmx);
    let others = [
        chosen(0, Numerics::Fast, f16, [64, 16, 2], 0),
        chosen(1, Numerics::Exact, f16, [64, 16, 2], 0),
        chosen(1, Numerics::Hmx, f16, [64, 16, 2], 0),
        fast([DType::Q8_0Cache; 2], [480, 16, 2], 0),
        fast([DType::Q4RCache, DType::F16], [64, 16, 2], 0),
        fast([DType::F16x32, DType::Q8_0Cache], [64, 16, 2], 0),
        fast(f16, [64, 15, 2], 0),
        fast(f16, [64, 16, 8], 0),
        fast(f16, [81, 16, 2], 0),
        fast(f16, [64, 16, 2], 8),
    ];
    assert_eq!(others, [Variant::FlashAttn; 10]);
}

/// A tape takes room for a scratch copy of a state.
#[test]
fn a_tape_is_part_of_the_plan() {
    let state = (delta::STATE, DType::F32, [128, 128, 2, 1]);
    let g = (delta::G, DType::F32, [1, 2, 1, 1]);
    let tape = (delta::TAPE_K, DType::F32, [128, 2, 4, 1]);
    let without = planned(Op::GatedDeltaNet, &[g, state], &[]).unwrap().vtcm.own;
    let with = planned(Op::GatedDeltaNet, &[g, state], &[tape]).unwrap().vtcm.own;
    assert!(with > without, "{with} {without}");
}

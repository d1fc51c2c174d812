//! Every rule of validation that concerns one operand, or two, tried on every operand of every op of the op
//! table.

mod common;

use common::{Case, OUT, valid};
use hexflash_abi::op::{Layout, Op, OperandSpec};
use hexflash_abi::program::{MAX_DST, MAX_SRC, TensorFlags};
use hexflash_abi::{DType, ErrorCode, TensorIndex};

/// Every operand of every op: its number and its entry in the op table, with the valid case to break.
fn every_operand(mut f: impl FnMut(Op, Case, usize, &OperandSpec)) {
    for &op in Op::ALL {
        let case = valid(op);
        for n in case.numbers() {
            let spec = op.spec();
            f(op, case.clone(), n, if n >= OUT { &spec.dst[n - OUT] } else { &spec.src[n] });
        }
    }
}

#[test]
fn a_minimal_program_of_every_op_is_accepted() {
    for &op in Op::ALL {
        assert_eq!(valid(op).check(), Ok(()), "{op}");
    }
}

#[test]
fn every_operand_of_the_table_is_in_the_minimal_programs() {
    for &op in Op::ALL {
        let spec = op.spec();
        let expected: Vec<_> = (0..spec.src.len()).chain(OUT..OUT + spec.dst.len()).collect();
        assert_eq!(valid(op).numbers(), expected, "{op}");
    }
}

#[test]
fn required_operand_absent() {
    every_operand(|op, mut case, n, spec| {
        if n >= OUT {
            case.ops[0].dst[n - OUT] = TensorIndex::NONE;
        } else {
            case.ops[0].src[n] = TensorIndex::NONE;
        }
        match (spec.optional, op, n) {
            (false, ..) => case.refused(ErrorCode::BadOperand, n),
            // Without b it is the fused form, which wants twice the width.
            (true, Op::Glu, 1) => case.refused(ErrorCode::BadShape, 0),
            // K and V are appended together; the one left is blamed, or the one that lacks.
            (true, Op::FlashAttnExt, 3) => case.refused(ErrorCode::BadOperand, 3),
            (true, Op::FlashAttnExt, 4) => case.refused(ErrorCode::BadOperand, 4),
            // A factor tape is there or not.
            (true, Op::GatedDeltaNet, _) => case.refused(ErrorCode::BadOperand, n),
            // Without a tape nothing can be deferred.
            (true, Op::SsmConv, _) => case.refused(ErrorCode::BadParam, 0),
            (true, ..) => assert_eq!(case.check(), Ok(()), "{op} without operand {n}"),
        }
    });
}

#[test]
fn unexpected_operand() {
    for &op in Op::ALL {
        let spec = op.spec();
        for n in spec.src.len()..MAX_SRC {
            let mut case = valid(op);
            case.ops[0].src[n] = TensorIndex(0);
            case.refused(ErrorCode::BadOperand, n);
        }
        for n in spec.dst.len()..MAX_DST {
            let mut case = valid(op);
            case.ops[0].dst[n] = TensorIndex(0);
            case.refused(ErrorCode::BadOperand, OUT + n);
        }
    }
}

#[test]
fn tensor_index_out_of_range() {
    every_operand(|_, mut case, n, _| {
        let past_the_end = case.tensors.len() as u16;
        let index = if n >= OUT { &mut case.ops[0].dst[n - OUT] } else { &mut case.ops[0].src[n] };
        *index = TensorIndex(past_the_end);
        case.refused(ErrorCode::BadTensorIndex, past_the_end.into());
    });
}

#[test]
fn type_that_the_operand_does_not_take() {
    every_operand(|_, case, n, spec| {
        for &dtype in DType::ALL.iter().filter(|t| !spec.types.contains(**t)) {
            let mut case = case.clone();
            case.operand(n).token_axis = 0xff;
            let values = dtype.row_block().map_or(1, |block| block.values as u32);
            case.operand(n).ne[0] = case.operand(n).ne[0].next_multiple_of(values);
            case.retype(n, dtype);
            case.refused(ErrorCode::BadType, n);
        }
    });
}

#[test]
fn strides_that_the_layout_does_not_take() {
    every_operand(|_, mut case, n, spec| {
        let dtype = case.dtype(n);
        let tiled = dtype.tile_group().is_some();
        if spec.layout != Layout::Strided {
            let mut spread = case.clone();
            spread.infos[0].size *= 4;
            // Elements, groups or activation bytes that are not adjacent.
            spread.operand(n).nb[0] *= 2;
            spread.refused(ErrorCode::BadStride, n);
        }
        if tiled {
            let mut gap = case.clone();
            gap.infos[0].size *= 4;
            gap.operand(n).nb[1] += 128;
            gap.refused(ErrorCode::BadStride, n);
        }
        if spec.layout == Layout::Contiguous && case.operand(n).ne[1] > 1 {
            case.infos[0].size *= 4;
            case.operand(n).nb[1] += 4;
            case.refused(ErrorCode::BadStride, n);
        }
    });
}

#[test]
fn written_operand_that_overlaps_itself() {
    every_operand(|_, case, n, spec| {
        let mut probe = case.clone();
        let tiled = probe.dtype(n).tile_group().is_some();
        for axis in (1..4).filter(|&axis| probe.operand(n).ne[axis] > 1 && !(tiled && axis == 1)) {
            for stride in [0, 128] {
                let mut case = case.clone();
                if case.operand(n).nb[axis] <= stride {
                    continue;
                }
                case.operand(n).nb[axis] = stride;
                match (spec.written, spec.layout) {
                    (true, _) | (_, Layout::Contiguous) => case.refused(ErrorCode::BadStride, n),
                    (false, _) => assert_eq!(case.check(), Ok(()), "rows may repeat where they are read"),
                }
            }
        }
    });
}

#[test]
fn written_tiled_operand_that_overlaps_itself_along_matrices() {
    for stride in [0, 128, 2 * 4096 - 128] {
        let mut case = valid(Op::FlashAttnExt);
        // Two KV heads, whose matrices of two strips of two groups share bytes.
        case.reshape(1, [64, 64, 2, 1]);
        case.reshape(2, [64, 64, 2, 1]);
        case.reshape(3, [64, 2, 4, 1]);
        case.reshape(4, [64, 2, 4, 1]);
        assert_eq!(case.check(), Ok(()));
        case.operand(1).nb[2] = stride;
        case.refused(ErrorCode::BadStride, 1);
    }
}

#[test]
fn write_to_a_constant_tensor_or_a_read_only_buffer() {
    every_operand(|op, mut case, n, spec| {
        let size = case.infos[0].size;
        let read_only = case.buffer(size, true);
        let mut elsewhere = case.clone();
        elsewhere.operand(n).buffer = read_only;
        case.operand(n).flags = TensorFlags::CONST.bits();
        for case in [case, elsewhere] {
            if spec.written {
                case.refused(ErrorCode::WriteToConst, n);
            } else {
                assert_eq!(case.check(), Ok(()), "{op} reads operand {n}");
            }
        }
    });
}

#[test]
fn written_operand_on_top_of_another() {
    every_operand(|op, case, n, spec| {
        for m in case.numbers().into_iter().filter(|&m| m != n && spec.written) {
            let mut case = case.clone();
            // Alone in fresh bytes, then the other one put upon it.
            let ne = case.operand(n).ne;
            case.reshape(n, ne);
            let (target, offset) = (*case.operand(n), case.operand(n).offset);
            case.infos[0].size += 1 << 20;
            case.operand(m).offset = offset;
            let other = *case.operand(m);
            let same = (other.dtype, other.ne, other.nb) == (target.dtype, target.ne, target.nb);
            let in_place = op.spec().in_place.iter().any(|src| src.place() == m);
            if in_place && n == OUT && same {
                assert_eq!(case.check(), Ok(()), "{op} in place of operand {m}");
                // Shifted by one element, kernels would read what they have just written.
                case.operand(m).offset += 4;
                case.refused(ErrorCode::BadAlias, m);
            } else {
                // Of two written operands the first in order is the one that is checked.
                let first_written = if m < n && case_written(op, m) { n } else { m };
                case.refused(ErrorCode::BadAlias, first_written);
            }
        }
    });
}

fn case_written(op: Op, n: usize) -> bool {
    let spec = op.spec();
    if n >= OUT { spec.dst[n - OUT].written } else { spec.src[n].written }
}

#[test]
fn operands_that_only_touch_are_no_aliases() {
    let mut case = valid(Op::Silu);
    let end = case.operand(0).extent_bytes();
    case.operand(OUT).offset = end;
    assert_eq!(case.check(), Ok(()));
    case.operand(OUT).offset = end - 4;
    case.refused(ErrorCode::BadAlias, 0);
}

trait ExtentBytes {
    fn extent_bytes(&self) -> u64;
}

impl ExtentBytes for hexflash_abi::program::TensorDesc {
    /// End of a tensor that starts at 0.
    fn extent_bytes(&self) -> u64 {
        assert_eq!(self.offset, 0);
        self.extent(DType::F32).unwrap()
    }
}

#[test]
fn two_names_of_one_buffer_hide_no_alias() {
    let mut case = valid(Op::MulMat);
    let size = case.infos[0].size;
    let twin = case.buffer(size, false);
    case.buffers[usize::from(twin)] = case.buffers[0];
    (case.operand(OUT).buffer, case.operand(OUT).offset) = (twin, 0);
    case.refused_early(ErrorCode::BufferInUse, 10);
}

#[test]
fn parameter_words_past_the_struct_must_be_zero() {
    for &op in Op::ALL {
        let words = op.spec().param_words();
        for i in words..16 {
            let mut case = valid(op);
            case.ops[0].params[i] = 1;
            case.refused(ErrorCode::BadParam, i);
        }
    }
}

/// Whether an operand's axis is cut is part of its shape: kernels see cut shapes, and would meet a row of one
/// operand that has no partner in another.
#[test]
fn operands_cut_to_the_tokens_of_a_step_in_different_places() {
    every_operand(|op, case, n, _| {
        let mut probe = case.clone();
        let t = *probe.operand(n);
        let row_major = probe.dtype(n).element_bytes().is_some();
        if t.token_axis != 0xff {
            let mut whole = case.clone();
            whole.operand(n).token_axis = 0xff;
            // A mask may have more rows than the step has tokens.
            if matches!((op, n), (Op::FlashAttnExt, 5) | (Op::Attend, 3) | (Op::SoftMax, 1)) {
                assert_eq!(whole.check(), Ok(()));
            } else {
                let fault = whole.check().expect_err("a whole operand among cut ones");
                assert_eq!(fault.code, ErrorCode::BadShape, "{op} {n}");
            }
        }
        for axis in
            (0..4u8).filter(|&a| row_major && a != t.token_axis && t.ne[usize::from(a)] == common::TOKENS)
        {
            let mut cut = case.clone();
            cut.operand(n).token_axis = axis;
            let fault = cut.check().expect_err("cut along another axis");
            assert_eq!(fault.code, ErrorCode::BadShape, "{op} {n}");
        }
    });
}

#[test]
fn with_one_token_at_most_nothing_is_cut() {
    let mut case = valid(Op::Silu);
    case.header.max_tokens = 1;
    case.reshape(0, [32, 1, 1, 1]);
    case.reshape(OUT, [32, 1, 1, 1]);
    case.operand(0).token_axis = 0xff;
    assert_eq!(case.check(), Ok(()));
}

//! The rules of validation that concern no single op: header, buffers, tensors by themselves, registers.
//! `operands.rs` has the rules per operand, `shapes.rs` those per op.

mod common;

use common::{Case, N_CTX, OUT, TOKENS, packed, valid};
use hexflash_abi::op::{Explained, FIRST_DST, Op};
use hexflash_abi::program::{
    MAX_BUFFERS, MAX_OPS, MAX_SLOTS, MAX_TENSORS, MAX_TOKENS, Numerics, PARTS, ProgramHeader, TensorDesc,
    block_bytes,
};
use hexflash_abi::registers::{REGISTER_COUNT, Register, StepRegisters};
use hexflash_abi::validate::{Program, check_step};
use hexflash_abi::{DType, ErrorCode, Fault};
use zerocopy::IntoBytes;

/// A block whose header words are edited after they were filled in, parsed.
#[track_caller]
fn header_refused(edit: impl FnOnce(&mut ProgramHeader), code: ErrorCode, detail: u32) {
    let mut block = valid(Op::Add).block();
    let (header, _) = zerocopy::Ref::<_, ProgramHeader>::from_prefix(block.as_mut_bytes()).unwrap();
    edit(zerocopy::Ref::into_mut(header));
    assert_eq!(Program::parse(block.as_bytes()).unwrap_err(), Fault::new(code, detail));
}

#[test]
fn magic_version_and_layout_hash() {
    header_refused(|h| h.magic = 0x1234, ErrorCode::BadMagic, 0x1234);
    header_refused(|h| h.abi_version = 99, ErrorCode::AbiVersion, 99);
    header_refused(|h| h.layout_hash = 0xdead_beef_0000_0007, ErrorCode::LayoutHash, 7);
}

#[test]
fn counts_over_their_limits() {
    header_refused(|h| h.n_buffers = MAX_BUFFERS as u32 + 1, ErrorCode::BadCount, 65);
    header_refused(|h| h.n_tensors = MAX_TENSORS as u32 + 1, ErrorCode::BadCount, 16385);
    // The count at fault is told, not the largest one.
    header_refused(
        |h| (h.n_tensors, h.n_ops) = (MAX_TENSORS as u32, MAX_OPS as u32 + 1),
        ErrorCode::BadCount,
        8193,
    );
    for huge in [u32::MAX, u32::MAX / 48 + 1, 1 << 31] {
        header_refused(|h| h.n_tensors = huge, ErrorCode::BadCount, huge);
        header_refused(|h| h.n_ops = huge, ErrorCode::BadCount, huge);
    }
    assert_eq!(block_bytes(MAX_BUFFERS, MAX_TENSORS, MAX_OPS), Some(64 + 64 * 8 + 16384 * 48 + 8192 * 96));
}

#[test]
fn counts_that_do_not_fill_the_block() {
    let total = valid(Op::Add).block().as_bytes().len() as u32;
    header_refused(|h| h.n_ops = 0, ErrorCode::BadCount, total);
    header_refused(|h| h.n_tensors += 2, ErrorCode::BadCount, total);
    header_refused(|h| h.total_bytes -= 8, ErrorCode::BadCount, total - 8);
    // Both agree, but with more than there is.
    header_refused(|h| (h.n_ops, h.total_bytes) = (2, h.total_bytes + 96), ErrorCode::BadCount, total + 96);
}

#[test]
fn block_that_is_short_long_or_not_aligned() {
    let block = valid(Op::Add).block();
    let bytes = block.as_bytes();
    let total = bytes.len() as u32;
    let parse = |bytes| Program::parse(bytes).map(|_| ()).map_err(|fault| (fault.code, fault.detail));
    assert_eq!(parse(&[]), Err((ErrorCode::BadMessage, 0)));
    assert_eq!(parse(&bytes[..63]), Err((ErrorCode::BadMessage, 63)));
    for len in (64..bytes.len()).step_by(8) {
        assert_eq!(parse(&bytes[..len]), Err((ErrorCode::BadCount, total)));
    }
    let mut long = block.clone();
    long.push(0);
    assert_eq!(parse(long.as_bytes()), Err((ErrorCode::BadCount, total)));
    assert_eq!(parse(&long.as_bytes()[4..]), Err((ErrorCode::BadMessage, total + 4)));
}

#[test]
fn tokens_and_context() {
    header_refused(|h| h.max_tokens = 0, ErrorCode::BadCount, 0);
    header_refused(|h| h.max_tokens = MAX_TOKENS + 1, ErrorCode::BadCount, MAX_TOKENS + 1);
    header_refused(|h| h.n_ctx = TOKENS - 1, ErrorCode::BadCount, TOKENS - 1);
    header_refused(|h| h.n_ctx = 1 << 31, ErrorCode::BadCount, 1 << 31);
    for i in 0..4 {
        header_refused(|h| h.reserved[i] = 1, ErrorCode::ReservedNotZero, 0);
    }
}

#[test]
fn slots() {
    for n in [0, MAX_SLOTS + 1, u32::MAX] {
        header_refused(|h| h.n_slots = n, ErrorCode::BadCount, n);
    }
    for n in [1, 2, MAX_SLOTS] {
        let mut case = valid(Op::Add);
        assert_eq!(case.header.n_slots, 1);
        case.header.n_slots = n;
        assert_eq!(case.check(), Ok(()), "{n} slots");
    }
}

/// A program says which numerics it wants: none is not one of them.
#[test]
fn numerics() {
    for found in [0, 4, u32::MAX] {
        header_refused(|h| h.numerics = found, ErrorCode::BadNumerics, found);
    }
    for &numerics in Numerics::ALL {
        let mut case = valid(Op::Add);
        assert_eq!(case.header.numerics, Numerics::Exact.wire());
        case.header.numerics = numerics.wire();
        assert_eq!(case.check(), Ok(()));
    }
}

#[test]
fn an_empty_program_is_valid() {
    assert_eq!(Case::new().check(), Ok(()));
}

#[test]
fn buffers() {
    let mut case = valid(Op::Add);
    case.buffers[0].buffer.0 = 7;
    case.refused_early(ErrorCode::UnknownBuffer, 7);

    let mut case = valid(Op::Add);
    case.buffers[0].reserved = 3;
    case.refused_early(ErrorCode::ReservedNotZero, 3);
}

/// A valid program whose tensor 0 is edited.
fn tensor(edit: impl FnOnce(&mut hexflash_abi::program::TensorDesc)) -> Case {
    let mut case = valid(Op::Add);
    edit(&mut case.tensors[0]);
    case
}

#[test]
fn tensor_fields() {
    tensor(|t| t.dtype = 0).refused_early(ErrorCode::UnknownType, 0);
    let after_the_last = DType::ALL.iter().map(|dtype| dtype.wire()).max().unwrap() + 1;
    tensor(|t| t.dtype = after_the_last).refused_early(ErrorCode::UnknownType, after_the_last.into());
    tensor(|t| t.reserved = 1).refused_early(ErrorCode::ReservedNotZero, 0);
    tensor(|t| t.flags = 8).refused_early(ErrorCode::ReservedNotZero, 0);
    tensor(|t| t.buffer = 1).refused_early(ErrorCode::UnknownBuffer, 1);
    tensor(|t| t.buffer = 64).refused_early(ErrorCode::UnknownBuffer, 64);
    tensor(|t| t.buffer = u16::MAX).refused_early(ErrorCode::UnknownBuffer, 0xffff);
    for axis in 0..4 {
        // Zero is refused before any rule divides by it.
        tensor(|t| t.ne[axis] = 0).refused_early(ErrorCode::BadShape, 0);
        tensor(|t| t.ne[axis] = 1 << 31).refused_early(ErrorCode::BadShape, 0);
    }
}

#[test]
fn token_axis() {
    tensor(|t| t.token_axis = 4).refused_early(ErrorCode::BadShape, 0);
    tensor(|t| t.token_axis = 0xfe).refused_early(ErrorCode::BadShape, 0);
    tensor(|t| t.token_axis = 0).refused_early(ErrorCode::BadShape, 0);
    tensor(|t| t.ne[1] = TOKENS - 1).refused_early(ErrorCode::BadShape, 0);

    // Rows of a strip and values of an activation row cannot be cut.
    let mut case = Case::new();
    case.cut(1, DType::F16x32, [32, TOKENS, 1, 1]);
    case.refused_early(ErrorCode::BadShape, 0);
    let mut case = Case::new();
    case.cut(0, DType::Q8Act, [TOKENS, 1, 1, 1]);
    case.refused_early(ErrorCode::BadShape, 0);
    let mut case = Case::new();
    case.cut(1, DType::Q8Act, [32, TOKENS, 1, 1]);
    assert_eq!(case.check(), Ok(()));
}

#[test]
fn alignment() {
    for &dtype in DType::ALL {
        let align = dtype.row_block().map_or(128, |block| block.align) as u64;
        let mut aligned = Case::new();
        let t = aligned.fixed(dtype, [64, 64, 2, 2]).0 as usize;
        aligned.infos[0].size *= 2;
        for step in [1, align / 2, align - 1, align] {
            let mut case = aligned.clone();
            case.tensors[t].offset += step;
            let expected = if step % align == 0 { Ok(()) } else { Err(Fault::new(ErrorCode::Misaligned, 0)) };
            assert_eq!(case.check(), expected, "{dtype} at {step}");
            // The unit of axis 0 belongs to the op's table entry for types that are not row-major.
            for axis in usize::from(dtype.element_bytes().is_none())..4 {
                let mut case = aligned.clone();
                case.tensors[t].nb[axis] += step as u32;
                assert_eq!(case.check(), expected, "{dtype}, stride {axis} + {step}");
            }
        }
    }
}

#[test]
fn out_of_bounds_by_one_byte() {
    for &dtype in DType::ALL {
        for mut ne in [[1u32, 1, 1, 1], [33, 1, 1, 1], [64, 33, 1, 1], [300, 70, 3, 2]] {
            ne[0] = ne[0].next_multiple_of(dtype.row_block().map_or(1, |block| block.values as u32));
            let mut case = Case::new();
            case.fixed(dtype, [64, 32, 1, 1]);
            case.fixed(dtype, ne);
            assert_eq!(case.check(), Ok(()), "{dtype} up to the last byte");
            case.infos[0].size -= 1;
            case.refused_early(ErrorCode::OutOfBounds, 1);
        }
    }
}

#[test]
fn strided_tensors_end_with_their_last_element() {
    // Elements at 0, 12, 24; rows 8 apart, interleaved; matrices spread by 1000.
    let mut case = Case::new();
    case.fixed(DType::F32, [3, 2, 2, 2]);
    case.tensors[0].nb = [12, 8, 1000, 100];
    case.infos[0].size = 2 * 12 + 8 + 1000 + 100 + 4;
    assert_eq!(case.check(), Ok(()));
    case.infos[0].size -= 1;
    case.refused_early(ErrorCode::OutOfBounds, 0);
}

/// A row has whole blocks, which nobody cuts.
#[test]
fn rows_of_blocks() {
    for k in [1, 31, 33, 48] {
        let mut case = Case::new();
        case.fixed(DType::Q8_0, [k, 4, 1, 1]);
        case.refused_early(ErrorCode::BadShape, 0);
    }
    let mut case = Case::new();
    case.cut(0, DType::Q8_0, [TOKENS, 1, 1, 1]);
    case.refused_early(ErrorCode::BadShape, 0);
    let mut case = Case::new();
    case.cut(1, DType::Q8_0, [32, TOKENS, 1, 1]);
    assert_eq!(case.check(), Ok(()));
    // Rows of three blocks, 110 bytes apart.
    let mut case = Case::new();
    case.fixed(DType::Q8_0, [96, 3, 1, 1]);
    case.tensors[0].nb[1] = 110;
    case.infos[0].size = 2 * 110 + 3 * 34;
    assert_eq!(case.check(), Ok(()));
    case.infos[0].size -= 1;
    case.refused_early(ErrorCode::OutOfBounds, 0);
}

#[test]
fn tiled_tensors_end_with_their_last_strip() {
    // 70 rows are 3 strips, 200 k are 2 groups; rows and k past the matrix are there, as zeros.
    let mut case = Case::new();
    case.fixed(DType::Q8_0x32, [200, 70, 2, 1]);
    case.tensors[0].nb = [4352, 2 * 4352, 1 << 20, 0];
    case.infos[0].size = (1 << 20) + 3 * 2 * 4352;
    assert_eq!(case.check(), Ok(()));
    case.infos[0].size -= 1;
    case.refused_early(ErrorCode::OutOfBounds, 0);
}

#[test]
fn extents_that_overflow() {
    let big = i32::MAX as u32;
    for &dtype in DType::ALL {
        let mut case = Case::new();
        case.fixed(dtype, [64, 2, 1, 1]);
        case.infos[0].size = 1 << 31;
        let valid = case.clone();
        let refused = |offset, ne, nb| {
            let mut case = valid.clone();
            (case.tensors[0].offset, case.tensors[0].ne, case.tensors[0].nb) = (offset, ne, nb);
            case.refused_early(ErrorCode::OutOfBounds, 0);
        };
        let nb = packed(dtype, [64, 2, 1, 1]);
        let stride = u32::MAX - 127;
        // The shortest row, and the longest.
        let block = dtype.row_block().map_or(1, |block| block.values as u32);
        // Past u32: a sum that a 32-bit DSP would wrap.
        refused(0, [64, 2, 2, 2], [nb[0], nb[1], 1 << 31, 1 << 31]);
        // Past u64, by offset and by strides.
        refused(u64::MAX - 127, [64, 2, 1, 1], nb);
        refused(0, [block, 1, big, big], [nb[0], nb[1], stride, stride]);
        refused(0, [block, big, big, big], [nb[0], stride, stride, stride]);
        // k alone.
        refused(0, [big / block * block, 1, 1, 1], packed(dtype, [64, 1, 1, 1]));
    }
}

#[test]
fn a_strip_longer_than_32_bits_is_no_short_strip() {
    // 2^26 groups of 4096 bytes: 2^38, which is 0 in 32 bits.
    let mut case = valid(Op::MulMat);
    case.infos[0].size = 1 << 40;
    let t = case.operand(0);
    (t.dtype, t.offset) = (DType::F32x32.wire(), 0);
    (t.ne, t.nb) = ([i32::MAX as u32, 32, 1, 1], [4096, 0, 0, 0]);
    case.refused(ErrorCode::BadStride, 0);
}

#[test]
fn op_fields() {
    let op = |edit: fn(&mut hexflash_abi::program::OpDesc)| {
        let mut case = valid(Op::Add);
        edit(&mut case.ops[0]);
        case
    };
    op(|o| o.opcode = 0).refused(ErrorCode::UnknownOp, 0);
    let first_unknown = 1 + Op::ALL.len() as u16;
    let mut unknown = valid(Op::Add);
    unknown.ops[0].opcode = first_unknown;
    unknown.refused(ErrorCode::UnknownOp, first_unknown.into());
    op(|o| o.part = 6).refused(ErrorCode::BadCount, 6);
    op(|o| o.part = u16::MAX).refused(ErrorCode::BadCount, 0xffff);
    assert_eq!(op(|o| o.part = PARTS as u16 - 1).check(), Ok(()));
    op(|o| o.reserved2 = 6).refused(ErrorCode::ReservedNotZero, 6);
}

#[test]
fn the_op_at_fault_is_named() {
    let mut case = valid(Op::Add);
    let (good, mut bad) = (case.ops[0], case.ops[0]);
    bad.opcode = 0;
    case.ops = vec![good, good, bad, good];
    assert_eq!(case.check(), Err(Fault::new(ErrorCode::UnknownOp, 0).at(2)));
    assert_eq!(case.check().unwrap_err().to_string(), "op 2: unknown op (opcode 0)");
}

/// Operands, parameters and registers have names; what has none keeps its number.
#[test]
fn details_in_words() {
    let text = |op, code, detail| Explained::new(op, Fault::new(code, detail).at(7)).to_string();
    let (conv, shape) = (Some(Op::SsmConv), "operand has an unsupported shape");
    assert_eq!(text(conv, ErrorCode::BadShape, 2), format!("{shape} (operand ring)"));
    assert_eq!(text(conv, ErrorCode::BadShape, FIRST_DST + 1), format!("{shape} (operand tape_x)"));
    assert_eq!(text(conv, ErrorCode::BadShape, 3), format!("{shape} (input 3)"));
    assert_eq!(text(None, ErrorCode::BadShape, FIRST_DST + 1), format!("{shape} (output 1)"));
    let param = "parameter out of range";
    assert_eq!(text(Some(Op::Rope), ErrorCode::BadParam, 10), format!("{param} (parameter sections)"));
    assert_eq!(text(Some(Op::Rope), ErrorCode::BadParam, 15), format!("{param} (word 15)"));
    let register = "step register out of bounds";
    assert_eq!(text(None, ErrorCode::BadRegister, 1), format!("{register} (n_tokens)"));
    assert_eq!(text(None, ErrorCode::BadRegister, 15), format!("{register} (register 15)"));
    assert_eq!(text(None, ErrorCode::BadRowIndex, u32::MAX), "row index out of range (row -1)");
    let tensor = Fault::new(ErrorCode::BadShape, 3);
    assert_eq!(Explained::new(None, tensor).to_string(), format!("{shape} (tensor or buffer 3)"));
}

#[test]
fn in_place_on_another_view_is_an_alias() {
    let mut case = valid(Op::Silu);
    let x = *case.operand(0);
    *case.operand(OUT) = x;
    assert_eq!(case.check(), Ok(()));
    // Same start and shape, other strides.
    case.operand(OUT).nb[1] += 4;
    case.refused(ErrorCode::BadAlias, 0);
}

#[test]
fn registers() {
    let header = valid(Op::Add).header;
    let check = |n_past, n_tokens| check_step(&header, &[StepRegisters::step(n_past, n_tokens)]);
    let bad = |register: Register| Err(Fault::new(ErrorCode::BadRegister, register.wire()));
    assert_eq!(check(0, 1), Ok(()));
    assert_eq!(check(N_CTX - TOKENS, TOKENS), Ok(()));
    assert_eq!(check(0, 0), bad(Register::NTokens));
    assert_eq!(check(0, TOKENS + 1), bad(Register::NTokens));
    assert_eq!(check(0, u32::MAX), bad(Register::NTokens));
    assert_eq!(check(N_CTX - TOKENS + 1, TOKENS), bad(Register::NPast));
    assert_eq!(check(u32::MAX, 1), bad(Register::NPast));
    assert_eq!(check(u32::MAX - 3, TOKENS), bad(Register::NPast));
}

/// Each of the other registers has its bound, and takes values up to it.
#[test]
fn registers_of_rounds() {
    use Register::*;
    let header = valid(Op::Add).header;
    let step = StepRegisters::step(30, 2).with(DraftMax, 2);
    let check = |block| check_step(&header, &[block]);
    let bad = |register: Register| Err(Fault::new(ErrorCode::BadRegister, register.wire()));
    let bounds = [
        (NAccept, TOKENS),
        (NCommit, 30),
        (NDraft, 2),
        (DraftMax, TOKENS - 1),
        (Halt, 2),
        (Slot, 0),
        (NOutput, TOKENS),
        (Fold, 1),
    ];
    for (register, most) in bounds {
        assert_eq!(check(step.with(register, most)), Ok(()), "{register}");
        for over in [most + 1, 1 << 31, u32::MAX] {
            assert_eq!(check(step.with(register, over)), bad(register), "{register} = {over}");
        }
    }
    // A commit counts in n_past, and a draft in what may be drafted.
    assert_eq!(check(step.with(NPast, 0).with(NCommit, 1)), bad(NCommit));
    assert_eq!(check(step.with(DraftMax, 0).with(NDraft, 1)), bad(NDraft));
    // Neither rounds nor the budget have a bound, and snapshots one of their own, where they are used.
    for any in [1, 1 << 31, u32::MAX] {
        assert_eq!(check(step.with(NLeft, any).with(Round, any).with(Snapshot, any)), Ok(()));
    }
    for i in Register::ALL.len()..REGISTER_COUNT {
        let mut block = step;
        block.values[i] = 1;
        assert_eq!(check(block), Err(Fault::new(ErrorCode::BadRegister, i as u32)));
    }
}

/// A block for a slot.
fn of_slot(slot: u32, n_past: u32, n_tokens: u32) -> StepRegisters {
    StepRegisters::step(n_past, n_tokens).with(Register::Slot, slot)
}

/// Each block within the program's bounds, and all of them together.
#[test]
fn steps_of_several_sequences() {
    let header = ProgramHeader { n_slots: 3, ..valid(Op::Add).header };
    let check = |blocks: &[StepRegisters]| check_step(&header, blocks);
    let bad = |register: Register| Err(Fault::new(ErrorCode::BadRegister, register.wire()));
    let [a, b, c] = [of_slot(2, 7, 1), of_slot(0, 0, 2), of_slot(1, N_CTX - 1, 1)];
    for blocks in [&[a][..], &[a, b], &[b, a], &[a, b, c], &[c, b, a]] {
        assert_eq!(check(blocks), Ok(()), "{blocks:?}");
    }
    // What is wrong with a block is wrong wherever it stands.
    for (register, value) in [
        (Register::NTokens, 0),
        (Register::NTokens, TOKENS + 1),
        (Register::NPast, N_CTX),
        (Register::NAccept, TOKENS + 1),
        (Register::NCommit, N_CTX),
        (Register::NDraft, 1),
        (Register::DraftMax, TOKENS),
        (Register::Slot, 3),
        (Register::Slot, u32::MAX),
        (Register::NOutput, TOKENS + 1),
        (Register::Fold, 2),
        (Register::Halt, 3),
    ] {
        for blocks in [[a.with(register, value), b, c], [b, c, a.with(register, value)]] {
            assert_eq!(check(&blocks), bad(register), "{register} = {value}");
        }
    }
    let reserved = StepRegisters { values: std::array::from_fn(|i| if i == 15 { 1 } else { b.values[i] }) };
    assert_eq!(check(&[a, reserved]), Err(Fault::new(ErrorCode::BadRegister, 15)));
    // Two blocks of one slot would write one state.
    assert_eq!(check(&[a, b, a.with(Register::NPast, 9)]), bad(Register::Slot));
    // As many rows as the token axis has, and one more.
    assert_eq!(check(&[a.with(Register::NTokens, TOKENS - 2), b]), Ok(()));
    assert_eq!(check(&[a.with(Register::NTokens, TOKENS - 1), b]), bad(Register::NTokens));
    // Whether a program runs at all is decided for one sequence only.
    for halt in [1, 2] {
        assert_eq!(check(&[a.with(Register::Halt, halt)]), Ok(()));
        assert_eq!(check(&[b, a.with(Register::Halt, halt)]), bad(Register::Halt));
    }
}

#[test]
fn a_step_has_a_block_for_each_slot_at_most() {
    let all: Vec<_> = (0..=MAX_SLOTS).map(|slot| of_slot(slot, 0, 1)).collect();
    let header = ProgramHeader { n_slots: MAX_SLOTS, ..ProgramHeader::new(MAX_TOKENS, MAX_TOKENS) };
    assert_eq!(check_step(&header, &all[..MAX_SLOTS as usize]), Ok(()));
    assert_eq!(check_step(&header, &all), Err(Fault::new(ErrorCode::BadCount, MAX_SLOTS + 1)));
    assert_eq!(check_step(&header, &[]), Err(Fault::new(ErrorCode::BadCount, 0)));
    // The sum of the largest blocks overflows nothing.
    let wide: Vec<_> =
        all[..MAX_SLOTS as usize].iter().map(|b| b.with(Register::NTokens, MAX_TOKENS)).collect();
    let fault = Fault::new(ErrorCode::BadRegister, Register::NTokens.wire());
    assert_eq!(check_step(&header, &wide), Err(fault));
    // With one slot there is one block.
    let one = ProgramHeader { n_slots: 1, ..header };
    let fault = Fault::new(ErrorCode::BadRegister, Register::Slot.wire());
    assert_eq!(check_step(&one, &all[..2]), Err(fault));
    assert_eq!(check_step(&one, &[all[0], all[0]]), Err(fault));
}

/// One token at most: nothing can be drafted.
#[test]
fn registers_of_a_program_for_single_tokens() {
    let header = ProgramHeader { max_tokens: 1, ..valid(Op::Add).header };
    let step = StepRegisters::step(3, 1).with(Register::NCommit, 1);
    assert_eq!(check_step(&header, &[step]), Ok(()));
    let drafts = step.with(Register::DraftMax, 1);
    let fault = Fault::new(ErrorCode::BadRegister, Register::DraftMax.wire());
    assert_eq!(check_step(&header, &[drafts]), Err(fault));
}

/// The stride past a single matrix is not used: a matrix may have more bytes than 32 bits count.
#[test]
fn a_single_matrix_may_be_larger_than_32_bits_say() {
    for (dtype, rows) in [(DType::F32x32, 248_320), (DType::Q8_0x32, 1 << 20), (DType::F16x32, 1 << 20)] {
        let ne = [5120, rows, 1, 1];
        let strip = dtype.tile_group().unwrap().strip_bytes(5120) as u64;
        let bytes = strip * u64::from(rows / 32);
        assert!(bytes > u64::from(u32::MAX));
        let matrix = TensorDesc::packed(dtype, ne).unwrap();
        assert_eq!((matrix.nb[1..].to_vec(), matrix.extent(dtype)), (vec![strip as u32, 0, 0], Some(bytes)));
        assert_eq!(TensorDesc::packed(dtype, [5120, rows, 2, 1]), None, "where there are two it is used");
        assert_eq!(TensorDesc::packed(dtype, [5120, rows, 1, 2]), None);

        let mut case = valid(Op::GetRows);
        case.reshape(OUT, [5120, TOKENS, 1, 1]);
        let size = case.infos[0].size.next_multiple_of(128);
        *case.operand(0) = TensorDesc { offset: size, ..matrix };
        case.infos[0].size = size + bytes;
        assert_eq!(case.check(), Ok(()), "{dtype}");
        case.infos[0].size -= 1;
        let table = case.index(0).0;
        case.refused_early(ErrorCode::OutOfBounds, table.into());
    }
}

//! Programs that are refused, and those that fail while they run.

use std::ptr::NonNull;
use std::sync::Arc;

use hexflash::device::{Memory, Source};
use hexflash_abi::ErrorCode::*;
use hexflash_abi::op::FIRST_DST;
use hexflash_abi::program::{BufferRef, MAX_TOKENS, OpDesc, ProgramHeader, TensorDesc, TensorFlags};
use hexflash_abi::{ABI_VERSION, BufferId, DType, ErrorCode, Fault, Op, OpIndex, Status, TensorIndex};
use zerocopy::IntoBytes;

use super::bench::*;

const DST: u32 = FIRST_DST;

/// A sum and its copy: `0 + 1 -> 2`, `2 -> 3`.
fn sum() -> (ProgramHeader, [TensorDesc; 4], [OpDesc; 2]) {
    let tensors = [0, 128, 256, 384].map(|at| tensor(DType::F32, at, [8, 2, 1, 1]));
    (header(4, 2), tensors, [op(Op::Add, &[0, 1], 2, &[]), op(Op::Cpy, &[2], 3, &[])])
}

pub fn headers_and_tensors_are_checked(bench: &mut Bench) {
    type Change = fn(&mut ProgramHeader, &mut TensorDesc);
    let changes: &[(&str, ErrorCode, u32, Change)] = &[
        ("magic", BadMagic, 1, |h, _| h.magic = 1),
        ("version", AbiVersion, ABI_VERSION + 1, |h, _| h.abi_version += 1),
        ("layout", LayoutHash, 9, |h, _| h.layout_hash = 9),
        ("length", BadCount, 8, |h, _| h.total_bytes = 8),
        ("too many tensors", BadCount, u32::MAX, |h, _| h.n_tensors = u32::MAX),
        ("too many ops", BadCount, 1 << 20, |h, _| h.n_ops = 1 << 20),
        ("no tokens", BadCount, 0, |h, _| h.max_tokens = 0),
        ("too many tokens", BadCount, MAX_TOKENS + 1, |h, _| h.max_tokens = MAX_TOKENS + 1),
        ("no context", BadCount, 3, |h, _| h.n_ctx = 3),
        ("numerics", BadNumerics, 0, |h, _| h.numerics = 0),
        ("header's rest", ReservedNotZero, 0, |h, _| h.reserved[3] = 1),
        ("type", UnknownType, 999, |_, t| t.dtype = 999),
        ("tensor's rest", ReservedNotZero, 1, |_, t| t.reserved = 1),
        ("flags", ReservedNotZero, 1, |_, t| t.flags = 0x80),
        ("buffer", UnknownBuffer, 2, |_, t| t.buffer = 2),
        ("empty", BadShape, 1, |_, t| t.ne[3] = 0),
        ("huge", BadShape, 1, |_, t| t.ne[0] = u32::MAX),
        ("token axis", BadShape, 1, |_, t| t.token_axis = 1),
        ("offset", Misaligned, 1, |_, t| t.offset = 130),
        ("stride", Misaligned, 1, |_, t| t.nb[1] = 33),
        ("end", OutOfBounds, 1, |_, t| t.offset = SIZE as u64 - 60),
        ("start", OutOfBounds, 1, |_, t| t.offset = u64::MAX - 127),
        // What 32-bit arithmetic would find inside.
        ("4 GiB on", OutOfBounds, 1, |_, t| t.offset = (1 << 32) + 128),
        ("rows 2 GiB apart", OutOfBounds, 1, |_, t| (t.ne[1], t.nb[1]) = (3, 1 << 31)),
    ];
    for &(what, code, detail, change) in changes {
        let (mut header, mut tensors, ops) = sum();
        change(&mut header, &mut tensors[1]);
        bench.refuses_block(what, &program(&header, &tensors, &ops), Fault::new(code, detail));
    }
    let (header, tensors, ops) = sum();
    for (what, references, code, detail) in [
        ("one buffer twice", [(A, 0), (A, 0)], BufferInUse, A.0),
        ("no such buffer", [(A, 0), (BufferId(9), 0)], UnknownBuffer, 9),
        ("reference's rest", [(A, 0), (B, 5)], ReservedNotZero, 5),
    ] {
        let references = references.map(|(buffer, reserved)| BufferRef { buffer, reserved });
        let parts = [header.as_bytes(), references.as_bytes(), tensors.as_bytes(), ops.as_bytes()];
        bench.refuses_block(what, &parts.concat(), Fault::new(code, detail));
    }
}

pub fn ops_are_checked(bench: &mut Bench) {
    type Change = fn(&mut [TensorDesc; 4], &mut OpDesc);
    let changes: &[(&str, ErrorCode, u32, Change)] = &[
        ("opcode", UnknownOp, 999, |_, o| o.opcode = 999),
        ("no opcode", UnknownOp, 0, |_, o| o.opcode = 0),
        ("op's rest", ReservedNotZero, 7, |_, o| o.reserved2 = 7),
        ("parameters of an op without", BadParam, 15, |_, o| o.params[15] = 1),
        ("a parameter", BadParam, 0, |_, o| {
            (o.opcode, o.src[1]) = (Op::L2Norm.wire(), TensorIndex::NONE);
            o.params[0] = (-1f32).to_bits();
        }),
        ("tensor index", BadTensorIndex, 4, |_, o| o.src[0] = TensorIndex(4)),
        ("missing operand", BadOperand, 1, |_, o| o.src[1] = TensorIndex::NONE),
        ("one operand more", BadOperand, 2, |_, o| o.src[2] = TensorIndex(0)),
        ("missing output", BadOperand, DST, |_, o| o.dst[0] = TensorIndex::NONE),
        ("operand's type", BadType, 1, |t, _| t[1].dtype = DType::I32.wire()),
        ("output's type", BadType, DST, |t, _| t[2].dtype = DType::I32.wire()),
        ("operand's shape", BadShape, 1, |t, _| t[1].ne[0] = 3),
        ("operand's strides", BadStride, 1, |t, _| t[1].nb[0] = 8),
        ("output over itself", BadStride, DST, |t, _| t[2].nb[1] = 4),
        ("output over an operand", BadAlias, 1, |t, _| t[2].offset = 132),
        ("constant output", WriteToConst, DST, |t, _| t[2].flags = TensorFlags::CONST.bits()),
    ];
    for &(what, code, detail, change) in changes {
        let (header, mut tensors, mut ops) = sum();
        change(&mut tensors, &mut ops[0]);
        let fault = Fault { op: OpIndex(0), code, detail };
        bench.refuses_block(what, &program(&header, &tensors, &ops), fault);
    }
    // The second op is wrong: the first must not have run.
    let (header, tensors, mut ops) = sum();
    ops[1].opcode = 999;
    bench.write(B, 0, [1f32; 16].as_bytes());
    let fault = Fault { op: OpIndex(1), code: UnknownOp, detail: 999 };
    bench.refuses_block("second op", &program(&header, &tensors, &ops), fault);
    assert_eq!(bench.word(256), 0, "it ran");
}

/// A page that is never written.
#[repr(C, align(4096))]
struct Page([u8; 4096]);

static PAGE: Page = Page([9; 4096]);

/// [`PAGE`] as a device takes it.
#[derive(Clone, Copy)]
struct Constant;

// SAFETY: a static of a page, aligned to one; it is not writable, and no device is told that it is.
unsafe impl Memory for Constant {
    fn base(&self) -> NonNull<u8> {
        NonNull::from(&PAGE).cast()
    }

    fn len(&self) -> usize {
        PAGE.0.len()
    }

    fn writable(&self) -> bool {
        false
    }
}

impl Source for Constant {
    fn bytes(&self) -> u64 {
        PAGE.0.len() as u64
    }

    fn in_memory(&self) -> std::io::Result<Arc<dyn Memory>> {
        Ok(Arc::new(*self))
    }

    fn copy_to(&self, out: &mut [u8]) -> std::io::Result<()> {
        out.copy_from_slice(&PAGE.0);
        Ok(())
    }
}

pub fn read_only_memory_is_not_written(bench: &mut Bench) {
    let constant = bench.device.import(Arc::new(Constant)).unwrap();
    let copy = |from: u16, to: u16| {
        let tensors = [from, to].map(|buffer| TensorDesc { buffer, ..tensor(DType::I32, 8, [1; 4]) });
        let references = [B, constant.id].map(|buffer| BufferRef { buffer, reserved: 0 });
        let ops = [op(Op::Cpy, &[0], 1, &[])];
        [header(2, 1).as_bytes(), references.as_bytes(), tensors.as_bytes(), ops.as_bytes()].concat()
    };
    let fault = Fault { op: OpIndex(0), code: WriteToConst, detail: DST };
    bench.refuses_block("read-only buffer", &copy(0, 1), fault);
    let block = bench.block(&copy(1, 0));
    bench.ok(run(block));
    assert_eq!(bench.word(8), 0x0909_0909);
    bench.device.free(constant).unwrap();
}

/// Three ops, the second one with an id out of range: the first has run, the third has not, the answer says
/// which.
pub fn a_failing_op_is_named_and_ends_the_program(bench: &mut Bench) {
    let row = tensor(DType::F32, 256, [1; 4]);
    let table = tensor(DType::F32, 0, [1, 4, 1, 1]);
    let words = [128, 260, 264].map(|at| tensor(DType::I32, at, [1; 4]));
    let tensors = [table, row, words[0], words[1], words[2]];
    for (name, rows) in [("get", op(Op::GetRows, &[0, 2], 1, &[])), ("set", op(Op::SetRows, &[1, 2], 0, &[]))]
    {
        let ops = [op(Op::Cpy, &[2], 3, &[]), rows, op(Op::Cpy, &[2], 4, &[])];
        let block = bench.block(&program(&header(5, 3), &tensors, &ops));
        bench.step(0, 1);
        bench.ok(load(0, block));
        for id in [4, -1, i32::MIN, i32::MAX] {
            bench.write(B, 0, &[0; 512]);
            bench.set_word(128, id as u32);
            for message in [exec(0, registers()), run(block)] {
                let fault = Fault { op: OpIndex(1), code: BadRowIndex, detail: id as u32 };
                assert_eq!(bench.send(message), Err((Status::Failed, fault)), "{name} {id}");
            }
            assert_eq!([256, 260, 264].map(|at| bench.word(at)), [0, id as u32, 0], "{name} {id}");
        }
        bench.set_word(128, 3);
        bench.ok(exec(0, registers()));
        assert_eq!(bench.word(264), 3);
        bench.ok(unload(0));
    }
}

/// A maximum of numbers, one of which is none.
pub fn a_value_that_is_no_number_is_reported(bench: &mut Bench) {
    let tensors = [tensor(DType::F32, 0, [8, 1, 1, 1]), tensor(DType::I32, 256, [1; 4])];
    let block = bench.block(&program(&header(2, 1), &tensors, &[op(Op::Argmax, &[0], 1, &[])]));
    bench.step(0, 1);
    bench.ok(load(0, block));
    for damaged in [f32::NAN, f32::INFINITY] {
        bench.write(B, 0, &[0; 512]);
        bench.set_word(20, damaged.to_bits());
        let Err((status, fault)) = bench.send(exec(0, registers())) else { panic!("{damaged} was taken") };
        assert_eq!((status, fault.op, fault.code), (Status::Failed, OpIndex(0), NotFinite), "{damaged}");
    }
    bench.set_word(20, 1.0f32.to_bits());
    bench.ok(exec(0, registers()));
    assert_eq!(bench.word(256), 5);
    bench.ok(unload(0));
}

pub fn an_op_that_vtcm_cannot_hold_is_refused(bench: &mut Bench) {
    // 32 taps: 2 * 126 KiB of staging.
    let rows = |n, offset| tensor(DType::F32, offset, [1, n, 1, 1]);
    let x = TensorDesc { token_axis: 1, ..rows(4, 0) };
    let tensors = [x, rows(32, 128), rows(32, 256), TensorDesc { offset: 512, ..x }];
    let block = program(&header(4, 1), &tensors, &[op(Op::SsmConv, &[0, 1, 2], 3, &[])]);
    let fault = Fault { op: OpIndex(0), code: VtcmTooSmall, detail: 2 * 126 * 1024 };
    bench.refuses_block("32 taps", &block, fault);
}

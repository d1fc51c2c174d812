//! A session, message by message: every way in which each may be refused or fail, by name.

mod common;

use common::*;
use hexflash_abi::ErrorCode::*;
use hexflash_abi::message::{Message, Ping, Probe, Range, Run};
use hexflash_abi::program::TensorDesc;
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{ABI_VERSION, BufferId, DType, Fault, Fd, LAYOUT_HASH, Op, OpIndex, Seq, Status};
use hexflash_dsp::platform::host::HostPlatform;
use zerocopy::IntoBytes;

#[test]
fn ping_compares_builds() {
    with_host(|host| {
        let response = host.send(Message::Ping(Ping::OURS));
        assert_eq!(response.outcome(), Ok(()));
        let info = response.ping_info();
        assert_eq!((info.abi_version, info.layout_hash_low), (ABI_VERSION, LAYOUT_HASH as u32));
        assert_eq!((info.n_threads, info.vtcm_bytes), (1, VTCM as u32));
        assert_eq!((info.arch, info.arena_bytes), (0x73, ARENA as u32));
        host.refused(Message::Ping(Ping { magic: 1, ..Ping::OURS }), BadMagic, 1);
        host.refused(Message::Ping(Ping { abi_version: 9, ..Ping::OURS }), AbiVersion, ABI_VERSION);
        host.refused(Message::Ping(Ping { layout_hash: 9, ..Ping::OURS }), LayoutHash, LAYOUT_HASH as u32);
    });
}

#[test]
fn what_is_no_request_is_answered_too() {
    with_host(|host| {
        for len in [0, 1, 47, 49, 1000] {
            let response = host.session.handle(&vec![7; len]);
            assert_eq!(response.seq, Seq(u64::MAX));
            let fault = Fault::new(BadMessage, len as u32);
            assert_eq!(response.outcome(), Err((Status::Refused, fault)));
        }
        let mut request = unmap(A).encode(Seq(77));
        request.kind = 99;
        let outcome = host.session.handle(request.as_bytes()).outcome();
        assert_eq!(outcome, Err((Status::Refused, Fault::new(UnknownMessage, 99))));
        let mut request = unmap(A).encode(Seq(77));
        request.body[31] = 1;
        let outcome = host.session.handle(request.as_bytes()).outcome();
        assert_eq!(outcome, Err((Status::Refused, Fault::new(ReservedNotZero, 31))));
    });
}

#[test]
fn map_wants_a_free_id_and_memory_that_exists() {
    with_host(|host| {
        host.refused(map(BufferId(64), 1, SIZE, 0), UnknownBuffer, 64);
        host.refused(map(BufferId(u32::MAX), 1, SIZE, 0), UnknownBuffer, u32::MAX);
        host.refused(map(A, 1, SIZE, 2), ReservedNotZero, 2);
        host.refused(map(A, 3, SIZE, 0), MapFailed, 3);
        host.refused(map(A, -1, SIZE, 0), MapFailed, u32::MAX);
        host.refused(map(A, 1, 0, 0), MapFailed, 1);
        host.refused(map(A, 1, SIZE + 1, 0), MapFailed, 1);
        host.ok(map(A, 1, SIZE, 0));
        host.refused(map(A, 2, SIZE, 0), BufferInUse, A.0);
    });
}

/// The same memory under two ids would hide from validation that an output overlaps an input.
#[test]
fn memory_has_one_name_unless_nobody_writes_it() {
    with_host(|host| {
        host.ok(map(A, 1, SIZE, 0));
        host.refused(map(B, 1, SIZE, 0), BufferInUse, A.0);
        host.refused(map(B, 1, 128, 1), BufferInUse, A.0);
        host.ok(unmap(A));
        host.ok(map(A, 1, SIZE, 1));
        host.ok(map(B, 1, 128, 1));
        host.refused(map(BufferId(0), 1, 128, 0), BufferInUse, A.0);
        host.ok(unmap(A));
        host.refused(map(A, 1, 1, 0), BufferInUse, B.0);
        host.ok(unmap(B));
        host.ok(map(A, 1, SIZE, 0));
    });
}

#[test]
fn unmap_wants_a_mapped_buffer_that_no_program_uses() {
    with_maps(|host| {
        host.refused(unmap(BufferId(5)), UnknownBuffer, 5);
        host.refused(unmap(BufferId(64)), UnknownBuffer, 64);
        let block = host.block(&copies(0, 4));
        host.ok(load(9, block));
        host.refused(unmap(A), BufferBusy, 9);
        host.refused(unmap(B), BufferBusy, 9);
        host.ok(unload(9));
        host.ok(unmap(B));
        host.refused(unmap(B), UnknownBuffer, B.0);
        // The program's buffer is gone: it can be loaded no more.
        host.refused(load(9, block), UnknownBuffer, B.0);
        host.ok(unmap(A));
        host.refused(load(9, block), UnknownBuffer, A.0);
    });
}

#[test]
fn load_wants_a_free_id_and_a_range() {
    with_maps(|host| {
        let block = host.block(&copies(0, 4));
        host.refused(load(32, block), UnknownProgram, 32);
        host.ok(load(31, block));
        host.refused(load(31, block), ProgramInUse, 31);
        host.refused(load(0, Range { buffer: BufferId(7), ..block }), UnknownBuffer, 7);
        host.refused(load(0, range(SIZE, 1)), OutOfBounds, A.0);
        host.refused(load(0, Range { offset: u64::MAX, ..block }), OutOfBounds, A.0);
        host.refused(load(0, range(SIZE, 0)), BadMessage, 0);
        host.refused(load(0, Range { len: block.len - 1, ..block }), BadCount, block.len);
        host.refused(load(0, Range { len: block.len + 8, ..block }), BadCount, block.len);
        host.refused(load(0, Range { offset: block.offset + 4, ..block }), BadMagic, ABI_VERSION);
        host.ok(load(0, block));
    });
}

/// An empty block used to lie where the first program's block began, and to free that with itself.
#[test]
fn an_empty_load_leaves_other_programs_alone() {
    with_maps(|host| {
        host.step(0, 1);
        let block = host.block(&copies(0, 4));
        host.ok(load(0, block));
        for _ in 0..3 {
            host.refused(load(1, range(BLOCK, 0)), BadMessage, 0);
        }
        let other = host.block(&copies(0, 8));
        host.ok(load(1, other));
        host.memory[1].write(0, &5u32.to_le_bytes());
        host.ok(exec(0, registers()));
        assert_eq!([4, 8].map(|at| host.memory[1].word(at)), [5, 0]);
        host.ok(exec(1, registers()));
        assert_eq!(host.memory[1].word(8), 5);
    });
}

#[test]
fn a_loaded_program_is_a_copy() {
    with_maps(|host| {
        host.step(0, 1);
        host.memory[1].write(0, &5u32.to_le_bytes());
        let block = host.block(&copies(0, 4));
        host.ok(load(0, block));
        host.memory[0].write(BLOCK, &[0xff; 1024]);
        host.ok(exec(0, registers()));
        assert_eq!(host.memory[1].word(4), 5);
    });
}

#[test]
fn exec_and_unload_want_a_loaded_program() {
    with_maps(|host| {
        host.step(0, 1);
        for id in [0, 31, 32, u32::MAX] {
            host.refused(exec(id, registers()), UnknownProgram, id);
            host.refused(unload(id), UnknownProgram, id);
        }
        let block = host.block(&copies(0, 4));
        host.ok(load(3, block));
        host.ok(exec(3, registers()));
        host.ok(unload(3));
        host.refused(exec(3, registers()), UnknownProgram, 3);
        host.refused(unload(3), UnknownProgram, 3);
    });
}

#[test]
fn registers_are_a_block_of_their_size() {
    with_maps(|host| {
        host.step(0, 1);
        let block = host.block(&copies(0, 4));
        host.ok(load(0, block));
        for (bad, code, detail) in [
            (range(0, 63), OutOfBounds, A.0),
            (range(0, 65), OutOfBounds, A.0),
            (range(0, 0), BadCount, 0),
            (range(0, 65 * 64), BadCount, 65),
            (range(0, u32::MAX as usize - 63), BadCount, u32::MAX / 64),
            (range(2, 64), Misaligned, 2),
            (range(SIZE - 64, 128), OutOfBounds, A.0),
            (range(SIZE - 60, 64), OutOfBounds, A.0),
            (Range { buffer: BufferId(9), ..registers() }, UnknownBuffer, 9),
            (Range { offset: u64::MAX - 3, ..registers() }, OutOfBounds, A.0),
        ] {
            host.refused(exec(0, bad), code, detail);
            host.refused(Message::Run(Run { block, registers: bad }), code, detail);
        }
        host.memory[0].write(4, StepRegisters::step(0, 1).as_bytes());
        host.ok(exec(0, range(4, 64)));
    });
}

#[test]
fn registers_stay_within_the_programs_bounds() {
    with_maps(|host| {
        let block = host.block(&copies(0, 4));
        host.ok(load(0, block));
        host.memory[1].write(0, &5u32.to_le_bytes());
        for (n_past, n_tokens, register) in
            [(0, 0, 1), (0, 5, 1), (0, u32::MAX, 1), (7, 4, 0), (10, 1, 0), (u32::MAX, 1, 0)]
        {
            host.step(n_past, n_tokens);
            host.refused(exec(0, registers()), BadRegister, register);
            host.refused(Message::Run(Run { block, registers: registers() }), BadRegister, register);
        }
        let bounds = [(2, 5), (3, 1), (4, 1), (5, 4), (8, 3), (9, 1), (10, 5), (11, 2)];
        for (register, value) in bounds.into_iter().chain((13..16).map(|reserved| (reserved, 1))) {
            host.step(0, 1);
            host.memory[0].write(4 * register, &[value]);
            host.refused(exec(0, registers()), BadRegister, register as u32);
        }
        assert_eq!(host.memory[1].word(4), 0, "it ran");
        host.step(6, 4);
        host.ok(exec(0, registers()));
        assert_eq!(host.memory[1].word(4), 5);
    });
}

#[test]
fn read_only_buffers_are_not_written() {
    with_host(|host| {
        host.ok(map(A, 1, SIZE, 0));
        host.ok(map(B, 2, SIZE, 1));
        host.step(0, 1);
        let block = host.block(&copies(0, 4));
        let refused = Err((Status::Refused, Fault { op: OpIndex(0), code: WriteToConst, detail: 16 }));
        assert_eq!(host.send(load(0, block)).outcome(), refused);
        assert_eq!(host.send(Message::Run(Run { block, registers: registers() })).outcome(), refused);
        assert_eq!(host.memory[1].word(4), 0);
    });
}

#[test]
fn a_smaller_mapping_is_a_smaller_buffer() {
    with_host(|host| {
        host.ok(map(A, 1, SIZE, 0));
        host.ok(map(B, 2, 128, 0));
        let block = host.block(&copies(0, 124));
        host.ok(load(0, block));
        let block = host.block(&copies(0, 128));
        host.refused(load(1, block), OutOfBounds, 1);
    });
}

#[test]
fn the_arena_fills_up_and_empties() {
    with_maps(|host| {
        let block = host.block(&copies(0, 4));
        let loaded = (0..32).take_while(|&id| host.send(load(id, block)).outcome().is_ok()).count() as u32;
        assert!((3..32).contains(&loaded), "{loaded}");
        let Err((Status::Refused, fault)) = host.send(load(loaded, block)).outcome() else { panic!() };
        assert_eq!((fault.op, fault.code), (OpIndex::NONE, ProgramTooLarge));
        host.step(0, 1);
        let run = Message::Run(Run { block, registers: registers() });
        assert_eq!(host.send(run).outcome(), Err((Status::Refused, fault)));
        // Any one of them makes room for another, and what fails leaves nothing behind.
        for id in 0..loaded {
            host.ok(unload(id));
            for _ in 0..10 {
                host.ok(run);
                host.refused(load(id, Range { len: 64, ..block }), BadCount, block.len);
            }
            host.ok(load(id, block));
            host.ok(exec(id, registers()));
        }
    });
}

#[test]
fn run_keeps_nothing() {
    with_maps(|host| {
        host.step(0, 1);
        host.memory[1].write(0, &5u32.to_le_bytes());
        let block = host.block(&copies(0, 4));
        host.ok(Message::Run(Run { block, registers: registers() }));
        assert_eq!(host.memory[1].word(4), 5);
        (0..32).for_each(|id| host.refused(exec(id, registers()), UnknownProgram, id));
        // No program holds its buffers.
        host.ok(unmap(B));
    });
}

/// Three ops, the second one with an id out of range: the first has run, the third has not, the answer says
/// which.
#[test]
fn a_failing_op_is_named_and_ends_the_program() {
    with_maps(|host| {
        let table = TensorDesc { ne: [1, 4, 1, 1], nb: [4, 4, 16, 16], ..word(DType::F32, 1, 0) };
        let tensors = [
            table,
            word(DType::I32, 1, 128),
            word(DType::F32, 1, 256),
            word(DType::I32, 1, 260),
            word(DType::I32, 1, 264),
        ];
        let ops = [op(Op::Cpy, &[1], 3), op(Op::GetRows, &[0, 1], 2), op(Op::Cpy, &[1], 4)];
        let block = host.block(&program(&tensors, &ops));
        host.step(0, 1);
        host.ok(load(0, block));
        for id in [4, -1, i32::MIN, i32::MAX] {
            host.memory[1].write(128, &id.to_le_bytes());
            host.memory[1].write(256, &[0; 12]);
            for message in [exec(0, registers()), Message::Run(Run { block, registers: registers() })] {
                let fault = Fault { op: OpIndex(1), code: BadRowIndex, detail: id as u32 };
                assert_eq!(host.send(message).outcome(), Err((Status::Failed, fault)));
            }
            assert_eq!([256, 260, 264].map(|at| host.memory[1].word(at)), [0, id as u32, 0]);
        }
        host.memory[1].write(128, &3u32.to_le_bytes());
        host.ok(exec(0, registers()));
        assert_eq!(host.memory[1].word(264), 3);
    });
}

#[test]
fn an_op_that_vtcm_cannot_hold_is_refused_at_load() {
    with_maps(|host| {
        // 32 taps: 2 * 126 KiB of staging.
        let packed = |n| TensorDesc::packed(DType::F32, [1, n, 1, 1]).unwrap();
        let rows = |n, offset| TensorDesc { offset, buffer: 1, ..packed(n) };
        let x = TensorDesc { token_axis: 1, ..rows(4, 0) };
        let tensors = [x, rows(32, 128), rows(32, 256), TensorDesc { offset: 512, ..x }];
        let block = host.block(&program(&tensors, &[op(Op::SsmConv, &[0, 1, 2], 3)]));
        let fault = Fault { op: OpIndex(0), code: VtcmTooSmall, detail: 2 * 126 * 1024 };
        assert_eq!(host.send(load(0, block)).outcome(), Err((Status::Refused, fault)));
    });
}

/// A question about the first bytes of B.
fn question(question: u32, number: u32, len: usize) -> Probe {
    Probe { question, number, data: Range { buffer: B, len: len as u32, offset: 0 } }
}

#[test]
fn questions_want_a_number_and_bytes_that_go_with_them() {
    with_maps(|host| {
        let data = |offset, len| Range { buffer: B, len, offset };
        for (bad, code, detail) in [
            (question(0, 1, 512), BadParam, 0),
            (question(5, 1, 512), BadParam, 0),
            (question(2, 0, 512), BadParam, 1),
            (question(1, 5, 11 * 2048), BadParam, 1),
            (question(1, 2, 3 * 2048), BadParam, 2),
            (question(4, 1, 512), BadParam, 2),
            (Probe { data: data(4, 512), ..question(2, 1, 0) }, Misaligned, 4),
            (Probe { data: data(SIZE as u64 - 512, 1024), ..question(3, 1, 0) }, OutOfBounds, B.0),
            (Probe { data: data(u64::MAX - 127, 512), ..question(2, 1, 0) }, OutOfBounds, B.0),
            (
                Probe { data: Range { buffer: BufferId(9), ..data(0, 512) }, ..question(2, 1, 0) },
                UnknownBuffer,
                9,
            ),
        ] {
            host.refused(Message::Probe(bad), code, detail);
        }
        let before = host.everything();
        // No matrix unit, one thread, and no packets.
        for (probe, outcome) in [
            (question(1, 1, 3 * 2048), 2),
            (question(3, 4, 4096), 3),
            (Probe { question: 4, number: 1, ..Probe::default() }, 4),
        ] {
            let response = host.send(Message::Probe(probe));
            assert_eq!((response.outcome(), response.info), (Ok(()), [outcome, 0, 0, 0, 0, 0]));
        }
        host.memory[1].write(4096 - 256, &[7; 256]);
        let response = host.send(Message::Probe(question(2, 4, 4096)));
        assert_eq!((response.info, response.dma_bytes), ([1, 4, 0, 0, 0, 0], 4 * 4096));
        host.memory[1].write(4096 - 256, &[0; 256]);
        assert_eq!(host.everything(), before);
    });
}

#[test]
fn a_question_that_vtcm_cannot_hold_is_refused() {
    let bytes = 2 * VTCM;
    let platform = HostPlatform::new();
    let memory = Shared::new(bytes);
    // SAFETY: the memory begins at a multiple of 128, has so many bytes, and is dropped after the session.
    unsafe { platform.share(Fd(3), memory.base(), bytes as u64) };
    with_platform(&platform, &platform, |host| {
        host.ok(map(B, 3, bytes, 1));
        host.refused(Message::Probe(question(2, 1, VTCM + 256)), VtcmTooSmall, VTCM as u32 + 256);
        host.ok(Message::Probe(question(2, 1, VTCM)));
    });
}

/// Products of the tiles that were sent, on the diagonal: 1 + i times a power of two.
#[test]
fn the_matrix_unit_multiplies_what_it_is_sent() {
    let platform = HostPlatform::new().with_matrix_unit();
    with_platform(&platform, &platform, |host| {
        host.ok(map(A, 1, SIZE, 1));
        let half = |x: f32| half::f16::from_f32(x).to_bits();
        let mut tiles = [0_u16; 3 * 1024];
        for i in 0..10 {
            let k = 3 * i % 32;
            tiles[i / 2 * 64 + 2 * k + i % 2] = half(1.0 + i as f32);
            tiles[1024 + k / 2 * 64 + 2 * i + k % 2] = half(0.5);
            tiles[2048 + 2 * i] = half(4.0);
        }
        host.memory[0].write(0, tiles.as_bytes());
        let probe = Probe { question: 1, number: 1, data: range(0, 3 * 2048) };
        let response = host.send(Message::Probe(probe));
        assert_eq!((response.outcome(), response.info[0]), (Ok(()), 1));
        for (i, word) in response.info[1..].iter().enumerate() {
            let want = |i: usize| u32::from(half(2.0 * (1.0 + i as f32)));
            assert_eq!(*word, want(2 * i) | want(2 * i + 1) << 16, "{i}");
        }
    });
}

//! Messages that are refused: malformed ones, unknown ids, ranges and registers out of bounds.

use hexflash::device::DeviceError;
use hexflash_abi::ErrorCode::*;
use hexflash_abi::message::{Map, Message, Ping, Range, Request, Run, Unmap};
use hexflash_abi::program::{MAX_OPS, MAX_PROGRAMS, MAX_TENSORS};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{ABI_VERSION, BufferId, DType, Fault, Fd, LAYOUT_HASH, Op, OpIndex, Seq, Status};
use zerocopy::IntoBytes;

use super::bench::*;

fn map(buffer: u32, fd: i32, flags: u32) -> Message {
    Message::Map(Map { buffer: BufferId(buffer), fd: Fd(fd), size: 4096, flags, reserved: 0 })
}

fn unmap(buffer: u32) -> Message {
    Message::Unmap(Unmap { buffer: BufferId(buffer) })
}

pub fn ping_compares_builds(bench: &mut Bench) {
    bench.ok(Message::Ping(Ping::OURS));
    bench.refused(Message::Ping(Ping { magic: 1, ..Ping::OURS }), BadMagic, 1);
    bench.refused(Message::Ping(Ping { abi_version: 9, ..Ping::OURS }), AbiVersion, ABI_VERSION);
    bench.refused(Message::Ping(Ping { layout_hash: 9, ..Ping::OURS }), LayoutHash, LAYOUT_HASH as u32);
}

pub fn what_is_no_request_is_answered_too(bench: &mut Bench) {
    for len in [0, 1, 47, 49, 1000] {
        let fault = Fault::new(BadMessage, len as u32);
        assert_eq!(bench.send_bytes(&vec![7; len]), (Seq(u64::MAX), Err((Status::Refused, fault))));
    }
    type Change = fn(&mut Request);
    let changes: [(Change, _, _); 4] = [
        (|r| r.kind = 99, UnknownMessage, 99),
        (|r| r.kind = 0, UnknownMessage, 0),
        (|r| r.reserved = 3, ReservedNotZero, 3),
        (|r| r.body[31] = 1, ReservedNotZero, 31),
    ];
    for (change, code, detail) in changes {
        let mut request = unmap(5).encode(Seq(77));
        change(&mut request);
        let fault = Fault::new(code, detail);
        assert_eq!(bench.send_bytes(request.as_bytes()), (Seq(77), Err((Status::Refused, fault))));
    }
}

pub fn map_wants_a_free_id_and_memory_that_exists(bench: &mut Bench) {
    bench.refused(map(64, -1, 0), UnknownBuffer, 64);
    bench.refused(map(u32::MAX, -1, 0), UnknownBuffer, u32::MAX);
    bench.refused(map(5, -1, 2), ReservedNotZero, 2);
    bench.refused(map(A.0, -1, 0), BufferInUse, A.0);
    // No descriptor of this process is as large.
    for fd in [-1, i32::MIN, 1 << 30, i32::MAX] {
        bench.refused_for(map(5, fd, 0), MapFailed);
    }
    bench.refused(unmap(5), UnknownBuffer, 5);
}

pub fn unmap_wants_a_mapped_buffer_that_no_program_uses(bench: &mut Bench) {
    bench.refused(unmap(5), UnknownBuffer, 5);
    bench.refused(unmap(64), UnknownBuffer, 64);
    let block = bench.block(&copies(0, 4));
    bench.ok(load(9, block));
    for buffer in [A, B] {
        let error = bench.device.free(bench.buffer(buffer)).unwrap_err();
        let DeviceError::Fault { status: Status::Refused, fault, .. } = error else { panic!("{error}") };
        assert_eq!(fault, Fault::new(BufferBusy, 9));
    }
    bench.refused(unmap(B.0), BufferBusy, 9);
    bench.ok(unload(9));
    let third = bench.device.allocate(100).unwrap();
    let id = third.id.0;
    bench.device.free(third).unwrap();
    bench.refused(unmap(id), UnknownBuffer, id);
}

pub fn load_wants_a_free_id_and_a_range(bench: &mut Bench) {
    let block = bench.block(&copies(0, 4));
    bench.refused(load(32, block), UnknownProgram, 32);
    bench.ok(load(31, block));
    bench.refused(load(31, block), ProgramInUse, 31);
    bench.refused(load(0, Range { buffer: BufferId(7), ..block }), UnknownBuffer, 7);
    bench.refused(load(0, range(SIZE, 1)), OutOfBounds, A.0);
    bench.refused(load(0, Range { offset: u64::MAX, ..block }), OutOfBounds, A.0);
    // Beyond what a 32-bit address can say: the low word alone would be fine.
    bench.refused(load(0, Range { offset: block.offset + (1 << 32), ..block }), OutOfBounds, A.0);
    bench.refused(load(0, range(SIZE, 0)), BadMessage, 0);
    bench.refused(load(0, Range { len: block.len - 1, ..block }), BadCount, block.len);
    bench.refused(load(0, Range { len: block.len + 8, ..block }), BadCount, block.len);
    bench.refused(load(0, Range { offset: block.offset + 4, ..block }), BadMagic, ABI_VERSION);
    bench.ok(load(0, block));
}

pub fn exec_and_unload_want_a_loaded_program(bench: &mut Bench) {
    bench.step(0, 1);
    for id in [0, 31, 32, u32::MAX] {
        bench.refused(exec(id, registers()), UnknownProgram, id);
        bench.refused(unload(id), UnknownProgram, id);
    }
    bench.set_word(0, 5);
    let block = bench.block(&copies(0, 4));
    bench.ok(load(3, block));
    // The DSP has its own copy.
    bench.write(A, BLOCK, &[0xff; 1024]);
    bench.ok(exec(3, registers()));
    assert_eq!(bench.word(4), 5);
    bench.ok(unload(3));
    bench.refused(exec(3, registers()), UnknownProgram, 3);
}

pub fn registers_are_a_block_within_bounds(bench: &mut Bench) {
    bench.step(0, 1);
    bench.set_word(0, 5);
    let block = bench.block(&copies(0, 4));
    bench.ok(load(0, block));
    for (bad, code, detail) in [
        (range(0, 63), OutOfBounds, A.0),
        (range(0, 65), OutOfBounds, A.0),
        (range(2, 64), Misaligned, 2),
        (range(SIZE - 60, 64), OutOfBounds, A.0),
        (Range { buffer: BufferId(9), ..registers() }, UnknownBuffer, 9),
        (Range { offset: u64::MAX - 3, ..registers() }, OutOfBounds, A.0),
    ] {
        bench.refused(exec(0, bad), code, detail);
        bench.refused(Message::Run(Run { block, registers: bad }), code, detail);
    }
    for (n_past, n_tokens, register) in
        [(0, 0, 1), (0, 5, 1), (0, u32::MAX, 1), (7, 4, 0), (10, 1, 0), (u32::MAX, 1, 0)]
    {
        bench.step(n_past, n_tokens);
        bench.refused(exec(0, registers()), BadRegister, register);
        bench.refused(run(block), BadRegister, register);
    }
    // The budget and the number of the round may be anything, and an op checks the snapshot that it uses.
    let free = [Register::NLeft, Register::Round, Register::Snapshot].map(|register| register as usize);
    for register in (2..size_of::<StepRegisters>() / 4).filter(|register| !free.contains(register)) {
        bench.step(0, 1);
        bench.write(A, 4 * register, &[0xff; 4]);
        bench.refused(exec(0, registers()), BadRegister, register as u32);
    }
    assert_eq!(bench.word(4), 0, "it ran");
    bench.step(6, 4);
    bench.ok(exec(0, registers()));
    assert_eq!(bench.word(4), 5);
}

/// The largest programs that there are.
pub fn the_arena_fills_up_and_empties(bench: &mut Bench) {
    let tensors = vec![tensor(DType::I32, 0, [1; 4]); MAX_TENSORS - 1];
    let tensors = [tensors, vec![tensor(DType::I32, 4, [1; 4])]].concat();
    let ops = vec![op(Op::Cpy, &[0], MAX_TENSORS as u16 - 1, &[]); MAX_OPS];
    let block = bench.block(&program(&header(tensors.len(), ops.len()), &tensors, &ops));
    let mut loaded = 0;
    let full = loop {
        match bench.send(load(loaded, block)) {
            Ok(()) => loaded += 1,
            Err(full) => break full,
        }
    };
    assert!((2..MAX_PROGRAMS as u32).contains(&loaded), "{loaded}");
    assert_eq!((full.0, full.1.op, full.1.code), (Status::Refused, OpIndex::NONE, ProgramTooLarge));
    bench.step(0, 1);
    assert_eq!(bench.send(run(block)), Err(full));
    for id in 0..loaded {
        bench.ok(unload(id));
        bench.ok(run(block));
        bench.ok(load(id, block));
    }
    bench.ok(unload(0));
}

/// The host sees a full queue as an error of its own; what was sent before is answered, in order.
pub fn more_requests_than_the_queue_holds_are_kept_out(bench: &mut Bench) {
    let ping = Message::Ping(Ping::OURS);
    for _ in 0..3 {
        let mut sent = Vec::new();
        // Answers go unread: sooner or later both rings are full.
        let error = loop {
            match bench.device.submit(&ping) {
                Ok(seq) => sent.push(seq),
                Err(error) => break error,
            }
            assert!(sent.len() < 10_000);
        };
        assert!(matches!(error, DeviceError::QueueFull), "{error}");
        for seq in sent {
            let response = bench.device.wait(std::time::Duration::from_secs(60)).unwrap();
            assert_eq!((response.seq, response.outcome()), (seq, Ok(())));
        }
    }
}

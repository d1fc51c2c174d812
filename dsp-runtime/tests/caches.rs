//! What a session does to caches, in which order: it drops what the host may have written before it looks,
//! and writes back what the host will read before it answers.

mod common;

use std::ptr::NonNull;
use std::sync::Mutex;

use common::*;
use hexflash_abi::accept::{HEAD, REPORTS};
use hexflash_abi::message::Message;
use hexflash_abi::op::params;
use hexflash_abi::program::{TensorDesc, TensorFlags};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::sync::AtomicU32;
use hexflash_abi::{DType, Fault, Fd, Op, TensorIndex};
use hexflash_dsp::platform::host::HostPlatform;
use hexflash_dsp::platform::{CacheOp, Platform};

/// This machine, whose caches need no care, noting what care is taken.
struct Noting {
    host: HostPlatform,
    noted: Mutex<Vec<Note>>,
}

impl Platform for Noting {
    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        self.host.futex_wait(word, expected);
    }

    fn futex_wake(&self, word: &AtomicU32) {
        self.host.futex_wake(word);
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn map(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
        self.host.map(fd, size)
    }

    fn unmap(&self, fd: Fd, base: NonNull<u8>, size: u64) {
        self.host.unmap(fd, base, size);
    }

    fn cache(&self, op: CacheOp, base: *const u8, bytes: usize) {
        self.noted.lock().unwrap().push((op, base.addr(), bytes));
    }
}

/// An operation on the caches: what, and the bytes of A.
type Note = (CacheOp, usize, usize);

impl Noting {
    /// What is done to the caches of A while the session answers a message.
    fn during(&self, message: Message, host: &mut Host<'_, '_, '_, Self>) -> Vec<Note> {
        self.noted.lock().unwrap().clear();
        host.ok(message);
        let base = host.memory[0].base().addr().get();
        let noted = self.noted.lock().unwrap();
        noted.iter().map(|&(op, at, bytes)| (op, at - base, bytes)).collect()
    }
}

/// A session with A and B mapped.
fn with_notes(work: impl FnOnce(&mut Host<'_, '_, '_, Noting>, &Noting)) {
    let platform = Noting { host: HostPlatform::new(), noted: Mutex::default() };
    with_platform(&platform, &platform.host, |host| {
        host.ok(map(A, 1, SIZE, 0));
        host.ok(map(B, 2, SIZE, 0));
        work(host, &platform);
    });
}

#[test]
fn old_lines_go_first_and_new_ones_before_the_answer() {
    use CacheOp::{Flush, Invalidate};
    with_notes(|host, notes| {
        let at = |offset, ne, flags: TensorFlags| TensorDesc {
            offset,
            flags: flags.bits(),
            ..TensorDesc::packed(DType::I32, [ne, 1, 1, 1]).unwrap()
        };
        let (reads, writes) = (TensorFlags::HOST_READS, TensorFlags::HOST_WRITES);
        let tensors = [at(4096, 8, writes), at(5120, 8, TensorFlags::empty()), at(6144, 8, reads)];
        let block = host.block(&program(&tensors, &[op(Op::Cpy, &[0], 1), op(Op::Cpy, &[1], 2)]));
        assert_eq!(notes.during(load(0, block), host), [(Invalidate, BLOCK, block.len as usize)]);
        host.step(0, 1);
        // What stays on the DSP is left alone.
        assert_eq!(
            notes.during(exec(0, registers()), host),
            [(Invalidate, 0, 64), (Invalidate, 4096, 32), (Flush, 6144, 32)]
        );
    });
}

/// Registers that the DSP has advanced are written back, too.
#[test]
fn advanced_registers_are_written_back() {
    with_notes(|host, notes| {
        let at = |offset, ne| TensorDesc { offset, ..TensorDesc::packed(DType::I32, ne).unwrap() };
        // Best tokens, tokens, stops; reports and the anchor.
        let tensors = [
            TensorDesc { token_axis: 0, ..at(4096, [4, 1, 1, 1]) },
            TensorDesc { token_axis: 0, ..at(4224, [4, 1, 1, 1]) },
            at(4352, [1; 4]),
            at(4480, [HEAD as u32 + 4, REPORTS as u32, 1, 1]),
            at(5120, [1; 4]),
        ];
        let mut accept = op(Op::Accept, &[0, 1, 2], 3);
        accept.dst[1] = TensorIndex(4);
        accept.set_params(&params::Accept { block: 4, n_ctx: 10 });
        let block = host.block(&program(&tensors, &[accept]));
        host.ok(load(0, block));
        let round = StepRegisters::step(0, 2)
            .with(Register::NDraft, 1)
            .with(Register::DraftMax, 1)
            .with(Register::NLeft, 5);
        host.put(round);
        let noted = notes.during(exec(0, registers()), host);
        assert_eq!(noted, [(CacheOp::Invalidate, 0, 64), (CacheOp::Flush, 0, 64)]);
    });
}

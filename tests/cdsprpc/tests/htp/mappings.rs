//! A session that cannot map all its buffers at once: what a program does not use makes room for what it
//! uses.

use std::time::Duration;

use hexflash::device::{Buffer, Device, DeviceError};
use hexflash_abi::message::{Message, Range, Run};
use hexflash_abi::program::{BufferRef, OpDesc, ProgramHeader, TensorDesc, TensorFlags};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{DType, ErrorCode, Op, TensorIndex};
use zerocopy::IntoBytes;

use cdsprpc::standin::StandIn;

const BYTES: u64 = 40_000;
const BLOCK: usize = 256;
const TO: u64 = 4096;

/// A program that copies the word at 0 of one buffer to [`TO`] of another.
fn copy(from: &Buffer, to: &Buffer) -> Vec<u8> {
    let flags = (TensorFlags::HOST_WRITES | TensorFlags::HOST_READS).bits();
    let word = TensorDesc { flags, ..TensorDesc::packed(DType::I32, [1; 4]).unwrap() };
    let tensor = |buffer, offset| TensorDesc { offset, buffer, ..word };
    let op = OpDesc::new(Op::Cpy, &[TensorIndex(0)], &[TensorIndex(1)]);
    let header = ProgramHeader::new(4, 10).with_counts([2, 2, 1]).unwrap();
    let buffers = [from, to].map(|buffer| BufferRef { buffer: buffer.id, reserved: 0 });
    let tensors = [tensor(0, 0), tensor(1, TO)];
    [header.as_bytes(), buffers.as_bytes(), tensors.as_bytes(), op.as_bytes()].concat()
}

/// Runs the copy, with block and registers in `control`.
fn run(device: &mut dyn Device, control: &Buffer, from: &Buffer, to: &Buffer) -> Result<(), DeviceError> {
    let block = copy(from, to);
    control.memory.write(0, StepRegisters::step(0, 1).as_bytes());
    control.memory.write(BLOCK, &block);
    let range =
        |offset: usize, len: usize| Range { buffer: control.id, len: len as u32, offset: offset as u64 };
    let message = Run { block: range(BLOCK, block.len()), registers: range(0, size_of::<StepRegisters>()) };
    device.call(&Message::Run(message), Duration::from_secs(60)).map(drop)
}

fn word(buffer: &Buffer, at: u64) -> u32 {
    let mut word = [0; 4];
    buffer.memory.read(at as usize, &mut word);
    u32::from_le_bytes(word)
}

/// Seven buffers, of which four can be mapped: every pair of them meets, and nothing that either side wrote
/// is lost.
#[test]
fn buffers_that_are_not_in_use_make_room() {
    let standin = StandIn::new("vmem=170000");
    let mut device = standin.open().unwrap();
    let control = device.allocate(BYTES).unwrap();
    let buffers: Vec<_> = (0..6).map(|_| device.allocate(BYTES).unwrap()).collect();
    for (i, from) in buffers.iter().enumerate() {
        for (j, to) in buffers.iter().enumerate().filter(|&(j, _)| j != i) {
            let value = (100 * i + j) as u32;
            from.memory.write(0, &value.to_le_bytes());
            run(&mut device, &control, from, to).unwrap();
            assert_eq!(word(to, TO), value, "{i} to {j}");
        }
    }
    // What was written before a buffer made room, and was not read since, is there.
    let last: Vec<_> = buffers.iter().map(|buffer| word(buffer, TO)).collect();
    assert_eq!(last, [500, 501, 502, 503, 504, 405]);
    for buffer in buffers.into_iter().chain([control]) {
        device.free(buffer).unwrap();
    }
    drop(device);
    standin.is_clean();
}

/// What one program uses must fit; what does not is refused in words, and the session goes on.
#[test]
fn a_program_that_does_not_fit_is_refused() {
    let standin = StandIn::new("vmem=90000");
    let mut device = standin.open().unwrap();
    let control = device.allocate(4096).unwrap();
    let [a, b, c] = [60_000, 20_000, 60_000].map(|bytes| device.allocate(bytes).unwrap());
    let error = run(&mut device, &control, &a, &c).unwrap_err();
    let DeviceError::Fault { fault, .. } = &error else { panic!("{error}") };
    assert_eq!(fault.code, ErrorCode::MapFailed);
    assert!(error.to_string().contains("use a smaller model"), "{error}");
    for (from, to) in [(&a, &b), (&b, &c), (&c, &b), (&b, &a)] {
        run(&mut device, &control, from, to).unwrap();
    }
    drop((device, control, a, b, c));
    standin.is_clean();
}

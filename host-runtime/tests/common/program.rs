//! A recorded program, run once.

use std::time::Duration;

use hexflash::device::{Buffer, Device};
use hexflash::record::{Homes, Recorder};
use hexflash_abi::message::{Message, Range, Run};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::BufferInfo;
use zerocopy::IntoBytes;

/// Longest that it may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs what was recorded over `weights`, which are only read, and `data`.
///
/// # Panics
/// If the program is refused or fails.
pub fn run(device: &mut dyn Device, rec: Recorder, weights: &Buffer, data: &Buffer) {
    let homes = Homes { activations: data.id, kept_at: 0, handed: data.id };
    let info = |id| {
        let buffer = [weights, data].into_iter().find(|buffer| buffer.id == id)?;
        Some(BufferInfo { size: buffer.memory.len() as u64, read_only: id == weights.id })
    };
    let block = rec.finish().unwrap().block(0, &homes, info).unwrap();
    let at = block.len().next_multiple_of(64);
    let control = device.allocate(at as u64 + 64).unwrap();
    control.memory.write(0, &block);
    control.memory.write(at, StepRegisters::step(0, 1).as_bytes());
    let range = |len: usize, offset: usize| {
        let (len, offset) = (len as u32, offset as u64);
        Range { buffer: control.id, len, offset }
    };
    let run = Run { block: range(block.len(), 0), registers: range(size_of::<StepRegisters>(), at) };
    device.call(&Message::Run(run), PATIENCE).unwrap();
    device.free(control).unwrap();
}

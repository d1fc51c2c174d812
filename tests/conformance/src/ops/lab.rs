//! Where plans run: a device, a buffer for operands and one for the program.

use std::time::Duration;

use hexflash::device::{Buffer, Device, DeviceError, DeviceOptions, open};
use hexflash_abi::message::{Message, Range, Run};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::BufferInfo;
use zerocopy::IntoBytes;

use super::plan::Plan;

/// How long a program may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A device with memory.
pub struct Lab {
    device: Box<dyn Device>,
    data: Option<Buffer>,
    control: Option<Buffer>,
}

/// A buffer of at least `bytes`, in place of a smaller one.
fn room(device: &mut dyn Device, slot: &mut Option<Buffer>, bytes: usize) -> Result<Buffer, DeviceError> {
    if let Some(buffer) = slot.take_if(|b| b.memory.len() < bytes) {
        device.free(buffer)?;
    }
    match slot {
        Some(buffer) => Ok(buffer.clone()),
        None => {
            let buffer = device.allocate(bytes.next_power_of_two().max(1 << 20) as u64)?;
            Ok(slot.insert(buffer).clone())
        }
    }
}

impl Lab {
    /// Opens a device.
    ///
    /// # Errors
    /// What the device says.
    pub fn open(name: &str, threads: Option<usize>) -> Result<Self, DeviceError> {
        let device = open(name, &DeviceOptions { threads, ..DeviceOptions::default() })?;
        Ok(Self { device, data: None, control: None })
    }

    /// The device, for messages.
    pub fn description(&self) -> String {
        let info = self.device.info();
        format!("{} ({}), {} threads", info.name, info.description, info.threads)
    }

    /// Runs a plan's program in one `Run` message and returns the memory after it. What was not to be written is
    /// unchanged.
    ///
    /// # Errors
    /// The program is refused or fails, or writes where it must not; in words.
    pub fn run(&mut self, plan: &Plan, registers: &StepRegisters) -> Result<Vec<u8>, String> {
        self.try_run(plan, registers).map_err(|e| e.to_string()).and_then(|after| {
            let n_tokens = registers.get(hexflash_abi::registers::Register::NTokens);
            plan.strayed(&after, n_tokens).map_or(Ok(after), Err)
        })
    }

    fn try_run(
        &mut self,
        plan: &Plan,
        registers: &StepRegisters,
    ) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let device = &mut *self.device;
        let data = room(device, &mut self.data, plan.image.len())?;
        let recorded = plan.record(data.id).finish();
        let info = |b: &Buffer| BufferInfo { size: b.memory.len() as u64, read_only: false };
        let block = recorded.block(data.id, |id| (id == data.id).then(|| info(&data)))?;
        let registers_at = block.len().next_multiple_of(64);
        let control = room(device, &mut self.control, registers_at + 64)?;

        data.memory.write(0, &plan.image);
        control.memory.write(0, &block);
        control.memory.write(registers_at, registers.as_bytes());
        let range =
            |len: usize, offset: usize| Range { buffer: control.id, len: len as u32, offset: offset as u64 };
        let registers = range(size_of::<StepRegisters>(), registers_at);
        let run = Run { block: range(block.len(), 0), registers };
        device.call(&Message::Run(run), TIMEOUT)?;
        let mut after = vec![0; plan.image.len()];
        data.memory.read(0, &mut after);
        Ok(after)
    }
}

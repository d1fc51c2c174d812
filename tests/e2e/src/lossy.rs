//! A device that is lost again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hexflash::device::inproc::Inproc;
use hexflash::device::{self, Buffer, Device, DeviceError, DeviceInfo};
use hexflash_abi::Seq;
use hexflash_abi::message::{Message, MessageKind, Response};

/// A device that is lost after every so many steps.
pub struct Lossy {
    device: Inproc,
    between: u32,
    /// Steps until the next loss.
    left: u32,
    losses: Arc<AtomicU32>,
}

impl Lossy {
    /// `device`, lost after every `between` steps.
    pub fn new(device: Inproc, between: u32) -> Self {
        Self { device, between, left: between, losses: Arc::default() }
    }

    /// How often it was lost.
    pub fn losses(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.losses)
    }
}

impl Device for Lossy {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.device.allocate(bytes)
    }

    fn import(&mut self, source: Arc<dyn device::Source>) -> Result<Buffer, DeviceError> {
        self.device.import(source)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        self.device.free(buffer)
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        self.left = self.left.saturating_sub(u32::from(message.kind() == MessageKind::Exec));
        self.device.submit(message)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        let response = self.device.wait(timeout)?;
        if self.left > 0 {
            return Ok(response);
        }
        self.losses.fetch_add(1, Ordering::Relaxed);
        self.left = self.between;
        Err(DeviceError::Lost { reason: "the test took it away".to_owned() })
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.device.reset()
    }
}

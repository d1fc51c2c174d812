//! The client of a session, over whatever link: it numbers requests, gives ids to buffers, and greets.

use std::sync::Arc;
use std::time::Duration;

use hexflash_abi::forms::{Given, Operands};
use hexflash_abi::message::{Map, Message, Response, Unmap};
use hexflash_abi::{BufferId, ProgramId, Seq};
use zerocopy::IntoBytes;

use super::interface::handshake;
use super::link::{Link, Offer};
use super::sessions::{DeviceSession, not_mapped};
use super::slots::BufferIds;
use super::{Buffer, Device, DeviceError, DeviceInfo, DeviceOptions, KeptAccess, SharedMemory, Source};
use crate::record::Site;

/// A device: a link with a session behind it, and what is mapped there.
pub struct Client<L: Link> {
    link: L,
    info: DeviceInfo,
    buffers: BufferIds<L::Mapping>,
    /// Memory that the session may have mapped, although it did not say so: kept until the session ends.
    unsure: Vec<L::Mapping>,
    next_seq: u64,
}

impl<L: Link> Client<L> {
    /// Opens the device.
    ///
    /// # Errors
    /// A setting out of range, or a session that does not start, or not with our messages.
    pub fn open(options: &DeviceOptions) -> Result<Self, DeviceError> {
        Self::open_session(options, 0)
    }

    /// The device behind a link that is open, once they have exchanged the first message.
    pub(super) fn greeted((link, info): (L, DeviceInfo)) -> Result<Self, DeviceError> {
        let mut device = Self { link, info, buffers: BufferIds::new(), unsure: Vec::new(), next_seq: 0 };
        device.greet()?;
        Ok(device)
    }

    /// The link.
    #[cfg(target_os = "linux")]
    pub(super) fn link(&self) -> &L {
        &self.link
    }

    /// Sends bytes, which need not be a request: tests see what comes of that.
    pub(crate) fn submit_bytes(&mut self, request: &[u8]) -> Result<(), DeviceError> {
        self.link.send(request)
    }

    /// Exchanges the first message, a second time where the link has another way to try.
    fn greet(&mut self) -> Result<(), DeviceError> {
        let patience = self.link.first_patience();
        let ping = match handshake(self, patience) {
            Err(DeviceError::Timeout(_)) if self.link.tries_another_way() => {
                self.restart()?;
                let patience = self.link.first_patience();
                handshake(self, patience)?
            }
            outcome => outcome?,
        };
        self.info.learn(&ping);
        Ok(())
    }

    /// Has the session map memory, under the next id.
    fn map(&mut self, memory: L::Memory) -> Result<Buffer, DeviceError> {
        let id = self.buffers.free()?;
        let handle = L::handle(&memory);
        let Offer { name, bytes, flags, mapping } = self.link.offer(memory)?;
        let map = Map { buffer: id, fd: name, size: bytes, flags: flags.bits(), reserved: 0 };
        let quick = self.link.quick();
        let outcome = (self as &mut dyn Device).call(&Message::Map(map), quick);
        self.link.answered(name);
        match outcome {
            Ok(_) => self.buffers.take(id, mapping),
            Err(refused @ DeviceError::Fault { .. }) => return Err(refused),
            Err(error) => {
                self.unsure.push(mapping);
                return Err(error);
            }
        }
        Ok(Buffer { id, memory: handle })
    }

    /// Ends the session: serving first, then what is mapped there.
    fn close(&mut self) {
        self.link.stop();
        self.buffers.clear();
        self.unsure.clear();
    }

    /// Ends the session and starts another one, in which nothing is mapped.
    fn restart(&mut self) -> Result<(), DeviceError> {
        self.close();
        self.next_seq = 0;
        self.link.start()
    }
}

impl<L: Link> DeviceSession for Client<L> {
    fn open_session(options: &DeviceOptions, number: usize) -> Result<Self, DeviceError> {
        Self::greeted(L::open(options, number)?)
    }

    fn share(&mut self, of: &Self, id: BufferId) -> Result<(), DeviceError> {
        let mapping = of.buffers.get(id).ok_or_else(|| not_mapped(id))?;
        self.map(L::memory(mapping)).map(drop)
    }

    fn reserve(&mut self) -> Result<(), DeviceError> {
        self.buffers.reserve()
    }

    fn release(&mut self, id: BufferId) {
        self.buffers.give_back(id);
    }
}

impl<L: Link> Device for Client<L> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&mut self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.allocate_filled(bytes, &mut |_| {})
    }

    fn allocate_filled(
        &mut self,
        bytes: u64,
        fill: &mut dyn FnMut(&SharedMemory),
    ) -> Result<Buffer, DeviceError> {
        let memory = self.link.zeroed(bytes)?;
        fill(&L::handle(&memory));
        self.map(memory)
    }

    fn import(&mut self, source: Arc<dyn Source>) -> Result<Buffer, DeviceError> {
        let memory = self.link.holding(source)?;
        self.map(memory)
    }

    fn copies_imports(&self) -> bool {
        self.link.copies_imports()
    }

    fn name_ops(&mut self, _session: usize, program: ProgramId, sites: &[Site]) {
        self.link.name_ops(program, sites);
    }

    fn map_again(&mut self, memory: &SharedMemory) -> Result<Buffer, DeviceError> {
        let memory = self.link.recognise(memory)?;
        self.map(memory)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), DeviceError> {
        let unmap = Message::Unmap(Unmap { buffer: buffer.id });
        let quick = self.link.quick();
        (self as &mut dyn Device).call(&unmap, quick)?;
        self.buffers.give_back(buffer.id);
        Ok(())
    }

    fn submit(&mut self, message: &Message) -> Result<Seq, DeviceError> {
        let seq = Seq(self.next_seq);
        self.link.send(message.encode(seq).as_bytes())?;
        self.next_seq += 1;
        Ok(seq)
    }

    fn wait(&mut self, timeout: Duration) -> Result<Response, DeviceError> {
        self.link.receive(timeout)
    }

    fn kept_access(&self) -> KeptAccess {
        self.link.kept_access()
    }

    fn hexagon(&self) -> Option<u32> {
        self.link.hexagon()
    }

    fn form(&mut self, operands: &Operands) -> Result<Option<Given>, DeviceError> {
        self.link.form(operands)
    }

    fn patience(&self) -> Duration {
        self.link.patience()
    }

    fn reset(&mut self) -> Result<(), DeviceError> {
        self.restart()?;
        self.greet()
    }
}

impl<L: Link> Drop for Client<L> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;

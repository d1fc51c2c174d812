//! The buffers of a session: shared memory under ids, mapped while there is room.
//!
//! A process on the DSP can map a few GiB. When a new mapping finds no room, the mappings that were not used
//! for longest are dropped. The memory itself stays with the host, and a dropped buffer is mapped again when
//! a program uses it. All buffers of one message are mapped at the same time, and stay mapped until the next
//! message.

use core::ptr::NonNull;

use hexflash_abi::message::Range;
use hexflash_abi::program::MAX_BUFFERS;
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{BufferId, ErrorCode, Fault, Fd};

use crate::platform::Platform;

/// A buffer that the host has mapped, whether it has an address at present or not.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// First byte; `None` while it is not mapped.
    pub base: Option<NonNull<u8>>,
    /// What validation needs to know.
    pub info: BufferInfo,
    /// The shared memory behind it.
    pub fd: Fd,
    /// The turn of the table in which it was used last.
    used: u64,
}

/// The buffers of a session, by id.
#[derive(Debug)]
pub struct BufferTable {
    slots: [Option<Mapping>; MAX_BUFFERS],
    /// Counts the calls that use buffers. The buffers of the present turn stay mapped.
    turn: u64,
}

// SAFETY: only the base addresses of mappings keep the table from being `Send`. The table itself reads and
// writes nothing there.
unsafe impl Send for BufferTable {}
// SAFETY: `&BufferTable` gives addresses and sizes only, and reads and writes nothing there.
unsafe impl Sync for BufferTable {}

impl BufferTable {
    /// No buffers.
    pub const fn new() -> Self {
        Self { slots: [None; MAX_BUFFERS], turn: 0 }
    }

    /// The buffer under `id`, if there is one.
    pub fn get(&self, id: BufferId) -> Option<&Mapping> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Every buffer.
    fn iter(&self) -> impl Iterator<Item = (BufferId, &Mapping)> {
        self.slots.iter().enumerate().filter_map(|(i, m)| Some((BufferId(i as u32), m.as_ref()?)))
    }

    /// Whether `id` can take a new buffer.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownBuffer`] out of range, [`ErrorCode::BufferInUse`] if taken.
    pub fn vacant(&self, id: BufferId) -> Result<(), Fault> {
        match self.slots.get(id.0 as usize) {
            None => Err(Fault::new(ErrorCode::UnknownBuffer, id.0)),
            Some(Some(_)) => Err(Fault::new(ErrorCode::BufferInUse, id.0)),
            Some(None) => Ok(()),
        }
    }

    /// The id of a buffer that shares bytes with `fd`, mapped at `base`, where a program may write one of the
    /// two.
    ///
    /// Validation tells tensors apart by their buffers: the same memory under two ids would hide that an
    /// output overlaps an input, or that it is read-only.
    fn shares(&self, base: NonNull<u8>, fd: Fd, info: BufferInfo) -> Option<BufferId> {
        let range = |base: NonNull<u8>, size: u64| {
            (base.addr().get() as u64, (base.addr().get() as u64).saturating_add(size))
        };
        let (start, end) = range(base, info.size);
        let meets = |m: &Mapping| {
            let overlaps = m.base.is_some_and(|base| {
                let (other, other_end) = range(base, m.info.size);
                start < other_end && other < end
            });
            // What is not mapped has no address to compare.
            (overlaps || m.fd == fd) && !(info.read_only && m.info.read_only)
        };
        self.iter().find(|(_, m)| meets(m)).map(|(id, _)| id)
    }

    /// Maps a buffer under a vacant id.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownBuffer`], [`ErrorCode::BufferInUse`] with the id in the way,
    /// [`ErrorCode::MapFailed`].
    pub fn map(
        &mut self,
        platform: &impl Platform,
        id: BufferId,
        fd: Fd,
        info: BufferInfo,
    ) -> Result<(), Fault> {
        self.vacant(id)?;
        self.turn += 1;
        let base = self.map_somehow(platform, fd, info.size)?;
        if let Some(other) = self.shares(base, fd, info) {
            platform.unmap(fd, base, info.size);
            return Err(Fault::new(ErrorCode::BufferInUse, other.0));
        }
        self.slots[id.0 as usize] = Some(Mapping { base: Some(base), info, fd, used: self.turn });
        Ok(())
    }

    /// Takes the buffer out from under `id`, and drops its mapping.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownBuffer`].
    pub fn unmap(&mut self, platform: &impl Platform, id: BufferId) -> Result<(), Fault> {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::take);
        let mapping = slot.ok_or(Fault::new(ErrorCode::UnknownBuffer, id.0))?;
        if let Some(base) = mapping.base {
            platform.unmap(mapping.fd, base, mapping.info.size);
        }
        Ok(())
    }

    /// Makes sure that all of these buffers are mapped; they stay so until the next call.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownBuffer`]; [`ErrorCode::MapFailed`]: there is no room for all of them at once.
    pub fn ensure_mapped(
        &mut self,
        platform: &impl Platform,
        ids: impl Iterator<Item = BufferId> + Clone,
    ) -> Result<(), Fault> {
        self.turn += 1;
        let mut all_mapped = true;
        for id in ids.clone() {
            let slot = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut);
            let mapping = slot.ok_or(Fault::new(ErrorCode::UnknownBuffer, id.0))?;
            mapping.used = self.turn;
            all_mapped &= mapping.base.is_some();
        }
        if all_mapped {
            return Ok(());
        }
        for id in ids {
            let missing = self.get(id).filter(|mapping| mapping.base.is_none()).copied();
            if let Some(Mapping { fd, info, .. }) = missing {
                let base = self.map_somehow(platform, fd, info.size)?;
                if let Some(mapping) = &mut self.slots[id.0 as usize] {
                    mapping.base = Some(base);
                }
            }
        }
        Ok(())
    }

    /// Maps memory. While there is no room, drops the mapping that was not used for longest, and tries again.
    fn map_somehow<P: Platform>(&mut self, platform: &P, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
        loop {
            match platform.map(fd, size) {
                Err(_) if P::LIMITED && self.drop_oldest(platform) => {}
                outcome => return outcome,
            }
        }
    }

    /// Drops the mapping that was not used for longest; `false` if all that are mapped are in use.
    fn drop_oldest(&mut self, platform: &impl Platform) -> bool {
        let mapped = self.slots.iter_mut().flatten().filter(|m| m.base.is_some() && m.used < self.turn);
        let Some(oldest) = mapped.min_by_key(|mapping| mapping.used) else { return false };
        if let Some(base) = oldest.base.take() {
            platform.unmap(oldest.fd, base, oldest.info.size);
        }
        true
    }

    /// Bytes `offset..offset + len` of a buffer, which is mapped.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownBuffer`], [`ErrorCode::OutOfBounds`] with the buffer's id.
    pub fn range(&self, range: Range) -> Result<NonNull<u8>, Fault> {
        let id = range.buffer;
        let mapping = self.get(id).ok_or(Fault::new(ErrorCode::UnknownBuffer, id.0))?;
        let end = range.offset.checked_add(range.len.into());
        if end.is_none_or(|end| end > mapping.info.size) {
            return Err(Fault::new(ErrorCode::OutOfBounds, id.0));
        }
        // Callers hold it.
        let base = mapping.base.ok_or(Fault::new(ErrorCode::Internal, line!()))?;
        // SAFETY: `range.offset` is at most the size of the mapping, by the check above, and the mapping has
        // so many bytes from `base` on.
        Ok(unsafe { base.add(range.offset as usize) })
    }
}

impl Default for BufferTable {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;

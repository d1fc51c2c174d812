//! Which buffer ids are taken, and what keeps the buffer behind each.

use hexflash_abi::BufferId;
use hexflash_abi::program::MAX_BUFFERS;

use super::DeviceError;

/// Ids by number, the lowest free one first: a device that is started again gives the same ids in the same
/// order.
#[derive(Debug)]
pub(super) struct BufferIds<T>(Vec<IdState<T>>);

#[derive(Debug)]
enum IdState<T> {
    Free,
    /// Left out: another session uses the id.
    Reserved,
    Kept(T),
}

impl<T> BufferIds<T> {
    /// All free.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The id for the next buffer.
    ///
    /// # Errors
    /// [`DeviceError::TooManyBuffers`].
    pub(super) fn free(&self) -> Result<BufferId, DeviceError> {
        let free = self.0.iter().position(|slot| matches!(slot, IdState::Free)).unwrap_or(self.0.len());
        if free >= MAX_BUFFERS {
            return Err(DeviceError::TooManyBuffers { limit: MAX_BUFFERS });
        }
        Ok(BufferId(free as u32))
    }

    /// Takes the id that [`free`](Self::free) gave.
    pub(super) fn take(&mut self, id: BufferId, kept: T) {
        self.set(id, IdState::Kept(kept));
    }

    /// Leaves out the id that [`free`](Self::free) would give.
    ///
    /// # Errors
    /// As there.
    pub(super) fn reserve(&mut self) -> Result<(), DeviceError> {
        let id = self.free()?;
        self.set(id, IdState::Reserved);
        Ok(())
    }

    fn set(&mut self, id: BufferId, slot: IdState<T>) {
        let at = id.0 as usize;
        if at == self.0.len() {
            self.0.push(IdState::Free);
        }
        self.0[at] = slot;
    }

    /// What is kept for an id.
    pub(super) fn get(&self, id: BufferId) -> Option<&T> {
        match self.0.get(id.0 as usize)? {
            IdState::Kept(kept) => Some(kept),
            _ => None,
        }
    }

    /// Gives an id back, dropping what was kept for it.
    pub(super) fn give_back(&mut self, id: BufferId) {
        if let Some(slot) = self.0.get_mut(id.0 as usize) {
            *slot = IdState::Free;
        }
    }

    /// Gives all back.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_id_comes_next() {
        let mut slots = BufferIds::new();
        for n in 0..MAX_BUFFERS as u32 {
            let id = slots.free().unwrap();
            assert_eq!(id, BufferId(n));
            slots.take(id, n);
        }
        assert!(matches!(slots.free(), Err(DeviceError::TooManyBuffers { limit: MAX_BUFFERS })));
        slots.give_back(BufferId(7));
        slots.give_back(BufferId(3));
        assert_eq!(slots.free().unwrap(), BufferId(3));
        slots.take(BufferId(3), 300);
        assert_eq!(slots.free().unwrap(), BufferId(7));
        slots.take(BufferId(7), 7);
        assert_eq!((slots.get(BufferId(3)), slots.get(BufferId(7))), (Some(&300), Some(&7)));
        slots.give_back(BufferId(9));
        slots.reserve().unwrap();
        assert_eq!((slots.free().is_err(), slots.get(BufferId(9))), (true, None));
        slots.clear();
        assert_eq!((slots.free().unwrap(), slots.get(BufferId(3))), (BufferId(0), None));
    }
}

//! Which buffer ids are taken, and what keeps the buffer behind each.

use hexflash_abi::BufferId;
use hexflash_abi::program::MAX_BUFFERS;

use super::DeviceError;

/// Ids by number, the lowest free one first: a device that is started again gives the same ids in the same order.
#[derive(Debug)]
pub(super) struct Slots<T>(Vec<Option<T>>);

impl<T> Slots<T> {
    /// All free.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// The id for the next buffer.
    ///
    /// # Errors
    /// [`DeviceError::TooManyBuffers`].
    pub(super) fn free(&self) -> Result<BufferId, DeviceError> {
        let free = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if free >= MAX_BUFFERS {
            return Err(DeviceError::TooManyBuffers { limit: MAX_BUFFERS });
        }
        Ok(BufferId(free as u32))
    }

    /// Takes the id that [`free`](Self::free) gave.
    pub(super) fn take(&mut self, id: BufferId, kept: T) {
        let at = id.0 as usize;
        if at == self.0.len() {
            self.0.push(None);
        }
        self.0[at] = Some(kept);
    }

    /// Gives an id back, dropping what was kept for it.
    pub(super) fn give_back(&mut self, id: BufferId) {
        if let Some(slot) = self.0.get_mut(id.0 as usize) {
            *slot = None;
        }
    }

    /// Gives all back.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What is kept.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_id_comes_next() {
        let mut slots = Slots::new();
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
        assert_eq!(slots.iter().copied().filter(|&n| n >= 64).collect::<Vec<_>>(), [300]);
        slots.clear();
        assert_eq!((slots.free().unwrap(), slots.iter().count()), (BufferId(0), 0));
    }
}

//! What steps cost.

use std::time::Duration;

use hexflash_abi::program::PARTS;

/// What steps cost the host and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepStats {
    /// Steps since the last reset of the statistics.
    pub steps: u64,
    /// Messages sent for these steps.
    pub messages: u64,
    /// Host time for packing, submitting and reading; waiting excluded.
    pub host: Duration,
    /// Bytes that the device's DMA engines moved.
    pub dma_bytes: u64,
    /// Bytes that the host wrote into and read from shared memory.
    pub host_bytes: u64,
    /// What each [`Part`](crate::model::Part) cost the device, in its [`CostUnit`](crate::device::CostUnit).
    pub parts: [u64; PARTS],
}

impl StepStats {
    /// These, and what another device cost in the same steps.
    pub(crate) fn with(mut self, other: &Self) -> Self {
        self.messages += other.messages;
        self.host += other.host;
        self.dma_bytes += other.dma_bytes;
        self.host_bytes += other.host_bytes;
        self.parts.iter_mut().zip(other.parts).for_each(|(part, other)| *part += other);
        self
    }

    /// Costs that were added since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut parts = self.parts;
        parts.iter_mut().zip(before.parts).for_each(|(part, before)| *part = part.saturating_sub(before));
        Self {
            // Someone may have set them to zero meanwhile.
            steps: self.steps.saturating_sub(before.steps),
            messages: self.messages.saturating_sub(before.messages),
            host: self.host.saturating_sub(before.host),
            dma_bytes: self.dma_bytes.saturating_sub(before.dma_bytes),
            host_bytes: self.host_bytes.saturating_sub(before.host_bytes),
            parts,
        }
    }
}

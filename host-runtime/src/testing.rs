//! What tests reach for: a look into an engine's states, and devices that can be told nonsense.
//!
//! This is no part of the library's interface. It changes whenever the tests need something else.

use crate::device::{Client, Device, DeviceError, Link};
use crate::engine::Engine;
use crate::model::Region;

/// A device that can be told nonsense.
pub trait Target: Device {
    /// Sends bytes as they are.
    ///
    /// # Errors
    /// As [`submit`](Device::submit).
    fn submit_bytes(&mut self, request: &[u8]) -> Result<(), DeviceError>;
}

impl<L: Link> Target for Client<L> {
    fn submit_bytes(&mut self, request: &[u8]) -> Result<(), DeviceError> {
        Self::submit_bytes(self, request)
    }
}

/// The bytes of all parts of an engine's state: caches and recurrent states, as [`Engine::kept`] lays them
/// out.
pub fn state_bytes(engine: &Engine) -> Vec<u8> {
    let kept = engine.kept();
    let mut bytes = vec![0; kept.region_bytes(Region::State) as usize];
    for (part, &start) in engine.runtime().state_memory().zip(kept.parts()) {
        let start = start as usize;
        part.read(0, &mut bytes[start..][..part.len()]);
    }
    bytes
}

/// The residual stream at tap `tap` of [`EngineOptions::probes`](crate::engine::EngineOptions::probes) for
/// the `n` rows of the last prefill step, `{n_embd, n}`.
pub fn tap(engine: &Engine, tap: usize, n: usize) -> Vec<f32> {
    let width = engine.config().n_embd as usize;
    let mut values = vec![0.0f32; width * n];
    for (row, values) in values.chunks_exact_mut(width).enumerate() {
        engine.runtime().peek_tap(tap, engine.batch() as usize, row, values);
    }
    values
}

//! The stand-in for a DSP, in a process of a test.

use hexflash_dsp::dma::{Channel, Descriptor, Engine, Ring, StatusWord};
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::pool::MAX_WORKERS;

use crate::rpc::AeeError;

unsafe extern "C" {
    safe fn hexflash_standin_dmpoll() -> u32;
    safe fn hexflash_standin_dmpause() -> u32;
    fn hexflash_standin_dmlink(tail: u32, new: u32);
    /// Zeroed memory of so many bytes, a page's alignment, and an address of 32 bits; the same at every call.
    safe fn hexflash_standin_static(bytes: usize) -> *const u8;
    safe fn hexflash_standin_arch() -> u16;
    safe fn hexflash_standin_ticks() -> u64;
}

/// The architecture of the library that the stand-in plays.
pub(in super::super) fn arch() -> u16 {
    hexflash_standin_arch()
}

/// The vector unit of this processor.
pub(in super::super) fn isa() -> Isa {
    Isa::detect()
}

/// This processor has no instructions of HVX.
pub(in super::super) const FORMS: u32 = 0;

/// This processor has no instructions of HVX.
pub(in super::super) fn execute(_operands: &[u8], _given: &mut [u8]) -> Result<(), AeeError> {
    Err(AeeError::UNSUPPORTED)
}

/// Ticks of the timer of 19.2 MHz.
pub(super) fn ticks() -> u64 {
    hexflash_standin_ticks()
}

/// This processor is no Hexagon.
pub(in super::super) fn cycles() -> u32 {
    0
}

/// The engines that the stand-in plays.
struct PlayedDma;

impl Engine for PlayedDma {
    unsafe fn link(&self, tail: &'static Descriptor, new: &'static Descriptor) {
        if let (Some(tail), Some(new)) = (tail.address(), new.address()) {
            // SAFETY: both are addresses of descriptors that live for ever, and `new` describes a transfer
            // that may happen (the caller's contract, points 1 and 2).
            unsafe { hexflash_standin_dmlink(tail, new) };
        }
    }

    fn poll(&self) -> StatusWord {
        StatusWord(hexflash_standin_dmpoll())
    }

    fn pause(&self) {
        hexflash_standin_dmpause();
    }

    fn now_us(&self) -> u64 {
        super::now_ns() / 1000
    }
}

/// Every thread has an engine. Its descriptors lie where 32 bits reach, as all memory of a DSP does.
pub(in super::super) fn dma(worker: usize) -> Option<Channel> {
    let rings = hexflash_standin_static(size_of::<[Ring; MAX_WORKERS]>()).cast::<[Ring; MAX_WORKERS]>();
    // SAFETY: zeroed memory for them that is there for ever, aligned; zeros are rings, and all in them is
    // atomic.
    let rings: &'static [Ring; MAX_WORKERS] = unsafe { rings.as_ref()? };
    Some(Channel { engine: &PlayedDma, ring: rings.get(worker)? })
}

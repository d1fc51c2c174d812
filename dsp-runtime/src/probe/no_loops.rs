//! No loops: this processor has no packets.

use hexflash_abi::probe::Loop;

use crate::hvx::VectorPtr;

/// The packets of a loop that was run: none.
///
/// # Safety
/// Nothing is asked of the caller here; on Hexagon, four vectors at `place` are read.
pub(super) unsafe fn run(_kind: Loop, _place: VectorPtr) -> u32 {
    0
}

//! HMX, the matrix unit: products of tiles of 32 by 32 fp16 values.
//!
//! A [`Unit`] has 32 by 32 accumulators. It is cleared, given a table of scales, multiplies pairs of tiles,
//! and stores a tile of fp16 results; all of them lie in VTCM. A process has one unit, and one thread drives
//! it at a time. [`Matrix`] is the processor's unit on v73 and later (`processor.rs`), none in older Hexagon
//! code (`absent.rs`), and elsewhere a portable twin with the same arithmetic (`twin.rs`, after
//! [`hexflash_hvx_float::matrix`]). On a DSP, a session tests its unit before programs may use it
//! (`check.rs`). Products of prompt pieces do: see [`crate::kernels`] and [`crate::plan::Units`].
//!
//! Layouts. Tiles that are multiplied hold `A(r, k)` and `W(k, n)`, and what is stored `C(r, n)`, at half:
//!
//! | tile | half |
//! |---|---|
//! | A | `(r / 2) * 64 + 2 * k + r % 2` |
//! | W | `(k / 2) * 64 + 2 * n + k % 2` |
//! | C | `(r / 2) * 64 + 2 * n + r % 2` |
//!
//! Exponent 31 is one like any other here: a stored tile may have the codes of infinity and NaN where
//! numbers are 65536 or more.

#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv73")))]
pub mod absent;
pub mod check;
#[cfg(all(target_arch = "hexagon", target_feature = "hvxv73"))]
pub mod processor;
pub mod scales;
#[cfg(not(target_arch = "hexagon"))]
pub mod twin;
pub mod words;

use crate::hvx::VectorPtr;

/// What multiplies tiles here.
#[cfg(all(target_arch = "hexagon", target_feature = "hvxv73"))]
pub type Matrix = processor::Processor;
/// What multiplies tiles here.
#[cfg(all(target_arch = "hexagon", not(target_feature = "hvxv73")))]
pub type Matrix = absent::Absent;
/// What multiplies tiles here.
#[cfg(not(target_arch = "hexagon"))]
pub type Matrix = twin::Twin;

/// Whether [`Matrix`] is a unit or a twin of one: Hexagon code older than v73 has neither.
pub const IS_THERE: bool = cfg!(not(all(target_arch = "hexagon", not(target_feature = "hvxv73"))));

/// Bytes of a tile, and what its address is a multiple of.
pub const TILE_BYTES: usize = 2048;
/// Vectors of a tile.
pub const TILE_VECTORS: usize = TILE_BYTES / hexflash_abi::VECTOR_BYTES;
/// Tiles that are multiplied at once, at most.
pub const MOST_TILES: usize = 32;
/// 1.0 as a scale, without a bias: an entry of a table.
pub const NEUTRAL: u32 = 0x3c00;

/// The address of adjacent tiles: a multiple of [`TILE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilePtr(VectorPtr);

impl TilePtr {
    /// The first tile at `p` or after it.
    pub fn at_or_after(p: VectorPtr) -> Self {
        let before = p.get().addr() % TILE_BYTES;
        Self(p.skip((TILE_BYTES - before) % TILE_BYTES / hexflash_abi::VECTOR_BYTES))
    }

    /// The tiles from number `n` on.
    #[inline(always)]
    #[must_use]
    pub const fn skip(self, n: usize) -> Self {
        Self(self.0.skip(n * TILE_VECTORS))
    }

    /// The tile's vectors, sixteen each.
    #[inline(always)]
    pub const fn vectors(self) -> VectorPtr {
        self.0
    }
}

/// The matrix unit, as the thread that holds it sees it.
pub trait Unit {
    /// Takes the unit for this thread, which holds it already as far as its system is concerned.
    fn take() -> Self;

    /// Empties all accumulators.
    fn clear(&mut self);

    /// Loads a table: for each of 32 columns a word, whose low half is the scale of what is stored and whose
    /// high half is added to it afterwards, both fp16; then 32 words that are zero.
    ///
    /// # Safety
    /// 1. The 256 bytes at `table` lie in VTCM and are valid for reading.
    /// 2. This thread holds the unit.
    unsafe fn load_table(&mut self, table: TilePtr);

    /// Adds the products of so many pairs of adjacent tiles, 1 to [`MOST_TILES`]: for each row r and column n
    /// the sum over k of `A(r, k) * W(k, n)`.
    ///
    /// # Safety
    /// 1. `tiles` is 1 to [`MOST_TILES`].
    /// 2. As many tiles at `a` and at `w` lie in VTCM and are valid for reading.
    /// 3. This thread holds the unit.
    unsafe fn multiply(&mut self, a: TilePtr, w: TilePtr, tiles: usize);

    /// Stores the accumulators, scaled by the table and rounded to fp16, and empties them.
    ///
    /// # Safety
    /// 1. The tile at `c` lies in VTCM and is valid for writing.
    /// 2. This thread holds the unit.
    unsafe fn store(&mut self, c: TilePtr);

    /// Waits until all that was asked for is done: other threads may read stored tiles then, and write what
    /// was multiplied.
    fn finish(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_found_at_their_multiples() {
        #[repr(align(2048))]
        struct Memory([u8; 3 * TILE_BYTES]);
        let mut memory = Memory([0; 3 * TILE_BYTES]);
        let base = VectorPtr::new(memory.0.as_mut_ptr()).unwrap();
        assert_eq!(TilePtr::at_or_after(base).vectors(), base);
        for vector in 1..=16 {
            assert_eq!(TilePtr::at_or_after(base.skip(vector)).vectors(), base.skip(16), "{vector}");
        }
        assert_eq!(TilePtr::at_or_after(base).skip(2).vectors(), base.skip(32));
    }
}

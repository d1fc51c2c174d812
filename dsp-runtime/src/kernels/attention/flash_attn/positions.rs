//! Positions of caches and of masks.

use crate::hvx::Hvx;

/// Positions of a tile.
pub const TILE: usize = hexflash_abi::dtype::TILE_ROWS;

/// What a mask holds where a query sees nothing: -infinity, as bits of f16.
pub const HIDDEN: u16 = 0xfc00;

/// [`HIDDEN`] in all 64 halves of a vector.
#[inline(always)]
pub fn hidden_halves<H: Hvx>() -> H::B {
    H::bytes(H::splat_i((u32::from(HIDDEN) << 16 | u32::from(HIDDEN)) as i32))
}

/// Where caches of `n` positions have a position: KV rings start again at their end.
#[inline(always)]
pub const fn cache_position(position: usize, n: usize) -> usize {
    // The usual case, without a division, which is a function call on a DSP.
    if position < n { position } else { position % n }
}

//! Rows of x as matrix tiles of fp16.

use hexflash_abi::dtype::TILE_K;

use crate::hmx::TilePtr;
use crate::hvx::{Hvx, LANES};
use crate::kernels::shared::row_scale::load;

/// A row of x, and what it is multiplied with; `None` past the last one, for zeros.
pub type PackedRow = Option<(*const f32, f32)>;

/// Tiles of k that are packed together.
const AT_ONCE: usize = 8;

/// Writes rows 2 `pair` and 2 `pair` + 1 of the matrix tiles at `to`. `EXCHANGED` as in
/// the trait `Tiles` of products by the matrix unit.
///
/// # Safety
/// 1. Each row is aligned for f32 and valid for reading `k` floats.
/// 2. Matrix tiles for `k` values are valid for writing at `to`, and nobody else touches these rows of them;
///    `pair` is below 16.
#[inline(always)]
pub unsafe fn pack<H: Hvx, const EXCHANGED: bool>(rows: [PackedRow; 2], k: usize, to: TilePtr, pair: usize) {
    let scales = rows.map(|row| H::splat(row.map_or(0.0, |(_, scale)| scale)));
    if let [Some((first, _)), Some((second, _))] = rows {
        // SAFETY: the contract is the caller's.
        unsafe { pack_both::<H, EXCHANGED>([first, second], scales, k, to, pair) };
        return;
    }
    for tile in 0..k.div_ceil(TILE_K) {
        let at = tile * TILE_K;
        let mut values = [H::splat(0.0); 2];
        for (value, row) in values.iter_mut().zip(rows) {
            if let Some((x, _)) = row {
                // SAFETY: the row has `k - at` floats from `at` on, at least 1 because `tile` is below the
                // number of tiles (point 1 of the caller's contract).
                *value = unsafe { load::<H>(x.add(at), k - at) };
            }
        }
        // SAFETY: a tile has 16 vectors of two rows each, and `pair` is below 16; the tile is one of those
        // for `k` values (point 2 of the caller's contract).
        unsafe { to.skip(tile).vectors().store_b::<H>(pair, halves::<H, EXCHANGED>(values, scales)) };
    }
}

/// As [`pack`], of two rows that are there, times `scales`.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn pack_both<H: Hvx, const EXCHANGED: bool>(
    [first, second]: [*const f32; 2],
    scales: [H::F; 2],
    k: usize,
    to: TilePtr,
    pair: usize,
) {
    let mut done = 0;
    // Several at once, because the compiler loads nothing ahead of a store.
    while done + AT_ONCE <= k / TILE_K {
        let some: [_; AT_ONCE] = core::array::from_fn(|i| {
            let at = (done + i) * TILE_K;
            // SAFETY: both rows have `k / 32` whole vectors, and `done + i` is below that (point 1 of the
            // caller's contract).
            let values = unsafe { [H::load(first.add(at)), H::load(second.add(at))] };
            halves::<H, EXCHANGED>(values, scales)
        });
        for (i, v) in some.into_iter().enumerate() {
            // SAFETY: a tile has 16 vectors of two rows each, and `pair` is below 16; `done + i` is one of
            // the tiles for `k` values (point 2 of the caller's contract).
            unsafe { to.skip(done + i).vectors().store_b::<H>(pair, v) };
        }
        done += AT_ONCE;
    }
    for tile in done..k.div_ceil(TILE_K) {
        let at = tile * TILE_K;
        // SAFETY: both rows have `k - at` floats from `at` on, at least 1 because `tile` is below the number
        // of tiles (point 1 of the caller's contract). A tile has 16 vectors of two rows each, and `pair` is
        // below 16; the tile is one of those for `k` values (point 2).
        unsafe {
            let values = [load::<H>(first.add(at), k - at), load::<H>(second.add(at), k - at)];
            to.skip(tile).vectors().store_b::<H>(pair, halves::<H, EXCHANGED>(values, scales));
        }
    }
}

/// 32 values of two rows, times their scales, as f16.
#[inline(always)]
fn halves<H: Hvx, const EXCHANGED: bool>(values: [H::F; 2], scales: [H::F; 2]) -> H::B {
    let v = H::scaled_to_f16(values[0], values[1], scales);
    if EXCHANGED { exchange::<H>(v) } else { v }
}

/// Words 1 and 2 of every four change places.
#[inline(always)]
fn exchange<H: Hvx>(v: H::B) -> H::B {
    /// Ones in words 1 and 2 of every four.
    static INNER: [u32; LANES] = {
        let (mut mask, mut i) = ([0; LANES], 0);
        while i < LANES {
            mask[i] = if i % 4 == 1 || i % 4 == 2 { u32::MAX } else { 0 };
            i += 1;
        }
        mask
    };
    // SAFETY: `INNER` is an array of 32 words, which are 128 bytes.
    let inner = unsafe { H::load_b(INNER.as_ptr().cast()) };
    // Word i ^ 3 is the other one of the two.
    let turned = H::swap_lanes::<2>(H::swap_lanes::<1>(H::from_bits(H::words(v))));
    let (turned, outer) = (H::bytes(H::bits(turned)), H::xor_b(inner, H::bytes(H::splat_i(-1))));
    H::or_b(H::and_b(turned, inner), H::and_b(v, outer))
}

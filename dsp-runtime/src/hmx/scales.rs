//! Powers of two, a lane for each column: what the unit scales results with, and what takes that back.

use super::TilePtr;
use crate::hvx::{Hvx, LANES, VectorPtr};

/// 2^x as f16 in the low half of each word. x is -15, which gives zero, to 15.
#[inline(always)]
pub fn power_f16<H: Hvx>(x: H::I) -> H::I {
    H::shl_i::<10>(H::add_i(x, H::splat_i(15)))
}

/// 2^x as the product of two f16, each in both halves of words, because one may be too large for it. x is
/// from -14 to 30.
#[inline(always)]
pub fn powers_f16<H: Hvx>(x: H::I) -> [H::B; 2] {
    // The minimum of x and 15: the largest power that an f16 has.
    let first = H::sub_i(H::splat_i(0), H::max_i(H::sub_i(H::splat_i(0), x), H::splat_i(-15)));
    [first, H::sub_i(x, first)].map(|x| {
        let bits = power_f16::<H>(x);
        H::pair_halves(bits, bits)
    })
}

/// 2^x, and infinity where `code` is the exponent code of infinities and NaN of f16. x is -126 to 128, which
/// gives infinity, too.
#[inline(always)]
pub fn power_or_infinity<H: Hvx>(x: H::I, code: H::I) -> H::F {
    // 128 for code 31, and -128, which is below all others, for the rest.
    let beyond = H::shl_i::<8>(H::shr_i::<5>(H::add_i(code, H::splat_i(1))));
    let x = H::max_i(x, H::sub_i(beyond, H::splat_i(128)));
    H::from_bits(H::shl_i::<23>(H::add_i(x, H::splat_i(127))))
}

/// Writes a table ([`Unit::load_table`](super::Unit::load_table)) of scales 2^x, without a bias. x is -15,
/// which gives zero, to 15.
///
/// # Safety
/// Two vectors at `table` are valid for writing, and nobody else touches them.
#[inline(always)]
pub unsafe fn store_table<H: Hvx>(table: VectorPtr, x: H::I) {
    // SAFETY: these are two vectors, which are valid for writing (the caller's contract).
    unsafe {
        table.store_b::<H>(0, H::bytes(power_f16::<H>(x)));
        table.store_b::<H>(1, H::bytes(H::splat_i(0)));
    }
}

/// The words of a diagonal tile that are not zero: W(n, n) of two n in each vector.
static DIAGONAL: [[u32; LANES]; LANES / 2] = {
    let (mut mask, mut i) = ([[0; LANES]; LANES / 2], 0);
    while i < LANES / 2 {
        mask[i][2 * i] = 0x0000_ffff;
        mask[i][2 * i + 1] = 0xffff_0000;
        i += 1;
    }
    mask
};

/// Writes a matrix tile W with -2^x on the diagonal, a column per lane: what takes stored results away from
/// the sums that they were made of. x is -15, which gives zero, to 15.
///
/// # Safety
/// The tile is valid for writing, and nobody else touches it.
#[inline(always)]
pub unsafe fn store_minus_diagonal<H: Hvx>(tile: TilePtr, x: H::I) {
    let minus = H::or_i(power_f16::<H>(x), H::splat_i(0x8000));
    let minus = H::bytes(H::or_i(minus, H::shl_i::<16>(minus)));
    for (i, mask) in DIAGONAL.iter().enumerate() {
        // SAFETY: a mask is 32 words, which are 128 bytes; and this is one of the 16 vectors of the tile (the
        // caller's contract).
        unsafe {
            let mask = H::load_b(mask.as_ptr().cast());
            tile.vectors().store_b::<H>(i, H::and_b(minus, mask));
        }
    }
}

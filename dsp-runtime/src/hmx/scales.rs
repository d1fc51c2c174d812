//! Powers of two, a lane for each column: what the unit scales results with, and what takes that back.

use crate::hvx::{Hvx, VectorPtr};

/// 2^x as f16 in the low half of each word. x is -15, which gives zero, to 15.
#[inline(always)]
pub fn power_f16<H: Hvx>(x: H::I) -> H::I {
    H::shl_i::<10>(H::add_i(x, H::splat_i(15)))
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

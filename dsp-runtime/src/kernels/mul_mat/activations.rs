//! Reading rows of int8 activations as scalars, which `vrmpy` takes from a register.

use hexflash_abi::dtype::ActivationRow;

/// The four activations from `k`, packed.
///
/// # Safety
/// `x` is an activation row with these values; `k` is a multiple of 4.
#[inline(always)]
pub(super) unsafe fn packed(x: *const u8, k: usize) -> i32 {
    // SAFETY: the caller's promise; rows are aligned to vectors.
    unsafe { x.add(k).cast::<i32>().read() }
}

/// The scale of the 32 activations of block `block`.
///
/// # Safety
/// `x` is an activation row of `layout` with that block.
#[inline(always)]
pub(super) unsafe fn scale_of_32(x: *const u8, layout: ActivationRow, block: usize) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { x.add(layout.scales() + block * 4).cast::<f32>().read() }
}

/// Sum of the 16 activations of half-block `half`.
///
/// # Safety
/// `x` is an activation row of `layout` with that half-block.
#[inline(always)]
pub(super) unsafe fn sum_of_16(x: *const u8, layout: ActivationRow, half: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { x.add(layout.sums() + half * 4).cast::<i32>().read() }
}

/// Sum of the 32 activations of block `block`.
///
/// # Safety
/// `x` is an activation row of `layout` with that block.
#[inline(always)]
pub(super) unsafe fn sum_of_32(x: *const u8, layout: ActivationRow, block: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { sum_of_16(x, layout, 2 * block).wrapping_add(sum_of_16(x, layout, 2 * block + 1)) }
}

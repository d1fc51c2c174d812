//! Groups of F16 and F32 weights, on F32 activations. Even and odd k are summed apart and added at the end.

use hexflash_abi::VECTOR_BYTES;

use super::PARTIAL;
use crate::hvx::Hvx;

/// acc += W x over `groups` groups from value `k.0` of rows of `k.1` values: F16 weights.
///
/// # Safety
/// `weights` holds the groups; each `x` is a row of `k.1` floats.
#[inline(always)]
pub(super) unsafe fn f16<H: Hvx, const R: usize>(
    weights: *const u8,
    x: [*const f32; R],
    k: (usize, usize),
    groups: usize,
    acc: &mut [[H::F; PARTIAL]; R],
) {
    let end = k.1.min(k.0 + groups * 32);
    for i in (k.0..end).step_by(2) {
        // SAFETY: a vector per two k, inside the groups.
        let (even, odd) = H::widen_f16(unsafe { H::load_b(weights.add((i - k.0) / 2 * VECTOR_BYTES)) });
        for r in 0..R {
            // SAFETY: i < k.1.
            acc[r][0] = H::add(acc[r][0], H::mul(even, H::splat(unsafe { x[r].add(i).read() })));
            if i + 1 < end {
                // SAFETY: i + 1 < k.1.
                acc[r][1] = H::add(acc[r][1], H::mul(odd, H::splat(unsafe { x[r].add(i + 1).read() })));
            }
        }
    }
}

/// acc += W x over `groups` groups from value `k.0` of rows of `k.1` values: F32 weights.
///
/// # Safety
/// As [`f16`].
#[inline(always)]
pub(super) unsafe fn f32<H: Hvx, const R: usize>(
    weights: *const u8,
    x: [*const f32; R],
    k: (usize, usize),
    groups: usize,
    acc: &mut [[H::F; PARTIAL]; R],
) {
    let end = k.1.min(k.0 + groups * 32);
    for i in k.0..end {
        // SAFETY: a vector per k, inside the groups.
        let w = unsafe { H::load(weights.add((i - k.0) * VECTOR_BYTES).cast()) };
        for r in 0..R {
            // SAFETY: i < k.1.
            let x = H::splat(unsafe { x[r].add(i).read() });
            acc[r][i % 2] = H::add(acc[r][i % 2], H::mul(w, x));
        }
    }
}

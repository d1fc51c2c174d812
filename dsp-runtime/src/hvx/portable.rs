//! The back end that defines the others: plain loops over lanes.
//!
//! Its operations are not inlined: a vector is more than the registers of a processor without AVX2 hold, so
//! that little is gained, and kernels of hundreds of such loops would take minutes to compile.

use super::{BYTES, Hvx, LANES, Lookup, Numbers, math};

/// Arrays of lanes; the compiler vectorizes them for the target's baseline.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

/// 32 lanes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Lanes<T>(pub(super) [T; LANES]);

/// 128 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Bytes([u8; BYTES]);

#[inline(always)]
pub(super) fn map<T: Copy, U>(a: Lanes<T>, f: impl Fn(T) -> U) -> Lanes<U> {
    Lanes(core::array::from_fn(|i| f(a.0[i])))
}

#[inline(always)]
pub(super) fn zip<T: Copy, S: Copy, U>(a: Lanes<T>, b: Lanes<S>, f: impl Fn(T, S) -> U) -> Lanes<U> {
    Lanes(core::array::from_fn(|i| f(a.0[i], b.0[i])))
}

/// Folds the upper half onto the lower until one lane of N, a power of two, is left.
#[inline(always)]
pub(super) fn fold<T: Copy, const N: usize>(mut lanes: [T; N], f: impl Fn(T, T) -> T) -> T {
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = f(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

impl Hvx for Portable {
    type F = Lanes<f32>;
    type I = Lanes<i32>;
    type B = Bytes;
    type Lanes = Lanes<f32>;
    type Q = Lanes<f32>;
    type Everywhere = Self;

    // Its vectors are arrays: rows side by side gain nothing, and take long to compile.
    const REGISTERS: usize = 1;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: `p` is valid for reading 128 bytes, which is the array's size (the caller's contract); an
        // unaligned read takes any address.
        Lanes(unsafe { p.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_n(p: *const f32, n: usize) -> Self::F {
        let mut v = [0.0; LANES];
        // SAFETY: `p` is aligned and valid for reading `n` floats (the caller's contract, point 2), and `v`
        // holds 32, of which no more are copied.
        unsafe { core::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n.min(LANES)) };
        Lanes(v)
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: `p` is valid for writing 128 bytes, which is the array's size (the caller's contract); an
        // unaligned write takes any address.
        unsafe { p.cast::<[f32; LANES]>().write_unaligned(v.0) }
    }

    #[inline(always)]
    unsafe fn store_n(p: *mut f32, v: Self::F, n: usize) {
        // SAFETY: `p` is aligned and valid for writing `n` floats (the caller's contract, point 2), and `v`
        // holds 32, of which no more are copied.
        unsafe { core::ptr::copy_nonoverlapping(v.0.as_ptr(), p, n.min(LANES)) }
    }

    #[inline(always)]
    unsafe fn load_b(p: *const u8) -> Self::B {
        // SAFETY: `p` is valid for reading 128 bytes, which is the array's size (the caller's contract).
        Bytes(unsafe { p.cast::<[u8; BYTES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store_b(p: *mut u8, v: Self::B) {
        // SAFETY: `p` is valid for writing 128 bytes, which is the array's size (the caller's contract).
        unsafe { p.cast::<[u8; BYTES]>().write_unaligned(v.0) }
    }

    #[inline(always)]
    fn splat(x: f32) -> Self::F {
        Lanes([x; LANES])
    }

    #[inline(always)]
    fn splat_i(x: i32) -> Self::I {
        Lanes([x; LANES])
    }

    #[inline(always)]
    fn splat_b(x: u8) -> Self::B {
        Bytes([x; BYTES])
    }

    #[inline(never)]
    fn add(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a + b)
    }

    #[inline(never)]
    fn sub(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a - b)
    }

    #[inline(never)]
    fn mul(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a * b)
    }

    #[inline(never)]
    fn mul_q(a: Self::F, b: Self::F) -> Self::Q {
        Self::mul(a, b)
    }

    #[inline(never)]
    fn add_q(a: Self::Q, b: Self::Q) -> Self::Q {
        Self::add(a, b)
    }

    #[inline(never)]
    fn add_qf(a: Self::Q, b: Self::F) -> Self::Q {
        Self::add(a, b)
    }

    #[inline(always)]
    fn zero_q() -> Self::Q {
        Self::splat(0.0)
    }

    #[inline(always)]
    fn float(x: Self::Q) -> Self::F {
        x
    }

    #[inline(never)]
    fn div(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| a / b)
    }

    #[inline(never)]
    fn max(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(never)]
    fn min(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(never)]
    fn select_gt(a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        Lanes(core::array::from_fn(|i| if a.0[i] > b.0[i] { x.0[i] } else { y.0[i] }))
    }

    #[inline(never)]
    fn to_int(x: Self::F) -> Self::I {
        map(x, round)
    }

    #[inline(never)]
    fn to_float(x: Self::I) -> Self::F {
        map(x, |x| x as f32)
    }

    #[inline(never)]
    fn bits(x: Self::F) -> Self::I {
        map(x, |x| x.to_bits() as i32)
    }

    #[inline(never)]
    fn from_bits(x: Self::I) -> Self::F {
        map(x, |x| f32::from_bits(x as u32))
    }

    #[inline(never)]
    fn words(x: Self::B) -> Self::I {
        let (words, _) = x.0.as_chunks();
        Lanes(core::array::from_fn(|i| i32::from_le_bytes(words[i])))
    }

    #[inline(never)]
    fn bytes(x: Self::I) -> Self::B {
        let mut all = [0; BYTES];
        // One copy on machines whose words begin with their low byte.
        for (bytes, word) in all.as_chunks_mut().0.iter_mut().zip(x.0) {
            *bytes = word.to_le_bytes();
        }
        Bytes(all)
    }

    #[inline(never)]
    fn add_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_add)
    }

    #[inline(never)]
    fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_sub)
    }

    #[inline(never)]
    fn mul_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_mul)
    }

    #[inline(never)]
    fn max_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::max)
    }

    #[inline(never)]
    fn and_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a & b)
    }

    #[inline(never)]
    fn or_i(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |a, b| a | b)
    }

    #[inline(never)]
    fn shl_i<const N: i32>(a: Self::I) -> Self::I {
        map(a, |a| a << N)
    }

    #[inline(never)]
    fn shr_i<const N: i32>(a: Self::I) -> Self::I {
        map(a, |a| (a as u32 >> N) as i32)
    }

    #[inline(never)]
    fn sar_i<const N: i32>(a: Self::I) -> Self::I {
        map(a, |a| a >> N)
    }

    #[inline(never)]
    fn vrmpy(acc: Self::I, w: Self::B, a: i32) -> Self::I {
        let a = a.to_le_bytes().map(|byte| i32::from(byte as i8));
        Lanes(core::array::from_fn(|r| {
            (0..4).fold(acc.0[r], |sum, b| sum.wrapping_add(i32::from(w.0[4 * r + b]) * a[b]))
        }))
    }

    #[inline(never)]
    fn lookup(x: Self::B, table: &'static Lookup) -> Self::B {
        Bytes(x.0.map(|i| table.dense[usize::from(i & 15)]))
    }

    #[inline(always)]
    fn lanes(x: Self::F) -> Self::Lanes {
        x
    }

    #[inline(never)]
    fn lane(x: &Self::Lanes, i: usize) -> Self::F {
        Self::splat(x.0[i])
    }

    #[inline(never)]
    fn interleave(a: Self::F, b: Self::F) -> (Self::F, Self::F) {
        let lanes = |first: usize| {
            Lanes(core::array::from_fn(|i| if i % 2 == 0 { a.0[first + i / 2] } else { b.0[first + i / 2] }))
        };
        (lanes(0), lanes(LANES / 2))
    }

    // The trait has these as well, but inlined into every loop of a kernel.
    #[inline(never)]
    fn widen_f16(x: Self::B) -> (Self::F, Self::F) {
        math::widen_f16::<Self>(x)
    }

    #[inline(never)]
    fn lookup_f16(x: Self::B, table: &'static Numbers) -> [Self::B; 2] {
        math::lookup_f16::<Self>(x, table)
    }

    #[inline(never)]
    fn bytes_to_f16(x: Self::B) -> [Self::B; 2] {
        math::bytes_to_f16::<Self>(x)
    }

    #[inline(never)]
    fn mul_f16(a: Self::B, b: Self::B) -> Self::B {
        math::mul_f16::<Self>(a, b)
    }

    #[inline(never)]
    fn scaled_to_f16(low: Self::F, high: Self::F, scales: [Self::F; 2]) -> Self::B {
        math::scaled_to_f16::<Self>(low, high, scales)
    }

    #[inline(never)]
    fn mul_fractions_less_f16(a: Self::B, b: Self::B, less: Self::B) -> Self::B {
        math::mul_fractions_less_f16::<Self>(a, b, less)
    }

    #[inline(never)]
    fn sum(x: Self::F) -> f32 {
        fold(x.0, |a, b| a + b)
    }

    #[inline(never)]
    fn max_lane(x: Self::F) -> f32 {
        fold(x.0, |a, b| if a > b { a } else { b })
    }
}

/// Nearest integer, ties to even.
#[inline(always)]
pub(super) fn round(x: f32) -> i32 {
    // Adding 1.5 * 2^23 rounds to an integer, ties to even, in the current (only) rounding mode; beyond 2^22
    // floats need no such help.
    const MAGIC: f32 = 12_582_912.0;
    if x.abs() < 4_194_304.0 { ((x + MAGIC) - MAGIC) as i32 } else { round_large(x) }
}

/// Above 2^22 the ulp is at least one half: truncate, then look at the half that is left.
#[inline]
fn round_large(x: f32) -> i32 {
    let whole = x as i32;
    let rest = x - whole as f32;
    let odd = whole & 1 == 1;
    if rest.abs() > 0.5 || (rest.abs() == 0.5 && odd) {
        whole.wrapping_add(rest.signum() as i32)
    } else {
        whole
    }
}

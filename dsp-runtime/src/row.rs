//! Rows of floats in mapped memory: what most kernels read and write.
//!
//! A row is a pointer and a length that validation has vouched for. It is not a slice, because the host may
//! write the same memory at any time: values may be torn, but no access leaves the row.
//!
//! Kernels walk rows with plain loops over [`Row::vector`] and [`RowMut::set_vector`]: a closure would not be
//! compiled with the back end's instructions.

use core::marker::PhantomData;

use hexflash_abi::DType;

use crate::hvx::{BYTES, Hvx, LANES, math};
use crate::row_blocks;

/// A row of f32 to read. ALIGNED: it starts at a whole vector, which is loaded faster.
#[derive(Clone, Copy)]
pub struct Row<'m, const ALIGNED: bool = false> {
    ptr: *const f32,
    len: usize,
    memory: PhantomData<&'m f32>,
}

/// A row of f32 to write (and read). ALIGNED as in [`Row`].
pub struct RowMut<'m, const ALIGNED: bool = false> {
    ptr: *mut f32,
    len: usize,
    memory: PhantomData<&'m mut f32>,
}

impl<'m> Row<'m> {
    /// A row of `len` floats at `ptr`.
    ///
    /// # Safety
    /// `ptr` is aligned for f32 and valid for reading `len` floats for `'m`.
    #[inline(always)]
    pub unsafe fn new(ptr: *const f32, len: usize) -> Self {
        Self { ptr, len, memory: PhantomData }
    }

    /// The row, if it starts at a whole vector.
    #[inline(always)]
    pub fn aligned(self) -> Option<Row<'m, true>> {
        let aligned = self.ptr.addr().is_multiple_of(BYTES);
        aligned.then_some(Row { ptr: self.ptr, len: self.len, memory: PhantomData })
    }

    /// The rows, if all of them start at whole vectors.
    #[inline(always)]
    pub fn all_aligned<const N: usize>(rows: [Self; N]) -> Option<[Row<'m, true>; N]> {
        let aligned = rows.iter().all(|row| row.ptr.addr().is_multiple_of(BYTES));
        aligned.then(|| rows.map(|row| Row { ptr: row.ptr, len: row.len, memory: PhantomData }))
    }

    /// Part of the row.
    ///
    /// # Panics
    /// If the part leaves the row.
    #[inline(always)]
    pub fn part(self, at: usize, len: usize) -> Self {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: `at + len <= self.len` by the line above, so the part lies inside this row, which is
        // aligned for f32 and readable for `'m` (the contract of `new`).
        unsafe { Self::new(self.ptr.add(at), len) }
    }
}

impl Row<'_, true> {
    /// A row of `len` floats that starts at a whole vector.
    ///
    /// # Safety
    /// `ptr` is a multiple of 128 and valid for reading `len` floats for as long as the row lives.
    #[inline(always)]
    pub unsafe fn at_vector(ptr: *const f32, len: usize) -> Self {
        debug_assert!(ptr.addr().is_multiple_of(BYTES));
        Self { ptr, len, memory: PhantomData }
    }
}

impl<const ALIGNED: bool> Row<'_, ALIGNED> {
    /// Floats in the row.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether the row has no floats.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// First float's address.
    #[inline(always)]
    pub fn as_ptr(self) -> *const f32 {
        self.ptr
    }

    /// The float at `i`.
    ///
    /// # Panics
    /// If `i` is not in the row.
    #[inline(always)]
    pub fn get(self, i: usize) -> f32 {
        assert!(i < self.len);
        // SAFETY: `i < self.len` by the line above, and the row's `len` floats are readable (the contract of
        // `new`).
        unsafe { self.ptr.add(i).read() }
    }

    /// Vectors that hold the row, the last one perhaps in part.
    #[inline(always)]
    pub fn vectors(self) -> usize {
        self.len.div_ceil(LANES)
    }

    /// Vectors that the row has whole. What is left, a last one in part, is best handled outside of loops.
    #[inline(always)]
    pub fn whole(self) -> usize {
        self.len / LANES
    }

    /// Vector `v` of the row; lanes past its end are zero.
    ///
    /// # Panics
    /// If the row ends before the vector.
    #[inline(always)]
    pub fn vector<H: Hvx>(self, v: usize) -> H::F {
        let at = v * LANES;
        assert!(at < self.len);
        if self.len - at >= LANES {
            return self.full::<H>(v);
        }
        // SAFETY: `self.len - at` is at least 1 (the assertion above) and below 32 (the `if` above), and the
        // row has so many floats from `at` on; it is aligned for f32 and readable (the contract of `new`).
        unsafe { H::load_n(self.ptr.add(at), self.len - at) }
    }

    /// Vector `v` of the row, which is whole.
    ///
    /// # Panics
    /// If it is not.
    #[inline(always)]
    pub fn full<H: Hvx>(self, v: usize) -> H::F {
        assert!(v < self.whole());
        // SAFETY: `v` is below `whole`, by the line above.
        unsafe { self.full_unchecked::<H>(v) }
    }

    /// Vector `v` of the row, which is whole, for loops that a check would double.
    ///
    /// # Safety
    /// `v` is below [`whole`](Self::whole).
    #[inline(always)]
    pub unsafe fn full_unchecked<H: Hvx>(self, v: usize) -> H::F {
        debug_assert!(v < self.whole());
        // SAFETY: `v < self.whole()` (the caller's contract), so floats `v * 32` to `v * 32 + 31` lie inside
        // the row, which is readable (the contract of `new`). If ALIGNED, the row starts at a multiple of 128
        // (checked by `aligned`), and so does each of its vectors.
        unsafe {
            let p = self.ptr.add(v * LANES);
            if ALIGNED { H::load_aligned(p) } else { H::load(p) }
        }
    }
}

impl<'m> RowMut<'m> {
    /// A row of `len` floats at `ptr`.
    ///
    /// # Safety
    /// 1. `ptr` is aligned for f32 and valid for reading and writing `len` floats for `'m`.
    /// 2. No other thread of the DSP side touches the row while this value is used.
    #[inline(always)]
    pub unsafe fn new(ptr: *mut f32, len: usize) -> Self {
        Self { ptr, len, memory: PhantomData }
    }

    /// The row, if it starts at a whole vector.
    #[inline(always)]
    pub fn aligned(&mut self) -> Option<RowMut<'_, true>> {
        let aligned = self.ptr.addr().is_multiple_of(BYTES);
        aligned.then_some(RowMut { ptr: self.ptr, len: self.len, memory: PhantomData })
    }

    /// The row, to read.
    #[inline(always)]
    pub fn as_row(&self) -> Row<'_> {
        // SAFETY: `self.len` floats at `self.ptr` are readable for `'m` (the contract of `RowMut::new`), and
        // this row stays borrowed for as long as the result lives.
        unsafe { Row::new(self.ptr, self.len) }
    }

    /// Part of the row.
    ///
    /// # Panics
    /// If the part leaves the row.
    #[inline(always)]
    pub fn part(&mut self, at: usize, len: usize) -> RowMut<'_> {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: `at + len <= self.len` by the line above, so the part lies inside this row, which is
        // readable and writable and touched by no other thread of the DSP side (the contract of `new`). This
        // row is borrowed exclusively for as long as the part lives.
        unsafe { RowMut::new(self.ptr.add(at), len) }
    }

    /// Copies `x`, which may be this very row.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline(always)]
    pub fn copy<H: Hvx>(&mut self, x: Row<'_>) {
        assert!(x.len == self.len);
        match (self.aligned(), x.aligned()) {
            (Some(mut y), Some(x)) => y.copy_vectors::<H>(x),
            _ => self.copy_vectors::<H>(x),
        }
    }
}

impl RowMut<'_, true> {
    /// A row of `len` floats that starts at a whole vector.
    ///
    /// # Safety
    /// 1. `ptr` is a multiple of 128 and valid for reading and writing `len` floats for as long as the row
    ///    lives.
    /// 2. No other thread of the DSP side touches the row while this value is used.
    #[inline(always)]
    pub unsafe fn at_vector(ptr: *mut f32, len: usize) -> Self {
        debug_assert!(ptr.addr().is_multiple_of(BYTES));
        Self { ptr, len, memory: PhantomData }
    }
}

impl<const ALIGNED: bool> RowMut<'_, ALIGNED> {
    /// First float's address.
    #[inline(always)]
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.ptr
    }

    /// Floats in the row.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the row has no floats.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies a row of the same length.
    #[inline(always)]
    fn copy_vectors<H: Hvx>(&mut self, x: Row<'_, ALIGNED>) {
        for v in 0..x.whole() {
            self.set_full::<H>(v, x.full::<H>(v));
        }
        if x.whole() < x.vectors() {
            self.set_vector::<H>(x.whole(), x.vector::<H>(x.whole()));
        }
    }

    /// Writes the float at `i`.
    ///
    /// # Panics
    /// If `i` is not in the row.
    #[inline(always)]
    pub fn set(&mut self, i: usize, value: f32) {
        assert!(i < self.len);
        // SAFETY: `i < self.len` by the line above, and the row's `len` floats are writable (the contract of
        // `new`).
        unsafe { self.ptr.add(i).write(value) }
    }

    /// Writes vector `v` of the row; lanes past its end are dropped.
    ///
    /// # Panics
    /// If the row ends before the vector.
    #[inline(always)]
    pub fn set_vector<H: Hvx>(&mut self, v: usize, value: H::F) {
        let at = v * LANES;
        assert!(at < self.len);
        if self.len - at >= LANES {
            return self.set_full::<H>(v, value);
        }
        // SAFETY: `self.len - at` is at least 1 (the assertion above) and below 32 (the `if` above), and the
        // row has so many floats from `at` on; it is aligned for f32 and writable (the contract of `new`).
        unsafe { H::store_n(self.ptr.add(at), value, self.len - at) }
    }

    /// Writes vector `v` of the row, which is whole.
    ///
    /// # Panics
    /// If it is not.
    #[inline(always)]
    pub fn set_full<H: Hvx>(&mut self, v: usize, value: H::F) {
        assert!(v < self.len / LANES);
        // SAFETY: the row has vector `v` whole, by the line above.
        unsafe { self.set_full_unchecked::<H>(v, value) }
    }

    /// Writes vector `v` of the row, which is whole, for loops that a check would double.
    ///
    /// # Safety
    /// The row has vector `v` whole.
    #[inline(always)]
    pub unsafe fn set_full_unchecked<H: Hvx>(&mut self, v: usize, value: H::F) {
        debug_assert!(v < self.len / LANES);
        // SAFETY: the row has vector `v` whole (the caller's contract), so floats `v * 32` to `v * 32 + 31`
        // lie inside it, and it is writable (the contract of `new`). If ALIGNED, the row starts at a multiple
        // of 128 (checked by `aligned`), and so does each of its vectors.
        unsafe {
            let p = self.ptr.add(v * LANES);
            if ALIGNED { H::store_aligned(p, value) } else { H::store(p, value) }
        }
    }
}

/// Copies `n` adjacent elements: between F32 and F16 with conversion (to nearest, ties to even), between F32
/// and Q8_0 as [`row_blocks`] has it, otherwise as they are.
///
/// # Safety
/// 1. `src` is aligned for `from` and valid for reading `n` elements.
/// 2. `dst` is aligned for `to` and valid for writing `n` elements, and no other thread of the DSP side
///    touches them.
/// 3. The two do not overlap.
/// 4. Both types are row-major; unless one is F32 and the other F16 or Q8_0, they are equal. `n` is whole
///    blocks of both.
#[inline(always)]
pub unsafe fn convert<H: Hvx>(from: DType, src: *const u8, to: DType, dst: *mut u8, n: usize) {
    let (full, rest) = (n / LANES * LANES, n % LANES);
    match (from, to) {
        (DType::F32, DType::F16) => {
            let (src, dst) = (src.cast::<f32>(), dst.cast::<u16>());
            // SAFETY: `full + rest == n`, and each step takes 32 elements below `full` or the `rest` (1 to
            // 31) from `full` on: all are among the `n` elements that are aligned, readable at `src` (point
            // 1) and writable at `dst` (point 2).
            unsafe {
                for i in (0..full).step_by(LANES) {
                    math::store_f16::<H>(dst.add(i), H::load(src.add(i)));
                }
                if rest > 0 {
                    math::store_f16_n::<H>(dst.add(full), H::load_n(src.add(full), rest), rest);
                }
            }
        }
        (DType::F16, DType::F32) => {
            let (src, dst) = (src.cast::<u16>(), dst.cast::<f32>());
            // SAFETY: `full + rest == n`, and each step takes 32 elements below `full` or the `rest` (1 to
            // 31) from `full` on: all are among the `n` elements that are aligned, readable at `src` (point
            // 1) and writable at `dst` (point 2).
            unsafe {
                for i in (0..full).step_by(LANES) {
                    H::store(dst.add(i), math::load_f16::<H>(src.add(i)));
                }
                if rest > 0 {
                    H::store_n(dst.add(full), math::load_f16_n::<H>(src.add(full), rest), rest);
                }
            }
        }
        // SAFETY: `n` floats are aligned and readable at `src` (point 1), and as many values in whole blocks
        // (point 4) aligned and writable at `dst` (point 2).
        (DType::F32, DType::Q8_0) => unsafe {
            row_blocks::pack_row::<H::Everywhere>(src.cast(), dst, row_blocks::Q8_0.count(n));
        },
        // SAFETY: `n` values in whole blocks (point 4) are aligned and readable at `src` (point 1), and as
        // many floats aligned and writable at `dst` (point 2).
        (DType::Q8_0, DType::F32) => unsafe {
            row_blocks::unpack_row::<H::Everywhere>(src, dst.cast(), row_blocks::Q8_0.count(n));
        },
        // SAFETY: both types are equal here (point 4), and so are the bytes of their rows: `n` elements are
        // readable at `src` (point 1), writable at `dst` (point 2), and do not overlap (point 3).
        _ => unsafe { core::ptr::copy_nonoverlapping(src, dst, to.row_bytes(n)) },
    }
}

//! Rows of floats in mapped memory: what most kernels read and write.
//!
//! A row is a pointer and a length that validation has vouched for. It is not a slice, because the host may write
//! the same memory at any time: values may be torn, but no access leaves the row.

use core::marker::PhantomData;

use crate::hvx::{Hvx, LANES};

/// A row of f32 to read.
#[derive(Clone, Copy)]
pub struct Row<'m> {
    ptr: *const f32,
    len: usize,
    memory: PhantomData<&'m f32>,
}

/// A row of f32 to write (and read).
pub struct RowMut<'m> {
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
        // SAFETY: in range per the line above, readable per `new`.
        unsafe { self.ptr.add(i).read() }
    }

    /// Part of the row.
    ///
    /// # Panics
    /// If the part leaves the row.
    #[inline(always)]
    pub fn part(self, at: usize, len: usize) -> Self {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: inside this row.
        unsafe { Self::new(self.ptr.add(at), len) }
    }

    /// Vector `v` of the row; lanes past its end are zero.
    ///
    /// # Panics
    /// If the row ends before the vector.
    #[inline(always)]
    pub fn vector<H: Hvx>(self, v: usize) -> H::F {
        let at = v * LANES;
        assert!(at < self.len);
        // SAFETY: as many floats as the row has from `at`, at most a vector.
        unsafe {
            let p = self.ptr.add(at);
            if self.len - at >= LANES { H::load(p) } else { H::load_n(p, self.len - at) }
        }
    }

    /// Folds the row's vectors into `acc`; in a last vector that is not full, missing lanes are zero. `f` gets the
    /// number of valid lanes.
    #[inline(always)]
    pub fn fold<H: Hvx, A>(self, mut acc: A, mut f: impl FnMut(A, H::F, usize) -> A) -> A {
        let full = self.len / LANES;
        for i in 0..full {
            // SAFETY: vector i is inside the row.
            acc = f(acc, unsafe { H::load(self.ptr.add(i * LANES)) }, LANES);
        }
        let rest = self.len % LANES;
        if rest > 0 {
            // SAFETY: the last `rest` floats are inside the row.
            acc = f(acc, unsafe { H::load_n(self.ptr.add(full * LANES), rest) }, rest);
        }
        acc
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

    /// The row, to read.
    #[inline(always)]
    pub fn as_row(&self) -> Row<'_> {
        // SAFETY: this row's own memory.
        unsafe { Row::new(self.ptr, self.len) }
    }

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

    /// Writes the float at `i`.
    ///
    /// # Panics
    /// If `i` is not in the row.
    #[inline(always)]
    pub fn set(&mut self, i: usize, value: f32) {
        assert!(i < self.len);
        // SAFETY: in range per the line above, writable per `new`.
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
        // SAFETY: as many floats as the row has from `at`, at most a vector.
        unsafe {
            let p = self.ptr.add(at);
            if self.len - at >= LANES { H::store(p, value) } else { H::store_n(p, value, self.len - at) }
        }
    }

    /// y = f(x), vector by vector; `x` may be this very row.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline(always)]
    pub fn map<H: Hvx>(&mut self, x: Row<'_>, mut f: impl FnMut(H::F) -> H::F) {
        assert!(x.len == self.len);
        let full = self.len / LANES;
        for i in 0..full {
            let at = i * LANES;
            // SAFETY: vector i is inside both rows.
            unsafe { H::store(self.ptr.add(at), f(H::load(x.ptr.add(at)))) };
        }
        let rest = self.len % LANES;
        if rest > 0 {
            let at = full * LANES;
            // SAFETY: the last `rest` floats are inside both rows.
            unsafe { H::store_n(self.ptr.add(at), f(H::load_n(x.ptr.add(at), rest)), rest) };
        }
    }

    /// y = f(a, b), vector by vector; `a` or `b` may be this very row.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline(always)]
    pub fn zip<H: Hvx>(&mut self, a: Row<'_>, b: Row<'_>, mut f: impl FnMut(H::F, H::F) -> H::F) {
        assert!(a.len == self.len && b.len == self.len);
        let full = self.len / LANES;
        for i in 0..full {
            let at = i * LANES;
            // SAFETY: vector i is inside the three rows.
            unsafe { H::store(self.ptr.add(at), f(H::load(a.ptr.add(at)), H::load(b.ptr.add(at)))) };
        }
        let rest = self.len % LANES;
        if rest > 0 {
            let at = full * LANES;
            // SAFETY: the last `rest` floats are inside the three rows.
            unsafe {
                let y = f(H::load_n(a.ptr.add(at), rest), H::load_n(b.ptr.add(at), rest));
                H::store_n(self.ptr.add(at), y, rest);
            }
        }
    }
}

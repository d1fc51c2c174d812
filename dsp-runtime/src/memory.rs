//! Tensors, as validated views of mapped buffers.

use core::marker::PhantomData;
use core::ptr::NonNull;

use hexflash_abi::DType;
use hexflash_abi::program::{NO_TOKEN_AXIS, TensorDesc};

use crate::hvx::BYTES;
use crate::row::{Row, RowMut};

/// A tensor of a validated program, for one run: the token axis is cut to the step's `n_tokens`.
///
/// Invariant, established by validation: every element with indices below the *full* shape lies inside its
/// mapped buffer and is aligned for its type, for as long as the program is loaded. Shapes seen here are
/// never larger than that.
#[derive(Clone, Copy, Debug)]
pub struct View {
    base: *mut u8,
    /// Element type.
    pub dtype: DType,
    /// Elements per axis in this step.
    pub ne: [usize; 4],
    /// Bytes per step along an axis (see [`TensorDesc::nb`]).
    pub nb: [usize; 4],
}

// SAFETY: a view is an address range. Rows and elements are written through unsafe functions only, whose
// callers answer for other threads, and what is read is memory that the host may change at any time anyway.
unsafe impl Send for View {}
// SAFETY: `&View` gives no more than a copy of the view does: addresses, rows to read, and unsafe functions
// whose callers answer for other threads.
unsafe impl Sync for View {}

impl View {
    /// The view of `tensor` in the buffer that starts at `base`.
    ///
    /// # Safety
    /// 1. A buffer is mapped at `base`, a multiple of 128, and the mapping outlives the view.
    /// 2. `tensor` was validated against a buffer of that size, and `dtype` is its type.
    pub unsafe fn new(base: NonNull<u8>, tensor: &TensorDesc, dtype: DType, n_tokens: u32) -> Self {
        let mut ne = tensor.ne.map(|n| n as usize);
        if tensor.token_axis != NO_TOKEN_AXIS {
            let axis = usize::from(tensor.token_axis);
            ne[axis] = ne[axis].min(n_tokens as usize);
        }
        // SAFETY: the tensor, and so its first byte at `offset`, lies inside the buffer that is mapped at
        // `base` (the caller's contract).
        let base = unsafe { base.as_ptr().add(tensor.offset as usize) };
        Self { base, dtype, ne, nb: tensor.nb.map(|n| n as usize) }
    }

    /// Rows: everything but axis 0.
    pub fn rows(&self) -> usize {
        self.ne[1] * self.ne[2] * self.ne[3]
    }

    /// The same elements in fewer and longer rows: of F32 views of one shape, as many of the first axes
    /// become one as have adjacent elements in all of them. For kernels to which it does not matter where a
    /// row ends.
    pub fn joined<const N: usize>(mut views: [Self; N]) -> [Self; N] {
        let shape = views.first().map(|view| view.ne);
        let alike = views.iter().all(|view| view.dtype == DType::F32 && Some(view.ne) == shape);
        let adjacent = |view: &Self| view.ne[1] == 1 || view.nb[1] == view.ne[0] * view.nb[0];
        while alike && views.iter().any(|view| view.rows() != 1) && views.iter().all(adjacent) {
            for view in &mut views {
                let ([n0, n1, n2, n3], [b0, _, b2, b3]) = (view.ne, view.nb);
                // Element i0 of row i1 is element `i1 * n0 + i0` of the joined row, at the same address.
                (view.ne, view.nb) = ([n0 * n1, n2, n3, 1], [b0, b2, b3, b3]);
            }
        }
        views
    }

    /// Elements.
    pub fn elements(&self) -> usize {
        self.ne[0] * self.rows()
    }

    /// Row number `r` as indices of axes 1, 2 and 3.
    #[inline]
    pub fn unravel(&self, r: usize) -> [usize; 3] {
        // Without a division, which is a function call on a DSP.
        if r < self.ne[1] {
            return [r, 0, 0];
        }
        let (i1, rest) = (r % self.ne[1], r / self.ne[1]);
        [i1, rest % self.ne[2], rest / self.ne[2]]
    }

    /// The F32 rows `first..first + n`, checked once.
    ///
    /// # Panics
    /// If the view has not as many, or is not F32 with adjacent elements.
    #[inline(always)]
    pub fn rows_from(&self, first: usize, n: usize) -> impl Iterator<Item = Row<'_>> {
        let len = self.ne[0];
        // SAFETY: `Walk::new` has checked that the view is F32 with adjacent elements and has `n` rows from
        // `first` on, and `Walk` gives the addresses of these. A row of `ne[0]` floats lies inside the buffer
        // and is aligned for f32 (the view's invariant, which validation established).
        Walk::new(self, first, n).map(move |at| unsafe { Row::new(at.cast(), len) })
    }

    /// The F32 rows `first..first + n`, to write.
    ///
    /// # Safety
    /// No other worker touches these rows while the values live.
    ///
    /// # Panics
    /// As [`rows_from`](Self::rows_from).
    #[inline(always)]
    pub unsafe fn rows_mut_from(&self, first: usize, n: usize) -> impl Iterator<Item = RowMut<'_>> {
        let len = self.ne[0];
        // SAFETY: `Walk::new` has checked that the view is F32 with adjacent elements and has `n` rows from
        // `first` on, and `Walk` gives the addresses of these. A row of `ne[0]` floats lies inside the buffer
        // and is aligned for f32 (the view's invariant). No other worker touches these rows (the caller's
        // contract).
        Walk::new(self, first, n).map(move |at| unsafe { RowMut::new(at.cast(), len) })
    }

    /// The F32 rows `first..first + n`, if they are neighbours on axis 1 and each starts at a whole vector.
    ///
    /// # Panics
    /// As [`rows_from`](Self::rows_from).
    #[inline(always)]
    pub fn lines(&self, first: usize, n: usize) -> Option<Lines<'_>> {
        let Walk { at, indices, .. } = Walk::new(self, first, n);
        let aligned = (at.addr() | self.nb[1]).is_multiple_of(BYTES);
        let lines = Lines { at, len: self.ne[0], rows: n, stride: self.nb[1], view: PhantomData };
        (aligned && n <= self.ne[1] - indices[0]).then_some(lines)
    }

    /// The view with axes 1 and 2 exchanged: the same rows in another order.
    ///
    /// # Panics
    /// If rows are not apart from each other, as those of tiled types.
    #[must_use]
    pub fn exchanged(mut self) -> Self {
        assert!(self.dtype.tile_group().is_none());
        self.ne.swap(1, 2);
        self.nb.swap(1, 2);
        self
    }

    /// Address of the row (or, for tiled types, of the 32-row strip) at these indices.
    ///
    /// # Panics
    /// If an index is out of range.
    #[inline]
    pub fn at(&self, i: [usize; 3]) -> *mut u8 {
        let rows = if self.dtype.tile_group().is_some() {
            self.ne[1].div_ceil(hexflash_abi::dtype::TILE_ROWS)
        } else {
            self.ne[1]
        };
        assert!(i[0] < rows && i[1] < self.ne[2] && i[2] < self.ne[3]);
        self.base.wrapping_add(i[0] * self.nb[1] + i[1] * self.nb[2] + i[2] * self.nb[3])
    }

    /// The F32 row at indices of axes 1 to 3; its elements must be adjacent.
    ///
    /// # Panics
    /// If an index is out of range, or the tensor is not F32 with adjacent elements.
    #[inline]
    pub fn row(&self, i: [usize; 3]) -> Row<'_> {
        assert!(self.dtype == DType::F32 && self.nb[0] == 4);
        // SAFETY: `at` has checked the indices, so the row's `ne[0]` adjacent floats lie inside the buffer
        // and are aligned for f32 (the view's invariant, which validation established).
        unsafe { Row::new(self.at(i).cast(), self.ne[0]) }
    }

    /// The F32 row at indices of axes 1 to 3, to write.
    ///
    /// # Safety
    /// No other worker touches the row while the value lives: each row is claimed by one worker.
    ///
    /// # Panics
    /// As [`row`](Self::row).
    #[inline]
    pub unsafe fn row_mut(&self, i: [usize; 3]) -> RowMut<'_> {
        assert!(self.dtype == DType::F32 && self.nb[0] == 4);
        // SAFETY: `at` has checked the indices, so the row's `ne[0]` adjacent floats lie inside the buffer
        // and are aligned for f32 (the view's invariant). No other worker touches the row (the caller's
        // contract).
        unsafe { RowMut::new(self.at(i).cast(), self.ne[0]) }
    }

    /// Floats `at..at + len` of the F32 row at indices of axes 1 to 3, to write.
    ///
    /// # Safety
    /// No other worker touches these floats while the value lives; the rest of the row may be others'.
    ///
    /// # Panics
    /// As [`row`](Self::row), and if the part leaves the row.
    #[inline]
    pub unsafe fn part_mut(&self, i: [usize; 3], at: usize, len: usize) -> RowMut<'_> {
        assert!(self.dtype == DType::F32 && self.nb[0] == 4);
        assert!(at <= self.ne[0] && len <= self.ne[0] - at);
        // SAFETY: `at` has checked the indices, so the row's `ne[0]` adjacent floats lie inside the buffer
        // and are aligned for f32 (the view's invariant), and floats `at..at + len` are among them by the
        // line above. No other worker touches these (the caller's contract).
        unsafe { RowMut::new(self.at(i).cast::<f32>().add(at), len) }
    }

    /// The I32 element at these indices of axes 0 to 3.
    ///
    /// # Panics
    /// If an index is out of range or the tensor is not I32.
    #[inline]
    pub fn int(&self, i: [usize; 4]) -> i32 {
        assert!(self.dtype == DType::I32 && i[0] < self.ne[0]);
        // SAFETY: the line above and `at` have checked the indices, so the element lies inside the buffer and
        // is aligned for i32 (the view's invariant). The read is volatile because the host may write the
        // element at any time: it is read once, then checked, then used.
        unsafe { self.at([i[1], i[2], i[3]]).add(i[0] * self.nb[0]).cast::<i32>().read_volatile() }
    }

    /// Writes the I32 element at these indices of axes 0 to 3.
    ///
    /// # Safety
    /// No other worker touches the element at the same time: each is claimed by one worker.
    ///
    /// # Panics
    /// As [`int`](Self::int).
    #[inline]
    pub unsafe fn set_int(&self, i: [usize; 4], value: i32) {
        assert!(self.dtype == DType::I32 && i[0] < self.ne[0]);
        // SAFETY: the line above and `at` have checked the indices, so the element lies inside the buffer and
        // is aligned for i32 (the view's invariant). No other worker touches it at the same time (the
        // caller's contract).
        unsafe { self.at([i[1], i[2], i[3]]).add(i[0] * self.nb[0]).cast::<i32>().write(value) }
    }
}

/// A view of F32 whose rows' elements are adjacent: known once, not asked again for every row.
#[derive(Clone, Copy, Debug)]
pub struct Floats(View);

impl Floats {
    /// The view.
    ///
    /// # Panics
    /// If the view is not F32 with adjacent elements.
    pub fn new(view: View) -> Self {
        assert!(view.dtype == DType::F32 && view.nb[0] == 4);
        Self(view)
    }

    /// The rows along axis 2 at these indices of axes 1 and 3.
    ///
    /// # Panics
    /// If an index is out of range.
    #[inline(always)]
    pub fn column(&self, i1: usize, i3: usize) -> Column<'_> {
        let View { base, ne, nb, .. } = self.0;
        assert!(i1 < ne[1] && i3 < ne[3]);
        let base = base.wrapping_add(i1 * nb[1] + i3 * nb[3]);
        Column { base, len: ne[0], rows: ne[2], stride: nb[2], view: PhantomData }
    }

    /// As [`column`](Self::column), to write.
    #[inline(always)]
    pub fn column_mut(&self, i1: usize, i3: usize) -> ColumnMut<'_> {
        ColumnMut(self.column(i1, i3))
    }
}

impl core::ops::Deref for Floats {
    type Target = View;

    fn deref(&self) -> &View {
        &self.0
    }
}

/// The F32 rows of a view along its axis 2: a head's, one per token.
#[derive(Clone, Copy)]
pub struct Column<'v> {
    base: *mut u8,
    len: usize,
    rows: usize,
    stride: usize,
    view: PhantomData<&'v View>,
}

impl<'v> Column<'v> {
    /// Row `i`.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn row(&self, i: usize) -> Row<'v> {
        assert!(i < self.rows);
        // SAFETY: `i` is below the rows of axis 2, and `Floats::column` has checked the indices of axes 1 and
        // 3, so this is a row of `len` adjacent floats of the view, inside the buffer and aligned for f32
        // (the view's invariant).
        unsafe { Row::new(self.base.wrapping_add(i * self.stride).cast(), self.len) }
    }
}

/// As [`Column`], to write.
#[derive(Clone, Copy)]
pub struct ColumnMut<'v>(Column<'v>);

impl<'v> ColumnMut<'v> {
    /// Row `i`.
    ///
    /// # Safety
    /// No other worker touches the row while the value lives.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub unsafe fn row(&self, i: usize) -> RowMut<'v> {
        assert!(i < self.0.rows);
        // SAFETY: `i` is below the rows of axis 2, and `Floats::column` has checked the indices of axes 1 and
        // 3, so this is a row of `len` adjacent floats of the view, inside the buffer and aligned for f32
        // (the view's invariant). No other worker touches it (the caller's contract).
        unsafe { RowMut::new(self.0.base.wrapping_add(i * self.0.stride).cast(), self.0.len) }
    }
}

/// Addresses of adjacent rows of a view: an addition per row, where indices would take multiplications and
/// checks.
struct Walk<'v> {
    view: &'v View,
    at: *mut u8,
    /// Of the row at `at`.
    indices: [usize; 3],
    left: usize,
}

impl<'v> Walk<'v> {
    #[inline(always)]
    fn new(view: &'v View, first: usize, n: usize) -> Self {
        assert!(view.dtype == DType::F32 && view.nb[0] == 4);
        assert!(n > 0 && first + n <= view.rows());
        let indices = view.unravel(first);
        Self { view, at: view.at(indices), indices, left: n }
    }
}

/// F32 rows of a view that are neighbours on axis 1, each of which starts at a whole vector.
#[derive(Clone, Copy)]
pub struct Lines<'v> {
    at: *mut u8,
    len: usize,
    rows: usize,
    stride: usize,
    view: PhantomData<&'v View>,
}

impl<'v> Lines<'v> {
    /// Rows `first..first + N`.
    ///
    /// # Panics
    /// If there are not as many.
    #[inline(always)]
    pub fn rows<const N: usize>(&self, first: usize) -> [Row<'v, true>; N] {
        assert!(first <= self.rows && N <= self.rows - first);
        // SAFETY: by the line above, these are among the rows that `View::lines` has found on axis 1 from
        // `at` on: `len` adjacent floats each of the view, inside the buffer (the view's invariant). `at` and
        // the stride are multiples of 128.
        core::array::from_fn(|i| unsafe { Row::at_vector(self.at_row(first + i), self.len) })
    }

    /// Rows `first..first + N`, to write.
    ///
    /// # Safety
    /// No other worker touches the rows while the values live.
    ///
    /// # Panics
    /// If there are not as many.
    #[inline(always)]
    pub unsafe fn rows_mut<const N: usize>(&self, first: usize) -> [RowMut<'v, true>; N] {
        assert!(first <= self.rows && N <= self.rows - first);
        // SAFETY: by the line above, these are among the rows that `View::lines` has found on axis 1 from
        // `at` on: `len` adjacent floats each of the view, inside the buffer (the view's invariant). `at` and
        // the stride are multiples of 128. No other worker touches them (the caller's contract).
        core::array::from_fn(|i| unsafe { RowMut::at_vector(self.at_row(first + i), self.len) })
    }

    #[inline(always)]
    fn at_row(&self, i: usize) -> *mut f32 {
        self.at.wrapping_add(i * self.stride).cast()
    }
}

impl Iterator for Walk<'_> {
    type Item = *mut u8;

    #[inline(always)]
    fn next(&mut self) -> Option<*mut u8> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        let [i1, i2, i3] = self.indices;
        if i1 + 1 < self.view.ne[1] {
            self.indices[0] = i1 + 1;
            self.at = at.wrapping_add(self.view.nb[1]);
        } else if self.left > 0 {
            self.indices = if i2 + 1 < self.view.ne[2] { [0, i2 + 1, i3] } else { [0, 0, i3 + 1] };
            self.at = self.view.at(self.indices);
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn view(dtype: DType, ne: [u32; 4], nb: [u32; 4], token_axis: u8, n_tokens: u32) -> View {
        let tensor = TensorDesc {
            offset: 8,
            buffer: 0,
            dtype: dtype.wire(),
            token_axis,
            flags: 0,
            reserved: 0,
            ne,
            nb,
        };
        // SAFETY: the tests use addresses only, except where they fail before.
        unsafe { View::new(NonNull::dangling(), &tensor, dtype, n_tokens) }
    }

    #[test]
    fn indices_are_checked_and_strides_followed() {
        let v = view(DType::F32, [4, 3, 2, 2], [4, 16, 64, 256], NO_TOKEN_AXIS, 1);
        let base = v.at([0; 3]) as usize;
        assert_eq!(v.at([2, 1, 1]) as usize - base, 32 + 64 + 256);
        for i in [[3, 0, 0], [0, 2, 0], [0, 0, 2], [usize::MAX, 0, 0]] {
            assert!(catch_unwind(|| v.at(i)).is_err(), "{i:?}");
        }
        assert_eq!((v.rows(), v.elements()), (12, 48));
        assert_eq!(v.unravel(7), [1, 0, 1]);
        assert!(Walk::new(&v, 2, 10).eq((2..12).map(|r| v.at(v.unravel(r)))));
    }

    #[test]
    fn the_token_axis_is_cut_and_never_grows() {
        for (n_tokens, rows) in [(1, 1), (2, 2), (3, 3), (u32::MAX, 3)] {
            let v = view(DType::F32, [4, 3, 1, 1], [4, 16, 48, 48], 1, n_tokens);
            assert_eq!(v.ne, [4, rows, 1, 1]);
            assert!(catch_unwind(|| v.at([rows, 0, 0])).is_err());
        }
    }

    #[test]
    fn rows_are_joined_where_all_views_have_them_side_by_side() {
        let float = |ne, nb, n_tokens| view(DType::F32, ne, nb, 2, n_tokens);
        let packed = |n_tokens| float([4, 3, 2, 2], [4, 16, 48, 96], n_tokens);
        let shapes = |views: [View; 2]| View::joined(views).map(|view| (view.ne, view.nb[..2].to_vec()));
        assert_eq!(shapes([packed(9); 2]), [(); 2].map(|()| ([48, 1, 1, 1], vec![4, 96])));
        // Cut at the token axis, sequences are apart.
        assert_eq!(shapes([packed(1); 2]), [(); 2].map(|()| ([12, 2, 1, 1], vec![4, 96])));
        // Heads of one of the views are apart, or its tokens.
        let heads = float([4, 3, 2, 2], [4, 32, 96, 192], 9);
        assert_eq!(shapes([packed(9), heads]).map(|(ne, _)| ne), [[4, 3, 2, 2]; 2]);
        let tokens = float([4, 3, 2, 2], [4, 16, 64, 128], 9);
        assert_eq!(shapes([packed(9), tokens]).map(|(ne, _)| ne), [[12, 2, 2, 1]; 2]);
        // One that is repeated.
        let repeated = float([4, 1, 2, 2], [4, 16, 16, 32], 9);
        assert_eq!(shapes([packed(9), repeated]).map(|(ne, _)| ne), [[4, 3, 2, 2], [4, 1, 2, 2]]);
        let halves = view(DType::F16, [4, 3, 1, 1], [2, 8, 24, 24], NO_TOKEN_AXIS, 1);
        assert_eq!(View::joined([halves])[0].ne, [4, 3, 1, 1]);
        // Element for element the same addresses.
        let [one] = View::joined([packed(9)]);
        for r in 0..12 {
            let row = packed(9);
            assert_eq!(row.at(row.unravel(r)), one.at([0; 3]).wrapping_add(16 * r));
        }
    }

    #[test]
    fn tiled_rows_come_in_strips() {
        let v = view(DType::F16x32, [32, 33, 1, 1], [2048, 2048, 4096, 4096], NO_TOKEN_AXIS, 1);
        assert_eq!(v.at([1, 0, 0]) as usize - v.at([0; 3]) as usize, 2048);
        assert!(catch_unwind(|| v.at([2, 0, 0])).is_err());
    }

    #[test]
    fn rows_and_elements_are_of_their_types() {
        let floats = view(DType::F32, [4, 1, 1, 1], [4; 4], NO_TOKEN_AXIS, 1);
        let apart = view(DType::F32, [4, 1, 1, 1], [8; 4], NO_TOKEN_AXIS, 1);
        let ids = view(DType::I32, [4, 1, 1, 1], [4; 4], NO_TOKEN_AXIS, 1);
        assert_eq!(floats.row([0; 3]).len(), 4);
        assert!(catch_unwind(|| apart.row([0; 3])).is_err());
        assert!(catch_unwind(|| ids.row([0; 3])).is_err());
        assert!(catch_unwind(|| floats.int([0; 4])).is_err());
        assert!(catch_unwind(|| ids.int([4, 0, 0, 0])).is_err());
        // SAFETY: the part of 2 floats from 3 on leaves the row of 4, so `part_mut` panics before it makes a
        // row that could be written.
        assert!(catch_unwind(|| unsafe { floats.part_mut([0; 3], 3, 2) }.len()).is_err());
    }
}

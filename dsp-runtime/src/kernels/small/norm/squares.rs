//! Sums of squares of rows, each in an order that only its length decides: alone, and four rows at once.

use crate::hvx::{Hvx, choose};
use crate::row::Row;

/// Rows whose sums are one vector.
pub(super) const SIDE: usize = 4;

/// Sums of squares of a row: of its vectors 4 i, 4 i + 1, 4 i + 2 and 4 i + 3, so that no addition waits for
/// the last. (By name: as an array they would be in memory.)
#[derive(Clone, Copy)]
struct Squares<H: Hvx> {
    a: H::Q,
    b: H::Q,
    c: H::Q,
    d: H::Q,
}

impl<H: Hvx> Squares<H> {
    /// Those of vectors `at` to `at + 3`.
    ///
    /// # Safety
    /// The row has these vectors whole.
    #[inline(always)]
    unsafe fn of<const A: bool>(x: Row<'_, A>, at: usize) -> Self {
        // SAFETY: the row has these vectors whole (the caller's contract).
        let [a, b, c, d] = unsafe { four::<H, A>(x, at) };
        Self { a: H::mul_q(a, a), b: H::mul_q(b, b), c: H::mul_q(c, c), d: H::mul_q(d, d) }
    }

    /// With those of vectors `at` to `at + 3`.
    ///
    /// # Safety
    /// The row has these vectors whole.
    #[inline(always)]
    unsafe fn and<const A: bool>(self, x: Row<'_, A>, at: usize) -> Self {
        // SAFETY: the row has these vectors whole (the caller's contract).
        let more = unsafe { Self::of(x, at) };
        Self {
            a: H::add_q(self.a, more.a),
            b: H::add_q(self.b, more.b),
            c: H::add_q(self.c, more.c),
            d: H::add_q(self.d, more.d),
        }
    }

    /// The sum of the four.
    #[inline(always)]
    fn total(self) -> H::Q {
        H::add_q(H::add_q(self.a, self.b), H::add_q(self.c, self.d))
    }
}

/// Sum of squares in all lanes, in an order that only the length decides.
#[inline(always)]
pub(super) fn sum_squares<H: Hvx, const A: bool>(x: Row<'_, A>) -> H::F {
    if x.whole() < 4 {
        let mut sum = H::zero_q();
        for i in 0..x.vectors() {
            let v = x.vector::<H>(i);
            sum = H::add_q(sum, H::mul_q(v, v));
        }
        return H::sum_all_q(sum);
    }
    // SAFETY: the row has four vectors whole, by the condition above.
    let mut squares = unsafe { Squares::<H>::of(x, 0) };
    let mut i = 4;
    // Up to a multiple of eight, then eight at once.
    if i + 4 <= x.whole() {
        // SAFETY: the row has vectors up to `i + 3` whole, by the condition above.
        squares = unsafe { squares.and(x, i) };
        i += 4;
    }
    while i + 8 <= x.whole() {
        // SAFETY: the row has vectors up to `i + 7` whole, by the condition above.
        squares = unsafe { squares.and(x, i).and(x, i + 4) };
        i += 8;
    }
    if i + 4 <= x.whole() {
        // SAFETY: the row has vectors up to `i + 3` whole, by the condition above.
        squares = unsafe { squares.and(x, i) };
        i += 4;
    }
    while i < x.vectors() {
        let v = x.vector::<H>(i);
        squares.a = H::add_q(squares.a, H::mul_q(v, v));
        i += 1;
    }
    H::sum_all_q(squares.total())
}

/// The sums of squares of two rows of `fours` times four vectors, up to the sum of lanes, as [`sum_squares`]
/// has them.
///
/// # Safety
/// The rows have these vectors whole, and `fours` is at least 1.
#[inline(always)]
unsafe fn squares_of_two<H: Hvx>(x: [Row<'_, true>; 2], fours: usize) -> [H::Q; 2] {
    // SAFETY: vectors up to `4 * fours - 1` are whole (the caller's contract).
    unsafe {
        let (mut first, mut second) = (Squares::<H>::of(x[0], 0), Squares::<H>::of(x[1], 0));
        for i in 1..fours {
            (first, second) = (first.and(x[0], 4 * i), second.and(x[1], 4 * i));
        }
        [first.total(), second.total()]
    }
}

/// The sums of squares of four rows in lanes 0, 8, 16 and 24; the other lanes are left open. A function of
/// its own, where that costs no instructions: registers are then its alone.
///
/// # Safety
/// The rows have `fours` times four vectors whole, and `fours` is at least 1.
#[cfg_attr(target_arch = "hexagon", inline(never))]
#[cfg_attr(not(target_arch = "hexagon"), inline(always))]
pub(super) unsafe fn sums_of_four<H: Hvx>(x: [Row<'_, true>; SIDE], fours: usize) -> H::F {
    // SAFETY: the contract is the caller's.
    let ([a, b], [c, d]) =
        unsafe { (squares_of_two::<H>([x[0], x[1]], fours), squares_of_two::<H>([x[2], x[3]], fours)) };
    H::sum_four([a, b, c, d])
}

/// Of four vectors lanes 0, 8, 16 and 24: lane `8 * i` of vector `j` becomes lane `8 * i + j`. The other
/// lanes are left open.
#[inline(always)]
pub(super) fn gather<H: Hvx>(x: [H::F; 4]) -> H::F {
    let [a, b, c, d] = x;
    let low = choose::<H, 1>(H::bits(a), H::bits(H::swap_lanes::<1>(b)));
    let high = choose::<H, 1>(H::bits(c), H::bits(H::swap_lanes::<1>(d)));
    H::from_bits(choose::<H, 2>(low, H::bits(H::swap_lanes::<2>(H::from_bits(high)))))
}

/// Vectors `at` to `at + 3`.
///
/// # Safety
/// The row has these vectors whole.
#[inline(always)]
pub(super) unsafe fn four<H: Hvx, const A: bool>(x: Row<'_, A>, at: usize) -> [H::F; 4] {
    // SAFETY: the row has these vectors whole (the caller's contract).
    unsafe {
        [
            x.full_unchecked::<H>(at),
            x.full_unchecked::<H>(at + 1),
            x.full_unchecked::<H>(at + 2),
            x.full_unchecked::<H>(at + 3),
        ]
    }
}

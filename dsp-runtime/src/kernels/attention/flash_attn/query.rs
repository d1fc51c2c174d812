//! Queries as products with keys read them.

use crate::hvx::{Hvx, VectorPtr};
use crate::kernels::shared::row_scale::{Depth, RowScale, largest};
use crate::row::Row;

/// What is to be done to a query's scores.
#[derive(Clone, Copy)]
pub(super) struct Prepared {
    /// They are multiplied with this: the query was divided by it.
    pub back: f32,
    /// They get these bits in addition: those of infinity if the query has an infinity or a NaN. What was
    /// written of it then means nothing.
    pub special: i32,
}

impl Prepared {
    /// Nothing.
    pub const NONE: Self = Self { back: 1.0, special: 0 };

    /// What the query was multiplied with, if it was.
    #[inline(always)]
    pub const fn up(self) -> Option<f32> {
        // The exponents of a power of two and of its inverse add up to this.
        const BOTH: u32 = 254 << 23;
        if self.special == 0 { Some(f32::from_bits(BOTH - self.back.to_bits())) } else { None }
    }

    /// Writes a query at `to` as products with keys read it: divided by a power of two, so that its largest
    /// magnitude is from 1/2 to 1, and rounded to f16; these, if `as_halves`, or floats.
    ///
    /// # Safety
    /// `to` is valid for writing a vector per 32 dimensions.
    #[inline(always)]
    pub unsafe fn of<H: Hvx>(q: Row<'_>, as_halves: bool, to: VectorPtr) -> Self {
        // SAFETY: the row is aligned for f32 and valid for reading its floats (the contract of `Row::new`).
        let largest = unsafe { largest::<H>(q.as_ptr(), q.len()) };
        let Some(scale) = RowScale::of(largest, Depth { log: 0, down: 0 }) else {
            return Self { back: 1.0, special: f32::INFINITY.to_bits() as i32 };
        };
        let up = H::splat(scale.to);
        for v in 0..q.vectors() {
            // SAFETY: `to` has this vector (the caller's contract), and if `v` is even half of it is before.
            unsafe {
                if !as_halves {
                    to.store::<H>(v, H::widen_f16(rounded::<H>(q, v, up)).0);
                } else if v.is_multiple_of(2) {
                    let (a, b) = (rounded::<H>(q, v, up), rounded::<H>(q, v + 1, up));
                    to.store_b::<H>(v / 2, H::low_halves([H::words(a), H::words(b)]));
                }
            }
        }
        Self { back: scale.back, special: 0 }
    }
}

/// Vector `v` of a query, times `up`, as f16 in both halves of words: zeros past its end.
#[inline(always)]
fn rounded<H: Hvx>(q: Row<'_>, v: usize, up: H::F) -> H::B {
    let x = if v < q.vectors() { q.vector::<H>(v) } else { H::splat(0.0) };
    both_halves::<H>(x, up)
}

/// x times a factor as f16, in both halves of words.
#[inline(always)]
pub(super) fn both_halves<H: Hvx>(x: H::F, factor: H::F) -> H::B {
    if !H::Q_STAYS {
        return H::scaled_to_f16(x, x, [factor; 2]);
    }
    // Of two products that are the same the compiler makes one and a copy, which loses bits. So the high half
    // is another one, which is not used.
    let low = H::words(H::scaled_to_f16(x, x, [factor, H::splat(0.5)]));
    H::pair_halves(low, low)
}

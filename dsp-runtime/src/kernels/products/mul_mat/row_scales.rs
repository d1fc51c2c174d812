//! What the rows of a unit are multiplied with before they are rounded to f16.

use super::product::{Product, ProductUnit};
use super::tuning::ROWS;
use crate::hvx::Hvx;
use crate::kernels::shared::row_scale::{Depth, RowScale, largest};

/// What a kernel does to rows of x before it multiplies them, and to their results.
pub trait Scaling {
    /// Of no rows.
    fn new() -> Self;
    /// Gets ready for a unit's rows.
    fn find<H: Hvx>(&mut self, product: &Product<'_>, unit: &ProductUnit);
    /// What row `i` of the unit is multiplied with.
    fn factor(&self, i: usize) -> f32;
    /// Results of row `i` of the unit, from those of the multiplied row.
    fn give_back<H: Hvx>(&self, i: usize, y: H::F) -> H::F;
}

/// Nothing. (It has no bytes, so that kernels without scales are compiled as if there were none.)
pub struct Unscaled;

impl Scaling for Unscaled {
    #[inline(always)]
    fn new() -> Self {
        Self
    }

    #[inline(always)]
    fn find<H: Hvx>(&mut self, _: &Product<'_>, _: &ProductUnit) {}

    #[inline(always)]
    fn factor(&self, _: usize) -> f32 {
        1.0
    }

    #[inline(always)]
    fn give_back<H: Hvx>(&self, _: usize, y: H::F) -> H::F {
        y
    }
}

/// Which rows: the first, how many, and their indices of axes 2 and 3 of x.
type Rows = (usize, usize, [usize; 2]);

/// Each is multiplied with a power of two, so that it keeps within the range of f16. Scales are kept for the
/// units after theirs, which mostly have the same rows.
pub struct RowScales {
    of: Option<Rows>,
    scales: [RowScale; ROWS],
}

impl Scaling for RowScales {
    #[inline(always)]
    fn new() -> Self {
        Self { of: None, scales: [RowScale { to: 1.0, back: 1.0 }; ROWS] }
    }

    /// All results of a row with an infinity or a NaN will be NaN.
    #[inline(always)]
    fn find<H: Hvx>(&mut self, product: &Product<'_>, unit: &ProductUnit) {
        let of = Some((unit.row, unit.rows, unit.batch));
        if self.of == of {
            return;
        }
        self.of = of;
        for (i, scale) in self.scales.iter_mut().enumerate().take(unit.rows) {
            let (x, _) = product.row(unit, i);
            // SAFETY: `row` has checked the indices, so this is a row of x: `ne[0]` adjacent floats, which
            // are readable and aligned (validation).
            let largest = unsafe { largest::<H>(x.cast(), product.x.ne[0]) };
            let special = RowScale { to: 1.0, back: f32::NAN };
            *scale = RowScale::of(largest, Depth { log: 0, down: 0 }).unwrap_or(special);
        }
    }

    #[inline(always)]
    fn factor(&self, i: usize) -> f32 {
        self.scales[i].to
    }

    #[inline(always)]
    fn give_back<H: Hvx>(&self, i: usize, y: H::F) -> H::F {
        H::mul_ieee(y, H::splat(self.scales[i].back))
    }
}

//! The sum of a row so far, while its products are added.

use crate::hvx::Hvx;

/// A sum to which products are added.
pub(super) trait Sum<H: Hvx>: Copy {
    /// The sum of what came before.
    fn start(sum: H::F) -> Self;
    /// The sum of what came before, and a product: an addition less than [`start`](Self::start) and
    /// [`add`](Self::add).
    fn first(sum: H::F, product: H::Q) -> Self;
    /// The sum with another product.
    fn add(self, product: H::Q) -> Self;
    /// The sum.
    fn end(self) -> H::F;
}

/// In a register.
#[derive(Clone, Copy)]
pub(super) struct Held<H: Hvx>(H::Q);

/// In a register or in memory, for a conversion per addition.
#[derive(Clone, Copy)]
pub(super) struct Parked<H: Hvx>(H::F);

impl<H: Hvx> Sum<H> for Held<H> {
    #[inline(always)]
    fn start(sum: H::F) -> Self {
        Self(H::add_qf(H::zero_q(), sum))
    }

    #[inline(always)]
    fn first(sum: H::F, product: H::Q) -> Self {
        Self(H::add_qf(product, sum))
    }

    #[inline(always)]
    fn add(self, product: H::Q) -> Self {
        Self(H::add_q(self.0, product))
    }

    #[inline(always)]
    fn end(self) -> H::F {
        H::float(self.0)
    }
}

impl<H: Hvx> Sum<H> for Parked<H> {
    #[inline(always)]
    fn start(sum: H::F) -> Self {
        Self(sum)
    }

    #[inline(always)]
    fn first(sum: H::F, product: H::Q) -> Self {
        Self(sum).add(product)
    }

    #[inline(always)]
    fn add(self, product: H::Q) -> Self {
        Self(H::float(H::add_qf(product, self.0)))
    }

    #[inline(always)]
    fn end(self) -> H::F {
        self.0
    }
}

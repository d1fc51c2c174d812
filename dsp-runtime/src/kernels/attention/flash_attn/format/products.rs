//! How products read a tile: its keys with queries, its values with weights.

use crate::hvx::{HalfSums, Hvx, LANES, VectorPtr};

/// Keys as products with queries read them, and the sums of these products.
pub(in super::super) trait Products<H: Hvx>: Copy {
    /// Two sums, of products with even and with odd dimensions.
    type Sums: Copy;
    /// Dimensions of a vector of a query.
    const DIMS: usize;
    /// Whether queries are known to be whole vectors.
    const WHOLE: bool;

    /// Sums of nothing.
    fn none() -> Self::Sums;

    /// The sums of R queries with the dimensions of their vector `v`, from low to high.
    ///
    /// # Safety
    /// The keys have these dimensions.
    unsafe fn add_vector<const R: usize>(self, sums: &mut [Self::Sums; R], v: usize, q: &[H::Lanes; R]);

    /// The same with the first `n` dimensions of the vector.
    ///
    /// # Safety
    /// As there.
    unsafe fn add_first<const R: usize>(
        self,
        sums: &mut [Self::Sums; R],
        v: usize,
        n: usize,
        q: &[H::Lanes; R],
    );

    /// The sums.
    fn end(sums: Self::Sums) -> (H::F, H::F);
}

/// Values that lie like keys, with positions in place of dimensions.
pub(in super::super) trait Turned<H: Hvx>: Products<H> {
    /// What products take of 32 weights in f16, each of which is in both halves of its word.
    fn lanes(x: H::B) -> H::Lanes;

    /// The sums of R rows with all positions of tile `t` of 32 dimensions, from low to high.
    ///
    /// # Safety
    /// The values have this tile.
    unsafe fn add_positions<const R: usize>(
        self,
        sums: &mut [Self::Sums; R],
        t: usize,
        weights: &[H::Lanes; R],
    );
}

/// What products read: the numbers of a tile, by pairs of vectors; and the sums of these products.
pub(in super::super) trait Pairs<H: Hvx>: Copy {
    /// A pair, in registers.
    type Pair: Copy;
    /// Two sums, of products with the first and with the second vectors of pairs.
    type Sums: Copy;
    /// Dimensions of a vector of a query.
    const DIMS: usize;
    /// Whether queries are known to be whole vectors.
    const WHOLE: bool;

    /// Pair `i`.
    ///
    /// # Safety
    /// The tile has it.
    unsafe fn get(self, i: usize) -> Self::Pair;

    /// Sums of nothing.
    fn none() -> Self::Sums;

    /// Sums that begin with these, times a factor.
    fn start(before: (H::F, H::F), factor: H::F) -> Self::Sums;

    /// The sums with a pair of dimensions of keys, times those of a query: pair `i` of `q`. BOTH: there are
    /// two of them.
    fn add_keys<const BOTH: bool>(sums: Self::Sums, pair: Self::Pair, q: &H::Lanes, i: usize) -> Self::Sums;

    /// The sums with a pair of vectors of a value, times its weight, which is in all lanes.
    fn add_value(sums: Self::Sums, pair: Self::Pair, weight: H::F) -> Self::Sums;

    /// The sums.
    fn end(sums: Self::Sums) -> (H::F, H::F);
}

/// Keys that are read pair by pair.
#[derive(Clone, Copy)]
pub(in super::super) struct ByPairs<P>(pub P);

impl<H: Hvx, P: Pairs<H>> Products<H> for ByPairs<P> {
    type Sums = P::Sums;
    const DIMS: usize = P::DIMS;
    const WHOLE: bool = P::WHOLE;

    #[inline(always)]
    fn none() -> P::Sums {
        P::none()
    }

    #[inline(always)]
    unsafe fn add_vector<const R: usize>(self, sums: &mut [P::Sums; R], v: usize, q: &[H::Lanes; R]) {
        for i in 0..P::DIMS / 2 {
            // SAFETY: pair `i` of the vector has two of its dimensions, which the keys have (the caller's
            // contract).
            let pair = unsafe { self.0.get(v * (P::DIMS / 2) + i) };
            add_pair::<H, P, R, true>(sums, pair, q, i);
        }
    }

    #[inline(always)]
    unsafe fn add_first<const R: usize>(
        self,
        sums: &mut [P::Sums; R],
        v: usize,
        n: usize,
        q: &[H::Lanes; R],
    ) {
        let first = v * (P::DIMS / 2);
        for i in 0..n / 2 {
            // SAFETY: pair `i` of the vector has two of the first `n` dimensions, which the keys have (the
            // caller's contract).
            let pair = unsafe { self.0.get(first + i) };
            add_pair::<H, P, R, true>(sums, pair, q, i);
        }
        if !n.is_multiple_of(2) {
            // SAFETY: the last of the `n` dimensions has a pair, which the keys have (the caller's contract).
            let pair = unsafe { self.0.get(first + n / 2) };
            add_pair::<H, P, R, false>(sums, pair, q, n / 2);
        }
    }

    #[inline(always)]
    fn end(sums: P::Sums) -> (H::F, H::F) {
        P::end(sums)
    }
}

/// Adds the products of a pair of dimensions, number `i` of q.
#[inline(always)]
pub(super) fn add_pair<H: Hvx, P: Pairs<H>, const R: usize, const BOTH: bool>(
    sums: &mut [P::Sums; R],
    pair: P::Pair,
    q: &[H::Lanes; R],
    i: usize,
) {
    for (sums, q) in sums.iter_mut().zip(q) {
        *sums = P::add_keys::<BOTH>(*sums, pair, q, i);
    }
}

/// The f16 of a tile, whose low halves are one vector of a pair, and high halves the other, times f16:
/// queries are words of two dimensions, and weights words of the same number twice.
#[derive(Clone, Copy)]
pub(in super::super) struct Halves(pub VectorPtr);

impl<H: Hvx> Pairs<H> for Halves {
    type Pair = H::B;
    type Sums = HalfSums<H>;
    const DIMS: usize = 2 * LANES;
    // In a loop over what is left, LLVM 22 copies products from one turn to the next.
    const WHOLE: bool = H::Q_STAYS;

    #[inline(always)]
    unsafe fn get(self, i: usize) -> H::B {
        // As a load of any address, with which LLVM 22 makes loops of 8 % fewer packets.
        // SAFETY: the tile has pair `i` (the caller's contract), which is a vector.
        unsafe { H::load_b(self.0.skip(i).get()) }
    }

    #[inline(always)]
    fn none() -> HalfSums<H> {
        H::no_half_sums()
    }

    #[inline(always)]
    fn start(before: (H::F, H::F), factor: H::F) -> HalfSums<H> {
        H::start_half_sums(before, factor)
    }

    /// Of one dimension the word has a zero beside it, and so have keys: the sum stays what it is.
    #[inline(always)]
    fn add_keys<const BOTH: bool>(sums: HalfSums<H>, pair: H::B, q: &H::Lanes, i: usize) -> HalfSums<H> {
        H::add_half_products(sums, pair, H::bytes(H::bits(H::lane(q, i))))
    }

    #[inline(always)]
    fn add_value(sums: HalfSums<H>, pair: H::B, weight: H::F) -> HalfSums<H> {
        H::add_half_products(sums, pair, H::bytes(H::bits(weight)))
    }

    #[inline(always)]
    fn end(sums: HalfSums<H>) -> (H::F, H::F) {
        H::end_half_sums(sums)
    }
}

/// A tile as floats, times floats.
#[derive(Clone, Copy)]
pub(in super::super) struct Wide(pub VectorPtr);

impl<H: Hvx> Pairs<H> for Wide {
    type Pair = (H::F, H::F);
    type Sums = (H::Q, H::Q);
    const DIMS: usize = LANES;
    const WHOLE: bool = false;

    #[inline(always)]
    unsafe fn get(self, i: usize) -> (H::F, H::F) {
        // SAFETY: the tile has pair `i` (the caller's contract), which is two vectors.
        unsafe { (self.0.load::<H>(2 * i), self.0.load::<H>(2 * i + 1)) }
    }

    #[inline(always)]
    fn none() -> (H::Q, H::Q) {
        (H::zero_q(), H::zero_q())
    }

    #[inline(always)]
    fn start((even, odd): (H::F, H::F), factor: H::F) -> (H::Q, H::Q) {
        (H::mul_q(even, factor), H::mul_q(odd, factor))
    }

    #[inline(always)]
    fn add_keys<const BOTH: bool>(
        sums: (H::Q, H::Q),
        (even, odd): (H::F, H::F),
        q: &H::Lanes,
        i: usize,
    ) -> (H::Q, H::Q) {
        let first = H::add_q(sums.0, H::mul_q(even, H::lane(q, 2 * i)));
        let second = if BOTH { H::add_q(sums.1, H::mul_q(odd, H::lane(q, 2 * i + 1))) } else { sums.1 };
        (first, second)
    }

    #[inline(always)]
    fn add_value(sums: (H::Q, H::Q), (even, odd): (H::F, H::F), weight: H::F) -> (H::Q, H::Q) {
        (H::add_q(sums.0, H::mul_q(weight, even)), H::add_q(sums.1, H::mul_q(weight, odd)))
    }

    #[inline(always)]
    fn end(sums: (H::Q, H::Q)) -> (H::F, H::F) {
        (H::float(sums.0), H::float(sums.1))
    }
}

impl<H: Hvx> Turned<H> for ByPairs<Wide> {
    #[inline(always)]
    fn lanes(x: H::B) -> H::Lanes {
        H::lanes(H::widen_f16(x).0)
    }

    #[inline(always)]
    unsafe fn add_positions<const R: usize>(
        self,
        sums: &mut [(H::Q, H::Q); R],
        t: usize,
        weights: &[H::Lanes; R],
    ) {
        // SAFETY: the 32 positions of tile `t` are a vector of `DIMS` numbers, and the values have them (the
        // caller's contract).
        unsafe { <Self as Products<H>>::add_vector(self, sums, t, weights) };
    }
}

//! Strips of weights as matrix tiles of fp16.
//!
//! Columns are rows of the matrix w. Each is multiplied with a power of two that brings its weights below
//! 2^15, so that nothing is rounded when that is taken back. Quants that have nothing but a scale become fp16
//! and are multiplied with it (`floats.rs`, and `two_blocks.rs` for few scales): a weight is rounded once.
//! Those with mins, and those whose scale is a product, become integers of 16 bits first (`integers.rs`).
//!
//! How results stay in range: a result of fp16 is the sum times 2^t. Sums of k products are below 2^(a + log
//! - down), where weights are below 2^a ([`Depth`]), and t is chosen so that they come out below 2^15.

mod floats;
mod integers;
mod two_blocks;

use hexflash_abi::dtype::QuantGroup;

use super::super::float::{BF16, Brain, Pair};
use super::super::half::F16;
use super::layout::SPARE;
use crate::hmx::scales::{power_or_infinity, store_table};
use crate::hmx::{TILE_VECTORS, TilePtr};
use crate::hvx::{Hvx, VectorPtr};
use crate::kernels::shared::largest::Largest;
use crate::kernels::shared::row_scale::Depth;

/// Weights that become matrix tiles.
pub trait Tiles: Sync + 'static {
    /// Whether values 1 and 2 of every four k change places, here and in the activations: sums do not mind,
    /// and bytes become halves without a shuffle.
    const EXCHANGED: bool;

    /// Whether what takes the scales of columns back are ordinary powers of two or infinite, whatever the
    /// weights are: see `RowScale::is_ordinary`. With
    /// scales of f16 they are within 2^-40 and 2^40.
    const ORDINARY: bool = true;

    /// Makes the `k_tiles` matrix tiles of a strip at `to`.
    ///
    /// # Safety
    /// 1. `packed` holds `groups` groups of weights, with as many tiles as `k_tiles` or more.
    /// 2. Room for a strip ([`super::layout::place`]) is valid for writing at `to`, and nobody else touches
    ///    it. `packed` are the last bytes of the room for `groups` groups.
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H>;
}

/// What is done to the results of a strip's columns, a lane each.
pub struct Columns<H: Hvx> {
    /// The logarithm of what the unit multiplies sums with, -14 to 15.
    scale: H::I,
    /// What a result is multiplied with to become the product; infinite if it is none.
    factor: H::F,
}

impl<H: Hvx> Columns<H> {
    /// Those of columns whose weights, or scales of weights, have largest magnitudes with these exponent
    /// codes of f16; `factor` is the logarithm. Results that an infinity or a NaN is part of become infinite
    /// or NaN again.
    #[inline(always)]
    fn new(scale: H::I, factor: H::I, code: H::I) -> Self {
        Self { scale, factor: power_or_infinity::<H>(factor, code) }
    }

    /// Writes the table of the unit, and the factors behind it.
    ///
    /// # Safety
    /// Three vectors at `table` are valid for writing, and nobody else touches them.
    #[inline(always)]
    pub(super) unsafe fn store(self, table: TilePtr) {
        // SAFETY: these are three vectors, which are valid for writing (the caller's contract).
        unsafe {
            store_table::<H>(table.vectors(), self.scale);
            table.vectors().store::<H>(2, self.factor);
        }
    }
}

/// They are matrix tiles already.
impl Tiles for F16 {
    const EXCHANGED: bool = false;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        _groups: usize,
        _to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        let mut largest = Largest::<H>::new();
        for i in 0..k_tiles * TILE_VECTORS {
            // SAFETY: `packed` has so many tiles of 16 vectors (the caller's contract, point 1).
            largest.add(unsafe { packed.load_b::<H>(i) });
        }
        let code = largest.exponent_code();
        // Weights are below 2^(code - 14). A scale is 2^15 at most.
        let scale = H::sub_i(H::splat_i(29 - depth.log + depth.down), code);
        let factor = H::max_i(H::sub_i(H::splat_i(0), scale), H::splat_i(-15));
        Columns::new(H::sub_i(H::splat_i(0), factor), factor, code)
    }
}

/// The smallest exponent code of a column of BF16: smaller weights count as those, so that what they are
/// multiplied with, and what takes that back, are normal numbers.
const LEAST_CODE: i32 = 14;

/// Halves of words stay where they are.
impl Tiles for BF16 {
    const EXCHANGED: bool = false;
    // A weight may be as large or small as a float.
    const ORDINARY: bool = false;

    #[inline(always)]
    unsafe fn unpack<H: Hvx>(
        packed: VectorPtr,
        _groups: usize,
        to: TilePtr,
        k_tiles: usize,
        depth: Depth,
    ) -> Columns<H> {
        let vectors = k_tiles * TILE_VECTORS;
        let mut largest = Largest::<H>::new();
        for i in 0..vectors {
            // SAFETY: `packed` has so many tiles of 16 vectors (the caller's contract, point 1).
            largest.add(unsafe { packed.load_b::<H>(i) });
        }
        let code = H::max_i(H::shr_i::<23>(largest.of_both()), H::splat_i(LEAST_CODE));
        // Weights are below 2^(code - 126).
        let bound = Bound::<H>(H::sub_i(code, H::splat_i(126)));
        let power = bound.power(15);
        for i in 0..vectors {
            // SAFETY: the tiles are of the same size before and after, so that `to` is where `packed` is or
            // before it, and no vector is written before it is read (the caller's contract, both points).
            unsafe {
                let (low, high) = Brain::load::<H>(packed.skip(i));
                to.vectors().store_b::<H>(i, H::scaled_to_f16(low, high, [power; 2]));
            }
        }
        bound.columns(depth, beyond_code::<H>(code))
    }
}

/// The exponent code of infinities and NaN of f16 where `code` is that of f32, and -1 where it is another
/// one.
#[inline(always)]
fn beyond_code<H: Hvx>(code: H::I) -> H::I {
    let beyond = H::shr_i::<8>(H::add_i(code, H::splat_i(1)));
    H::sub_i(H::shl_i::<5>(beyond), H::splat_i(1))
}

/// What is above the magnitudes of all weights of a column: a power of two, by its logarithm.
#[derive(Clone, Copy)]
pub struct Bound<H: Hvx>(H::I);

impl<H: Hvx> Bound<H> {
    /// That of numbers up to 2^`bits` times an f16 with this exponent code.
    #[inline(always)]
    fn of(code: H::I, bits: i32) -> Self {
        // An f16 is below 2^(code - 14).
        Self(H::add_i(code, H::splat_i(bits - 14)))
    }

    /// 2^`up` over the bound.
    #[inline(always)]
    fn power(self, up: i32) -> H::F {
        H::from_bits(H::shl_i::<23>(H::sub_i(H::splat_i(127 + up), self.0)))
    }

    /// What is done to the results of its columns, whose largest scale has this exponent code of f16.
    #[inline(always)]
    fn columns(self, depth: Depth, code: H::I) -> Columns<H> {
        let down = depth.down - depth.log;
        Columns::new(H::splat_i(down), H::add_i(self.0, H::splat_i(-15 - down)), code)
    }
}

/// Whether every matrix tile of a group ends before the quants of its tile begin, and so before all that is
/// read after them. The last group is the one where they are closest: its end is [`SPARE`] matrix tiles
/// behind that of its own.
const fn reads_before_it_writes(group: &QuantGroup) -> bool {
    let begins = (group.tiles + SPARE) * TILE_VECTORS - group.vectors();
    let (mut t, mut all) = (0, true);
    while t < group.tiles {
        all &= (t + 1) * TILE_VECTORS <= begins + group.quants_at(t);
        t += 1;
    }
    // What else is read for a tile lies behind the quants of all of them.
    all
}

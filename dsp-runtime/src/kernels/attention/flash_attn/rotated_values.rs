//! Sums of rotated values. Their tiles are like those of rotated keys: 32 dimensions in the lanes, and two
//! positions in a word. So they are multiplied in the same way, with weights in place of a query.
//!
//! A position's weight gets the position's scale, and is rounded to f16 after that. A power of two per row
//! and tile keeps these weights in range, whatever the scales are.

use hexflash_abi::dtype::TILE_K;

use super::attend::{Attend, AttendMemory, QueryRow, QueryRows, QueryUnit};
use super::format::{ByPairs, Format, Levels, Turned, Wide};
use super::known::Known;
use super::positions::TILE;
use super::query::both_halves;
use super::state;
use super::tile::{Seen, seen_or};
use crate::hvx::{Hvx, VectorPtr, math};
use crate::kernels::shared::row_scale::{largest_of_lanes, powers};

/// What is multiplied with the values of a tile, for one row.
#[derive(Clone, Copy)]
struct Weights<H: Hvx> {
    /// The weights in f16, as products read them.
    lanes: H::Lanes,
    /// Takes the power of two back.
    back: H::F,
    /// The sums get these bits in addition: those of infinity where a weight was infinite or NaN.
    special: H::I,
}

impl<H: Hvx> Weights<H> {
    /// Of floats. Where one is not finite, the lanes mean nothing.
    #[inline(always)]
    fn of<K: Turned<H>>(weights: H::F) -> Self {
        let largest = largest_of_lanes::<H>(H::and_i(H::bits(weights), H::splat_i(0x7fff_ffff)));
        let (to, back) = powers::<H>(largest);
        let special = H::bits(math::or_infinity::<H>(H::from_bits(largest), H::splat(0.0)));
        Self { lanes: K::lanes(both_halves::<H>(weights, to)), back, special }
    }
}

impl Attend<'_> {
    /// [`accumulate`](Self::accumulate) for rotated values.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. `staged` is a tile of rotated values.
    #[inline(always)]
    pub(super) unsafe fn accumulate_rotated<H: Hvx, C: Known>(
        &self,
        places: AttendMemory,
        staged: VectorPtr,
        unit: &QueryUnit<'_>,
        rows: &QueryRows,
    ) {
        let dv = self.of.v_cache.ne[0];
        // SAFETY: `staged` is a tile of such values (the caller's contract, point 2), and has been brought
        // whole. `wide` has room for 32 values as floats (`AttendLayout::wide`), and is the worker's own
        // (point 1). What is written is 32 vectors of floats for every 32 dimensions.
        unsafe {
            if H::CHEAP_WIDENING {
                self.add_rotated_rows::<H, Levels, C>(places, Levels(staged), staged, unit, rows);
            } else {
                self.values::<C>().widen_values::<H>(staged, places.wide, dv, 0, TILE);
                self.add_rotated_rows::<H, ByPairs<Wide>, C>(
                    places,
                    ByPairs(Wide(places.wide)),
                    staged,
                    unit,
                    rows,
                );
            }
        }
    }

    /// Adds the tile's values to every row of the unit that sees something of it.
    ///
    /// # Safety
    /// 1. The places are the worker's own, laid out by `AttendLayout` with room for the unit's rows.
    /// 2. `values` has all dimensions; `staged` is the tile they are from.
    #[inline(always)]
    unsafe fn add_rotated_rows<H: Hvx, K: Turned<H>, C: Known>(
        &self,
        places: AttendMemory,
        values: K,
        staged: VectorPtr,
        unit: &QueryUnit<'_>,
        rows: &QueryRows,
    ) {
        let rows = &rows[..unit.rows];
        let most = if H::REGISTERS >= 8 { 4 } else { 2 };
        let mut i = 0;
        while i < rows.len() {
            let seeing = rows[i..].iter().take(most).take_while(|row| row.seen.0 < row.seen.1).count();
            // SAFETY: the contract is the caller's, and the rows from `i` on that are taken are the unit's.
            unsafe {
                match seeing {
                    0 => i += 1,
                    1 => i += self.add_rotated::<H, K, C, 1>(places, values, staged, rows, i),
                    2 | 3 => i += self.add_rotated::<H, K, C, 2>(places, values, staged, rows, i),
                    _ => i += self.add_rotated::<H, K, C, 4>(places, values, staged, rows, i),
                }
            }
        }
    }

    /// sums <- shrink sums + sum of p v, for R rows from row `i` on, over even and over odd positions from 0
    /// up, then both together; R. A position that a row does not see has a weight of zero.
    ///
    /// # Safety
    /// 1. The places are the worker's own, and rows `i..i + R` the unit's, with weights.
    /// 2. `values` has all dimensions; `staged` is the tile they are from.
    #[inline(always)]
    unsafe fn add_rotated<H: Hvx, K: Turned<H>, C: Known, const R: usize>(
        &self,
        places: AttendMemory,
        values: K,
        staged: VectorPtr,
        rows: &[QueryRow],
        i: usize,
    ) -> usize {
        let dv = self.of.v_cache.ne[0];
        // SAFETY: `staged` is the tile (the caller's contract, point 2).
        let scales = unsafe { Format::scales_of_rotated::<H>(staged, dv) };
        let zero = H::splat(0.0);
        let nothing = Weights { lanes: H::lanes(zero), back: zero, special: H::bits(zero) };
        let (mut weights, mut lanes, mut shrink) = ([nothing; R], [nothing.lanes; R], [zero; R]);
        for r in 0..R {
            // SAFETY: row `i + r` is the unit's, so its state lies in the worker's own places (the caller's
            // contract, point 1), with these vectors (`AttendLayout::row`).
            let p = unsafe {
                shrink[r] = self.state(places, i + r, state::SHRINK).load::<H>(0);
                self.state(places, i + r, state::WEIGHTS).load::<H>(0)
            };
            let scaled = math::or_infinity::<H>(scales, H::mul(p, scales));
            weights[r] = Weights::of::<K>(self.shown::<H, C>(rows[i + r].seen, p, scaled));
            lanes[r] = weights[r].lanes;
        }
        for t in 0..dv / TILE_K {
            let mut sums = [K::none(); R];
            // SAFETY: `t` is one of the tiles of 32 dimensions (the caller's contract, point 2).
            unsafe { values.add_positions(&mut sums, t, &lanes) };
            for (r, sums) in sums.into_iter().enumerate() {
                let (even, odd) = K::end(sums);
                let sum = H::mul(H::add_ieee(even, odd), weights[r].back);
                let at = self.state(places, i + r, state::VALUES + t);
                // SAFETY: row `i + r` is the unit's, and its sums of values have a vector per 32 dimensions
                // (the caller's contract, point 1, and `AttendLayout::row`).
                unsafe {
                    let sum = H::add(H::mul(at.load::<H>(0), shrink[r]), sum);
                    at.store::<H>(0, H::from_bits(H::or_i(H::bits(sum), weights[r].special)));
                }
            }
            H::settle();
        }
        R
    }

    /// Weights times scales where a row sees something, else zero, whatever the scales are there: outside of
    /// `seen`, and where a mask has made the weight `p` zero.
    #[inline(always)]
    fn shown<H: Hvx, C: Known>(&self, seen: Seen, p: H::F, scaled: H::F) -> H::F {
        let scaled = seen_or::<H>(seen, scaled, H::splat(0.0));
        if self.mask::<C>().is_none() {
            return scaled;
        }
        // A weight that is NaN stays.
        H::select_gt(H::splat(f32::MIN_POSITIVE), p, H::splat(0.0), scaled)
    }
}

//! The axis of a head of rotated keys: what its queries have in common.
//!
//! The queries of a head may have much in common: in SmolLM2 six tenths of their squares are those of their
//! mean. An error of a key along that mean then costs more than what it is off in all other directions. So a
//! key is held with a correction along it: so many steps bring what its codes hold nearest to the key.
//!
//! The axis is the mean of the group's queries at the last position of the strips that hold it
//! ([`q4_r_axis_strips`]), rotated, and rounded to integers of four bits. (The query of one position has most
//! of the mean: 45 hundredths of all squares are along it.) It is there before any key that is corrected, and
//! it depends on the text alone, however the text came in steps. Where nobody asks queries
//! ([`KV_APPEND`](super::super::kv_append)), and in windows, whose first positions may be overwritten, it is
//! zero, and so are all corrections.

use hexflash_abi::VECTOR_BYTES;
use hexflash_abi::dtype::{Q4_R_STEPS, q4_r_axis_strips};

use super::cache_format::{CacheFormat, CachePlace};
use super::q4_r::Q4R;
use super::q4_r::Rotated;
use crate::hvx::{Hvx, math};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::memory::View;
use crate::row::Row;

/// What a coordinate of the axis is, at most.
const LARGEST: f32 = 7.0;

/// The part of a key's word that has two coordinates of the axis, or the key's steps.
const STEPS_MASK: i32 = 0xff;

/// Where the axis of a head is.
#[derive(Clone, Copy)]
pub(in super::super) struct Axis<'c> {
    /// Any place of the head.
    place: CachePlace<'c>,
}

impl<'c> Axis<'c> {
    /// The axis of the keys of a place's strip, if that is not one that holds the axis itself.
    #[inline(always)]
    pub fn of(place: CachePlace<'c>) -> Option<Self> {
        let has_steps = place.position / TILE >= q4_r_axis_strips(place.cache.ne[0]);
        has_steps.then_some(Self { place })
    }

    /// Whether a place is the one with which the axis is written.
    #[inline(always)]
    pub fn is_written_with(place: CachePlace<'_>) -> bool {
        place.position + 1 == q4_r_axis_strips(place.cache.ne[0]) * TILE
    }

    /// The words of the keys of strip `i`.
    #[inline(always)]
    fn words(&self, i: usize) -> *mut u8 {
        let place = CachePlace { position: i * TILE, ..self.place };
        place.strip().wrapping_add(Q4R::key_tile(place.cache.ne[0]) - VECTOR_BYTES)
    }

    /// Vector `v` of the axis.
    ///
    /// # Safety
    /// The cache is of rotated keys and has the head; nobody writes to the head meanwhile. `v` is a vector of
    /// its rows.
    #[inline(always)]
    pub unsafe fn vector<H: Hvx>(&self, v: usize) -> H::F {
        // SAFETY: a strip ends with a vector of words, which is aligned, and the cache has strip `v / 2`,
        // because that is one of those before the strip of the place (`of`).
        let words = H::words(unsafe { H::load_b(self.words(v / 2)) });
        let high = if v.is_multiple_of(2) { H::shl_i::<28>(words) } else { H::shl_i::<24>(words) };
        H::to_float(H::sar_i::<28>(high))
    }

    /// What a step along the axis adds to the score of `q` times `up`, in units of the key's scale.
    ///
    /// # Safety
    /// As [`vector`](Self::vector); the query is as long as the cache's rows.
    #[inline(always)]
    pub unsafe fn step_of<H: Hvx>(&self, q: Row<'_>, up: f32) -> f32 {
        let mut sum = H::splat(0.0);
        for v in 0..q.whole() {
            let x = H::mul(q.full::<H>(v), H::splat(up));
            // SAFETY: `v` is a vector of rows of the cache, as it is one of q (the caller's contract).
            sum = H::add(sum, H::mul(x, unsafe { self.vector::<H>(v) }));
        }
        H::sum(sum) * (1.0 / Q4_R_STEPS)
    }

    /// Writes the axis of the head of a place: the mean of the queries at `[head, token, batch]` and of the
    /// `group - 1` heads after it. Without queries it is zero.
    ///
    /// # Safety
    /// 1. The cache is of rotated keys and has the place's head, and strips up to the place.
    /// 2. This worker alone has claimed the head of the entry.
    #[inline(always)]
    pub unsafe fn write<H: Hvx>(place: CachePlace<'c>, queries: Option<(&View, [usize; 3], usize)>) {
        let (axis, d) = (Self { place }, place.cache.ne[0]);
        // The sum does as well as the mean: the largest coordinate is always the same.
        let mean = match queries {
            Some((q, [head, token, batch], group)) => {
                Rotated::sum_of::<H>((head..head + group).map(|head| q.row([head, token, batch])))
            }
            None => Rotated::NONE,
        };
        let vectors = d / TILE;
        let up = factor::<H>(&mean, vectors);
        for i in 0..q4_r_axis_strips(d) {
            let coordinate = |v: usize| {
                let x = if v < vectors { H::mul(mean.vector::<H>(v), up) } else { H::splat(0.0) };
                H::and_i(H::to_int(x), H::splat_i(0xf))
            };
            let both = H::or_i(coordinate(2 * i), H::shl_i::<4>(coordinate(2 * i + 1)));
            // SAFETY: a strip ends with a vector of words, which is aligned, and the cache has strip `i`,
            // which is not after that of the place (the caller's contract, point 1). This worker alone has
            // claimed the head (point 2).
            unsafe {
                let beside = H::and_i(H::words(H::load_b(axis.words(i))), H::splat_i(!STEPS_MASK));
                H::store_b(axis.words(i), H::bytes(H::or_i(beside, both)));
            }
        }
    }
}

/// What makes the largest of the first `n` vectors [`LARGEST`]. Zero if they are zero, infinite or NaN.
#[inline(always)]
fn factor<H: Hvx>(x: &Rotated, n: usize) -> H::F {
    let [mut squares, mut largest] = [H::splat(0.0); 2];
    for v in 0..n {
        let x = x.vector::<H>(v);
        squares = H::add(squares, H::mul(x, x));
        largest = H::max(largest, math::abs::<H>(x));
    }
    let squares = H::sum(squares);
    if squares > 0.0 && squares < f32::INFINITY {
        H::div(H::splat(LARGEST), H::splat(H::max_lane(largest)))
    } else {
        H::splat(0.0)
    }
}

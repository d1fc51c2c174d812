//! Masks: what scores get in addition, and which positions nobody sees.
//!
//! Scores that a mask hides become -infinity after the unit has made them, whatever the key is. A value is
//! different: the unit sums it with the others of its block, which have a scale in common. So values at
//! positions that a mask hides from the whole span count as zeros.

use core::ops::Range;

use hexflash_abi::{Fault, VECTOR_BYTES};

use super::fetch::{KEY_SLOTS, place_for_keys};
use super::layout::{Places, STAGED};
use super::turn::{Pass, Turn, WEIGHTS};
use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, VectorPtr, math};
use crate::kernels::attention::flash_attn::format::q8_0::{GROUP_VECTORS, SCALES_AT};
use crate::kernels::attention::flash_attn::positions::{TILE, hidden_halves};
use crate::kernels::attention::flash_attn::tuning::{KEY_TILES, PART};
use crate::memory::View;
use crate::pool::Worker;

/// Bytes that a row of the mask has for a block, and vectors: two key tiles to each.
const ROW_BYTES: usize = KEY_TILES * TILE * size_of::<u16>();
const ROW_VECTORS: usize = ROW_BYTES / VECTOR_BYTES;
/// Rows of the mask that a worker looks at together.
const CHUNK: usize = STAGED / ROW_VECTORS;

/// A part's rows of the mask lie in a place for keys, first as they come, then as floats: a vector per key
/// tile.
const FLOATS_AT: usize = PART * ROW_VECTORS;
const _: () = assert!((FLOATS_AT + PART * KEY_TILES) * KEY_SLOTS <= STAGED);

/// What the mask has for the rows of a part in a block: KEY_TILES vectors of floats per token.
#[derive(Clone, Copy)]
pub(super) struct Biases {
    first: VectorPtr,
    /// The token of the first vectors.
    token: usize,
}

impl Biases {
    /// Those of a token, from key tile `before` of the block on.
    #[inline(always)]
    pub(super) const fn of(self, token: usize, before: usize) -> VectorPtr {
        self.first.skip((token - self.token) * KEY_TILES + before)
    }
}

impl Pass<'_> {
    /// The tokens of a part's rows: the first, and how many.
    #[inline(always)]
    fn tokens_of(&self, part: usize) -> (usize, usize) {
        let first = part * PART;
        let last = (first + PART).min(self.rows) - 1;
        let token = self.query(first).token;
        (token, self.query(last).token + 1 - token)
    }

    /// What brings the key tiles `tiles` of some rows of the mask to `to`, [`ROW_BYTES`] each: only positions
    /// that somebody sees.
    ///
    /// All of it is readable: `at` checks the first row and the last one, and the assertion the positions,
    /// whose halves are adjacent (layout of the slot).
    #[inline(always)]
    fn transfer_mask(
        &self,
        mask: &View,
        (token, tokens): (usize, usize),
        tiles: Range<usize>,
        to: VectorPtr,
    ) -> Transfer {
        let (start, end) = (tiles.start * TILE, (tiles.end * TILE).min(self.positions.1));
        let row = |token: usize| mask.at([token, 0, self.batch % mask.ne[3]]).cast_const();
        let _ = row(token + tokens - 1);
        assert!(end <= mask.ne[0]);
        Transfer {
            src: row(token).wrapping_add(size_of::<u16>() * start),
            dst: to.get(),
            row_bytes: size_of::<u16>() * (end - start),
            rows: tokens,
            src_stride: mask.nb[1],
            dst_stride: ROW_BYTES,
        }
    }
}

impl Turn<'_> {
    /// Starts the transfer of what the mask has for the part of rows whose weights are made next, to place
    /// `slot` for keys. `None` where there is no mask, or the part sees nothing of the block.
    #[inline(always)]
    pub(super) fn fetch_mask(&self, worker: &mut Worker<'_>, part: usize, slot: usize) -> Option<Ticket> {
        let (mask, (block, tiles)) = (self.pass.of.mask.as_ref()?, self.block(WEIGHTS));
        let seen = self.pass.seen_by_part(block, part);
        if seen.is_empty() {
            return None;
        }
        let to = place_for_keys(worker, slot);
        let transfer = self.pass.transfer_mask(mask, self.pass.tokens_of(part), tiles.start..seen.end, to);
        // SAFETY: the source is what `transfer_mask` says, which is readable; nobody writes the mask during
        // this kernel. The destination is one of the worker's places for keys, with room for a part's rows
        // (checked above). Keys and values of the turn were claimed before any part, so that this worker
        // has none of them there any more, and the part before has the other place.
        Some(unsafe { worker.dma.push(transfer) })
    }

    /// Makes floats of what the mask has for a part.
    ///
    /// # Safety
    /// Its transfer, to `slot`, was waited for.
    #[inline(never)]
    pub(super) unsafe fn widen_mask<H: Hvx>(&self, worker: &Worker<'_>, part: usize, slot: usize) -> Biases {
        let (token, tokens) = self.pass.tokens_of(part);
        let halves = place_for_keys(worker, slot);
        let first = halves.skip(FLOATS_AT);
        for v in 0..tokens * ROW_VECTORS {
            // SAFETY: a part has 8 rows at most, and so no more tokens. The place has room for their rows,
            // and behind them for twice as many vectors of floats (checked above).
            unsafe {
                let (one, two) = math::widen_f16_in_order::<H>(halves.load_b::<H>(v));
                first.store::<H>(2 * v, one);
                first.store::<H>(2 * v + 1, two);
            }
        }
        Biases { first, token }
    }

    /// Finds the positions of the first block that the mask shows to a row of the span.
    #[inline(never)]
    pub(super) fn find_shown<H: Hvx>(&self, worker: &mut Worker<'_>, places: Places) -> Result<(), Fault> {
        let (Some(mask), (block, tiles)) = (&self.pass.of.mask, self.block(0)) else { return Ok(()) };
        let (first, staged) = (self.pass.span.first, worker.own_vtcm());
        let end = first + self.pass.span.rows;
        let mut shown = [H::splat_i(0); ROW_VECTORS];
        for token in (first..end).step_by(CHUNK) {
            let tokens = CHUNK.min(end - token);
            let transfer = self.pass.transfer_mask(mask, (token, tokens), tiles.clone(), staged);
            // SAFETY: the source is what `transfer_mask` says, which is readable; nobody writes the mask
            // during this kernel. The destination is the worker's own VTCM, which has room for a chunk, and
            // which nothing else uses now: the keys that this worker has fetched became matrix tiles.
            let ticket = unsafe { worker.dma.push(transfer) };
            worker.dma.wait(ticket)?;
            for row in 0..tokens {
                for (v, shown) in shown.iter_mut().enumerate() {
                    // SAFETY: a chunk has so many rows of `ROW_VECTORS`.
                    let halves = unsafe { staged.load_b::<H>(row * ROW_VECTORS + v) };
                    *shown = H::or_i(*shown, H::words(H::xor_b(halves, hidden_halves::<H>())));
                }
            }
        }
        for (v, shown) in shown.into_iter().enumerate() {
            let halves = [H::and_i(shown, H::splat_i(0xffff)), H::shr_i::<16>(shown)];
            // All ones, unless it is zero.
            let [even, odd] = halves.map(|x| H::from_bits(H::sar_i::<31>(H::sub_i(H::splat_i(0), x))));
            let (one, two) = H::interleave(even, odd);
            let to = places.shown(block, 2 * v);
            // SAFETY: the layout has a vector for each key tile of the block, which no other unit of the turn
            // touches: others read those of another block.
            unsafe {
                to.store::<H>(0, one);
                to.store::<H>(1, two);
            }
        }
        Ok(())
    }

    /// Makes zeros of those values, in the worker's own VTCM, that the mask hides from all rows of the span.
    ///
    /// # Safety
    /// Values of the block are there, a vector for each position, or a group for each of `key_tiles` key
    /// tiles.
    #[inline(never)]
    pub(super) unsafe fn hide_values<H: Hvx>(&self, first: VectorPtr, places: Places, key_tiles: usize) {
        let block = self.block(WEIGHTS).0;
        for key_tile in 0..key_tiles {
            let shown = places.shown(block, key_tile);
            // SAFETY: it was written as the keys of the block came.
            let lanes = H::bits(unsafe { shown.load::<H>(0) });
            if self.pass.has_codes() {
                let scales = first.skip(key_tile * GROUP_VECTORS);
                // SAFETY: each key tile has a group with a vector of scales, those of a position in its lane
                // (the caller's contract).
                unsafe {
                    let kept = H::and_i(H::words(scales.load_b::<H>(SCALES_AT)), lanes);
                    scales.store_b::<H>(SCALES_AT, H::bytes(kept));
                }
            } else if H::max_lane(H::to_float(lanes)) > -1.0 {
                for position in 0..TILE {
                    // SAFETY: the vector has 32 words, and there is a vector for each position (the caller's
                    // contract).
                    unsafe {
                        if shown.get().cast::<i32>().add(position).read() == 0 {
                            first.store_b::<H>(key_tile * TILE + position, H::splat_b(0));
                        }
                    }
                }
            }
        }
    }
}

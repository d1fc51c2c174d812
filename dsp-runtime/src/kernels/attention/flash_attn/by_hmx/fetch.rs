//! How keys and values of a block come from their caches, and become matrix tiles.

use hexflash_abi::{Fault, VECTOR_BYTES};

use super::codes::{Codes, pack_codes, unpack_keys};
use super::layout::{Places, STAGED};
use super::prepare::{Staged, describe_keys, pack_values, range_of_keys};
use super::rows::{clear_beyond, turn_keys};
use super::turn::{Pass, Turn, WEIGHTS};
use crate::dma::{Ticket, Transfer};
use crate::hvx::{Hvx, VectorPtr};
use crate::kernels::attention::flash_attn::format::q8_0::GROUP_VECTORS;
use crate::kernels::attention::flash_attn::format::{CachePlace, Format};
use crate::kernels::attention::flash_attn::positions::{TILE, cache_position};
use crate::kernels::attention::flash_attn::tuning::KEY_TILES;
use crate::kernels::shared::row_scale::Depth;
use crate::pool::Worker;

/// Dimensions of values that become matrix tiles together, and columns of 32.
const DIMS: usize = VECTOR_BYTES / 2;
pub(super) const COLUMNS: usize = DIMS / TILE;

/// Places for 32 keys that are no matrix tiles: some arrive while those before become such.
pub(super) const KEY_SLOTS: usize = 2;
/// Vectors of 32 keys that are no matrix tiles, at most.
const MOST_KEY_VECTORS: usize = STAGED / KEY_SLOTS;
const _: () = assert!(KEY_TILES * GROUP_VECTORS <= STAGED);

/// Place `slot` for keys: the worker's own, of STAGED / [`KEY_SLOTS`] vectors.
#[inline(always)]
pub(super) fn place_for_keys(worker: &Worker<'_>, slot: usize) -> VectorPtr {
    worker.own_vtcm().skip(slot * MOST_KEY_VECTORS)
}

/// Whether keys and values of these formats and widths can become matrix tiles. Those of F16 have whole pairs
/// of dimensions, and 32 keys that are rows fit into a worker's VTCM. Those of Q8_0 are in strips, with keys
/// of whole tiles, which fit, too.
pub(super) fn can_be_tiles([keys, values]: [Format; 2], [d, dv]: [usize; 2]) -> bool {
    let fits = keys.key_tile(d) <= MOST_KEY_VECTORS * VECTOR_BYTES;
    match (keys, values) {
        (Format::F16 { rows }, Format::F16 { .. }) => {
            d.is_multiple_of(2) && dv.is_multiple_of(2) && (fits || !rows)
        }
        (Format::Q8_0 { rows: false }, Format::Q8_0 { rows: false }) => d.is_multiple_of(TILE) && fits,
        _ => false,
    }
}

impl Turn<'_> {
    /// Starts the transfer of key tile `i` of the first block: of what is no matrix tile, to place `slot` for
    /// such keys.
    #[inline(always)]
    pub(super) fn fetch_keys(
        &self,
        worker: &mut Worker<'_>,
        places: Places,
        i: usize,
        slot: usize,
    ) -> Ticket {
        let Pass { of, span, kv_head, batch, .. } = &self.pass;
        let (block, tiles) = self.block(0);
        let start = (tiles.start + i) * TILE;
        let (position, end) = (cache_position(start, of.v_cache.ne[1]), (start + TILE).min(of.end(span)));
        let entry = span.entry(*batch, of.q.ne[3]);
        let place = CachePlace { cache: &of.k_cache, position, head: *kv_head, entry };
        let to = match of.keys {
            Format::F16 { rows: false } => places.keys(block, i).vectors(),
            _ => place_for_keys(worker, slot),
        };
        let transfer = of.keys.transfer_keys(place, position + (end - start), to.get());
        // SAFETY: of strips, the place is checked as its address is made, and their format brings no more
        // than there is. Of rows, those up to `end` are readable: ATTEND has so many (`Band::of_query`).
        // Nobody writes keys during this kernel. The destination is the room for a key tile that this worker
        // has claimed: what was there before was multiplied last a turn ago. Or it is one of the worker's two
        // places for keys, which they fit (`can_be_tiles`): those of the tile before are in the other one,
        // and those before became matrix tiles.
        unsafe { worker.dma.push(transfer) }
    }

    /// Describes the keys of tile `i` of the first block, which have arrived, and which become matrix tiles
    /// before if they are none.
    ///
    /// # Safety
    /// Their transfer, to `slot`, was waited for, and this worker has claimed the tile.
    #[inline(never)]
    pub(super) unsafe fn describe<H: Hvx>(&self, worker: &Worker<'_>, places: Places, i: usize, slot: usize) {
        let (block, d) = (self.block(0).0, self.pass.of.q.ne[0]);
        let log = Depth::of(d).log;
        let (keys, k_tiles) = (places.keys(block, i), self.pass.k_tiles());
        let staged = place_for_keys(worker, slot);
        // SAFETY: the keys have arrived (the caller's contract). The layout has matrix tiles, three more and
        // a vector for them, which this worker's claim gives to it alone: the unit and other stages read
        // those of other blocks. The place for keys is the worker's own, and they fit (`can_be_tiles`).
        unsafe {
            let range = if self.pass.has_codes() {
                unpack_keys::<H>(staged, k_tiles, keys)
            } else if let Format::F16 { rows: true } = self.pass.of.keys {
                turn_keys::<H>(staged, d, keys)
            } else {
                clear_beyond::<H>(keys, d);
                range_of_keys::<H>(keys, k_tiles)
            };
            describe_keys::<H>(range, log, places.key_tables(block, i), places.key_factors(block, i));
        }
    }

    /// Fetches a pair of columns of a block's values, and makes matrix tiles of them.
    #[inline(never)]
    pub(super) fn pack_values<H: Hvx>(
        &self,
        worker: &mut Worker<'_>,
        places: Places,
        pair: usize,
    ) -> Result<(), Fault> {
        let Pass { of, kv_head, layout, .. } = &self.pass;
        let (block, tiles) = self.block(WEIGHTS);
        let ((start, end), has_codes) = (self.pass.positions, self.pass.has_codes());
        let mut tickets = [None; KEY_TILES];
        for (i, tile) in tiles.clone().enumerate() {
            let transfer = if has_codes {
                self.transfer_codes(worker, i, tile, pair)
            } else {
                self.transfer_values(worker, i, tile, pair)
            };
            // SAFETY: the source is what `transfer_codes` or `transfer_values` says, which is readable, and
            // the destination is the worker's own VTCM, which nothing else uses now. Nobody writes the caches
            // during this kernel.
            tickets[i] = Some(unsafe { worker.dma.push(transfer) });
        }
        for ticket in tickets.into_iter().flatten() {
            worker.dma.wait(ticket)?;
        }
        let (block_start, first) = (tiles.start * TILE, worker.own_vtcm());
        let seen = (start.max(block_start) - block_start, end.min(tiles.end * TILE) - block_start);
        let (key_tiles, dims) = (tiles.len(), (of.v_cache.ne[0] - pair * DIMS).min(DIMS));
        let columns = [COLUMNS * pair, COLUMNS * pair + 1];
        debug_assert!(columns[1] < layout.columns);
        let to = columns.map(|column| places.values(block, column));
        let tables = columns.map(|column| places.value_table(block, column));
        let factors = places.value_factors(block, columns[0]);
        if of.mask.is_some() {
            // SAFETY: the values that somebody sees have arrived, in a vector for each position, or a group
            // for each key tile.
            unsafe { self.hide_values::<H>(first, places, key_tiles) };
        }
        // SAFETY: the values that somebody sees have arrived, in a vector for each position, or a group for
        // each key tile. The layout has tiles, a table and a vector of factors for each column, those of two
        // columns one behind the other, which this worker's claim gives to it alone: the unit and other
        // stages read those of other blocks.
        let finite = unsafe {
            if has_codes {
                pack_codes::<H>(Codes { first, key_tiles, seen, dims }, to, tables, factors)
            } else {
                pack_values::<H>(Staged { first, key_tiles, seen, dims }, to, tables, factors)
            }
        };
        if !finite {
            self.pass.damage.note(*kv_head);
        }
        Ok(())
    }

    /// Transfer of 64 dimensions of a tile's values of F16 that somebody sees: a row to each vector.
    ///
    /// The rows are readable: the place is checked as its address is made. If the cache holds the whole
    /// context, the last one is before the span's end, which the registers keep within the context. A KV ring
    /// has whole tiles (the shape rule), and these rows are of one tile. A row has `dims` values from `64 *
    /// pair` on.
    #[inline(always)]
    fn transfer_values(&self, worker: &Worker<'_>, i: usize, tile: usize, pair: usize) -> Transfer {
        let Pass { of, span, kv_head, batch, positions: (start, end), .. } = &self.pass;
        let (from, to) = ((*start).max(tile * TILE), (*end).min((tile + 1) * TILE));
        let position = cache_position(from, of.v_cache.ne[1]);
        let entry = span.entry(*batch, of.q.ne[3]);
        let dims = (of.v_cache.ne[0] - pair * DIMS).min(DIMS);
        Transfer {
            src: of.v_cache.at([position, *kv_head, entry]).wrapping_add(pair * VECTOR_BYTES),
            dst: worker.own_vtcm().skip(i * TILE + from % TILE).get(),
            row_bytes: 2 * dims,
            rows: to - from,
            src_stride: of.v_cache.nb[1],
            dst_stride: VECTOR_BYTES,
        }
    }

    /// Transfer of the group of 64 dimensions of a tile's codes of values, which the strip has whole.
    #[inline(always)]
    fn transfer_codes(&self, worker: &Worker<'_>, i: usize, tile: usize, pair: usize) -> Transfer {
        let Pass { of, span, kv_head, batch, .. } = &self.pass;
        let position = cache_position(tile * TILE, of.v_cache.ne[1]);
        let strip = of.v_cache.at([position / TILE, *kv_head, span.entry(*batch, of.q.ne[3])]);
        let bytes = GROUP_VECTORS * VECTOR_BYTES;
        let to = worker.own_vtcm().skip(i * GROUP_VECTORS);
        Transfer::linear(strip.wrapping_add(pair * bytes).cast_const(), to.get(), bytes)
    }
}

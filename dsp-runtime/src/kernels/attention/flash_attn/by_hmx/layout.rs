//! Where a pass of attention has its matrix tiles in VTCM.

use hexflash_abi::VECTOR_BYTES;

use crate::hmx::{TILE_BYTES, TILE_VECTORS, TilePtr};
use crate::hvx::{LANES, VectorPtr};
use crate::kernels::attention::flash_attn::positions::TILE;
use crate::kernels::attention::flash_attn::state::found_vectors;
use crate::kernels::attention::flash_attn::tuning::{KEY_TILES, MOST_ROW_TILES, PART};
use crate::vtcm::VtcmPlan;

/// Parts of a matrix tile of rows.
pub(super) const PARTS: usize = TILE / PART;
/// Vectors of a worker's own before its scores.
pub(super) const STAGED: usize = KEY_TILES * TILE;
/// Blocks whose tiles are in VTCM: one is written while the one before it is read.
const SLOTS: usize = 2;
/// Blocks whose factors are: those that are read a turn later.
const LONG_SLOTS: usize = 3;

/// Floats of a matrix tile's size.
const FLOATS: usize = TILE_BYTES / size_of::<f32>();
/// Matrix tiles that go with one of keys: the tables of both parts of a score, and what takes the first part
/// away.
const KEY_TABLES: usize = 3;

/// The sizes of heads, in matrix tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Of keys, along their dimensions.
    pub k_tiles: usize,
    /// Of values: columns of 32, an even number.
    pub columns: usize,
    /// Matrix tiles of rows of the longest pass that is wanted.
    pub row_tiles: usize,
}

/// How much of a pass is in VTCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    k_tiles: usize,
    pub columns: usize,
    /// Matrix tiles of rows.
    pub row_tiles: usize,
}

impl Layout {
    /// The layout with most rows, up to those that are wanted, that fits into so many bytes; `None` if none
    /// does.
    pub(super) fn fit(extent: Extent, workers: usize, bytes: usize) -> Option<Self> {
        let Extent { k_tiles, columns, row_tiles } = extent;
        let layouts = (1..=row_tiles.clamp(1, MOST_ROW_TILES)).rev();
        layouts
            .map(|row_tiles| Self { k_tiles, columns, row_tiles })
            .find(|layout| layout.plan().fit(workers, bytes).is_ok())
    }

    /// VTCM that it takes: the tiles, for all workers, and what each has for itself.
    pub(super) const fn plan(self) -> VtcmPlan {
        VtcmPlan { shared: (1 + self.end()) * TILE_BYTES, own: Self::own() }
    }

    /// Bytes of a worker's own: values on their way into tiles, a vector for each position of a block; then
    /// scores, one for each row of a part and key tile of a block.
    const fn own() -> usize {
        (STAGED + PART * KEY_TILES) * VECTOR_BYTES
    }

    const fn keys_at(self) -> usize {
        self.row_tiles * self.k_tiles
    }

    const fn key_tables_at(self) -> usize {
        self.keys_at() + SLOTS * KEY_TILES * self.k_tiles
    }

    const fn key_factors_at(self) -> usize {
        self.key_tables_at() + SLOTS * KEY_TILES * KEY_TABLES
    }

    const fn values_at(self) -> usize {
        self.key_factors_at() + LONG_SLOTS
    }

    const fn value_tables_at(self) -> usize {
        self.values_at() + SLOTS * self.columns * KEY_TILES
    }

    const fn value_factors_at(self) -> usize {
        self.value_tables_at() + SLOTS * self.columns
    }

    const fn scores_at(self) -> usize {
        self.value_factors_at() + LONG_SLOTS
    }

    const fn weights_at(self) -> usize {
        self.scores_at() + SLOTS * self.row_tiles * KEY_TILES * 2
    }

    const fn sums_at(self) -> usize {
        self.weights_at() + SLOTS * self.row_tiles * KEY_TILES
    }

    const fn shrink_at(self) -> usize {
        self.sums_at() + SLOTS * self.row_tiles * self.columns
    }

    const fn row_factors_at(self) -> usize {
        self.shrink_at() + (LONG_SLOTS * self.row_tiles * PARTS).div_ceil(TILE_VECTORS)
    }

    const fn found_at(self) -> usize {
        self.row_factors_at() + (self.row_tiles * TILE).div_ceil(FLOATS)
    }

    const fn end(self) -> usize {
        self.found_at() + (self.row_tiles * TILE * found_vectors(self.columns)).div_ceil(TILE_VECTORS)
    }

    /// The layout in the shared region at `base`, of at least the bytes of [`plan`](Self::plan).
    pub(super) fn at(self, base: VectorPtr) -> Places {
        Places { layout: self, base: TilePtr::at_or_after(base) }
    }
}

/// A layout in VTCM. All that it gives lies inside of the region, for numbers below those of the layout.
/// Blocks are numbered in the order in which they come, and have their places in turn.
#[derive(Clone, Copy)]
pub(super) struct Places {
    layout: Layout,
    base: TilePtr,
}

impl Places {
    /// The matrix tiles of 32 queries.
    #[inline(always)]
    pub(super) const fn queries(self, row_tile: usize) -> TilePtr {
        self.base.skip(row_tile * self.layout.k_tiles)
    }

    /// A number that a block, and one of its key tiles, have among those of `slots` blocks.
    #[inline(always)]
    const fn in_block(self, slots: usize, block: usize, key_tile: usize) -> usize {
        block % slots * KEY_TILES + key_tile
    }

    /// The matrix tiles of 32 keys.
    #[inline(always)]
    pub(super) const fn keys(self, block: usize, key_tile: usize) -> TilePtr {
        let at = self.in_block(SLOTS, block, key_tile);
        self.base.skip(self.layout.keys_at() + at * self.layout.k_tiles)
    }

    /// The table of the first part of the scores of 32 keys. That of the second part follows, then the tile
    /// that takes the first part away.
    #[inline(always)]
    pub(super) const fn key_tables(self, block: usize, key_tile: usize) -> TilePtr {
        let at = self.in_block(SLOTS, block, key_tile);
        self.base.skip(self.layout.key_tables_at() + at * KEY_TABLES)
    }

    /// Vector of factors that the scores of 32 keys are multiplied with.
    #[inline(always)]
    pub(super) const fn key_factors(self, block: usize, key_tile: usize) -> VectorPtr {
        self.base.skip(self.layout.key_factors_at() + block % LONG_SLOTS).vectors().skip(key_tile)
    }

    /// Which of 32 keys the mask shows to a row of the span: ones, or zeros. Behind the factors.
    #[inline(always)]
    pub(super) const fn shown(self, block: usize, key_tile: usize) -> VectorPtr {
        self.key_factors(block, KEY_TILES + key_tile)
    }

    /// The matrix tiles of a column of a block's values, one for each key tile.
    #[inline(always)]
    pub(super) const fn values(self, block: usize, column: usize) -> TilePtr {
        let at = (block % SLOTS * self.layout.columns + column) * KEY_TILES;
        self.base.skip(self.layout.values_at() + at)
    }

    /// The table of a column of a block's values.
    #[inline(always)]
    pub(super) const fn value_table(self, block: usize, column: usize) -> TilePtr {
        self.base.skip(self.layout.value_tables_at() + block % SLOTS * self.layout.columns + column)
    }

    /// Vector of factors that the sums of a column are multiplied with.
    #[inline(always)]
    pub(super) const fn value_factors(self, block: usize, column: usize) -> VectorPtr {
        self.base.skip(self.layout.value_factors_at() + block % LONG_SLOTS).vectors().skip(column)
    }

    /// The matrix tiles of 32 rows in a block, one for each key tile.
    #[inline(always)]
    const fn of_rows(self, block: usize, row_tile: usize) -> usize {
        (block % SLOTS * self.layout.row_tiles + row_tile) * KEY_TILES
    }

    /// The first part of the scores of 32 rows and 32 keys; the second part follows.
    #[inline(always)]
    pub(super) const fn scores(self, block: usize, row_tile: usize, key_tile: usize) -> TilePtr {
        self.base.skip(self.layout.scores_at() + 2 * (self.of_rows(block, row_tile) + key_tile))
    }

    /// The weights of 32 rows, a matrix tile for each key tile of a block.
    #[inline(always)]
    pub(super) const fn weights(self, block: usize, row_tile: usize) -> TilePtr {
        self.base.skip(self.layout.weights_at() + self.of_rows(block, row_tile))
    }

    /// Matrix tile with the sums of 32 rows and a column of values of a block.
    #[inline(always)]
    pub(super) const fn sums(self, block: usize, row_tile: usize, column: usize) -> TilePtr {
        let at = (block % SLOTS * self.layout.row_tiles + row_tile) * self.layout.columns + column;
        self.base.skip(self.layout.sums_at() + at)
    }

    /// What a block makes of the sums of a part's rows before, a lane each.
    #[inline(always)]
    pub(super) const fn shrink(self, block: usize, part: usize) -> VectorPtr {
        let at = block % LONG_SLOTS * self.layout.row_tiles * PARTS + part;
        self.base.skip(self.layout.shrink_at()).vectors().skip(at)
    }

    /// What takes the scale of a query back, for each row.
    #[inline(always)]
    pub(super) const fn row_factors(self) -> *mut f32 {
        self.base.skip(self.layout.row_factors_at()).vectors().get().cast()
    }

    /// What was found for a row: `Found` in `split.rs`.
    #[inline(always)]
    pub(super) const fn found(self, row: usize) -> VectorPtr {
        self.base.skip(self.layout.found_at()).vectors().skip(row * found_vectors(self.layout.columns))
    }
}

const _: () = assert!(TILE == LANES && 2 * KEY_TILES <= TILE_VECTORS);

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of a layout are apart, and inside of the bytes that it takes, which are no more than it was
    /// given.
    #[test]
    fn places_are_apart_and_inside() {
        for (k_tiles, columns, row_tiles, workers) in
            [(2, 2, 1, 1), (2, 2, 40, 4), (3, 4, 7, 6), (8, 8, 64, 6), (16, 16, 64, 3)]
        {
            for bytes in [512 << 10, 1 << 20, 4 << 20, 8 << 20] {
                let Some(layout) = Layout::fit(Extent { k_tiles, columns, row_tiles }, workers, bytes) else {
                    assert!(bytes < 2 << 20, "{k_tiles} {bytes}");
                    continue;
                };
                let plan = layout.plan();
                plan.fit(workers, bytes).unwrap();
                let places = layout.at(VectorPtr::new(core::ptr::without_provenance_mut(128)).unwrap());
                let mut all = std::vec::Vec::new();
                let mut add = |p: VectorPtr, vectors: usize| {
                    all.push((p.get().addr(), p.get().addr() + vectors * VECTOR_BYTES));
                };
                let (rows, tile) = (layout.row_tiles, |n: usize| n * TILE_VECTORS);
                for r in 0..rows {
                    add(places.queries(r).vectors(), tile(k_tiles));
                }
                for block in 0..SLOTS {
                    for b in 0..KEY_TILES {
                        add(places.keys(block, b).vectors(), tile(k_tiles));
                        add(places.key_tables(block, b).vectors(), tile(KEY_TABLES));
                        (0..rows).for_each(|r| add(places.scores(block, r, b).vectors(), tile(2)));
                    }
                    for c in 0..columns {
                        add(places.values(block, c).vectors(), tile(KEY_TILES));
                        add(places.value_table(block, c).vectors(), tile(1));
                        (0..rows).for_each(|r| add(places.sums(block, r, c).vectors(), tile(1)));
                    }
                    (0..rows).for_each(|r| add(places.weights(block, r).vectors(), tile(KEY_TILES)));
                }
                for block in 0..LONG_SLOTS {
                    (0..KEY_TILES).for_each(|b| add(places.key_factors(block, b), 1));
                    (0..KEY_TILES).for_each(|b| add(places.shown(block, b), 1));
                    (0..columns).for_each(|c| add(places.value_factors(block, c), 1));
                    (0..rows * PARTS).for_each(|part| add(places.shrink(block, part), 1));
                }
                all.push((places.row_factors().addr(), places.row_factors().addr() + rows * TILE * 4));
                for row in 0..rows * TILE {
                    let from = places.found(row).get().addr();
                    all.push((from, from + found_vectors(columns) * VECTOR_BYTES));
                }
                all.sort_unstable();
                assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{layout:?}");
                assert!(all[0].0 >= 128 && all[all.len() - 1].1 <= 128 + plan.shared, "{layout:?}");
            }
        }
    }

    /// Wide heads have fewer rows where VTCM is small, and then none.
    #[test]
    fn what_does_not_fit_is_cut() {
        let fit = |k_tiles, bytes| Layout::fit(Extent { k_tiles, columns: k_tiles, row_tiles: 64 }, 4, bytes);
        let rows = |k_tiles, bytes| fit(k_tiles, bytes).map(|layout| layout.row_tiles);
        assert_eq!(rows(2, 8 << 20), Some(16));
        assert_eq!(rows(8, 8 << 20), Some(16));
        assert!((4..16).contains(&rows(8, 2 << 20).unwrap()));
        assert!((4..16).contains(&rows(2, 1 << 20).unwrap()));
        assert_eq!(rows(8, 512 << 10), None);
    }
}

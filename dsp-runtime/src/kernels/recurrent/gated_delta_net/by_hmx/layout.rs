//! Where a pass of heads has its states and matrix tiles in VTCM.

use super::super::chunk::ChunkMemory;
use super::super::sweep::MAX_STATE;
use super::super::tile::{KEY_ROWS, Tile};
use crate::hmx::{TILE_BYTES, TILE_VECTORS, TilePtr};
use crate::hvx::{LANES, VectorPtr};
use crate::vtcm::VtcmPlan;

/// Heads of a pass, at most: with more, states would leave no VTCM to the next op's weights in any case.
const MOST_HEADS: usize = 64;

/// Matrix tiles of all heads: see [`Places::table`].
const COMMON: usize = 4;
/// Vectors of values, at most.
pub(super) const MOST_COLUMNS: usize = MAX_STATE / LANES;

/// Vectors of a head's notes.
pub(super) mod notes {
    use super::MOST_COLUMNS;

    /// G, exp(G) and beta, with tokens in the lanes.
    pub const LOG: usize = 0;
    pub const GROWN: usize = 1;
    pub const BETA: usize = 2;
    /// What takes the scale of a key back, and that of a query.
    pub const KEY: usize = 3;
    pub const QUERY: usize = 4;
    /// Not zero if the unit takes this chunk.
    pub const IS_ORDINARY: usize = 5;
    /// exp(G_n - G): what is left of a token at the end of the chunk.
    pub const LEFT: usize = 6;
    /// The largest magnitudes of the state before the chunk, a lane each, a vector for each 32 values; then
    /// what takes their scales back.
    pub const STATE: usize = 7;
    /// What takes the scales of u back.
    pub const CHANGES: usize = STATE + MOST_COLUMNS;
    /// All of them.
    pub const VECTORS: usize = CHANGES + MOST_COLUMNS;
}

const _: () = assert!(notes::VECTORS <= TILE_VECTORS);

/// How many heads of a size are in VTCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    tile: Tile,
    pub(super) heads: usize,
}

impl Layout {
    /// The layout with most heads, up to those that are wanted, that fits into so many bytes; `None` if none
    /// does.
    pub(super) fn fit(tile: Tile, wanted: usize, workers: usize, bytes: usize) -> Option<Self> {
        let layouts = (1..=wanted.min(MOST_HEADS)).rev().map(|heads| Self { tile, heads });
        layouts.into_iter().find(|layout| layout.plan().fit(workers, bytes).is_ok())
    }

    /// What it takes: heads and the unit's table, for all workers; and what each has for itself, which is
    /// that of a chunk without the unit.
    pub(super) const fn plan(self) -> VtcmPlan {
        let tiles = 1 + COMMON + self.heads * tiles_of_head(self.tile);
        VtcmPlan { shared: tiles * TILE_BYTES, own: KEY_ROWS + ChunkMemory::bytes(self.tile) }
    }

    /// The layout in the shared region at `base`, of at least the bytes of [`plan`](Self::plan).
    pub(super) fn at(self, base: VectorPtr) -> Places {
        Places { layout: self, base: TilePtr::at_or_after(base) }
    }
}

/// Matrix tiles before a head's state: see [`HeadPlaces`].
const fn tiles_before_state(columns: usize) -> usize {
    12 * columns + columns * columns + 7
}

const fn tiles_of_head(tile: Tile) -> usize {
    tiles_before_state(tile.vectors) + tile.bytes().div_ceil(TILE_BYTES)
}

/// A layout in VTCM. All that it gives lies inside of the region, for heads below those of the layout.
#[derive(Clone, Copy)]
pub(super) struct Places {
    layout: Layout,
    base: TilePtr,
}

impl Places {
    /// The unit's tables: of most products, and of both parts of products of rows with keys; then the
    /// diagonal that takes the first part away.
    #[inline(always)]
    pub(super) const fn table(self, which: usize) -> TilePtr {
        self.base.skip(which)
    }

    /// What head `i` of the pass has.
    #[inline(always)]
    pub(super) const fn head(self, i: usize) -> HeadPlaces {
        let tile = self.layout.tile;
        HeadPlaces { base: self.base.skip(COMMON + i * tiles_of_head(tile)), columns: tile.vectors }
    }
}

/// What a head has in VTCM. A column is 32 values; there are as many as there are 32 keys. Of numbers that
/// fp16 is too coarse for, there are two tiles: part 0 is what fp16 has of them, and part 1 the rest. What is
/// there at different stages of a chunk shares places: see the two that say so.
#[derive(Clone, Copy)]
pub(super) struct HeadPlaces {
    base: TilePtr,
    columns: usize,
}

impl HeadPlaces {
    /// Keys (0) or queries (1) of the tokens: A, `columns` tiles.
    #[inline(always)]
    pub(super) const fn rows(self, part: usize, which: usize) -> TilePtr {
        self.base.skip((2 * part + which) * self.columns)
    }

    /// Sums of p and u of a column: C. In the place of keys, which were multiplied before.
    #[inline(always)]
    pub(super) const fn sums(self, column: usize) -> TilePtr {
        self.rows(0, 0).skip(column)
    }

    /// Keys with tokens in the lanes: `columns` tiles, which are W of all keys, or A of 32 of them each.
    #[inline(always)]
    pub(super) const fn across(self, part: usize) -> TilePtr {
        self.base.skip((4 + part) * self.columns)
    }

    /// A column of u, times what takes the keys' scales back: W.
    #[inline(always)]
    pub(super) const fn u_column(self, part: usize, column: usize) -> TilePtr {
        self.base.skip((6 + part) * self.columns + column)
    }

    /// The same, times what is left of each token at the end of the chunk.
    #[inline(always)]
    pub(super) const fn left_column(self, part: usize, column: usize) -> TilePtr {
        self.base.skip((8 + part) * self.columns + column)
    }

    /// A column of the state: W, `columns` tiles.
    #[inline(always)]
    pub(super) const fn state_column(self, column: usize) -> TilePtr {
        self.base.skip((10 + column) * self.columns)
    }

    /// What a column of the state of 32 keys changes by: C. In the place of the state's tiles, which were
    /// multiplied before.
    #[inline(always)]
    pub(super) const fn changes(self, key_tile: usize, column: usize) -> TilePtr {
        self.state_column(column).skip(key_tile)
    }

    /// Products of keys (0) or queries (1) and a column of the state: C.
    #[inline(always)]
    pub(super) const fn of_state(self, which: usize, column: usize) -> TilePtr {
        self.state_column(self.columns + which).skip(column)
    }

    /// Products of keys (0) or queries (1) and keys: C.
    #[inline(always)]
    pub(super) const fn of_keys(self, part: usize, which: usize) -> TilePtr {
        self.state_column(self.columns + 2).skip(2 * part + which)
    }

    /// p: A.
    #[inline(always)]
    pub(super) const fn p(self, part: usize) -> TilePtr {
        self.of_keys(2, part)
    }

    /// What stages tell the next ones: vectors ([`notes`]).
    #[inline(always)]
    pub(super) const fn notes(self) -> VectorPtr {
        self.of_keys(3, 0).vectors()
    }

    /// Whether it is noted that the unit takes the chunk.
    ///
    /// # Safety
    /// That note was written, and nobody writes it now.
    #[inline(always)]
    pub(super) unsafe fn is_ordinary(self) -> bool {
        // SAFETY: this is the first word of a vector that was written (the caller's contract).
        unsafe { self.notes().skip(notes::IS_ORDINARY).get().cast::<f32>().read() > 0.0 }
    }

    /// The state.
    #[inline(always)]
    pub(super) const fn state(self) -> VectorPtr {
        self.base.skip(tiles_before_state(self.columns)).vectors()
    }
}

const _: () = assert!(LANES == TILE_VECTORS * 2);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place of every head, with its tiles; shared ones once.
    fn places(layout: Layout) -> Vec<(usize, usize)> {
        let columns = layout.tile.vectors;
        // SAFETY: nothing is read or written here.
        let base = VectorPtr::new(core::ptr::without_provenance_mut(1 << 20)).unwrap();
        let places = layout.at(base);
        let mut all: Vec<_> = (0..COMMON).map(|which| (places.table(which), 1)).collect();
        for head in (0..layout.heads).map(|i| places.head(i)) {
            for part in 0..2 {
                all.extend([0, 1].map(|which| (head.rows(part, which), columns)));
                all.extend([0, 1].map(|which| (head.of_keys(part, which), 1)));
                all.extend([(head.across(part), columns), (head.p(part), 1)]);
                all.extend((0..columns).map(|column| (head.u_column(part, column), 1)));
                all.extend((0..columns).map(|column| (head.left_column(part, column), 1)));
            }
            for column in 0..columns {
                all.push((head.state_column(column), columns));
                all.extend([0, 1].map(|which| (head.of_state(which, column), 1)));
            }
            all.push((TilePtr::at_or_after(head.notes()), 1));
            all.push((TilePtr::at_or_after(head.state()), layout.tile.bytes().div_ceil(TILE_BYTES)));
        }
        let tile = |tile: TilePtr| (tile.vectors().get().addr() - (1 << 20)) / TILE_BYTES;
        all.into_iter().map(|(at, tiles)| (tile(at), tiles)).collect()
    }

    #[test]
    fn places_are_apart_and_fill_what_is_planned() {
        for (size, heads) in [(64, 1), (64, 5), (128, 1), (128, 16)] {
            let layout = Layout { tile: Tile::new(size), heads };
            let mut places = places(layout);
            places.sort_unstable();
            let mut end = 0;
            for (at, tiles) in places {
                assert_eq!(at, end, "S={size} heads={heads}");
                end = at + tiles;
            }
            // One more, because a region may begin anywhere in a tile.
            assert_eq!((end + 1) * TILE_BYTES, layout.plan().shared);
        }
    }

    #[test]
    fn as_many_heads_as_fit() {
        let tile = Tile::new(128);
        let fit = |wanted, bytes| Layout::fit(tile, wanted, 4, bytes).map(|layout| layout.heads);
        assert_eq!(fit(16, 8 << 20), Some(16));
        assert_eq!(fit(16, 128 << 10), None);
        let some = fit(16, 2 << 20).unwrap();
        assert!((1..16).contains(&some));
        assert!(Layout { tile, heads: some + 1 }.plan().fit(4, 2 << 20).is_err());
    }
}

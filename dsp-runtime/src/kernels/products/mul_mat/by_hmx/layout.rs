//! Where the matrix tiles of a product lie in VTCM.

use hexflash_abi::dtype::{TILE_K, TILE_ROWS, TileGroup};
use hexflash_abi::program::TensorDesc;

use crate::hmx::{TILE_BYTES, TilePtr};
use crate::hvx::{LANES, VectorPtr};

/// Chunks of strips whose matrix tiles are in VTCM: one is multiplied while the next one is made.
const CHUNKS: usize = 2;
/// Chunks whose columns are described: those, and the one whose results are stored.
const TABLES: usize = CHUNKS + 1;
/// Row factors of a matrix tile's size.
const FACTORS: usize = TILE_BYTES / size_of::<f32>();

/// The sizes of a product, in matrix tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Along k.
    pub k_tiles: usize,
    /// Room for a strip: see [`place`].
    pub place: usize,
    /// Strips of the matrix.
    pub strips: usize,
    /// Rows of x, not tiles.
    pub rows: usize,
}

impl Extent {
    /// Those of a product of w and `rows` rows.
    pub(super) fn of(w: &TensorDesc, group: TileGroup, rows: usize) -> Self {
        Self::new([w.ne[0] as usize, w.ne[1] as usize], group, rows)
    }

    /// Those of a product of a matrix {k,n} and `rows` rows.
    pub(super) const fn new([k, n]: [usize; 2], group: TileGroup, rows: usize) -> Self {
        let (k_tiles, strips) = (k.div_ceil(TILE_K), n.div_ceil(TILE_ROWS));
        Self { k_tiles, place: place(group, k), strips, rows }
    }

    /// Matrix tiles of rows, and matrix tiles of VTCM beside what a layout has in it: the factors of all
    /// rows, and one more, because the first one begins at a multiple of its size.
    fn rows_and_rest(self) -> (usize, usize) {
        let row_tiles = self.rows.div_ceil(TILE_ROWS).max(1);
        (row_tiles, 1 + (row_tiles * TILE_ROWS).div_ceil(FACTORS))
    }

    /// Bytes of the smallest layout.
    pub(super) fn least_bytes(self) -> usize {
        let (_, rest) = self.rows_and_rest();
        (rest + CHUNKS * (self.place + 1) + TABLES + self.k_tiles) * TILE_BYTES
    }
}

/// Matrix tiles more than weights become: what is smaller than its matrix tiles arrives at the end of its
/// room and is unpacked in place, from the front, and no tile may be written over weights that are still to
/// be read. (Q6_K needs two: it has the most bits behind those that are read first.)
pub(super) const SPARE: usize = 2;

/// Matrix tiles of the room for a strip of rows of `k` values.
pub(super) const fn place(group: TileGroup, k: usize) -> usize {
    let tiles = group.k / TILE_K;
    let unpacked = group.bytes < tiles * TILE_BYTES;
    group.count(k) * tiles + if unpacked { SPARE } else { 0 }
}

/// How much of a product is in VTCM at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    k_tiles: usize,
    place: usize,
    /// Matrix tiles of rows that share a pass over the weights.
    pub row_tiles: usize,
    /// Strips of a chunk.
    pub strips: usize,
    /// Matrix tiles for what is not one: see [`Extent::rows_and_rest`].
    rest: usize,
}

impl Layout {
    /// The layout that fits into so many bytes; `None` if none does.
    ///
    /// Each worker has a strip to unpack, if there is room. Then as many rows as there are share a pass over
    /// the weights, because every pass unpacks all of them again.
    pub(super) fn fit(extent: Extent, workers: usize, bytes: usize) -> Option<Self> {
        let Extent { k_tiles, place, strips, .. } = extent;
        let (wanted, rest) = extent.rows_and_rest();
        let room = (bytes / TILE_BYTES).checked_sub(rest)?;
        (1..=workers.min(strips).max(1)).rev().find_map(|strips| {
            let fixed = strips * (CHUNKS * place + TABLES);
            let row_tiles = (room.checked_sub(fixed)? / (k_tiles + CHUNKS * strips)).min(wanted);
            (row_tiles > 0).then_some(Self { k_tiles, place, row_tiles, strips, rest })
        })
    }

    /// Bytes that it takes.
    pub(super) const fn bytes(self) -> usize {
        (self.factors_at() + self.rest) * TILE_BYTES
    }

    const fn w_at(self) -> usize {
        self.row_tiles * self.k_tiles
    }

    const fn c_at(self) -> usize {
        self.w_at() + CHUNKS * self.strips * self.place
    }

    const fn tables_at(self) -> usize {
        self.c_at() + CHUNKS * self.strips * self.row_tiles
    }

    const fn factors_at(self) -> usize {
        self.tables_at() + TABLES * self.strips
    }

    /// The layout in the region at `base`, of at least [`bytes`](Self::bytes).
    pub(super) fn at(self, base: VectorPtr) -> Places {
        Places { layout: self, base: TilePtr::at_or_after(base) }
    }
}

/// A layout in VTCM. All that it gives lies inside of the region, for numbers below those of the layout.
#[derive(Clone, Copy)]
pub(super) struct Places {
    layout: Layout,
    base: TilePtr,
}

impl Places {
    /// The matrix tiles of 32 rows of x.
    #[inline(always)]
    pub(super) const fn a(self, row_tile: usize) -> TilePtr {
        self.base.skip(row_tile * self.layout.k_tiles)
    }

    /// Room for a strip of a chunk.
    #[inline(always)]
    pub(super) const fn w(self, chunk: usize, strip: usize) -> TilePtr {
        let strip = chunk % CHUNKS * self.layout.strips + strip;
        self.base.skip(self.layout.w_at() + strip * self.layout.place)
    }

    /// What is stored for 32 rows and a strip of a chunk.
    #[inline(always)]
    pub(super) const fn c(self, chunk: usize, strip: usize, row_tile: usize) -> TilePtr {
        let strip = chunk % CHUNKS * self.layout.strips + strip;
        self.base.skip(self.layout.c_at() + strip * self.layout.row_tiles + row_tile)
    }

    /// The table of a strip of a chunk, two vectors, and then the vector of its columns' factors.
    #[inline(always)]
    pub(super) const fn table(self, chunk: usize, strip: usize) -> TilePtr {
        self.base.skip(self.layout.tables_at() + chunk % TABLES * self.layout.strips + strip)
    }

    /// The factors of the rows.
    #[inline(always)]
    pub(super) const fn row_factors(self) -> *mut f32 {
        self.base.skip(self.layout.factors_at()).vectors().get().cast()
    }
}

const _: () = assert!(TILE_ROWS == LANES);

#[cfg(test)]
mod tests {
    use hexflash_abi::DType;

    use super::*;

    /// Places of a layout are apart, and inside of the bytes that it takes, which are no more than it was
    /// given.
    #[test]
    fn places_are_apart_and_inside() {
        for dtype in [DType::F16x32, DType::Q8_0x32, DType::Q4_0x32] {
            let group = dtype.tile_group().unwrap();
            for (k, n, rows, workers) in
                [(32, 32, 1, 1), (96, 40, 1024, 3), (1024, 96, 70, 4), (4096, 4096, 512, 6)]
            {
                let extent = Extent::new([k, n], group, rows);
                for bytes in [64 << 10, 1 << 20, 4 << 20, 8 << 20] {
                    let Some(layout) = Layout::fit(extent, workers, bytes) else { continue };
                    assert!(layout.bytes() <= bytes, "{layout:?} {bytes}");
                    // What runs finds what was planned, in as many bytes as that takes.
                    assert_eq!(Layout::fit(extent, workers, layout.bytes()), Some(layout));
                    let places = layout.at(VectorPtr::new(core::ptr::without_provenance_mut(128)).unwrap());
                    let mut all = std::vec::Vec::new();
                    let mut add = |p: TilePtr, tiles: usize| all.push((p.vectors().get().addr(), tiles));
                    for row_tile in 0..layout.row_tiles {
                        add(places.a(row_tile), extent.k_tiles);
                    }
                    for strip in 0..layout.strips {
                        for chunk in 0..CHUNKS {
                            add(places.w(chunk, strip), extent.place);
                            for row_tile in 0..layout.row_tiles {
                                add(places.c(chunk, strip, row_tile), 1);
                            }
                        }
                        for chunk in 0..TABLES {
                            add(places.table(chunk, strip), 1);
                        }
                    }
                    let factors = (layout.row_tiles * TILE_ROWS).div_ceil(FACTORS);
                    all.push((places.row_factors().addr(), factors));
                    all.sort_unstable();
                    for pair in all.windows(2) {
                        assert!(pair[0].0 + pair[0].1 * TILE_BYTES <= pair[1].0, "{layout:?}");
                    }
                    let (first, last) = (all[0], all[all.len() - 1]);
                    assert!(first.0 >= 128 && last.0 + last.1 * TILE_BYTES <= 128 + layout.bytes());
                }
            }
        }
    }

    /// Wide matrices share VTCM between fewer rows and strips, and what is too wide is refused.
    #[test]
    fn what_does_not_fit_is_cut_and_then_refused() {
        let group = DType::Q8_0x32.tile_group().unwrap();
        let fit = |k, rows, bytes| Layout::fit(Extent::new([k, 4096], group, rows), 4, bytes);
        let all = fit(1024, 512, 8 << 20).unwrap();
        assert_eq!((all.row_tiles, all.strips), (16, 4));
        let wide = fit(9216, 512, 8 << 20).unwrap();
        assert!(wide.row_tiles < 16 && wide.strips == 4, "{wide:?}");
        assert!(fit(9216, 512, 2 << 20).unwrap().strips < 4);
        assert_eq!(fit(9216, 512, 1 << 20), None);
        for rows in [1, 32, 33, 4096] {
            let extent = Extent::new([9216, 4096], group, rows);
            let least = extent.least_bytes();
            let layout = Layout::fit(extent, 4, least).unwrap();
            assert_eq!((layout.row_tiles, layout.strips), (1, 1));
            assert_eq!(Layout::fit(extent, 4, least - 1), None);
        }
    }
}

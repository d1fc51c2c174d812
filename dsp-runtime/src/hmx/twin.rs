//! The matrix unit on machines without one: the same arithmetic, a row of sums at a time.

use hexflash_hvx_float::matrix::{Generation, Half, Halves, Row, SIDE, VALUES};

use super::{TILE_BYTES, TilePtr, Unit};
use crate::hvx::{Hvx, Isa, WithHvx};

/// The unit of v75 to v81.
#[derive(Clone, Debug)]
pub struct Twin {
    generation: Generation,
    sums: [Row; SIDE],
    scale: [Half; SIDE],
    bias: [Half; SIDE],
}

/// A tile as it lies in memory.
type Tile = [u16; VALUES];

const _: () = assert!(size_of::<Tile>() == TILE_BYTES);

impl Twin {
    /// A unit of these versions.
    pub fn of(generation: Generation) -> Self {
        Self {
            generation,
            sums: [Row::EMPTY; SIDE],
            scale: [Half::default(); SIDE],
            bias: [Half::default(); SIDE],
        }
    }
}

/// The products of a pair of tiles: plain loops, which are compiled with the best instructions of this
/// processor.
struct Products<'t> {
    generation: Generation,
    sums: &'t mut [Row; SIDE],
    a: &'t Tile,
    w: &'t Tile,
}

impl WithHvx for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn with<H: Hvx>(self) {
        let group = self.generation.group();
        let mut rows_of_w = [Halves::of(|_| Half::default()); SIDE];
        for (k, row) in rows_of_w.iter_mut().enumerate() {
            *row = Halves::of(|n| Half::new(self.w[k / 2 * 64 + 2 * n + k % 2]));
        }
        for (r, sums) in self.sums.iter_mut().enumerate() {
            let mut row = [Half::default(); SIDE];
            for (k, value) in row.iter_mut().enumerate() {
                *value = Half::new(self.a[r / 2 * 64 + 2 * k + r % 2]);
            }
            // Zeros of either sign add nothing, and a step of few tokens has few other rows.
            if row.iter().all(|value| value.is_zero()) {
                continue;
            }
            for (a, w) in row.chunks_exact(group).zip(rows_of_w.chunks_exact(group)) {
                sums.add(self.generation, a, w);
            }
        }
    }
}

impl Unit for Twin {
    fn take() -> Self {
        Self::of(Generation::V75)
    }

    fn clear(&mut self) {
        self.sums = [Row::EMPTY; SIDE];
    }

    unsafe fn load_table(&mut self, table: TilePtr) {
        // SAFETY: the 256 bytes at `table`, 64 words, are valid for reading (the caller's contract, point 1)
        // and aligned, as tiles are.
        let words = unsafe { table.vectors().get().cast::<[u32; 2 * SIDE]>().read() };
        for (n, &word) in words[..SIDE].iter().enumerate() {
            (self.scale[n], self.bias[n]) = (Half::new(word as u16), Half::new((word >> 16) as u16));
        }
    }

    unsafe fn multiply(&mut self, a: TilePtr, w: TilePtr, tiles: usize) {
        let isa = Isa::detect();
        for i in 0..tiles {
            // SAFETY: `i` is below `tiles`, so both tiles are valid for reading (the caller's contract, point
            // 2); any bits are halves, and tiles are aligned for them.
            let (a, w) = unsafe {
                (
                    a.skip(i).vectors().get().cast::<Tile>().read(),
                    w.skip(i).vectors().get().cast::<Tile>().read(),
                )
            };
            isa.run(Products { generation: self.generation, sums: &mut self.sums, a: &a, w: &w });
        }
    }

    unsafe fn store(&mut self, c: TilePtr) {
        let mut tile: Tile = [0; VALUES];
        for (r, sums) in self.sums.iter().enumerate() {
            for n in 0..SIDE {
                tile[r / 2 * 64 + 2 * n + r % 2] = sums.sum(n).store(self.scale[n], self.bias[n]);
            }
        }
        // SAFETY: the tile at `c` is valid for writing (the caller's contract, point 1), and aligned.
        unsafe { c.vectors().get().cast::<Tile>().write(tile) };
        self.clear();
    }

    fn finish(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::super::{MOST_TILES, NEUTRAL};
    use super::*;
    use crate::hvx::VectorPtr;

    /// Tiles of A, tiles of W, a table, and a tile that is stored.
    #[repr(align(2048))]
    struct Memory {
        a: [Tile; MOST_TILES],
        w: [Tile; MOST_TILES],
        table: [u32; TILE_BYTES / 4],
        c: Tile,
    }

    impl Memory {
        fn new() -> std::boxed::Box<Self> {
            let (mut table, tile) = ([0; TILE_BYTES / 4], [0; VALUES]);
            table[..SIDE].fill(NEUTRAL);
            std::boxed::Box::new(Self { a: [tile; MOST_TILES], w: [tile; MOST_TILES], table, c: tile })
        }

        /// Multiplies pairs of tiles in steps of so many, and stores.
        fn run(&mut self, unit: &mut Twin, pairs: usize, step: usize) -> Tile {
            let tiles = |p: *mut u8| TilePtr::at_or_after(VectorPtr::new(p).unwrap());
            let (a, w) = (tiles(self.a.as_mut_ptr().cast()), tiles(self.w.as_mut_ptr().cast()));
            let (table, c) = (tiles(self.table.as_mut_ptr().cast()), tiles(self.c.as_mut_ptr().cast()));
            // SAFETY: all are tiles of `self`, which nobody else uses: as many of A and W as there are pairs,
            // in steps of 1 to 32, a table and a tile to store. The unit is this test's own.
            unsafe {
                unit.load_table(table);
                for first in (0..pairs).step_by(step) {
                    unit.multiply(a.skip(first), w.skip(first), step.min(pairs - first));
                }
                unit.store(c);
            }
            unit.finish();
            self.c
        }
    }

    /// One value of A and one of W meet in one value of C.
    #[test]
    fn products_are_where_they_belong() {
        let mut memory = Memory::new();
        for i in 0..64 {
            let (tile, r, k, n) = (i % MOST_TILES, i % 32, (7 * i + 3) % 32, (11 * i + 5) % 32);
            let (one, two) = (0x3c00, 0x4000);
            memory.a[tile][r / 2 * 64 + 2 * k + r % 2] = one;
            memory.w[tile][k / 2 * 64 + 2 * n + k % 2] = two;
            let c = memory.run(&mut Twin::take(), MOST_TILES, MOST_TILES);
            for (at, &value) in c.iter().enumerate() {
                let want = if at == r / 2 * 64 + 2 * n + r % 2 { two } else { 0 };
                assert_eq!(value, want, "tile {tile}, row {r}, k {k}, column {n}: {at}");
            }
            memory.a[tile].fill(0);
            memory.w[tile].fill(0);
        }
    }

    /// The packets that a product is cut into do not change it, and a store leaves nothing behind.
    #[test]
    fn steps_and_earlier_products_change_nothing() {
        let (mut memory, mut word) = (Memory::new(), 1_u32);
        for tile in memory.a.iter_mut().chain(&mut memory.w) {
            tile.fill_with(|| {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (word >> 16) as u16 & 0x8fff | 0x3000
            });
        }
        for generation in [Generation::V73, Generation::V75] {
            let mut unit = Twin::of(generation);
            let whole = memory.run(&mut unit, MOST_TILES, MOST_TILES);
            for step in [1, 3, 31] {
                assert_eq!(memory.run(&mut unit, MOST_TILES, step), whole, "{step}");
            }
            assert_ne!(memory.run(&mut unit, 31, 31), whole);
        }
    }
}

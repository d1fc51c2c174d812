//! The matrix unit on machines without one: the same arithmetic, sum by sum.

use hexflash_hvx_float::matrix::{Accumulator, Generation, Half, SIDE, VALUES};

use super::{TILE_BYTES, TilePtr, Unit};

/// The unit of v75 to v81.
#[derive(Clone, Debug)]
pub struct Twin {
    generation: Generation,
    sums: [[Accumulator; SIDE]; SIDE],
    scale: [Half; SIDE],
    bias: [Half; SIDE],
}

/// A tile as it lies in memory.
type Tile = [u16; VALUES];

const _: () = assert!(size_of::<Tile>() == TILE_BYTES);

impl Twin {
    /// A unit of these versions.
    pub fn of(generation: Generation) -> Self {
        let sums = [[Accumulator::EMPTY; SIDE]; SIDE];
        Self { generation, sums, scale: [Half::default(); SIDE], bias: [Half::default(); SIDE] }
    }

    /// The products of a pair of tiles.
    fn multiply_tile(&mut self, a: &Tile, w: &Tile) {
        let group = self.generation.group();
        // W by columns, so that the values of a sum are neighbours.
        let mut columns = [[Half::default(); SIDE]; SIDE];
        for (n, column) in columns.iter_mut().enumerate() {
            for (k, value) in column.iter_mut().enumerate() {
                *value = Half::new(w[k / 2 * 64 + 2 * n + k % 2]);
            }
        }
        for (r, sums) in self.sums.iter_mut().enumerate() {
            let bits: [u16; SIDE] = core::array::from_fn(|k| a[r / 2 * 64 + 2 * k + r % 2]);
            // Zeros of either sign add nothing, and a step of few tokens has few other rows.
            if bits.iter().all(|bits| bits & 0x7fff == 0) {
                continue;
            }
            let row = bits.map(Half::new);
            for (sum, column) in sums.iter_mut().zip(&columns) {
                for (a, w) in row.chunks_exact(group).zip(column.chunks_exact(group)) {
                    sum.add(self.generation, a, w);
                }
            }
        }
    }
}

impl Unit for Twin {
    fn take() -> Self {
        Self::of(Generation::V75)
    }

    fn clear(&mut self) {
        self.sums = [[Accumulator::EMPTY; SIDE]; SIDE];
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
        for i in 0..tiles {
            // SAFETY: `i` is below `tiles`, so both tiles are valid for reading (the caller's contract, point
            // 2); any bits are halves, and tiles are aligned for them.
            let (a, w) = unsafe {
                (
                    a.skip(i).vectors().get().cast::<Tile>().read(),
                    w.skip(i).vectors().get().cast::<Tile>().read(),
                )
            };
            self.multiply_tile(&a, &w);
        }
    }

    unsafe fn store(&mut self, c: TilePtr) {
        let mut tile: Tile = [0; VALUES];
        for (r, sums) in self.sums.iter().enumerate() {
            for (n, sum) in sums.iter().enumerate() {
                tile[r / 2 * 64 + 2 * n + r % 2] = sum.store(self.scale[n], self.bias[n]);
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

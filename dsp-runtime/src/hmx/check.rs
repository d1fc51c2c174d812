//! The test of a matrix unit at the start of a session: small products whose results are known exactly,
//! whatever the order of sums.
//!
//! Nothing of the unit was seen on a processor yet, and known faults of drivers and firmware are of this
//! kind: several tiles in a packet that count as one, accumulators that a store leaves as they were,
//! subnormals that are lost, a core without fp16. What it does not find is a rounding that is different.

use hexflash_abi::VECTOR_BYTES;
use hexflash_hvx_float::matrix::{SIDE, VALUES};

use super::{MOST_TILES, TILE_BYTES, TilePtr, Unit};
use crate::hvx::VectorPtr;

/// Matrix tiles of A and of W, which are multiplied with one packet and with several.
const PAIRS: usize = 4;
/// Where the table is, and where results are stored.
const TABLE: usize = 2 * PAIRS;
const STORED: usize = TABLE + 1;
/// Bytes of VTCM that the test wants, up to the first multiple of a tile's size included.
pub const BYTES: usize = (STORED + 2) * TILE_BYTES;

/// A value of A or W: of tile `t`, row or column `i`, value `k`.
type Value = fn(t: usize, i: usize, k: usize) -> f32;

/// A product, and how it is asked for.
struct Case {
    a: Value,
    w: Value,
    /// Scale and bias of a column.
    column: fn(n: usize) -> (f32, f32),
    /// Pairs of tiles, and how many of them a packet has.
    pairs: usize,
    step: usize,
    /// How often all of it is added.
    times: usize,
}

/// Small integers of both signs, without a pattern that rows, columns or tiles share.
fn integer(t: usize, i: usize, k: usize) -> f32 {
    ((t * 7 + i * 5 + k * 3 + i * k) % 9) as f32 - 4.0
}

fn other_integer(t: usize, i: usize, k: usize) -> f32 {
    ((t * 5 + i * 11 + k * 2 + i * k * 3) % 7) as f32 - 3.0
}

const fn neutral(_n: usize) -> (f32, f32) {
    (1.0, 0.0)
}

/// Sums of integers are below 2^11, so that results are exact.
const CASES: &[Case] = &[
    // Where each value is: one value of A meets one of W in each row and column.
    Case {
        a: |_, r, k| if k == (r * 5 + 3) % SIDE { 1.0 + r as f32 } else { 0.0 },
        w: |_, n, k| if n == (k * 7 + 1) % SIDE { 1.0 + k as f32 } else { 0.0 },
        column: neutral,
        pairs: 1,
        step: 1,
        times: 1,
    },
    // Several tiles by a packet, and by packets of their own.
    Case { a: integer, w: other_integer, column: neutral, pairs: PAIRS, step: PAIRS, times: 1 },
    Case { a: integer, w: other_integer, column: neutral, pairs: PAIRS, step: 1, times: 1 },
    // A store before has left nothing: the same again, with one tile.
    Case { a: other_integer, w: integer, column: neutral, pairs: 1, step: 1, times: 1 },
    // Long sums: more values of k than a packet can have.
    Case {
        a: |t, r, k| if (t + r + k).is_multiple_of(4) { 1.0 } else { 0.0 },
        w: |_, n, _| 1.0 - (n % 3) as f32,
        column: neutral,
        pairs: PAIRS,
        step: PAIRS,
        times: MOST_TILES / PAIRS + 1,
    },
    // Scales and biases, a column each.
    Case {
        a: integer,
        w: other_integer,
        column: |n| ([0.25, 0.5, 1.0, 2.0][n % 4], (n / 4) as f32 - 4.0),
        pairs: 2,
        step: 2,
        times: 1,
    },
    // Subnormals of A, brought back by the largest scale; and of results.
    Case {
        a: |_, r, k| if k == r { (1 + r) as f32 / 16_777_216.0 } else { 0.0 },
        w: |_, _, _| 1024.0,
        column: |n| (if n % 2 == 0 { 16384.0 } else { 1.0 / 1024.0 }, 0.0),
        pairs: 1,
        step: 1,
        times: 1,
    },
    // Sums beyond fp16, brought back by a scale.
    Case {
        a: |_, r, _| (1 + r) as f32 * 64.0,
        w: |_, n, _| (1 + n) as f32 * 64.0,
        column: |_| (1.0 / 16384.0, 0.0),
        pairs: 1,
        step: 1,
        times: 1,
    },
];

/// Whether the unit gives what it should.
///
/// # Safety
/// 1. The [`BYTES`] at `vtcm` lie in VTCM and are valid for reading and writing, and nobody else uses them.
/// 2. This thread holds the unit.
pub unsafe fn works<U: Unit>(unit: &mut U, vtcm: VectorPtr) -> bool {
    let tiles = TilePtr::at_or_after(vtcm);
    // SAFETY: ten tiles from the first multiple of their size on are inside of the bytes at `vtcm`, which
    // nobody else uses, and this thread holds the unit (the caller's contract).
    CASES.iter().all(|case| unsafe { case.holds(unit, tiles) })
}

impl Case {
    /// Whether its results are right.
    ///
    /// # Safety
    /// 1. The ten tiles at `tiles` lie in VTCM and are valid for reading and writing, and nobody else uses
    ///    them.
    /// 2. This thread holds the unit.
    unsafe fn holds<U: Unit>(&self, unit: &mut U, tiles: TilePtr) -> bool {
        let bits = |x: f32| half::f16::from_f32(x).to_bits();
        for t in 0..self.pairs {
            let (mut a, mut w) = ([0; VALUES], [0; VALUES]);
            for i in 0..SIDE {
                for k in 0..SIDE {
                    a[i / 2 * 64 + 2 * k + i % 2] = bits((self.a)(t, i, k));
                    w[k / 2 * 64 + 2 * i + k % 2] = bits((self.w)(t, i, k));
                }
            }
            // SAFETY: `t` is below 4, so these are two of the ten tiles (the caller's contract, point 1),
            // which are aligned for halves.
            unsafe {
                tiles.skip(t).vectors().get().cast::<[u16; VALUES]>().write(a);
                tiles.skip(PAIRS + t).vectors().get().cast::<[u16; VALUES]>().write(w);
            }
        }
        let mut table = [0; 2 * SIDE];
        for (n, word) in table.iter_mut().enumerate().take(SIDE) {
            let (scale, bias) = (self.column)(n);
            *word = u32::from(bits(scale)) | u32::from(bits(bias)) << 16;
        }
        const { assert!(size_of::<[u32; 2 * SIDE]>() == 2 * VECTOR_BYTES) };
        let (table_at, stored) = (tiles.skip(TABLE), tiles.skip(STORED));
        unit.clear();
        // SAFETY: these are tiles of the ten at `tiles`, in VTCM, which nobody else uses (the caller's
        // contract, point 1): a table, pairs in steps of 1 to 4 of which there are as many, and one to store.
        // What was stored before was no result of this case. This thread holds the unit (point 2).
        let results = unsafe {
            table_at.vectors().get().cast::<[u32; 2 * SIDE]>().write(table);
            stored.vectors().get().cast::<[u16; VALUES]>().write([0x5a5a; VALUES]);
            unit.load_table(table_at);
            for _ in 0..self.times {
                for first in (0..self.pairs).step_by(self.step) {
                    unit.multiply(tiles.skip(first), tiles.skip(PAIRS + first), self.step);
                }
            }
            unit.store(stored);
            unit.finish();
            stored.vectors().get().cast::<[u16; VALUES]>().read_volatile()
        };
        (0..SIDE).all(|r| {
            (0..SIDE).all(|n| {
                let mut sum = 0.0;
                for t in 0..self.pairs {
                    for k in 0..SIDE {
                        sum += (self.a)(t, r, k) * (self.w)(t, n, k);
                    }
                }
                let (scale, bias) = (self.column)(n);
                let want = bits(sum * self.times as f32 * scale + bias);
                let got = results[r / 2 * 64 + 2 * n + r % 2];
                // Which zero it is does not matter.
                got == want || (got | want) & 0x7fff == 0
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::twin::Twin;
    use super::*;
    use hexflash_hvx_float::matrix::Generation;

    /// What a unit does wrong.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        Nothing,
        /// Of several tiles in a packet the first counts.
        Deep,
        /// The last tile of four is left out.
        LastOfFour,
        /// A store leaves the sums as they are, and clearing too.
        StaleSums,
        /// A result is written late: what is read is what was there before.
        StaleStore,
        /// Results are zero: a core without fp16.
        NoFp16,
        /// The table of the product before is used.
        StaleTable,
        /// Subnormals of A are taken for zero.
        NoSubnormals,
        /// Two rows change places.
        Rows,
    }

    const FAULTS: [Fault; 8] = [
        Fault::Deep,
        Fault::LastOfFour,
        Fault::StaleSums,
        Fault::StaleStore,
        Fault::NoFp16,
        Fault::StaleTable,
        Fault::NoSubnormals,
        Fault::Rows,
    ];

    /// A unit that works but for one fault.
    struct Faulty {
        unit: Twin,
        fault: Fault,
        tables: usize,
    }

    /// Changes the halves of a tile.
    ///
    /// # Safety
    /// The tile is valid for reading and writing, and nobody else uses it.
    unsafe fn change(tile: TilePtr, f: impl FnOnce(&mut [u16; VALUES])) {
        // SAFETY: the tile is valid, aligned, and nobody else uses it (the caller's contract).
        f(unsafe { &mut *tile.vectors().get().cast() });
    }

    impl Unit for Faulty {
        fn take() -> Self {
            Self { unit: Twin::take(), fault: Fault::Nothing, tables: 0 }
        }

        fn clear(&mut self) {
            if self.fault != Fault::StaleSums {
                self.unit.clear();
            }
        }

        unsafe fn load_table(&mut self, table: TilePtr) {
            self.tables += 1;
            if self.fault != Fault::StaleTable || self.tables == 1 {
                // SAFETY: the caller's contract.
                unsafe { self.unit.load_table(table) };
            }
        }

        unsafe fn multiply(&mut self, a: TilePtr, w: TilePtr, tiles: usize) {
            let tiles = match self.fault {
                Fault::Deep => 1,
                Fault::LastOfFour => tiles.min(3),
                _ => tiles,
            };
            let flush = |half: &mut u16| *half = if *half & 0x7c00 == 0 { 0 } else { *half };
            // SAFETY: the caller's contract, for as many tiles or fewer; the test is the only user of them.
            unsafe {
                if self.fault == Fault::NoSubnormals {
                    change(a, |tile| tile.iter_mut().for_each(flush));
                }
                self.unit.multiply(a, w, tiles);
            }
        }

        unsafe fn store(&mut self, c: TilePtr) {
            // SAFETY: the caller's contract; the test is the only user of the tile.
            unsafe {
                if self.fault == Fault::StaleStore {
                    return;
                }
                let sums = self.unit.clone();
                self.unit.store(c);
                if self.fault == Fault::StaleSums {
                    self.unit = sums;
                }
                change(c, |tile| match self.fault {
                    Fault::NoFp16 => tile.fill(0),
                    Fault::Rows => tile.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1)),
                    _ => {}
                });
            }
        }

        fn finish(&mut self) {
            self.unit.finish();
        }
    }

    /// The outcome of the test for a unit.
    fn outcome(unit: &mut impl Unit) -> bool {
        let mut memory = std::vec![0_u128; BYTES / 16 + 8];
        let skip = memory.as_ptr().align_offset(VECTOR_BYTES);
        let base = VectorPtr::new(memory[skip..].as_mut_ptr().cast()).unwrap();
        // SAFETY: `BYTES` from the first multiple of 128 on are inside of `memory`, which nobody else uses.
        // The unit is this test's own.
        unsafe { works(unit, base) }
    }

    #[test]
    fn units_of_all_versions_pass() {
        for generation in [Generation::V73, Generation::V75] {
            assert!(outcome(&mut Twin::of(generation)), "{generation:?}");
        }
        assert!(outcome(&mut Faulty::take()));
    }

    #[test]
    fn every_fault_is_found() {
        for fault in FAULTS {
            assert!(!outcome(&mut Faulty { fault, ..Faulty::take() }), "{fault:?}");
        }
    }
}

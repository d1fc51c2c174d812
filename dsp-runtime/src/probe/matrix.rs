//! Sums of the matrix unit, of tiles that the host has made.

use hexflash_abi::Fault;
use hexflash_abi::probe::{ANSWER_WORDS, MOST_PAIRS, Question};
use hexflash_abi::sync::{AtomicU32, Ordering};

use super::data::Data;
use crate::hmx::{Matrix, TILE_BYTES, TilePtr, Unit};
use crate::hvx::Hvx;
use crate::pool::{Kernel, Worker, Workers};
use crate::vtcm::VtcmPlan;

const _: () = assert!(TILE_BYTES == hexflash_abi::probe::TILE_BYTES as usize);

/// Bytes of VTCM for what is multiplied, what is stored, and up to the first multiple of a tile's size.
pub(super) const BYTES: usize = Question::matrix_bytes(MOST_PAIRS) as usize + 2 * TILE_BYTES;

/// The product of so many pairs of tiles.
struct Product {
    data: Data,
    pairs: usize,
    words: [AtomicU32; ANSWER_WORDS],
}

/// The results on the diagonal.
///
/// # Errors
/// None of its own.
///
/// # Safety
/// 1. As many tiles of A and of W as `pairs` says, 1 to [`MOST_PAIRS`], and one more are readable at `data`.
/// 2. The plan has [`BYTES`] for all workers.
/// 3. This thread, which dispatches, holds a matrix unit.
pub(super) unsafe fn ask(
    pool: &mut impl Workers,
    pairs: usize,
    data: Data,
    plan: VtcmPlan,
) -> Result<[u32; ANSWER_WORDS], Fault> {
    let product = Product { data, pairs, words: [const { 0 }; ANSWER_WORDS].map(AtomicU32::new) };
    pool.run(&product, plan)?;
    Ok(product.words.each_ref().map(|word| word.load(Ordering::Relaxed)))
}

impl Kernel for Product {
    fn units(&self) -> usize {
        1
    }

    /// It stays with the thread that holds the unit.
    fn work(&self) -> usize {
        0
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        self.multiply(worker);
        Ok(())
    }
}

impl Product {
    #[inline(never)]
    fn multiply(&self, worker: &Worker<'_>) {
        let tiles = TilePtr::at_or_after(worker.shared_vtcm_for(VtcmPlan { shared: BYTES, own: 0 }));
        let pairs = self.pairs;
        let (a, w) = (tiles, tiles.skip(pairs));
        let (table, stored) = (tiles.skip(2 * pairs), tiles.skip(2 * pairs + 1));
        let mut unit = Matrix::take();
        unit.clear();
        // SAFETY: the tiles of `data`, `2 * pairs + 1`, are readable (point 1 of `ask`, which makes all
        // `Product`s). The shared region has room for as many and one more from the first multiple of a
        // tile's size on, as `pairs` is at most MOST_PAIRS (point 2), and only this job uses VTCM. Any bits
        // are halves, so that it does not matter what the host writes meanwhile. This thread holds the unit
        // (point 3), because a job without work stays with the dispatcher.
        let halves = unsafe {
            let bytes = (2 * pairs + 1) * TILE_BYTES;
            core::ptr::copy_nonoverlapping(self.data.0, tiles.vectors().get(), bytes);
            unit.load_table(table);
            unit.multiply(a, w, pairs);
            unit.store(stored);
            unit.finish();
            stored.vectors().get().cast::<[u16; TILE_BYTES / 2]>().read_volatile()
        };
        // The half of row and column `i`.
        let result = |i: usize| u32::from(halves[i / 2 * 64 + 2 * i + i % 2]);
        for (i, word) in self.words.iter().enumerate() {
            // Relaxed: the thread that reads them waits for this job, or is this one.
            word.store(result(2 * i) | result(2 * i + 1) << 16, Ordering::Relaxed);
        }
    }
}

//! `IMAGE matrix`: multiplies tiles by the processor's matrix unit, so that others can compare.
//!
//! Input, until it ends: records of fourteen tiles. The first begins with a byte, how many pairs are
//! multiplied (1 to 6); then come six tiles of A, six of W, and a table. Output, for each: the stored tile.

use core::slice;

use hexflash_dsp::hmx::{Matrix, TILE_BYTES, TilePtr, Unit};
use hexflash_dsp::hvx::VectorPtr;
use hexflash_dsp::platform::linux::{guarded, hold_matrix_unit};

use super::serve::failed;
use super::stream::{read, write};
use super::{Failure, unusable};

/// Pairs of tiles in a record.
const PAIRS: usize = 6;
/// Tiles of a record, and the one that is stored.
const TILES: usize = 2 * PAIRS + 2;
const STORED: usize = TILES;

pub(super) fn run() -> Result<(), Failure> {
    // One more, because tiles begin at multiples of their size.
    let bytes = (TILES + 2) * TILE_BYTES;
    let vtcm = guarded(bytes).map_err(failed("no memory for VTCM"))?;
    hold_matrix_unit(vtcm, bytes).map_err(failed("no matrix unit"))?;
    let base = VectorPtr::new(vtcm.as_ptr()).ok_or(unusable("VTCM is not aligned"))?;
    let tiles = TilePtr::at_or_after(base);
    let mut unit = Matrix::take();
    loop {
        // SAFETY: the first fourteen tiles from `tiles` on are inside of VTCM, which has room for 16, is
        // zeroed, and is nobody else's. The slice ends before the unit is asked to do anything.
        let record = unsafe { slice::from_raw_parts_mut(tiles.vectors().get(), TILES * TILE_BYTES) };
        match read(record)? {
            0 => return Ok(()),
            n if n == record.len() => {}
            _ => return Err(unusable("the input ends inside of a record")),
        }
        let pairs = usize::from(record[0]);
        if !(1..=PAIRS).contains(&pairs) {
            return Err(unusable("a record has 1 to 6 pairs of tiles"));
        }
        unit.clear();
        // SAFETY: `pairs` is 1 to 6. Tiles 1 to 6 are A's, 7 to 12 W's, 13 is the table and 14 is for what
        // is stored: all are inside of VTCM, which nobody else uses. This thread holds the unit.
        unsafe {
            unit.load_table(tiles.skip(1 + 2 * PAIRS));
            unit.multiply(tiles.skip(1), tiles.skip(1 + PAIRS), pairs);
            unit.store(tiles.skip(STORED));
        }
        unit.finish();
        // SAFETY: tile 14 is inside of VTCM, and the unit has finished with it.
        write(unsafe { slice::from_raw_parts(tiles.skip(STORED).vectors().get(), TILE_BYTES) })?;
    }
}

//! `IMAGE matrix`: multiplies tiles by the processor's matrix unit, so that others can compare.
//!
//! Input, until it ends: records of ten tiles. The first begins with a word, how many pairs are multiplied (1
//! to 4); then come four tiles of A, four of W, and a table. Output, for each: the stored tile.

use core::slice;

use hexflash_dsp::hmx::{Matrix, TILE_BYTES, TilePtr, Unit};
use hexflash_dsp::hvx::VectorPtr;
use hexflash_dsp::platform::linux::sys::{self, Call};
use hexflash_dsp::platform::linux::{Stream, guarded, hold_matrix_unit};

use super::serve::failed;
use super::{Failure, unusable};

/// Pairs of tiles in a record.
const PAIRS: usize = 4;
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
        // SAFETY: the first ten tiles from `tiles` on are inside of VTCM, which has room for twelve, is
        // zeroed, and is nobody else's. The slice ends before the unit is asked to do anything.
        let record = unsafe { slice::from_raw_parts_mut(tiles.vectors().get(), TILES * TILE_BYTES) };
        match read(record)? {
            0 => return Ok(()),
            n if n == record.len() => {}
            _ => return Err(unusable("the input ends inside of a record")),
        }
        let pairs = usize::from(record[0]);
        if !(1..=PAIRS).contains(&pairs) {
            return Err(unusable("a record has 1 to 4 pairs of tiles"));
        }
        unit.clear();
        // SAFETY: `pairs` is 1 to 4. Tiles 1 to 4 are A's, 5 to 8 W's, 9 is the table and 10 is for what is
        // stored: all are inside of VTCM, which nobody else uses. This thread holds the unit.
        unsafe {
            unit.load_table(tiles.skip(1 + 2 * PAIRS));
            unit.multiply(tiles.skip(1), tiles.skip(1 + PAIRS), pairs);
            unit.store(tiles.skip(STORED));
        }
        unit.finish();
        // SAFETY: tile 10 is inside of VTCM, and the unit has finished with it.
        write(unsafe { slice::from_raw_parts(tiles.skip(STORED).vectors().get(), TILE_BYTES) })?;
    }
}

/// Reads until `to` is full or the input ends; gives the bytes read.
fn read(to: &mut [u8]) -> Result<usize, Failure> {
    let mut done = 0;
    while done < to.len() {
        let rest = &mut to[done..];
        let a = [0, rest.as_mut_ptr() as u32, rest.len() as u32, 0, 0, 0];
        // SAFETY: the system writes at most `rest.len()` bytes at `rest.as_mut_ptr()`, which are those of a
        // slice.
        match unsafe { sys::call(Call::Read, a) }.map_err(failed("cannot read"))? {
            0 => break,
            n => done += n as usize,
        }
    }
    Ok(done)
}

fn write(mut bytes: &[u8]) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let a = [Stream::Out as u32, bytes.as_ptr() as u32, bytes.len() as u32, 0, 0, 0];
        // SAFETY: the system reads `bytes.len()` bytes at `bytes.as_ptr()`, which are those of a slice.
        let n = unsafe { sys::call(Call::Write, a) }.map_err(failed("cannot write"))? as usize;
        bytes = bytes.get(n.max(1)..).unwrap_or(&[]);
    }
    Ok(())
}

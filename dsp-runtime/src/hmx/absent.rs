//! No unit, for Hexagon code older than v73: nobody here knows which words that unit would take. Products by
//! the matrix unit are compiled to nothing there; the portable twin would fill a third of the library.

use super::{TilePtr, Unit};

/// A unit that there is none of: no platform of this code lends one, so that programs which need one are
/// refused when they are planned.
#[derive(Debug)]
pub struct Absent(());

fn none() -> ! {
    unreachable!("no platform lends a matrix unit here")
}

impl Unit for Absent {
    #[inline(always)]
    fn take() -> Self {
        none()
    }

    fn clear(&mut self) {
        none()
    }

    unsafe fn load_table(&mut self, _table: TilePtr) {
        none()
    }

    unsafe fn multiply(&mut self, _a: TilePtr, _w: TilePtr, _tiles: usize) {
        none()
    }

    unsafe fn store(&mut self, _c: TilePtr) {
        none()
    }

    fn finish(&mut self) {
        none()
    }
}

//! How ops that do the same to every element cut rows into units, and vectors into groups.

use crate::hvx::{Hvx, LANES};
use crate::memory::View;

/// Vectors that are done side by side: what one waits for, the others fill.
pub const SIDE: usize = 4;

/// Whether side by side is faster: not where registers do not hold as many, nor where an operation takes many
/// instructions, which must not be written four times.
#[inline(always)]
pub const fn side_by_side<H: Hvx>() -> bool {
    H::REGISTERS >= 32 && !H::COSTLY_FLOATS
}

/// Fewest elements of a piece, for functions of 20 packets per vector and more: a third of a microsecond of
/// work.
pub const PIECE: usize = 512;
/// Pieces begin at multiples of this, so that those of an aligned row are aligned, and done side by side.
const STEP: usize = SIDE * LANES;

/// The units of an op on rows: pieces of a row where there are fewer rows than workers need.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    rows: usize,
    /// Elements of a row.
    len: usize,
    /// Pieces of a row, and elements of each but the last.
    cuts: usize,
    piece: usize,
}

impl Pieces {
    /// Those of the rows of `y`, for so many workers; but for the last of a row, they have at least `least`
    /// elements.
    pub fn of(y: &View, workers: usize, least: usize) -> Self {
        let (rows, len) = (y.rows(), y.ne[0]);
        // All pieces take the same time: of a single row one each, of several rows some more, as the last
        // ones may leave workers without any.
        let wanted = match rows {
            0 | 1 => workers,
            _ if rows >= 4 * workers => 1,
            _ => (2 * workers).div_ceil(rows),
        };
        let piece = if wanted == 1 { len } else { len.div_ceil(wanted).max(least) };
        let piece = piece.next_multiple_of(STEP);
        Self { rows, len, cuts: len.div_ceil(piece), piece }
    }

    pub fn units(&self) -> usize {
        self.rows * self.cuts
    }

    /// The row of a unit, its first element there, and how many it has.
    #[inline(always)]
    pub fn of_unit(&self, unit: usize) -> (usize, usize, usize) {
        // Without a division, which is a function call on a DSP.
        let (row, cut) = if self.cuts == 1 {
            (unit, 0)
        } else if unit < self.cuts {
            (0, unit)
        } else {
            (unit / self.cuts, unit % self.cuts)
        };
        let at = cut * self.piece;
        (row, at, self.piece.min(self.len - at))
    }
}

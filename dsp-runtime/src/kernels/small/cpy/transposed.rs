//! Copies of words whose rows are columns of what they are copied from: the elements of a row are apart, and
//! those of neighbouring rows side by side. That is how ggml and hexflash see each other's recurrent states
//! and windows of convolutions.

use hexflash_abi::Fault;

use super::UNIT;
use crate::hvx::{Hvx, LANES, transpose};
use crate::memory::View;
use crate::pool::{Kernel, Worker};

/// y = x, element by element.
pub(super) struct Transposed {
    x: View,
    y: View,
    /// Rows of a unit, all of one plane.
    rows: usize,
    /// Units of a plane.
    per_plane: usize,
}

/// 32-bit elements of a plane, the first row of which is at `at`.
#[derive(Clone, Copy)]
struct PlanePart {
    at: *mut u8,
    /// Bytes from element to element of a row, and from row to row.
    nb: [usize; 2],
}

impl Transposed {
    /// The copy, if it is one of these.
    pub(super) fn new(x: View, y: View) -> Option<Self> {
        let words = x.dtype == y.dtype && x.dtype.element_bytes() == Some(4);
        if !words || x.nb[0] == 4 || x.nb[1] != 4 {
            return None;
        }
        // Whole squares, where there are rows enough.
        let rows = UNIT.div_ceil(y.ne[0]).next_multiple_of(LANES);
        Some(Self { x, y, rows, per_plane: y.ne[1].div_ceil(rows) })
    }
}

impl Kernel for Transposed {
    fn units(&self) -> usize {
        self.per_plane * self.y.ne[2] * self.y.ne[3]
    }

    fn work(&self) -> usize {
        // A square of 32 by 32 takes some hundred operations on vectors; elsewhere an element is a scalar
        // load and store.
        let [n, rows] = [self.y.ne[0], self.y.ne[1]];
        let squares = (n / LANES) * (rows / LANES);
        let plane = squares * 3 * LANES + (n * rows - squares * LANES * LANES);
        plane.saturating_mul(self.y.ne[2] * self.y.ne[3])
    }

    #[inline(always)]
    fn run<H: Hvx>(&self, worker: &mut Worker<'_>) -> Result<(), Fault> {
        let (x, y) = (&self.x, &self.y);
        let n = y.ne[0];
        while let Some(unit) = worker.claim() {
            // Without a division where there is one plane.
            let n_units = self.per_plane;
            let (part, plane) = if unit < n_units { (unit, 0) } else { (unit % n_units, unit / n_units) };
            let [i2, i3] = if plane < y.ne[2] { [plane, 0] } else { [plane % y.ne[2], plane / y.ne[2]] };
            let first = part * self.rows;
            let rows = self.rows.min(y.ne[1] - first);
            let from = PlanePart { at: x.at([first, i2, i3]), nb: [x.nb[0], x.nb[1]] };
            let to = PlanePart { at: y.at([first, i2, i3]), nb: [y.nb[0], y.nb[1]] };
            // What is in no whole square: the ends of the rows above, and the last rows.
            let (whole, above) = (n / LANES * LANES, rows / LANES * LANES);
            // SAFETY: `rows` rows of n words of x and y are inside their buffers, aligned, and do not
            // overlap; elements of neighbouring rows of x are adjacent, as those of a row of y are (`new`,
            // and the op table). The rows are in a unit that this worker alone claimed. The three parts are
            // inside, as `whole` is at most n and `above` at most `rows`.
            unsafe {
                for r in (0..above).step_by(LANES) {
                    for i in (0..whole).step_by(LANES) {
                        let (from, to) = (from.part(i, r), to.part(i, r));
                        transpose::transpose::<H>(from.at.cast_const(), from.nb[0], to.at, to.nb[1]);
                    }
                }
                one_by_one(from.part(whole, 0), to.part(whole, 0), [n - whole, above]);
                one_by_one(from.part(0, above), to.part(0, above), [n, rows - above]);
            }
        }
        Ok(())
    }
}

impl PlanePart {
    /// That from element `i` of row `r` on.
    fn part(self, i: usize, r: usize) -> Self {
        Self { at: self.at.wrapping_add(i * self.nb[0] + r * self.nb[1]), ..self }
    }
}

/// Copies words, along the longer axis first.
///
/// # Safety
/// Each of `ne[1]` rows of `ne[0]` words is readable at `from`, and writable at `to` by this thread alone,
/// and aligned. They do not overlap.
unsafe fn one_by_one(from: PlanePart, to: PlanePart, ne: [usize; 2]) {
    let inner = usize::from(ne[1] > ne[0]);
    let outer = 1 - inner;
    for o in 0..ne[outer] {
        let mut source = from.at.wrapping_add(o * from.nb[outer]);
        let mut target = to.at.wrapping_add(o * to.nb[outer]);
        for _ in 0..ne[inner] {
            // SAFETY: these are the words of one element, whose numbers are below `ne`: the first may be read
            // and the second written (the caller's contract).
            unsafe { target.cast::<u32>().write(source.cast_const().cast::<u32>().read()) };
            source = source.wrapping_add(from.nb[inner]);
            target = target.wrapping_add(to.nb[inner]);
        }
    }
}

//! The learned positions of patches, which the host adds up with the bias of the first product once for each
//! shape of a tile.

use super::grid::PatchGrid;
use crate::gguf::Gguf;
use crate::weights::{WeightError, plain_values};

/// The table of positions.
pub(super) const TABLE: &str = "v.position_embd.weight";
/// The bias of the product with the patches.
pub(super) const BIAS: &str = "v.patch_embd.bias";

/// Kind of a table of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    /// A row for each patch of a square.
    Square,
    /// A row for each column, and then one for each line: the sum of both is that of a patch.
    ColumnsAndLines,
}

/// Learned positions: rows that are added to those of patches.
#[derive(Clone, Debug, PartialEq)]
pub struct Positions {
    /// Width of a row.
    n_embd: usize,
    kind: TableKind,
    /// Side of the square that the table is for, in patches.
    side: usize,
    /// A row for each patch of the square, from left to right and from top to bottom; or as `kind` says.
    table: Vec<f32>,
    bias: Option<Vec<f32>>,
    /// Patches that become one row, along each side.
    merge: u32,
}

impl Positions {
    /// Reads the table of an encoder whose stream has `n_embd` values, for a square of `side` by `side`
    /// patches, of which `merge` by `merge` become one row.
    ///
    /// # Errors
    /// It is of a type that is no plain number, or has a value that is none.
    pub(super) fn read(
        gguf: &Gguf,
        kind: TableKind,
        [n_embd, side]: [u32; 2],
        merge: u32,
    ) -> Result<Self, WeightError> {
        let table = plain_values(gguf, TABLE)?;
        let bias = gguf.tensor(BIAS).map(|_| plain_values(gguf, BIAS)).transpose()?;
        Ok(Self { n_embd: n_embd as usize, kind, side: side as usize, table, bias, merge })
    }

    /// Sums of positions and bias for the patches of a tile, in the [order](PatchGrid::patches) of its
    /// patches, into `rows`, whose content is lost. A grid of another shape than the table's gets that
    /// resized with a triangle filter, as wide as the distance of two patches of the coarser of both.
    pub fn of(&self, grid: PatchGrid, rows: &mut Vec<f32>) {
        rows.clear();
        if self.kind == TableKind::ColumnsAndLines {
            self.sums(grid, rows);
            return;
        }
        let [columns, lines] = [grid.width, grid.height].map(|n| weights(self.side, n as usize));
        let zeros = vec![0.0; self.n_embd];
        for (x, y) in grid.patches(self.merge) {
            let start = rows.len();
            rows.extend_from_slice(self.bias.as_ref().unwrap_or(&zeros));
            let row = &mut rows[start..];
            for &(line, share) in &lines[y as usize] {
                for &(column, part) in &columns[x as usize] {
                    let at = (line * self.side + column) * self.n_embd;
                    let source = &self.table[at..at + self.n_embd];
                    row.iter_mut().zip(source).for_each(|(sum, value)| *sum += share * part * value);
                }
            }
        }
    }

    /// Sums of the rows of columns and lines, and the bias.
    fn sums(&self, grid: PatchGrid, rows: &mut Vec<f32>) {
        let row = |i: usize| &self.table[i * self.n_embd..(i + 1) * self.n_embd];
        for (x, y) in grid.patches(self.merge) {
            let start = rows.len();
            rows.extend_from_slice(row(x as usize));
            let added = [Some(row(self.side + y as usize)), self.bias.as_deref()];
            for more in added.into_iter().flatten() {
                rows[start..].iter_mut().zip(more).for_each(|(sum, value)| *sum += value);
            }
        }
    }
}

/// For each of `n` places, the places of `side` that have a share in it, and the shares: their sum is 1.
fn weights(side: usize, n: usize) -> Vec<Vec<(usize, f32)>> {
    if side == n {
        return (0..n).map(|i| vec![(i, 1.0)]).collect();
    }
    let scale = n as f32 / side as f32;
    let reach = 1f32.max(1.0 / scale);
    let of = |i: usize| {
        let at = (i as f32 + 0.5) / scale;
        let first = (at - reach + 0.5).max(0.0) as usize;
        let end = ((at + reach + 0.5) as usize).min(side);
        let near = |j: usize| (1.0 - ((j as f32 + 0.5 - at) / reach).abs()).max(0.0);
        let sum: f32 = (first..end).map(near).sum();
        (first..end).map(|j| (j, near(j) / sum)).filter(|&(_, share)| share > 0.0).collect()
    };
    (0..n).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_one_and_lie_around_the_place() {
        for (side, n) in [(4, 4), (4, 8), (4, 3), (16, 31), (3, 1), (1, 5)] {
            let all = weights(side, n);
            assert_eq!(all.len(), n);
            for (i, shares) in all.iter().enumerate() {
                let sum: f32 = shares.iter().map(|(_, share)| share).sum();
                assert!((sum - 1.0).abs() < 1e-6, "{side} to {n}, {i}: {shares:?}");
                let centre: f32 = shares.iter().map(|&(j, share)| (j as f32 + 0.5) * share).sum();
                let at = (i as f32 + 0.5) * side as f32 / n as f32;
                assert!((centre - at).abs() < 0.51, "{side} to {n}, {i}: {centre} for {at}");
            }
        }
    }

    #[test]
    fn twice_as_many_places_are_between_those_of_the_table() {
        assert_eq!(
            weights(2, 4),
            [vec![(0, 1.0)], vec![(0, 0.75), (1, 0.25)], vec![(0, 0.25), (1, 0.75)], vec![(1, 1.0)]]
        );
    }
}

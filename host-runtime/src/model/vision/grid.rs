//! Patches of a tile, and their order.

/// Patches of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchGrid {
    /// From left to right.
    pub width: u32,
    /// From top to bottom.
    pub height: u32,
}

impl PatchGrid {
    /// Number of patches.
    pub const fn len(self) -> u32 {
        self.width * self.height
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The places (column, line) of all patches, those that become one row next to each other: square after
    /// square of `merge` by `merge` patches, each as text is read. Width and height are multiples of `merge`.
    pub fn patches(self, merge: u32) -> impl Iterator<Item = (u32, u32)> {
        let squares =
            (0..self.height / merge).flat_map(move |y| (0..self.width / merge).map(move |x| (x, y)));
        squares.flat_map(move |(x, y)| {
            let square = (0..merge).flat_map(move |dy| (0..merge).map(move |dx| (dx, dy)));
            square.map(move |(dx, dy)| (x * merge + dx, y * merge + dy))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_of_a_row_are_neighbours() {
        let grid = PatchGrid { width: 4, height: 2 };
        let all: Vec<_> = grid.patches(2).collect();
        assert_eq!(all, [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)]);
        assert_eq!(all.len(), grid.len() as usize);
        assert_eq!(grid.patches(1).take(5).collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]);
    }
}

//! Widths and heights.

/// A size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pixels in a line.
    pub width: u32,
    /// Lines.
    pub height: u32,
}

impl Size {
    /// A square.
    pub const fn square(side: u32) -> Self {
        Self { width: side, height: side }
    }

    /// Pixels.
    pub(super) fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }
}

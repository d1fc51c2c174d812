//! What attention knows of its operands when it is compiled: the usual cases have functions of their own,
//! because registers are not enough for what all cases together need. A function costs every image about
//! 20 s of its compilation; Q8_0 has none, because it would save only 2 % of the packets.

use super::format::Format;

/// A case.
pub(super) trait Known {
    /// The format of keys and values, where there are neither a mask nor a soft cap. `None` if nothing is
    /// known.
    const FORMAT: Option<Format>;
    /// Whether it is known that there are neither a mask nor a soft cap.
    const PLAIN: bool = Self::FORMAT.is_some();
}

/// Everything that validation lets pass.
pub(super) struct Anything;

impl Known for Anything {
    const FORMAT: Option<Format> = None;
}

/// Caches of F16.
pub(super) struct PlainF16;

impl Known for PlainF16 {
    const FORMAT: Option<Format> = Some(Format::F16 { rows: false });
}

/// Caches of rotated codes.
pub(super) struct PlainQ4R;

impl Known for PlainQ4R {
    const FORMAT: Option<Format> = Some(Format::Q4R);
}

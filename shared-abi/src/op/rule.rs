//! What shape rules are written with: the operands of an op, whose types and layouts were checked already,
//! and the lengths of their axes.

use super::Operand;
use crate::dtype::DType;
use crate::program::{MAX_DST, MAX_SRC, OpDesc, ProgramHeader, TensorDesc};
use crate::status::{ErrorCode, Fault};

/// The operands of one op, resolved from their indices.
pub struct Operands<'a> {
    /// Inputs with their parsed types.
    pub src: [Option<(&'a TensorDesc, DType)>; MAX_SRC],
    /// Outputs with their parsed types.
    pub dst: [Option<(&'a TensorDesc, DType)>; MAX_DST],
    /// The op itself, for its parameters.
    pub op: &'a OpDesc,
    /// The program's header, for its bounds.
    pub header: &'a ProgramHeader,
}

/// Length of an axis, and whether a step cuts it to its `n_tokens`.
///
/// Kernels see the cut shapes. Comparing lengths together with their cut makes a shape rule that holds for
/// the full shapes hold for those of every step: no row of one operand is without its partner in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Len {
    pub n: u32,
    pub cut: bool,
}

impl Len {
    pub const ONE: Self = Self::fixed(1);

    pub const fn fixed(n: u32) -> Self {
        Self { n, cut: false }
    }

    /// So many times the length. (Where that overflows no axis has it: extents are below 2^31.)
    pub const fn times(self, factor: u32) -> Self {
        Self { n: self.n.saturating_mul(factor), ..self }
    }

    /// Whether `self` divides `other` in every step.
    pub const fn divides(self, other: Self) -> bool {
        match (self.cut, other.cut) {
            (false, false) => other.n.is_multiple_of(self.n),
            (false, true) => self.n == 1,
            (true, true) => self.n == other.n,
            (true, false) => false,
        }
    }

    /// Whether it is at least `other` in every step.
    pub const fn covers(self, other: Self) -> bool {
        self.n >= other.n && (other.cut || !self.cut)
    }

    /// Whether every step sees it whole, and at most `max` long.
    pub const fn fixed_up_to(self, max: u32) -> bool {
        !self.cut && self.n <= max
    }
}

/// The lengths of a tensor's axes.
pub(super) type Shape = [Len; 4];

impl Operands<'_> {
    /// The shape of an operand that the op table calls required.
    pub(super) fn operand(&self, which: impl Operand) -> Result<Shape, Fault> {
        self.optional(which).ok_or(Fault::new(ErrorCode::BadOperand, which.number()))
    }

    /// The shape of an operand, if it is there.
    pub(super) fn optional(&self, which: impl Operand) -> Option<Shape> {
        which.of(&self.src, &self.dst).map(|(t, _)| self.lens(t))
    }

    /// The type of an operand, if it is there.
    pub(super) fn dtype(&self, which: impl Operand) -> Option<DType> {
        which.of(&self.src, &self.dst).map(|(_, dtype)| dtype)
    }

    fn lens(&self, t: &TensorDesc) -> Shape {
        // With one token at most there is nothing to cut.
        let cut = |axis| self.header.max_tokens > 1 && usize::from(t.token_axis) == axis;
        core::array::from_fn(|axis| Len { n: t.ne[axis], cut: cut(axis) })
    }

    /// Length of the token axis itself.
    pub(super) fn tokens(&self) -> Len {
        let n = self.header.max_tokens;
        Len { n, cut: n > 1 }
    }

    /// The outermost axis of a state for batches of activations: so long for every slot.
    pub(super) const fn slots_of(&self, batch: Len) -> Len {
        batch.times(self.header.n_slots)
    }

    /// Whether an op that goes by slots can tell whose the rows of this axis are: they lie on the token axis,
    /// which the register blocks divide. With one slot all rows are its own.
    pub(super) fn rows_have_slots(&self, rows: Len) -> bool {
        self.header.n_slots == 1 || rows == self.tokens()
    }

    /// Whether a tape of `room` rows has one for every row that a step may defer. With several slots the rows
    /// of a step are not one sequence's alone, and many of them fold: then each span is checked when it runs.
    pub(super) const fn tape_holds(&self, room: Len, rows: Len) -> bool {
        self.header.n_slots > 1 || room.n >= rows.n
    }

    pub(super) fn params<T: zerocopy::FromBytes>(&self) -> T {
        self.op.params()
    }
}

/// The shape rule of an op, or a part of it: if it does not hold, an operand is to blame.
pub(super) fn shape(holds: bool, blamed: impl Operand) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::new(ErrorCode::BadShape, blamed.number())) }
}

/// A rule of types: if it does not hold, an operand is to blame.
pub(super) fn dtype(holds: bool, blamed: impl Operand) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::new(ErrorCode::BadType, blamed.number())) }
}

/// The range of a parameter: if it is not kept, its word is to blame.
pub(super) fn param(holds: bool, word: usize) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::new(ErrorCode::BadParam, word as u32)) }
}

/// That two operands have one shape. The first is blamed.
pub(super) fn same(o: &Operands<'_>, blamed: impl Operand, other: impl Operand) -> Result<(), Fault> {
    shape(o.operand(blamed)? == o.operand(other)?, blamed)
}

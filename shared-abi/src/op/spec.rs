//! An entry of the op table.

use super::operand::FIRST_DST;
use super::{Field, OperandSpec, Operands, Src, param};
use crate::status::Fault;

/// An entry of the op table.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec {
    /// Inputs, in order.
    pub src: &'static [OperandSpec],
    /// Outputs, in order.
    pub dst: &'static [OperandSpec],
    /// Fields of the parameter struct.
    pub params: &'static [Field],
    /// Inputs that output 0 may be: the same bytes with the same strides.
    pub in_place: &'static [Src],
    /// Whether it moves the step registers, so that they must be checked after it.
    pub advances: bool,
    /// Whether it ends a round: its program leaves the registers behind in shared memory, for the next one.
    pub ends_round: bool,
    /// Shape rule and parameter ranges.
    pub check: fn(&Operands<'_>) -> Result<(), Fault>,
}

impl OpSpec {
    pub(super) const fn new(
        src: &'static [OperandSpec],
        dst: &'static [OperandSpec],
        check: fn(&Operands<'_>) -> Result<(), Fault>,
    ) -> Self {
        Self { src, dst, params: &[], in_place: &[], advances: false, ends_round: false, check }
    }

    pub(super) const fn params(self, params: &'static [Field]) -> Self {
        Self { params, ..self }
    }

    pub(super) const fn in_place(self, in_place: &'static [Src]) -> Self {
        Self { in_place, ..self }
    }

    /// Words of the parameter struct.
    pub const fn param_words(&self) -> usize {
        param::words(self.params)
    }

    /// The operand under a number; `None` if the op has none.
    pub fn operand(&self, number: u32) -> Option<&'static OperandSpec> {
        match number.checked_sub(FIRST_DST) {
            Some(place) => self.dst.get(place as usize),
            None => self.src.get(number as usize),
        }
    }

    /// The parameter that has this word; `None` if the op has none.
    pub fn field(&self, word: u32) -> Option<&'static Field> {
        self.params.iter().find(|f| (f.word..f.word + f.words).contains(&(word as usize)))
    }
}

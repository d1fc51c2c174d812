//! The versions of the Hexagon architecture.

use std::fmt;

/// A version of the Hexagon architecture; the order is that of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Arch {
    V67,
    V68,
    V69,
    V73,
    V75,
    V79,
    V81,
}

impl Arch {
    /// The number, as the host and an ELF header say it.
    pub fn number(self) -> u16 {
        match self {
            Self::V67 => 0x67,
            Self::V68 => 0x68,
            Self::V69 => 0x69,
            Self::V73 => 0x73,
            Self::V75 => 0x75,
            Self::V79 => 0x79,
            Self::V81 => 0x81,
        }
    }

    /// Whether its HVX float has no IEEE arithmetic, and numbers of its own that have bits outside of the
    /// registers.
    pub fn hides_bits(self) -> bool {
        match self {
            Self::V67 | Self::V68 | Self::V69 | Self::V73 | Self::V75 => false,
            Self::V79 | Self::V81 => true,
        }
    }

    /// Features that the disassembler must be told, or it does not know the vector instructions.
    pub fn attributes(self) -> &'static str {
        match self {
            Self::V67 => "+hvxv66,+hvx-length128b",
            Self::V68 => "+hvxv68,+hvx-length128b,+hvx-qfloat,+hvx-ieee-fp",
            Self::V69 => "+hvxv69,+hvx-length128b,+hvx-qfloat,+hvx-ieee-fp",
            Self::V73 => "+hvxv73,+hvx-length128b,+hvx-qfloat,+hvx-ieee-fp",
            Self::V75 => "+hvxv75,+hvx-length128b,+hvx-qfloat,+hvx-ieee-fp",
            Self::V79 => "+hvxv79,+hvx-length128b,+hvx-qfloat,+hvx-ieee-fp",
            Self::V81 => "+hvxv81,+hvx-length128b,+hvx-qfloat,+hvx-ieee-fp",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V67 => "v67",
            Self::V68 => "v68",
            Self::V69 => "v69",
            Self::V73 => "v73",
            Self::V75 => "v75",
            Self::V79 => "v79",
            Self::V81 => "v81",
        })
    }
}

//! Versions of the Hexagon that the DSP runtime is built for.

use std::fmt;
use std::str::FromStr;

/// A version of the Hexagon: what an image for the device `qemu` is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Integer HVX alone: floats are scalar, IEEE to the bit. No phone that hexflash runs on has it.
    V67,
    /// Snapdragon 888.
    V68,
    /// Snapdragon 8 Gen 1.
    V69,
    /// Snapdragon 8 Gen 2.
    V73,
    /// Snapdragon 8 Gen 3.
    V75,
    /// Snapdragon 8 Elite: its float vectors have bits outside of the registers.
    V79,
    /// Snapdragon 8 Elite Gen 5.
    V81,
}

impl Arch {
    /// All of them, the oldest first.
    pub const ALL: [Self; 7] = [Self::V67, Self::V68, Self::V69, Self::V73, Self::V75, Self::V79, Self::V81];

    /// The number by which ELF files and drivers call it: 0x73 for v73.
    pub const fn number(self) -> u32 {
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

    /// The version with this number.
    pub fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.number() == number)
    }

    /// Whether its code computes with HVX float, which rounds in its own way: results are then not the bits
    /// of the device `inproc`, and only an emulator that has HVX float may run it.
    pub const fn has_float(self) -> bool {
        !matches!(self, Self::V67)
    }

    /// Whether it has user-DMA engines.
    pub const fn has_engines(self) -> bool {
        !matches!(self, Self::V67)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{:x}", self.number())
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(|arch| arch.to_string()).join(", ");
        let found = Self::ALL.into_iter().find(|arch| arch.to_string() == text);
        found.ok_or_else(|| format!("the versions are {}", known()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse(), Ok(arch));
            assert_eq!(Arch::of_number(arch.number()), Some(arch));
        }
        assert_eq!(Arch::of_number(0x71), None);
        assert!("73".parse::<Arch>().unwrap_err().contains("v73"));
    }
}

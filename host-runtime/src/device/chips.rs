//! Chips that are known by their numbers, with the version of the Hexagon NPU that each has.
//!
//! The vendor's library says the version itself, and that is what counts. This table is for whoever has not
//! got that far: which library a device will ask for, before anything runs there.

/// Chips by the beginnings of their numbers, the version, and the name that their phones are sold under. A
/// number may have letters behind it, as SM8650-AC has. Android's name of a platform tells less: `sun` is
/// SM8750 (v79) and SM8735 (v73).
const KNOWN: [(&str, u32, &str); 14] = [
    ("SM8350", 0x68, "888"),
    ("QCS6490", 0x68, "QCS6490"),
    ("SA8295P", 0x68, "SA8295P"),
    ("SM8450", 0x69, "8 Gen 1"),
    ("SM8475", 0x69, "8+ Gen 1"),
    ("SM8550", 0x73, "8 Gen 2"),
    ("SM8635", 0x73, "8s Gen 3"),
    ("SM8735", 0x73, "8s Gen 4"),
    ("QCM6690", 0x73, "QCM6690"),
    ("X1E", 0x73, "X Elite"),
    ("SM8650", 0x75, "8 Gen 3"),
    ("SM8750", 0x79, "8 Elite"),
    ("SM8850", 0x81, "8 Elite Gen 5"),
    ("SM8845", 0x81, "8 Gen 5"),
];

/// A chip of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownChip {
    /// Name of the chip, without the vendor's.
    pub name: &'static str,
    /// The version of its Hexagon, as the vendor's library gives it: 0x73.
    pub arch: u32,
}

impl KnownChip {
    /// The chip of that number, which may have anything behind it.
    pub fn of(number: &str) -> Option<Self> {
        let number = number.trim().to_ascii_uppercase();
        let (_, arch, name) = KNOWN.into_iter().find(|(beginning, ..)| number.starts_with(beginning))?;
        Some(Self { name, arch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{CHIPS, Chip};

    #[test]
    fn a_chip_is_known_by_the_beginning_of_its_number() {
        let name = |number| KnownChip::of(number).map(|chip| (chip.name, chip.arch));
        assert_eq!(name("SM8650-AC"), Some(("8 Gen 3", 0x75)));
        assert_eq!(name("SM8750P\n"), Some(("8 Elite", 0x79)));
        assert_eq!(name("sm8550"), Some(("8 Gen 2", 0x73)));
        assert_eq!(name("MT6985"), None);
        assert_eq!(name(""), None);
    }

    /// Each chip has a library of its own version and a row of the page, and no number begins with another.
    #[test]
    fn the_table_is_of_one_piece() {
        for (i, (number, arch, _)) in KNOWN.iter().enumerate() {
            assert!(CHIPS.iter().any(|chip| chip.arch == *arch), "{number}");
            assert!(KNOWN.iter().skip(i + 1).all(|(other, ..)| !other.starts_with(number)), "{number}");
            assert_eq!(*number, number.to_ascii_uppercase());
        }
        let page = include_str!("../../../docs/devices/chips.md");
        for (number, arch, name) in KNOWN {
            let row = |line: &&str| {
                line.starts_with(&format!("| v{arch:x} |")) && line.contains(number) && line.contains(name)
            };
            assert!(page.lines().any(|line| row(&line)), "{number} is not in the page's table");
        }
        assert_eq!(Chip::for_arch(0x73).skel(), "libhexflash_skel_v73.so");
        assert_eq!(Chip::for_arch(0x85).skel(), "libhexflash_skel_v81.so");
    }
}

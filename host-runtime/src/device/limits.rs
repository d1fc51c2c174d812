//! How much memory sessions can have: what is known of each version of the Hexagon NPU.

use serde::Serialize;

/// What a session, which is a process on the DSP, can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SessionLimits {
    /// Bytes of all its mappings.
    pub total: u64,
    /// Bytes of one of them.
    pub mapping: u64,
}

/// A version of the Hexagon NPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Its number, as the vendor's library gives it: 0x73.
    pub arch: u32,
    /// Its name.
    pub name: &'static str,
    /// What its sessions can map.
    pub limits: SessionLimits,
}

/// Addresses have 32 bits, of which the process and its libraries take some. This is what ggml-hexagon counts
/// with from v75 on, in bytes.
const TOTAL: u64 = 3_355_443_200;
/// The same for v73, and for want of better knowledge for those before it.
const TOTAL_V73: u64 = 3000 << 20;
/// Largest mapping up to v73, in whole pages of 4 KiB: the call takes the length as a signed integer of 32
/// bits.
const MAPPING_V73: u64 = (1 << 31) - 4096;

/// A version up to v73.
const fn old_chip(arch: u32, name: &'static str) -> Chip {
    Chip { arch, name, limits: SessionLimits { total: TOTAL_V73, mapping: MAPPING_V73 } }
}

/// A version that maps as much at once as in all.
const fn chip(arch: u32, name: &'static str) -> Chip {
    Chip { arch, name, limits: SessionLimits { total: TOTAL, mapping: TOTAL } }
}

/// The versions that libraries are built for, oldest first. Their limits come from other projects' code
/// for the vendor's interfaces, and have not been seen here.
pub const CHIPS: [Chip; 6] = [
    old_chip(0x68, "v68"),
    old_chip(0x69, "v69"),
    old_chip(0x73, "v73"),
    chip(0x75, "v75"),
    chip(0x79, "v79"),
    chip(0x81, "v81"),
];

impl Chip {
    /// The newest of [`CHIPS`] whose libraries run on a DSP of version `arch`; the oldest if none does.
    pub fn for_arch(arch: u32) -> Self {
        CHIPS.into_iter().rfind(|chip| chip.arch <= arch).unwrap_or(CHIPS[0])
    }

    /// File name of the library that the DSP loads: `libhexflash_skel_v73.so`.
    pub fn skel(self) -> String {
        format!("libhexflash_skel_{}.so", self.name)
    }

    /// File name of the library without IEEE arithmetic of HVX, which a DSP gets that does not execute that:
    /// `libhexflash_skel_v73_plain.so`. From v79 on there is none, as no library has it.
    pub fn plain_skel(self) -> String {
        format!("libhexflash_skel_{}_plain.so", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dsp_gets_the_newest_library_that_it_runs() {
        assert_eq!(
            [0x68, 0x69, 0x71, 0x73, 0x75, 0x77, 0x79, 0x81, 0x85].map(|arch| Chip::for_arch(arch).arch),
            [0x68, 0x69, 0x69, 0x73, 0x75, 0x75, 0x79, 0x81, 0x81]
        );
    }
}

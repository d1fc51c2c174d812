//! Tensor element types: ggml's numbers, names and block sizes.

use std::fmt;

/// Defines the enum and its lookups from one table, so a type cannot be half added.
macro_rules! ggml_types {
    ($($name:ident = $id:literal, $block_len:literal values in $block_bytes:literal bytes;)+) => {
        /// How a tensor's values are stored: plain numbers, or blocks of quantised values along `ne[0]`.
        ///
        /// The discriminants are the numbers stored in GGUF files and are spelt as ggml spells them.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum GgmlType {
            $(
                #[doc = concat!(
                    "`", stringify!($name), "`: ", stringify!($block_len), " value(s) in ",
                    stringify!($block_bytes), " byte(s)."
                )]
                $name = $id,
            )+
        }

        impl GgmlType {
            /// Every known type, by rising id.
            pub const ALL: &[GgmlType] = &[$(GgmlType::$name,)+];

            /// The type with this number in a GGUF file; `None` if unknown or removed from ggml.
            pub const fn from_id(id: u32) -> Option<GgmlType> {
                match id {
                    $($id => Some(GgmlType::$name),)+
                    _ => None,
                }
            }

            /// Name as ggml spells it, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(GgmlType::$name => stringify!($name),)+
                }
            }

            /// Values in one block; 1 for plain numbers.
            pub const fn block_len(self) -> u64 {
                match self {
                    $(GgmlType::$name => $block_len,)+
                }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> u64 {
                match self {
                    $(GgmlType::$name => $block_bytes,)+
                }
            }
        }
    };
}

ggml_types! {
    F32 = 0, 1 values in 4 bytes;
    F16 = 1, 1 values in 2 bytes;
    Q4_0 = 2, 32 values in 18 bytes;
    Q4_1 = 3, 32 values in 20 bytes;
    Q5_0 = 6, 32 values in 22 bytes;
    Q5_1 = 7, 32 values in 24 bytes;
    Q8_0 = 8, 32 values in 34 bytes;
    Q8_1 = 9, 32 values in 36 bytes;
    Q2_K = 10, 256 values in 84 bytes;
    Q3_K = 11, 256 values in 110 bytes;
    Q4_K = 12, 256 values in 144 bytes;
    Q5_K = 13, 256 values in 176 bytes;
    Q6_K = 14, 256 values in 210 bytes;
    Q8_K = 15, 256 values in 292 bytes;
    IQ2_XXS = 16, 256 values in 66 bytes;
    IQ2_XS = 17, 256 values in 74 bytes;
    IQ3_XXS = 18, 256 values in 98 bytes;
    IQ1_S = 19, 256 values in 50 bytes;
    IQ4_NL = 20, 32 values in 18 bytes;
    IQ3_S = 21, 256 values in 110 bytes;
    IQ2_S = 22, 256 values in 82 bytes;
    IQ4_XS = 23, 256 values in 136 bytes;
    I8 = 24, 1 values in 1 bytes;
    I16 = 25, 1 values in 2 bytes;
    I32 = 26, 1 values in 4 bytes;
    I64 = 27, 1 values in 8 bytes;
    F64 = 28, 1 values in 8 bytes;
    IQ1_M = 29, 256 values in 56 bytes;
    BF16 = 30, 1 values in 2 bytes;
    TQ1_0 = 34, 256 values in 54 bytes;
    TQ2_0 = 35, 256 values in 66 bytes;
    MXFP4 = 39, 32 values in 17 bytes;
    NVFP4 = 40, 64 values in 36 bytes;
    Q1_0 = 41, 128 values in 18 bytes;
    Q2_0 = 42, 64 values in 18 bytes;
}

impl GgmlType {
    /// The number stored in GGUF files.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of a tensor with dimensions `ne` (ggml order, `ne[0]` is the contiguous row).
    ///
    /// `None` if a row is not a whole number of blocks or the size does not fit in an `i64`, ggml's own
    /// limit.
    pub fn tensor_bytes(self, ne: &[u64]) -> Option<u64> {
        let (&row, rest) = ne.split_first()?;
        if row % self.block_len() != 0 {
            return None;
        }
        // The element count is checked as well: a 2-bit type has fewer bytes than elements.
        let elements = ne.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        let row_bytes = (row / self.block_len()).checked_mul(self.block_bytes())?;
        let bytes = rest.iter().try_fold(row_bytes, |n, &d| n.checked_mul(d))?;
        (elements.max(bytes) <= i64::MAX as u64).then_some(bytes)
    }

    /// Whether forks of llama.cpp write another layout under the same number.
    pub(super) const fn is_contested(self) -> bool {
        matches!(self, Self::Q1_0 | Self::Q2_0)
    }

    /// Values and bytes of a block as a fork has them under the same number, where that is known.
    pub(super) const fn fork_block(self) -> Option<(u64, u64)> {
        match self {
            Self::Q2_0 => Some((128, 2 + 128 / 4)),
            _ => None,
        }
    }

    /// Name of a type that ggml once had and has removed, for messages about old files.
    pub(super) const fn removed_name(id: u32) -> Option<&'static str> {
        match id {
            4 => Some("Q4_2"),
            5 => Some("Q4_3"),
            31 => Some("Q4_0_4_4"),
            32 => Some("Q4_0_4_8"),
            33 => Some("Q4_0_8_8"),
            36 => Some("IQ4_NL_4_4"),
            37 => Some("IQ4_NL_4_8"),
            38 => Some("IQ4_NL_8_8"),
            _ => None,
        }
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_rise() {
        for pair in GgmlType::ALL.windows(2) {
            assert!(pair[0].id() < pair[1].id());
        }
        for &t in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(t.id()), Some(t));
            assert_eq!(GgmlType::removed_name(t.id()), None);
        }
    }

    #[test]
    fn sizes_follow_blocks() {
        assert_eq!(GgmlType::F32.tensor_bytes(&[3, 2]), Some(24));
        assert_eq!(GgmlType::Q4_0.tensor_bytes(&[64, 3]), Some(108));
        assert_eq!(GgmlType::Q4_0.tensor_bytes(&[48, 2]), None, "row of one and a half blocks");
        assert_eq!(GgmlType::F32.tensor_bytes(&[u64::MAX / 2, 2]), None, "byte overflow");
        assert_eq!(GgmlType::IQ1_S.tensor_bytes(&[1 << 62, 2]), None, "element overflow");
        assert_eq!(GgmlType::F32.tensor_bytes(&[]), None);
    }
}

//! The weight types: which kernel multiplies each, and of which parts it is made.

use hexflash_abi::DType;
use hexflash_abi::dtype::QuantGroup;

use super::flat::{Exponents, Flat, Halves};
use super::quants::{Bytes, E2M1, FiveBits, Indices, Iq4Nl, Nibbles, OneBit, SixBits, ThreeBits, TwoBits};
use super::super_block::{PerHalf, PerHalfWithMins, PerTile, PerTileWithMins, SuperBlock};
use super::two_blocks::TwoBlocks;
use crate::variant::Variant;

pub use super::float::{BF16, F32};
pub use super::half::F16;

/// Defines the quantized types, and checks that their parts are those of the wire's layout.
macro_rules! quantized {
    ($($name:ident: $dtype:ident = $format:ty,)+) => {$(
        pub type $name = $format;

        const _: () = assert!(same(<$format>::GROUP, DType::$dtype.quant_group()));
    )+};
}

/// Whether a group has these parts.
const fn same(a: QuantGroup, b: Option<QuantGroup>) -> bool {
    let Some(b) = b else { return false };
    a.tiles == b.tiles && a.quants == b.quants && a.scales == b.scales && a.mins == b.mins && a.d == b.d
}

quantized! {
    Q8_0: Q8_0x32 = Flat<Bytes, Halves<0>>,
    Q4_0: Q4_0x32 = Flat<Nibbles<8>, Halves<0>>,
    Q4_1: Q4_1x32 = Flat<Nibbles<0>, Halves<2>>,
    Q5_0: Q5_0x32 = Flat<FiveBits<16>, Halves<0>>,
    Q5_1: Q5_1x32 = Flat<FiveBits<0>, Halves<2>>,
    IQ4NL: IQ4NLx32 = Flat<Indices<Iq4Nl>, Halves<0>>,
    MXFP4: MXFP4x32 = Flat<Indices<E2M1>, Exponents>,
    Q1_0: Q1_0x32 = TwoBlocks<OneBit, 8>,
    Q2_0: Q2_0x32 = TwoBlocks<TwoBits<1>, 4>,
    Q2K: Q2Kx32 = SuperBlock<TwoBits<0>, PerHalfWithMins>,
    Q3K: Q3Kx32 = SuperBlock<ThreeBits, PerHalf>,
    Q4K: Q4Kx32 = SuperBlock<Nibbles<0>, PerTileWithMins>,
    Q5K: Q5Kx32 = SuperBlock<FiveBits<0>, PerTileWithMins>,
    Q6K: Q6Kx32 = SuperBlock<SixBits, PerHalf>,
    IQ4XS: IQ4XSx32 = SuperBlock<Indices<Iq4Nl>, PerTile>,
}

/// The kernel for weights of a type; `None` if it is not tiled.
pub(super) const fn variant(dtype: DType) -> Option<Variant> {
    Some(match dtype {
        DType::F32x32 => Variant::MulMatF32,
        DType::F16x32 => Variant::MulMatF16,
        DType::BF16x32 => Variant::MulMatBF16,
        DType::Q8_0x32 => Variant::MulMatQ8_0,
        DType::Q4_0x32 => Variant::MulMatQ4_0,
        DType::Q4_1x32 => Variant::MulMatQ4_1,
        DType::Q5_0x32 => Variant::MulMatQ5_0,
        DType::Q5_1x32 => Variant::MulMatQ5_1,
        DType::IQ4NLx32 => Variant::MulMatIQ4NL,
        DType::MXFP4x32 => Variant::MulMatMXFP4,
        DType::Q1_0x32 => Variant::MulMatQ1_0,
        DType::Q2_0x32 => Variant::MulMatQ2_0,
        DType::Q2Kx32 => Variant::MulMatQ2K,
        DType::Q3Kx32 => Variant::MulMatQ3K,
        DType::Q4Kx32 => Variant::MulMatQ4K,
        DType::Q5Kx32 => Variant::MulMatQ5K,
        DType::Q6Kx32 => Variant::MulMatQ6K,
        DType::IQ4XSx32 => Variant::MulMatIQ4XS,
        DType::F32 | DType::F16 | DType::I32 | DType::Q8Act | DType::Q8_0 => return None,
        DType::Q8_0Cache | DType::Q4RCache => return None,
    })
}

//! Instructions of HVX float that a DSP executes one by one when it is asked to, so that a session learns
//! before it starts what the processor makes of them.
//!
//! Libraries that are known to run on phones use qfloat alone. Our code for v68 to v75 has IEEE arithmetic
//! and conversions besides, which no phone is known to have executed. Those are in [`Group`]s: where one of a
//! group ends the process, or gives another word, the session takes the library that has none of them.

use crate::VECTOR_BYTES;

wire_enum! {
    /// A float instruction, or a few whose result is a float again, by the types that they take and give.
    pub enum Form: u32 {
        /// The IEEE sum.
        AddSf = 1 "sf=vadd(sf,sf)",
        /// The IEEE difference.
        SubSf = 2 "sf=vsub(sf,sf)",
        /// The IEEE product.
        MpySf = 3 "sf=vmpy(sf,sf)",
        /// Products of halves, added to floats.
        MpyAccSf = 4 "sf+=vmpy(hf,hf)",
        /// The IEEE product of halves.
        MpyHf = 5 "hf=vmpy(hf,hf)",
        /// Halves as floats.
        CvtSfHf = 6 "sf=vcvt(hf)",
        /// Floats as halves.
        CvtHfSf = 7 "hf=vcvt(sf,sf)",
        /// Bytes as halves.
        CvtHfB = 8 "hf=vcvt(b)",
        /// The qfloat sum, as a float.
        QfAddSf = 16 "qf32=vadd(sf,sf)",
        /// The qfloat difference, as a float.
        QfSubSf = 17 "qf32=vsub(sf,sf)",
        /// The qfloat product, as a float.
        QfMpySf = 18 "qf32=vmpy(sf,sf)",
        /// Qfloat products of halves, as floats.
        QfMpyHf = 19 "qf32=vmpy(hf,hf)",
        /// Qfloat products of halves, as halves.
        HfOfQf = 20 "hf=qf32",
        /// The larger of two.
        MaxSf = 21 "sf=vmax(sf,sf)",
        /// The smaller of two.
        MinSf = 22 "sf=vmin(sf,sf)",
        /// Words as floats.
        SfOfW = 23 "sf=w",
        /// Halves that are integers as floats of as many bits.
        HfOfH = 24 "hf=h",
        /// The qfloat product, copied to another register before it becomes a float.
        CopiedQf = 32 "copied qf32",
        /// The square of a qfloat difference, which need not be normalised.
        SquaredQf = 33 "squared qf32",
        /// The sum of halves in qf16, as halves.
        QfAddHf = 34 "qf16=vadd(hf,hf)",
    }
}

wire_enum! {
    /// Instructions of our code for v68 to v75 that are of one kind, and that no library has that is known to
    /// run on phones.
    pub enum Group: u32 {
        /// IEEE sums and differences.
        Sums = 1 "sums",
        /// IEEE products.
        Products = 2 "products",
        /// Sums of products of halves, and products of halves.
        HalfProducts = 3 "half-products",
        /// Conversions between halves and floats.
        Conversions = 4 "conversions",
        /// Conversions of bytes.
        Bytes = 5 "bytes",
    }
}

impl Form {
    /// The group that it belongs to; `None` where libraries that run on phones have it, or nothing of ours
    /// has it.
    pub const fn group(self) -> Option<Group> {
        match self {
            Self::AddSf | Self::SubSf => Some(Group::Sums),
            Self::MpySf => Some(Group::Products),
            Self::MpyAccSf | Self::MpyHf => Some(Group::HalfProducts),
            Self::CvtSfHf | Self::CvtHfSf => Some(Group::Conversions),
            Self::CvtHfB => Some(Group::Bytes),
            _ => None,
        }
    }

    /// The form's bit in a set of forms that have a group; 0 for the others.
    pub const fn bit(self) -> u32 {
        if self.group().is_some() { 1 << self.wire() } else { 0 }
    }
}

/// Words of a vector.
pub const WORDS: usize = VECTOR_BYTES / 4;

/// The words of a vector.
pub type Words = [u32; WORDS];

/// The operands of a form: a vector for each, and a pair for what was in the register that it adds to.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
)]
#[repr(C)]
pub struct Operands {
    /// [`Form::wire`].
    pub form: u32,
    /// The first operand.
    pub u: Words,
    /// The second, which not all have.
    pub v: Words,
    /// The register that is added to.
    pub x: [Words; 2],
}

/// The result of a form: a pair, of which the second vector is 0 where it gives one.
pub type Given = [Words; 2];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_forms_and_each_of_these_a_bit_of_its_own() {
        let mut bits = 0;
        for &group in Group::ALL {
            let of_group = Form::ALL.iter().filter(|form| form.group() == Some(group));
            assert!(of_group.clone().count() > 0, "{group}");
            for form in of_group {
                assert!(form.bit() != 0 && bits & form.bit() == 0, "{form}");
                bits |= form.bit();
            }
        }
        assert_eq!(Form::QfAddSf.bit(), 0);
    }
}

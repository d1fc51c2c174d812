//! The matrix unit's instructions as words: no public assembler knows them.
//!
//! There are two classes. Loads (activation, weight, table) have bits 31..21 of 0x92000000, the rest
//! 0xa6e00000. Rs is in bits 20..16, Rt in bits 12..8; bits 15..14 say whether the packet goes on (01) or
//! ends (11), and bit 13 tells activations from weights, and integer stores from fp16 ones. [`Instruction`]
//! has all loads and stores of which encodings are published, also those that no kernel uses yet: a table
//! is checked against the published words as a whole.

const LOAD: u32 = 0x9200_0000;
const STORE: u32 = 0xa6e0_0000;

/// A scalar register, r0 to r31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

impl Register {
    /// Register r`number`.
    ///
    /// # Panics
    /// If there is no such register.
    pub const fn new(number: u8) -> Self {
        assert!(number < 32);
        Self(number)
    }

    const fn s(self) -> u32 {
        (self.0 as u32) << 16
    }

    const fn t(self) -> u32 {
        (self.0 as u32) << 8
    }
}

/// Whether more words of the packet follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Words follow.
    Inside = 1 << 14,
    /// The last word.
    Last = 3 << 14,
}

/// Types of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// fp16.
    Hf,
    /// Unsigned bytes, four rows interleaved.
    Ub,
    /// Unsigned bytes, row by row.
    UbRows,
    /// 8-bit floats (v79 and later).
    F8,
}

/// What an activation's range spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// One tile, or the taps of a filter from the first one on.
    One,
    /// Adjacent tiles.
    Deep,
    /// The taps of a filter up to the tile's end.
    Above,
    /// One tap.
    Single,
    /// Every second tap.
    Dilate,
}

/// Types of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// fp16.
    Hf,
    /// Signed bytes.
    B,
    /// Signed 4-bit numbers.
    N,
    /// 2-bit numbers.
    C,
    /// 2-bit numbers without 0.
    Sc,
    /// Bytes of sign and magnitude.
    Sm,
    /// Bits, 0 or 1.
    Ubit,
    /// Bits, 1 or -1.
    Sbit,
    /// 4-bit numbers of twice as many columns (v73 and later).
    N2x,
    /// 8-bit floats (v79 and later).
    F8,
}

/// Which weights a range stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taps {
    /// Those of one group of columns; for filters, the first taps.
    First,
    /// One tap.
    Single,
    /// As `First`, and what leaves a row is dropped.
    Drop,
    /// Two groups of columns in turn.
    Deep,
    /// The last taps.
    After,
    /// Every second tap.
    Dilate,
}

/// Stores of accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// `:after.hf`: fp16.
    Hf,
    /// `:after:pos.hf`: fp16, zero for what is negative.
    HfPositive,
    /// `:before.hf`: what another filter's tap left before the offset.
    HfBefore,
    /// `:before:pos.hf`.
    HfBeforePositive,
    /// `:after.ub`: bytes, wrapping.
    Ub,
    /// `:after:sat.ub`: bytes, saturating.
    UbSaturated,
    /// `:after:cm.ub`: bytes row by row, wrapping.
    UbRows,
    /// `:after:cm:sat.ub`: bytes row by row, saturating.
    UbRowsSaturated,
    /// `:before:sat.uh`, pairs of planes.
    UhBeforeSaturated,
    /// `:after:sat.uh`, pairs of planes.
    UhSaturated,
    /// `:before:sat.uh:2x2` (v69 and later).
    Uh4BeforeSaturated,
    /// `:after:sat.uh:2x2` (v69 and later).
    Uh4Saturated,
}

/// Conversions of accumulators (v73 and later).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Converted {
    /// To bytes.
    Ub = 23,
    /// To halves, pairs of planes.
    Uh = 24,
    /// To halves, four planes.
    Uh4 = 25,
    /// To fp16.
    Hf = 26,
    /// To 8-bit floats (v81).
    F8 = 27,
}

/// An instruction of the matrix unit, with its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// `mxclracc`: clears the integer accumulators.
    ClearInteger,
    /// `mxclracc.hf`: clears the accumulators.
    Clear,
    /// `mxswapacc`.
    SwapInteger,
    /// `mxswapacc.hf`: makes the other set of accumulators the one that is meant.
    Swap,
    /// `acc=mxshl(acc,#16)` (up to v75).
    ShiftInteger,
    /// `bias=mxmem(Rs)`: half a table.
    LoadHalfTable(Register),
    /// `bias=mxmem2(Rs)`: scale and biases of every column.
    LoadTable(Register),
    /// `activation=mxmem(Rs,Rt)`.
    Activation(Activation, Span, [Register; 2]),
    /// `weight=mxmem(Rs,Rt)`: with the activation of the same packet it multiplies.
    Weight(Weight, Taps, [Register; 2]),
    /// `mxmem(Rs,Rt)=acc`; where the flag is set the accumulators stay as they are.
    Store(Stored, bool, [Register; 2]),
    /// `cvt=acc(Rs)`.
    Convert(Converted, Register),
    /// `mxmem(Rs,Rt)=cvt`, or `.f8=cvt` (v81) where the flag is set.
    StoreConverted(bool, [Register; 2]),
}

impl Instruction {
    /// The word.
    pub const fn word(self, place: Place) -> u32 {
        place as u32 | self.bits()
    }

    const fn bits(self) -> u32 {
        match self {
            Self::ClearInteger => STORE | 0x11,
            Self::Clear => STORE | 0x13,
            Self::SwapInteger => STORE | 0x14,
            Self::Swap => STORE | 0x15,
            Self::ShiftInteger => STORE | 0x17,
            Self::LoadTable(s) => LOAD | s.s() | 0x3fe,
            Self::LoadHalfTable(s) => LOAD | s.s() | 0x3ff,
            Self::Activation(dtype, span, [s, t]) => LOAD | s.s() | t.t() | activation(dtype, span),
            Self::Weight(dtype, taps, [s, t]) => LOAD | 1 << 13 | s.s() | t.t() | weight(dtype, taps),
            Self::Store(what, retain, [s, t]) => STORE | s.s() | t.t() | stored(what, retain),
            Self::Convert(to, s) => STORE | s.s() | (to as u32) << 8 | 0x10,
            Self::StoreConverted(false, [s, t]) => STORE | s.s() | t.t() | 0x18,
            Self::StoreConverted(true, [s, t]) => STORE | s.s() | t.t() | 0x1d,
        }
    }
}

const fn activation(dtype: Activation, span: Span) -> u32 {
    let of_span = match dtype {
        Activation::Hf | Activation::F8 => [0xe4, 0xe2, 0xe6, 0xf8, 0xfa],
        Activation::Ub | Activation::UbRows => [0xec, 0xe0, 0xee, 0xf0, 0xe8],
    };
    of_span[span as usize] + matches!(dtype, Activation::F8 | Activation::UbRows) as u32
}

const fn weight(dtype: Weight, taps: Taps) -> u32 {
    let of_taps = match dtype {
        Weight::Hf => [0xef, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6],
        Weight::B => [0xe0, 0xe6, 0xe7, 0xe8, 0xe9, 0xeb],
        Weight::N => [0xe1, 0xec, 0xed, 0xee, 0xf7, 0xf8],
        Weight::C => [0xe2, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd],
        Weight::Sc => [0xf0, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4],
        Weight::Sm => [0xf1, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3],
        Weight::Ubit => [0xe3, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9],
        Weight::Sbit => [0xe4, 0xca, 0xcb, 0xcc, 0xcd, 0xce],
        Weight::N2x => [0x46, 0x41, 0x42, 0x43, 0x45, 0x44],
        Weight::F8 => [0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c],
    };
    of_taps[taps as usize]
}

const fn stored(what: Stored, retain: bool) -> u32 {
    let half = 1 << 13;
    let [clears, retains] = match what {
        Stored::Hf => [half | 0x04, half | 0x0c],
        Stored::HfPositive => [half | 0x09, half | 0x0d],
        Stored::HfBefore => [half, half | 0x08],
        Stored::HfBeforePositive => [half | 0x01, half | 0x05],
        Stored::Ub => [0x06, 0x0e],
        Stored::UbSaturated => [0x04, 0x0c],
        Stored::UbRows => [0x07, 0x0f],
        Stored::UbRowsSaturated => [0x05, 0x0d],
        Stored::UhBeforeSaturated => [half | 0x02, half | 0x06],
        Stored::UhSaturated => [half | 0x0a, half | 0x0e],
        Stored::Uh4BeforeSaturated => [half | 0x12, half | 0x16],
        Stored::Uh4Saturated => [half | 0x1a, half | 0x1e],
    };
    if retain { retains } else { clears }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn r(number: u8) -> Register {
        Register::new(number)
    }

    const R01: [Register; 2] = [r(0), r(1)];
    const R23: [Register; 2] = [r(2), r(3)];

    /// Words that others have published, from tests on two models of the unit and from a vendor's assembler.
    #[test]
    fn published_words() {
        use Instruction as I;
        use {Activation as A, Converted as C, Stored as S, Weight as W};
        let inside = [
            (I::Activation(A::Ub, Span::One, R01), 0x9200_41ec),
            (I::Activation(A::Hf, Span::One, R01), 0x9200_41e4),
            (I::Activation(A::Hf, Span::Deep, R01), 0x9200_41e2),
            (I::Activation(A::Ub, Span::Deep, R01), 0x9200_41e0),
            (I::Activation(A::Ub, Span::Single, R01), 0x9200_41f0),
            (I::Activation(A::Ub, Span::Above, R01), 0x9200_41ee),
            (I::Activation(A::UbRows, Span::One, R01), 0x9200_41ed),
        ];
        let last = [
            (I::ClearInteger, 0xa6e0_c011),
            (I::Clear, 0xa6e0_c013),
            (I::SwapInteger, 0xa6e0_c014),
            (I::ShiftInteger, 0xa6e0_c017),
            (I::Weight(W::B, Taps::First, R23), 0x9202_e3e0),
            (I::Weight(W::Hf, Taps::First, R23), 0x9202_e3ef),
            (I::Weight(W::N, Taps::First, R23), 0x9202_e3e1),
            (I::Weight(W::C, Taps::First, R23), 0x9202_e3e2),
            (I::Weight(W::Sm, Taps::First, R23), 0x9202_e3f1),
            (I::Weight(W::Sc, Taps::First, R23), 0x9202_e3f0),
            (I::Weight(W::Ubit, Taps::First, R23), 0x9202_e3e3),
            (I::Weight(W::Sbit, Taps::First, R23), 0x9202_e3e4),
            (I::Weight(W::F8, Taps::First, R23), 0x9202_e347),
            (I::Weight(W::B, Taps::Single, R23), 0x9202_e3e6),
            (I::Weight(W::B, Taps::Drop, R23), 0x9202_e3e7),
            (I::Weight(W::B, Taps::After, R23), 0x9202_e3e9),
            (I::Weight(W::B, Taps::Dilate, R23), 0x9202_e3eb),
            (I::Weight(W::B, Taps::First, R01), 0x9200_e1e0),
            (I::Weight(W::Hf, Taps::First, R01), 0x9200_e1ef),
            (I::LoadTable(r(0)), 0x9200_c3fe),
            (I::LoadHalfTable(r(0)), 0x9200_c3ff),
            (I::Store(S::UbSaturated, false, R01), 0xa6e0_c104),
            (I::Store(S::UbRowsSaturated, false, R01), 0xa6e0_c105),
            (I::Store(S::UbSaturated, true, R01), 0xa6e0_c10c),
            (I::Store(S::Hf, false, R01), 0xa6e0_e104),
            (I::Store(S::UhBeforeSaturated, false, R01), 0xa6e0_e102),
            (I::Store(S::UhSaturated, false, R01), 0xa6e0_e10a),
            (I::Store(S::Uh4BeforeSaturated, false, R01), 0xa6e0_e112),
            (I::Store(S::Uh4Saturated, false, R01), 0xa6e0_e11a),
            (I::Convert(C::Ub, r(0)), 0xa6e0_d710),
            (I::Convert(C::Hf, r(0)), 0xa6e0_da10),
            (I::Convert(C::F8, r(0)), 0xa6e0_db10),
            (I::StoreConverted(false, R01), 0xa6e0_c118),
            (I::StoreConverted(true, R01), 0xa6e0_c11d),
        ];
        let words = inside.map(|(instruction, word)| (instruction, Place::Inside, word));
        for (instruction, place, word) in
            words.into_iter().chain(last.map(|(instruction, word)| (instruction, Place::Last, word)))
        {
            assert_eq!(instruction.word(place), word, "{instruction:?}: {word:08x}");
        }
    }

    /// Parts of words that a vendor's assembler was seen to give.
    #[test]
    fn published_codes() {
        assert_eq!(activation(Activation::Ub, Span::Single), 0xf0);
        assert_eq!(weight(Weight::B, Taps::Deep), 0xe8);
        assert_eq!(stored(Stored::Ub, false), 0x06);
        assert_eq!(stored(Stored::UbSaturated, true), 0x0c);
        assert_eq!(stored(Stored::UbRows, true), 0x0f);
        assert_eq!(stored(Stored::Hf, false), 0x2004);
        assert_eq!([Converted::Ub, Converted::Hf].map(|to| to as u32), [23, 26]);
    }

    /// A whole product of fp16 tiles: clear, table, the packet, store.
    #[test]
    fn a_published_sequence() {
        let words = [
            Instruction::Clear.word(Place::Last),
            Instruction::LoadTable(r(4)).word(Place::Last),
            Instruction::Activation(Activation::Hf, Span::Deep, R01).word(Place::Inside),
            Instruction::Weight(Weight::Hf, Taps::First, [r(2), r(1)]).word(Place::Last),
            Instruction::Store(Stored::Hf, false, [r(5), r(6)]).word(Place::Last),
        ];
        assert_eq!(words, [0xa6e0_c013, 0x9204_c3fe, 0x9200_41e2, 0x9202_e1ef, 0xa6e5_e604]);
    }

    /// No two instructions share a word, and words give their registers back.
    #[test]
    fn words_tell_instructions_and_registers_apart() {
        let mut seen = std::collections::BTreeSet::new();
        let spans = [Span::One, Span::Deep, Span::Above, Span::Single, Span::Dilate];
        for dtype in [Activation::Hf, Activation::Ub, Activation::UbRows, Activation::F8] {
            for span in spans {
                assert!(seen.insert(Instruction::Activation(dtype, span, R01).word(Place::Last)));
            }
        }
        let weights = [Weight::Hf, Weight::B, Weight::N, Weight::C, Weight::Sc, Weight::Sm, Weight::Ubit];
        let taps = [Taps::First, Taps::Single, Taps::Drop, Taps::Deep, Taps::After, Taps::Dilate];
        for dtype in weights.into_iter().chain([Weight::Sbit, Weight::N2x, Weight::F8]) {
            for taps in taps {
                assert!(seen.insert(Instruction::Weight(dtype, taps, R01).word(Place::Last)));
            }
        }
        assert_eq!(seen.len(), 4 * 5 + 10 * 6);
        for number in 0..32 {
            let word = Instruction::Store(Stored::Hf, true, [r(number), r(31 - number)]).word(Place::Last);
            assert_eq!((word >> 16 & 31, word >> 8 & 31), (number.into(), u32::from(31 - number)));
        }
    }
}

//! Operands and results of float instructions.
//!
//! Results of IEEE arithmetic are those of this machine's processor; conversions to and from halves, and
//! qfloat, are computed by `dsp-runtime/hvx-float`, which states published descriptions with exact integers.
//! None comes from a kernel, from the emulator or from the code that a DSP runs.

use std::f32::consts::{E, PI};

use hexflash_abi::forms::Form;
use hexflash_hvx_float::extended::DEFAULT;
use hexflash_hvx_float::forms::{FORMS, Input, Version, Word};
use hexflash_hvx_float::ieee::HF;

/// Versions that compute alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archs {
    pub first: u32,
    pub last: u32,
}

/// The versions with IEEE arithmetic, those of them whose code makes halves of floats, and those with the
/// other qfloat.
const IEEE: Archs = Archs { first: 68, last: 75 };
const HALVES: Archs = Archs { first: 73, last: 75 };
const EXTENDED: Archs = Archs { first: 79, last: 81 };

/// A lane: what the form takes, and what it gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    pub takes: Vec<u32>,
    pub gives: Vec<u32>,
}

/// Lanes of a form on some versions.
#[derive(Clone, Debug)]
pub struct Block {
    pub form: Form,
    pub archs: Archs,
    /// What nobody outside has answered yet, so that another result is news and no failure.
    pub question: Option<&'static str>,
    pub lanes: Vec<Lane>,
}

/// Pairs of floats: sums that are exact, round, tie, cancel, and end up subnormal.
const FLOATS: [(f32, f32); 20] = [
    (1.0, 2.0),
    (1.0, -1.0),
    (0.0, 0.0),
    (0.0, 3.5),
    (-2.5, 0.25),
    (16_777_216.0, 1.0),
    (16_777_216.0, 3.0),
    (16_777_215.0, 0.5),
    (1.0, 5.960_464_5e-8),
    (1.0, 1.192_092_9e-7),
    (-1.0, 2.980_232_2e-8),
    (0.1, 0.2),
    (0.1, -0.3),
    (1.000_000_1, -1.0),
    (PI, E),
    (-1.234_567_9e10, 9.876_543e-3),
    (6.022e23, -6.021e23),
    (1.5e-30, 2.5e-30),
    (65_504.0, 12_582_912.0),
    (-0.75, -0.125),
];

/// Halves, two to a word; subnormal ones among them.
const HALF_PAIRS: [(u32, u32); 12] = [
    (0x3c00_4000, 0x4200_3800),
    (0x0000_3c00, 0x3c00_0000),
    (0xbc00_4100, 0x4500_c200),
    (0x3555_2e66, 0x3266_3555),
    (0x7bff_3c01, 0x3c00_3c01),
    (0x5640_5a00, 0x4248_c170),
    (0x3bff_3bff, 0x3bff_3c02),
    (0xc000_c000, 0x3800_b800),
    (0x4900_4d00, 0x2c00_2800),
    (0x3e00_3e01, 0x3e00_3e03),
    (0x1400_1801, 0x6400_6801),
    (0x4000_3c00, 0x3c00_c000),
];

/// Words whose halves are subnormal, which conversions must keep.
const SUBNORMAL: [u32; 4] = [0x0001_8001, 0x03ff_0200, 0x0400_83ff, 0x7bff_fbff];

/// All blocks.
pub fn blocks() -> Vec<Block> {
    [ieee(), conversions(), qfloat(IEEE), qfloat(EXTENDED), questions()].concat()
}

fn check(form: Form, archs: Archs, lanes: Vec<Lane>) -> Block {
    Block { form, archs, question: None, lanes }
}

fn of_floats(form: Form, archs: Archs, compute: impl Fn(f32, f32) -> f32) -> Block {
    let lane = |&(a, b): &(f32, f32)| Lane {
        takes: vec![a.to_bits(), b.to_bits()],
        gives: vec![compute(a, b).to_bits()],
    };
    check(form, archs, FLOATS.iter().map(lane).collect())
}

/// The low and the high half of a word as floats.
fn halves(word: u32) -> [f32; 2] {
    [word & 0xffff, word >> 16].map(|half| HF.to_f64(half) as f32)
}

/// Two floats as halves of a word.
fn word([low, high]: [f32; 2]) -> u32 {
    HF.of_f64(low.into()) | HF.of_f64(high.into()) << 16
}

/// IEEE sums and products.
fn ieee() -> Vec<Block> {
    // The product of two halves is a float without rounding, so that a sum rounds once whatever is fused.
    let added = HALF_PAIRS.iter().zip(FLOATS).map(|(&(a, b), (x, y))| {
        let ([a0, a1], [b0, b1]) = (halves(a), halves(b));
        let (x, y) = (x.clamp(-1e4, 1e4), y.clamp(-1e4, 1e4));
        let gives = vec![(x + a0 * b0).to_bits(), (y + a1 * b1).to_bits()];
        Lane { takes: vec![a, b, x.to_bits(), y.to_bits()], gives }
    });
    let products = HALF_PAIRS.iter().map(|&(a, b)| {
        let ([a0, a1], [b0, b1]) = (halves(a), halves(b));
        Lane { takes: vec![a, b], gives: vec![word([a0 * b0, a1 * b1])] }
    });
    vec![
        of_floats(Form::AddSf, IEEE, |a, b| a + b),
        of_floats(Form::SubSf, IEEE, |a, b| a - b),
        of_floats(Form::MpySf, IEEE, |a, b| a * b),
        check(Form::MpyAccSf, IEEE, added.collect()),
        check(Form::MpyHf, HALVES, products.collect()),
    ]
}

/// Conversions between floats and halves, and of bytes.
fn conversions() -> Vec<Block> {
    let words = HALF_PAIRS.iter().map(|pair| pair.0).chain(SUBNORMAL);
    let widened =
        words.map(|x| Lane { takes: vec![x], gives: halves(x).map(f32::to_bits).to_vec() }).collect();
    // Ties, the largest half and what rounds to it, subnormal results.
    let narrow: [(f32, f32); 10] = [
        (1.0, -2.0),
        (1.000_488_3, 1.001_464_8),
        (2_049.0, 2_051.0),
        (65_504.0, 65_519.0),
        (-65_504.0, 0.333_333_34),
        (6.103_515_6e-5, 6.1e-5),
        (5.960_464_5e-8, 8.940_697e-8),
        (0.1, -0.2),
        (0.0, 1e-10),
        (PI, -E),
    ];
    let narrowed = narrow
        .iter()
        .map(|&(a, b)| Lane { takes: vec![a.to_bits(), b.to_bits()], gives: vec![word([a, b])] });
    // Bytes 0 and 1 of a word to the first vector, bytes 2 and 3 to the second.
    let bytes = [0x0001_7f80, 0xff02_fe03, 0x8180_7e7f, 0x1020_3040, 0xc0d0_e0f0].map(|x: u32| {
        let [b0, b1, b2, b3] = x.to_le_bytes().map(|byte| f32::from(byte as i8));
        Lane { takes: vec![x], gives: vec![word([b0, b1]), word([b2, b3])] }
    });
    vec![
        check(Form::CvtSfHf, IEEE, widened),
        check(Form::CvtHfSf, HALVES, narrowed.collect()),
        check(Form::CvtHfB, HALVES, bytes.to_vec()),
    ]
}

/// The definition of an instruction of hvx-float, for a lane of plain words.
fn defined(version: Version, syntax: &str, u: [Word; 2], v: Word) -> [Word; 2] {
    let form = FORMS.iter().find(|form| form.syntax == syntax).expect("an instruction of the table");
    form.compute(version, &Input { u, v, x: [0; 2], q: 0, t: 0 }).d
}

fn plain(bits: u32) -> Word {
    Word { bits, beside: DEFAULT }
}

/// The definition of an instruction with two float operands that gives a qfloat, which then becomes a float.
fn through_qfloat(version: Version, syntax: &str, a: u32, b: u32) -> u32 {
    let [low, high] = defined(version, syntax, [plain(a); 2], plain(b));
    defined(version, "Vd.sf=Vu.qf32", [low, high], plain(0))[0].bits
}

/// Products of two halves as two floats, and as halves of a word.
type Products = (Vec<u32>, Vec<u32>);

/// Forms that libraries for phones have, too: what is wrong here is wrong in the reading of the formats.
fn qfloat(archs: Archs) -> Vec<Block> {
    let version = Version(archs.first);
    let of_qfloat = |form, syntax: &'static str| {
        let lane = move |&(a, b): &(f32, f32)| {
            let (a, b) = (a.to_bits(), b.to_bits());
            Lane { takes: vec![a, b], gives: vec![through_qfloat(version, syntax, a, b)] }
        };
        check(form, archs, FLOATS.iter().map(lane).collect())
    };
    let products = |a: u32, b: u32| {
        let product = defined(version, "Vdd.qf32=vmpy(Vu.hf,Vv.hf)", [plain(a); 2], plain(b));
        let float = |word| defined(version, "Vd.sf=Vu.qf32", [word; 2], plain(0))[0].bits;
        let halves = defined(version, "Vd.hf=Vuu.qf32", product, plain(0))[0].bits;
        (product.map(float).to_vec(), vec![halves])
    };
    let of_halves = |form, what: fn(Products) -> Vec<u32>| {
        let lane = |&(a, b): &(u32, u32)| Lane { takes: vec![a, b], gives: what(products(a, b)) };
        check(form, archs, HALF_PAIRS.iter().map(lane).collect())
    };
    let with_integers = Archs { first: archs.first.max(73), ..archs };
    let floats = [0, 1, -1, 7, -128, 16_777_217, -33_554_435, i32::MAX]
        .map(|x: i32| Lane { takes: vec![x as u32], gives: vec![(x as f32).to_bits()] });
    let short = [0x0000_0001, 0xffff_007f, 0x0801_f7ff, 0x7fff_8000, 0x1234_fedc].map(|x: u32| {
        let [low, high] = [x as u16, (x >> 16) as u16].map(|half| f32::from(half as i16));
        Lane { takes: vec![x], gives: vec![word([low, high])] }
    });
    vec![
        of_qfloat(Form::QfAddSf, "Vd.qf32=vadd(Vu.sf,Vv.sf)"),
        of_qfloat(Form::QfSubSf, "Vd.qf32=vsub(Vu.sf,Vv.sf)"),
        of_qfloat(Form::QfMpySf, "Vd.qf32=vmpy(Vu.sf,Vv.sf)"),
        of_halves(Form::QfMpyHf, |(floats, _)| floats),
        of_halves(Form::HfOfQf, |(_, halves)| halves),
        of_floats(Form::MaxSf, archs, f32::max),
        of_floats(Form::MinSf, archs, f32::min),
        check(Form::SfOfW, with_integers, floats.to_vec()),
        check(Form::HfOfH, with_integers, short.to_vec()),
    ]
}

/// What no published source answers for a processor. Given are the words of the descriptions that
/// `dsp-runtime/hvx-float` follows.
fn questions() -> Vec<Block> {
    let ask = |form, archs, question, lanes| Block { form, archs, question: Some(question), lanes };
    let copied = FLOATS.iter().map(|&(a, b)| {
        let (a, b) = (a.to_bits(), b.to_bits());
        let [product, _] = defined(Version(79), "Vd.qf32=vmpy(Vu.sf,Vv.sf)", [plain(a); 2], plain(b));
        let gives = defined(Version(79), "Vd.sf=Vu.qf32", [plain(product.bits); 2], plain(0))[0].bits;
        Lane { takes: vec![a, b], gives: vec![gives] }
    });
    // A position minus the nearest multiple of pi, as ROPE on v79 takes it: up to 9 leading bits cancel.
    let differences = (0..12).map(|i: u8| {
        let position = 400.0 + 9.0 * f32::from(i);
        let turns = (position / PI).round();
        let (a, b) = (position.to_bits(), (turns * PI).to_bits());
        let [difference, _] = defined(Version(79), "Vd.qf32=vsub(Vu.sf,Vv.sf)", [plain(a); 2], plain(b));
        let square = defined(Version(79), "Vd.qf32=vmpy(Vu.qf32,Vv.qf32)", [difference; 2], difference);
        let gives = defined(Version(79), "Vd.sf=Vu.qf32", square, plain(0))[0].bits;
        Lane { takes: vec![a, b], gives: vec![gives] }
    });
    let halves = HALF_PAIRS.iter().map(|&(a, b)| {
        let sum = defined(Version(73), "Vd.qf16=vadd(Vu.hf,Vv.hf)", [plain(a); 2], plain(b));
        Lane { takes: vec![a, b], gives: vec![defined(Version(73), "Vd.hf=Vu.qf16", sum, plain(0))[0].bits] }
    });
    vec![
        ask(Form::CopiedQf, EXTENDED, "does a copy of a register lose the bits beside it?", copied.collect()),
        ask(
            Form::SquaredQf,
            EXTENDED,
            "is a qf32 difference normalised before it is multiplied?",
            differences.collect(),
        ),
        ask(Form::QfAddHf, IEEE, "how does a qf16 sum of two halves round?", halves.collect()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use hexflash_abi::forms::WORDS;

    /// What can be computed in two ways is: IEEE arithmetic by the processor at hand, and as hvx-float states
    /// it.
    #[test]
    fn two_definitions_agree() {
        for block in blocks() {
            let syntax = match block.form {
                Form::AddSf => "Vd.sf=vadd(Vu.sf,Vv.sf)",
                Form::SubSf => "Vd.sf=vsub(Vu.sf,Vv.sf)",
                Form::MpySf => "Vd.sf=vmpy(Vu.sf,Vv.sf)",
                Form::MpyHf => "Vd.hf=vmpy(Vu.hf,Vv.hf)",
                Form::MpyAccSf => "Vxx.sf+=vmpy(Vu.hf,Vv.hf)",
                Form::CvtHfB => "Vdd.hf=vcvt(Vu.b)",
                Form::SfOfW => "Vd.sf=Vu.w",
                Form::HfOfH => "Vd.hf=Vu.h",
                _ => continue,
            };
            let form = FORMS.iter().find(|form| form.syntax == syntax).unwrap();
            for lane in &block.lanes {
                let word = |i: usize| lane.takes.get(i).copied().unwrap_or(0);
                let input =
                    Input { u: [plain(word(0)); 2], v: plain(word(1)), x: [word(2), word(3)], q: 0, t: 0 };
                let given = form.compute(Version(block.archs.first), &input).d.map(|word| word.bits);
                assert_eq!(given[..lane.gives.len()], lane.gives, "{}: {:08x?}", block.form, lane.takes);
            }
        }
    }

    #[test]
    fn each_form_has_lanes_that_fit_a_vector() {
        for form in Form::ALL {
            assert!(blocks().iter().any(|block| block.form == *form), "{form}");
        }
        assert!(blocks().iter().all(|block| (1..=WORDS).contains(&block.lanes.len())));
    }
}

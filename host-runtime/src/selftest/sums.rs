//! Sums whose results tell how a matrix unit adds.
//!
//! The unit adds 128 products here, of which all but a few are zero. A large one and its opposite leave what
//! lay between them, if the sum had room for it: that depends on the order of sums, on how many products are
//! added at a time, and on the bits that a sum keeps. [`Hypothesis`] has what published sources and guesses
//! say of these, computed by their definitions; no two of them give the same results.

use half::f16;
use hexflash_abi::probe::{MOST_PAIRS, Outcome, Question, RESULTS, TILE_BYTES};
use hexflash_hvx_float::matrix::{Accumulator, Generation, Half, SIDE};
use zerocopy::IntoBytes;

use super::questions::about;
use crate::device::{Device, DeviceError};

/// Products of a sum.
const PRODUCTS: usize = MOST_PAIRS as usize * SIDE;
/// Halves of a tile.
const HALVES: usize = TILE_BYTES as usize / 2;
/// The point of a fixed-point number: all products here are multiples of 2^-48.
const POINT: i32 = 48;

/// A sum: its products that are not zero, by their places, each of two halves; and what the result is scaled
/// by.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    products: &'static [(usize, f32, f32)],
    scale: f32,
}

/// Halves whose product is 1.5 * 2^13. A float has steps of 2^-10 there.
const LARGE: (f32, f32) = (192.0, 64.0);
/// Less than half of such a step: 2^-14.
const SMALL: (f32, f32) = (0.007_812_5, 0.007_812_5);
/// A step.
const STEP: (f32, f32) = (0.031_25, 0.031_25);

/// A product at a place; and the same with a minus.
const fn at(place: usize, (a, w): (f32, f32)) -> (usize, f32, f32) {
    (place, a, w)
}

const fn minus(place: usize, (a, w): (f32, f32)) -> (usize, f32, f32) {
    (place, -a, w)
}

/// A sum whose result is some steps of a float, or a part of one.
const fn of(products: &'static [(usize, f32, f32)]) -> Sum {
    Sum { products, scale: 1024.0 }
}

/// Sums that tell in which order, how many at a time and how exactly products are added.
const ORDER: [Sum; 19] = [
    // Something small between two large ones that are far apart.
    of(&[at(0, LARGE), at(32, SMALL), minus(64, LARGE)]),
    // Before two large ones that are 1, 2, 4, 8 and 16 places apart: is it there when they have cancelled?
    of(&[at(0, SMALL), at(32, LARGE), minus(33, LARGE)]),
    of(&[at(0, SMALL), at(32, LARGE), minus(34, LARGE)]),
    of(&[at(0, SMALL), at(32, LARGE), minus(36, LARGE)]),
    of(&[at(0, SMALL), at(32, LARGE), minus(40, LARGE)]),
    of(&[at(0, SMALL), at(32, LARGE), minus(48, LARGE)]),
    // The same, but for the order of places.
    of(&[at(32, LARGE), minus(33, LARGE), at(127, SMALL)]),
    of(&[at(32, LARGE), minus(34, LARGE), at(127, SMALL)]),
    of(&[at(32, LARGE), minus(36, LARGE), at(127, SMALL)]),
    of(&[at(32, LARGE), minus(40, LARGE), at(127, SMALL)]),
    of(&[at(32, LARGE), minus(48, LARGE), at(127, SMALL)]),
    // A step; three quarters of one; a quarter less, and a quarter more below zero.
    of(&[at(0, LARGE), at(32, STEP), minus(64, LARGE)]),
    of(&[at(0, LARGE), at(32, (0.023_437_5, 0.031_25)), minus(64, LARGE)]),
    of(&[at(0, LARGE), minus(32, (0.015_625, 0.015_625)), minus(64, LARGE)]),
    of(&[minus(0, LARGE), at(32, (0.015_625, 0.015_625)), at(64, LARGE)]),
    // Next to each other: what is a group exact to?
    of(&[at(0, LARGE), at(1, SMALL), minus(2, LARGE)]),
    of(&[at(0, LARGE), at(1, SMALL), minus(4, LARGE)]),
    // Several small ones beside a large one: in a group with it each leaves a trace of its own where what is
    // shifted out leaves one, in another group all of them leave one together.
    of(&[
        at(0, LARGE),
        at(1, SMALL),
        at(2, SMALL),
        at(3, SMALL),
        at(4, SMALL),
        at(5, SMALL),
        minus(6, LARGE),
    ]),
    of(&[
        at(0, LARGE),
        at(1, SMALL),
        at(2, SMALL),
        at(3, SMALL),
        at(4, SMALL),
        at(5, SMALL),
        at(6, SMALL),
        at(7, SMALL),
        minus(64, LARGE),
    ]),
];

/// Halves whose product is 1.
const ONE: (f32, f32) = (1.0, 1.0);
/// Half of a half's last bit at 1: 2^-11.
const TIE: (f32, f32) = (0.015_625, 0.031_25);

/// A sum that is stored as it is.
const fn stored(products: &'static [(usize, f32, f32)]) -> Sum {
    Sum { products, scale: 1.0 }
}

/// Sums between two halves, which tell how results are rounded.
const ROUNDING: [Sum; 7] = [
    // In the middle, below an even half and below an odd one; the same below zero.
    stored(&[at(0, ONE), at(1, TIE)]),
    stored(&[at(0, ONE), at(1, TIE), at(2, TIE), at(3, TIE)]),
    stored(&[minus(0, ONE), minus(1, TIE)]),
    stored(&[minus(0, ONE), minus(1, TIE), minus(2, TIE), minus(3, TIE)]),
    // Above the middle by 2^-20, and below it.
    stored(&[at(0, ONE), at(1, TIE), at(2, (0.000_976_562_5, 0.000_976_562_5))]),
    stored(&[at(0, ONE), at(1, (0.015_625, 0.015_625))]),
    stored(&[minus(0, ONE), minus(1, (0.015_625, 0.015_625))]),
];

/// A question to the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Study {
    /// The way in which it adds products.
    Order,
    /// The rounding of what it stores.
    Rounding,
}

/// A way to bring a number to fewer bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounded {
    /// To the nearest; of two, to the even one.
    Nearest,
    /// To the nearest; of two, to the larger one.
    NearestAway,
    /// To the nearest; of two, to the smaller one.
    NearestInwards,
    /// Towards zero.
    Inwards,
    /// Towards minus infinity.
    Down,
    /// Towards infinity.
    Up,
    /// To the odd one of both neighbours.
    Odd,
}

impl Rounded {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Nearest,
        Self::NearestAway,
        Self::NearestInwards,
        Self::Inwards,
        Self::Down,
        Self::Up,
        Self::Odd,
    ];

    const fn words(self) -> &'static str {
        match self {
            Self::Nearest => "to the nearest, ties to even",
            Self::NearestAway => "to the nearest, ties away from zero",
            Self::NearestInwards => "to the nearest, ties towards zero",
            Self::Inwards => "towards zero",
            Self::Down => "towards minus infinity",
            Self::Up => "towards infinity",
            Self::Odd => "to odd last bits",
        }
    }

    /// The number with so many bits that is put in the place of `x`.
    fn to_bits(self, x: i128, bits: u32) -> i128 {
        let length = 128 - x.unsigned_abs().leading_zeros();
        let Some(spare) = length.checked_sub(bits).filter(|spare| *spare > 0) else { return x };
        let step = 1_i128 << spare;
        // Towards minus infinity, as shifts are.
        let below = x >> spare << spare;
        let rest = x - below;
        if rest == 0 {
            return x;
        }
        let is_odd = below >> spare & 1 == 1;
        let up = match self {
            Self::Nearest => rest > step / 2 || rest == step / 2 && is_odd,
            Self::NearestAway => rest > step / 2 || rest == step / 2 && x > 0,
            Self::NearestInwards => rest > step / 2 || rest == step / 2 && x < 0,
            Self::Inwards => x < 0,
            Self::Down => false,
            Self::Up => true,
            Self::Odd => !is_odd,
        };
        if up { below + step } else { below }
    }
}

/// A way in which a unit may add products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adds {
    /// Without loss.
    Exactly,
    /// As published sources have it for some versions: see [`hexflash_hvx_float::matrix`].
    AsPublished(Generation),
    /// So many neighbours exactly, each such sum to one with so many bits.
    Grouped {
        /// Products of a group.
        group: usize,
        /// Bits of the sum: 24 are a float's, 11 a half's.
        bits: u32,
        /// The way in which it is brought to them.
        rounded: Rounded,
        /// Whether the last group comes first.
        backwards: bool,
    },
}

/// A possible behaviour of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hypothesis {
    /// The way in which it adds.
    pub adds: Adds,
    /// The rounding of what it stores.
    pub stores: Rounded,
}

impl Hypothesis {
    /// The published behaviour.
    pub const fn published(generation: Generation) -> Self {
        Self { adds: Adds::AsPublished(generation), stores: Rounded::Nearest }
    }

    /// The half that it gives.
    fn gives(self, sum: &Sum) -> u16 {
        let mut exact = [0; PRODUCTS];
        for &(place, a, w) in sum.products {
            // Exact: a product of two halves has 22 bits.
            exact[place] = (f64::from(a) * f64::from(w) * f64::from(POINT).exp2()) as i128;
        }
        let total = match self.adds {
            Adds::Exactly => exact.iter().sum(),
            Adds::AsPublished(generation) => return published(generation, sum),
            Adds::Grouped { group, bits, rounded, backwards } => {
                let add = |sum: i128, group: &[i128]| rounded.to_bits(sum + group.iter().sum::<i128>(), bits);
                let groups = exact.chunks_exact(group);
                if backwards { groups.rev().fold(0, add) } else { groups.fold(0, add) }
            }
        };
        // 11 bits are exact as a double, and so is a power of two times them.
        let rounded = self.stores.to_bits(total, 11) as f64 * f64::from(-POINT).exp2();
        f16::from_f64(rounded * f64::from(sum.scale)).to_bits()
    }
}

/// The half that the published description gives.
fn published(generation: Generation, sum: &Sum) -> u16 {
    let half = |x: f32| Half::new(f16::from_f32(x).to_bits());
    let (mut a, mut w) = ([half(0.0); PRODUCTS], [half(0.0); PRODUCTS]);
    for &(place, left, right) in sum.products {
        (a[place], w[place]) = (half(left), half(right));
    }
    let mut accumulator = Accumulator::EMPTY;
    let group = generation.group();
    for (a, w) in a.chunks_exact(group).zip(w.chunks_exact(group)) {
        accumulator.add(generation, a, w);
    }
    accumulator.store(half(sum.scale), half(0.0))
}

impl std::fmt::Display for Adds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Exactly => f.write_str("exactly"),
            Self::AsPublished(Generation::V73) => f.write_str("4 products at a time, as published for v73"),
            Self::AsPublished(Generation::V75) => {
                f.write_str("8 products at a time, as published for v75 to v81")
            }
            Self::Grouped { group, bits, rounded, backwards } => {
                let from = if backwards { "last" } else { "first" };
                write!(f, "{group} at a time from the {from}, to {bits} bits, rounded {}", rounded.words())
            }
        }
    }
}

impl Study {
    /// Both studies.
    pub const ALL: [Self; 2] = [Self::Order, Self::Rounding];

    /// The study's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Order => "order of sums",
            Self::Rounding => "rounding of results",
        }
    }

    /// The study's sums.
    pub const fn sums(self) -> &'static [Sum] {
        match self {
            Self::Order => &ORDER,
            Self::Rounding => &ROUNDING,
        }
    }

    /// Everything that a unit may do here. What is no part of the question is as published.
    pub fn hypotheses(self) -> Vec<Hypothesis> {
        let published = [Generation::V73, Generation::V75].map(Hypothesis::published);
        match self {
            Self::Order => {
                let mut all = published.to_vec();
                let mut hypothesis = |adds| all.push(Hypothesis { adds, stores: Rounded::Nearest });
                hypothesis(Adds::Exactly);
                for group in [1, 2, 4, 8, 16, 32] {
                    for rounded in [Rounded::Nearest, Rounded::Inwards, Rounded::Down] {
                        for backwards in [false, true] {
                            hypothesis(Adds::Grouped { group, bits: 24, rounded, backwards });
                        }
                    }
                }
                let rounded = Rounded::Nearest;
                hypothesis(Adds::Grouped { group: 1, bits: 11, rounded, backwards: false });
                all
            }
            Self::Rounding => Rounded::ALL.map(|stores| Hypothesis { adds: Adds::Exactly, stores }).to_vec(),
        }
    }

    /// The behaviour that is said of a version; that of the portable twin where it is none.
    pub const fn expected(self, hexagon: Option<u32>) -> Hypothesis {
        match (self, hexagon) {
            (Self::Order, Some(0..=0x73)) => Hypothesis::published(Generation::V73),
            (Self::Order, _) => Hypothesis::published(Generation::V75),
            (Self::Rounding, _) => Hypothesis { adds: Adds::Exactly, stores: Rounded::Nearest },
        }
    }

    /// A hypothesis in words.
    pub fn words(self, hypothesis: Hypothesis) -> String {
        match self {
            Self::Order => hypothesis.adds.to_string(),
            Self::Rounding => hypothesis.stores.words().to_owned(),
        }
    }

    /// The halves that a hypothesis gives.
    pub fn results(self, hypothesis: Hypothesis) -> Vec<u16> {
        self.sums().iter().map(|sum| hypothesis.gives(sum)).collect()
    }

    /// The hypotheses that give these halves.
    pub fn fitting(self, given: &[u16]) -> Vec<Hypothesis> {
        let fits = |hypothesis: &Hypothesis| {
            let results = self.results(*hypothesis);
            // Which zero it is does not matter.
            results.len() == given.len()
                && results.iter().zip(given).all(|(a, b)| a == b || (a | b) & 0x7fff == 0)
        };
        self.hypotheses().into_iter().filter(fits).collect()
    }
}

/// The tiles about some sums: A, W and a table. Sum `i` is that of row `i` and column `i`.
fn tiles(sums: &[Sum]) -> Vec<u16> {
    let pairs = MOST_PAIRS as usize;
    let bits = |x: f32| f16::from_f32(x).to_bits();
    let mut tiles = vec![0; (2 * pairs + 1) * HALVES];
    for (i, sum) in sums.iter().enumerate() {
        for &(place, a, w) in sum.products {
            let (tile, k) = (place / SIDE, place % SIDE);
            tiles[tile * HALVES + i / 2 * 64 + 2 * k + i % 2] = bits(a);
            tiles[(pairs + tile) * HALVES + k / 2 * 64 + 2 * i + k % 2] = bits(w);
        }
        tiles[2 * pairs * HALVES + 2 * i] = bits(sum.scale);
    }
    tiles
}

/// The halves that a device gives; `None` where it has no matrix unit.
///
/// # Errors
/// The device failed.
pub fn ask(device: &mut dyn Device, study: Study) -> Result<Option<Vec<u16>>, DeviceError> {
    let mut given = Vec::new();
    for sums in study.sums().chunks(RESULTS) {
        let tiles = tiles(sums);
        let Some(results) = product(device, tiles.as_bytes())? else { return Ok(None) };
        given.extend(results.into_iter().take(sums.len()));
    }
    Ok(Some(given))
}

/// Results on the diagonal of a product.
fn product(device: &mut dyn Device, tiles: &[u8]) -> Result<Option<[u16; RESULTS]>, DeviceError> {
    let answer = about(device, Question::MatrixUnit, MOST_PAIRS, tiles)?;
    Ok(match Outcome::parse(answer.outcome) {
        Some(Outcome::Answered) => {
            let half = |i: usize| (answer.words[i / 2] >> (16 * (i % 2))) as u16;
            Some(std::array::from_fn(half))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceOptions, open};

    /// Whatever a unit does of this list, its results say so, and nothing else.
    #[test]
    fn every_hypothesis_is_told_by_its_results() {
        for study in Study::ALL {
            for planted in study.hypotheses() {
                let given = study.results(planted);
                assert_eq!(study.fitting(&given), [planted], "{given:04x?}");
                assert!(given.iter().all(|half| half & 0x7c00 != 0x7c00), "{planted:?}: {given:04x?}");
            }
        }
    }

    #[test]
    fn results_that_nothing_gives_fit_nothing() {
        for study in Study::ALL {
            let mut given = study.results(study.expected(Some(0x79)));
            assert_eq!(study.fitting(&given[1..]), []);
            given[0] ^= 0x0155;
            assert_eq!(study.fitting(&given), []);
        }
    }

    #[test]
    fn numbers_are_rounded_as_said() {
        // Of 13, 14 and 15 to three bits, where steps are 2.
        for (rounded, expected) in [
            (Rounded::Nearest, [12, 16]),
            (Rounded::NearestAway, [14, 16]),
            (Rounded::NearestInwards, [12, 14]),
            (Rounded::Inwards, [12, 14]),
            (Rounded::Down, [12, 14]),
            (Rounded::Up, [14, 16]),
            (Rounded::Odd, [14, 14]),
        ] {
            assert_eq!([13, 15].map(|x| rounded.to_bits(x, 3)), expected, "{rounded:?}");
            assert_eq!(rounded.to_bits(14, 3), 14);
            assert_eq!(rounded.to_bits(-7, 3), -7);
        }
        assert_eq!(Rounded::Inwards.to_bits(-13, 3), -12);
        assert_eq!(Rounded::Down.to_bits(-13, 3), -14);
        assert_eq!(Rounded::NearestAway.to_bits(-13, 3), -14);
        assert_eq!(Rounded::NearestInwards.to_bits(-13, 3), -12);
    }

    /// The twin of `inproc` is that of v75 to v81, by another code than the hypothesis: rows of sums.
    #[test]
    fn inproc_does_as_is_published() {
        let options = DeviceOptions { threads: Some(1), matrix_unit: true, ..DeviceOptions::default() };
        let mut device = open("inproc", &options).unwrap();
        for study in Study::ALL {
            let given = ask(&mut *device, study).unwrap().unwrap();
            assert_eq!(study.fitting(&given), [study.expected(None)], "{given:04x?}");
        }
    }
}

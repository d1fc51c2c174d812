//! Operands: every two of the values where instructions change their ways, and random ones.

use hexflash_hvx_float::forms::{Form, Input, Type, Word};

use super::{LANES, Record, plain};

/// Vectors of random operands for each instruction.
const RANDOM: usize = 64;

/// Zeros, subnormals, neighbours of powers of two, integers' ends, the largest numbers, infinities and NaN;
/// also with a minus sign.
const SINGLES: [u32; 25] = [
    0x0000_0000,
    0x0000_0001,
    0x0000_0002,
    0x0000_0004,
    0x0040_0000,
    0x007f_ffff,
    0x0080_0000,
    0x0080_0001,
    0x00ff_ffff,
    0x3380_0000,
    0x3f00_0000,
    0x3f7f_ffff,
    0x3f80_0000,
    0x3f80_0001,
    0x3fc0_0000,
    0x4040_0000,
    0x4b7f_ffff,
    0x4eff_ffff,
    0x4f00_0000,
    0x7f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7f80_0001,
    0x7fc0_0000,
    0x7fff_ffff,
];
const HALVES: [u32; 24] = [
    0x0000, 0x0001, 0x0002, 0x0004, 0x0200, 0x03ff, 0x0400, 0x0401, 0x1400, 0x3800, 0x3bff, 0x3c00, 0x3c01,
    0x3e00, 0x4100, 0x5bfc, 0x5c00, 0x6bff, 0x7800, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7fff,
];
const BRAIN: [u32; 15] = [
    0x0000, 0x0001, 0x007f, 0x0080, 0x0081, 0x3f00, 0x3f7f, 0x3f80, 0x3f81, 0x4049, 0x7f00, 0x7f7f, 0x7f80,
    0x7f81, 0x7fff,
];
/// qf32: the smallest and largest, powers of two, numbers with one bit, codes of NaN and infinity. As they
/// are, and complemented.
const QF_WORDS: [u32; 14] = [
    0x0000_0000,
    0x0000_0001,
    0x0000_007f,
    0x0000_0080,
    0x0000_00ff,
    0x0000_017f,
    0x3fff_ff7f,
    0x4000_007f,
    0x4000_00ff,
    0x4000_0000,
    0x6000_0080,
    0x7fff_ff7f,
    0x7fff_ffff,
    0x7fff_ff00,
];
const QF_HALVES: [u32; 12] =
    [0x0000, 0x0001, 0x000f, 0x0010, 0x001f, 0x002f, 0x3fef, 0x400f, 0x401f, 0x600f, 0x7fff, 0x7fe0];
const INTEGERS: [u32; 12] = [
    0x0000_0000,
    0x0000_0001,
    0x0000_007f,
    0x0000_0080,
    0x0000_00ff,
    0x0000_07ff,
    0x0000_0801,
    0x0000_7fff,
    0x0000_8000,
    0x00ff_ffff,
    0x0100_0001,
    0x7fff_ffff,
];

/// An element and the bits beside it.
type Element = (u32, u32);

/// A sequence of numbers, the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0;
        (((x >> 18) ^ x) >> 27) as u32 ^ (x >> 32) as u32
    }
}

/// The values of a type that are tried with each other.
fn edges(of: Type) -> Vec<Element> {
    let width = of.width();
    let signs = |values: &[u32]| -> Vec<Element> {
        values.iter().flat_map(|value| [(*value, 0xa), (value | 1 << (width - 1), 0xa)]).collect()
    };
    match of {
        Type::Sf => signs(&SINGLES),
        Type::Hf => signs(&HALVES),
        Type::Bf => signs(&BRAIN),
        // All that a code can have beside it: the default, and another that depends on the place.
        Type::Qf32 => QF_WORDS
            .iter()
            .enumerate()
            .flat_map(|(i, word)| {
                [(*word, 0xa), (!word & 0xffff_ff00 | word & 0xff, i as u32), (*word, 0xd - i as u32)]
            })
            .chain([0xc, 0xd, 8, 9].map(|beside| (0x7fff_ff7f, beside)))
            .chain([0, 1, 4, 5].map(|beside| (0x8000_007f, beside)))
            .collect(),
        Type::Qf16 => QF_HALVES
            .iter()
            .flat_map(|half| [(*half, 2), (half ^ 0xffe0, 2), (*half, 1), (half ^ 0xffe0, 0)])
            .chain([(0x7fff, 3), (0x7fff, 2), (0x801f, 0), (0x801f, 1)])
            .collect(),
        Type::F8 | Type::B | Type::Ub => (0..=255).step_by(3).map(|byte| (byte, 0xa)).collect(),
        Type::W | Type::H | Type::Uh | Type::X => INTEGERS
            .iter()
            .flat_map(|value| [*value, value.wrapping_neg()])
            .map(|value| ((u64::from(value) & ((1 << width) - 1)) as u32, 0xa))
            .collect(),
    }
}

/// Bits of an element's exponent field, and its lowest bit.
fn exponent(of: Type) -> Option<(u32, u32)> {
    match of {
        Type::Sf => Some((8, 23)),
        Type::Bf => Some((8, 7)),
        Type::Hf => Some((5, 10)),
        Type::Qf32 => Some((8, 0)),
        Type::Qf16 => Some((5, 0)),
        _ => None,
    }
}

/// A random element; of every four values two have exponents near the middle, so that sums cancel and
/// products stay in range.
fn random(of: Type, random: &mut Random) -> Element {
    let (bits, choice) = (random.next(), random.next());
    let bits = match exponent(of) {
        Some((width, low)) if choice & 2 == 0 => {
            let field = (1 << (width - 1)) - 4 + (choice >> 8 & 7);
            bits & !(((1 << width) - 1) << low) | field << low
        }
        _ => bits,
    };
    ((u64::from(bits) & ((1 << of.width()) - 1)) as u32, choice >> 16 & 0xf)
}

/// The records of an instruction.
pub fn records(index: usize, form: &Form) -> Vec<Record> {
    let shape = form.shape();
    let (u, v) = (shape.u.holds, shape.v.map_or(Type::X, |v| v.holds));
    let mut source = Random(0x9e37_79b9 + index as u64);
    let (firsts, seconds) = (edges(u), edges(v));
    let seconds = if shape.v.is_some() { &seconds[..] } else { &[(0, 0xa)] };
    let mut pairs: Vec<(Element, Element)> =
        firsts.iter().flat_map(|a| seconds.iter().map(|b| (*a, *b))).collect();
    let per_vector = LANES * (32 / u.width()) as usize;
    let edges_end = pairs.len().next_multiple_of(per_vector);
    for i in pairs.len()..edges_end + RANDOM * per_vector {
        let (a, b) = (random(u, &mut source), random(v, &mut source));
        // Every fourth is nearly the negative of the first.
        let near = i % 4 == 0 && u == v && exponent(u).is_some();
        pairs.push((a, if near { (a.0 ^ 1 << (u.width() - 1) ^ b.0 >> 28, b.1) } else { b }));
    }
    let scalar_edges = edges(v);
    // What is in the register that is added to, where there is one.
    let to = if shape.to.width() == 32 { Type::Sf } else { shape.to };
    let sums = edges(to);
    pairs
        .chunks_exact(per_vector)
        .enumerate()
        .map(|(i, pairs)| {
            // Rt is one for all lanes.
            let t = match scalar_edges.get(i) {
                Some((bits, _)) if v.width() == 16 => bits | source.next() << 16,
                Some((bits, _)) => *bits,
                None => source.next(),
            };
            let lanes = std::array::from_fn(|lane| {
                let per_lane = (32 / u.width()) as usize;
                let elements = &pairs[lane * per_lane..(lane + 1) * per_lane];
                let first = word(elements.iter().map(|pair| pair.0), u);
                let second = word(elements.iter().map(|pair| pair.1), u);
                // The other register of a pair, and what is added to.
                let high = word((0..per_lane).map(|_| random(u, &mut source)), u);
                let x = [0, 1].map(|_| {
                    let elements = (0..32 / to.width()).map(|_| match source.next() as usize {
                        edge if edge % 3 == 0 => sums[edge / 3 % sums.len()],
                        _ => random(to, &mut source),
                    });
                    word(elements, to).bits
                });
                Input { u: [first, high], v: second, x, q: source.next() & 0xf, t }
            });
            Record { form: index, lanes }
        })
        .collect()
}

/// Elements side by side.
fn word(elements: impl Iterator<Item = Element>, of: Type) -> Word {
    let mut word = Word { bits: 0, beside: 0 };
    for (i, (bits, beside)) in (0..).zip(elements) {
        word.bits |= bits << (i * of.width());
        match of.width() {
            16 => word.beside |= (beside & 3) << (2 * i),
            _ => word.beside = beside,
        }
    }
    word
}

/// A record of zeros.
pub fn nothing(form: usize) -> Record {
    let zero = Input { u: [plain(0); 2], v: plain(0), x: [0; 2], q: 0, t: 0 };
    Record { form, lanes: [zero; LANES] }
}

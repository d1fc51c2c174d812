//! What instructions make of the elements of a lane.

use super::shape::{Shape, Type};
use super::{Input, Output, Version, Word};
use crate::ieee::{BF, HF, SF};
use crate::{extended, ieee, qfloat};

/// An element: a word, half or byte, and the bits beside it.
#[derive(Clone, Copy)]
struct Element {
    bits: u32,
    beside: u32,
}

impl Word {
    /// Element `i` of this width.
    fn element(self, width: u32, i: u32) -> Element {
        let bits = self.bits >> (i * width) & mask(width);
        let beside = if width == 16 { self.beside >> (2 * i) & 3 } else { self.beside };
        Element { bits, beside }
    }
}

const fn mask(width: u32) -> u32 {
    (1u64 << width).wrapping_sub(1) as u32
}

/// Where results go.
struct Result<'a> {
    shape: &'a Shape,
    output: Output,
}

impl Result<'_> {
    /// Writes element `i` of a register of the pair; with `None` it is not known.
    fn write(&mut self, register: usize, width: u32, i: u32, element: Option<Element>) {
        let (word, at) = (&mut self.output.d[register], i * width);
        let Some(element) = element else {
            self.output.known[register] &= !(mask(width) << at);
            return;
        };
        word.bits = word.bits & !(mask(width) << at) | element.bits << at;
        match self.shape.to {
            Type::Qf32 => word.beside = element.beside,
            Type::Qf16 => word.beside = word.beside & !(3 << (2 * i)) | element.beside << (2 * i),
            _ => {}
        }
    }
}

/// Fills in the output, which has what was in the registers.
pub(super) fn compute(shape: &Shape, version: Version, input: &Input, output: Output) -> Output {
    let (u, v) = (
        input.u,
        match shape.v {
            Some(v) if v.register == "Rt" => Word { bits: input.t, beside: extended::DEFAULT },
            _ => input.v,
        },
    );
    let mut result = Result { shape, output };
    match shape.operation {
        "vgetqfext" | "vsetqfext" | "vmerge" => move_bits_beside(shape, input, &mut result.output),
        "vcmp.gt" | "vcmp.eq" => compare(shape, version, input, &mut result.output),
        "vdmpy" => {
            let pair = |i| (u[0].element(16, i).bits, v.element(16, i).bits);
            let bits = match shape.join {
                Some(_) => ieee::dot_single(input.x[0], pair(0), pair(1)),
                None => {
                    let product = |(a, b)| (HF.to_f64(a) * HF.to_f64(b)) as f32;
                    ieee::single(product(pair(1)) + product(pair(0)))
                }
            };
            result.write(0, 32, 0, Some(Element { bits, beside: 0 }));
        }
        "vcvt" | "vcvt2" if shape.u.holds.width() == 8 || shape.to.width() == 8 => {
            bytes(shape, [u[0], v], &mut result);
        }
        _ => elements(shape, version, [u, [v; 2]], input, &mut result),
    }
    result.output
}

/// Instructions that make one element of one or two.
fn elements(shape: &Shape, version: Version, [u, v]: [[Word; 2]; 2], input: &Input, result: &mut Result<'_>) {
    // The logarithm's results are as wide as its operand, although they are called words.
    let to = match (shape.operation, shape.u.holds.width()) {
        ("vilog2", 16) => Type::H,
        _ => shape.to,
    };
    let (from, width) = (shape.u.holds.width(), to.width());
    let run = |a, b, x| element(shape, version, a, b, x);
    if from == width {
        for i in 0..32 / width {
            let x = input.x[0] >> (i * width) & mask(width);
            result.write(0, width, i, run(u[0].element(width, i), v[0].element(width, i), x));
        }
    } else if from < width {
        // Even elements to the low register of the pair, odd ones to the high one.
        for i in [0, 1] {
            let done = run(u[0].element(16, i), v[0].element(16, i), input.x[i as usize]);
            result.write(i as usize, 32, 0, done);
        }
    } else {
        // Even elements of the first vector, odd ones of the second, or of the pair.
        let second = if shape.reads_pair() { u[1] } else { v[0] };
        for (i, word) in [(0, u[0]), (1, second)] {
            result.write(0, 16, i, run(word.element(32, 0), word.element(32, 0), 0));
        }
    }
}

/// One element of two; `x` is what was there. `None` where descriptions leave it open.
fn element(shape: &Shape, version: Version, a: Element, b: Element, x: u32) -> Option<Element> {
    let plain = |bits| Some(Element { bits, beside: 0 });
    let from = shape.u.holds;
    let second = shape.v.map_or(from, |v| v.holds);
    match (shape.operation, shape.to) {
        ("vadd" | "vsub" | "vmpy" | "vneg" | "vabs" | "", Type::Qf32 | Type::Qf16) => {
            Some(to_qfloat(shape, version, (a, from), (b, second)))
        }
        ("vadd" | "vsub" | "vmpy", _) => plain(ieee_arithmetic(shape, a.bits, b.bits, x)),
        ("vabs", to) => plain(a.bits & !sign(to)),
        ("vfneg", to) => plain(a.bits ^ sign(to)),
        ("vmax" | "vmin" | "vfmax" | "vfmin", to) => {
            plain(extreme(shape.operation, to, version, a.bits, b.bits))
        }
        ("vilog2", _) => {
            let width = from.width();
            plain(extended_number(a, from).ilog2(width))
        }
        ("vcvt" | "", to) => convert(shape, version, a, from, to),
        _ => None,
    }
}

fn sign(to: Type) -> u32 {
    1 << (to.width() - 1)
}

/// The IEEE format of elements.
fn format(of: Type) -> ieee::Format {
    match of {
        Type::Sf => SF,
        Type::Bf => BF,
        _ => HF,
    }
}

fn number(x: Element, of: Type) -> qfloat::Number {
    match of {
        Type::Qf32 => qfloat::QF32.number(x.bits),
        Type::Qf16 => qfloat::QF16.number(x.bits),
        _ => qfloat::Number::ieee(format(of), x.bits),
    }
}

fn extended_number(x: Element, of: Type) -> extended::Number {
    let lane = extended::Lane { bits: x.bits, beside: x.beside };
    match of {
        Type::Qf32 => extended::QF32.number(lane),
        Type::Qf16 => extended::QF16.number(lane),
        _ => extended::Number::ieee(format(of), x.bits),
    }
}

/// Instructions whose result is qfloat.
fn to_qfloat(shape: &Shape, version: Version, a: (Element, Type), b: (Element, Type)) -> Element {
    if version.is_extended() {
        let (a, b) = (extended_number(a.0, a.1), extended_number(b.0, b.1));
        let to = if shape.to == Type::Qf32 { extended::QF32 } else { extended::QF16 };
        let lane = match shape.operation {
            "vadd" => to.sum(a, b),
            "vsub" => to.sum(a, b.negated()),
            "vmpy" => to.product(a, b),
            "vneg" => to.normalised(a.negated()),
            "vabs" if a.is_negative() => to.normalised(a.negated()),
            _ => to.normalised(a),
        };
        Element { bits: lane.bits, beside: lane.beside }
    } else {
        let (a, b) = (number(a.0, a.1), number(b.0, b.1));
        let to = if shape.to == Type::Qf32 { qfloat::QF32 } else { qfloat::QF16 };
        let bits = match shape.operation {
            "vadd" => to.sum(a, b),
            "vsub" => to.sum(a, b.negated()),
            _ => to.product(a, b),
        };
        // Where every word has the bits of its value on v75, halves have these.
        Element { bits, beside: if shape.to == Type::Qf32 { extended::DEFAULT } else { 0b10 } }
    }
}

/// Sums, differences and products in single or half precision.
fn ieee_arithmetic(shape: &Shape, a: u32, b: u32, x: u32) -> u32 {
    let from = format(shape.u.holds);
    let (p, q) = (from.to_f64(a), from.to_f64(b));
    match (shape.to, shape.operation, shape.join) {
        (Type::Hf, "vmpy", Some(_)) => ieee::fused_half(x, a, b),
        // Halves have exact sums and products in double precision.
        (Type::Hf, "vadd", _) => HF.of_f64(p + q),
        (Type::Hf, "vsub", _) => HF.of_f64(p - q),
        (Type::Hf, ..) => HF.of_f64(p * q),
        // A product of halves or bfloat16 has few bits: where a sum of it and a single is not exact in double
        // precision, it is far from what lies between two singles.
        (_, "vmpy", Some(_)) => ieee::single((p * q + SF.to_f64(x)) as f32),
        (_, "vadd", _) => ieee::single(p as f32 + q as f32),
        (_, "vsub", _) => ieee::single(p as f32 - q as f32),
        _ => ieee::single(p as f32 * q as f32),
    }
}

/// Maxima and minima.
fn extreme(operation: &str, of: Type, version: Version, a: u32, b: u32) -> u32 {
    let greatest = operation.ends_with("max");
    if of == Type::F8 {
        // 0x80 is no number.
        if a == 0x80 || b == 0x80 {
            return 0x80;
        }
        let place = |x: u32| if x < 0x80 { x as i32 } else { 0x80 - x as i32 };
        return if (place(a) > place(b)) == greatest { a } else { b };
    }
    let format = format(of);
    let nan = format.is_nan(a) || format.is_nan(b);
    // Those of bfloat16 are named vmax and vmin, but are of this kind.
    if operation.starts_with("vf") || of == Type::Bf {
        // The order of bits, with which -0 is less than 0.
        let place = |x: u32| if format.is_negative(x) { -1 - format.place(x).abs() } else { format.place(x) };
        return match nan {
            true => format.nan(),
            false if (place(a) > place(b)) == greatest => a,
            false => b,
        };
    }
    if nan && version.knows_nan() {
        // A NaN of the sign that is greatest, or least, wins.
        let wins = |x| format.is_nan(x) && format.is_negative(x) != greatest;
        let negative = (wins(a) || wins(b)) != greatest;
        return format.nan() | if negative { format.sign() } else { 0 };
    }
    let (pa, pb) = (format.place(a), format.place(b));
    if pa == 0 && pb == 0 {
        return if (a == 0) == greatest { a } else { b };
    }
    if pa == pb || (pa > pb) == greatest { a } else { b }
}

/// Conversions with one operand for one result, but those to qfloat.
fn convert(shape: &Shape, version: Version, a: Element, from: Type, to: Type) -> Option<Element> {
    let bits = match (from, to) {
        (Type::Qf32 | Type::Qf16, Type::Sf | Type::Hf | Type::Bf) => {
            if version.is_extended() {
                extended_number(a, from).to_ieee(format(to))
            } else {
                number(a, from).to_ieee(format(to))
            }
        }
        (Type::Sf, Type::Hf | Type::Bf) | (Type::Hf, Type::Sf) => {
            format(to).of_f64(format(from).to_f64(a.bits))
        }
        (Type::W, Type::Sf) => SF.of_f64((a.bits as i32).into()),
        (Type::H, Type::Hf) => HF.of_f64((a.bits as i16).into()),
        (Type::Uh, Type::Hf) => HF.of_f64((a.bits as u16).into()),
        (Type::Sf | Type::Hf, Type::W | Type::H | Type::Uh) => return integer(shape, a.bits, from, to),
        _ => return None,
    };
    Some(Element { bits, beside: 0 })
}

/// A float as an integer.
fn integer(shape: &Shape, bits: u32, from: Type, to: Type) -> Option<Element> {
    let (format, width) = (format(from), to.width());
    let (nan, negative) = (format.is_nan(bits), format.is_negative(bits));
    let signed = !matches!(to, Type::Uh | Type::Ub);
    let (least, most) =
        if signed { (-(1i64 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) };
    // vcvt and vcvt2 round, and so does :rnd; without, what is behind the point is cut off.
    let value = match (nan, shape.operation) {
        // What becomes of minus infinity, and of NaN with a minus sign, in unsigned halves is not described.
        (_, "vcvt") if to == Type::Uh && negative && bits & format.nan() >= format.infinity() => return None,
        (true, "") if negative => least,
        (true, _) => most,
        (false, _) => {
            let exact = format.to_f64(bits);
            let rounds = shape.operation.starts_with("vcvt") || shape.rounds;
            // Saturates, and so does `clamp` at the ends of the type.
            (if rounds { round_ties_even(exact) } else { exact as i64 }).clamp(least, most)
        }
    };
    Some(Element { bits: value as u32 & mask(width), beside: 0 })
}

/// The nearest integer, ties to even.
fn round_ties_even(x: f64) -> i64 {
    // Adding this to a smaller number leaves no bits behind the point.
    const BIG: f64 = 6_755_399_441_055_744.0;
    if x.abs() < 1e15 { ((x + BIG) - BIG) as i64 } else { x as i64 }
}

/// Conversions between bytes and halves.
fn bytes(shape: &Shape, [u, v]: [Word; 2], result: &mut Result<'_>) {
    let interleaved = shape.operation == "vcvt2";
    if shape.to.width() == 8 {
        // The halves of both vectors, in this order.
        let order =
            if interleaved { [(u, 0), (v, 0), (u, 1), (v, 1)] } else { [(u, 0), (u, 1), (v, 0), (v, 1)] };
        for (i, (word, half)) in (0..).zip(order) {
            let byte = integer(shape, word.element(16, half).bits, Type::Hf, shape.to);
            result.write(0, 8, i, byte);
        }
    } else {
        let order = if interleaved { [0, 2, 1, 3] } else { [0, 1, 2, 3] };
        for (i, byte) in (0..).zip(order) {
            let byte = u.element(8, byte).bits as u8;
            let value = if shape.u.holds == Type::B { f64::from(byte as i8) } else { byte.into() };
            let half = Element { bits: HF.of_f64(value), beside: 0 };
            result.write(i as usize / 2, 16, i % 2, Some(half));
        }
    }
}

/// Comparisons: a bit for each byte of the element.
fn compare(shape: &Shape, version: Version, input: &Input, output: &mut Output) {
    let of = shape.u.holds;
    let (format, width) = (format(of), of.width());
    let mut bits = 0;
    for i in 0..32 / width {
        let [a, b] = [input.u[0], input.v].map(|word| word.element(width, i).bits);
        let nan = format.is_nan(a) || format.is_nan(b);
        let (pa, pb) = (format.place(a), format.place(b));
        let holds = match shape.operation {
            "vcmp.eq" => pa == pb && !nan,
            // Those of bfloat16 know no NaN in any version.
            _ => pa > pb && !(nan && version.knows_nan() && of != Type::Bf),
        };
        if holds {
            bits |= mask(width / 8) << (i * width / 8);
        }
    }
    output.q = match shape.join {
        Some('&') => input.q & bits,
        Some('|') => input.q | bits,
        Some('^') => input.q ^ bits,
        _ => bits,
    };
}

/// Instructions for the bits beside words.
fn move_bits_beside(shape: &Shape, input: &Input, output: &mut Output) {
    let u = input.u[0];
    match shape.operation {
        "vgetqfext" => {
            let mut bits = 0;
            for i in 0..4 {
                bits |= if u.beside >> i & 1 == 1 { input.t & 0xff << (8 * i) } else { 0 };
            }
            output.d[0].bits = bits | if shape.join.is_some() { input.x[0] } else { 0 };
        }
        "vsetqfext" => {
            let set = |i: u32| u32::from(u.bits & input.t & 0xff << (8 * i) != 0) << i;
            output.d[0].beside = (0..4).map(set).sum();
            // What is in the word afterwards is not described.
            output.known[0] = 0;
        }
        _ => output.d[0] = Word { bits: input.v.bits, beside: u.beside },
    }
}

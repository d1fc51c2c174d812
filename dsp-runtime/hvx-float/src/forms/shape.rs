//! An instruction's parts, read from its text.

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Single precision.
    Sf,
    /// Half precision.
    Hf,
    /// bfloat16.
    Bf,
    /// A byte: a sign, four bits of exponent, three of fraction.
    F8,
    /// A qfloat word.
    Qf32,
    /// A qfloat half.
    Qf16,
    /// Integers: signed words and halves, unsigned halves, bytes.
    W,
    /// A signed half.
    H,
    /// An unsigned half.
    Uh,
    /// A signed byte.
    B,
    /// An unsigned byte.
    Ub,
    /// A word and the bits beside it, whatever they mean.
    X,
}

impl Type {
    fn of(name: &str) -> Self {
        match name {
            "sf" => Self::Sf,
            "hf" => Self::Hf,
            "bf" => Self::Bf,
            "f8" => Self::F8,
            "qf32" => Self::Qf32,
            "qf16" => Self::Qf16,
            "w" => Self::W,
            "h" => Self::H,
            "uh" => Self::Uh,
            "b" => Self::B,
            "ub" => Self::Ub,
            _ => Self::X,
        }
    }

    /// Bits of an element.
    pub const fn width(self) -> u32 {
        match self {
            Self::Sf | Self::Qf32 | Self::W | Self::X => 32,
            Self::Hf | Self::Bf | Self::Qf16 | Self::H | Self::Uh => 16,
            Self::F8 | Self::B | Self::Ub => 8,
        }
    }

    /// Whether it has bits beside the register.
    pub const fn is_qfloat(self) -> bool {
        matches!(self, Self::Qf32 | Self::Qf16)
    }
}

/// A register that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Vu, Vuu, Vv or Rt.
    pub register: &'static str,
    /// What is in it.
    pub holds: Type,
}

/// An instruction's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Vd, Vdd, Vx, Vxx, Qd or Qx.
    pub register: &'static str,
    /// What is written to it.
    pub to: Type,
    /// How that is joined with what was there: `+`, `&`, `|` or `^`.
    pub join: Option<char>,
    /// Its name; empty for a conversion without one.
    pub operation: &'static str,
    /// The first operand.
    pub u: Operand,
    /// The second one, Rt included.
    pub v: Option<Operand>,
    /// Whether the name ends in `:rnd`.
    pub rounds: bool,
}

impl Shape {
    /// Of an instruction that is in the table.
    pub fn of(syntax: &'static str) -> Self {
        let (left, right) = syntax.split_once('=').unwrap_or((syntax, ""));
        let join = left.chars().last().filter(|last| "+&|^".contains(*last));
        let written = register(left.trim_end_matches(['+', '&', '|', '^']));
        let (right, rounds) = right.strip_suffix(":rnd").map_or((right, false), |right| (right, true));
        let (operation, operands) =
            right.split_once('(').map_or(("", right), |(name, rest)| (name, rest.trim_end_matches(')')));
        let (u, v) = operands.split_once(',').map_or((operands, None), |(u, v)| (u, Some(v)));
        let (u, v) = (register(u), v.map(register));
        Self { register: written.register, to: written.holds, join, operation, u, v, rounds }
    }

    /// Whether two vectors are written.
    pub fn writes_pair(&self) -> bool {
        matches!(self.register, "Vdd" | "Vxx")
    }

    /// Whether a predicate is written.
    pub fn writes_predicate(&self) -> bool {
        self.register.starts_with('Q')
    }

    /// Whether the first operand is a pair.
    pub fn reads_pair(&self) -> bool {
        self.u.register == "Vuu"
    }
}

fn register(text: &'static str) -> Operand {
    let (register, holds) = text.split_once('.').unwrap_or((text, ""));
    Operand { register, holds: Type::of(holds) }
}

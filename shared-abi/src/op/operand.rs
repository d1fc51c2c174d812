//! Operands: how an op names them, what they may be, and the numbers under which faults speak of them.

use crate::dtype::DTypes;
use crate::program::{MAX_DST, MAX_SRC};

/// Number of output 0 in the detail word of a fault; inputs count from 0.
pub const FIRST_DST: u32 = 16;
const _: () = assert!(MAX_SRC <= FIRST_DST as usize);

/// An input of an op, by its place in [`OpDesc::src`](crate::program::OpDesc::src).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Src(u8);

/// An output of an op, by its place in [`OpDesc::dst`](crate::program::OpDesc::dst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dst(u8);

impl Src {
    /// The input at a place.
    pub const fn at(place: usize) -> Self {
        assert!(place < MAX_SRC);
        Self(place as u8)
    }

    /// The operand's place.
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

impl Dst {
    /// The output at a place.
    pub const fn at(place: usize) -> Self {
        assert!(place < MAX_DST);
        Self(place as u8)
    }

    /// The operand's place.
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// An input or an output.
pub trait Operand: Copy {
    /// The number under which faults speak of it.
    fn number(self) -> u32;

    /// The operand's own value, out of one value for each input and output of an op.
    fn of<T: Copy>(self, src: &[T; MAX_SRC], dst: &[T; MAX_DST]) -> T;
}

impl Operand for Src {
    fn number(self) -> u32 {
        self.0.into()
    }

    #[inline(always)]
    fn of<T: Copy>(self, src: &[T; MAX_SRC], _: &[T; MAX_DST]) -> T {
        src[self.place()]
    }
}

impl Operand for Dst {
    fn number(self) -> u32 {
        FIRST_DST + u32::from(self.0)
    }

    #[inline(always)]
    fn of<T: Copy>(self, _: &[T; MAX_SRC], dst: &[T; MAX_DST]) -> T {
        dst[self.place()]
    }
}

/// How an operand may lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Any strides.
    Strided,
    /// Elements of a row adjacent; rows anywhere.
    Rows,
    /// No gaps at all.
    Contiguous,
    /// A tiled type, strips adjacent; matrices anywhere.
    Tiled,
    /// Tiled or [`Layout::Rows`], as the type has it.
    TiledOrRows,
}

/// The types and shapes that an operand may have.
#[derive(Clone, Copy, Debug)]
pub struct OperandSpec {
    /// Name in faults, messages and listings.
    pub name: &'static str,
    /// Types it may have.
    pub types: DTypes,
    /// How it may lie in memory.
    pub layout: Layout,
    /// Whether the op can do without.
    pub optional: bool,
    /// Whether an op writes it (outputs, and states that are inputs as well).
    pub written: bool,
}

impl OperandSpec {
    /// An input that is only read.
    pub(super) const fn input(name: &'static str, types: DTypes, layout: Layout) -> Self {
        Self { name, types, layout, optional: false, written: false }
    }

    /// An input that is read and written.
    pub(super) const fn state(name: &'static str, types: DTypes, layout: Layout) -> Self {
        Self { written: true, ..Self::input(name, types, layout) }
    }

    /// An output.
    pub(super) const fn output(name: &'static str, types: DTypes, layout: Layout) -> Self {
        Self { written: true, ..Self::input(name, types, layout) }
    }

    /// This operand, but the op can do without.
    pub(super) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// Defines the operands of an op, in their order: a constant for each, and the list of their specs.
macro_rules! operands {
    ($($list:ident: $kind:ident { $($operands:tt)* })+) => {
        $(
            operands!(@constants $kind 0; $($operands)*);
            operands!(@specs $list $($operands)*);
        )+
    };
    (@constants $kind:ident $place:expr;) => {};
    (@constants $kind:ident $place:expr; $(#[$meta:meta])* $name:ident = $spec:expr; $($rest:tt)*) => {
        $(#[$meta])*
        pub const $name: $crate::op::$kind = $crate::op::$kind::at($place);
        operands!(@constants $kind $place + 1; $($rest)*);
    };
    (@specs $list:ident $($(#[$meta:meta])* $name:ident = $spec:expr;)*) => {
        const $list: &[$crate::op::OperandSpec] = &[$($spec),*];
    };
}

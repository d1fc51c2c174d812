//! The macros that define what crosses the wire, and the hash of what they define.
//!
//! Every struct, enum and set of flags of the wire is defined by one of these macros, which also give it a
//! `FINGERPRINT`: the hash of its name, sizes, offsets and values. [`crate::LAYOUT_HASH`] joins them all. One
//! that it leaves out is dead code to the compiler, and `tests/wire.rs` names it.

/// FNV-1a over names and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of nothing, under a name.
    pub(crate) const fn new(name: &str) -> Self {
        Self(0xcbf2_9ce4_8422_2325).text(name)
    }

    const fn byte(self, byte: u8) -> Self {
        Self((self.0 ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3))
    }

    /// With a number more.
    pub(crate) const fn number(mut self, number: u64) -> Self {
        let bytes = number.to_le_bytes();
        let mut i = 0;
        while i < bytes.len() {
            self = self.byte(bytes[i]);
            i += 1;
        }
        self
    }

    /// With a text more.
    pub(crate) const fn text(mut self, text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            self = self.byte(bytes[i]);
            i += 1;
        }
        self.number(bytes.len() as u64)
    }

    /// With a named value of an enum more.
    pub(crate) const fn value(self, name: &str, value: u64) -> Self {
        self.text(name).number(value)
    }

    /// With a field of a struct more.
    pub(crate) const fn field(self, name: &str, offset: usize, bytes: usize) -> Self {
        self.text(name).number(offset as u64).number(bytes as u64)
    }

    /// With the fingerprints of other types more.
    pub(crate) const fn all(mut self, parts: &[Self]) -> Self {
        let mut i = 0;
        while i < parts.len() {
            self = self.number(parts[i].0);
            i += 1;
        }
        self
    }

    /// The hash.
    pub(crate) const fn hash(self) -> u64 {
        self.0
    }
}

/// Defines an enum with explicit wire values, `ALL`, `wire()`, `parse()` and `name()`: parsed at the border,
/// never transmuted.
macro_rules! wire_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident : $int:ty {
        $($(#[$vmeta:meta])* $variant:ident = $value:literal $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr($int)]
        $vis enum $name { $($(#[$vmeta])* $variant = $value,)+ }

        impl $name {
            /// Every value, in wire order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub(crate) const FINGERPRINT: $crate::wire::Fingerprint =
                $crate::wire::Fingerprint::new(stringify!($name))
                .number(core::mem::size_of::<Self>() as u64)
                $(.value(stringify!($variant), $value))+;

            /// The integer that crosses the wire.
            #[inline]
            pub const fn wire(self) -> $int { self as $int }

            /// Parses a wire integer; `None` for a value that is not in the list.
            #[inline]
            pub const fn parse(value: $int) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)+ _ => None }
            }

            /// The name that users and traces see.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result { f.write_str(self.name()) }
        }
    };
}

/// Defines a struct of the wire, as long as it says: `repr(C)`, without padding, any bytes allowed.
macro_rules! wire_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident [$bytes:literal bytes] {
        $($(#[$fmeta:meta])* pub $field:ident: $ty:ty,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
        #[repr(C)]
        $vis struct $name { $($(#[$fmeta])* pub $field: $ty,)+ }

        const _: () = assert!(core::mem::size_of::<$name>() == $bytes);

        impl $name {
            pub(crate) const FINGERPRINT: $crate::wire::Fingerprint =
                $crate::wire::Fingerprint::new(stringify!($name))
                .number($bytes)
                $(.field(
                    stringify!($field),
                    core::mem::offset_of!(Self, $field),
                    core::mem::size_of::<$ty>(),
                ))+;
        }
    };
}

/// Defines a set of flags of the wire.
macro_rules! wire_flags {
    ($(#[$meta:meta])* $vis:vis struct $name:ident : $int:ty {
        $($(#[$($fmeta:tt)*])* const $flag:ident = $value:literal;)+
    }) => {
        bitflags::bitflags! {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            $vis struct $name: $int { $($(#[$($fmeta)*])* const $flag = $value;)+ }
        }

        impl $name {
            pub(crate) const FINGERPRINT: $crate::wire::Fingerprint =
                $crate::wire::Fingerprint::new(stringify!($name))
                .number(core::mem::size_of::<Self>() as u64)
                $(.value(stringify!($flag), $value))+;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::Fingerprint;

    /// One definition of a type per module, so that all have the same name.
    macro_rules! variants_of {
        ($($module:ident { $($definition:tt)+ })+) => {
            $(mod $module {
                #![allow(dead_code, missing_docs, reason = "only the fingerprints are looked at")]
                $($definition)+
            })+
        };
    }

    variants_of! {
        ops { wire_enum! { pub enum Code: u16 { Add = 1 "ADD", Mul = 2 "MUL", } } }
        ops_swapped { wire_enum! { pub enum Code: u16 { Add = 2 "ADD", Mul = 1 "MUL", } } }
        ops_renamed { wire_enum! { pub enum Code: u16 { Add = 1 "ADD", Max = 2 "MUL", } } }
        ops_wider { wire_enum! { pub enum Code: u32 { Add = 1 "ADD", Mul = 2 "MUL", } } }
        ops_more { wire_enum! { pub enum Code: u16 { Add = 1 "ADD", Mul = 2 "MUL", Exp = 3 "EXP", } } }
        fields { wire_struct! { pub struct Code [8 bytes] { pub first: u32, pub second: u32, } } }
        fields_swapped { wire_struct! { pub struct Code [8 bytes] { pub second: u32, pub first: u32, } } }
        fields_longer { wire_struct! { pub struct Code [16 bytes] { pub first: u64, pub second: u64, } } }
        fields_joined { wire_struct! { pub struct Code [8 bytes] { pub first: u64, } } }
        flags { wire_flags! { pub struct Code: u8 { const A = 1; const B = 2; } } }
        flags_swapped { wire_flags! { pub struct Code: u8 { const A = 2; const B = 1; } } }
    }

    /// Whatever two builds could disagree about gives another hash, alone and as a part of the whole.
    #[test]
    fn every_change_of_a_definition_changes_the_hash() {
        let prints = [
            ops::Code::FINGERPRINT,
            ops_swapped::Code::FINGERPRINT,
            ops_renamed::Code::FINGERPRINT,
            ops_wider::Code::FINGERPRINT,
            ops_more::Code::FINGERPRINT,
            fields::Code::FINGERPRINT,
            fields_swapped::Code::FINGERPRINT,
            fields_longer::Code::FINGERPRINT,
            fields_joined::Code::FINGERPRINT,
            flags::Code::FINGERPRINT,
            flags_swapped::Code::FINGERPRINT,
        ];
        for (i, a) in prints.iter().enumerate() {
            for b in &prints[..i] {
                assert_ne!(a, b);
                let whole = |part| Fingerprint::new("whole").all(&[part, ops::Code::FINGERPRINT]).hash();
                assert_ne!(whole(*a), whole(*b));
            }
        }
    }

    #[test]
    fn texts_are_not_run_together() {
        assert_ne!(Fingerprint::new("ab").text("c"), Fingerprint::new("a").text("bc"));
    }
}

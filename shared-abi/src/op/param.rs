//! Parameters: one struct per op, stored zero-padded in [`OpDesc::params`](crate::program::OpDesc::params).

/// A field of a parameter struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The parameter's name.
    pub name: &'static str,
    /// The parameter's first word.
    pub word: usize,
    /// The number of its words.
    pub words: usize,
}

/// Words of parameters with these fields.
pub const fn words(fields: &[Field]) -> usize {
    match fields.last() {
        Some(last) => last.word + last.words,
        None => 0,
    }
}

/// Bytes of a word of parameters, as faults count them.
pub(super) const WORD: usize = size_of::<u32>();

/// Defines a parameter struct and the list of its fields.
macro_rules! params {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident: $ty:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)+ }

        impl $name {
            /// The fields, in order.
            pub const FIELDS: &'static [$crate::op::Field] = &[$($crate::op::Field {
                name: stringify!($field),
                word: core::mem::offset_of!(Self, $field) / $crate::op::param::WORD,
                words: core::mem::size_of::<$ty>() / $crate::op::param::WORD,
            }),+];
        }

        const _: () = assert!(
            core::mem::size_of::<$name>() == $crate::op::param::words($name::FIELDS) * $crate::op::param::WORD
                && $crate::op::param::words($name::FIELDS) <= $crate::program::MAX_PARAMS
        );
    };
}

/// The word of a field of a parameter struct, as faults count them.
macro_rules! word {
    ($params:ident.$field:ident) => {
        core::mem::offset_of!($params, $field) / $crate::op::param::WORD
    };
}

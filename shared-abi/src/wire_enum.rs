//! Enums that cross the wire as integers: parsed at the border, never transmuted.

/// Defines an enum with explicit wire values, `ALL`, `wire()`, `parse()` and `name()`.
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

//! Identifiers, so that a buffer, a tensor and an op cannot be mistaken for one another.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! id {
    ($(#[$meta:meta])* $name:ident($int:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result { self.0.fmt(f) }
        }
    };
}

id!(
    /// A mapped buffer of a session, chosen by the host at `Map`; below [`crate::program::MAX_BUFFERS`].
    BufferId(u32)
);
id!(
    /// A program kept on the DSP, chosen by the host at `Load`; below [`crate::program::MAX_PROGRAMS`].
    ProgramId(u32)
);
id!(
    /// File descriptor of shared memory as the transport knows it (`rpcmem_to_fd` on a device).
    Fd(i32)
);
id!(
    /// Sequence number of a request, echoed by its response.
    Seq(u64)
);
id!(
    /// Index into a program's tensor array; [`TensorIndex::NONE`] marks an absent operand.
    TensorIndex(u16)
);
id!(
    /// Index into a program's op array; [`OpIndex::NONE`] where a fault concerns no single op.
    OpIndex(u32)
);

impl TensorIndex {
    /// An operand that is not there.
    pub const NONE: Self = Self(u16::MAX);
}

impl OpIndex {
    /// No op in particular: the message or the program header is at fault.
    pub const NONE: Self = Self(u32::MAX);
}

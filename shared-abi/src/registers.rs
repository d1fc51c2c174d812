//! Step registers: the few integers that differ from one run of a program to the next.

use core::mem::size_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

wire_enum! {
    /// A step register. Ops name none of them: what each op reads is part of its definition in the op table.
    pub enum Register: u32 {
        /// Tokens already in the KV caches and the recurrent state.
        NPast = 0 "n_past",
        /// Valid rows of the program's token axis, 1 to `ProgramHeader::max_tokens`.
        NTokens = 1 "n_tokens",
        /// Drafted tokens that the last verify pass accepted.
        NAccept = 2 "n_accept",
        /// Tokens on the factor tape that the next pass commits to the recurrent state.
        NCommit = 3 "n_commit",
    }
}

/// Number of registers in a block; the ones without a name are reserved and must be zero.
pub const REGISTER_COUNT: usize = 16;

/// The register block in shared memory: written by the host before a step, read once by the DSP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StepRegisters {
    /// Values by [`Register`] number.
    pub values: [u32; REGISTER_COUNT],
}

const _: () = assert!(size_of::<StepRegisters>() == 64);

impl StepRegisters {
    /// A block for a plain step: `n_tokens` rows after `n_past` committed tokens.
    pub const fn step(n_past: u32, n_tokens: u32) -> Self {
        let mut values = [0; REGISTER_COUNT];
        values[Register::NPast as usize] = n_past;
        values[Register::NTokens as usize] = n_tokens;
        Self { values }
    }

    /// The value of one register.
    pub const fn get(&self, register: Register) -> u32 {
        self.values[register as usize]
    }
}

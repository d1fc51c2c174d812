//! Step registers: the few integers that differ from one run of a program to the next.
//!
//! A step has a *row table*: an array of 1 to [`MAX_SLOTS`](crate::program::MAX_SLOTS) register blocks, one
//! for each sequence that has rows in it. On the token axis the rows of a block follow those of the block
//! before it, so that the rows of a sequence are adjacent, and their positions consecutive.

wire_enum! {
    /// A step register. Ops name none of them: what each op reads is part of its definition in the op table.
    pub enum Register: u32 {
        /// Tokens already in the KV caches and the recurrent state.
        NPast = 0 "n_past",
        /// Rows of the token axis that belong to the block, 1 to `ProgramHeader::max_tokens`.
        NTokens = 1 "n_tokens",
        /// Drafted tokens that the last ACCEPT kept.
        NAccept = 2 "n_accept",
        /// Tokens on the factor tape that the next pass commits to the recurrent state. They count in
        /// `n_past`.
        NCommit = 3 "n_commit",
        /// Tokens to draft for the next block.
        NDraft = 4 "n_draft",
        /// The most that `n_draft` may be.
        DraftMax = 5 "draft_max",
        /// Tokens that rounds may still emit.
        NLeft = 6 "n_left",
        /// Rounds so far, modulo 2^32.
        Round = 7 "round",
        /// A [`Halt`]: unless it is 0, a program runs no (further) op. 0 in a step of several blocks.
        Halt = 8 "halt",
        /// The slot of the block's sequence, below `ProgramHeader::n_slots`. No two blocks have the same.
        Slot = 9 "slot",
        /// Rows of the block whose logits are wanted. Only SET_TOKENS reads it.
        NOutput = 10 "n_output",
        /// 1 to let the block's rows enter the states at once, also in ops that were recorded with `defer`;
        /// else 0.
        Fold = 11 "fold",
        /// Entry of the snapshots that COPY_SLOT writes or reads.
        Snapshot = 12 "snapshot",
    }
}

wire_enum! {
    /// Why rounds stopped, in the register `halt`.
    pub enum Halt: u32 {
        /// They go on.
        Running = 0 "running",
        /// A stop token came, the budget is used up, or the context is full.
        Finished = 1 "finished",
        /// The context has no room for another drafted block: plain steps can go on.
        NoRoom = 2 "no room for a block",
    }
}

/// Number of registers in a block; the ones without a name are reserved and must be zero.
pub const REGISTER_COUNT: usize = 16;

wire_struct! {
    /// The register block of one sequence in shared memory: written by the host before a step, read once by
    /// the DSP. A program with ACCEPT takes exactly one block and advances it, and the DSP writes it back
    /// when the program has run.
    #[derive(Default)]
    pub struct StepRegisters [64 bytes] {
        /// Values by [`Register`] number.
        pub values: [u32; REGISTER_COUNT],
    }
}

impl StepRegisters {
    /// A block for a plain step: `n_tokens` rows of slot 0 after `n_past` committed tokens.
    pub const fn step(n_past: u32, n_tokens: u32) -> Self {
        let mut values = [0; REGISTER_COUNT];
        values[Register::NPast as usize] = n_past;
        values[Register::NTokens as usize] = n_tokens;
        Self { values }
    }

    /// Sets one register.
    pub const fn set(&mut self, register: Register, value: u32) {
        self.values[register as usize] = value;
    }

    /// A block with one register changed.
    #[must_use]
    pub const fn with(mut self, register: Register, value: u32) -> Self {
        self.set(register, value);
        self
    }

    /// Whether a program has nothing (more) to do.
    pub const fn halted(&self) -> bool {
        self.get(Register::Halt) != Halt::Running as u32
    }

    /// The value of one register.
    pub const fn get(&self, register: Register) -> u32 {
        self.values[register as usize]
    }
}

//! What the host knows of the sequences of an engine.

use std::ops::{Index, IndexMut, Range};

use hexflash_abi::registers::{Register, StepRegisters};

use super::block::DraftBlock;
use crate::runtime::error::EngineError;
use crate::runtime::kind::ProgramKind;
use crate::runtime::loaded::Runtime;

/// Whether a sequence's caches and states are those of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// They are.
    Sound,
    /// The device was lost. It can be started again, and the tokens can be computed again.
    Lost,
    /// A step failed half-way. It would fail again.
    Damaged,
}

impl Health {
    /// What a failed step leaves.
    pub(super) fn after(error: &EngineError) -> Self {
        if error.is_loss() { Self::Lost } else { Self::Damaged }
    }
}

/// What the host knows of a sequence.
pub(super) struct SequenceState {
    pub(super) n_past: u32,
    /// Positions below it may have been written, though the context may have been cut back since.
    pub(super) written: u32,
    /// Tokens of the context that are on the tape and not in the recurrent states.
    pub(super) n_commit: u32,
    /// Tokens of the last verification, until a commit says how many of them stay.
    pub(super) verified: DraftBlock,
    pub(super) health: Health,
    /// The rows of logits of its last step.
    pub(super) outputs: Outputs,
    /// The tokens of the context, `n_past` of them.
    pub(super) history: Vec<u32>,
}

/// Rows of logits in shared memory, until the next step overwrites them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outputs {
    /// The step that wrote them, counted from 1.
    step: u64,
    first: usize,
    n: usize,
}

impl SequenceState {
    /// A sequence without tokens, with memory for so many.
    pub(super) fn new(room: u32) -> Self {
        Self {
            n_past: 0,
            written: 0,
            n_commit: 0,
            verified: DraftBlock::default(),
            health: Health::Sound,
            outputs: Outputs::default(),
            history: Vec::with_capacity(room as usize),
        }
    }

    /// Forgets all tokens.
    pub(super) fn clear(&mut self) {
        (self.n_past, self.written, self.n_commit, self.health) = (0, 0, 0, Health::Sound);
        (self.verified, self.outputs) = (DraftBlock::default(), Outputs::default());
        self.history.clear();
    }

    /// All tokens of a step are in the states.
    pub(super) fn advance(&mut self, tokens: &[u32]) {
        (self.n_past, self.n_commit) = (self.n_past + tokens.len() as u32, 0);
        self.history.extend(tokens);
    }

    /// The tokens of a step are on the tape, until a commit says how many of them stay.
    pub(super) fn defer(&mut self, tokens: &[u32]) {
        (self.n_commit, self.verified) = (0, DraftBlock::new(tokens));
    }
}

/// The sequences of an engine, by slot.
pub(super) struct Texts {
    all: Vec<SequenceState>,
    /// Steps so far: they tell whose logits are in shared memory.
    steps: u64,
}

impl Index<usize> for Texts {
    type Output = SequenceState;

    fn index(&self, slot: usize) -> &SequenceState {
        &self.all[slot]
    }
}

impl IndexMut<usize> for Texts {
    fn index_mut(&mut self, slot: usize) -> &mut SequenceState {
        &mut self.all[slot]
    }
}

impl Texts {
    /// So many sequences, with memory for `room` tokens of history each.
    pub(super) fn new(n: u32, room: u32) -> Self {
        Self { all: (0..n).map(|_| SequenceState::new(room)).collect(), steps: 0 }
    }

    /// Number of sequences.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether a context has any of these ids.
    pub(super) fn have(&self, ids: &Range<u32>) -> bool {
        self.all.iter().any(|text| text.history.iter().any(|id| ids.contains(id)))
    }

    /// The sequences, by slot.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut SequenceState> {
        self.all.iter_mut()
    }

    /// A step begins: the logits of all others are gone.
    pub(super) fn begin_step(&mut self) {
        self.steps += 1;
    }

    /// The last step gave rows `first..first + n` for a sequence.
    pub(super) fn gave(&mut self, slot: usize, first: usize, n: usize) {
        self.all[slot].outputs = Outputs { step: self.steps, first, n };
    }

    /// The number of a sequence's row among those of the last step.
    pub(super) fn output(&self, slot: usize, row: usize) -> usize {
        let Outputs { step, first, n } = self.all[slot].outputs;
        let n = if step == self.steps { n } else { 0 };
        assert!(row < n, "row {row} of {n}");
        first + row
    }

    /// Runs `program` for one sequence with these registers.
    ///
    /// # Errors
    /// As [`exec_all`](Self::exec_all).
    pub(super) fn exec(
        &mut self,
        runtime: &mut Runtime,
        program: ProgramKind,
        slot: usize,
        registers: StepRegisters,
    ) -> Result<(), EngineError> {
        self.exec_all(runtime, program, &[registers.with(Register::Slot, slot as u32)])
    }

    /// Runs `program` with a block of registers for each sequence of a step, and waits for it.
    ///
    /// # Errors
    /// The device failed: what it was running leaves these sequences without their context.
    pub(super) fn exec_all(
        &mut self,
        runtime: &mut Runtime,
        program: ProgramKind,
        table: &[StepRegisters],
    ) -> Result<(), EngineError> {
        let seq = runtime.send(program, table)?;
        runtime.finish(program, seq).inspect_err(|error| {
            for registers in table {
                self.all[registers.get(Register::Slot) as usize].health = Health::after(error);
            }
        })
    }
}

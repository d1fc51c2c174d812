//! The engine: a model on a device, with room for one or several sequences.
//!
//! Loading records and loads one program per shape; a step writes token ids and registers into shared memory
//! and sends one `Exec`. Nothing is allocated, rebuilt or re-sent per step.
//!
//! A [`Sequence`] is one text: its tokens, and its slot of caches and states on the device. An engine has as
//! many as its [settings](EngineOptions::sequences) say, one by default. Its own methods (`decode`,
//! `prefill`, ...) are those of the first one. [`Engine::step`] runs rows of several sequences at once:
//! weights are read once for all of them, and each sequence gets the bits that it would get alone.
//!
//! With speculation (see [`Rounds`]) the recurrent states may lag behind the context by the tokens that the
//! last verification kept: `n_commit` of the next step folds them. All that a step needs to know is in its
//! registers.

mod copies;
mod drafting;
mod error;
mod first;
mod fit;
mod load;
mod placed;
mod programs;
mod recovery;
mod rounds;
mod sequence;
mod shared;
mod snapshots;
mod weights;

use std::time::{Duration, Instant};

use hexflash_abi::message::{Exec, Message, MessageKind, Range, Response};
pub use hexflash_abi::program::Numerics;
use hexflash_abi::program::PARTS;
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::{ErrorCode, Fault, ProgramId, Seq};
use zerocopy::IntoBytes;

use crate::device::{Buffer, Device, DeviceError};
use crate::model::{CacheTypes, DRAFT_PREFIX, Decoder, DraftModel, IoLayout, KeptLayout};
use crate::record::Site;
use weights::MappedWeights;

pub use copies::{CopyError, SequenceCopy};
pub use drafting::DraftBlock;
pub use error::EngineError;
pub use fit::{ChipFit, ModelFit, Remedy, SessionNeeds, estimate_fit, fit, open_device};
use placed::PlacedDraft;
use programs::ProgramKind;
pub use programs::{MemoryPlan, SpeculationMemory, list_program, memory_needs, program_names};
pub use rounds::{IdleRounds, RoundLimits, RoundReport, Rounds};
use sequence::{Health, SequenceState};
pub use sequence::{Sequence, SequenceId};
pub use shared::{RowKind, StepRows};
use snapshots::Snapshots;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Positions of the caches of each sequence: `None` for the model's context length but at most 4096, 0
    /// for the model's context length.
    pub n_ctx: Option<u32>,
    /// Tokens of a prefill step.
    pub batch: u32,
    /// Number formats of the caches. Smaller ones make room for longer contexts; texts may differ a little
    /// from those of F16.
    pub caches: CacheTypes,
    /// Sequences that there is room for, at least 1.
    pub sequences: u32,
    /// Bytes for snapshots of recurrent states, with which sequences can be [rolled
    /// back](Sequence::roll_back) without computing their tokens again. 0 for none.
    pub snapshot_bytes: u64,
    /// Whether layers whose queries see a window keep the whole context. Otherwise they keep little more than
    /// the window, and a text that is [cut back](Sequence::roll_back) by more than a batch is computed again.
    pub whole_windows: bool,
    /// Layers whose input is kept for tests (see [`StepShape::probes`](crate::model::StepShape::probes)).
    #[doc(hidden)]
    pub probes: Vec<u32>,
    /// Whether they are kept in steps of any kind, and not of prompts alone.
    #[doc(hidden)]
    pub probe_steps: bool,
    /// What the device's matrix unit (HMX) multiplies: nothing, the matrices of prompt pieces
    /// ([`fast`](Numerics::Fast)), or those of every step ([`hmx`](Numerics::Hmx)). A device that lends no
    /// unit refuses programs for one. One whose unit
    /// [failed its test](hexflash_abi::message::MatrixUnit) is used without it, with a
    /// [warning](Engine::warnings). Weights of types that the unit has no kernel for are multiplied as ever.
    pub numerics: Numerics,
    /// Whether to make room to take tokens back, for drafters without a model. A draft model implies it.
    pub speculate: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            n_ctx: None,
            batch: 256,
            caches: CacheTypes::default(),
            sequences: 1,
            snapshot_bytes: 0,
            whole_windows: false,
            numerics: Numerics::Exact,
            probes: Vec::new(),
            probe_steps: false,
            speculate: false,
        }
    }
}

/// Context length when the user names none: a quarter of a million positions of cache is not a sensible
/// default.
const DEFAULT_CTX: u32 = 4096;

impl EngineOptions {
    /// The context length of a model that was trained for `trained` positions.
    fn context(&self, trained: u32) -> u32 {
        match self.n_ctx {
            None => trained.min(DEFAULT_CTX),
            Some(0) => trained,
            Some(n) => n,
        }
    }
}

/// Most tokens of history for which memory is reserved when the engine is loaded; longer texts allocate more.
const RESERVED: u32 = 1 << 20;

/// What steps cost the host and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepStats {
    /// Steps since the last reset of the statistics.
    pub steps: u64,
    /// Messages sent for these steps.
    pub messages: u64,
    /// Host time for packing, submitting and reading; waiting excluded.
    pub host: Duration,
    /// Bytes that the device's DMA engines moved.
    pub dma_bytes: u64,
    /// Bytes that the host wrote into and read from shared memory.
    pub host_bytes: u64,
    /// What each [`Part`](crate::model::Part) cost the device, in its [`CostUnit`](crate::device::CostUnit).
    pub parts: [u64; PARTS],
}

impl StepStats {
    /// These, and what another device cost in the same steps.
    fn with(mut self, other: &Self) -> Self {
        self.messages += other.messages;
        self.host += other.host;
        self.dma_bytes += other.dma_bytes;
        self.host_bytes += other.host_bytes;
        self.parts.iter_mut().zip(other.parts).for_each(|(part, other)| *part += other);
        self
    }

    /// What was added since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut parts = self.parts;
        parts.iter_mut().zip(before.parts).for_each(|(part, before)| *part = part.saturating_sub(before));
        Self {
            // Someone may have set them to zero meanwhile.
            steps: self.steps.saturating_sub(before.steps),
            messages: self.messages.saturating_sub(before.messages),
            host: self.host.saturating_sub(before.host),
            dma_bytes: self.dma_bytes.saturating_sub(before.dma_bytes),
            host_bytes: self.host_bytes.saturating_sub(before.host_bytes),
            parts,
        }
    }
}

/// A model on a device.
pub struct Engine {
    device: Box<dyn Device>,
    pub(crate) config: Decoder,
    /// Which model and draft they are.
    identity: u128,
    plan: MemoryPlan,
    warnings: Vec<String>,
    pub(crate) io: Buffer,
    pub(crate) layout: IoLayout,
    kept: KeptLayout,
    /// Each session's part.
    pub(crate) state: Vec<Buffer>,
    spec: Option<Spec>,
    pub(crate) batch: u32,
    sequences: Vec<SequenceState>,
    snapshots: Snapshots,
    logits: Vec<f32>,
    /// The tokens of the step under way.
    tokens: Vec<i32>,
    /// The rows whose logits it gives.
    rows: Vec<u32>,
    /// Its row table.
    table: Vec<StepRegisters>,
    stats: StepStats,
    /// Steps so far: they tell whose logits are in shared memory.
    steps: u64,
    /// What of the images' memory is mapped on the device.
    weights: Vec<MappedWeights>,
    /// Each session's.
    activations: Vec<Buffer>,
    /// What sessions hand over, if there are several.
    handed: Option<Buffer>,
    stages: Vec<SessionProgram>,
    /// The draft model, where it has a device of its own.
    placed: Option<Box<PlacedDraft>>,
}

/// What a session runs of a program.
struct SessionProgram {
    session: usize,
    program: ProgramId,
    bytes: Vec<u8>,
    /// The op and the weight behind each op number, for messages.
    sites: Vec<Site>,
}

/// What speculation adds to an engine.
struct Spec {
    draft: Option<Box<dyn DraftModel>>,
    /// What it keeps beside states and caches; a dense target without a draft keeps nothing.
    buffer: Option<Buffer>,
    /// Where in it the tokens are that the draft guessed last.
    drafts_at: usize,
    /// Tokens whose features wait for the draft.
    pending: Option<Pending>,
    rounds: rounds::State,
}

/// Tokens whose features wait for the draft: the last `n` of a sequence.
#[derive(Clone, Copy, Debug)]
struct Pending {
    slot: usize,
    n: u32,
    /// Tokens before these that were on the tapes when the first of these was run, and are on the draft's
    /// still.
    n_commit: u32,
}

impl Engine {
    /// Hyper-parameters of the model.
    pub fn config(&self) -> &Decoder {
        &self.config
    }

    /// The draft model, if there is one.
    pub fn draft_model(&self) -> Option<&dyn DraftModel> {
        match &self.placed {
            Some(placed) => placed.engine().own_draft(),
            None => self.own_draft(),
        }
    }

    /// The draft model on this device.
    fn own_draft(&self) -> Option<&dyn DraftModel> {
        self.spec.as_ref()?.draft.as_deref()
    }

    /// The draft model's device, if it has one of its own. Rounds are then steps that the host checks.
    pub fn draft_device(&self) -> Option<&dyn Device> {
        self.placed.as_ref().map(|placed| placed.engine().device())
    }

    /// Where caches, states and tapes lie.
    pub fn kept(&self) -> &KeptLayout {
        &self.kept
    }

    /// Whether tokens can be verified and taken back.
    pub fn speculates(&self) -> bool {
        self.spec.is_some()
    }

    /// The memory that the model takes.
    pub fn memory(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Warnings of the loading, for users: a weight cache that was rebuilt or cannot be used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Number of positions of the context of each sequence.
    pub fn n_ctx(&self) -> u32 {
        self.kept.n_ctx
    }

    /// The sequences.
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = SequenceId> + use<> {
        SequenceId::first(self.sequences.len())
    }

    /// A sequence.
    ///
    /// # Errors
    /// [`EngineError::NoSequence`]: the engine has fewer.
    pub fn sequence(&mut self, id: SequenceId) -> Result<Sequence<'_>, EngineError> {
        let slot = self.slot(id)?;
        Ok(Sequence { engine: self, slot })
    }

    fn slot(&self, id: SequenceId) -> Result<usize, EngineError> {
        let room = self.sequences.len();
        Some(id.slot()).filter(|&slot| slot < room).ok_or(EngineError::NoSequence { id, room })
    }

    /// What steps have cost since [`reset_stats`](Self::reset_stats).
    ///
    /// A draft model on another device counts as well, but that its messages are no steps.
    pub fn stats(&self) -> StepStats {
        match &self.placed {
            Some(placed) => self.stats.with(&placed.engine().stats),
            None => self.stats,
        }
    }

    /// Sets the statistics to zero.
    pub fn reset_stats(&mut self) {
        self.stats = StepStats::default();
        if let Some(placed) = &mut self.placed {
            placed.reset_stats();
        }
    }

    /// Sends `program` for one sequence with these registers, and waits for it.
    fn exec(
        &mut self,
        program: ProgramKind,
        slot: usize,
        registers: StepRegisters,
    ) -> Result<(), EngineError> {
        self.table.clear();
        self.table.push(registers.with(Register::Slot, slot as u32));
        self.exec_table(program)
    }

    /// Writes the row table, sends `program` and waits for it. A failure leaves the sequences of the table
    /// without their context.
    fn exec_table(&mut self, program: ProgramKind) -> Result<(), EngineError> {
        let start = Instant::now();
        self.write_table();
        let seq = self.submit(program, self.table.len())?;
        self.stats.host += start.elapsed();
        let outcome = self.finish(program, seq);
        let health = match &outcome {
            Ok(_) => return Ok(()),
            Err(error) => Health::after(error),
        };
        for registers in &self.table {
            self.sequences[registers.get(Register::Slot) as usize].health = health;
        }
        outcome.map(drop)
    }

    /// Makes the row table of one sequence, and writes it.
    fn write_registers(&mut self, registers: &StepRegisters) {
        self.table.clear();
        self.table.push(*registers);
        self.write_table();
    }

    fn write_table(&mut self) {
        let table = self.table.as_bytes();
        self.io.memory.write(IoLayout::REGISTERS as usize, table);
        self.stats.host_bytes += table.len() as u64;
    }

    /// Sends `program` with the first `n` blocks of registers as they are in shared memory when it is its
    /// turn.
    fn submit(&mut self, program: ProgramKind, n: usize) -> Result<Seq, EngineError> {
        let len = (n * size_of::<StepRegisters>()) as u32;
        let registers = Range { buffer: self.io.id, len, offset: IoLayout::REGISTERS };
        let exec = Exec { program: program.id(), reserved: 0, registers };
        self.stats.messages += 1;
        Ok(self.device.submit(&Message::Exec(exec))?)
    }

    /// Waits for the answer to `seq`, which ran `program` and must be a success.
    fn finish(&mut self, program: ProgramKind, seq: Seq) -> Result<Response, EngineError> {
        let response = {
            let patience = self.device.patience();
            self.device.wait(patience)?
        };
        let start = Instant::now();
        if response.seq != seq {
            return Err(DeviceError::OutOfOrder { expected: seq, found: response.seq }.into());
        }
        if let Err((status, fault)) = response.outcome() {
            if fault.code == ErrorCode::NotFinite {
                return Err(EngineError::NotFinite { place: self.place(program, &fault) });
            }
            let error = DeviceError::fault(MessageKind::Exec, status, fault);
            return Err(error
                .explained(|fault| self.site(program, fault).map(|site| site.explain(fault)))
                .into());
        }
        self.stats.steps += 1;
        self.stats.dma_bytes += response.dma_bytes;
        for (sum, cost) in self.stats.parts.iter_mut().zip(response.info) {
            *sum += u64::from(cost);
        }
        self.stats.host += start.elapsed();
        Ok(response)
    }

    /// The op of `program` that a fault of the session that answered last concerns.
    fn site(&self, program: ProgramKind, fault: &Fault) -> Option<&Site> {
        let (session, id) = (self.device.answered(), program.id());
        let stage = self.stages.iter().find(|stage| stage.session == session && stage.program == id);
        stage?.sites.get(fault.op.0 as usize)
    }

    /// Where in `program` a fault of the session that answered last was, for people.
    fn place(&self, program: ProgramKind, fault: &Fault) -> String {
        let Some(site) = self.site(program, fault) else {
            return format!("op {}", fault.op);
        };
        let weight = site.weight().unwrap_or_default();
        let (model, name) =
            weight.strip_prefix(DRAFT_PREFIX).map_or(("the model", weight), |name| ("the draft", name));
        let before = if fault.detail == 0 { " or before" } else { "" };
        match name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
            Some((layer, _)) => format!("layer {layer} of {model}{before} ({site})"),
            None => format!("{model}{before} ({site})"),
        }
    }
}

//! The programs of a loaded model, and the memory that they and their data take.

use hexflash_abi::program::Numerics;
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{BufferId, ProgramId};
use hexflash_dsp::plan::{Resources, Units};

use super::load::settle;
use super::weights::Neighbours;
use super::{EngineError, EngineOptions};
use crate::device::{DeviceInfo, MAX_SESSIONS, SessionSet};
use crate::gguf::Gguf;
use crate::model::{
    self, Buffers, Context, Decoder, DraftModel, EmbeddingReaders, Features, IoLayout, KeptLayout,
    KeptPlanner, MAX_SHARED, MAX_VERIFY, Purpose, Recipes, Region, Rollback, Rows, Split, StepShape, Tapes,
    WeightMap, Widths,
};
use crate::record::{Homes, Listing, RecordError, Recorded};

/// Bytes of memory that a loaded model takes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    /// Weights as the device reads them.
    pub weights: u64,
    /// KV caches.
    pub kv: u64,
    /// Recurrent state and convolution rings.
    pub recurrent: u64,
    /// Snapshots of recurrent states.
    pub snapshots: u64,
    /// Activations, shared by all programs.
    pub activations: u64,
    /// What activations would take without reuse.
    pub activations_unshared: u64,
    /// Activations that sessions hand over.
    pub handed_over: u64,
    /// Sessions of the device that layers and states are split over.
    pub sessions: u32,
    /// Inputs and outputs.
    pub io: u64,
    /// Memory that speculation takes in addition; `None` without speculation.
    pub speculation: Option<SpeculationMemory>,
    /// ProgramKind blocks.
    pub programs: u64,
    /// VTCM of the device.
    pub vtcm: u64,
    /// Positions of the caches of each sequence.
    pub n_ctx: u32,
    /// Sequences that there is room for.
    pub sequences: u32,
}

/// Bytes of memory that speculation takes in addition.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SpeculationMemory {
    /// Factor tapes of the recurrent layers.
    pub tape: u64,
    /// Rows of convolutions that may be taken back, as far as they do not lie in memory that prefill needs
    /// anyway.
    pub conv_rows: u64,
    /// KV cache of the draft.
    pub draft_kv: u64,
    /// Weights of the draft.
    pub draft_weights: u64,
    /// Blocks of tokens, kept features, and tables.
    pub other: u64,
    /// What a copy of every state per token of a block would take instead (llama.cpp's scheme), for
    /// comparison.
    pub state_copies: u64,
}

impl SpeculationMemory {
    fn new(target: &Decoder, kept: &KeptLayout, conv_rows: u64, draft_weights: u64) -> Self {
        Self {
            tape: kept.bytes(Purpose::Tape),
            conv_rows,
            draft_kv: kept.bytes(Purpose::DraftKv),
            draft_weights,
            other: kept.bytes(Purpose::Rounds),
            state_copies: u64::from(kept.n_slots) * u64::from(MAX_VERIFY) * target.state_bytes(),
        }
    }

    /// Bytes that it takes to keep rejected tokens out of the states, to compare with [`Self::state_copies`].
    pub fn rollback(&self) -> u64 {
        self.tape + self.conv_rows
    }
}

/// A program of an engine; its number is its id on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    /// One token, its logits.
    Decode = 0,
    /// Up to [`MAX_VERIFY`] tokens, the logits of each; with speculation they may be taken back.
    Verify = 1,
    /// Up to a batch of tokens, the logits of the last.
    Prefill = 2,
    /// A speculative round.
    Round = 3,
    /// A block of drafts.
    DraftBlock = 4,
    /// Features of plain steps, into the draft's caches.
    Inject = 5,
    /// Rows of several sequences: up to [`MAX_SHARED`] tokens, the logits of some.
    Shared = 6,
    /// A sequence's recurrent states into a snapshot.
    Save = 7,
    /// A sequence's recurrent states out of a snapshot.
    Restore = 8,
}

impl ProgramKind {
    const ALL: [Self; 9] = [
        Self::Decode,
        Self::Verify,
        Self::Prefill,
        Self::Round,
        Self::DraftBlock,
        Self::Inject,
        Self::Shared,
        Self::Save,
        Self::Restore,
    ];

    /// Its id on the device.
    pub(super) const fn id(self) -> ProgramId {
        ProgramId(self as u32)
    }

    /// The name under which people ask for it.
    const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Verify => "verify",
            Self::Prefill => "prefill",
            Self::Round => "round",
            Self::DraftBlock => "draft",
            Self::Inject => "inject",
            Self::Shared => "shared",
            Self::Save => "save",
            Self::Restore => "restore",
        }
    }
}

/// The names of the programs that an engine may have. Which of them it has depends on the draft model and on
/// the settings.
pub fn program_names() -> impl Iterator<Item = &'static str> {
    ProgramKind::ALL.into_iter().map(ProgramKind::name)
}

/// What a device has of a target and its draft model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Has {
    /// The target, and the draft model if there is one.
    Target,
    /// The draft model alone.
    Draft,
}

/// What a model's programs refer to.
#[derive(Debug)]
pub(super) struct Layouts {
    pub kept: KeptLayout,
    pub io: IoLayout,
    pub split: Split,
}

impl Layouts {
    pub(super) fn new(
        target: &Decoder,
        draft: Option<&dyn DraftModel>,
        n_ctx: u32,
        options: &EngineOptions,
        split: Split,
        has: Has,
    ) -> Result<Self, RecordError> {
        let rollback = if options.speculate || draft.is_some() { Rollback::LastStep } else { Rollback::None };
        let snapshots = n_snapshots(target, draft, options, &split)?;
        let mut kept = KeptPlanner::new(n_ctx, rollback)
            .room_for(options.sequences, snapshots)
            .with_caches(options.caches);
        if !options.whole_windows {
            kept = kept.kv_rings(options.batch.max(MAX_SHARED));
        }
        if has == Has::Target {
            target.keep(&mut kept, &split)?;
        }
        if let Some(draft) = draft {
            model::keep_draft(draft, target, &mut kept)?;
        }
        let widths = Widths::new(options.batch, options.sequences);
        let io = IoLayout::new(target.n_embd, target.n_vocab, widths, options.probes.len());
        Ok(Self { kept: kept.finish(), io, split })
    }

    pub(super) fn recipes<'a>(
        &'a self,
        target: &'a Decoder,
        weights: &'a WeightMap,
        draft: Option<&'a dyn DraftModel>,
        buffers: Buffers,
        numerics: Numerics,
    ) -> Recipes<'a> {
        let Self { kept, io, split } = self;
        // Those of `fast` are prompts alone.
        let numerics = if numerics == Numerics::Hmx { numerics } else { Numerics::Exact };
        Recipes { target, draft, cx: Context { weights, kept, io, split, buffers }, numerics }
    }
}

/// A model's programs before they are loaded: enough for a memory plan without weights.
pub(super) struct RecordedPrograms {
    pub recorded: Vec<(ProgramKind, Recorded)>,
    kept_bytes: u64,
}

impl RecordedPrograms {
    /// Records every program that there are recipes for, by number.
    pub(super) fn record(
        recipes: &Recipes<'_>,
        options: &EngineOptions,
        has: Has,
    ) -> Result<Self, RecordError> {
        let recorded = match has {
            Has::Target => Self::of_target(recipes, options)?,
            Has::Draft => Self::of_placed(recipes, options)?,
        };
        Ok(Self { recorded, kept_bytes: recipes.cx.kept.region_bytes(Region::Activations) })
    }

    /// The programs of a draft model on a device of its own.
    fn of_placed(
        recipes: &Recipes<'_>,
        options: &EngineOptions,
    ) -> Result<Vec<(ProgramKind, Recorded)>, RecordError> {
        let Some(draft) = recipes.draft else { return Ok(Vec::new()) };
        Ok(vec![
            (ProgramKind::Round, recipes.placed_round(draft)?),
            (ProgramKind::DraftBlock, recipes.draft_block(draft)?),
            (ProgramKind::Inject, recipes.placed_inject(draft, options.batch)?),
        ])
    }

    /// The programs of a target, and of a draft model beside it.
    fn of_target(
        recipes: &Recipes<'_>,
        options: &EngineOptions,
    ) -> Result<Vec<(ProgramKind, Recorded)>, RecordError> {
        let of_steps = if options.probe_steps { &options.probes[..] } else { &[] };
        let all = |max_tokens, tapes, features| StepShape {
            max_tokens,
            rows: Rows::All,
            probes: of_steps.to_vec(),
            tapes,
            features,
            numerics: recipes.numerics,
        };
        let prefill = StepShape {
            max_tokens: options.batch,
            rows: Rows::One,
            probes: options.probes.clone(),
            tapes: Tapes::Unused,
            features: Features::Inject,
            numerics: options.numerics,
        };
        let mut recorded = vec![
            (ProgramKind::Decode, recipes.step(&all(1, Tapes::Fold, Features::Keep))?),
            (
                ProgramKind::Verify,
                recipes.step(&all(recipes.verify_tokens(), Tapes::Defer, Features::Inject))?,
            ),
            (ProgramKind::Prefill, recipes.step(&prefill)?),
        ];
        if let Some(draft) = recipes.draft {
            recorded.push((ProgramKind::Round, recipes.round(draft)?));
            recorded.push((ProgramKind::DraftBlock, recipes.draft_block(draft)?));
            recorded.push((ProgramKind::Inject, recipes.inject(draft)?));
        }
        let kept = recipes.cx.kept;
        if kept.n_slots > 1 {
            let shared = StepShape {
                rows: Rows::Listed,
                ..all(MAX_SHARED.min(kept.n_ctx), Tapes::Defer, Features::Inject)
            };
            recorded.push((ProgramKind::Shared, recipes.step(&shared)?));
        }
        if kept.n_snapshots > 0 {
            recorded.push((ProgramKind::Save, recipes.copy_states(false)?));
            recorded.push((ProgramKind::Restore, recipes.copy_states(true)?));
        }
        Ok(recorded)
    }

    /// Bytes of activations, kept tensors aside.
    fn activations(&self) -> u64 {
        self.recorded.iter().map(|(_, r)| r.activation_bytes).max().unwrap_or(0)
    }

    /// Offset of the kept tensors: behind the activations of every program that may run between a round and
    /// the step that commits its tokens. Prefill is not one of them and may overwrite kept tensors.
    pub(super) fn kept_at(&self) -> u64 {
        let short = self.recorded.iter().filter(|(program, _)| *program != ProgramKind::Prefill);
        short.map(|(_, r)| r.activation_bytes).max().unwrap_or(0)
    }

    /// Bytes that sessions hand over.
    pub(super) fn handed_bytes(&self) -> u64 {
        self.recorded.iter().map(|(_, r)| r.handed_bytes).max().unwrap_or(0)
    }

    /// Bytes of the activations' buffer of each session.
    pub(super) fn activation_bytes(&self) -> u64 {
        self.activations().max(self.kept_at() + self.kept_bytes)
    }

    pub(super) fn memory(
        &self,
        target: &Decoder,
        layouts: &Layouts,
        (weights, draft_weights): (u64, u64),
        device: &DeviceInfo,
    ) -> MemoryPlan {
        let Layouts { kept, io, split } = layouts;
        let unshared = self.recorded.iter().map(|(_, r)| r.activation_bytes_unshared);
        let speculation = match kept.rollback {
            Rollback::None => None,
            Rollback::LastStep => {
                let conv_rows = match kept.n_slots {
                    1 => self.activation_bytes() - self.activations(),
                    _ => kept.bytes(Purpose::ConvRows),
                };
                Some(SpeculationMemory::new(target, kept, conv_rows, draft_weights))
            }
        };
        MemoryPlan {
            weights,
            kv: kept.bytes(Purpose::Kv),
            recurrent: kept.bytes(Purpose::Recurrent),
            snapshots: kept.bytes(Purpose::Snapshot),
            activations: self.activations(),
            activations_unshared: unshared.max().unwrap_or(0),
            handed_over: self.handed_bytes(),
            sessions: split.sessions() as u32,
            io: io.bytes,
            speculation,
            programs: self.recorded.iter().map(|(_, recorded)| recorded.block_bytes()).sum(),
            vtcm: device.vtcm_bytes.into(),
            n_ctx: kept.n_ctx,
            sequences: kept.n_slots,
        }
    }
}

/// How many snapshots of a sequence's recurrent states the settings have room for: none where there is no
/// such state.
fn n_snapshots(
    target: &Decoder,
    draft: Option<&dyn DraftModel>,
    options: &EngineOptions,
    split: &Split,
) -> Result<u32, RecordError> {
    let mut alone = KeptPlanner::new(1, Rollback::None);
    target.keep(&mut alone, split)?;
    draft.map_or(Ok(()), |draft| draft.memory(&mut alone))?;
    let bytes = alone.finish().bytes(Purpose::Recurrent);
    let most = options.snapshot_bytes.checked_div(bytes).unwrap_or(0);
    Ok(u32::try_from(most).unwrap_or(u32::MAX).min(MAX_SNAPSHOTS))
}

/// Most snapshots: more would be searched for longer than it takes to compute the tokens again.
const MAX_SNAPSHOTS: u32 = 4096;

/// The sessions that read the target's embedding.
pub(super) fn embedding_readers(target: &Decoder, draft: Option<&dyn DraftModel>) -> EmbeddingReaders {
    match draft {
        Some(draft) if draft.shares_embedding() => EmbeddingReaders::FirstAndLast,
        _ => target.embedding_readers(),
    }
}

/// The memory that a model would take on a device, without loading it.
///
/// # Errors
/// As [`Engine::load_with`](super::Engine::load_with), for what can be checked without a device.
pub fn memory_needs(
    gguf: &Gguf,
    draft: Option<&Gguf>,
    options: &EngineOptions,
    device: &DeviceInfo,
) -> Result<MemoryPlan, EngineError> {
    let rehearsal = Rehearsal::new(gguf, draft, options, device.sessions)?;
    Ok(rehearsal.programs.memory(&rehearsal.target, &rehearsal.layouts, rehearsal.weight_bytes, device))
}

/// A program of a model, as it would run on a device, without loading it.
///
/// # Errors
/// As [`memory_needs`]; [`EngineError::NoProgram`] for an unknown name.
pub fn list_program(
    gguf: &Gguf,
    draft: Option<&Gguf>,
    options: &EngineOptions,
    device: &DeviceInfo,
    name: &str,
) -> Result<Listing, EngineError> {
    let Rehearsal { programs, layouts, weight_bytes, .. } =
        Rehearsal::new(gguf, draft, options, device.sessions)?;
    let Some((_, recorded)) = programs.recorded.iter().find(|(program, _)| program.name() == name) else {
        let known: Vec<_> = programs.recorded.iter().map(|(program, _)| program.name()).collect();
        return Err(EngineError::NoProgram { name: name.to_owned(), known: known.join(", ") });
    };
    // The activations of each session have a buffer of the same size; here they share its name.
    let homes = Homes { activations: ACTIVATIONS, kept_at: programs.kept_at(), handed: HANDED };
    let spec = layouts.kept.region_bytes(Region::Speculation);
    let state = layouts.kept.part_bytes().max().unwrap_or(0);
    let buffers = [
        (WEIGHTS, "weights", weight_bytes.0, true),
        (STATE, "state", state, false),
        (IO, "io", layouts.io.bytes, false),
        (SPECULATION, "speculation", spec, false),
        (DRAFT_WEIGHTS, "draft weights", weight_bytes.1, true),
        (ACTIVATIONS, "activations", programs.activation_bytes(), false),
        (HANDED, "handed over", programs.handed_bytes(), false),
    ];
    let buffer = |id| {
        let &(_, name, size, read_only) = buffers.iter().find(|&&(known, ..)| known == id)?;
        Some((name.to_owned(), BufferInfo { size, read_only }))
    };
    let resources = Resources {
        workers: device.threads as usize,
        vtcm_bytes: device.vtcm_bytes as usize,
        // What the device lends is known when programs are loaded: this is what they were recorded for.
        units: Units { hmx: options.numerics.wants_matrix_unit().into(), ..Units::NONE },
    };
    Ok(recorded.list(name, &homes, resources, buffer)?)
}

/// The buffers of a [`Rehearsal`].
const WEIGHTS: BufferId = BufferId(0);
const STATE: BufferId = BufferId(1);
const IO: BufferId = BufferId(2);
const SPECULATION: BufferId = BufferId(3);
const DRAFT_WEIGHTS: BufferId = BufferId(4);
const ACTIVATIONS: BufferId = BufferId(5);
const HANDED: BufferId = BufferId(6);

/// The programs of a model that was not loaded, and what they refer to.
pub(super) struct Rehearsal {
    target: Decoder,
    pub(super) layouts: Layouts,
    pub(super) programs: RecordedPrograms,
    /// Bytes of the weights, and of the draft's.
    pub(super) weight_bytes: (u64, u64),
    /// What would be mapped of the weights, and of the draft's.
    pub(super) mapped: Vec<Neighbours>,
}

impl Rehearsal {
    /// Records the programs for so many sessions.
    pub(super) fn new(
        gguf: &Gguf,
        draft: Option<&Gguf>,
        options: &EngineOptions,
        sessions: u32,
    ) -> Result<Self, EngineError> {
        let target = model::read(gguf)?;
        let draft_gguf = draft;
        let draft = draft_gguf.map(|gguf| model::read_draft(gguf, &target)).transpose()?;
        let draft = draft.as_deref();
        let (n_ctx, options) = &settle(&target, draft, options)?;
        let whole = |buffer| move |at| (buffer, at);
        let plan = target.weights(gguf)?;
        let (entries, bytes) = crate::weights::layout(gguf, &plan.specs)?;
        let constants = plan.constants();
        let mut weights = WeightMap::new(plan, |label| entries.get(label).copied(), whole(WEIGHTS));
        let entries = || entries.iter().map(|(label, entry)| (label.as_str(), entry));
        let embedding = embedding_readers(&target, draft);
        let split = super::weights::split(&target, entries(), embedding, sessions)?;
        let mut mapped = Neighbours::of(entries(), super::weights::readers(&constants, &split, embedding));
        let mut draft_bytes = 0;
        if let Some((gguf, draft)) = draft_gguf.zip(draft) {
            let plan = draft.weights(gguf)?;
            let (entries, bytes) = crate::weights::layout(gguf, &plan.specs)?;
            let last = SessionSet::one(split.last());
            mapped
                .extend(Neighbours::of(entries.iter().map(|(label, entry)| (label.as_str(), entry)), |_| {
                    last
                }));
            let more = WeightMap::new(plan, |label| entries.get(label).copied(), whole(DRAFT_WEIGHTS));
            weights = weights.with(more);
            draft_bytes = bytes;
        }
        let layouts = Layouts::new(&target, draft, *n_ctx, options, split, Has::Target)?;
        let buffers = Buffers { state: [STATE; MAX_SESSIONS], io: IO, spec: SPECULATION };
        let programs = RecordedPrograms::record(
            &layouts.recipes(&target, &weights, draft, buffers, options.numerics),
            options,
            Has::Target,
        )?;
        Ok(Self { target, layouts, programs, weight_bytes: (bytes, draft_bytes), mapped })
    }
}

//! What loading does, told without a device: which weights are mapped, what is allocated, which programs
//! there are.

use std::collections::HashMap;
use std::ops::Range;

use hexflash_abi::BufferId;
use hexflash_abi::validate::BufferInfo;

use super::error::EngineError;
use super::files::ModelFiles;
use super::kind::ProgramKind;
use super::layouts::{Holds, Layouts, Models};
use super::memory::MemoryPlan;
use super::options::{EngineOptions, settle};
use super::programs::RecordedPrograms;
use super::weights::{Neighbours, embedding_readers, readers, split};
use crate::device::{DeviceInfo, MAX_SESSIONS, SessionSet};
use crate::gguf::Gguf;
use crate::model::{
    self, Buffers, DRAFT_BLOCK, Decoder, DraftModel, Encoder, KeptLayout, Region, Scope, WeightMap,
    WeightPlan,
};
use crate::record::{Homes, Recorded};
use crate::weights::{WeightEntry, WeightSpec};

/// The buffers of a plan have names of its own. Loading puts those of the device in their place.
const STATE: u32 = 0;
const ACTIVATIONS: u32 = STATE + MAX_SESSIONS as u32;
const IO: BufferId = BufferId(ACTIVATIONS + MAX_SESSIONS as u32);
const SPECULATION: BufferId = BufferId(IO.0 + 1);
const HANDED: BufferId = BufferId(IO.0 + 2);
const WEIGHTS: u32 = IO.0 + 3;

/// A model on a device, before it is loaded.
pub(super) struct Plan {
    pub(super) target: Decoder,
    pub(super) draft: Option<Box<dyn DraftModel>>,
    pub(super) encoder: Option<Encoder>,
    /// As far as model and draft allow them.
    pub(super) options: EngineOptions,
    /// The images of the target's file, of the draft's and of the encoder's, as far as there are such.
    pub(super) images: Vec<ImagePlan>,
    pub(super) layouts: Layouts,
    programs: RecordedPrograms,
}

/// An image of weights, and what is mapped of it.
pub(super) struct ImagePlan {
    /// What sets its cache apart from that of another image of the same file.
    pub(super) part: Option<&'static str>,
    pub(super) specs: Vec<WeightSpec>,
    /// What users call it.
    name: &'static str,
    entries: HashMap<String, WeightEntry>,
    bytes: u64,
    pub(super) mapped: Vec<MappedRange>,
}

/// A part of an image that is mapped as one.
pub(super) struct MappedRange {
    pub(super) id: BufferId,
    pub(super) range: Range<u64>,
    pub(super) sessions: SessionSet,
}

/// The block of what a session runs of a program.
pub(super) struct PlannedBlock<'p> {
    pub(super) session: usize,
    pub(super) program: ProgramKind,
    pub(super) recorded: &'p Recorded,
    pub(super) bytes: Vec<u8>,
}

impl ImagePlan {
    fn new(gguf: &Gguf, name: &'static str, plan: &WeightPlan) -> Result<Self, EngineError> {
        let (entries, bytes) = crate::weights::layout(gguf, &plan.specs)?;
        Ok(Self { part: None, specs: plan.specs.clone(), name, entries, bytes, mapped: Vec::new() })
    }

    fn entries(&self) -> impl Iterator<Item = (&str, &WeightEntry)> {
        self.entries.iter().map(|(label, entry)| (label.as_str(), entry))
    }

    /// Plans what is mapped of it for the sessions that read it, as buffers from number `first` on; where
    /// each weight is then.
    fn map(&mut self, plan: WeightPlan, first: usize, readers: impl Fn(&str) -> SessionSet) -> WeightMap {
        let runs = Neighbours::of(self.entries(), readers);
        let starts: Vec<u64> = runs.iter().map(|run| run.start).collect();
        let ids = WEIGHTS + first as u32..;
        self.mapped = ids
            .zip(runs)
            .map(|(id, run)| MappedRange { id: BufferId(id), range: run.mapped(), sessions: run.sessions })
            .collect();
        let home = |at| {
            let MappedRange { id, range, .. } =
                &self.mapped[starts.partition_point(|&start| start <= at) - 1];
            (*id, at - range.start)
        };
        WeightMap::new(plan, |label| self.entries.get(label).copied(), home)
    }
}

impl Plan {
    /// What a device of so many sessions would have of a target and its draft model.
    ///
    /// # Errors
    /// A model cannot be run, or a setting is out of range.
    pub(super) fn new(
        holds: Holds,
        files: ModelFiles<'_>,
        options: &EngineOptions,
        sessions: u32,
    ) -> Result<Self, EngineError> {
        let ModelFiles { target: gguf, draft: draft_gguf, encoder: encoder_gguf } = files;
        let target = model::read(gguf)?;
        if draft_gguf.is_some() && encoder_gguf.is_some() {
            return Err(EngineError::DraftsWithPictures);
        }
        let encoder = encoder_gguf.map(|gguf| Encoder::read(gguf, &target)).transpose()?;
        let draft = draft_gguf.map(|gguf| model::read_draft(gguf, &target)).transpose()?;
        let (n_ctx, options) = settle(&target, draft.as_deref(), options)?;
        let embedding = embedding_readers(&target, draft.as_deref());
        let (plan, part) = match holds {
            Holds::Target => (target.weights(gguf)?, None),
            Holds::Draft => (target.shared_weights(gguf)?, Some("shared")),
        };
        let mut own = ImagePlan { part, ..ImagePlan::new(gguf, "weights", &plan)? };
        let encoder_plan = encoder_gguf.zip(encoder.as_ref()).map(|(file, encoder)| {
            let plan = encoder.weights(file)?;
            Ok::<_, EngineError>((ImagePlan::new(file, "encoder weights", &plan)?, plan))
        });
        let encoder_plan = encoder_plan.transpose()?;
        let beside = encoder_plan.as_ref().map_or(0, |(image, _)| image.bytes);
        let split = split(&target, draft.as_deref(), own.entries(), beside, embedding, sessions)?;
        let constants = plan.constants();
        let mut weights = own.map(plan, 0, readers(&constants, &split, embedding));
        let mut images = vec![own];
        if let Some((file, draft)) = draft_gguf.zip(draft.as_deref()) {
            let plan = draft.weights(file)?;
            // A head in the target's own file: each of the two images has a cache of its own.
            let part = Some("mtp").filter(|_| file.path() == gguf.path());
            let mut more = ImagePlan { part, ..ImagePlan::new(file, "draft weights", &plan)? };
            let last = SessionSet::one(split.last());
            weights = weights.with(more.map(plan, images[0].mapped.len(), |_| last));
            images.push(more);
        }
        if let Some((mut more, plan)) = encoder_plan {
            let mapped = images.iter().map(|image| image.mapped.len()).sum();
            weights = weights.with(more.map(plan, mapped, |_| SessionSet::one(0)));
            images.push(more);
        }
        let models = Models { target: &target, draft: draft.as_deref(), encoder: encoder.as_ref() };
        let layouts = Layouts::new(models, n_ctx, &options, split, holds)?;
        let state = std::array::from_fn(|session| BufferId(STATE + session as u32));
        let buffers = Buffers { state, io: IO, spec: SPECULATION };
        let recipes = layouts.recipes(models, &weights, buffers, options.numerics);
        let programs = RecordedPrograms::record(&recipes, &options, holds)?;
        Ok(Self { target, draft, encoder, options, images, layouts, programs })
    }

    /// Where caches, states and tapes lie.
    pub(super) fn kept(&self) -> &KeptLayout {
        &self.layouts.kept
    }

    /// Sessions that it is for.
    pub(super) fn sessions(&self) -> usize {
        self.layouts.split.sessions()
    }

    /// Bytes of the target's weights.
    pub(super) fn weight_bytes(&self) -> u64 {
        self.images[0].bytes
    }

    /// The bytes of each part of the weights that is mapped as one, and who maps it.
    pub(super) fn mapped_weights(&self) -> impl Iterator<Item = (SessionSet, u64)> {
        let all = self.images.iter().flat_map(|image| &image.mapped);
        all.map(|part| (part.sessions, part.range.end - part.range.start))
    }

    /// The buffer of each session's caches and states, with its bytes: where a draft model is alone there may
    /// be none, and nothing cannot be mapped.
    pub(super) fn state(&self) -> impl Iterator<Item = (BufferId, u64)> {
        (STATE..).map(BufferId).zip(self.kept().part_bytes().map(|bytes| bytes.max(1)))
    }

    /// The buffer of inputs and outputs, with its bytes.
    pub(super) fn io(&self) -> (BufferId, u64) {
        (IO, self.layouts.io.bytes)
    }

    /// The buffer of what speculation keeps, with its bytes, if it keeps any.
    pub(super) fn speculation(&self) -> Option<(BufferId, u64)> {
        let bytes = self.kept().region_bytes(Region::Speculation);
        (bytes > 0).then_some((SPECULATION, bytes))
    }

    /// The buffer of each session's activations, with its bytes.
    pub(super) fn activations(&self) -> impl Iterator<Item = (BufferId, u64)> {
        let bytes = self.programs.activation_bytes();
        (ACTIVATIONS..).map(BufferId).take(self.sessions()).map(move |id| (id, bytes))
    }

    /// The buffer of what sessions hand over, with its bytes, if there are several.
    pub(super) fn handed(&self) -> Option<(BufferId, u64)> {
        let bytes = self.programs.handed_bytes();
        (bytes > 0).then_some((HANDED, bytes))
    }

    /// The bytes of all that every session maps beside weights and states: inputs and outputs, what sessions
    /// hand over, what speculation keeps, activations.
    pub(super) fn shared_bytes(&self) -> [u64; 4] {
        let bytes = |buffer: Option<(BufferId, u64)>| buffer.map_or(0, |(_, bytes)| bytes);
        let activations = self.programs.activation_bytes();
        [self.io().1, bytes(self.handed()), bytes(self.speculation()), activations]
    }

    /// Where in the buffer of speculation the tokens are that the draft guessed last: behind the anchor.
    pub(super) fn drafts_at(&self) -> usize {
        match &self.draft {
            Some(_) => self.kept().place(&Scope::DRAFT.label(DRAFT_BLOCK)).offset as usize + 4,
            None => 0,
        }
    }

    /// The memory that it takes, on this device.
    pub(super) fn memory(&self, device: &DeviceInfo) -> MemoryPlan {
        let more = self.images.get(1).map_or(0, |image| image.bytes);
        let (draft, encoder) = if self.encoder.is_some() { (0, more) } else { (more, 0) };
        self.programs.memory(&self.target, &self.layouts, [self.weight_bytes(), draft, encoder], device)
    }

    /// The names of its programs.
    pub(super) fn program_names(&self) -> impl Iterator<Item = &'static str> {
        self.programs.recorded.iter().map(|(program, _)| program.name())
    }

    /// The program of this name.
    pub(super) fn program(&self, name: &str) -> Option<&Recorded> {
        let mut all = self.programs.recorded.iter();
        all.find(|(program, _)| program.name() == name).map(|(_, recorded)| recorded)
    }

    /// The buffers that the block of a session names beside those that were recorded.
    pub(super) fn homes(&self, session: usize) -> Homes {
        let activations = BufferId(ACTIVATIONS + session as u32);
        Homes { activations, kept_at: self.programs.kept_at(), handed: HANDED }
    }

    /// What each session runs of each program, validated; `name` gives the device's name for a buffer of the
    /// plan's.
    pub(super) fn blocks(
        &self,
        name: impl Fn(BufferId) -> BufferId + Copy,
    ) -> impl Iterator<Item = Result<PlannedBlock<'_>, EngineError>> {
        let buffers: HashMap<_, _> = self.buffers().map(|(id, _, info)| (id, info)).collect();
        let sessions = self.sessions();
        let all = self.programs.recorded.iter().flat_map(move |(program, recorded)| {
            let in_each = (0..sessions).filter(|&session| recorded.runs_in(session));
            in_each.map(move |session| (*program, recorded, session))
        });
        all.map(move |(program, recorded, session)| {
            let homes = self.homes(session);
            let bytes = recorded.block_named(session, &homes, |id| buffers.get(&id).copied(), name)?;
            Ok(PlannedBlock { session, program, recorded, bytes })
        })
    }

    /// What people call a buffer, and its size.
    pub(super) fn describe(&self, id: BufferId) -> Option<(String, BufferInfo)> {
        let (_, name, info) = self.buffers().find(|&(known, ..)| known == id)?;
        Some((name.to_owned(), info))
    }

    /// All buffers: name of the plan's, name for people, size.
    fn buffers(&self) -> impl Iterator<Item = (BufferId, &'static str, BufferInfo)> {
        let written = |name: &'static str| {
            move |(id, size): (BufferId, u64)| (id, name, BufferInfo { size, read_only: false })
        };
        let weights = self.images.iter().flat_map(|image| {
            image.mapped.iter().map(|part| {
                let size = part.range.end - part.range.start;
                (part.id, image.name, BufferInfo { size, read_only: true })
            })
        });
        weights
            .chain(self.state().map(written("state")))
            .chain(std::iter::once(self.io()).map(written("io")))
            .chain(self.speculation().map(written("speculation")))
            .chain(self.activations().map(written("activations")))
            .chain(self.handed().map(written("handed over")))
    }
}

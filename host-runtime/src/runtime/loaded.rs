//! A model that is loaded: what it has on a device, and how a program of it is run there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use hexflash_abi::accept::REPORTS;
use hexflash_abi::message::{Exec, MatrixUnit, Message, MessageKind, Range, Run};
use hexflash_abi::program::{Numerics, TensorFlags};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::{BufferId, ErrorCode, Fault, Seq};
use xxhash_rust::xxh3::xxh3_128;
use zerocopy::IntoBytes;

use super::copy_error::CopyError;
use super::encoder::PictureEncoder;
use super::error::EngineError;
use super::files::ModelFiles;
use super::kind::ProgramKind;
use super::layouts::Holds;
use super::memory::MemoryPlan;
use super::options::EngineOptions;
use super::pieces::{Piece, is_cache, kept_by_sequences};
use super::plan::{ImagePlan, Plan};
use super::stage::SessionProgram;
use super::stats::StepStats;
use super::{identity, sharing};
use crate::device::{Buffer, Device, DeviceError, KeptAccess, SessionSet, SharedMemory, Source};
use crate::gguf::Gguf;
use crate::model::{
    DRAFT_PREFIX, Decoder, DraftModel, IoLayout, Kept, KeptLayout, MAX_STOPS, MAX_VERIFY, ModelError,
    PatchGrid, Purpose, ROUND_WORDS, Region, Rollback,
};
use crate::record::Site;
use crate::weights::{ImageOptions, ImageRange, WeightImage};

/// Warning where the matrix unit was wanted and cannot be trusted.
const NO_TRUST: &str = "the device's matrix unit (HMX) failed its test: products are computed without it";

/// A model on a device: weights, memory and programs.
pub(crate) struct Runtime {
    device: Box<dyn Device>,
    target: Decoder,
    draft: Option<Box<dyn DraftModel>>,
    encoder: Option<PictureEncoder>,
    /// Which model and draft they are.
    identity: u128,
    plan: MemoryPlan,
    warnings: Vec<String>,
    batch: u32,
    io: Buffer,
    layout: IoLayout,
    kept: KeptLayout,
    /// Caches and states, each session's part.
    state: Vec<Buffer>,
    /// State of speculation beside them; a dense target without a draft has none.
    speculation: Option<Buffer>,
    /// Where in it the tokens are that the draft guessed last.
    drafts_at: usize,
    /// Weights that are mapped, part by part.
    weights: Vec<MappedWeights>,
    /// Activations of each session.
    activations: Vec<Buffer>,
    /// What sessions hand over, if there are several.
    handed: Option<Buffer>,
    stages: Vec<SessionProgram>,
    /// A row of logits.
    logits: Vec<f32>,
    stats: StepStats,
}

/// Weights that some sessions have mapped.
struct MappedWeights {
    sessions: SessionSet,
    source: Arc<dyn Source>,
    buffer: Buffer,
}

impl MappedWeights {
    fn map(device: &mut dyn Device, sessions: SessionSet, stretch: ImageRange) -> Result<Self, DeviceError> {
        let source: Arc<dyn Source> = Arc::new(stretch);
        let buffer = device.import_in(sessions, Arc::clone(&source))?;
        Ok(Self { sessions, source, buffer })
    }

    /// Maps them on a device that was started again, under the id that they had.
    fn again(&mut self, device: &mut dyn Device) -> Result<(), EngineError> {
        let new = device.import_in(self.sessions, Arc::clone(&self.source))?;
        self.buffer = same_id(&self.buffer, new)?;
        Ok(())
    }
}

/// Allocates a buffer as large as the one before, which must get its id: programs name it.
fn again(device: &mut dyn Device, sessions: SessionSet, old: &Buffer) -> Result<Buffer, EngineError> {
    let new = device.allocate_in(sessions, old.memory.len() as u64)?;
    same_id(old, new)
}

fn same_id(old: &Buffer, new: Buffer) -> Result<Buffer, EngineError> {
    if new.id == old.id {
        return Ok(new);
    }
    let reason = format!("buffer {} became buffer {}", old.id, new.id);
    Err(DeviceError::Lost { reason }.into())
}

/// Allocates what speculation keeps, with the tables that a draft model's programs only read.
fn allocate_speculation(
    device: &mut dyn Device,
    bytes: u64,
    draft: Option<&dyn DraftModel>,
    kept: &KeptLayout,
) -> Result<Buffer, DeviceError> {
    device.allocate_filled(bytes, &mut |memory| {
        for (label, values) in draft.iter().flat_map(|draft| draft.tables()) {
            memory.write(kept.place(&label).offset as usize, values.as_bytes());
        }
    })
}

/// Repacks the weights of an image for `device`, or takes them from the cache.
fn load_image(
    gguf: &Gguf,
    plan: &ImagePlan,
    image: &ImageOptions<'_>,
    device: &dyn Device,
) -> Result<WeightImage, EngineError> {
    let load = if device.copies_imports() { WeightImage::load_to_copy } else { WeightImage::load };
    Ok(load(gguf, &plan.specs, &ImageOptions { part: plan.part, ..image.clone() })?)
}

impl Runtime {
    /// Loads a target onto a device, with a draft model or an encoder of pictures if there is one.
    ///
    /// # Errors
    /// A model cannot be run, a setting is out of range, the device has no room, or loading was cancelled.
    pub(crate) fn load(
        files: ModelFiles<'_>,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        Self::load_what(Holds::Target, files, device, options, image)
    }

    /// Loads a draft model onto a device of its own, with what it shares with its target.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub(crate) fn load_draft(
        target: &Gguf,
        draft: &Gguf,
        device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        let files = ModelFiles::of(target).with_draft(Some(draft));
        Self::load_what(Holds::Draft, files, device, options, image)
    }

    /// Makes a plan, and does what it says.
    fn load_what(
        holds: Holds,
        files: ModelFiles<'_>,
        mut device: Box<dyn Device>,
        options: &EngineOptions,
        image: &ImageOptions<'_>,
    ) -> Result<Self, EngineError> {
        image.cancel.check()?;
        let (mut options, mut warnings) = (options.clone(), Vec::new());
        if options.numerics.wants_matrix_unit() && device.info().matrix_unit == MatrixUnit::Failed {
            options.numerics = Numerics::Exact;
            warnings.push(NO_TRUST.to_owned());
        }
        let plan = Plan::new(holds, files, &options, device.info().sessions)?;
        if !plan.target.is_causal() && !options.vectors {
            return Err(EngineError::WritesNoText { arch: plan.target.arch });
        }
        let mut names: HashMap<BufferId, BufferId> = HashMap::new();
        let mut weights = Vec::new();
        for (gguf, planned) in files.iter().zip(&plan.images) {
            let loaded = load_image(gguf, planned, image, &*device)?;
            warnings.extend_from_slice(loaded.warnings());
            for part in &planned.mapped {
                let range = ImageRange::new(&loaded, part.range.clone());
                let mapped = MappedWeights::map(&mut *device, part.sessions, range)?;
                names.insert(part.id, mapped.buffer.id);
                weights.push(mapped);
            }
        }
        let mut in_session = |device: &mut dyn Device, session, (id, bytes)| {
            let buffer = device.allocate_in(SessionSet::one(session), bytes)?;
            names.insert(id, buffer.id);
            Ok::<_, DeviceError>(buffer)
        };
        let state = plan.state().enumerate().map(|(n, part)| in_session(&mut *device, n, part));
        let state = state.collect::<Result<Vec<_>, _>>()?;
        let io = device.allocate(plan.io().1)?;
        let kept = plan.kept();
        let speculation = plan
            .speculation()
            .map(|(_, bytes)| allocate_speculation(&mut *device, bytes, plan.draft.as_deref(), kept));
        let speculation = speculation.transpose()?;
        let activations = plan.activations().enumerate().map(|(n, part)| in_session(&mut *device, n, part));
        let activations = activations.collect::<Result<Vec<_>, _>>()?;
        let handed = plan.handed().map(|(_, bytes)| device.allocate(bytes)).transpose()?;
        let shared = [(Some(plan.io()), Some(&io)), (plan.speculation(), speculation.as_ref())];
        for (planned, buffer) in shared.into_iter().chain([(plan.handed(), handed.as_ref())]) {
            names.extend(planned.zip(buffer).map(|((id, _), buffer)| (id, buffer.id)));
        }
        let memory = plan.memory(device.info());
        let name = |id: BufferId| names.get(&id).copied().unwrap_or(id);
        let mut stages = Vec::new();
        for block in plan.blocks(&name) {
            let block = block?;
            let sites = block.recorded.sites(block.session).to_vec();
            let stage = SessionProgram {
                session: block.session,
                program: block.program.id(),
                bytes: block.bytes,
                sites,
            };
            image.cancel.check()?;
            stage.load(&mut *device)?;
            stages.push(stage);
        }
        tracing::info!("model loaded: {memory}");
        let drafts_at = plan.drafts_at();
        let encoder = files.encoder.zip(plan.encoder.clone());
        let encoder = encoder.map(|(file, encoder)| PictureEncoder::new(file, encoder)).transpose()?;
        Ok(Self {
            identity: identity::identity(files).map_err(ModelError::from)?,
            logits: vec![0.0; plan.target.n_vocab as usize],
            batch: plan.options.batch,
            target: plan.target,
            draft: plan.draft,
            encoder,
            plan: memory,
            warnings,
            io,
            layout: plan.layouts.io,
            kept: plan.layouts.kept,
            state,
            speculation,
            drafts_at,
            device,
            weights,
            activations,
            handed,
            stages,
            stats: StepStats::default(),
        })
    }

    /// The target.
    pub(crate) fn target(&self) -> &Decoder {
        &self.target
    }

    /// The draft model that it has.
    pub(crate) fn draft(&self) -> Option<&dyn DraftModel> {
        self.draft.as_deref()
    }

    /// Tokens of a block of the draft.
    ///
    /// # Errors
    /// There is no draft model.
    pub(crate) fn draft_block(&self) -> Result<u32, EngineError> {
        let draft = self.draft().ok_or(EngineError::Without { what: "a draft model" })?;
        Ok(draft.block())
    }

    /// The encoder of pictures that it has.
    pub(crate) fn encoder(&self) -> Option<&PictureEncoder> {
        self.encoder.as_ref()
    }

    /// The device.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Where caches, states and tapes lie.
    pub(crate) fn kept(&self) -> &KeptLayout {
        &self.kept
    }

    /// The memory that it takes.
    pub(crate) fn memory(&self) -> &MemoryPlan {
        &self.plan
    }

    /// Warnings of the loading, for users.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Adds warnings of what was loaded beside it.
    pub(crate) fn add_warnings(&mut self, more: &[String]) {
        self.warnings.extend_from_slice(more);
    }

    /// Positions of the context of each slot.
    pub(crate) fn n_ctx(&self) -> u32 {
        self.kept.n_ctx
    }

    /// Tokens of the longest prefill step.
    pub(crate) fn batch(&self) -> u32 {
        self.batch
    }

    /// Whether tokens can be verified and taken back.
    pub(crate) fn speculates(&self) -> bool {
        self.kept.rollback == Rollback::LastStep
    }

    /// Whether anything is kept, of the model or of the draft, that cannot be cut back by counting rows.
    pub(crate) fn has_states(&self) -> bool {
        self.kept.bytes(Purpose::Recurrent) > 0
    }

    /// What steps have cost since [`reset_stats`](Self::reset_stats).
    pub(crate) fn stats(&self) -> &StepStats {
        &self.stats
    }

    /// Sets the statistics to zero.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = StepStats::default();
    }

    /// The host has worked on a step since `start`.
    pub(crate) fn worked(&mut self, start: Instant) {
        self.stats.host += start.elapsed();
    }

    /// Starts a device again that was lost, and maps and loads everything under the ids that it had.
    ///
    /// # Errors
    /// The device failed again. The call can be repeated.
    pub(crate) fn restart(&mut self) -> Result<(), EngineError> {
        self.device.reset()?;
        let device = &mut *self.device;
        self.weights.iter_mut().try_for_each(|weights| weights.again(device))?;
        for (session, part) in self.state.iter_mut().enumerate() {
            *part = again(device, SessionSet::one(session), part)?;
        }
        let all = SessionSet::all(self.state.len());
        self.io = again(device, all, &self.io)?;
        if let Some(buffer) = &mut self.speculation {
            let bytes = buffer.memory.len() as u64;
            let new = allocate_speculation(device, bytes, self.draft.as_deref(), &self.kept)?;
            *buffer = same_id(buffer, new)?;
        }
        for (session, activations) in self.activations.iter_mut().enumerate() {
            *activations = again(device, SessionSet::one(session), activations)?;
        }
        if let Some(handed) = &mut self.handed {
            *handed = again(device, all, handed)?;
        }
        self.stages.iter().try_for_each(|stage| stage.load(device))
    }

    /// Runs `program` with these blocks of registers, and waits for it.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`finish`](Self::finish).
    pub(crate) fn run(&mut self, program: ProgramKind, rows: &[StepRegisters]) -> Result<(), EngineError> {
        let seq = self.send(program, rows)?;
        self.finish(program, seq)
    }

    /// Writes blocks of registers, one for each sequence of a step, and sends `program` with them.
    ///
    /// # Errors
    /// The device takes no more messages.
    pub(crate) fn send(&mut self, program: ProgramKind, rows: &[StepRegisters]) -> Result<Seq, EngineError> {
        let start = Instant::now();
        self.write_registers(rows);
        let seq = self.submit(program, rows.len())?;
        self.worked(start);
        Ok(seq)
    }

    /// Sends `program` with the first `n` blocks of registers as they are in shared memory when it is its
    /// turn.
    ///
    /// # Errors
    /// The device takes no more messages.
    pub(crate) fn submit(&mut self, program: ProgramKind, n: usize) -> Result<Seq, EngineError> {
        let len = (n * size_of::<StepRegisters>()) as u32;
        let registers = Range { buffer: self.io.id, len, offset: IoLayout::REGISTERS };
        let exec = Exec { program: program.id(), reserved: 0, registers };
        self.stats.messages += 1;
        Ok(self.device.submit(&Message::Exec(exec))?)
    }

    /// Waits for the answer to `seq`, which ran `program` and must be a success.
    ///
    /// # Errors
    /// The device failed, or the program did.
    pub(crate) fn finish(&mut self, program: ProgramKind, seq: Seq) -> Result<(), EngineError> {
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
        self.worked(start);
        Ok(())
    }

    /// Waits for so many answers, and does not look at them.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn drop_answers(&mut self, n: usize) -> Result<(), EngineError> {
        let patience = self.device.patience();
        (0..n).try_for_each(|_| self.device.wait(patience).map(drop))?;
        Ok(())
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

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.io.memory.write(at as usize, bytes);
        self.stats.host_bytes += bytes.len() as u64;
    }

    /// Writes blocks of registers.
    pub(crate) fn write_registers(&mut self, rows: &[StepRegisters]) {
        self.write(IoLayout::REGISTERS, rows.as_bytes());
    }

    /// The first block of registers, as the device has left it.
    pub(crate) fn registers(&self) -> StepRegisters {
        let mut registers = StepRegisters::default();
        self.io.memory.read(IoLayout::REGISTERS as usize, registers.as_mut_bytes());
        registers
    }

    /// Writes the tokens of a step: ids below `n_vocab`, which is below 2^20.
    pub(crate) fn write_tokens(&mut self, tokens: &[u32]) {
        self.write(self.layout.tokens, tokens.as_bytes());
    }

    /// Writes rows of a picture, F32 `{n_embd, ..}`, for a step that takes them in place of tokens.
    pub(crate) fn write_picture(&mut self, rows: &[f32]) {
        self.write(self.layout.picture, rows.as_bytes());
    }

    /// Makes rows of a tile: its patches are F32 `{patch values, ..}`, next to each other those that become
    /// one row.
    ///
    /// # Errors
    /// There is no encoder, or the device failed.
    pub(crate) fn encode(&mut self, grid: PatchGrid, patches: &[f32]) -> Result<Vec<f32>, EngineError> {
        let Self { encoder, io, layout, stats, .. } = self;
        let encoder = encoder.as_mut().ok_or(EngineError::Without { what: "an encoder of pictures" })?;
        let (n, rows) = (grid.len(), grid.len() / encoder.model().patches_per_row());
        let mut values = vec![0f32; (rows * encoder.model().n_out) as usize];
        for (at, values) in [(layout.patches, patches), (layout.positions, encoder.positions(grid))] {
            io.memory.write(at as usize, values.as_bytes());
            stats.host_bytes += size_of_val(values) as u64;
        }
        if encoder.model().has_places() {
            let all = || grid.patches(encoder.model().merge);
            let places: [Vec<u32>; 2] = [all().map(|(x, _)| x).collect(), all().map(|(_, y)| y).collect()];
            for (at, values) in layout.places.into_iter().zip(&places) {
                io.memory.write(at as usize, values.as_bytes());
                stats.host_bytes += size_of_val(&values[..]) as u64;
            }
        }
        self.run(ProgramKind::Encode, &[StepRegisters::step(0, n)])?;
        self.run(ProgramKind::Project, &[StepRegisters::step(0, rows)])?;
        self.io.memory.read(self.layout.picture as usize, values.as_mut_bytes());
        self.stats.host_bytes += size_of_val(&values[..]) as u64;
        Ok(values)
    }

    /// Writes which rows of a step have logits, or which row takes its features.
    pub(crate) fn write_rows(&mut self, rows: &[u32]) {
        self.write(self.layout.row, rows.as_bytes());
    }

    /// Writes the ids that end a text, of which there are at most [`MAX_STOPS`].
    pub(crate) fn write_stops(&mut self, ids: &[u32]) {
        let mut stops = [-1i32; MAX_STOPS as usize];
        for (place, &id) in stops.iter_mut().zip(ids) {
            *place = id as i32;
        }
        self.write(self.layout.stops, stops.as_bytes());
    }

    /// Writes the tokens that rows are followed by, where another device has found them.
    pub(crate) fn write_best(&mut self, tokens: &[u32]) {
        self.write(self.layout.argmax, tokens.as_bytes());
    }

    /// The best token of row `row` of the last step.
    pub(crate) fn best(&mut self, row: usize) -> u32 {
        let start = Instant::now();
        let mut best = [0; 4];
        self.io.memory.read(self.layout.argmax as usize + 4 * row, &mut best);
        self.stats.host_bytes += 4;
        self.worked(start);
        u32::from_le_bytes(best)
    }

    /// The logits of row `row` of the last step.
    pub(crate) fn logits(&mut self, row: usize) -> &[f32] {
        let at = self.layout.logits as usize + 4 * row * self.logits.len();
        self.io.memory.read(at, self.logits.as_mut_bytes());
        self.stats.host_bytes += 4 * self.logits.len() as u64;
        &self.logits
    }

    /// Reads the first tokens that the draft guessed last, as many as `drafts` has places for.
    ///
    /// # Errors
    /// There is no draft model.
    pub(crate) fn read_drafts(&mut self, drafts: &mut [u32]) -> Result<(), EngineError> {
        let buffer = self.speculation.as_ref().ok_or(EngineError::Without { what: "a draft model" })?;
        buffer.memory.read(self.drafts_at, drafts.as_mut_bytes());
        self.stats.host_bytes += 4 * drafts.len() as u64;
        Ok(())
    }

    /// Reads the margins of the tokens that were drafted last, as many as `margins` has places for.
    pub(crate) fn read_margins(&mut self, margins: &mut [f32]) {
        let n = margins.len().min(MAX_VERIFY as usize);
        self.io.memory.read(self.layout.margins as usize, margins[..n].as_mut_bytes());
        self.stats.host_bytes += 4 * n as u64;
    }

    /// The report of round number `round`.
    pub(crate) fn report(&mut self, round: u32) -> [u32; ROUND_WORDS as usize] {
        let mut words = [0u32; ROUND_WORDS as usize];
        let at = self.layout.rounds as usize + round as usize % REPORTS * 4 * ROUND_WORDS as usize;
        self.io.memory.read(at, words.as_mut_bytes());
        self.stats.host_bytes += size_of_val(&words) as u64;
        words
    }

    /// Writes the features of tokens that another device has run.
    pub(crate) fn write_features(&mut self, rows: &[f32]) {
        self.write(self.layout.probes, rows.as_bytes());
    }

    /// Reads row `row` of tap `tap` of a step whose program has room for `rows` rows, into `n_embd` values.
    pub(crate) fn read_tap(&mut self, tap: usize, rows: usize, row: usize, values: &mut [f32]) {
        self.peek_tap(tap, rows, row, values);
        self.stats.host_bytes += size_of_val(values) as u64;
    }

    /// As [`read_tap`](Self::read_tap), for tests, which cost nothing.
    pub(crate) fn peek_tap(&self, tap: usize, rows: usize, row: usize, values: &mut [f32]) {
        let at = 4 * self.target.n_embd as usize * (tap * rows + row);
        self.io.memory.read(self.layout.probes as usize + at, values.as_mut_bytes());
    }

    /// Whether the host can copy what is kept here.
    pub(crate) fn copies_sequences(&self) -> bool {
        self.device.kept_access() != KeptAccess::Never
    }

    /// What tells whether a copy fits: the model, its caches, the device, and what made the copy.
    pub(crate) fn origin(&self) -> u128 {
        let mut text = format!("{:032x}", self.identity);
        let info = self.device.info();
        // All of this machine's instruction sets give the same bits.
        let kind = if info.name == "inproc" { &info.name } else { &info.description };
        text.push_str(&format!("\n{kind}\n{}\n{:x}", env!("CARGO_PKG_VERSION"), hexflash_abi::LAYOUT_HASH));
        for (label, kept) in kept_by_sequences(&self.kept) {
            let Kept { dtype, ne: [n0, n1, n2, _], .. } = kept;
            // The positions of whole contexts do not matter: only their rows are copied.
            let n1 = if is_cache(kept.purpose) && n1 == self.kept.n_ctx { 0 } else { n1 };
            let n2 = if is_cache(kept.purpose) { n2 } else { 0 };
            text.push_str(&format!("\n{label} {dtype:?} {n0} {n1} {n2}"));
        }
        xxh3_128(text.as_bytes())
    }

    /// Makes memory what the device keeps, until the next step.
    ///
    /// # Errors
    /// The device failed, or the host cannot see what it keeps ([`CopyError::Hidden`]).
    pub(crate) fn share(&mut self) -> Result<(), EngineError> {
        self.maintain(TensorFlags::HOST_READS)
    }

    /// Makes the device see what was written since [`share`](Self::share).
    ///
    /// # Errors
    /// As [`share`](Self::share).
    pub(crate) fn take_over(&mut self) -> Result<(), EngineError> {
        self.maintain(TensorFlags::HOST_WRITES)
    }

    /// Asks the device's caches to write back all that it keeps between steps, or to drop it.
    fn maintain(&mut self, flags: TensorFlags) -> Result<(), EngineError> {
        match self.device.kept_access() {
            KeptAccess::Always => return Ok(()),
            KeptAccess::AfterRun => {}
            KeptAccess::Never => return Err(CopyError::Hidden.into()),
        }
        let bytes = sharing::block(self.state.iter().chain(&self.speculation), flags)?;
        let buffer = self.device.allocate(bytes.len() as u64)?;
        buffer.memory.write(0, &bytes);
        self.write_registers(&[StepRegisters::step(0, 1)]);
        let range = |buffer: BufferId, len: usize, offset| Range { buffer, len: len as u32, offset };
        let registers = range(self.io.id, size_of::<StepRegisters>(), IoLayout::REGISTERS);
        let run = Run { block: range(buffer.id, bytes.len(), 0), registers };
        let patience = self.device.patience();
        self.stats.messages += 1;
        let ran = self.device.call(&Message::Run(run), patience);
        // The block is of no use, whatever became of it; a device that is lost has nothing mapped any more.
        let freed = self.device.free(buffer);
        ran?;
        Ok(freed?)
    }

    /// The memory of a piece, and where in it the piece begins.
    fn home(&self, piece: &Piece) -> Option<(&SharedMemory, usize)> {
        match piece.region {
            Region::State => {
                let (session, at) = self.kept.home(piece.offset);
                Some((&self.state.get(session)?.memory, at as usize))
            }
            Region::Speculation => Some((&self.speculation.as_ref()?.memory, piece.offset as usize)),
            // Nothing that outlives two steps lies there.
            Region::Activations => None,
        }
    }

    /// The bytes of pieces, one after the other.
    pub(crate) fn read_pieces(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut bytes = vec![0; pieces.iter().map(|piece| piece.bytes).sum()];
        let mut rest = &mut bytes[..];
        for piece in pieces {
            let (here, after) = rest.split_at_mut(piece.bytes);
            if let Some((memory, at)) = self.home(piece) {
                memory.read(at, here);
            }
            rest = after;
        }
        bytes
    }

    /// Writes what [`read_pieces`](Self::read_pieces) gave: there are as many bytes as the pieces have.
    pub(crate) fn write_pieces(&self, pieces: &[Piece], mut bytes: &[u8]) {
        for piece in pieces {
            let (here, after) = bytes.split_at(piece.bytes);
            if let Some((memory, at)) = self.home(piece) {
                memory.write(at, here);
            }
            bytes = after;
        }
    }

    /// The memory of each session's caches and states, for tests.
    pub(crate) fn state_memory(&self) -> impl Iterator<Item = &SharedMemory> {
        self.state.iter().map(|part| &part.memory)
    }
}

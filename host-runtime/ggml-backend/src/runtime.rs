//! The device: its memory, and programs of graphs, which are translated and loaded once and then run again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use hexflash::device::{self, Buffer, Device, DeviceError, MatrixUnit, SharedMemory};
use hexflash::record::{Homes, RecordError};
use hexflash_abi::message::{Exec, Load, Message, Range, Unload};
use hexflash_abi::program::{MAX_PROGRAMS, Numerics};
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{BufferId, ErrorCode, ProgramId};
use zerocopy::IntoBytes;

use crate::abi::Tensor;
use crate::graph::{HostGraph, Key, Name, name_of};
use crate::options::Options;
use crate::tiles;
use crate::times::Times;
use crate::translate::{Groups, Place, Places, REGISTERS, Refusal, TileJob, Translator, needs_tiles};

/// What does not depend on a run lies behind the registers in the control buffer.
const BLOCK_AT: u64 = size_of_val(&REGISTERS) as u64;

/// Most names of graphs that are remembered. Hosts give a new one to each graph that they make.
const MAX_NAMES: usize = 256;

/// Why a graph was not computed.
#[derive(Debug)]
pub enum Failure {
    /// The device failed, or refuses it.
    Device(DeviceError),
    /// It could not be recorded.
    Record(RecordError),
    /// A node does not run here, although it was asked for.
    Node(String, Refusal),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Record(error) => error.fmt(f),
            Self::Node(name, Refusal(why)) => write!(f, "node {name} does not run here: {why}"),
        }
    }
}

/// A node that does not run here.
fn refused(node: &Tensor, why: Refusal) -> Failure {
    Failure::Node(name_of(node), why)
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

/// A buffer of ggml's.
struct Region {
    bytes: u64,
    buffer: Buffer,
    tiled: bool,
}

/// A graph's program. Where memory is freed, no program stays.
struct Program {
    /// Under which the device has it; `None` for graphs in which nothing is to do.
    id: Option<ProgramId>,
    /// Matrices to put into tiles, and the memory that they are in.
    jobs: Vec<(TileJob, SharedMemory)>,
    /// Nodes of the graph, and ops that they became.
    size: [usize; 2],
    /// Number of the last run.
    last: u64,
}

/// An open device.
pub struct Runtime {
    device: Box<dyn Device>,
    /// By address of the first byte.
    regions: BTreeMap<usize, Region>,
    activations: Option<Buffer>,
    tiles: Option<Buffer>,
    control: Option<Buffer>,
    programs: HashMap<Key, Program>,
    /// The keys of graphs that the host has named.
    names: HashMap<Name, Key>,
    runs: u64,
    times: Times,
    /// The class of programs, as long as the device's matrix unit works.
    numerics: Numerics,
    /// Whether the device tells how long each kind of ops takes.
    by_kind: bool,
    /// Whether the device failed, and is to be started again before it is asked for anything.
    lost: bool,
}

/// The open devices by session, as long as anybody uses them.
static OPEN: Mutex<BTreeMap<usize, Weak<Mutex<Runtime>>>> = Mutex::new(BTreeMap::new());

/// A lock whose value is whole whatever happened to its last holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device of a session: opened, unless somebody has it open.
///
/// # Errors
/// It cannot be opened.
pub fn open(options: &Options, session: usize) -> Result<Arc<Mutex<Runtime>>, DeviceError> {
    let mut open = lock(&OPEN);
    if let Some(runtime) = open.get(&session).and_then(Weak::upgrade) {
        return Ok(runtime);
    }
    let device = open_session(options, session)?;
    let runtime = Runtime { by_kind: options.times, ..Runtime::new(device).numerics(options.numerics) };
    let runtime = Arc::new(Mutex::new(runtime));
    open.insert(session, Arc::downgrade(&runtime));
    Ok(runtime)
}

/// Opens a session, counted from 0.
///
/// # Errors
/// It cannot be opened.
pub fn open_session(options: &Options, session: usize) -> Result<Box<dyn Device>, DeviceError> {
    let mut settings = options.settings.clone();
    if session > 0 {
        // The first session is the DSP's own; others are asked for.
        settings.htp.get_or_insert_default().reserve = true;
    }
    device::open(&options.device, &settings)
}

impl Places for Runtime {
    fn place(&self, tensor: &Tensor) -> Option<Place> {
        let address = tensor.data as usize;
        let (base, region) = self.regions.range(..=address).next_back()?;
        let offset = (address - base) as u64;
        (offset < region.bytes).then_some(Place { buffer: region.buffer.id, offset, tiled: region.tiled })
    }

    fn packs_each_time(&self, _: &Tensor) -> bool {
        true
    }
}

impl Runtime {
    /// A device with nothing mapped.
    pub fn new(device: Box<dyn Device>) -> Self {
        Self {
            device,
            regions: BTreeMap::new(),
            activations: None,
            tiles: None,
            control: None,
            programs: HashMap::new(),
            names: HashMap::new(),
            runs: 0,
            times: Times::default(),
            numerics: Numerics::Exact,
            by_kind: false,
            lost: false,
        }
    }

    /// With the class that programs are to have: exact, unless this says otherwise. They are exact, too,
    /// where the device has no matrix unit that works.
    #[must_use]
    pub fn numerics(self, numerics: Numerics) -> Self {
        Self { numerics, ..self }
    }

    /// Memory for a buffer of ggml's.
    ///
    /// # Errors
    /// There is none.
    pub fn allocate(&mut self, bytes: usize, tiled: bool) -> Result<Buffer, DeviceError> {
        self.start_again()?;
        let buffer = self.device.allocate(bytes as u64).inspect_err(|error| self.lost = error.is_loss())?;
        let address = buffer.memory.base().as_ptr() as usize;
        self.regions.insert(address, Region { bytes: bytes as u64, buffer: buffer.clone(), tiled });
        Ok(buffer)
    }

    /// Gives back the buffer with this memory.
    pub fn free(&mut self, memory: &SharedMemory) {
        let Some(region) = self.regions.remove(&(memory.base().as_ptr() as usize)) else { return };
        if self.lost {
            // It has no mappings and no programs any more.
            return;
        }
        self.forget_programs();
        self.lost = self.device.free(region.buffer).is_err_and(|error| error.is_loss());
    }

    /// Starts a device again that was lost. All memory of ggml's stays where it is, with what is in it;
    /// programs, and what is ours alone, are made anew when they are wanted.
    ///
    /// # Errors
    /// The device cannot be started. The call can be repeated.
    fn start_again(&mut self) -> Result<(), DeviceError> {
        if !self.lost {
            return Ok(());
        }
        self.programs.clear();
        (self.activations, self.tiles, self.control) = (None, None, None);
        self.device.reset()?;
        for region in self.regions.values_mut() {
            region.buffer = self.device.map_again(&region.buffer.memory)?;
        }
        self.lost = false;
        Ok(())
    }

    /// Computes a graph. If the device is lost, this graph fails, and the next one finds it started again.
    ///
    /// # Errors
    /// The device fails, or refuses the graph; a node does not run here.
    pub fn compute(&mut self, graph: HostGraph<'_>) -> Result<(), Failure> {
        self.start_again()?;
        let outcome = self.load_and_run(graph);
        if let Err(Failure::Device(error)) = &outcome {
            self.lost = error.is_loss();
        }
        outcome
    }

    fn load_and_run(&mut self, graph: HostGraph<'_>) -> Result<(), Failure> {
        let start = Instant::now();
        let (key, is_new) = self.loaded(graph)?;
        if is_new {
            self.times.loaded(start.elapsed());
        }
        self.runs += 1;
        let Some(program) = self.programs.get_mut(&key) else { return Ok(()) };
        program.last = self.runs;
        let Some(id) = program.id else { return Ok(()) };
        for (job, from) in &program.jobs {
            if let Some(to) = &self.tiles {
                tiles::pack(job, from, &to.memory);
            }
        }
        let Some(control) = &self.control else { return Ok(()) };
        let registers = Range { buffer: control.id, len: BLOCK_AT as u32, offset: 0 };
        let exec = Message::Exec(Exec { program: id, reserved: 0, registers });
        let patience = self.device.patience();
        let response = self.device.call(&exec, patience)?;
        if !is_new {
            let device = Duration::from_nanos(response.elapsed_ns);
            self.times.ran(program.size, start.elapsed(), device, response.info);
        }
        Ok(())
    }

    /// Where the time of all graphs so far went.
    pub fn times(&self) -> Times {
        self.times
    }

    /// The key of a graph whose program is loaded, and whether it was loaded only now. Where the host has a
    /// name for the graph, its nodes are looked at once.
    fn loaded(&mut self, graph: HostGraph<'_>) -> Result<(Key, bool), Failure> {
        let name = graph.name();
        if let Some(key) = name.and_then(|name| self.names.get(&name)).copied()
            && self.programs.contains_key(&key)
        {
            debug_assert!(graph.key(&graph.nodes()) == key, "two graphs of one name");
            return Ok((key, false));
        }
        let nodes = graph.nodes();
        let key = graph.key(&nodes);
        let is_new = !self.programs.contains_key(&key);
        if is_new {
            let program = self.load(graph, &nodes)?;
            self.programs.insert(key, program);
        }
        if self.names.len() == MAX_NAMES {
            self.names.clear();
        }
        self.names.extend(name.map(|name| (name, key)));
        Ok((key, is_new))
    }

    /// Translates and loads a graph.
    fn load(&mut self, graph: HostGraph<'_>, nodes: &[&Tensor]) -> Result<Program, Failure> {
        let mut tile_bytes = 0;
        for node in nodes {
            tile_bytes += needs_tiles(node, self).map_err(|why| refused(node, why))?;
        }
        self.make_room(|runtime| &mut runtime.tiles, tile_bytes)?;
        // What a group of nodes is as one op may be refused where the nodes are not.
        match self.load_with(&Groups::find(graph, nodes), nodes) {
            Err(Failure::Node(..) | Failure::Record(_)) => self.load_with(&Groups::none(), nodes),
            loaded => loaded,
        }
    }

    fn load_with(&mut self, groups: &Groups<'_>, nodes: &[&Tensor]) -> Result<Program, Failure> {
        let tiles = self.tiles.as_ref().map_or(BufferId(u32::MAX), |tiles| tiles.id);
        let works = self.device.info().matrix_unit == MatrixUnit::Works;
        let numerics = if works { self.numerics } else { Numerics::Exact };
        let mut translator = Translator::new(self, tiles).by_kind(self.by_kind).numerics(numerics);
        for node in nodes {
            translator.node_of(groups, node).map_err(|why| refused(node, why))?;
        }
        let translation = translator.finish();
        let recorded = translation.recorder.finish()?;
        let memory = |id: BufferId| {
            let region = self.regions.values().find(|region| region.buffer.id == id);
            region.map(|region| region.buffer.memory.clone())
        };
        let jobs = translation.jobs.into_iter().filter_map(|job| Some((job, memory(job.from.buffer)?)));
        let (jobs, size) = (jobs.collect(), [nodes.len(), recorded.ops()]);
        let mut program = Program { id: None, jobs, size, last: 0 };
        if recorded.ops() == 0 {
            return Ok(program);
        }
        self.make_room(|runtime| &mut runtime.activations, recorded.activation_bytes)?;
        let activations = self.activations.as_ref().map_or(BufferId(u32::MAX), |buffer| buffer.id);
        let homes = Homes { activations, kept_at: recorded.activation_bytes, handed: activations };
        let block = recorded.block(0, &homes, |id| self.info(id))?;
        self.make_room(|runtime| &mut runtime.control, BLOCK_AT + block.len() as u64)?;
        let Some(control) = self.control.clone() else { return Ok(program) };
        control.memory.write(0, REGISTERS.as_bytes());
        control.memory.write(BLOCK_AT as usize, &block);
        let id = self.free_id()?;
        let block = Range { buffer: control.id, len: block.len() as u32, offset: BLOCK_AT };
        let load = Load { program: id, reserved: 0, block };
        let mut loaded = self.device.load_in(0, &load);
        if let Err(DeviceError::Fault { fault, .. }) = &loaded
            && fault.code == ErrorCode::ProgramTooLarge
        {
            // Others have the room.
            self.forget_programs();
            loaded = self.device.load_in(0, &load);
        }
        loaded?;
        program.id = Some(id);
        Ok(program)
    }

    fn info(&self, id: BufferId) -> Option<BufferInfo> {
        let own = [&self.activations, &self.tiles].into_iter().flatten();
        let mut buffers = self.regions.values().map(|region| &region.buffer).chain(own);
        let buffer = buffers.find(|buffer| buffer.id == id)?;
        Some(BufferInfo { size: buffer.memory.len() as u64, read_only: false })
    }

    /// Makes one of our own buffers at least so large. Programs name buffers, so that those are forgotten.
    fn make_room(
        &mut self,
        which: impl Fn(&mut Self) -> &mut Option<Buffer>,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        if which(self).as_ref().map_or(0, |buffer| buffer.memory.len() as u64) >= bytes {
            return Ok(());
        }
        self.forget_programs();
        if let Some(buffer) = which(self).take() {
            self.device.free(buffer)?;
        }
        // Half as much again: graphs grow with their batches.
        let buffer = self.device.allocate((bytes + bytes / 2).next_multiple_of(4096))?;
        *which(self) = Some(buffer);
        Ok(())
    }

    /// A number for a program, if need be that of the one which was not run for the longest time.
    fn free_id(&mut self) -> Result<ProgramId, DeviceError> {
        let taken = |id| self.programs.values().any(|program| program.id == Some(id));
        if let Some(id) = (0..MAX_PROGRAMS as u32).map(ProgramId).find(|&id| !taken(id)) {
            return Ok(id);
        }
        let oldest = self.programs.iter().filter(|(_, program)| program.id.is_some());
        let oldest = oldest.min_by_key(|(_, program)| program.last).map(|(key, _)| *key);
        match oldest.and_then(|key| self.programs.remove(&key)).and_then(|program| program.id) {
            Some(id) => {
                let patience = self.device.patience();
                self.device.call(&Message::Unload(Unload { program: id }), patience)?;
                Ok(id)
            }
            None => Ok(ProgramId(0)),
        }
    }

    /// Unloads all programs.
    fn forget_programs(&mut self) {
        let patience = self.device.patience();
        for id in self.programs.drain().filter_map(|(_, program)| program.id) {
            // A device that is lost has no programs either.
            let _ = self.device.call(&Message::Unload(Unload { program: id }), patience);
        }
    }
}

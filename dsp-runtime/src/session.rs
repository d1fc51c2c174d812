//! A session: mapped buffers, kept programs, and the answer to every message.
//!
//! The host is not trusted. A request is copied before it is looked at, ids and ranges are checked against
//! what is mapped, programs are validated on a private copy, register blocks are read once. Every request
//! gets one response.

use core::mem::size_of;
use core::ptr::NonNull;

use hexflash_abi::message::{
    Answer, Exec, Load, Map, MapFlags, MatrixUnit, Message, Ping, PingInfo, Probe, Range, Request, Response,
    Run, Unload, Unmap,
};
use hexflash_abi::program::{MAX_DST, MAX_PROGRAMS, MAX_SRC, PARTS, TensorFlags};
use hexflash_abi::registers::{Halt, Register, StepRegisters};
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{
    ABI_VERSION, BufferId, DType, ErrorCode, Fault, LAYOUT_HASH, MAGIC, ProgramId, Seq, Status, TensorIndex,
};
use zerocopy::{FromBytes, transmute};

use crate::buffers::BufferTable;
use crate::hmx;
use crate::kernels::shared::damage;
use crate::memory::View;
use crate::op_run::OpRun;
use crate::plan::{Resources, Units};
use crate::platform::{CacheOp, Platform};
use crate::pool::{Dispatcher, Workers};
use crate::probe;
use crate::program::{Arena, Loaded, LoadedView};
use crate::step::{MAX_BLOCKS, Step};
use crate::stream::StreamCounts;
use crate::table;

mod streamed;

use streamed::{OpStream, with_stream};

/// The state behind one queue.
pub struct Session<'d, 'p, P: Platform> {
    platform: &'p P,
    pool: Dispatcher<'d, 'p, P>,
    arena: Arena,
    buffers: BufferTable,
    programs: [Option<Loaded>; MAX_PROGRAMS],
    arch: u16,
    /// What the platform lends, but for a matrix unit that failed its test.
    units: Units,
    matrix_unit: MatrixUnit,
    /// The step at hand.
    step: Step,
}

/// How far a message got before it failed, which is what its status says.
enum Failure {
    /// Nothing ran.
    Refused(Fault),
    /// An op failed.
    Failed(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

impl<'d, 'p, P: Platform> Session<'d, 'p, P> {
    /// A session with nothing mapped. `arch` is the Hexagon architecture, 0 elsewhere. A matrix unit that a
    /// DSP's platform lends is tested first, and not used if it fails.
    pub fn new(platform: &'p P, mut pool: Dispatcher<'d, 'p, P>, arena: Arena, arch: u16) -> Self {
        let programs = [const { None }; MAX_PROGRAMS];
        let (buffers, step) = (BufferTable::new(), Step::new());
        let mut units = platform.units();
        let matrix_unit = match units.hmx {
            0 => MatrixUnit::None,
            _ if pool.matrix_unit_works() => MatrixUnit::Works,
            _ => MatrixUnit::Failed,
        };
        if matrix_unit != MatrixUnit::Works {
            units.hmx = 0;
        }
        Self { platform, pool, arena, buffers, programs, arch, units, matrix_unit, step }
    }

    /// What the weight stream has done since the last call.
    pub fn take_stream_counts(&mut self) -> StreamCounts {
        self.pool.take_stream_counts()
    }

    /// Answers one request, given as the bytes that arrived.
    pub fn handle(&mut self, bytes: &[u8]) -> Response {
        let start = self.platform.now_ns();
        let mut response = match Request::read_from_bytes(bytes) {
            Ok(request) => self.answer(&request),
            // There is no sequence number to echo in something that is not a request.
            Err(_) => {
                let fault = Fault::new(ErrorCode::BadMessage, bytes.len() as u32);
                Response::fault(Seq(u64::MAX), Status::Refused, fault)
            }
        };
        response.elapsed_ns = self.platform.now_ns().saturating_sub(start);
        response.dma_bytes = self.pool.take_moved();
        response
    }

    fn answer(&mut self, request: &Request) -> Response {
        let seq = request.seq;
        let outcome = Message::decode(request).map_err(Failure::from).and_then(|message| match message {
            Message::Ping(ping) => self.ping(&ping).map(|info| Some(transmute!(info))),
            Message::Map(map) => self.map(&map).map(|()| None),
            Message::Unmap(unmap) => self.unmap(&unmap).map(|()| None),
            Message::Load(load) => self.load(&load).map(|()| None),
            Message::Exec(exec) => self.exec(&exec).map(Some),
            Message::Run(run) => self.run(&run).map(Some),
            Message::Unload(unload) => self.unload(&unload).map(|()| None),
            Message::Probe(probe) => self.probe(&probe).map(|answer| Some(transmute!(answer))),
        });
        match outcome {
            Ok(info) => Response { info: info.unwrap_or([0; PARTS]), ..Response::ok(seq) },
            Err(Failure::Refused(fault)) => Response::fault(seq, Status::Refused, fault),
            // A DMA engine that failed cannot be used any more, and its transfers in flight are unknown: the
            // session must end.
            Err(Failure::Failed(fault))
                if matches!(fault.code, ErrorCode::DmaError | ErrorCode::DmaTimeout) =>
            {
                Response::fault(seq, Status::Fatal, fault)
            }
            Err(Failure::Failed(fault)) => Response::fault(seq, Status::Failed, fault),
        }
    }

    fn ping(&self, ping: &Ping) -> Result<PingInfo, Failure> {
        let refuse = |code, detail| Err(Failure::Refused(Fault::new(code, detail)));
        if ping.magic != MAGIC {
            return refuse(ErrorCode::BadMagic, ping.magic);
        }
        if ping.abi_version != ABI_VERSION {
            // The detail is our version: the host knows its own.
            return refuse(ErrorCode::AbiVersion, ABI_VERSION);
        }
        if ping.layout_hash != LAYOUT_HASH {
            return refuse(ErrorCode::LayoutHash, LAYOUT_HASH as u32);
        }
        Ok(PingInfo {
            abi_version: ABI_VERSION,
            layout_hash_low: LAYOUT_HASH as u32,
            n_threads: self.pool.workers() as u32,
            vtcm_bytes: self.pool.vtcm_bytes() as u32,
            arch: self.arch,
            matrix_unit: self.matrix_unit.wire(),
            arena_bytes: self.arena.bytes() as u32,
        })
    }

    fn map(&mut self, map: &Map) -> Result<(), Failure> {
        self.buffers.vacant(map.buffer)?;
        let flags =
            MapFlags::from_bits(map.flags).ok_or(Fault::new(ErrorCode::ReservedNotZero, map.flags))?;
        let info = BufferInfo { size: map.size, read_only: flags.contains(MapFlags::READ_ONLY) };
        Ok(self.buffers.map(self.platform, map.buffer, map.fd, info)?)
    }

    fn unmap(&mut self, unmap: &Unmap) -> Result<(), Failure> {
        for (id, loaded) in self.programs.iter().enumerate() {
            let Some(loaded) = loaded else { continue };
            if loaded.open(&self.arena)?.program.buffers.iter().any(|b| b.buffer == unmap.buffer) {
                return Err(Fault::new(ErrorCode::BufferBusy, id as u32).into());
            }
        }
        Ok(self.buffers.unmap(self.platform, unmap.buffer)?)
    }

    /// Drops every mapping and every loaded program: the end of a session in a process that may serve another
    /// one.
    pub fn unmap_all(&mut self) {
        for loaded in self.programs.iter_mut().filter_map(Option::take) {
            loaded.unload(&mut self.arena);
        }
        for id in (0..hexflash_abi::program::MAX_BUFFERS as u32).map(BufferId) {
            // Most ids have no buffer.
            let _ = self.buffers.unmap(self.platform, id);
        }
    }

    fn resources(&self) -> Resources {
        Resources { workers: self.pool.workers(), vtcm_bytes: self.pool.vtcm_bytes(), units: self.units }
    }

    fn load(&mut self, load: &Load) -> Result<(), Failure> {
        let id = load.program.0;
        match self.programs.get(id as usize) {
            None => return Err(Fault::new(ErrorCode::UnknownProgram, id).into()),
            Some(Some(_)) => return Err(Fault::new(ErrorCode::ProgramInUse, id).into()),
            Some(None) => {}
        }
        let loaded = self.load_block(load.block)?;
        // Checked at load, so that it cannot fail in the middle of a text: all that the program uses must be
        // mapped at once.
        let room = loaded
            .open(&self.arena)
            .and_then(|open| ensure_mapped(&mut self.buffers, self.platform, &open, None));
        if let Err(fault) = room {
            loaded.unload(&mut self.arena);
            return Err(fault.into());
        }
        self.programs[id as usize] = Some(loaded);
        Ok(())
    }

    fn load_block(&mut self, block: Range) -> Result<Loaded, Fault> {
        self.buffers.ensure_mapped(self.platform, core::iter::once(block.buffer))?;
        let shared = self.buffers.range(block)?;
        let bytes = block.len as usize;
        self.platform.cache(CacheOp::Invalidate, shared.as_ptr(), bytes);
        let resources = self.resources();
        // SAFETY: `ensure_mapped` has mapped the buffer, and `range` has checked that `bytes` from `shared`
        // on lie inside the mapping, which stays as long as this message is handled.
        unsafe { Loaded::load(&mut self.arena, shared, bytes, &self.buffers, resources, self.pool.streams()) }
    }

    fn unload(&mut self, unload: &Unload) -> Result<(), Failure> {
        let ProgramId(id) = unload.program;
        let loaded = self.programs.get_mut(id as usize).and_then(Option::take);
        loaded.ok_or(Fault::new(ErrorCode::UnknownProgram, id))?.unload(&mut self.arena);
        Ok(())
    }

    fn exec(&mut self, exec: &Exec) -> Result<PartCosts, Failure> {
        let table = self.read_step(exec.registers)?;
        let ProgramId(id) = exec.program;
        let loaded = self.programs.get(id as usize).and_then(Option::as_ref);
        let loaded = loaded.ok_or(Fault::new(ErrorCode::UnknownProgram, id))?;
        let open = loaded.open(&self.arena)?;
        ensure_mapped(&mut self.buffers, self.platform, &open, Some(table.range.buffer))?;
        let Self { platform, pool, buffers, step, .. } = self;
        platform.begin_program(id);
        execute(*platform, pool, buffers, &open, step, table)
    }

    fn run(&mut self, run: &Run) -> Result<PartCosts, Failure> {
        let table = self.read_step(run.registers)?;
        let loaded = self.load_block(run.block)?;
        let outcome = loaded.open(&self.arena).map_err(Failure::from).and_then(|open| {
            ensure_mapped(&mut self.buffers, self.platform, &open, Some(table.range.buffer))?;
            let Self { platform, pool, buffers, step, .. } = self;
            platform.begin_program(u32::MAX);
            execute(*platform, pool, buffers, &open, step, table)
        });
        loaded.unload(&mut self.arena);
        outcome
    }

    /// Answers a question about the processor. Of a matrix unit that failed its test, too: what it makes of
    /// sums is worth knowing.
    fn probe(&mut self, probe: &Probe) -> Result<Answer, Failure> {
        let question = probe.question()?;
        let mut data = core::ptr::null();
        if probe.data.len > 0 {
            self.buffers.ensure_mapped(self.platform, core::iter::once(probe.data.buffer))?;
            data = self.buffers.range(probe.data)?.as_ptr().cast_const();
            self.platform.cache(CacheOp::Invalidate, data, probe.data.len as usize);
        }
        let plan = probe::plan(question, probe, self.pool.workers(), self.pool.vtcm_bytes())?;
        let has_unit = hmx::IS_THERE && self.platform.units().hmx > 0;
        let Self { platform, pool, .. } = self;
        // SAFETY: (1) `question` and `plan` were made of this probe above. (2) `ensure_mapped` has mapped the
        // buffer, at a multiple of 128 (`Platform::map`), and `range` has checked that so many bytes from
        // `data` on lie inside of the mapping, which stays as long as this message is handled; `question` has
        // checked that the offset is a multiple of 128.
        let answer = unsafe { probe::answer(pool, *platform, question, probe, data, plan, has_unit) };
        answer.map_err(Failure::Failed)
    }

    /// Reads the register blocks of a step, each of them once.
    fn read_step(&mut self, range: Range) -> Result<RowTable, Fault> {
        let (bytes, block) = (range.len as usize, size_of::<StepRegisters>());
        if !bytes.is_multiple_of(block) {
            return Err(Fault::new(ErrorCode::OutOfBounds, range.buffer.0));
        }
        let count = bytes / block;
        if !(1..=MAX_BLOCKS).contains(&count) {
            return Err(Fault::new(ErrorCode::BadCount, count as u32));
        }
        if !range.offset.is_multiple_of(4) {
            return Err(Fault::new(ErrorCode::Misaligned, range.offset as u32));
        }
        self.buffers.ensure_mapped(self.platform, core::iter::once(range.buffer))?;
        let shared = self.buffers.range(range)?;
        self.platform.cache(CacheOp::Invalidate, shared.as_ptr(), bytes);
        let shared = shared.cast::<StepRegisters>();
        // SAFETY: `ensure_mapped` has mapped the buffer, at a multiple of 128 (`Platform::map`), and `range`
        // has checked that `count` times the bytes of a `StepRegisters` from `shared` on lie inside it, at an
        // offset that is a multiple of 4. Every bit pattern is a value of it. The reads are volatile because
        // the host may write them at any time: the copies are what is checked and used.
        self.step.begin((0..count).map(|i| unsafe { shared.add(i).read_volatile() }));
        let read_only = self.buffers.get(range.buffer).is_none_or(|m| m.info.read_only);
        Ok(RowTable { range, read_only })
    }
}

/// What each part of a program cost: see [`Platform::cost`].
type PartCosts = [u32; PARTS];

/// Where the register blocks of a step came from.
struct RowTable {
    range: Range,
    /// Programs may not write there.
    read_only: bool,
}

/// Makes sure that all buffers of a program are mapped, and the buffer `besides`.
fn ensure_mapped<P: Platform>(
    buffers: &mut BufferTable,
    platform: &P,
    open: &LoadedView<'_>,
    besides: Option<BufferId>,
) -> Result<(), Fault> {
    buffers.ensure_mapped(platform, open.program.buffers.iter().map(|b| b.buffer).chain(besides))
}

/// Runs an opened program, or nothing if the registers say that rounds have ended. A program that ends a
/// round leaves the registers in shared memory as they are at its end, for the next round, which may have
/// been sent already.
fn execute<P: Platform>(
    platform: &P,
    pool: &mut Dispatcher<'_, '_, P>,
    buffers: &BufferTable,
    open: &LoadedView<'_>,
    step: &mut Step,
    table: RowTable,
) -> Result<PartCosts, Failure> {
    let mut costs = [0; PARTS];
    if step.halted() && Halt::parse(step.blocks()[0].get(Register::Halt)).is_some() {
        return Ok(costs);
    }
    step.check(open.program.header)?;
    if open.ends_round {
        // A round moves its own registers, and with them the rows of those behind it.
        step.only_mut()?;
        if table.read_only {
            return Err(Fault::new(ErrorCode::WriteToConst, table.range.buffer.0).into());
        }
    }
    maintain(platform, buffers, open, TensorFlags::HOST_WRITES, CacheOp::Invalidate);
    let mut outcome = with_stream(pool, buffers, open, |pool, stream| {
        run_ops(platform, pool, buffers, open, step, stream, &mut costs)
    });
    if let Err(Failure::Failed(fault)) = &mut outcome
        && fault.code == ErrorCode::NotFinite
    {
        let noticed = fault.op.0 as usize;
        let origin = origin(pool, buffers, open, step, noticed);
        let known = u32::from(origin.is_some());
        *fault = Fault::new(ErrorCode::NotFinite, known).at(origin.unwrap_or(noticed));
    }
    if open.ends_round && outcome.is_ok() {
        let home = buffers.range(table.range)?.cast::<StepRegisters>();
        // SAFETY: `range` has checked that the table, which is one block (`only_mut` above), lies inside a
        // mapping, at a multiple of 128 plus an offset that is a multiple of 4 (`read_step`), and a mapping
        // that is only read was refused above. The write is volatile because the host may read it at any
        // time.
        unsafe { home.write_volatile(*step.only_mut()?) };
        platform.cache(CacheOp::Flush, home.as_ptr().cast(), size_of::<StepRegisters>());
    }
    // Also after a failure, so that on every device the host sees what the ops before it did.
    maintain(platform, buffers, open, TensorFlags::HOST_READS, CacheOp::Flush);
    outcome.map(|()| costs)
}

/// Runs the ops in order, until one fails or says that rounds have ended.
fn run_ops<P: Platform>(
    platform: &P,
    pool: &mut Dispatcher<'_, '_, P>,
    buffers: &BufferTable,
    open: &LoadedView<'_>,
    step: &mut Step,
    stream: Option<OpStream<'_>>,
    costs: &mut PartCosts,
) -> Result<(), Failure> {
    let program = &open.program;
    let (mut part, mut since) = (program.ops.first().map_or(0, |op| op.part), platform.cost());
    for (i, op) in program.ops.iter().enumerate() {
        if op.part != part {
            spend(costs, part, platform.cost_since(since));
            (part, since) = (op.part, platform.cost());
        }
        platform.begin_op(i);
        run_op(pool, buffers, open, step, stream, i, |_| ()).map_err(|fault| Failure::Failed(fault.at(i)))?;
        if step.halted() {
            break;
        }
    }
    spend(costs, part, platform.cost_since(since));
    Ok(())
}

/// Runs op `i`, and returns what `look` finds in its operands afterwards.
#[inline(always)]
fn run_op<P: Platform, T>(
    pool: &mut Dispatcher<'_, '_, P>,
    buffers: &BufferTable,
    open: &LoadedView<'_>,
    step: &mut Step,
    stream: Option<OpStream<'_>>,
    i: usize,
    look: impl FnOnce(&OpRun<'_>) -> T,
) -> Result<T, Fault> {
    let program = &open.program;
    let op = &program.ops[i];
    let (src, dst, plan) = ([None; MAX_SRC], [None; MAX_DST], open.plan(i)?);
    let stream = stream.and_then(|OpStream { stream, matrices }| Some((stream, matrices.of_op(i)?)));
    let mut run = OpRun { pool, src, dst, op, step, plan, stream };
    take_operands(&mut run, buffers, open);
    table::run(&mut run)?;
    let seen = look(&run);
    if open.advances(i) && !run.step.halted() {
        run.step.check(program.header)?;
    }
    Ok(seen)
}

/// The first op whose result was not finite. It is found by running all ops before `noticed`, the op that met
/// such values, once more. This names the layer in which they came up, and costs nothing while all is well.
/// States of the step's slots are advanced twice by it, which does not matter, because they cannot be used
/// after a failure.
/// `None` if the op cannot be found: the values came from another session, or the first run has overwritten
/// the inputs.
#[cold]
fn origin<P: Platform>(
    pool: &mut Dispatcher<'_, '_, P>,
    buffers: &BufferTable,
    open: &LoadedView<'_>,
    step: &mut Step,
    noticed: usize,
) -> Option<usize> {
    step.rewind();
    let (src, dst, op) = ([None; MAX_SRC], [None; MAX_DST], open.program.ops.first()?);
    let plan = open.plan(0).ok()?;
    let mut first = OpRun { pool: &mut *pool, src, dst, op, step: &mut *step, plan, stream: None };
    take_operands(&mut first, buffers, open);
    if !first.src[0].is_none_or(|x| damage::is_finite(&x)) {
        return None;
    }
    with_stream(pool, buffers, open, |pool, stream| {
        for i in 0..noticed {
            match run_op(pool, buffers, open, step, stream, i, damage::gave_finite) {
                Ok(true) if !step.halted() => {}
                Ok(false) | Err(Fault { code: ErrorCode::NotFinite, .. }) => return Ok(Some(i)),
                // The second run took another course than the first.
                _ => return Ok(None),
            }
        }
        Ok(Some(noticed))
    })
    // The engine has failed, and every later use of it will.
    .unwrap_or(None)
}

fn spend(costs: &mut PartCosts, part: u16, more: u64) {
    if let Some(cost) = costs.get_mut(usize::from(part)) {
        *cost = cost.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    }
}

/// Fills in the operands of an op as views of this step. They are written where they are used: to return
/// arrays for as many operands as an op may have would take longer than all else here.
#[inline(always)]
fn take_operands(run: &mut OpRun<'_>, buffers: &BufferTable, open: &LoadedView<'_>) {
    // The bound of every row, `max_tokens`, is a u32.
    let n_tokens = run.step.rows() as u32;
    let view = |index: TensorIndex| {
        let tensor = open.program.tensor(index)?;
        let base = base_of(buffers, open, tensor.buffer)?;
        // SAFETY: the program was validated against these buffers, a buffer that a loaded program names keeps
        // its id, and all of them are held for this message.
        Some(unsafe { View::new(base, tensor, DType::parse(tensor.dtype)?, n_tokens) })
    };
    let slots = run.src.iter_mut().zip(&run.op.src).chain(run.dst.iter_mut().zip(&run.op.dst));
    for (slot, &index) in slots {
        *slot = view(index);
    }
}

fn base_of(buffers: &BufferTable, open: &LoadedView<'_>, index: u16) -> Option<NonNull<u8>> {
    let id: BufferId = open.program.buffers.get(usize::from(index))?.buffer;
    buffers.get(id)?.base
}

/// Cache maintenance of the tensors that the host touches.
fn maintain<P: Platform>(
    platform: &P,
    buffers: &BufferTable,
    open: &LoadedView<'_>,
    flag: TensorFlags,
    op: CacheOp,
) {
    for &index in open.io {
        let Some(tensor) = open.program.tensor(index) else { continue };
        let (Some(base), Some(dtype)) = (base_of(buffers, open, tensor.buffer), DType::parse(tensor.dtype))
        else {
            continue;
        };
        if tensor.flags & flag.bits() != 0 {
            let at = base.as_ptr().wrapping_add(tensor.offset as usize);
            let bytes = tensor.extent(dtype).unwrap_or(0);
            platform.cache(op, at, bytes as usize);
        }
    }
}

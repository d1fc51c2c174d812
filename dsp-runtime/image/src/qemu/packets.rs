//! `IMAGE packets OP TYPE A B TOKENS PAST THREADS`: runs an op once and prints what each worker's part took.
//!
//! The op is validated, planned and run as in a session. Transfers move nothing: on a phone an engine makes
//! them, so that the counts are those of a stream that is already in VTCM. What A, B and TYPE mean is in
//! [`OneOp::of`].
//!
//! Output, per worker: its number, then packets, instructions and HVX instructions. Who claims how many units
//! is left to the machine that emulates the threads. So the last line is `even` and what a thread takes, in
//! packets, if those who take part in a job claim even shares of it.

use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hexflash_abi::op::{Op, Src, attend, gated_delta_net as delta_net, params};
use hexflash_abi::program::{BufferRef, NO_TOKEN_AXIS, Numerics, OpDesc, ProgramHeader, TensorDesc};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::{self, BufferInfo};
use hexflash_abi::{BufferId, DType, Fault, Fd, TensorIndex};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use hexflash_dsp::memory::View;
use hexflash_dsp::op_run::OpRun;
use hexflash_dsp::plan::{OpShapes, Resources, Units};
use hexflash_dsp::platform::linux::{LinuxPlatform, Stream, counters, guarded, hold_matrix_unit, spawn};
use hexflash_dsp::platform::{CacheOp, Platform};
use hexflash_dsp::pool::{MAX_WORKERS, Pool};
use hexflash_dsp::step::Step;
use hexflash_dsp::table;
use hexflash_dsp::vtcm::Vtcm;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::serve::{Start, failed, worker};
use super::{Failure, end, unusable};

/// Bytes of VTCM, as phones have it.
const VTCM: usize = 8 << 20;
/// What VTCM holds: ones as f16, small positive numbers as f32, small quants. Nothing that a kernel branches
/// on.
const CONTENT: u64 = 0x3c00_3c00_3c00_3c00;

/// What the matrix unit's kernel of MUL_MAT is called here.
const MUL_MAT_HMX: &str = "MUL_MAT_HMX";
/// What that of FLASH_ATTN_EXT is called here.
const FLASH_ATTN_HMX: &str = "FLASH_ATTN_HMX";
/// What that of ATTEND is called here.
const ATTEND_HMX: &str = "ATTEND_HMX";

/// -infinity, as bits of f16: what a mask has for a position that a token does not see.
const HIDDEN: u16 = 0xfc00;
/// What the chunked kernel of GATED_DELTA_NET is called here.
const GATED_DELTA_NET_CHUNKED: &str = "GATED_DELTA_NET_CHUNKED";
/// The same, with the matrix unit.
const GATED_DELTA_NET_HMX: &str = "GATED_DELTA_NET_HMX";

/// Most jobs of an op: its phases, and the turns of a product by the matrix unit.
const JOBS: usize = 128;
/// How long workers wait for each other before they begin with a job, in nanoseconds. Who does not come until
/// then was not called.
const MUSTER_NS: u64 = 1_000_000_000;

/// The platform of the emulator, with what each worker's part took.
struct Counting {
    platform: LinuxPlatform<'static>,
    workers: usize,
    taken: [[AtomicU32; 3]; MAX_WORKERS],
    /// Jobs that have begun.
    jobs: AtomicU32,
    /// Whether the dispatcher is in one.
    inside: AtomicBool,
    /// Per job: how many workers take part, and the packets of all of them.
    parts: [[AtomicU32; 2]; JOBS],
}

impl Counting {
    /// The job that `worker` takes part in, when all who do are there.
    fn muster(&self, worker: usize) -> &[AtomicU32; 2] {
        let start = self.now_ns();
        let waits = || {
            self.relax();
            self.now_ns() - start < MUSTER_NS
        };
        // Release and acquire, here and below: who sees the dispatcher inside sees which job it has begun.
        if worker == 0 {
            self.jobs.fetch_add(1, Ordering::Relaxed);
            self.inside.store(true, Ordering::Release);
        } else {
            // A helper is called before the dispatcher begins with its own part.
            while !self.inside.load(Ordering::Acquire) && waits() {}
        }
        let job = self.jobs.load(Ordering::Relaxed).saturating_sub(1);
        let job = &self.parts[(job as usize).min(JOBS - 1)];
        job[0].fetch_add(1, Ordering::Relaxed);
        while job[0].load(Ordering::Relaxed) < self.workers as u32 && waits() {}
        job
    }

    /// Packets of a thread, if those who took part in a job shared it evenly.
    fn even(&self) -> u32 {
        let share = |[workers, packets]: &[AtomicU32; 2]| {
            packets.load(Ordering::Relaxed) / workers.load(Ordering::Relaxed).max(1)
        };
        self.parts.iter().map(share).sum()
    }
}

impl Platform for Counting {
    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        self.platform.futex_wait(word, expected);
    }

    fn futex_wake(&self, word: &AtomicU32) {
        self.platform.futex_wake(word);
    }

    fn now_ns(&self) -> u64 {
        self.platform.now_ns()
    }

    fn map(&self, fd: Fd, size: u64) -> Result<core::ptr::NonNull<u8>, Fault> {
        self.platform.map(fd, size)
    }

    fn unmap(&self, fd: Fd, base: core::ptr::NonNull<u8>, size: u64) {
        self.platform.unmap(fd, base, size);
    }

    fn cache(&self, op: CacheOp, base: *const u8, bytes: usize) {
        self.platform.cache(op, base, bytes);
    }

    fn observe<R>(&self, worker: usize, part: impl FnOnce() -> R) -> R {
        let job = self.muster(worker);
        let [first, before] = [counters(), counters()];
        let result = part();
        let after = counters();
        if worker == 0 {
            self.inside.store(false, Ordering::Relaxed);
        }
        for (i, taken) in self.taken[worker].iter().enumerate() {
            // Two readings in a row: what reading takes.
            let reading = before[i].wrapping_sub(first[i]);
            // Relaxed: read after the job, whose end orders it. An op may have several phases.
            let count = after[i].wrapping_sub(before[i]).wrapping_sub(reading);
            taken.fetch_add(count, Ordering::Relaxed);
            if i == 0 {
                job[1].fetch_add(count, Ordering::Relaxed);
            }
        }
        result
    }
}

/// What the arguments say.
pub(super) struct Case<'a> {
    pub op: &'a str,
    pub dtype: &'a str,
    /// A, B, TOKENS, PAST, THREADS.
    pub numbers: [u32; 5],
}

/// Most operands of an op here.
const TENSORS: usize = 8;

/// A program of one op.
struct OneOp {
    header: ProgramHeader,
    tensors: [TensorDesc; TENSORS],
    count: usize,
    bytes: u64,
    op: OpDesc,
}

const NOT_A_CASE: Failure = unusable("no such op, type or shape");

impl OneOp {
    fn new(op: Op, tokens: u32, n_ctx: u32) -> Self {
        // Tensors and operands come later.
        let header = ProgramHeader { n_buffers: 1, n_ops: 1, ..ProgramHeader::new(tokens, n_ctx) };
        Self {
            header,
            tensors: [TensorDesc::new_zeroed(); TENSORS],
            count: 0,
            bytes: 0,
            op: OpDesc::new(op, &[], &[]),
        }
    }

    /// A packed tensor of its own; `axis` is its token axis, if it has one.
    fn tensor(&mut self, dtype: DType, ne: [u32; 4], axis: Option<u8>) -> Result<TensorIndex, Failure> {
        let (packed, index) = (TensorDesc::packed(dtype, ne).ok_or(NOT_A_CASE)?, self.count);
        let slot = self.tensors.get_mut(index).ok_or(NOT_A_CASE)?;
        let token_axis = axis.filter(|_| self.header.max_tokens > 1).unwrap_or(NO_TOKEN_AXIS);
        *slot = TensorDesc { offset: self.bytes, token_axis, ..packed };
        self.bytes += slot.extent(dtype).ok_or(NOT_A_CASE)?.next_multiple_of(128);
        self.count += 1;
        Ok(TensorIndex(index as u16))
    }

    fn operands<P: IntoBytes + Immutable>(&mut self, src: &[TensorIndex], dst: TensorIndex, params: &P) {
        self.op.src[..src.len()].copy_from_slice(src);
        self.op.dst[0] = dst;
        self.op.set_params(params);
    }

    /// The program of a case: the op on tensors of these sizes, for TOKENS tokens after PAST others.
    fn of(
        op: Op,
        dtype: DType,
        [a, b, tokens, past]: [u32; 4],
        hmx: bool,
        numerics: Numerics,
    ) -> Result<Self, Failure> {
        use DType::{F16, F16x32, F32, I32, Q8Act};
        let n_ctx = (past + tokens).next_multiple_of(32);
        let mut p = Self::new(op, tokens, n_ctx);
        p.header.numerics = numerics.wire();
        let vector = [a, 1, 1, 1];
        // Rows of A, per token; with B, B of them.
        let (rows, heads) = ([a, tokens, 1, 1], [a, b, tokens, 1]);
        match op {
            // A inputs, B outputs; TYPE is the weights'.
            Op::MulMat => {
                let activations = if dtype.wants_q8_activations() && !hmx { Q8Act } else { F32 };
                let w = p.tensor(dtype, [a, b, 1, 1], None)?;
                let x = p.tensor(activations, rows, Some(1))?;
                let y = p.tensor(F32, [b, tokens, 1, 1], Some(1))?;
                p.operands(&[w, x], y, &[0_u32; 0]);
            }
            Op::Quantize => {
                let (x, y) = (p.tensor(F32, rows, Some(1))?, p.tensor(Q8Act, rows, Some(1))?);
                p.operands(&[x], y, &[0_u32; 0]);
            }
            // B is 1 with weights, 0 without; above 1 it is heads of size A, with weights.
            Op::RmsNorm => {
                let (shape, axis) = if b > 1 { (heads, 2) } else { (rows, 1) };
                let (x, y) = (p.tensor(F32, shape, Some(axis))?, p.tensor(F32, shape, Some(axis))?);
                let w = p.tensor(F32, vector, None)?;
                p.operands(&[x, w][..1 + b.min(1) as usize], y, &params::Norm { eps: 1e-6 });
            }
            Op::L2Norm => {
                let (x, y) = (p.tensor(F32, heads, Some(2))?, p.tensor(F32, heads, Some(2))?);
                p.operands(&[x], y, &params::Norm { eps: 1e-6 });
            }
            Op::Silu | Op::Sigmoid | Op::Softplus => {
                let (x, y) = (p.tensor(F32, rows, Some(1))?, p.tensor(F32, rows, Some(1))?);
                p.operands(&[x], y, &[0_u32; 0]);
            }
            Op::Add | Op::Mul => {
                let [x, z] = [(); 2].map(|()| p.tensor(F32, rows, Some(1)));
                let y = p.tensor(F32, rows, Some(1))?;
                p.operands(&[x?, z?], y, &[0_u32; 0]);
            }
            // A row of size A, of 64; TYPE is the table's.
            Op::GetRows => {
                let table = p.tensor(dtype, [a, 64, 1, 1], None)?;
                let ids = p.tensor(I32, [tokens, 1, 1, 1], Some(0))?;
                let y = p.tensor(F32, rows, Some(1))?;
                p.operands(&[table, ids], y, &[0_u32; 0]);
            }
            // B is the kind.
            Op::Glu => {
                let kind = params::GluKind::parse(b).ok_or(NOT_A_CASE)?;
                let (gate, up) = (p.tensor(F32, rows, Some(1))?, p.tensor(F32, rows, Some(1))?);
                let y = p.tensor(F32, rows, Some(1))?;
                p.operands(&[gate, up], y, &params::Glu::of(kind));
            }
            Op::Rope => {
                let (x, y) = (p.tensor(F32, heads, Some(2))?, p.tensor(F32, heads, Some(2))?);
                let rope = params::Rope {
                    n_dims: a,
                    mode: params::RopeMode::Neox.wire(),
                    n_ctx_orig: n_ctx,
                    freq_base: 10_000.0,
                    freq_scale: 1.0,
                    ext_factor: 0.0,
                    attn_factor: 1.0,
                    beta_fast: 32.0,
                    beta_slow: 1.0,
                    sections: [0; 4],
                    temperature: 0.0,
                    temperature_span: 0,
                };
                p.operands(&[x], y, &rope);
            }
            // A channels; B taps, and 256 more for SILU of the result.
            Op::SsmConv => {
                let (taps, silu) = (b % 256, b / 256);
                let (x, w) = (p.tensor(F32, rows, Some(1))?, p.tensor(F32, [a, taps, 1, 1], None)?);
                let ring = p.tensor(F32, [a, taps + tokens, 1, 1], None)?;
                let y = p.tensor(F32, rows, Some(1))?;
                p.operands(&[x, w, ring], y, &params::SsmConv { defer: 0, silu });
            }
            // B heads of size A, one gate each.
            Op::GatedDeltaNet => {
                let [q, k, v, y] = [(); 4].map(|()| p.tensor(F32, heads, Some(2)));
                let [g, beta] = [(); 2].map(|()| p.tensor(F32, [1, b, tokens, 1], Some(2)));
                let state = p.tensor(F32, [a, a, b, 1], None)?;
                p.operands(&[q?, k?, v?, g?, beta?, state], y?, &[0_u32; 0]);
            }
            // B heads of width A, four to a head of K and V; TYPE is the caches', F32 for F16.
            Op::FlashAttnExt => {
                let kv = b.div_ceil(4);
                let [of_keys, of_values] = if dtype == F32 { [F16x32, F16] } else { [dtype; 2] };
                let (q, y) = (p.tensor(F32, heads, Some(2))?, p.tensor(F32, heads, Some(2))?);
                let keys = p.tensor(of_keys, [a, n_ctx, kv, 1], None)?;
                let values = p.tensor(of_values, [a, n_ctx, kv, 1], None)?;
                let [k, v] = [(); 2].map(|()| p.tensor(F32, [a, kv, tokens, 1], Some(2)));
                let attention = params::FlashAttn {
                    scale: 0.125,
                    visibility: params::Visibility::Causal.wire(),
                    window: 0,
                    softcap: 0.0,
                    max_bias: 0.0,
                    first: 0,
                };
                p.operands(&[q, keys, values, k?, v?], y, &attention);
            }
            // As FLASH_ATTN_EXT, over rows of F16 and with a mask: as many as llama.cpp has in its graphs.
            Op::Attend => {
                let (kv, n) = (b.div_ceil(4), n_ctx.next_multiple_of(256));
                let (q, y) = (p.tensor(F32, heads, None)?, p.tensor(F32, heads, None)?);
                let [k, v] = [(); 2].map(|()| p.tensor(F16, [a, n, kv, 1], None));
                let mask = p.tensor(F16, [n, tokens, 1, 1], None)?;
                let attend = params::Attend { scale: 0.0625, softcap: 0.0, max_bias: 0.0 };
                p.operands(&[q, k?, v?, mask], y, &attend);
            }
            Op::Argmax => {
                let (x, y) = (p.tensor(F32, rows, Some(1))?, p.tensor(I32, [tokens, 1, 1, 1], Some(0))?);
                p.operands(&[x], y, &[0_u32; 0]);
            }
            _ => return Err(NOT_A_CASE),
        }
        Ok(p)
    }

    /// A number between -1 and 1 as an operand of the delta rule that does not enlarge its state, which the
    /// chunked kernel leaves to the recurrence: gates that close, betas of one sign, short keys.
    fn of_delta_net(&self, operand: TensorIndex, value: f32) -> f32 {
        let is = |which: Src| self.op.src[which.place()] == operand;
        if is(delta_net::G) {
            -value.abs()
        } else if is(delta_net::BETA) {
            value.abs()
        } else if is(delta_net::K) {
            value / 16.0
        } else {
            value
        }
    }

    /// Fills the F32 tensors with numbers between -1 and 1.
    ///
    /// # Safety
    /// `base` is aligned to vectors and has as many bytes as the program's tensors take, and nobody else uses
    /// them.
    unsafe fn fill(&self, base: *mut u8) {
        let mut random = 0x9e37_79b9_u32;
        let by_delta_rule = self.op.opcode == Op::GatedDeltaNet.wire();
        for (i, tensor) in self.tensors[..self.count].iter().enumerate() {
            if tensor.dtype != DType::F32.wire() {
                continue;
            }
            let index = TensorIndex(i as u16);
            let floats = tensor.extent(DType::F32).unwrap_or(0) as usize / 4;
            for i in 0..floats {
                // xorshift32
                random ^= random << 13;
                random ^= random >> 17;
                random ^= random << 5;
                let value = random as i32 as f32 / 2_147_483_648.0;
                let value = if by_delta_rule { self.of_delta_net(index, value) } else { value };
                // SAFETY: `tensor` lies inside the program's bytes at `base`, which nobody else uses (the
                // caller's contract), and `i` is below its floats, for which it is aligned.
                unsafe { base.add(tensor.offset as usize).cast::<f32>().add(i).write(value) };
            }
        }
    }

    /// Makes the mask of ATTEND causal, for tokens after `past` others.
    ///
    /// # Safety
    /// As of [`fill`](Self::fill).
    unsafe fn hide(&self, base: *mut u8, past: u32) {
        if self.op.opcode != Op::Attend.wire() {
            return;
        }
        let mask = &self.tensors[usize::from(self.op.src[attend::MASK.place()].0)];
        let [positions, tokens, ..] = mask.ne;
        for (token, position) in (0..tokens).flat_map(|t| (past + t + 1..positions).map(move |p| (t, p))) {
            let at = mask.offset as usize + (token * positions + position) as usize * size_of::<u16>();
            // SAFETY: the mask lies inside the program's bytes at `base`, which nobody else uses (the
            // caller's contract). It is packed, and the element is one of its own, for which it is aligned.
            unsafe { base.add(at).cast::<u16>().write(HIDDEN) };
        }
    }
}

fn refused(fault: Fault) -> Failure {
    Failure { code: 1, what: "the op was refused", errno: fault.code.wire() }
}

/// Runs the case once and ends the process.
pub(super) fn run(case: &Case<'_>) -> Result<(), Failure> {
    let [a, b, tokens, past, threads] = case.numbers;
    // By the matrix unit, which takes F32 activations.
    let hmx = matches!(case.op, MUL_MAT_HMX | FLASH_ATTN_HMX | ATTEND_HMX | GATED_DELTA_NET_HMX);
    let (name, numerics) = match case.op {
        MUL_MAT_HMX => (Op::MulMat.name(), Numerics::Fast),
        FLASH_ATTN_HMX => (Op::FlashAttnExt.name(), Numerics::Fast),
        ATTEND_HMX => (Op::Attend.name(), Numerics::Fast),
        GATED_DELTA_NET_CHUNKED | GATED_DELTA_NET_HMX => (Op::GatedDeltaNet.name(), Numerics::Fast),
        name => (name, Numerics::Exact),
    };
    let op = Op::ALL.iter().find(|op| op.name() == name).ok_or(NOT_A_CASE)?;
    let dtype = DType::ALL.iter().find(|dtype| dtype.name() == case.dtype).ok_or(NOT_A_CASE)?;
    let workers = threads as usize;
    if !(1..=MAX_WORKERS).contains(&workers) {
        return Err(unusable("too few or too many threads"));
    }
    let program = OneOp::of(*op, *dtype, [a, b, tokens, past], hmx, numerics)?;
    let size = program.bytes;
    let checked = validate::Program {
        header: &program.header,
        buffers: &[BufferRef { buffer: BufferId(0), reserved: 0 }],
        tensors: &program.tensors[..program.count],
        ops: core::slice::from_ref(&program.op),
    };
    checked.check(|_| Some(BufferInfo { size, read_only: false })).map_err(refused)?;

    let memory = guarded(size as usize).map_err(failed("no memory for the tensors"))?;
    let vtcm = guarded(VTCM).map_err(failed("no memory for VTCM"))?;
    // This thread dispatches.
    if hmx {
        hold_matrix_unit(vtcm, VTCM).map_err(failed("no matrix unit"))?;
    }
    for i in 0..VTCM / size_of::<u64>() {
        // SAFETY: `guarded` has made `VTCM` bytes, aligned to vectors, that nobody else knows, and `i` is
        // below the words that they hold.
        unsafe { vtcm.cast::<u64>().add(i).write(CONTENT) };
    }
    // SAFETY: `guarded` has made `size` bytes at `memory` and `VTCM` bytes at `vtcm`, zeroed and aligned to
    // vectors. Nobody else knows them, and they stay until the process ends.
    let vtcm = unsafe {
        program.fill(memory.as_ptr());
        program.hide(memory.as_ptr(), past);
        Vtcm::new(vtcm, VTCM)
    };
    let resources = Resources { workers, vtcm_bytes: VTCM, units: Units { hmx: hmx.into(), ..Units::NONE } };
    let shapes = OpShapes::of(&checked, &program.op, resources);
    let plan = table::plan(*op, &shapes).map_err(refused)?;
    // SAFETY: `checked.check` has validated the tensors against this very memory, which begins at a multiple
    // of 128 and lives until the process ends.
    let view = |(tensor, dtype)| unsafe { View::new(memory, tensor, dtype, tokens) };
    let (src, dst) = (shapes.src.map(|t| t.map(view)), shapes.dst.map(|t| t.map(view)));

    let counting = Counting {
        platform: LinuxPlatform::new(""),
        workers,
        taken: Default::default(),
        jobs: AtomicU32::new(0),
        inside: AtomicBool::new(false),
        parts: [const { [const { AtomicU32::new(0) }; 2] }; JOBS],
    };
    let pool = Pool::new(&counting, Isa::Hexagon, vtcm, workers, DmaMode::Never);
    let starts: [Start<'_, Counting>; MAX_WORKERS] = core::array::from_fn(|id| Start { pool: &pool, id });
    for start in &starts[1..workers] {
        // SAFETY: a thread of its own may use the pool. Pool and starts live until the process ends: from
        // here on this function does not return.
        let started = unsafe { spawn(worker::<Counting>, (&raw const *start).cast_mut().cast()) };
        if let Err(error) = started {
            end(Err(failed("cannot start a thread")(error)));
        }
    }
    let mut step = Step::new();
    step.begin(core::iter::once(StepRegisters::step(past, tokens)));
    let Some(mut dispatcher) = pool.dispatcher() else { end(Err(unusable("the pool is taken"))) };
    let mut run =
        OpRun { pool: &mut dispatcher, src, dst, op: &program.op, step: &mut step, plan, stream: None };
    if let Err(fault) = table::run(&mut run) {
        end(Err(refused(fault)));
    }
    for (worker, taken) in counting.taken[..workers].iter().enumerate() {
        let [packets, instructions, vectors] = taken.each_ref().map(|n| n.load(Ordering::Relaxed));
        let _ = writeln!(Stream::Out, "{worker} {packets} {instructions} {vectors}");
    }
    let _ = writeln!(Stream::Out, "even {}", counting.even());
    end(Ok(()))
}

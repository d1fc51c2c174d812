//! For tests: a one-op batch in guarded memory, run on every back end, worker count and DMA mode.

use std::cell::Cell;

use hexflash_abi::op::Op;
use hexflash_abi::program::{BufferRef, Numerics, OpDesc, ProgramHeader, TensorDesc};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::{BufferInfo, Program};
use hexflash_abi::{BufferId, DType, Fault, TensorIndex};
use zerocopy::{Immutable, IntoBytes};

use crate::dma::DmaMode;
use crate::hvx::Isa;
use crate::memory::View;
use crate::op_run::OpRun;
use crate::plan::{OpShapes, Resources, Units};
use crate::platform::host::{HostPlatform, worker_thread};
use crate::pool::Pool;
use crate::step::Step;
use crate::table;
use crate::vtcm::Vtcm;

pub mod guarded;

use guarded::Guarded;

/// Where and how to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub isa: Isa,
    pub workers: usize,
    pub dma: DmaMode,
    pub vtcm_bytes: usize,
    /// What kernels may ask for: a matrix unit, unless a test takes it away.
    pub units: Units,
}

/// Every back end alone; then the best one with several workers and every DMA mode.
pub fn setups() -> Vec<Setup> {
    let vtcm_bytes = 1 << 20;
    let units = Units { hmx: 1, ..Units::NONE };
    let alone = |isa| Setup { isa, workers: 1, dma: DmaMode::AtOnce, vtcm_bytes, units };
    let mut all: Vec<_> = Isa::available().map(alone).collect();
    for dma in [DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder] {
        for workers in [1, 3] {
            all.push(Setup { workers, dma, ..alone(Isa::detect()) });
        }
    }
    all
}

/// What `case` gives in every setup: the same bits, or the test fails.
pub fn everywhere<T: IntoBytes + Immutable>(case: impl Fn(Setup) -> Vec<T>) -> Vec<T> {
    let mut setups = setups().into_iter();
    let first = setups.next().map(&case).unwrap();
    for setup in setups {
        assert_eq!(case(setup).as_bytes(), first.as_bytes(), "{setup:?}");
    }
    first
}

/// Tensors, each in a buffer between forbidden pages, and the means to run ops on them.
pub struct Batch {
    header: ProgramHeader,
    tensors: Vec<TensorDesc>,
    buffers: Vec<Guarded>,
    /// Bytes that DMA moved in the last run.
    pub moved: u64,
}

impl Batch {
    pub fn new(max_tokens: u32, n_ctx: u32) -> Self {
        let header = ProgramHeader { n_ops: 1, ..ProgramHeader::new(max_tokens, n_ctx) };
        Self { header, tensors: Vec::new(), buffers: Vec::new(), moved: 0 }
    }

    /// The same, for programs with so many slots.
    #[must_use]
    pub fn with_slots(mut self, n_slots: u32) -> Self {
        self.header.n_slots = n_slots;
        self
    }

    /// The same, for a program of the class `fast`.
    #[must_use]
    pub fn fast(mut self) -> Self {
        self.header.numerics = Numerics::Fast.wire();
        self
    }

    /// The same, for a program of the class `hmx`.
    #[must_use]
    pub fn hmx(mut self) -> Self {
        self.header.numerics = Numerics::Hmx.wire();
        self
    }

    /// The same, for a program of the class `exact`, as it is at first.
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.header.numerics = Numerics::Exact.wire();
        self
    }

    /// A packed tensor of zero bytes.
    pub fn tensor(&mut self, dtype: DType, ne: [u32; 4]) -> TensorIndex {
        let buffer = self.buffers.len() as u16;
        let desc = TensorDesc { buffer, ..TensorDesc::packed(dtype, ne).unwrap() };
        let mut buffer = Guarded::new(desc.extent(dtype).unwrap() as usize);
        buffer.bytes_mut().fill(0);
        self.buffers.push(buffer);
        self.add(desc)
    }

    /// Another view of existing memory: edit the descriptor of `of`.
    pub fn view(&mut self, of: TensorIndex, edit: impl FnOnce(&mut TensorDesc)) -> TensorIndex {
        let mut desc = self.tensors[of.0 as usize];
        edit(&mut desc);
        self.add(desc)
    }

    /// A packed F32 tensor with these values.
    pub fn f32(&mut self, ne: [u32; 4], values: &[f32]) -> TensorIndex {
        let index = self.tensor(DType::F32, ne);
        self.write(index, values.as_bytes());
        index
    }

    /// A packed I32 tensor with these values.
    pub fn i32(&mut self, ne: [u32; 4], values: &[i32]) -> TensorIndex {
        let index = self.tensor(DType::I32, ne);
        self.write(index, values.as_bytes());
        index
    }

    fn add(&mut self, desc: TensorDesc) -> TensorIndex {
        self.tensors.push(desc);
        TensorIndex(self.tensors.len() as u16 - 1)
    }

    pub fn desc(&self, index: TensorIndex) -> &TensorDesc {
        &self.tensors[index.0 as usize]
    }

    /// Overwrites a tensor's bytes from its first one.
    pub fn write(&mut self, index: TensorIndex, data: &[u8]) {
        let desc = *self.desc(index);
        let buffer = self.buffers[desc.buffer as usize].bytes_mut();
        buffer[desc.offset as usize..][..data.len()].copy_from_slice(data);
    }

    /// A tensor's bytes, gaps included.
    pub fn read(&self, index: TensorIndex) -> &[u8] {
        let desc = self.desc(index);
        let extent = desc.extent(DType::parse(desc.dtype).unwrap()).unwrap() as usize;
        &self.buffers[desc.buffer as usize].bytes()[desc.offset as usize..][..extent]
    }

    /// A packed F32 tensor's values.
    pub fn floats(&self, index: TensorIndex) -> Vec<f32> {
        self.read(index).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// A packed I32 tensor's values.
    pub fn ints(&self, index: TensorIndex) -> Vec<i32> {
        self.read(index).chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// Validates and runs one op, and checks that nothing around the tensors was written.
    pub fn run<T: IntoBytes + Immutable>(
        &mut self,
        setup: Setup,
        opcode: Op,
        src: &[TensorIndex],
        dst: &[TensorIndex],
        params: &T,
        step: StepRegisters,
    ) -> Result<(), Fault> {
        self.advance(setup, opcode, src, dst, params, &[step]).map(drop)
    }

    /// As [`run`](Self::run) for any register blocks; gives them as the op left them.
    pub fn advance<T: IntoBytes + Immutable>(
        &mut self,
        setup: Setup,
        opcode: Op,
        src: &[TensorIndex],
        dst: &[TensorIndex],
        params: &T,
        blocks: &[StepRegisters],
    ) -> Result<Vec<StepRegisters>, Fault> {
        let mut op = OpDesc::new(opcode, src, dst);
        op.set_params(params);
        let ids = (0..self.buffers.len() as u32).map(BufferId);
        let buffers: Vec<_> = ids.map(|buffer| BufferRef { buffer, reserved: 0 }).collect();
        let header = ProgramHeader { n_buffers: buffers.len() as u32, ..self.header };
        let program = Program {
            header: &header,
            buffers: &buffers,
            tensors: &self.tensors,
            ops: std::slice::from_ref(&op),
        };
        let size = |id: BufferId| Some(self.buffers.get(id.0 as usize)?.size() as u64);
        program.check(|id| Some(BufferInfo { size: size(id)?, read_only: false }))?;
        let mut step = Step::new();
        step.begin(blocks.iter().copied());
        if matches!(opcode, Op::FlashAttnExt | Op::KvAppend) || blocks.len() > 1 {
            // As a session does for all ops. Only these rely on it; tests of others go beyond the bounds.
            step.check(&header)?;
        }

        let platform = HostPlatform::new();
        let scratch = scratchpad(setup.vtcm_bytes);
        // SAFETY: `scratch` has `vtcm_bytes` initialised bytes, aligned to 128. It outlives the pool, and
        // nobody else uses it.
        let vtcm = unsafe { Vtcm::new(scratch.base(), setup.vtcm_bytes) };
        let Setup { workers, vtcm_bytes, .. } = setup;
        let resources = Resources { workers, vtcm_bytes, units: setup.units };
        let shapes = OpShapes::of(&program, &op, resources);
        let plan = table::plan(opcode, &shapes)?;
        let view = |(t, dtype): (&TensorDesc, DType)| {
            let base = self.buffers[t.buffer as usize].base();
            // SAFETY: `program.check` has validated the tensor against this very buffer, which begins at a
            // multiple of 128 and outlives the run.
            unsafe { View::new(base, t, dtype, step.rows() as u32) }
        };
        let (src, dst) = (shapes.src.map(|o| o.map(view)), shapes.dst.map(|o| o.map(view)));
        let pool = Pool::new(&platform, setup.isa, vtcm, setup.workers, setup.dma).sharing_all();
        let (outcome, moved) = std::thread::scope(|scope| {
            for id in 1..setup.workers {
                let pool = &pool;
                worker_thread(id).spawn_scoped(scope, move || pool.serve(id)).unwrap();
            }
            let mut dispatcher = pool.dispatcher().unwrap();
            let mut run =
                OpRun { pool: &mut dispatcher, src, dst, op: &op, step: &mut step, plan, stream: None };
            let outcome = table::run(&mut run);
            let moved = dispatcher.take_moved();
            pool.stop();
            (outcome, moved)
        });
        self.moved = moved;
        assert!(scratch.is_whole(), "a write outside of VTCM");
        SCRATCHPAD.set(Some(scratch));
        self.check_canaries();
        outcome.map(|()| step.blocks().to_vec())
    }

    fn check_canaries(&self) {
        for (tensor, buffer) in self.buffers.iter().enumerate() {
            assert!(buffer.is_whole(), "a write outside of buffer {tensor}");
        }
    }
}

thread_local! {
    /// The scratchpad of the last op: tests run thousands of them.
    static SCRATCHPAD: Cell<Option<Guarded>> = const { Cell::new(None) };
}

/// A scratchpad that holds no number, in any type of float.
fn scratchpad(bytes: usize) -> Guarded {
    let mut scratch = SCRATCHPAD.take().filter(|s| s.size() == bytes).unwrap_or_else(|| Guarded::new(bytes));
    scratch.bytes_mut().fill(0xff);
    scratch
}

/// Reproducible values in `low..high`.
pub fn random(seed: u64, n: usize, low: f32, high: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    let mut next = || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1u32 << 24) as f32
    };
    (0..n).map(|_| low + (high - low) * next()).collect()
}

/// Sum of squared differences over sum of squares of `expected`: ggml's metric for ops.
pub fn nmse(actual: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let (mut error, mut power) = (0.0, 0.0);
    for (&a, &e) in actual.iter().zip(expected) {
        error += (f64::from(a) - f64::from(e)).powi(2);
        power += f64::from(e).powi(2);
    }
    if error == 0.0 { 0.0 } else { error / power }
}

//! For tests: a one-op batch in guarded memory, run on every back end, worker count and DMA mode.

use std::ptr::NonNull;

use hexflash_abi::op::Op;
use hexflash_abi::program::{BufferRef, NO_TOKEN_AXIS, OpDesc, ProgramHeader, TensorDesc};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::{BufferInfo, Program};
use hexflash_abi::{BufferId, DType, Fault, TensorIndex};
use zerocopy::{Immutable, IntoBytes};

use crate::dma::DmaMode;
use crate::hvx::Isa;
use crate::kernels::{self, OpRun, OpShapes};
use crate::memory::View;
use crate::platform::host::HostPlatform;
use crate::pool::Pool;
use crate::vtcm::Vtcm;

/// A vector's worth of memory, aligned like one.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u8; 128]);

/// Where and how to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub isa: Isa,
    pub workers: usize,
    pub dma: DmaMode,
    pub vtcm_bytes: usize,
}

/// Every back end alone; then the best one with several workers and every DMA mode.
pub fn setups() -> Vec<Setup> {
    let vtcm_bytes = 1 << 20;
    let alone = |isa| Setup { isa, workers: 1, dma: DmaMode::AtOnce, vtcm_bytes };
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

/// Tensors in one buffer, with canaries between them, and the means to run ops on them.
pub struct Batch {
    header: ProgramHeader,
    tensors: Vec<TensorDesc>,
    memory: Vec<Line>,
    /// Bytes that DMA moved in the last run.
    pub moved: u64,
}

const CANARY: u8 = 0xa5;

impl Batch {
    pub fn new(max_tokens: u32, n_ctx: u32) -> Self {
        let header = ProgramHeader { n_buffers: 1, n_ops: 1, ..ProgramHeader::new(max_tokens, n_ctx) };
        Self { header, tensors: Vec::new(), memory: vec![Line([CANARY; 128])], moved: 0 }
    }

    /// A packed tensor of zero bytes.
    pub fn tensor(&mut self, dtype: DType, ne: [u32; 4]) -> TensorIndex {
        let nb = TensorDesc::packed_strides(dtype, ne).unwrap();
        let offset = self.memory.len() as u64 * 128;
        let desc = TensorDesc {
            offset,
            buffer: 0,
            dtype: dtype.wire(),
            token_axis: NO_TOKEN_AXIS,
            flags: 0,
            reserved: 0,
            ne,
            nb,
        };
        let bytes = desc.extent(dtype).unwrap() as usize;
        self.memory.extend(vec![Line([0; 128]); bytes.div_ceil(128)]);
        self.bytes_mut()[offset as usize + bytes..].fill(CANARY);
        self.memory.push(Line([CANARY; 128]));
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

    fn bytes(&self) -> &[u8] {
        // SAFETY: lines are plain bytes without padding.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.memory.len() * 128) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), self.memory.len() * 128) }
    }

    /// Overwrites a tensor's bytes from its first one.
    pub fn write(&mut self, index: TensorIndex, data: &[u8]) {
        let at = self.desc(index).offset as usize;
        self.bytes_mut()[at..at + data.len()].copy_from_slice(data);
    }

    /// A tensor's bytes, gaps included.
    pub fn read(&self, index: TensorIndex) -> &[u8] {
        let desc = self.desc(index);
        let extent = desc.extent(DType::parse(desc.dtype).unwrap()).unwrap() as usize;
        &self.bytes()[desc.offset as usize..][..extent]
    }

    /// A packed F32 tensor's values.
    pub fn floats(&self, index: TensorIndex) -> Vec<f32> {
        self.read(index).chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// A packed I32 tensor's values.
    pub fn ints(&self, index: TensorIndex) -> Vec<i32> {
        self.read(index).chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    /// Validates and runs one op, and checks that the canaries between tensors survived.
    pub fn run<T: IntoBytes + Immutable>(
        &mut self,
        setup: Setup,
        opcode: Op,
        src: &[TensorIndex],
        dst: &[TensorIndex],
        params: &T,
        step: StepRegisters,
    ) -> Result<(), Fault> {
        self.advance(setup, opcode, src, dst, params, step).map(drop)
    }

    /// As [`run`](Self::run), and gives the registers as the op left them.
    pub fn advance<T: IntoBytes + Immutable>(
        &mut self,
        setup: Setup,
        opcode: Op,
        src: &[TensorIndex],
        dst: &[TensorIndex],
        params: &T,
        step: StepRegisters,
    ) -> Result<StepRegisters, Fault> {
        let mut op = OpDesc::new(opcode, src, dst);
        op.set_params(params);
        let size = self.bytes().len() as u64;
        let program = Program {
            header: &self.header,
            buffers: &[BufferRef { buffer: BufferId(0), reserved: 0 }],
            tensors: &self.tensors,
            ops: &[op],
        };
        program.check(|_| Some(BufferInfo { size, read_only: false }))?;

        let platform = HostPlatform::new();
        let mut scratch = vec![Line([CANARY; 128]); setup.vtcm_bytes / 128];
        let base = NonNull::new(self.memory.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: the scratch memory outlives the pool and nobody else uses it.
        let vtcm = unsafe { Vtcm::new(NonNull::new(scratch.as_mut_ptr().cast()).unwrap(), setup.vtcm_bytes) };
        let operand = |i: &TensorIndex| {
            let t = self.tensors.get(i.0 as usize)?;
            Some((t, DType::parse(t.dtype)?))
        };
        let shapes = OpShapes {
            src: op.src.each_ref().map(operand),
            dst: op.dst.each_ref().map(operand),
            workers: setup.workers,
            vtcm_bytes: setup.vtcm_bytes,
        };
        let plan = kernels::plan(opcode, &shapes)?;
        // SAFETY: validated above against this very memory, which outlives the run.
        let view = |(t, dtype): (&TensorDesc, DType)| unsafe { View::new(base, t, dtype, step.values[1]) };
        let (src, dst) = (shapes.src.map(|o| o.map(view)), shapes.dst.map(|o| o.map(view)));
        let mut registers = step;
        let pool = Pool::new(&platform, setup.isa, vtcm, setup.workers, setup.dma);
        let (outcome, moved) = std::thread::scope(|scope| {
            for id in 1..setup.workers {
                let pool = &pool;
                scope.spawn(move || pool.serve(id));
            }
            let mut dispatcher = pool.dispatcher().unwrap();
            let mut run = OpRun { pool: &mut dispatcher, src, dst, op: &op, registers: &mut registers, plan };
            let outcome = kernels::run(opcode, &mut run);
            let moved = dispatcher.take_moved();
            pool.stop();
            (outcome, moved)
        });
        self.moved = moved;
        self.check_canaries();
        outcome.map(|()| registers)
    }

    fn check_canaries(&self) {
        let bytes = self.bytes();
        let mut covered = vec![false; bytes.len()];
        for t in &self.tensors {
            let extent = t.extent(DType::parse(t.dtype).unwrap()).unwrap();
            covered[t.offset as usize..(t.offset + extent) as usize].fill(true);
        }
        let broken = bytes.iter().zip(covered).position(|(&b, covered)| !covered && b != CANARY);
        assert_eq!(broken, None, "a write outside every tensor");
    }
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

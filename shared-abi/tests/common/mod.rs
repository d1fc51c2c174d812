//! Builder of program blocks: a minimal valid program per op, and the means to break exactly one thing of it.
#![allow(dead_code, reason = "each test crate uses its part")]

use hexflash_abi::dtype::{ActivationRow, DType, TILE_ROWS};
use hexflash_abi::op::{FIRST_DST, Op, params};
use hexflash_abi::program::{BufferRef, MAX_DST, MAX_SRC, OpDesc, ProgramHeader, TensorDesc, block_bytes};
use hexflash_abi::registers::Register;
use hexflash_abi::validate::{BufferInfo, Program};
use hexflash_abi::{BufferId, ErrorCode, Fault, OpIndex, TensorIndex};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use DType::*;

/// Tokens of every test program.
pub const TOKENS: u32 = 4;
/// Context of every test program.
pub const N_CTX: u32 = 64;
/// Operand number of the first output.
pub const OUT: usize = FIRST_DST as usize;

/// A program under construction, and what is mapped under the ids it names (buffer id 10 + index).
#[derive(Clone)]
pub struct Case {
    pub header: ProgramHeader,
    pub buffers: Vec<BufferRef>,
    pub infos: Vec<BufferInfo>,
    pub tensors: Vec<TensorDesc>,
    pub ops: Vec<OpDesc>,
}

/// Packed strides of a shape.
pub fn packed(dtype: DType, ne: [u32; 4]) -> [u32; 4] {
    let k = ne[0] as usize;
    let (nb0, row, rows) = match (dtype.tile_group(), dtype.row_block()) {
        (Some(g), _) => (g.bytes, g.strip_bytes(k), ne[1].div_ceil(TILE_ROWS as u32)),
        (None, Some(block)) => (block.bytes, dtype.row_bytes(k), ne[1]),
        (None, None) => (1, ActivationRow::new(k).bytes(), ne[1]),
    };
    let matrix = row as u32 * rows;
    [nb0 as u32, row as u32, matrix, matrix * ne[2]]
}

impl Case {
    pub fn new() -> Self {
        let header = ProgramHeader::new(TOKENS, N_CTX);
        let mut case = Self { header, buffers: vec![], infos: vec![], tensors: vec![], ops: vec![] };
        case.buffer(0, false);
        case
    }

    pub fn buffer(&mut self, size: u64, read_only: bool) -> u16 {
        let index = self.buffers.len() as u16;
        self.buffers.push(BufferRef { buffer: BufferId(10 + u32::from(index)), reserved: 0 });
        self.infos.push(BufferInfo { size, read_only });
        index
    }

    /// Gives a tensor a type and a shape, packed in fresh bytes at the exact end of the first buffer.
    pub fn place(&mut self, index: TensorIndex, dtype: DType, ne: [u32; 4]) {
        let size = &mut self.infos[0].size;
        let t = &mut self.tensors[index.0 as usize];
        (t.dtype, t.ne, t.nb) = (dtype.wire(), ne, packed(dtype, ne));
        (t.buffer, t.offset) = (0, size.next_multiple_of(128));
        *size = t.offset + t.extent(dtype).expect("test shapes are small");
    }

    /// A packed tensor without a token axis.
    pub fn fixed(&mut self, dtype: DType, ne: [u32; 4]) -> TensorIndex {
        let index = TensorIndex(self.tensors.len() as u16);
        self.tensors.push(TensorDesc::packed(dtype, ne).expect("test shapes are small"));
        self.place(index, dtype, ne);
        index
    }

    /// A packed tensor whose axis `axis` is cut to the tokens of a step.
    pub fn cut(&mut self, axis: u8, dtype: DType, ne: [u32; 4]) -> TensorIndex {
        let index = self.fixed(dtype, ne);
        self.tensors[index.0 as usize].token_axis = axis;
        index
    }

    pub fn op(
        &mut self,
        op: Op,
        src: &[TensorIndex],
        dst: &[TensorIndex],
        params: &(impl IntoBytes + Immutable),
    ) {
        let mut desc = OpDesc::new(op, src, dst);
        desc.set_params(params);
        self.ops.push(desc);
    }

    /// Index of operand `number` of the last op.
    pub fn index(&self, number: usize) -> TensorIndex {
        let op = self.ops.last().expect("a case has an op");
        if number >= OUT { op.dst[number - OUT] } else { op.src[number] }
    }

    /// Operand `number` of the last op.
    pub fn operand(&mut self, number: usize) -> &mut TensorDesc {
        let index = self.index(number);
        &mut self.tensors[index.0 as usize]
    }

    pub fn dtype(&mut self, number: usize) -> DType {
        DType::parse(self.operand(number).dtype).expect("a valid type")
    }

    /// Gives an operand another shape, packed in fresh bytes.
    pub fn reshape(&mut self, number: usize, ne: [u32; 4]) {
        let dtype = self.dtype(number);
        self.place(self.index(number), dtype, ne);
    }

    /// Gives an operand another type, packed in fresh bytes.
    pub fn retype(&mut self, number: usize, dtype: DType) {
        let ne = self.operand(number).ne;
        self.place(self.index(number), dtype, ne);
    }

    pub fn set_params(&mut self, params: &(impl IntoBytes + Immutable)) {
        self.ops.last_mut().expect("a case has an op").set_params(params);
    }

    /// The operands that the last op has, by number.
    pub fn numbers(&self) -> Vec<usize> {
        (0..MAX_SRC).chain(OUT..OUT + MAX_DST).filter(|&n| self.index(n) != TensorIndex::NONE).collect()
    }

    /// The block, with counts and length filled in, aligned to 8 bytes.
    pub fn block(&self) -> Vec<u64> {
        let mut header = self.header;
        let counts = [self.buffers.len(), self.tensors.len(), self.ops.len()];
        [header.n_buffers, header.n_tensors, header.n_ops] = counts.map(|n| n as u32);
        header.total_bytes = block_bytes(counts[0], counts[1], counts[2]).expect("small") as u32;
        let parts =
            [header.as_bytes(), self.buffers.as_bytes(), self.tensors.as_bytes(), self.ops.as_bytes()];
        aligned(&parts.concat())
    }

    pub fn info(&self, id: BufferId) -> Option<BufferInfo> {
        self.infos.get(id.0.checked_sub(10)? as usize).copied()
    }

    pub fn check(&self) -> Result<(), Fault> {
        Program::parse(self.block().as_bytes())?.check(|id| self.info(id))
    }

    /// Asserts that validation refuses it, blaming op 0.
    #[track_caller]
    pub fn refused(&self, code: ErrorCode, detail: usize) {
        assert_eq!(self.check(), Err(Fault { op: OpIndex(0), code, detail: detail as u32 }));
    }

    /// Asserts that validation refuses it, blaming no op.
    #[track_caller]
    pub fn refused_early(&self, code: ErrorCode, detail: u32) {
        assert_eq!(self.check(), Err(Fault::new(code, detail)));
    }
}

/// Bytes as aligned words.
pub fn aligned(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|b| u64::read_from_bytes(b).expect("8 bytes")).collect()
}

pub const ROPE: params::Rope = params::Rope {
    n_dims: 64,
    mode: 2,
    n_ctx_orig: 4096,
    freq_base: 10000.0,
    freq_scale: 1.0,
    ext_factor: 0.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    sections: [0; 4],
    temperature: 0.0,
    temperature_span: 0,
};

pub const FLASH: params::FlashAttn =
    params::FlashAttn { scale: 0.125, visibility: 1, window: 0, softcap: 0.0, max_bias: 0.0, first: 0 };

pub const ATTEND: params::Attend = params::Attend { scale: 0.125, softcap: 0.0, max_bias: 0.0 };

pub const ACCEPT: params::Accept = params::Accept { block: TOKENS, n_ctx: N_CTX };

pub const TOPK: params::TopkMoe = params::TopkMoe { gating: 1, normalize: 1, scale: 1.0 };

pub const SET_TOKENS: params::SetTokens =
    params::SetTokens { register: Register::NDraft as u32, plus: TOKENS };

/// A minimal valid program of one op, with every optional operand that can be there.
pub fn valid(op: Op) -> Case {
    let mut c = Case::new();
    let none = [0u32; 0];
    match op {
        Op::RmsNorm => {
            let src = [c.cut(1, F32, [40, 4, 1, 1]), c.fixed(F32, [40, 1, 1, 1])];
            let y = c.cut(1, F32, [40, 4, 1, 1]);
            c.op(op, &src, &[y], &params::Norm { eps: 1e-6 });
        }
        Op::L2Norm => {
            let (x, y) = (c.cut(1, F32, [40, 4, 1, 1]), c.cut(1, F32, [40, 4, 1, 1]));
            c.op(op, &[x], &[y], &params::Norm { eps: 1e-6 });
        }
        Op::MulMat => {
            let src = [c.fixed(Q4_0x32, [256, 64, 2, 1]), c.cut(1, Q8Act, [256, 4, 4, 1])];
            let y = c.cut(1, F32, [64, 4, 4, 1]);
            c.op(op, &src, &[y], &none);
        }
        Op::Quantize => {
            let (x, y) = (c.cut(1, F32, [256, 4, 1, 1]), c.cut(1, Q8Act, [256, 4, 1, 1]));
            c.op(op, &[x], &[y], &none);
        }
        Op::GetRows => {
            let src = [c.fixed(Q8_0x32, [128, 96, 1, 1]), c.cut(0, I32, [4, 1, 1, 1])];
            let y = c.cut(1, F32, [128, 4, 1, 1]);
            c.op(op, &src, &[y], &none);
        }
        Op::SetRows => {
            let src = [c.cut(1, F32, [32, 4, 2, 1]), c.cut(0, I32, [4, 1, 1, 1])];
            let y = c.fixed(F16, [32, 64, 2, 1]);
            c.op(op, &src, &[y], &none);
        }
        Op::Add | Op::Mul | Op::Div => {
            let src = [c.cut(1, F32, [32, 4, 1, 1]), c.fixed(F32, [16, 1, 1, 1])];
            let y = c.cut(1, F32, [32, 4, 1, 1]);
            c.op(op, &src, &[y], &none);
        }
        Op::Scale => {
            let (x, y) = (c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F32, [32, 4, 1, 1]));
            c.op(op, &[x], &[y], &params::Scale { scale: 2.0, bias: 0.0 });
        }
        Op::Silu | Op::Sigmoid | Op::Softplus | Op::Exp => {
            let (x, y) = (c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F32, [32, 4, 1, 1]));
            c.op(op, &[x], &[y], &none);
        }
        Op::Unary => {
            let (x, y) = (c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F32, [32, 4, 1, 1]));
            c.op(
                op,
                &[x],
                &[y],
                &params::Unary { a: -1.0, b: 1.0, ..params::Unary::of(params::UnaryKind::Clamp) },
            );
        }
        Op::Norm => {
            let (x, y) = (c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F32, [32, 4, 1, 1]));
            c.op(op, &[x], &[y], &params::Norm { eps: 1e-6 });
        }
        Op::SoftMax => {
            let x = c.cut(1, F32, [40, 4, 2, 1]);
            let src = [x, c.cut(1, F16, [40, 4, 1, 1]), c.fixed(F32, [2, 1, 1, 1])];
            let y = c.cut(1, F32, [40, 4, 2, 1]);
            c.op(op, &src, &[y], &params::SoftMax { scale: 0.5, max_bias: 8.0 });
        }
        Op::SumRows => {
            let (x, y) = (c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F32, [1, 4, 1, 1]));
            c.op(op, &[x], &[y], &none);
        }
        Op::Argsort => {
            let (x, y) = (c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, I32, [8, 4, 1, 1]));
            c.op(op, &[x], &[y], &params::Argsort { descending: 1 });
        }
        Op::Glu => {
            let src = [c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F32, [32, 4, 1, 1])];
            let y = c.cut(1, F32, [32, 4, 1, 1]);
            c.op(op, &src, &[y], &params::Glu::of(params::GluKind::Swiglu));
        }
        Op::Rope => {
            let x = c.cut(2, F32, [64, 2, 4, 1]);
            let src = [x, c.cut(0, I32, [4, 1, 1, 1]), c.fixed(F32, [32, 1, 1, 1])];
            let y = c.cut(2, F32, [64, 2, 4, 1]);
            c.op(op, &src, &[y], &ROPE);
        }
        Op::SsmConv => {
            let x = c.cut(1, F32, [32, 4, 1, 1]);
            let src = [x, c.fixed(F32, [32, 4, 1, 1]), c.fixed(F32, [32, 8, 1, 1])];
            let (y, tape_x) = (c.cut(1, F32, [32, 4, 1, 1]), c.fixed(F32, [32, 4, 1, 1]));
            c.op(op, &src, &[y, tape_x], &params::SsmConv { defer: 1, silu: 0 });
        }
        Op::GatedDeltaNet => {
            let (q, k) = (c.cut(2, F32, [16, 1, 4, 1]), c.cut(2, F32, [16, 1, 4, 1]));
            let v = c.cut(2, F32, [16, 2, 4, 1]);
            let (g, beta) = (c.cut(2, F32, [1, 2, 4, 1]), c.cut(2, F32, [1, 2, 4, 1]));
            let src = [q, k, v, g, beta, c.fixed(F32, [16, 16, 2, 1])];
            let y = c.cut(2, F32, [16, 2, 4, 1]);
            let (tape_k, tape_delta) = (c.fixed(F32, [16, 1, 4, 1]), c.fixed(F32, [16, 2, 4, 1]));
            let tape_g = c.fixed(F32, [1, 2, 4, 1]);
            c.op(op, &src, &[y, tape_k, tape_delta, tape_g], &params::DeltaNet { defer: 1, transposed: 0 });
        }
        Op::FlashAttnExt => {
            let q = c.cut(2, F32, [64, 2, 4, 1]);
            let (kc, vc) = (c.fixed(F16x32, [64, 64, 1, 1]), c.fixed(F16, [64, 64, 1, 1]));
            let (k, v) = (c.cut(2, F32, [64, 1, 4, 1]), c.cut(2, F32, [64, 1, 4, 1]));
            let src = [q, kc, vc, k, v, c.cut(1, F16, [64, 4, 1, 1]), c.fixed(F32, [2, 1, 1, 1])];
            let y = c.cut(2, F32, [64, 2, 4, 1]);
            c.op(op, &src, &[y], &FLASH);
        }
        Op::Attend => {
            let q = c.cut(2, F32, [64, 2, 4, 1]);
            let (k, v) = (c.fixed(F16, [64, 40, 1, 1]), c.fixed(F16, [64, 40, 1, 1]));
            let src = [q, k, v, c.cut(1, F16, [40, 4, 1, 1]), c.fixed(F32, [2, 1, 1, 1])];
            let y = c.cut(2, F32, [64, 2, 4, 1]);
            c.op(op, &src, &[y], &ATTEND);
        }
        Op::Argmax => {
            let (x, y) = (c.cut(1, F32, [100, 4, 1, 1]), c.cut(0, I32, [4, 1, 1, 1]));
            let margin = c.cut(0, F32, [4, 1, 1, 1]);
            c.op(op, &[x], &[y, margin], &none);
        }
        Op::Cpy => {
            let (x, y) = (c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F16, [32, 4, 1, 1]));
            c.op(op, &[x], &[y], &none);
        }
        Op::Concat => {
            let src = [c.cut(1, F32, [32, 4, 1, 1]), c.cut(1, F32, [16, 4, 1, 1])];
            let y = c.cut(1, F32, [48, 4, 1, 1]);
            c.op(op, &src, &[y], &params::Concat { axis: 0 });
        }
        Op::Accept => {
            let (best, tokens) = (c.cut(0, I32, [4, 1, 1, 1]), c.cut(0, I32, [4, 1, 1, 1]));
            let stops = c.fixed(I32, [4, 1, 1, 1]);
            let (out, anchor) = (c.fixed(I32, [8, 2, 1, 1]), c.fixed(I32, [1, 1, 1, 1]));
            c.op(op, &[best, tokens, stops], &[out, anchor], &ACCEPT);
        }
        Op::SetTokens => c.op(op, &[], &[], &SET_TOKENS),
        Op::NextDraft => c.op(op, &[], &[], &params::NextDraft { draft: TOKENS - 1, stays: 0 }),
        Op::CopySlot => {
            let (x, y) = (c.fixed(F32, [32, 3, 2, 1]), c.fixed(F32, [32, 3, 2, 5]));
            c.op(op, &[x], &[y], &params::CopySlot { restore: 0 });
        }
        Op::MulMatId => {
            let src = [c.fixed(Q4_0x32, [256, 64, 5, 1]), c.cut(2, Q8Act, [256, 1, 4, 1])];
            let ids = c.cut(1, I32, [2, 4, 1, 1]);
            let y = c.cut(2, F32, [64, 2, 4, 1]);
            c.op(op, &[src[0], src[1], ids], &[y], &none);
        }
        Op::TopkMoe => {
            let src = [c.cut(1, F32, [40, 4, 1, 1]), c.fixed(F32, [40, 1, 1, 1])];
            let (ids, weights) = (c.cut(1, I32, [3, 4, 1, 1]), c.cut(1, F32, [3, 4, 1, 1]));
            c.op(op, &src, &[ids, weights], &TOPK);
        }
        Op::WeightedSum => {
            let src = [c.cut(2, F32, [32, 3, 4, 1]), c.cut(1, F32, [3, 4, 1, 1])];
            let y = c.cut(1, F32, [32, 4, 1, 1]);
            c.op(op, &src, &[y], &none);
        }
        Op::AddId => {
            let (a, b) = (c.cut(2, F32, [32, 3, 4, 1]), c.fixed(F32, [32, 5, 1, 1]));
            let ids = c.cut(1, I32, [3, 4, 1, 1]);
            let y = c.cut(2, F32, [32, 3, 4, 1]);
            c.op(op, &[a, b, ids], &[y], &none);
        }
        Op::KvAppend => {
            let (k, v) = (c.cut(2, F32, [64, 1, 4, 1]), c.cut(2, F32, [64, 1, 4, 1]));
            let (kc, vc) = (c.fixed(F16x32, [64, 64, 1, 1]), c.fixed(F16, [64, 64, 1, 1]));
            c.op(op, &[k, v], &[kc, vc], &none);
        }
    }
    c
}

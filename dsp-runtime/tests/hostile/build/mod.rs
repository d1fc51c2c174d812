//! Random valid programs: several ops over a few small buffers, with views, token axes, states and in-place
//! forms.

use hexflash_abi::dtype::{ActivationRow, TILE_ROWS};
use hexflash_abi::op::Op;
use hexflash_abi::program::{BufferRef, NO_TOKEN_AXIS, Numerics, OpDesc, PARTS, ProgramHeader, TensorDesc};
use hexflash_abi::{
    BufferId,
    DType::{self, *},
    TensorIndex,
};
use zerocopy::{Immutable, IntoBytes};

use crate::random::Random;

mod ops;

/// Lengths around tiles, groups and vectors.
const LENGTHS: [u32; 14] = [1, 1, 2, 3, 5, 16, 31, 32, 33, 40, 64, 100, 128, 256];
const FEW: [u32; 6] = [1, 1, 1, 2, 3, 4];

/// A place for tensors: a buffer's id, its size, whether programs may write it.
#[derive(Clone, Copy)]
pub struct Room {
    pub id: BufferId,
    pub size: usize,
    pub writable: bool,
}

/// A shape, and its token axis.
#[derive(Clone, Copy)]
struct Shape([u32; 4], u8);

impl Shape {
    const fn fixed(ne: [u32; 4]) -> Self {
        Self(ne, NO_TOKEN_AXIS)
    }
}

/// How an operand may lie.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Input,
    /// Input without gaps.
    Packed,
    Output,
    /// Output or state without gaps.
    State,
}

/// A program under construction.
pub struct Builder<'r> {
    pub random: &'r mut Random,
    rooms: Vec<Room>,
    /// First free byte per room.
    free: Vec<usize>,
    pub header: ProgramHeader,
    pub tensors: Vec<TensorDesc>,
    pub ops: Vec<OpDesc>,
    /// Ids to write before the run: buffer, byte, value.
    pub ids: Vec<(BufferId, usize, i32)>,
}

type Tensor = Option<TensorIndex>;

impl<'r> Builder<'r> {
    pub fn new(random: &'r mut Random, rooms: &[Room]) -> Self {
        let max_tokens = match random.below(50) {
            0 => random.pick(&[300, 4096]),
            _ => random.pick(&[1, 1, 2, 3, 4, 7, 33]),
        };
        let n_ctx = max_tokens + random.below(70) as u32;
        let n_slots = random.pick(&[1, 1, 1, 2, 3, 5, 5, 64]);
        let exact = Numerics::Exact;
        let numerics = random.pick(&[exact, exact, exact, Numerics::Fast, Numerics::Hmx]).wire();
        let header = ProgramHeader { n_slots, numerics, ..ProgramHeader::new(max_tokens, n_ctx) };
        let free = rooms.iter().map(|_| random.below(64) * 128).collect();
        let rooms = rooms.to_vec();
        Self { random, rooms, free, header, tensors: vec![], ops: vec![], ids: vec![] }
    }

    /// A program of up to five ops.
    pub fn program(&mut self) {
        for _ in 0..1 + self.random.below(5) {
            let op = self.random.pick(Op::ALL);
            let (tensors, free) = (self.tensors.len(), self.free.clone());
            if self.add(op).is_none() {
                // No room: forget its operands.
                self.tensors.truncate(tensors);
                self.free = free;
            }
        }
    }

    /// The block.
    pub fn block(&self) -> Vec<u8> {
        let counts = [self.rooms.len(), self.tensors.len(), self.ops.len()];
        let header = self.header.with_counts(counts).unwrap();
        let buffers: Vec<_> =
            self.rooms.iter().map(|room| BufferRef { buffer: room.id, reserved: 0 }).collect();
        [header.as_bytes(), buffers.as_bytes(), self.tensors.as_bytes(), self.ops.as_bytes()].concat()
    }

    fn length(&mut self) -> u32 {
        self.random.pick(&LENGTHS)
    }

    fn few(&mut self) -> u32 {
        self.random.pick(&FEW)
    }

    /// A length of rows that are whole blocks of a type.
    fn length_of(&mut self, dtype: DType) -> u32 {
        self.length().next_multiple_of(dtype.row_block().map_or(1, |block| block.values as u32))
    }

    /// Any shape with rows of `n`; sometimes one axis is cut to the tokens.
    fn rows(&mut self, n: u32) -> Shape {
        let mut ne = [n, self.few(), self.few(), self.few()];
        if self.random.chance(10) {
            ne[1] = self.length();
        }
        let axis = self.random.pick(&[NO_TOKEN_AXIS, 1, 1, 2, 3]);
        if axis != NO_TOKEN_AXIS {
            ne[axis as usize] = self.header.max_tokens;
        }
        Shape(ne, axis)
    }

    /// Puts a tensor somewhere.
    fn put(&mut self, dtype: DType, Shape(ne, token_axis): Shape, used: Use) -> Tensor {
        let k = ne[0] as usize;
        let (align, nb0, row) = match (dtype.tile_group(), dtype.row_block()) {
            (Some(g), _) => (128, g.bytes, g.strip_bytes(k)),
            (None, Some(block)) => (block.align, block.bytes, dtype.row_bytes(k)),
            (None, None) => (128, 1, ActivationRow::new(k).bytes()),
        };
        let rows = if dtype.tile_group().is_some() { ne[1].div_ceil(TILE_ROWS as u32) } else { ne[1] };
        let mut nb = [nb0 as u32, row as u32, 0, 0];
        let loose = matches!(used, Use::Input | Use::Output);
        let gap = |random: &mut Random| {
            if loose && random.chance(15) { (align * (1 + random.below(5))) as u32 } else { 0 }
        };
        if dtype.tile_group().is_none() {
            nb[1] += gap(self.random);
        }
        nb[2] = nb[1] * rows + gap(self.random);
        nb[3] = nb[2] * ne[2] + gap(self.random);
        if used == Use::Input && self.random.chance(15) {
            let axis = if dtype.tile_group().is_some() { 2 } else { 1 } + self.random.below(2);
            nb[axis] = 0;
        }
        let mut t = TensorDesc {
            offset: 0,
            buffer: 0,
            dtype: dtype.wire(),
            token_axis,
            flags: self.random.pick(&[0, 0, 1, 2, 3]),
            reserved: 0,
            ne,
            nb,
        };
        let extent = t.extent(dtype)? as usize;
        let writes = matches!(used, Use::Output | Use::State);
        let room = self.random.below(self.rooms.len());
        let room = (room..room + self.rooms.len())
            .map(|i| i % self.rooms.len())
            .find(|&i| !writes || self.rooms[i].writable)?;
        let mut at = self.free[room].next_multiple_of(128);
        if align < 128 && self.random.chance(40) {
            at += align * self.random.below(8);
        }
        if at + extent > self.rooms[room].size {
            return None;
        }
        self.free[room] = at + extent + self.random.below(3) * 64;
        (t.offset, t.buffer) = (at as u64, room as u16);
        self.tensors.push(t);
        Some(TensorIndex(self.tensors.len() as u16 - 1))
    }

    fn input(&mut self, shape: Shape) -> Tensor {
        // Often what an earlier op left.
        if self.random.chance(40) {
            let alike =
                |t: &TensorDesc| (t.ne, t.token_axis, t.dtype, t.nb[0]) == (shape.0, shape.1, F32.wire(), 4);
            if let Some(i) = self.tensors.iter().rposition(alike) {
                return Some(TensorIndex(i as u16));
            }
        }
        self.put(F32, shape, Use::Input)
    }

    /// An output like input `of`: it in place, or another tensor.
    fn like(&mut self, of: TensorIndex, shape: Shape) -> Tensor {
        let t = self.tensors[of.0 as usize];
        let fits = self.rooms[t.buffer as usize].writable
            && (1..4).all(|axis| t.ne[axis] == 1 || t.nb[axis] >= t.nb[axis - 1] * t.ne[axis - 1]);
        if fits && self.random.chance(30) { Some(of) } else { self.put(F32, shape, Use::Output) }
    }

    /// Ids below `n`, nearly always.
    fn ids(&mut self, shape: Shape, n: u32) -> Tensor {
        let index = self.put(I32, shape, Use::Input)?;
        let t = self.tensors[index.0 as usize];
        let room = self.rooms[t.buffer as usize];
        for i in 0..shape.0.iter().product() {
            let [a, b, c] = [i % t.ne[0], i / t.ne[0] % t.ne[1], i / t.ne[0] / t.ne[1]].map(|i| i as usize);
            let at = t.offset as usize
                + a * t.nb[0] as usize
                + b * t.nb[1] as usize
                + c % t.ne[2] as usize * t.nb[2] as usize
                + c / t.ne[2] as usize * t.nb[3] as usize;
            let id = if self.random.chance(1) {
                self.random.telling() as i32
            } else {
                self.random.below(n as usize) as i32
            };
            self.ids.push((room.id, at, id));
        }
        Some(index)
    }

    fn op(&mut self, op: Op, src: &[Tensor], dst: &[TensorIndex], params: &(impl IntoBytes + Immutable)) {
        let src: Vec<_> = src.iter().map(|index| index.unwrap_or(TensorIndex::NONE)).collect();
        let part = self.random.below(PARTS) as u16;
        let mut desc = OpDesc { part, ..OpDesc::new(op, &src, dst) };
        desc.set_params(params);
        self.ops.push(desc);
    }

    /// Whether one of the ops so far is of this kind.
    fn has(&self, op: Op) -> bool {
        self.ops.iter().any(|desc| desc.opcode == op.wire())
    }

    /// Copies the word at `from` to `to`, both in room `room`: a receipt, if it is the last op.
    pub fn receipt(&mut self, room: usize, from: usize, to: usize) {
        for offset in [from, to] {
            let word = TensorDesc::packed(I32, [1; 4]).expect("four bytes");
            self.tensors.push(TensorDesc { offset: offset as u64, buffer: room as u16, ..word });
        }
        let n = self.tensors.len() as u16;
        self.op(Op::Cpy, &[Some(TensorIndex(n - 2))], &[TensorIndex(n - 1)], &[0u32; 0]);
    }
}

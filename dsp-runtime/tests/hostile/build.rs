//! Random valid programs: several ops over a few small buffers, with views, token axes, states and in-place forms.

use hexflash_abi::dtype::{ActivationRow, TILE_ROWS};
use hexflash_abi::op::{Op, params};
use hexflash_abi::program::{BufferRef, MAX_DST, MAX_SRC, NO_TOKEN_AXIS, OpDesc, ProgramHeader, TensorDesc};
use hexflash_abi::validate::block_bytes;
use hexflash_abi::{
    ABI_VERSION, BufferId,
    DType::{self, *},
    LAYOUT_HASH, MAGIC, TensorIndex,
};
use zerocopy::{Immutable, IntoBytes};

use crate::random::Random;

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
        let header = ProgramHeader {
            magic: MAGIC,
            abi_version: ABI_VERSION,
            layout_hash: LAYOUT_HASH,
            total_bytes: 0,
            n_buffers: 0,
            n_tensors: 0,
            n_ops: 0,
            max_tokens,
            n_ctx: max_tokens + random.below(70) as u32,
            reserved: [0; 6],
        };
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
        let mut header = self.header;
        [header.n_buffers, header.n_tensors, header.n_ops] = counts.map(|n| n as u32);
        header.total_bytes = block_bytes(counts[0], counts[1], counts[2]).unwrap() as u32;
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
        let (align, nb0, row) = match (dtype.tile_group(), dtype.element_bytes()) {
            (Some(g), _) => (128, g.bytes, g.strip_bytes(k)),
            (None, Some(bytes)) => (bytes, bytes, k * bytes),
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

    fn op(&mut self, op: Op, src: &[Tensor], dst: TensorIndex, params: &(impl IntoBytes + Immutable)) {
        let mut desc = OpDesc {
            opcode: op.wire(),
            part: 0,
            src: [TensorIndex::NONE; MAX_SRC],
            dst: [TensorIndex::NONE; MAX_DST],
            reserved2: 0,
            params: [0; 16],
        };
        for (slot, index) in desc.src.iter_mut().zip(src) {
            *slot = index.unwrap_or(TensorIndex::NONE);
        }
        desc.dst[0] = dst;
        desc.set_params(params);
        self.ops.push(desc);
    }

    /// Copies the word at `from` to `to`, both in room `room`: a receipt, if it is the last op.
    pub fn receipt(&mut self, room: usize, from: usize, to: usize) {
        let word = |offset: usize| TensorDesc {
            offset: offset as u64,
            buffer: room as u16,
            dtype: I32.wire(),
            token_axis: NO_TOKEN_AXIS,
            flags: 0,
            reserved: 0,
            ne: [1; 4],
            nb: [4; 4],
        };
        self.tensors.extend([word(from), word(to)]);
        let n = self.tensors.len() as u16;
        self.op(Op::Cpy, &[Some(TensorIndex(n - 2))], TensorIndex(n - 1), &[0u32; 0]);
    }

    /// Adds an op; `None` if there is no room for its operands.
    fn add(&mut self, op: Op) -> Option<()> {
        const NOTHING: [u32; 0] = [];
        match op {
            Op::RmsNorm | Op::L2Norm | Op::Scale | Op::Silu | Op::Sigmoid | Op::Softplus | Op::Exp => {
                let n = self.length();
                let shape = self.rows(n);
                let x = self.input(shape)?;
                let weighted = op == Op::RmsNorm && self.random.chance(50);
                let w = if weighted {
                    Some(self.put(F32, Shape::fixed([n, 1, 1, 1]), Use::Packed)?)
                } else {
                    None
                };
                let y = self.like(x, shape)?;
                match op {
                    Op::RmsNorm | Op::L2Norm => self.op(op, &[Some(x), w], y, &params::Norm { eps: 1e-6 }),
                    Op::Scale => self.op(op, &[Some(x)], y, &params::Scale { scale: 2.0, bias: 0.5 }),
                    _ => self.op(op, &[Some(x)], y, &NOTHING),
                }
            }
            Op::Add | Op::Mul => {
                let n = self.length();
                let shape = self.rows(n);
                let mut other = shape;
                if self.random.chance(50) {
                    let axis = self.random.below(4);
                    other.0[axis] = 1;
                    if other.1 == axis as u8 {
                        other.1 = NO_TOKEN_AXIS;
                    }
                }
                let (a, b) = (self.input(shape)?, self.input(other)?);
                let y = self.like(a, shape)?;
                // In place of one is refused if the other overlaps it otherwise.
                self.op(op, &[Some(a), Some(b)], y, &NOTHING);
            }
            Op::Swiglu => {
                let n = self.length();
                let mut shape = self.rows(n);
                if self.random.chance(50) {
                    let (a, b) = (self.input(shape)?, self.input(shape)?);
                    let y = self.like(b, shape)?;
                    self.op(op, &[Some(a), Some(b)], y, &params::Swiglu { swapped: 0 });
                } else {
                    shape.0[0] = 2 * n;
                    let a = self.input(shape)?;
                    shape.0[0] = n;
                    let y = self.put(F32, shape, Use::Output)?;
                    let swapped = self.random.below(2) as u32;
                    self.op(op, &[Some(a)], y, &params::Swiglu { swapped });
                }
            }
            Op::Quantize => {
                let n = self.length();
                let shape = self.rows(n);
                let x = self.input(shape)?;
                let y = self.put(Q8Act, shape, Use::Output)?;
                self.op(op, &[Some(x)], y, &NOTHING);
            }
            Op::MulMat => {
                let (k, n) = (self.length(), self.length());
                let x_shape = self.rows(k);
                let mut w = [k, n, 1, 1];
                for axis in 2..4 {
                    if x_shape.1 != axis && self.random.chance(40) {
                        w[axis as usize] = x_shape.0[axis as usize];
                    }
                }
                let dtype = self.random.pick(&[F32x32, F16x32, Q8_0x32, Q4_0x32, Q6Kx32]);
                let w = self.put(dtype, Shape::fixed(w), Use::Input)?;
                let x = if dtype.wants_q8_activations() {
                    let from = self.input(x_shape)?;
                    let x = self.put(Q8Act, x_shape, Use::Output)?;
                    self.op(Op::Quantize, &[Some(from)], x, &NOTHING);
                    x
                } else {
                    self.input(x_shape)?
                };
                let [_, m, b2, b3] = x_shape.0;
                // The quantized rows stay, whatever follows.
                let y = self.put(F32, Shape([n, m, b2, b3], x_shape.1), Use::Output);
                if y.is_none() && dtype.wants_q8_activations() {
                    self.ops.pop();
                }
                self.op(op, &[Some(w), Some(x)], y?, &NOTHING);
            }
            Op::GetRows => {
                let (k, n, b2, b3) = (self.length(), self.length(), self.few(), self.few());
                let dtype = self.random.pick(&[F32, F16, F32x32, F16x32, Q8_0x32, Q4_0x32, Q6Kx32]);
                let table = self.put(dtype, Shape::fixed([k, n, b2, b3]), Use::Input)?;
                let cut = self.random.chance(50);
                let m = if cut { self.header.max_tokens } else { self.few() };
                let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
                let ids = self.ids(Shape([m, b2, b3, 1], axis(0)), n)?;
                let y = self.put(F32, Shape([k, m, b2, b3], axis(1)), Use::Output)?;
                self.op(op, &[Some(table), Some(ids)], y, &NOTHING);
            }
            Op::SetRows => {
                let (k, b2, b3) = (self.length(), self.few(), self.few());
                let cut = self.random.chance(50);
                let m = if cut { self.header.max_tokens } else { self.few() };
                let n = m + self.few();
                let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
                let x = self.input(Shape([k, m, b2, b3], axis(1)))?;
                let c2 = self.random.pick(&[1, b2]);
                let ids = self.ids(Shape([m, c2, 1, 1], axis(0)), n)?;
                let dtype = self.random.pick(&[F32, F16]);
                let y = self.put(dtype, Shape::fixed([k, n, b2, b3]), Use::Output)?;
                self.op(op, &[Some(x), Some(ids)], y, &NOTHING);
            }
            Op::Rope => self.rope()?,
            Op::SsmConv => {
                let (c, t, b, taps) = (self.length(), self.header.max_tokens, self.few(), 1 + self.few());
                let rows = Shape([c, t, b, 1], 1);
                let x = self.input(rows)?;
                let w = self.put(F32, Shape::fixed([c, taps, 1, 1]), Use::Packed)?;
                let size = taps + self.few() - 1;
                let ring = self.put(F32, Shape::fixed([c, size, b, 1]), Use::State)?;
                let y = self.put(F32, rows, Use::Output)?;
                self.op(op, &[Some(x), Some(w), Some(ring)], y, &NOTHING);
            }
            Op::GatedDeltaNet => self.gated_delta_net()?,
            Op::FlashAttnExt => self.flash_attn()?,
            Op::Argmax => {
                let n = self.length() * self.few();
                let cut = self.random.chance(50);
                let m = if cut { self.header.max_tokens } else { self.few() };
                let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
                let x = self.input(Shape([n, m, 1, 1], axis(1)))?;
                let y = self.put(I32, Shape([m, 1, 1, 1], axis(0)), Use::State)?;
                self.op(op, &[Some(x)], y, &NOTHING);
            }
            Op::Cpy => {
                let n = self.length();
                let shape = self.rows(n);
                let (from, to) =
                    self.random.pick(&[(F32, F32), (F32, F16), (F16, F32), (F16, F16), (I32, I32)]);
                let x = self.put(from, shape, Use::Input)?;
                let y = self.put(to, shape, Use::Output)?;
                if self.random.chance(30) && shape.1 == NO_TOKEN_AXIS {
                    // A transposed view.
                    let (a, b) = (self.random.below(4), self.random.below(4));
                    let x = &mut self.tensors[x.0 as usize];
                    x.nb.swap(a, b);
                    if x.ne[a] != x.ne[b] {
                        x.nb.swap(a, b);
                    }
                }
                self.op(op, &[Some(x)], y, &NOTHING);
            }
            Op::Concat => {
                let n = self.length();
                let a = self.rows(n);
                let axis = (0..4).find(|&axis| a.1 != axis && self.random.chance(40)).unwrap_or(0);
                let (mut b, mut y) = (a, a);
                b.0[axis as usize] = self.few();
                y.0[axis as usize] += b.0[axis as usize];
                let (a, b) = (self.input(a)?, self.input(b)?);
                let y = self.put(F32, y, Use::Output)?;
                self.op(op, &[Some(a), Some(b)], y, &params::Concat { axis: axis.into() });
            }
        }
        Some(())
    }

    fn rope(&mut self) -> Option<()> {
        let (half, h, b) = (self.length(), self.few(), self.few());
        let d = 2 * half + self.random.pick(&[0, 0, 1, 5]);
        let cut = self.random.chance(70);
        let t = if cut { self.header.max_tokens } else { self.few() };
        let axis = |axis| if cut { axis } else { NO_TOKEN_AXIS };
        let shape = Shape([d, h, t, b], axis(2));
        let x = self.input(shape)?;
        let mode = self.random.pick(&[0, 2, 8, 40]);
        let rows = if mode >= 8 { 4 } else { 1 };
        let positions = self.random.chance(60);
        let positions =
            if positions { Some(self.ids(Shape([t, rows, 1, 1], axis(0)), 1 << 20)?) } else { None };
        let factors = self.random.chance(30);
        let factors =
            if factors { Some(self.put(F32, Shape::fixed([half, 1, 1, 1]), Use::Packed)?) } else { None };
        let y = self.like(x, shape)?;
        let p = params::Rope {
            n_dims: 2 * half,
            mode,
            n_ctx_orig: self.random.telling() as u32,
            freq_base: self.random.pick(&[10000.0, 1e-30, 1.0]),
            freq_scale: self.random.pick(&[1.0, 0.0, -3.0]),
            ext_factor: self.random.pick(&[0.0, 1.0, -1e30]),
            attn_factor: 1.0,
            beta_fast: self.random.pick(&[32.0, 0.0]),
            beta_slow: 1.0,
            sections: self.random.pick(&[[1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 1]]),
        };
        self.op(Op::Rope, &[Some(x), positions, factors], y, &p);
        Some(())
    }

    fn gated_delta_net(&mut self) -> Option<()> {
        let s = self.random.pick(&[1, 2, 16, 31, 32, 33, 64, 128]);
        let (hk, bk, t) = (self.few(), self.few(), self.header.max_tokens);
        let (h, b) = (hk * self.few(), bk * self.random.pick(&[1, 1, 2]));
        let cut = |ne| Shape(ne, 2);
        let (q, k) = (self.input(cut([s, hk, t, bk]))?, self.input(cut([s, hk, t, bk]))?);
        let v = self.input(cut([s, h, t, b]))?;
        let gates = self.random.pick(&[1, s]);
        let (g, beta) = (self.input(cut([gates, h, t, b]))?, self.input(cut([1, h, t, b]))?);
        let state = self.put(F32, Shape::fixed([s, s, h, b]), Use::State)?;
        let y = self.put(F32, cut([s, h, t, b]), Use::Output)?;
        let src = [q, k, v, g, beta, state].map(Some);
        self.op(Op::GatedDeltaNet, &src, y, &[0u32; 0]);
        Some(())
    }

    fn flash_attn(&mut self) -> Option<()> {
        let (d, dv) = (self.length(), self.length());
        let (hk, b, t, n_ctx) = (self.few(), self.few(), self.header.max_tokens, self.header.n_ctx);
        let h = hk * self.random.pick(&[1, 2, 3, 40]);
        let n = n_ctx + self.few() - 1;
        let cut = |ne| Shape(ne, 2);
        let q = self.input(cut([d, h, t, b]))?;
        let k_cache = self.put(F16x32, Shape::fixed([d, n, hk, b]), Use::State)?;
        let v_cache = self.put(F16, Shape::fixed([dv, n, hk, b]), Use::Output)?;
        let append = self.random.chance(70);
        let k = if append { Some(self.input(cut([d, hk, t, b]))?) } else { None };
        let v = if append { Some(self.input(cut([dv, hk, t, b]))?) } else { None };
        let masked = self.random.chance(40);
        let (mh, mb) = (self.random.pick(&[1, h]), self.random.pick(&[1, b]));
        let mask = if masked { Some(self.put(F16, Shape([n_ctx, t, mh, mb], 1), Use::Input)?) } else { None };
        let sunk = self.random.chance(30);
        let sinks = if sunk { Some(self.put(F32, Shape::fixed([h, 1, 1, 1]), Use::Packed)?) } else { None };
        let y = self.put(F32, cut([dv, h, t, b]), Use::Output)?;
        let p = params::FlashAttn {
            scale: 0.125,
            visibility: self.random.pick(&[1, 2]),
            window: self.random.pick(&[0, 0, 1, 5, u32::MAX]),
            softcap: self.random.pick(&[0.0, 30.0, 1e-40]),
            max_bias: self.random.pick(&[0.0, 8.0, 1e38]),
        };
        self.op(Op::FlashAttnExt, &[Some(q), Some(k_cache), Some(v_cache), k, v, mask, sinks], y, &p);
        Some(())
    }
}

//! A ggml graph as a program of hexflash's ops.
//!
//! Positions, masks and lengths are data in ggml's graphs, so that a program has no token axis and depends on
//! no register but its position. Every op of ggml becomes one op of the op table where that means the same,
//! with copies around it where types or strides are not what the op takes; a few become several ops. Nothing
//! is computed here.
//!
//! What the op table takes is not written down a second time: [`supports`] records a node, and asks the same
//! validation that the device runs.

mod attention;
mod fuse;
mod matrix;
mod operand;
mod state;
mod values;

use std::collections::HashMap;

use hexflash::record::Tensor as Recorded;
use hexflash::record::{Homes, Recorder};
use hexflash_abi::op::params::UnaryKind;
use hexflash_abi::program::{Numerics, TensorFlags};
use hexflash_abi::registers::StepRegisters;
use hexflash_abi::validate::BufferInfo;
use hexflash_abi::{BufferId, DType, Op as DspOp};
use zerocopy::{Immutable, IntoBytes};

use crate::abi::Tensor;
use crate::op::Op;
use crate::times::part_of;
pub use fuse::Groups;
use fuse::Role;
pub use matrix::{TileJob, needs_tiles, tile_bytes};
pub use operand::type_of as operand_type;
use operand::{Operand, Value};
use state::Window;

/// Position of a program's step. Recurrent ops start from zeros at position 0, and SSM_CONV finds its history
/// in the places before this one, in a ring of as many rows.
const N_PAST: u32 = hexflash_abi::op::MAX_TAPS;

/// The registers of every program here.
pub const REGISTERS: StepRegisters = StepRegisters::step(N_PAST, 1);

/// Why a node does not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub &'static str);

/// Where a tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer.
    pub buffer: BufferId,
    /// Bytes from its start.
    pub offset: u64,
    /// Whether the buffer holds weights in tiles.
    pub tiled: bool,
}

/// Knows where tensors lie.
pub trait Places {
    /// The place of a tensor; `None` if it is not in this device's memory.
    fn place(&self, tensor: &Tensor) -> Option<Place>;

    /// Whether a matrix that is in no buffer of tiles may be put into tiles before each run.
    fn packs_each_time(&self, matrix: &Tensor) -> bool;
}

/// A graph as a program, and what the host has to do before each run.
pub struct Translation {
    /// The program.
    pub recorder: Recorder,
    /// Matrices to put into tiles first, because they do not lie in a buffer of tiles.
    pub jobs: Vec<TileJob>,
}

/// Translates nodes one after the other.
pub struct Translator<'p> {
    places: &'p dyn Places,
    /// The buffer for matrices in tiles.
    tiles: BufferId,
    tiles_used: u64,
    out: Translation,
    bases: HashMap<(BufferId, DType, u8), Recorded>,
    /// Activations that are there as int8 already, by where their floats lie.
    quantized: Vec<(Operand, Recorded)>,
    /// Columns of convolutions, by the node that joins them.
    windows: HashMap<*const Tensor, Window>,
    /// Results that are not written, because they are there already: and where.
    elsewhere: Vec<(Operand, Place)>,
    /// Whether the device is to tell how long each kind of ops took.
    by_kind: bool,
}

impl<'p> Translator<'p> {
    /// With the buffer that matrices are put into as tiles.
    pub fn new(places: &'p dyn Places, tiles: BufferId) -> Self {
        let out = Translation { recorder: Recorder::new(1, N_PAST + 1), jobs: Vec::new() };
        Self {
            places,
            tiles,
            tiles_used: 0,
            out,
            bases: HashMap::new(),
            quantized: Vec::new(),
            windows: HashMap::new(),
            elsewhere: Vec::new(),
            by_kind: false,
        }
    }

    /// Has the device tell how long each kind of ops took.
    #[must_use]
    pub fn by_kind(self, by_kind: bool) -> Self {
        Self { by_kind, ..self }
    }

    /// Says what class the program is of: exact, unless this says otherwise.
    #[must_use]
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.out.recorder.numerics(numerics);
        self
    }

    /// The program of all nodes so far.
    pub fn finish(self) -> Translation {
        self.out
    }

    /// Adds a node of a graph with these groups.
    ///
    /// # Errors
    /// It is not one that runs here, or not as part of its group.
    pub fn node_of(&mut self, groups: &Groups<'_>, node: &Tensor) -> Result<(), Refusal> {
        match groups.role(node) {
            None => self.node(node),
            Some(Role::Elsewhere) => Ok(()),
            Some(Role::Normed(norm)) => self.weighted_norm(norm, node),
            Some(Role::Gated(gate)) => self.gate(gate, node),
            Some(Role::Convolved(conv)) => self.convolution(conv, node, true),
            Some(Role::Window) => self.window(node),
            Some(Role::Stateless(copy)) => self.delta_net(node, Some(copy)),
            Some(Role::OnlyRow) => self.only_row(node),
        }
    }

    /// Adds a node.
    ///
    /// # Errors
    /// It is not one that runs here.
    pub fn node(&mut self, node: &Tensor) -> Result<(), Refusal> {
        let op = Op::of(node.op).ok_or(Refusal("the op"))?;
        if node.ne.contains(&0) {
            return Ok(());
        }
        match op {
            Op::None | Op::Reshape | Op::View | Op::Permute | Op::Transpose => Ok(()),
            Op::Dup | Op::Cpy | Op::Cont => self.copy_node(node),
            Op::Add => self.binary(DspOp::Add, node),
            Op::Mul => self.binary(DspOp::Mul, node),
            Op::Div => self.binary(DspOp::Div, node),
            Op::Sub => self.sub(node),
            Op::Sqr => self.sqr(node),
            Op::Scale => self.scale(node),
            Op::Sqrt => self.named(UnaryKind::Sqrt, node),
            Op::Log => self.named(UnaryKind::Log, node),
            Op::Sin => self.named(UnaryKind::Sin, node),
            Op::Cos => self.named(UnaryKind::Cos, node),
            Op::LeakyRelu => self.leaky_relu(node),
            Op::Clamp => self.clamp(node),
            Op::Norm => self.norm(DspOp::Norm, node),
            Op::SoftMax => self.soft_max(node),
            Op::SumRows => self.sum_rows(node, false),
            Op::Mean => self.sum_rows(node, true),
            Op::Argsort => self.argsort(node, node.op_params[0] == 1),
            Op::TopK => self.argsort(node, true),
            Op::Repeat => self.repeat(node),
            Op::Unary => self.unary(node),
            Op::Glu => self.glu(node),
            Op::RmsNorm => self.norm(DspOp::RmsNorm, node),
            Op::L2Norm => self.norm(DspOp::L2Norm, node),
            Op::Rope => self.rope(node),
            Op::Concat => self.concat(node),
            Op::Argmax => self.argmax(node),
            Op::AddId => self.add_id(node),
            Op::MulMat => self.mul_mat(node),
            Op::MulMatId => self.mul_mat_id(node),
            Op::GetRows => self.get_rows(node),
            Op::SetRows => self.set_rows(node),
            Op::SsmConv => self.convolution(node, node, false),
            Op::GatedDeltaNet => self.delta_net(node, None),
            Op::FlashAttnExt => self.flash_attn(node),
        }
    }

    /// A view of a buffer: its type's base there is recorded once.
    fn placed(&mut self, o: &Operand, flags: TensorFlags) -> Recorded {
        let rec = &mut self.out.recorder;
        let base = *self
            .bases
            .entry((o.place.buffer, o.dtype, flags.bits()))
            .or_insert_with(|| rec.tensor(o.place.buffer, 0, o.dtype, [1; 4], flags));
        rec.view(base, o.place.offset, o.ne, o.nb, None)
    }

    /// What an op reads.
    fn source(&mut self, o: &Operand) -> Value {
        let o = &self.found(o);
        Value { tensor: self.placed(o, TensorFlags::HOST_WRITES), at: Some(*o) }
    }

    /// The operand where its bytes are.
    fn found(&self, o: &Operand) -> Operand {
        let at = |(result, home): &(Operand, Place)| {
            let offset = o.place.offset.checked_sub(result.place.offset)?;
            let inside = result.place.buffer == o.place.buffer && offset + o.bytes() <= result.bytes();
            inside.then_some(Place { offset: home.offset + offset, ..*home })
        };
        self.elsewhere.iter().find_map(at).map_or(*o, |place| Operand { place, ..*o })
    }

    /// Value that an op writes. The host may have written there since the DSP did, or beside it in the same
    /// cache line, and the DSP must not write back an older state of that.
    fn target(&mut self, o: &Operand) -> Value {
        self.forget(o);
        let both = TensorFlags::HOST_READS | TensorFlags::HOST_WRITES;
        Value { tensor: self.placed(o, both), at: Some(*o) }
    }

    /// Forgets what other places have of the bytes of an operand, because it changes.
    fn forget(&mut self, o: &Operand) {
        self.elsewhere.retain(|(result, _)| !result.overlaps(o));
        self.quantized.retain(|(source, _)| !source.overlaps(o));
    }

    fn scratch(&mut self, dtype: DType, ne: [u32; 4]) -> Value {
        Value { tensor: self.out.recorder.activation(dtype, ne), at: None }
    }

    /// Records an op whose operands all are as it takes them.
    fn emit<P: IntoBytes + Immutable>(&mut self, op: DspOp, src: &[Option<Value>], dst: Value, params: &P) {
        if self.by_kind {
            self.out.recorder.part(part_of(op));
        }
        let src: Vec<_> = src.iter().map(|value| value.map(|value| value.tensor)).collect();
        self.out.recorder.op_with(op, &src, &[dst.tensor], params);
    }

    /// Records an op with a result of type `dtype` in `dst`: directly, or where that has another type, or
    /// lies where the op does not allow it, by way of a copy.
    fn emit_into<P: IntoBytes + Immutable>(
        &mut self,
        op: DspOp,
        src: &[Option<Value>],
        (dst, dtype): (&Operand, DType),
        params: &P,
    ) -> Result<(), Refusal> {
        let in_place = op.spec().in_place;
        let meets = src.iter().enumerate().any(|(i, value)| {
            let at = value.and_then(|value| value.at);
            at.is_some_and(|at| {
                at.overlaps(dst) && !(at == *dst && in_place.iter().any(|src| src.place() == i))
            })
        });
        if dst.dtype == dtype && dst.has_rows() && !meets {
            let dst = self.target(dst);
            self.emit(op, src, dst, params);
            return Ok(());
        }
        let result = self.scratch(dtype, dst.ne);
        self.emit(op, src, result, params);
        self.copy(result, dst)
    }

    /// Copies a value of the same shape.
    fn copy(&mut self, src: Value, dst: &Operand) -> Result<(), Refusal> {
        const NO_PARAMS: [u32; 0] = [];
        let from = src.dtype(&self.out.recorder);
        if (from == DType::I32) != (dst.dtype == DType::I32) {
            return Err(Refusal("a copy between integers and floats"));
        }
        if [(DType::F16, DType::Q8_0), (DType::Q8_0, DType::F16)].contains(&(from, dst.dtype)) {
            // By way of F32, which holds both.
            let ne = self.out.recorder.ne(src.tensor);
            let between = self.scratch(DType::F32, ne);
            self.emit(DspOp::Cpy, &[Some(src)], between, &NO_PARAMS);
            return self.copy(between, dst);
        }
        if src.at.is_some_and(|at| at.overlaps(dst)) {
            if src.at == Some(*dst) {
                return Ok(());
            }
            let between = self.scratch(dst.dtype, dst.ne);
            self.emit(DspOp::Cpy, &[Some(src)], between, &NO_PARAMS);
            return self.copy(between, dst);
        }
        // CPY writes rows: exchange axes, on both sides, until the first one is dense.
        let axis = dst.dense_axis().ok_or(Refusal("a copy to elements that are all apart"))?;
        if axis > 0 && from == DType::Q8_0 {
            return Err(Refusal("a copy of blocks to elements that are apart"));
        }
        let (ne, nb) = (self.out.recorder.ne(src.tensor), self.out.recorder.nb(src.tensor));
        let mut order = [0, 1, 2, 3];
        order.swap(0, axis);
        let tensor = self.out.recorder.view(src.tensor, 0, order.map(|i| ne[i]), order.map(|i| nb[i]), None);
        let dst =
            self.target(&Operand { ne: order.map(|i| dst.ne[i]), nb: order.map(|i| dst.nb[i]), ..*dst });
        self.emit(DspOp::Cpy, &[Some(Value { tensor, at: None })], dst, &NO_PARAMS);
        Ok(())
    }

    /// F32 in rows, as most ops read: the operand itself, or a copy of it.
    fn rows(&mut self, o: &Operand) -> Result<Value, Refusal> {
        if o.dtype == DType::I32 {
            return Err(Refusal("integers"));
        }
        let source = self.source(o);
        if o.dtype == DType::F32 && o.has_rows() {
            return Ok(source);
        }
        let copy = self.scratch(DType::F32, o.ne);
        self.emit(DspOp::Cpy, &[Some(source)], copy, &[0u32; 0]);
        Ok(copy)
    }

    /// The operand of a tensor that is there.
    fn operand(&self, tensor: Option<&Tensor>) -> Result<Operand, Refusal> {
        let tensor = tensor.ok_or(Refusal("a missing operand"))?;
        Operand::of(tensor, self.places)
    }

    /// Source `i` of a node, which must be there, and may be rows of Q8_0.
    fn rows_of_source(&self, node: &Tensor, i: usize) -> Result<Operand, Refusal> {
        Operand::of_rows(source_of(node, i).ok_or(Refusal("a missing operand"))?, self.places)
    }

    /// Source `i` of a node, which must be there.
    fn src(&self, node: &Tensor, i: usize) -> Result<Operand, Refusal> {
        self.operand(source_of(node, i))
    }
}

/// Source `i` of a node.
pub fn source_of(node: &Tensor, i: usize) -> Option<&Tensor> {
    // SAFETY: the host keeps the tensors of a graph in place and unchanged during a call, and gives null for
    // sources that an op has not.
    unsafe { node.src[i].as_ref() }
}

/// Whether a node only looks at what another one has.
pub fn is_view(node: &Tensor) -> bool {
    matches!(Op::of(node.op), Some(Op::None | Op::Reshape | Op::View | Op::Permute | Op::Transpose))
}

/// Parameter `i` of a node as a float.
fn float(node: &Tensor, i: usize) -> f32 {
    f32::from_bits(node.op_params[i] as u32)
}

/// Whether a node runs here, whatever memory it will get.
pub fn supports(node: &Tensor, places: &dyn Places) -> bool {
    let mut translator = Translator::new(places, BufferId(PRETENDED_TILES));
    if translator.node(node).is_err() {
        return false;
    }
    let Ok(recorded) = translator.finish().recorder.finish() else { return false };
    let homes =
        Homes { activations: BufferId(PRETENDED_SCRATCH), kept_at: 0, handed: BufferId(PRETENDED_SCRATCH) };
    let endless = BufferInfo { size: 1 << 48, read_only: false };
    recorded.ops() == 0 || recorded.block(0, &homes, |_| Some(endless)).is_ok()
}

/// Ids of buffers that no session has.
const PRETENDED_TILES: u32 = u32::MAX - 1;
const PRETENDED_SCRATCH: u32 = u32::MAX;

//! Recording: ops and tensors become a program block, once per shape.
//!
//! A [`Recorder`] collects tensors and ops in order. Tensors live in persistent buffers (weights, caches, inputs and
//! outputs) or are *activations*, which live from the op that writes them to the last op that reads them; the
//! planner gives activations that are never alive together the same memory. *Kept* tensors lie in the activations'
//! buffer, too, but behind all that their programs use there, so that they live from one program to another.
//!
//! A program may be split over the sessions of a device: each runs some of its ops, in order. Activations that one
//! session leaves to another are *handed over*, in a buffer that all of them map and nothing else uses.

mod placement;
mod planner;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use hexflash_abi::program::{
    BufferRef, NO_TOKEN_AXIS, OpDesc, PARTS, ProgramHeader, TensorDesc, TensorFlags,
};
use hexflash_abi::validate::{BufferInfo, Program};
use hexflash_abi::{BufferId, DType, Fault, Op, TensorIndex};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::setting::Setting;
pub use placement::{MAX_SESSIONS, SessionSet};
use planner::{Lifetime, Planner};

/// A tensor of the program under construction: shape and strides as recorded, memory decided later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor(usize);

/// Where a tensor's bytes come from.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// A persistent buffer.
    Buffer(BufferId),
    /// Activation number, by order of creation; offsets are relative to it.
    Activation(usize),
    /// The activations' buffer, behind the activations.
    Kept,
}

/// What the recorder knows of a tensor.
#[derive(Clone, Copy, Debug)]
struct Entry {
    home: Home,
    desc: TensorDesc,
    dtype: DType,
}

/// A tensor of `ne` elements without gaps, at the start of its buffer.
///
/// # Errors
/// [`RecordError::Strides`].
pub fn packed(dtype: DType, ne: [u32; 4]) -> Result<TensorDesc, RecordError> {
    TensorDesc::packed(dtype, ne).ok_or(RecordError::Strides { dtype, ne })
}

/// Bytes of a packed tensor.
///
/// # Errors
/// [`RecordError::Strides`].
pub fn packed_bytes(dtype: DType, ne: [u32; 4]) -> Result<u64, RecordError> {
    packed(dtype, ne)?.extent(dtype).ok_or(RecordError::Strides { dtype, ne })
}

/// An op of a program, for people: what it does, and with which weight, or after which op with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    op: Op,
    weight: Option<Arc<str>>,
    /// Whether the op itself reads the weight.
    own: bool,
}

impl Site {
    /// The weight that it reads, or that an op before it read last.
    pub fn weight(&self) -> Option<&str> {
        self.weight.as_deref()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op.name())?;
        match &self.weight {
            Some(weight) if self.own => write!(f, " with {weight}"),
            Some(weight) => write!(f, " after {weight}"),
            None => Ok(()),
        }
    }
}

/// Records a program.
#[derive(Debug)]
pub struct Recorder {
    max_tokens: u32,
    n_ctx: u32,
    tensors: Vec<Entry>,
    ops: Vec<OpDesc>,
    activations: Vec<Lifetime>,
    part: u16,
    /// Session of each op, and of the next one.
    sessions: Vec<usize>,
    session: usize,
    /// The first tensor that no descriptor can hold; [`finish`](Self::finish) tells of it.
    refused: Option<(DType, [u32; 4])>,
    /// Names of tensors that have one.
    names: HashMap<Tensor, Arc<str>>,
    sites: Vec<Site>,
}

/// A recorded program: its block, and the activation memory it needs.
#[derive(Clone, Debug)]
pub struct Recorded {
    tensors: Vec<Entry>,
    ops: Vec<OpDesc>,
    /// Session of each op.
    sessions: Vec<usize>,
    sites: Vec<Site>,
    max_tokens: u32,
    n_ctx: u32,
    places: Vec<Place>,
    /// Bytes of activation memory.
    pub activation_bytes: u64,
    /// Bytes of activations that sessions hand over.
    pub handed_bytes: u64,
    /// Bytes that activations would need without reuse.
    pub activation_bytes_unshared: u64,
}

/// Where an activation lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// From the start of the activations, or of what is handed over.
    offset: u64,
    users: Users,
}

/// The sessions that write and read an activation.
#[derive(Clone, Copy, Debug)]
struct Users {
    written: SessionSet,
    read: SessionSet,
}

impl Users {
    fn handed_over(&self) -> bool {
        self.written.with(self.read).iter().nth(1).is_some()
    }

    /// What a session must do to its caches: as if the host had written what sessions before it did, and would read what
    /// this one does. That holds for the last one, too: a line that it kept would overwrite what the first one writes
    /// next.
    fn flags(&self, session: usize, role: Role) -> TensorFlags {
        match role {
            Role::Source if self.written.iter().any(|other| other < session) => TensorFlags::HOST_WRITES,
            Role::Destination if self.handed_over() => TensorFlags::HOST_READS,
            _ => TensorFlags::empty(),
        }
    }
}

/// What an op does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Source,
    Destination,
}

/// The buffers and places that a program's block names.
#[derive(Clone, Copy, Debug)]
pub struct Homes {
    /// Buffer of the session's activations.
    pub activations: BufferId,
    /// Where kept tensors begin there: at [`activation_bytes`](Recorded::activation_bytes) or after it.
    pub kept_at: u64,
    /// Buffer of what sessions hand over.
    pub handed: BufferId,
}

impl Recorder {
    /// A program whose token axis is `max_tokens` long, for caches of `n_ctx` positions.
    pub fn new(max_tokens: u32, n_ctx: u32) -> Self {
        Self {
            max_tokens,
            n_ctx,
            tensors: Vec::new(),
            ops: Vec::new(),
            activations: Vec::new(),
            part: 0,
            sessions: Vec::new(),
            session: 0,
            names: HashMap::new(),
            sites: Vec::new(),
            refused: None,
        }
    }

    /// Length of the token axis.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// Ops so far.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// A packed tensor in a persistent buffer.
    pub fn tensor(
        &mut self,
        buffer: BufferId,
        offset: u64,
        dtype: DType,
        ne: [u32; 4],
        flags: TensorFlags,
    ) -> Tensor {
        self.push(Home::Buffer(buffer), offset, dtype, ne, flags)
    }

    /// A packed tensor that lives on after the program, `offset` bytes behind the activations.
    pub fn kept(&mut self, offset: u64, dtype: DType, ne: [u32; 4]) -> Tensor {
        self.push(Home::Kept, offset, dtype, ne, TensorFlags::empty())
    }

    /// A packed activation.
    pub fn activation(&mut self, dtype: DType, ne: [u32; 4]) -> Tensor {
        let number = self.activations.len();
        // What cannot be described has no bytes: `push` refuses it.
        self.activations.push(Lifetime::unused(packed_bytes(dtype, ne).unwrap_or(0)));
        self.push(Home::Activation(number), 0, dtype, ne, TensorFlags::empty())
    }

    fn push(&mut self, home: Home, offset: u64, dtype: DType, ne: [u32; 4], flags: TensorFlags) -> Tensor {
        let packed = TensorDesc::packed(dtype, ne).unwrap_or_else(|| {
            self.refused.get_or_insert((dtype, ne));
            TensorDesc { ne, ..TensorDesc::new_zeroed() }
        });
        let desc = TensorDesc { offset, flags: flags.bits(), ..packed };
        self.add(Entry { home, desc, dtype })
    }

    fn add(&mut self, entry: Entry) -> Tensor {
        self.tensors.push(entry);
        Tensor(self.tensors.len() - 1)
    }

    /// Names a weight, for [`Site`].
    pub fn name(&mut self, weight: Tensor, name: &str) {
        self.names.insert(weight, name.into());
    }

    /// Says that axis `axis` of `tensor` is the token axis: a step uses its first `n_tokens` entries.
    pub fn tokens_on(&mut self, tensor: Tensor, axis: u8) -> Tensor {
        self.tensors[tensor.0].desc.token_axis = axis;
        tensor
    }

    /// A view of a row-major tensor: `offset` bytes in, `ne` elements with strides `nb` (bytes).
    pub fn view(
        &mut self,
        of: Tensor,
        offset: u64,
        ne: [u32; 4],
        nb: [u32; 4],
        token_axis: Option<u8>,
    ) -> Tensor {
        let mut entry = self.tensors[of.0];
        entry.desc.offset += offset;
        entry.desc.ne = ne;
        entry.desc.nb = nb;
        entry.desc.token_axis = token_axis.unwrap_or(NO_TOKEN_AXIS);
        self.add(entry)
    }

    /// Elements per axis.
    pub fn ne(&self, tensor: Tensor) -> [u32; 4] {
        self.tensors[tensor.0].desc.ne
    }

    /// Bytes per step along an axis.
    pub fn nb(&self, tensor: Tensor) -> [u32; 4] {
        self.tensors[tensor.0].desc.nb
    }

    /// The token axis, or [`NO_TOKEN_AXIS`].
    pub fn token_axis(&self, tensor: Tensor) -> u8 {
        self.tensors[tensor.0].desc.token_axis
    }

    /// Element type.
    pub fn dtype(&self, tensor: Tensor) -> DType {
        self.tensors[tensor.0].dtype
    }

    /// Ops recorded from here on belong to part `part` of the program, whose time the device tells.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn part(&mut self, part: usize) {
        assert!(part < PARTS);
        self.part = part as u16;
    }

    /// Ops recorded from here on run in session `session` of the device: the same as before, or a later one.
    ///
    /// # Panics
    /// If it is an earlier one.
    pub fn session(&mut self, session: usize) {
        assert!(session >= self.session);
        self.session = session;
    }

    /// Records an op without parameters.
    pub fn op(&mut self, op: Op, src: &[Tensor], dst: Tensor) {
        self.op_with(op, &src.iter().copied().map(Some).collect::<Vec<_>>(), &[dst], &[0u32; 0]);
    }

    /// Records an op; absent operands are `None`.
    pub fn op_with<P: IntoBytes + Immutable>(
        &mut self,
        op: Op,
        src: &[Option<Tensor>],
        dst: &[Tensor],
        params: &P,
    ) {
        let own = src.iter().flatten().find_map(|tensor| self.names.get(tensor).cloned());
        let near = || self.sites.last().and_then(|site| site.weight.clone());
        self.sites.push(Site { op, own: own.is_some(), weight: own.or_else(near) });
        let index = self.ops.len();
        let mut index_of = |tensor: &Tensor| self.used(*tensor, index);
        let none = TensorIndex::NONE;
        let src: Vec<_> = src.iter().map(|t| t.as_ref().map_or(none, &mut index_of)).collect();
        let dst: Vec<_> = dst.iter().map(&mut index_of).collect();
        let mut desc = OpDesc { part: self.part, ..OpDesc::new(op, &src, &dst) };
        desc.set_params(params);
        self.ops.push(desc);
        self.sessions.push(self.session);
    }

    fn used(&mut self, tensor: Tensor, op: usize) -> TensorIndex {
        if let Home::Activation(number) = self.tensors[tensor.0].home {
            self.activations[number].extend(op);
        }
        // More tensors than an index holds are refused by `block` at the end.
        TensorIndex(tensor.0 as u16)
    }

    /// Plans the activations.
    ///
    /// # Errors
    /// [`RecordError::Strides`]: a tensor is larger than a descriptor can say.
    pub fn finish(self) -> Result<Recorded, RecordError> {
        if let Some((dtype, ne)) = self.refused {
            return Err(RecordError::Strides { dtype, ne });
        }
        let users = self.users();
        let those = |handed: bool| -> Vec<Lifetime> {
            let all = self.activations.iter().zip(&users);
            all.map(|(life, users)| if users.handed_over() == handed { *life } else { life.empty() })
                .collect()
        };
        let [local, handed] = [false, true].map(|handed| Planner::plan(&those(handed)));
        let offsets = local.offsets.iter().zip(&handed.offsets).zip(&users);
        let places = offsets.map(|((&local, &handed), &users)| Place {
            offset: if users.handed_over() { handed } else { local },
            users,
        });
        Ok(Recorded {
            places: places.collect(),
            tensors: self.tensors,
            ops: self.ops,
            sessions: self.sessions,
            sites: self.sites,
            max_tokens: self.max_tokens,
            n_ctx: self.n_ctx,
            activation_bytes: local.bytes,
            handed_bytes: handed.bytes,
            activation_bytes_unshared: self.activations.iter().map(|a| a.bytes).sum(),
        })
    }

    /// By activation.
    fn users(&self) -> Vec<Users> {
        let none = Users { written: SessionSet::NONE, read: SessionSet::NONE };
        let mut users = vec![none; self.activations.len()];
        for (op, &session) in self.ops.iter().zip(&self.sessions) {
            for (tensor, role) in operands(op) {
                let Home::Activation(number) = self.tensors[tensor].home else { continue };
                let users = &mut users[number];
                let set = if role == Role::Source { &mut users.read } else { &mut users.written };
                *set = set.with(SessionSet::one(session));
            }
        }
        users
    }
}

/// The tensors of an op, by number, and what it does with them.
fn operands(op: &OpDesc) -> impl Iterator<Item = (usize, Role)> {
    let of = |list: &[TensorIndex], role| {
        let some = list.iter().filter(|&&index| index != TensorIndex::NONE);
        some.map(|index| (usize::from(index.0), role)).collect::<Vec<_>>()
    };
    of(&op.src, Role::Source).into_iter().chain(of(&op.dst, Role::Destination))
}

impl Recorded {
    /// Ops of the program.
    pub fn ops(&self) -> usize {
        self.ops.len()
    }

    /// Bytes of the program block, about: buffers are counted when the block is made.
    pub fn block_bytes(&self) -> u64 {
        (size_of::<ProgramHeader>() + size_of_val(&*self.ops) + self.tensors.len() * size_of::<TensorDesc>())
            as u64
    }

    /// Whether a session runs any of it.
    pub fn runs_in(&self, session: usize) -> bool {
        self.sessions.contains(&session)
    }

    /// Numbers of the ops that session `session` runs.
    fn ops_of(&self, session: usize) -> Range<usize> {
        self.sessions.partition_point(|&other| other < session)
            ..self.sessions.partition_point(|&other| other <= session)
    }

    /// The ops that session `session` runs, in order.
    pub fn sites(&self, session: usize) -> &[Site] {
        &self.sites[self.ops_of(session)]
    }

    /// The block of what session `session` runs. It is validated as the device will do it, so that a mistake in recording
    /// shows here, with the op's name.
    ///
    /// # Errors
    /// What validation finds.
    pub fn block(
        &self,
        session: usize,
        homes: &Homes,
        buffer: impl Fn(BufferId) -> Option<BufferInfo>,
    ) -> Result<Vec<u8>, RecordError> {
        let mut ops = self.ops[self.ops_of(session)].to_vec();
        let all = self.tensors.len();
        if all > usize::from(TensorIndex::NONE.0) {
            return Err(RecordError::TooLarge { counts: [0, all, ops.len()] });
        }
        let flags = self.handed_flags(session, &ops);
        let numbers: Vec<usize> = flags.keys().copied().collect();
        for index in ops.iter_mut().flat_map(|op| op.src.iter_mut().chain(&mut op.dst)) {
            if let Ok(number) = numbers.binary_search(&usize::from(index.0)) {
                *index = TensorIndex(number as u16);
            }
        }
        let mut buffers: Vec<BufferRef> = Vec::new();
        let mut index_of = |id: BufferId| {
            buffers.iter().position(|b| b.buffer == id).unwrap_or_else(|| {
                buffers.push(BufferRef { buffer: id, reserved: 0 });
                buffers.len() - 1
            })
        };
        let tensors: Vec<TensorDesc> = flags
            .iter()
            .map(|(&number, flags)| {
                let entry = &self.tensors[number];
                let (id, offset) = match entry.home {
                    Home::Buffer(id) => (id, 0),
                    Home::Activation(number) => {
                        let Place { offset, users } = self.places[number];
                        (if users.handed_over() { homes.handed } else { homes.activations }, offset)
                    }
                    Home::Kept => (homes.activations, homes.kept_at),
                };
                let buffer = index_of(id) as u16;
                let (offset, flags) = (entry.desc.offset + offset, entry.desc.flags | flags.bits());
                TensorDesc { buffer, offset, flags, ..entry.desc }
            })
            .collect();
        let counts = [buffers.len(), tensors.len(), ops.len()];
        let header = ProgramHeader::new(self.max_tokens, self.n_ctx).with_counts(counts);
        let header = header.ok_or(RecordError::TooLarge { counts })?;
        let program = Program { header: &header, buffers: &buffers, tensors: &tensors, ops: &ops };
        program.check(buffer).map_err(|fault| {
            let op = ops.get(fault.op.0 as usize).and_then(|op| Op::parse(op.opcode));
            RecordError::Invalid { op, fault }
        })?;
        let parts = [header.as_bytes(), buffers.as_bytes(), tensors.as_bytes(), ops.as_bytes()];
        Ok(parts.concat())
    }

    /// The tensors that a session's ops use, with the flags of those that are handed over.
    fn handed_flags(&self, session: usize, ops: &[OpDesc]) -> BTreeMap<usize, TensorFlags> {
        let mut flags = BTreeMap::new();
        for (tensor, role) in ops.iter().flat_map(operands) {
            let flags = flags.entry(tensor).or_insert(TensorFlags::empty());
            if let Home::Activation(number) = self.tensors[tensor].home {
                *flags |= self.places[number].users.flags(session, role);
            }
        }
        flags
    }
}

/// A program that cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// More buffers, tensors or ops than the ABI allows.
    #[error(
        "the program needs {} buffers, {} tensors and {} ops, more than a device takes; \
         split the model over sessions{}",
        counts[0], counts[1], counts[2],
        Setting::Sessions.in_parentheses()
    )]
    TooLarge {
        /// Buffers, tensors, ops.
        counts: [usize; 3],
    },
    /// The steps between the rows or matrices of a tensor exceed 32 bits.
    #[error(
        "a {dtype} tensor of {ne:?} is larger than a program can describe; use a smaller context{} or model",
        Setting::Context.in_parentheses()
    )]
    Strides {
        /// Its type.
        dtype: DType,
        /// Its elements per axis.
        ne: [u32; 4],
    },
    /// The device would refuse it: a bug in hexflash, or a model with dimensions that an op does not support.
    #[error("the model's shape is not supported by {}: {fault}", op.map_or("the program", |op| op.name()))]
    Invalid {
        /// The op concerned.
        op: Option<Op>,
        /// What validation found.
        fault: Fault,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_that_no_descriptor_holds_is_refused_at_the_end() {
        let ne = [64, 1 << 30, 2, 1];
        let mut rec = Recorder::new(1, 1);
        let fine = rec.activation(DType::F32, [64, 1 << 30, 1, 1]);
        let large = rec.activation(DType::F32, ne);
        rec.op(Op::Silu, &[large], large);
        rec.op(Op::Silu, &[fine], fine);
        assert_eq!(rec.ne(large), ne);
        let error = rec.finish().unwrap_err();
        assert!(
            matches!(error, RecordError::Strides { dtype: DType::F32, ne: found } if found == ne),
            "{error}"
        );
    }

    #[test]
    fn bytes_of_packed_tensors() {
        assert_eq!(packed_bytes(DType::F32, [3, 5, 7, 2]).unwrap(), 4 * 3 * 5 * 7 * 2);
        assert_eq!(packed_bytes(DType::F16x32, [40, 33, 3, 1]).unwrap(), 2048 * 2 * 2 * 3);
        assert_eq!(packed_bytes(DType::Q8Act, [1, 3, 1, 1]).unwrap(), 3 * 384);
        assert_eq!(packed_bytes(DType::F32, [1 << 20, 1 << 22, 1, 1]).unwrap(), 1 << 44);
        assert!(packed_bytes(DType::F32, [1 << 30, 1, 1, 1]).is_err(), "a row of 4 GiB");
    }
}

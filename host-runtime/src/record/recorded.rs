//! A recorded program: which bytes it becomes for each session.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use hexflash_abi::program::{BufferRef, Numerics, OpDesc, ProgramHeader, TensorDesc, TensorFlags};
use hexflash_abi::validate::{BufferInfo, Program};
use hexflash_abi::{BufferId, TensorIndex};
use zerocopy::IntoBytes;

use super::error::RecordError;
use super::placement::SessionSet;
use super::site::Site;
use super::tensor::{Entry, Home, Tensor};

/// A recorded program: its block, and the activation memory it needs.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub(super) tensors: Vec<Entry>,
    pub(super) ops: Vec<OpDesc>,
    /// Session of each op.
    pub(super) sessions: Vec<usize>,
    pub(super) sites: Vec<Site>,
    pub(super) names: HashMap<Tensor, Arc<str>>,
    pub(super) max_tokens: u32,
    pub(super) n_ctx: u32,
    pub(super) n_slots: u32,
    pub(super) numerics: Numerics,
    pub(super) places: Vec<Place>,
    /// Bytes of activation memory.
    pub activation_bytes: u64,
    /// Bytes of activations that sessions hand over.
    pub handed_bytes: u64,
    /// Bytes that activations would need without reuse.
    pub activation_bytes_unshared: u64,
}

/// Where an activation lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// From the start of the activations, or of what is handed over.
    pub(super) offset: u64,
    pub(super) users: Users,
}

/// The sessions that write and read an activation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users {
    pub(super) written: SessionSet,
    pub(super) read: SessionSet,
}

impl Users {
    pub(super) fn handed_over(&self) -> bool {
        self.written.with(self.read).iter().nth(1).is_some()
    }

    /// What a session must do to its caches: as if the host had written what sessions before it did, and
    /// would read what this one does. That holds for the last one, too: a line that it kept would overwrite
    /// what the first one writes next. What a session's cache holds of a tensor that it writes is as old.
    fn flags(&self, session: usize, role: Role) -> TensorFlags {
        match role {
            Role::Source if self.written.iter().any(|other| other < session) => TensorFlags::HOST_WRITES,
            Role::Destination if self.handed_over() => TensorFlags::HOST_READS | TensorFlags::HOST_WRITES,
            _ => TensorFlags::empty(),
        }
    }
}

/// What an op does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
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

/// A block before it is one.
pub(super) struct Parts {
    header: ProgramHeader,
    buffers: Vec<BufferRef>,
    tensors: Vec<TensorDesc>,
    ops: Vec<OpDesc>,
    /// The recorder's number of each tensor.
    pub(super) numbers: Vec<usize>,
}

impl Parts {
    pub(super) fn program(&self) -> Program<'_> {
        Program { header: &self.header, buffers: &self.buffers, tensors: &self.tensors, ops: &self.ops }
    }
}

/// The tensors of an op, by number, and what it does with them.
pub(super) fn operands(op: &OpDesc) -> impl Iterator<Item = (usize, Role)> {
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

    /// The block of what session `session` runs. It is validated as the device will do it, so that a mistake
    /// in recording shows here, with the op's name.
    ///
    /// # Errors
    /// What validation finds.
    pub fn block(
        &self,
        session: usize,
        homes: &Homes,
        buffer: impl Fn(BufferId) -> Option<BufferInfo>,
    ) -> Result<Vec<u8>, RecordError> {
        self.block_named(session, homes, buffer, |id| id)
    }

    /// The block with the device's own name for each buffer: see [`block`](Self::block).
    ///
    /// # Errors
    /// The same.
    pub(crate) fn block_named(
        &self,
        session: usize,
        homes: &Homes,
        buffer: impl Fn(BufferId) -> Option<BufferInfo>,
        name: impl Fn(BufferId) -> BufferId,
    ) -> Result<Vec<u8>, RecordError> {
        let mut parts = self.assemble(session, homes)?;
        parts.program().check(buffer).map_err(|fault| {
            let site = self.sites(session).get(fault.op.0 as usize).cloned();
            RecordError::Invalid { site, fault }
        })?;
        for named in &mut parts.buffers {
            named.buffer = name(named.buffer);
        }
        let Parts { header, buffers, tensors, ops, .. } = &parts;
        Ok([header.as_bytes(), buffers.as_bytes(), tensors.as_bytes(), ops.as_bytes()].concat())
    }

    /// What session `session` runs, with all tensors in their places.
    pub(super) fn assemble(&self, session: usize, homes: &Homes) -> Result<Parts, RecordError> {
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
        let header = ProgramHeader { n_slots: self.n_slots, numerics: self.numerics.wire(), ..header };
        Ok(Parts { header, buffers, tensors, ops, numbers })
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

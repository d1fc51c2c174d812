//! Recording: ops and tensors become a program block, once per shape.
//!
//! A [`Recorder`] collects tensors and ops in order. Tensors live in persistent buffers (weights, caches,
//! inputs and outputs) or are *activations*, which live from the op that writes them to the last op that
//! reads them; the planner gives activations that are never alive together the same memory. *Kept* tensors
//! lie in the activations' buffer, too, but behind all that their programs use there, so that they live from
//! one program to another.
//!
//! A program may be split over the sessions of a device: each runs some of its ops, in order. Activations
//! that one session leaves to another are *handed over*, in a buffer that all of them map and nothing else
//! uses.

mod error;
mod listing;
mod placement;
mod planner;
mod recorded;
mod site;
mod tensor;

use std::collections::HashMap;
use std::sync::Arc;

use hexflash_abi::program::{NO_TOKEN_AXIS, Numerics, OpDesc, PARTS, TensorDesc, TensorFlags};
use hexflash_abi::{BufferId, DType, Op, TensorIndex};
use hexflash_dsp::kernels::products::mul_mat::{has_hmx_kernel, prefers_hmx, rows_of_expert};
use zerocopy::{FromZeros, Immutable, IntoBytes};

pub use error::RecordError;
pub use listing::{Listing, OpLine, OperandLine, Totals};
pub use placement::{MAX_SESSIONS, SessionSet};
use planner::{ActivationLayout, Lifetime};
pub use recorded::{Homes, Recorded};
use recorded::{Place, Role, Users, operands};
pub use site::Site;
pub use tensor::Tensor;
use tensor::{Entry, Home};

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

/// Records a program.
#[derive(Debug)]
pub struct Recorder {
    max_tokens: u32,
    n_ctx: u32,
    n_slots: u32,
    numerics: Numerics,
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

impl Recorder {
    /// A program whose token axis is `max_tokens` long, for caches of `n_ctx` positions.
    pub fn new(max_tokens: u32, n_ctx: u32) -> Self {
        Self {
            max_tokens,
            n_ctx,
            n_slots: 1,
            numerics: Numerics::Exact,
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

    /// Names a tensor, for [`Site`] and [`Listing`]. Views that are made of it from here on share the name.
    pub fn name(&mut self, tensor: Tensor, name: &str) {
        self.names.insert(tensor, name.into());
    }

    /// Declares for how many sequences its states have room: 1 unless this says otherwise.
    pub fn slots(&mut self, n_slots: u32) {
        self.n_slots = n_slots;
    }

    /// Declares the numerics of the program, which are exact unless this says otherwise.
    pub fn numerics(&mut self, numerics: Numerics) {
        self.numerics = numerics;
    }

    /// Whether MUL_MAT of the weights `w` and so many rows is the matrix unit's in a program of this class.
    /// The rows are F32 then, whatever they are without it.
    pub fn by_matrix_unit(&self, w: Tensor, rows: u32) -> bool {
        let weights = self.dtype(w);
        prefers_hmx(self.numerics, weights, rows) && has_hmx_kernel(weights)
    }

    /// Whether MUL_MAT_ID of the experts `w`{k,n,n_expert}, which `ids`{n_used,t} name, is the matrix unit's
    /// in a program of this class. The rows are F32 then.
    pub fn by_matrix_unit_id(&self, w: Tensor, ids: Tensor) -> bool {
        let ([used, tokens, ..], [_, _, experts, _]) = (self.ne(ids), self.ne(w));
        self.by_matrix_unit(w, rows_of_expert(used, tokens, experts))
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
        let view = self.add(entry);
        if let Some(name) = self.names.get(&of).cloned() {
            self.names.insert(view, name);
        }
        view
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
        let own = src.iter().flatten().find_map(|&tensor| self.weight_name(tensor));
        self.sites.push(Site::after(self.sites.last(), op, own));
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

    /// The name of a tensor that is a weight and has one.
    fn weight_name(&self, tensor: Tensor) -> Option<Arc<str>> {
        let constant = self.tensors[tensor.0].desc.flags & TensorFlags::CONST.bits() != 0;
        self.names.get(&tensor).filter(|_| constant).cloned()
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
        let [local, handed] = [false, true].map(|handed| ActivationLayout::plan(&those(handed)));
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
            names: self.names,
            max_tokens: self.max_tokens,
            n_ctx: self.n_ctx,
            n_slots: self.n_slots,
            numerics: self.numerics,
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

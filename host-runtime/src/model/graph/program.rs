//! A program under construction, and the tensors that it uses: weights, kept tensors, inputs, outputs,
//! activations.

use std::collections::HashMap;

use hexflash_abi::op::params;
use hexflash_abi::program::{NO_TOKEN_AXIS, Numerics, TensorFlags};
use hexflash_abi::registers::Register;
use hexflash_abi::{DType, Op};

use super::context::{Context, Part, Tapes};
use crate::model::kept::{Kept, Region};
use crate::record::{RecordError, Recorded, Recorder, Tensor};

/// A program under construction.
pub struct Graph<'a> {
    pub(in crate::model) rec: Recorder,
    cx: Context<'a>,
    t: u32,
    tapes: Tapes,
    /// int8 form of activations that some matrix has read already. An activation that is overwritten in place
    /// after that must not be multiplied again: its int8 form would be the old one.
    pub(super) quantized: HashMap<Tensor, Tensor>,
    known: HashMap<String, Tensor>,
}

impl<'a> Graph<'a> {
    /// An empty program of a class, for steps of up to `t` tokens.
    pub(in crate::model) fn new(cx: Context<'a>, t: u32, tapes: Tapes, numerics: Numerics) -> Self {
        let mut rec = Recorder::new(t, cx.kept.n_ctx);
        rec.slots(cx.kept.n_slots);
        rec.numerics(numerics);
        Self { rec, cx, t, tapes, quantized: HashMap::new(), known: HashMap::new() }
    }

    /// An empty program that belongs to no sequence, and whose rows see each other alone.
    pub(in crate::model) fn alone(cx: Context<'a>, t: u32, numerics: Numerics) -> Self {
        let mut rec = Recorder::new(t, t);
        rec.numerics(numerics);
        Self { rec, cx, t, tapes: Tapes::Unused, quantized: HashMap::new(), known: HashMap::new() }
    }

    /// What it refers to.
    pub(in crate::model) fn cx(&self) -> Context<'a> {
        self.cx
    }

    /// Length of the token axis.
    pub(in crate::model) fn t(&self) -> u32 {
        self.t
    }

    /// What the step does with tapes.
    pub(in crate::model) fn tapes(&self) -> Tapes {
        self.tapes
    }

    /// What follows belongs to this part of a round.
    pub(in crate::model) fn part(&mut self, part: Part) {
        self.rec.part(part as usize);
    }

    /// The program.
    ///
    /// # Errors
    /// As [`Recorder::finish`].
    pub(in crate::model) fn finish(self) -> Result<Recorded, RecordError> {
        self.rec.finish()
    }

    /// `n_tokens` becomes a register's value plus a constant.
    pub(in crate::model) fn set_tokens(&mut self, register: Register, plus: u32) {
        let params = params::SetTokens { register: register.wire(), plus };
        self.rec.op_with(Op::SetTokens, &[], &[], &params);
    }

    /// A weight by its label.
    pub(in crate::model) fn weight(&mut self, label: &str) -> Tensor {
        if let Some(&tensor) = self.known.get(label) {
            return tensor;
        }
        let place = self.cx.weights.get(label);
        let tensor = self.rec.tensor(place.buffer, place.offset, place.dtype, place.ne, TensorFlags::CONST);
        if !place.constant {
            self.rec.name(tensor, label);
        }
        self.known.insert(label.to_owned(), tensor);
        tensor
    }

    /// Whether the plan has a weight of this label.
    pub(in crate::model) fn has_weight(&self, label: &str) -> bool {
        self.cx.weights.has(label)
    }

    /// A tensor `offset` bytes into the buffer of inputs and outputs. `label` is its name in listings.
    pub(in crate::model) fn io(
        &mut self,
        label: &str,
        offset: u64,
        dtype: DType,
        ne: [u32; 4],
        flags: TensorFlags,
    ) -> Tensor {
        let tensor = self.rec.tensor(self.cx.buffers.io, offset, dtype, ne, flags);
        self.rec.name(tensor, label);
        tensor
    }

    /// A kept tensor by its label.
    ///
    /// # Panics
    /// As [`KeptLayout::place`](crate::model::KeptLayout::place).
    pub(in crate::model) fn kept(&mut self, label: &str) -> Tensor {
        let kept = self.cx.kept.place(label);
        self.at(label, kept, kept.offset, kept.ne, TensorFlags::empty())
    }

    /// As [`kept`](Self::kept), if it was declared: tapes are not, where tokens cannot be taken back.
    pub(in crate::model) fn kept_if_any(&mut self, label: &str) -> Option<Tensor> {
        let kept = *self.cx.kept.get(label)?;
        Some(self.at(label, kept, kept.offset, kept.ne, TensorFlags::empty()))
    }

    /// `ne` elements of the row-major kept tensor `label`, from its element `first` on.
    ///
    /// # Panics
    /// As [`kept`](Self::kept).
    pub(in crate::model) fn kept_part(
        &mut self,
        label: &str,
        first: u32,
        ne: [u32; 4],
        flags: TensorFlags,
    ) -> Tensor {
        let kept = self.cx.kept.place(label);
        let bytes = kept.dtype.element_bytes().unwrap_or(0) as u64;
        self.at(label, kept, kept.offset + u64::from(first) * bytes, ne, flags)
    }

    /// What the caches of the device must do to a tensor that several sessions use from one program to
    /// another.
    pub(in crate::model) fn shared(&self) -> TensorFlags {
        match self.cx.split.sessions() {
            1 => TensorFlags::empty(),
            _ => TensorFlags::HOST_WRITES | TensorFlags::HOST_READS,
        }
    }

    fn at(&mut self, label: &str, kept: Kept, offset: u64, ne: [u32; 4], flags: TensorFlags) -> Tensor {
        let tensor = match kept.region {
            Region::State => {
                let (session, offset) = self.cx.kept.home(offset);
                let buffer = self.cx.buffers.state[session];
                self.rec.tensor(buffer, offset, kept.dtype, ne, flags)
            }
            Region::Speculation => self.rec.tensor(self.cx.buffers.spec, offset, kept.dtype, ne, flags),
            Region::Activations => self.rec.kept(offset, kept.dtype, ne),
        };
        self.rec.name(tensor, label);
        tensor
    }

    /// A packed F32 activation, with `token_axis` for its token axis if there is one.
    pub(in crate::model) fn activation(&mut self, ne: [u32; 4], token_axis: Option<u8>) -> Tensor {
        let tensor = self.rec.activation(DType::F32, ne);
        match token_axis {
            Some(axis) => self.rec.tokens_on(tensor, axis),
            None => tensor,
        }
    }

    /// As many rows of `n` values as x{..,t} has.
    pub(in crate::model) fn activation_like(&mut self, x: Tensor, n: u32) -> Tensor {
        self.activation([n, self.rec.ne(x)[1], 1, 1], self.rows_axis(x))
    }

    /// As many rows of `n` integers as x{..,t} has.
    pub(in crate::model) fn integers_like(&mut self, x: Tensor, n: u32) -> Tensor {
        let tensor = self.rec.activation(DType::I32, [n, self.rec.ne(x)[1], 1, 1]);
        match self.rows_axis(x) {
            Some(axis) => self.rec.tokens_on(tensor, axis),
            None => tensor,
        }
    }

    /// A row of `n` values for each of ids{n_used,t}: {n,n_used,t}.
    pub(in crate::model) fn activation_of_each(&mut self, ids: Tensor, n: u32) -> Tensor {
        let [n_used, t, ..] = self.rec.ne(ids);
        self.activation([n, n_used, t, 1], self.rows_axis(ids).map(|_| 2))
    }

    /// Token axis of a matrix of rows.
    pub(super) fn rows_axis(&self, x: Tensor) -> Option<u8> {
        (self.rec.token_axis(x) != NO_TOKEN_AXIS).then_some(1)
    }
}

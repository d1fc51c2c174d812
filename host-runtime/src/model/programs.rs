//! The programs of a model, each recorded once per shape. Positions, the causal mask and the states follow the step
//! registers, so that a step sends nothing but token ids, and a speculative round not even these.

use hexflash_abi::op::params::{Accept, SetTokens};
use hexflash_abi::program::TensorFlags;
use hexflash_abi::registers::Register;
use hexflash_abi::{BufferId, DType, Op};

use super::graph::Graph;
use super::layout::{MAX_PENDING, MAX_STOPS, MAX_VERIFY, ROUND_WORDS};
use super::{
    AttentionConfig, Config, DraftConfig, DraftPlaces, IoLayout, SpecLayout, Split, StateLayout, WeightMap,
};
use crate::device::MAX_SESSIONS;
use crate::record::{RecordError, Recorded, Recorder, Tensor};

/// Rows of a step for which the LM head runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The one that the input `row` names: prefill.
    One,
    /// All of them: decode and verify.
    All,
}

/// What becomes of the features that a draft reads, where there is a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// The draft's caches take them at once.
    Inject,
    /// They wait in the row that the input `row` names, for [`Model::inject`].
    Keep,
}

/// What a step is recorded for.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Tokens of the longest step.
    pub max_tokens: u32,
    /// Rows of logits.
    pub rows: Rows,
    /// Layers whose input (the residual stream) the host wants; the number of layers means the last one's output.
    pub taps: Vec<u32>,
    /// Whether the tokens may be taken back: they go onto the tapes.
    pub defer: bool,
    /// Whether the convolutions commit what is on their tapes, which lie behind the activations: not where activations
    /// need that memory.
    pub commit: bool,
    /// What becomes of a draft's features.
    pub features: Features,
}

/// Buffers that programs refer to.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Caches and states, by session.
    pub state: [BufferId; MAX_SESSIONS],
    /// Inputs and outputs.
    pub io: BufferId,
    /// What speculation adds.
    pub spec: BufferId,
}

/// Parts of a round, whose times the device tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The target's trunk.
    Verify = 0,
    /// The target's LM head.
    LmHead = 1,
    /// Accepting, and advancing the registers.
    Accept = 2,
    /// Features into the draft's caches.
    Taps = 3,
    /// The draft's layers.
    Draft = 4,
    /// The draft's LM head.
    DraftHead = 5,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; hexflash_abi::program::PARTS] =
        [Self::Verify, Self::LmHead, Self::Accept, Self::Taps, Self::Draft, Self::DraftHead];
}

/// All that programs are recorded from.
#[derive(Clone, Copy, Debug)]
pub struct Model<'a> {
    /// The target.
    pub config: &'a Config,
    /// Weights of the target, and of the draft if there is one.
    pub weights: &'a WeightMap,
    /// Caches and states.
    pub state: &'a StateLayout,
    /// Inputs and outputs.
    pub io: &'a IoLayout,
    /// What speculation adds; `None` for plain decoding only.
    pub spec: Option<&'a SpecLayout>,
    /// The draft, which the last session has.
    pub draft: Option<&'a DraftConfig>,
    /// The sessions of the target's layers.
    pub split: &'a Split,
    /// Where all that lies.
    pub buffers: Buffers,
}

/// A draft, and where its memory is.
pub type Drafter<'a> = (&'a DraftConfig, &'a DraftPlaces);

/// Who wants the residual stream that enters some layers, or leaves the last one.
pub(super) struct Taps<'a> {
    /// A draft, and the features {tap width, t} of which each tap is a part.
    pub(super) draft: Option<(&'a DraftConfig, Tensor)>,
    /// Layers that the host looks at.
    pub(super) host: &'a [u32],
}

/// A program under construction.
pub(super) struct Recording<'a> {
    pub(super) g: Graph<'a>,
    pub(super) model: Model<'a>,
    /// Length of the token axis.
    pub(super) t: u32,
}

impl<'a> Model<'a> {
    fn start(&self, t: u32) -> Recording<'a> {
        let rec = Recorder::new(t, self.state.n_ctx);
        Recording { g: Graph::new(rec, self.weights), model: *self, t }
    }

    /// The draft, if there is one, for the programs that need it.
    pub fn drafter(&self) -> Option<Drafter<'a>> {
        Some((self.draft?, self.spec?.draft.as_ref()?))
    }

    /// Tokens of the widest round, and of a drafted block.
    pub fn verify_tokens(&self) -> u32 {
        MAX_VERIFY.min(self.state.n_ctx)
    }

    /// A step on tokens from the host, with logits for it.
    ///
    /// # Errors
    /// As [`Recorder::finish`].
    pub fn step(&self, shape: &Shape) -> Result<Recorded, RecordError> {
        let t = shape.max_tokens;
        let mut m = self.start(t);
        let tokens = m.io(self.io.tokens, DType::I32, [t, 1, 1, 1], TensorFlags::HOST_WRITES);
        m.g.rec.tokens_on(tokens, 0);
        let row = m.io(self.io.row, DType::I32, [1; 4], TensorFlags::HOST_WRITES);
        let drafter = self.drafter().map(|drafter| (drafter, m.features(drafter.0)));
        let draft = drafter.map(|((draft, _), features)| (draft, features));
        let defer = shape.defer && self.spec.is_some();
        let x = m.trunk(tokens, defer, shape.commit, &Taps { draft, host: &shape.taps });
        if let (Some((drafter, features)), Features::Keep) = (drafter, shape.features) {
            m.keep(drafter, features, row);
        }
        m.part(Part::LmHead);
        let (x, n) = match shape.rows {
            Rows::One => {
                let y = m.g.activation([self.config.n_embd, 1, 1, 1], None);
                m.g.rec.op(Op::GetRows, &[x, row], y);
                (y, 1)
            }
            Rows::All => (x, t.min(MAX_VERIFY)),
        };
        let logits = [self.config.n_vocab, n, 1, 1];
        let logits = m.io(self.io.logits, DType::F32, logits, TensorFlags::HOST_READS);
        let best = m.io(self.io.argmax, DType::I32, [n, 1, 1, 1], TensorFlags::HOST_READS);
        if shape.rows == Rows::All {
            m.g.rec.tokens_on(logits, 1);
            m.g.rec.tokens_on(best, 0);
        }
        m.head(x, logits, best);
        if let (Some((drafter, features)), Features::Inject) = (drafter, shape.features) {
            m.part(Part::Taps);
            m.inject(drafter, features);
        }
        m.g.rec.finish()
    }

    /// A speculative round: verify the block, accept, take up the features, draft the next block. Nothing but
    /// tokens and the margins of drafts leaves the device.
    ///
    /// # Errors
    /// As [`Recorder::finish`].
    pub fn round(&self, drafter: Drafter<'_>) -> Result<Recorded, RecordError> {
        let (draft, at) = drafter;
        let t = self.verify_tokens();
        let mut m = self.start(t);
        let tokens = m.shared(at.block, DType::I32, [t, 1, 1, 1]);
        m.g.rec.tokens_on(tokens, 0);
        let features = m.features(draft);
        let x = m.trunk(tokens, true, true, &Taps { draft: Some((draft, features)), host: &[] });
        m.part(Part::LmHead);
        let logits = m.io(self.io.logits, DType::F32, [self.config.n_vocab, t, 1, 1], TensorFlags::empty());
        m.g.rec.tokens_on(logits, 1);
        let best = m.g.rec.activation(DType::I32, [t, 1, 1, 1]);
        m.g.rec.tokens_on(best, 0);
        m.head(x, logits, best);
        m.part(Part::Taps);
        m.inject(drafter, features);

        m.part(Part::Accept);
        let stops = m.io(self.io.stops, DType::I32, [MAX_STOPS, 1, 1, 1], TensorFlags::HOST_WRITES);
        let words = ROUND_WORDS - MAX_VERIFY + t;
        let out = [words, hexflash_abi::accept::SLOTS as u32, 1, 1];
        let out = m.io(self.io.rounds, DType::I32, out, TensorFlags::HOST_READS);
        let out = m.g.rec.view(out, 0, m.g.rec.ne(out), [4, 4 * ROUND_WORDS, 0, 0], None);
        let anchor = m.spec(at.noise, DType::I32, [1; 4]);
        let params = Accept { block: draft.block, n_ctx: self.state.n_ctx };
        m.g.rec.op_with(Op::Accept, &[best, tokens, stops].map(Some), &[out, anchor], &params);
        let first = m.shared(at.block, DType::I32, [1; 4]);
        m.g.rec.op(Op::Cpy, &[anchor], first);

        m.draft(drafter);
        m.set_tokens(Register::NDraft, 1);
        m.g.rec.finish()
    }

    /// A block drafted from an anchor that the host gives: the start of rounds, or rounds that the host accepts.
    ///
    /// # Errors
    /// As [`Recorder::finish`].
    pub fn draft_block(&self, drafter: Drafter<'_>) -> Result<Recorded, RecordError> {
        let mut m = self.start(self.verify_tokens());
        m.g.rec.session(self.split.last());
        let anchor = m.io(self.io.tokens, DType::I32, [1; 4], TensorFlags::HOST_WRITES);
        let (noise, block) =
            (m.spec(drafter.1.noise, DType::I32, [1; 4]), m.shared(drafter.1.block, DType::I32, [1; 4]));
        for first in [noise, block] {
            m.g.rec.op(Op::Cpy, &[anchor], first);
        }
        m.draft(drafter);
        m.g.rec.finish()
    }

    /// The features that plain steps kept, into the draft's caches.
    ///
    /// # Errors
    /// As [`Recorder::finish`].
    pub fn inject(&self, drafter: Drafter<'_>) -> Result<Recorded, RecordError> {
        let mut m = self.start(MAX_PENDING.min(self.state.n_ctx));
        m.g.rec.session(self.split.last());
        let (width, t) = (drafter.0.tap_width(self.config), m.t);
        let features = m.spec(drafter.1.pending, DType::F32, [width, t, 1, 1]);
        m.g.rec.tokens_on(features, 1);
        m.part(Part::Taps);
        m.inject(drafter, features);
        m.g.rec.finish()
    }
}

impl Recording<'_> {
    pub(super) fn part(&mut self, part: Part) {
        self.g.rec.part(part as usize);
    }

    fn io(&mut self, offset: u64, dtype: DType, ne: [u32; 4], flags: TensorFlags) -> Tensor {
        self.g.rec.tensor(self.model.buffers.io, offset, dtype, ne, flags)
    }

    pub(super) fn spec(&mut self, offset: u64, dtype: DType, ne: [u32; 4]) -> Tensor {
        self.g.rec.tensor(self.model.buffers.spec, offset, dtype, ne, TensorFlags::empty())
    }

    /// As [`spec`](Self::spec), for what several sessions use from one program to another.
    pub(super) fn shared(&mut self, offset: u64, dtype: DType, ne: [u32; 4]) -> Tensor {
        self.g.rec.tensor(self.model.buffers.spec, offset, dtype, ne, self.shared_flags())
    }

    /// What that does to caches.
    pub(super) fn shared_flags(&self) -> TensorFlags {
        match self.model.split.sessions() {
            1 => TensorFlags::empty(),
            _ => TensorFlags::HOST_WRITES | TensorFlags::HOST_READS,
        }
    }

    /// Where a byte of the caches and states is.
    pub(super) fn state_home(&self, at: u64) -> (BufferId, u64) {
        let (session, at) = self.model.state.home(at);
        (self.model.buffers.state[session], at)
    }

    pub(super) fn state(&mut self, at: u64, ne: [u32; 4]) -> Tensor {
        let (buffer, offset) = self.state_home(at);
        self.g.rec.tensor(buffer, offset, DType::F32, ne, TensorFlags::empty())
    }

    /// The K and V cache of a layer.
    pub(super) fn caches(
        &mut self,
        buffer: BufferId,
        (k, v): (u64, u64),
        c: &AttentionConfig,
        n_ctx: u32,
    ) -> [Tensor; 2] {
        [(k, c.k_cache(n_ctx)), (v, c.v_cache(n_ctx))]
            .map(|(at, (dtype, ne))| self.g.rec.tensor(buffer, at, dtype, ne, TensorFlags::empty()))
    }

    /// The convolution's tape of a linear layer.
    pub(super) fn conv_tape(&mut self, layer: usize) -> Option<Tensor> {
        let at = self.model.spec?.tapes[layer]?.x;
        Some(self.g.rec.kept(at, DType::F32, [self.model.config.linear.channels(), MAX_VERIFY, 1, 1]))
    }

    /// The factor tape of a linear layer.
    pub(super) fn tape(&mut self, layer: usize) -> Option<[Tensor; 3]> {
        let at = self.model.spec?.tapes[layer]?;
        let c = &self.model.config.linear;
        let mut place = |at, width, heads| self.spec(at, DType::F32, [width, heads, MAX_VERIFY, 1]);
        Some([
            place(at.k, c.state, c.n_head_k),
            place(at.delta, c.state, c.n_head_v),
            place(at.g, 1, c.n_head_v),
        ])
    }

    /// `n_tokens` becomes a register's value plus a constant.
    pub(super) fn set_tokens(&mut self, register: Register, plus: u32) {
        self.g.rec.op_with(Op::SetTokens, &[], &[], &SetTokens { register: register.wire(), plus });
    }

    /// Copies the residual stream where the host wants it.
    pub(super) fn observe(&mut self, taps: &[u32], layer: usize, x: Tensor) {
        let n_embd = self.model.config.n_embd;
        let bytes = 4 * u64::from(n_embd) * u64::from(self.t);
        for (i, _) in taps.iter().enumerate().filter(|&(_, &l)| l as usize == layer) {
            let at = self.model.io.taps + i as u64 * bytes;
            let y = self.io(at, DType::F32, [n_embd, self.t, 1, 1], TensorFlags::HOST_READS);
            self.g.rec.tokens_on(y, 1);
            self.g.rec.op(Op::Cpy, &[x], y);
        }
    }

    /// Final norm, LM head and the best token of each row of x{n_embd,n}.
    fn head(&mut self, x: Tensor, logits: Tensor, best: Tensor) {
        let config = self.model.config;
        let x = self.g.rms_norm(x, "output_norm.weight", config.rms_eps);
        self.g.linear_into(x, config.head(), logits);
        self.g.rec.op(Op::Argmax, &[logits], best);
    }
}

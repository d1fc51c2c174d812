//! The programs of a model, each recorded once per shape: recipes over a target and a draft. Positions, the
//! causal mask and the states follow the step registers, so that a step sends nothing but token ids, and a
//! speculative round not even these.

use hexflash_abi::accept::REPORTS;
use hexflash_abi::op::params::{Accept, CopySlot};
use hexflash_abi::program::{Numerics, TensorFlags};
use hexflash_abi::registers::Register;
use hexflash_abi::{DType, Op};

use super::decoder::{Decoder, Input, Taps};
use super::draft::{BLOCK, DraftModel, PENDING, tap_width};
use super::graph::{Context, Graph, Part, Tapes};
use super::kept::{Rollback, snapshot_label};
use super::limits::{MAX_PENDING, MAX_STOPS, MAX_VERIFY, ROUND_WORDS};
use super::scope::Scope;
use super::vision::Encoder;
use crate::record::{RecordError, Recorded, Tensor};

/// Rows of a step for which the LM head runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// The one that the input `row` names: prefill.
    One,
    /// All of them: decode and verify.
    All,
    /// Those that the input `row` lists, `n_output` of each sequence: steps that sequences share.
    Listed,
}

/// What becomes of the features that a draft reads, where there is a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// The draft's caches take them at once.
    Inject,
    /// They wait in the row that the input `row` names, for [`Recipes::inject`].
    Keep,
}

/// Input that the host gives for each row of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepInput {
    /// A token.
    Tokens,
    /// A row of a picture, in place of the embedding of a token.
    Picture,
}

/// What a step is recorded for.
#[derive(Clone, Debug)]
pub struct StepShape {
    /// Input of each row.
    pub input: StepInput,
    /// Tokens of the longest step.
    pub max_tokens: u32,
    /// Rows of logits.
    pub rows: Rows,
    /// Layers whose input (the residual stream) the host wants; the number of layers means the last one's
    /// output.
    pub probes: Vec<u32>,
    /// What becomes of the tapes. Without tapes [`Tapes::Defer`] is as [`Tapes::Fold`].
    pub tapes: Tapes,
    /// What becomes of a draft's features.
    pub features: Features,
    /// The class of the program. All but [`Numerics::Exact`] is for devices that lend a matrix unit.
    pub numerics: Numerics,
}

/// All that programs are recorded from.
#[derive(Clone, Copy, Debug)]
pub struct Recipes<'a> {
    /// The model that writes the text.
    pub target: &'a Decoder,
    /// The draft, which the last session has.
    pub draft: Option<&'a dyn DraftModel>,
    /// The encoder of pictures, which the first session has.
    pub encoder: Option<&'a Encoder>,
    /// Where everything lies.
    pub cx: Context<'a>,
    /// The class of all programs but prompts', which is a part of their [`StepShape`].
    pub numerics: Numerics,
}

impl<'a> Recipes<'a> {
    /// Tokens of the widest round, and of a drafted block.
    pub fn verify_tokens(&self) -> u32 {
        MAX_VERIFY.min(self.cx.kept.n_ctx)
    }

    /// A step on tokens from the host, with logits for it.
    ///
    /// # Errors
    /// As [`Recorder::finish`](crate::record::Recorder::finish).
    pub fn step(&self, shape: &StepShape) -> Result<Recorded, RecordError> {
        let (t, io) = (shape.max_tokens, self.cx.io);
        let is_whole =
            shape.input == StepInput::Picture && self.encoder.is_some_and(|e| e.rows_at_once() > 0);
        let whole = is_whole.then(|| self.target.seeing_steps_whole());
        let target = whole.as_ref().unwrap_or(self.target);
        let tapes = match (shape.tapes, self.cx.kept.rollback) {
            (Tapes::Defer, Rollback::None) => Tapes::Fold,
            (tapes, _) => tapes,
        };
        let mut g = Graph::new(self.cx, t, tapes, shape.numerics);
        let tokens = g.io("tokens", io.tokens, DType::I32, [t, 1, 1, 1], TensorFlags::HOST_WRITES);
        g.rec.tokens_on(tokens, 0);
        let input = match shape.input {
            StepInput::Tokens => Input::Tokens(tokens),
            StepInput::Picture => {
                let rows = [target.n_embd, t, 1, 1];
                let rows = g.io("picture", io.picture, DType::F32, rows, TensorFlags::HOST_WRITES);
                Input::Rows { rows: g.rec.tokens_on(rows, 1), tokens }
            }
        };
        let listed = if shape.rows == Rows::Listed { t } else { 1 };
        let row = g.io("rows", io.row, DType::I32, [listed, 1, 1, 1], TensorFlags::HOST_WRITES);
        let draft = self.draft.map(|draft| (draft, self.features(&mut g, draft)));
        let taps = draft.map(|(draft, features)| (draft.taps(), features));
        let x = target.trunk(&mut g, input, &Taps { draft: taps, host: &shape.probes });
        if let (Some((draft, features)), Features::Keep) = (draft, shape.features) {
            let pending = [tap_width(draft, target), MAX_PENDING, 1, 1];
            let pending = g.kept_part(&Scope::DRAFT.label(PENDING), 0, pending, TensorFlags::empty());
            g.rec.op(Op::SetRows, &[features, row], pending);
        }
        if let (Some((draft, features)), Features::Inject, Rows::Listed) = (draft, shape.features, shape.rows)
        {
            // Of all rows, before they become fewer.
            g.part(Part::Inject);
            draft.observe(&mut g, tokens, features);
        }
        g.part(Part::LmHead);
        let (x, n) = match shape.rows {
            Rows::One => {
                let y = g.activation([target.n_embd, 1, 1, 1], None);
                g.rec.op(Op::GetRows, &[x, row], y);
                (y, 1)
            }
            Rows::All => (x, t.min(MAX_VERIFY)),
            Rows::Listed => {
                g.set_tokens(Register::NOutput, 0);
                let all = g.rec.view(x, 0, [target.n_embd, t, 1, 1], g.rec.nb(x), None);
                g.rec.tokens_on(row, 0);
                let y = g.activation([target.n_embd, t, 1, 1], Some(1));
                g.rec.op(Op::GetRows, &[all, row], y);
                (y, t)
            }
        };
        let logits =
            g.io("logits", io.logits, DType::F32, [target.n_vocab, n, 1, 1], TensorFlags::HOST_READS);
        let best = g.io("argmax", io.argmax, DType::I32, [n, 1, 1, 1], TensorFlags::HOST_READS);
        match shape.rows {
            Rows::One => {}
            Rows::All | Rows::Listed => {
                g.rec.tokens_on(logits, 1);
                g.rec.tokens_on(best, 0);
            }
        }
        target.logits(&mut g, x, logits, best);
        if let (Some((draft, features)), Features::Inject, Rows::One | Rows::All) =
            (draft, shape.features, shape.rows)
        {
            g.part(Part::Inject);
            draft.observe(&mut g, tokens, features);
        }
        g.finish()
    }

    /// A step on up to `t` tokens from the host, with the vector of each for it, in place of the first probe.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn vectors(&self, t: u32, numerics: Numerics) -> Result<Recorded, RecordError> {
        let (io, target) = (self.cx.io, self.target);
        let mut g = Graph::new(self.cx, t, Tapes::Unused, numerics);
        let tokens = g.io("tokens", io.tokens, DType::I32, [t, 1, 1, 1], TensorFlags::HOST_WRITES);
        g.rec.tokens_on(tokens, 0);
        let x = target.trunk(&mut g, Input::Tokens(tokens), &Taps { draft: None, host: &[] });
        g.part(Part::LmHead);
        let vectors = [target.n_embd, t, 1, 1];
        let vectors = g.io("vectors", io.probes, DType::F32, vectors, TensorFlags::HOST_READS);
        g.rec.tokens_on(vectors, 1);
        target.vectors(&mut g, x, vectors);
        g.finish()
    }

    /// The layers of an encoder, on the patches of a tile: the token axis is that of patches.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn encode(&self, encoder: &Encoder, numerics: Numerics) -> Result<Recorded, RecordError> {
        let (n, io) = (encoder.max_patches(), self.cx.io);
        let mut g = Graph::alone(self.cx, n, numerics);
        let mut rows = |label, at, width| {
            let rows = g.io(label, at, DType::F32, [width, n, 1, 1], TensorFlags::HOST_WRITES);
            g.rec.tokens_on(rows, 1)
        };
        let patches = rows("patches", io.patches, encoder.patch_values());
        let positions = rows("positions", io.positions, encoder.n_embd());
        let places = encoder.has_places().then(|| {
            io.places.map(|at| {
                let places = g.io("places", at, DType::I32, [n, 1, 1, 1], TensorFlags::HOST_WRITES);
                g.rec.tokens_on(places, 0)
            })
        });
        encoder.encode(&mut g, [patches, positions], places);
        g.finish()
    }

    /// The projector of an encoder, on what [`encode`](Self::encode) left: the token axis is that of the rows
    /// for the text model.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn project(&self, encoder: &Encoder, numerics: Numerics) -> Result<Recorded, RecordError> {
        let n = encoder.max_rows();
        let mut g = Graph::alone(self.cx, n, numerics);
        let rows = [encoder.n_out, n, 1, 1];
        let rows = g.io("picture", self.cx.io.picture, DType::F32, rows, TensorFlags::HOST_READS);
        g.rec.tokens_on(rows, 1);
        encoder.project(&mut g, rows);
        g.finish()
    }

    /// Copies the recurrent states of a sequence: to a snapshot, or back from one.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn copy_states(&self, restore: bool) -> Result<Recorded, RecordError> {
        let kept = self.cx.kept;
        let mut g = Graph::new(self.cx, 1, Tapes::Fold, Numerics::Exact);
        for (label, slots, snapshots) in kept.snapshots() {
            g.rec.session(kept.home(slots.offset).0);
            let [n0, n1, n2, _] = snapshots.ne;
            let slots = g.kept_part(label, 0, [n0, n1, n2, kept.n_slots], TensorFlags::empty());
            let snapshots = g.kept(&snapshot_label(label));
            let (from, to) = if restore { (snapshots, slots) } else { (slots, snapshots) };
            let params = CopySlot { restore: restore.into() };
            g.rec.op_with(Op::CopySlot, &[Some(from)], &[to], &params);
        }
        g.finish()
    }

    /// A speculative round: verify the block, accept, take up the features, draft the next block. Nothing but
    /// tokens and the margins of drafts leaves the device.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn round(&self, draft: &dyn DraftModel) -> Result<Recorded, RecordError> {
        let (t, io, target) = (self.verify_tokens(), self.cx.io, self.target);
        let mut g = Graph::new(self.cx, t, Tapes::Defer, self.numerics);
        let tokens = self.block(&mut g, t);
        g.rec.tokens_on(tokens, 0);
        let features = self.features(&mut g, draft);
        let x = target.trunk(
            &mut g,
            Input::Tokens(tokens),
            &Taps { draft: Some((draft.taps(), features)), host: &[] },
        );
        g.part(Part::LmHead);
        let logits = g.io("logits", io.logits, DType::F32, [target.n_vocab, t, 1, 1], TensorFlags::empty());
        g.rec.tokens_on(logits, 1);
        let best = g.rec.activation(DType::I32, [t, 1, 1, 1]);
        g.rec.tokens_on(best, 0);
        target.logits(&mut g, x, logits, best);
        g.part(Part::Inject);
        draft.observe(&mut g, tokens, features);
        self.accept(&mut g, draft, best, tokens);
        draft.propose(&mut g);
        g.finish()
    }

    /// What is left of a round for a draft model on another device than its target's: takes up features and
    /// tokens that the host hands over, of which all count as accepted, and drafts the next block.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn placed_round(&self, draft: &dyn DraftModel) -> Result<Recorded, RecordError> {
        let t = self.verify_tokens();
        let mut g = Graph::new(self.cx, t, Tapes::Defer, self.numerics);
        let [tokens, features] = self.handed_features(&mut g, draft);
        let best = g.io("argmax", self.cx.io.argmax, DType::I32, [t, 1, 1, 1], TensorFlags::HOST_WRITES);
        g.rec.tokens_on(best, 0);
        g.part(Part::Inject);
        draft.observe(&mut g, tokens, features);
        self.accept(&mut g, draft, best, tokens);
        draft.propose(&mut g);
        g.finish()
    }

    /// Up to `t` tokens and their features, from the host, for a draft model on another device than its
    /// target's.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn placed_inject(&self, draft: &dyn DraftModel, t: u32) -> Result<Recorded, RecordError> {
        let mut g = Graph::new(self.cx, t, Tapes::Fold, self.numerics);
        let [tokens, features] = self.handed_features(&mut g, draft);
        g.part(Part::Inject);
        draft.observe(&mut g, tokens, features);
        g.finish()
    }

    /// Tokens{t} and their features {tap width, t}, from the host.
    fn handed_features(&self, g: &mut Graph<'_>, draft: &dyn DraftModel) -> [Tensor; 2] {
        let (t, io) = (g.t(), self.cx.io);
        let tokens = g.io("tokens", io.tokens, DType::I32, [t, 1, 1, 1], TensorFlags::HOST_WRITES);
        g.rec.tokens_on(tokens, 0);
        let width = tap_width(draft, self.target);
        let features = g.io("features", io.probes, DType::F32, [width, t, 1, 1], TensorFlags::HOST_WRITES);
        g.rec.tokens_on(features, 1);
        [tokens, features]
    }

    /// Keeps tokens as long as each is what `best` says after the one before it, and makes the last of `best`
    /// the anchor of the next block.
    fn accept(&self, g: &mut Graph<'_>, draft: &dyn DraftModel, best: Tensor, tokens: Tensor) {
        let (t, io) = (g.t(), self.cx.io);
        g.part(Part::Accept);
        let stops = g.io("stops", io.stops, DType::I32, [MAX_STOPS, 1, 1, 1], TensorFlags::HOST_WRITES);
        let words = ROUND_WORDS - MAX_VERIFY + t;
        let out =
            g.io("rounds", io.rounds, DType::I32, [words, REPORTS as u32, 1, 1], TensorFlags::HOST_READS);
        let out = g.rec.view(out, 0, g.rec.ne(out), [4, 4 * ROUND_WORDS, 0, 0], None);
        let anchor = draft.anchor(g);
        let params = Accept { block: draft.block(), n_ctx: self.cx.kept.n_ctx };
        g.rec.op_with(Op::Accept, &[best, tokens, stops].map(Some), &[out, anchor], &params);
        let first = self.block(g, 1);
        g.rec.op(Op::Cpy, &[anchor], first);
    }

    /// A block drafted from an anchor that the host gives: the start of rounds, or rounds that the host
    /// accepts.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn draft_block(&self, draft: &dyn DraftModel) -> Result<Recorded, RecordError> {
        let mut g = self.drafting(self.verify_tokens());
        let given = g.io("tokens", self.cx.io.tokens, DType::I32, [1; 4], TensorFlags::HOST_WRITES);
        for first in [draft.anchor(&mut g), self.block(&mut g, 1)] {
            g.rec.op(Op::Cpy, &[given], first);
        }
        draft.propose(&mut g);
        g.finish()
    }

    /// The features that plain steps kept, for the draft, and the tokens that they belong to, from the host.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn inject(&self, draft: &dyn DraftModel) -> Result<Recorded, RecordError> {
        let t = MAX_PENDING.min(self.cx.kept.n_ctx);
        let mut g = self.drafting(t);
        let features = [tap_width(draft, self.target), t, 1, 1];
        let features = g.kept_part(&Scope::DRAFT.label(PENDING), 0, features, TensorFlags::empty());
        g.rec.tokens_on(features, 1);
        let tokens = g.io("tokens", self.cx.io.tokens, DType::I32, [t, 1, 1, 1], TensorFlags::HOST_WRITES);
        g.rec.tokens_on(tokens, 0);
        g.part(Part::Inject);
        draft.observe(&mut g, tokens, features);
        g.finish()
    }

    /// A program that runs where the draft is, and not the target.
    fn drafting(&self, t: u32) -> Graph<'a> {
        let mut g = Graph::new(self.cx, t, Tapes::Fold, self.numerics);
        g.rec.session(self.cx.split.last());
        g
    }

    /// The first `n` tokens of the block to verify.
    fn block(&self, g: &mut Graph<'_>, n: u32) -> Tensor {
        let shared = g.shared();
        g.kept_part(&Scope::DRAFT.label(BLOCK), 0, [n, 1, 1, 1], shared)
    }

    /// Room for the features of a step, {tap width, t}.
    fn features(&self, g: &mut Graph<'_>, draft: &dyn DraftModel) -> Tensor {
        g.activation([tap_width(draft, self.target), g.t(), 1, 1], Some(1))
    }
}

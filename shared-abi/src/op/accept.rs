//! ACCEPT: keeps the drafted tokens that the target agrees with, and advances the step registers; a step with
//! it has one register block. SET_TOKENS: sets `n_tokens` of every block to another register's value plus a
//! constant. NEXT_DRAFT: leads through a chain of drafts, each of which is a step of one token.

use super::rule::{Len, Operands, param, shape};
use super::{DTypes, Layout, OpSpec, OperandSpec};
use crate::accept::{HEAD, REPORTS};
use crate::registers::Register;
use crate::status::Fault;

operands! {
    SRC: Src {
        /// best{t}: what the target puts after each token; t is the token axis.
        BEST = OperandSpec::input("best", DTypes::I32, Layout::Contiguous);
        /// tokens{t}: the block.
        TOKENS = OperandSpec::input("tokens", DTypes::I32, Layout::Contiguous);
        /// stops{s}: ids that end the generation, at most [`MAX_STOPS`].
        STOPS = OperandSpec::input("stops", DTypes::I32, Layout::Contiguous);
    }
    DST: Dst {
        /// out{4 + max_tokens, 2}: see [`crate::accept`].
        OUT = OperandSpec::output("out", DTypes::I32, Layout::Rows);
        /// anchor{1}: the last token that was emitted.
        ANCHOR = OperandSpec::output("anchor", DTypes::I32, Layout::Contiguous);
    }
}

/// Most ids that end a generation.
pub const MAX_STOPS: u32 = 32;

params! {
    /// ACCEPT.
    pub struct Accept {
        /// Tokens of a drafted block, anchor included: what `n_tokens` becomes. At least 2.
        pub block: u32,
        /// The program's `n_ctx`.
        pub n_ctx: u32,
    }
}

params! {
    /// SET_TOKENS.
    pub struct SetTokens {
        /// The [`Register`] to take.
        pub register: u32,
        /// Added to its value.
        pub plus: u32,
    }
}

params! {
    /// NEXT_DRAFT.
    pub struct NextDraft {
        /// The draft that comes next, from 0, below the program's `max_tokens`. The drafts before it have
        /// been made by the ops before this one.
        pub draft: u32,
        /// 1 if all drafts of the chain are made at the position of the first, 0 if each is at the next one.
        pub stays: u32,
    }
}

pub(super) const ACCEPT: OpSpec =
    OpSpec { advances: true, ends_round: true, ..OpSpec::new(SRC, DST, check).params(Accept::FIELDS) };

pub(super) const SET_TOKENS: OpSpec =
    OpSpec { advances: true, ..OpSpec::new(&[], &[], check_set_tokens).params(SetTokens::FIELDS) };

pub(super) const NEXT_DRAFT: OpSpec =
    OpSpec { advances: true, ..OpSpec::new(&[], &[], check_next_draft).params(NextDraft::FIELDS) };

fn check(o: &Operands<'_>) -> Result<(), Fault> {
    let (best, tokens, stops) = (o.operand(BEST)?, o.operand(TOKENS)?, o.operand(STOPS)?);
    let one = [Len::ONE; 3];
    shape(best[0] == o.tokens() && best[1..] == one, BEST)?;
    shape(tokens == best, TOKENS)?;
    shape(stops[0].fixed_up_to(MAX_STOPS) && stops[1..] == one, STOPS)?;
    let row = HEAD as u32 + o.header.max_tokens;
    shape(o.operand(OUT)? == [Len::fixed(row), Len::fixed(REPORTS as u32), Len::ONE, Len::ONE], OUT)?;
    shape(o.operand(ANCHOR)? == [Len::ONE; 4], ANCHOR)?;
    let p: Accept = o.params();
    param((2..=o.header.max_tokens).contains(&p.block), word!(Accept.block))?;
    param(p.n_ctx == o.header.n_ctx, word!(Accept.n_ctx))
}

fn check_set_tokens(o: &Operands<'_>) -> Result<(), Fault> {
    let p: SetTokens = o.params();
    param(Register::parse(p.register).is_some(), word!(SetTokens.register))?;
    param(p.plus <= o.header.max_tokens, word!(SetTokens.plus))
}

fn check_next_draft(o: &Operands<'_>) -> Result<(), Fault> {
    let p: NextDraft = o.params();
    param(p.draft < o.header.max_tokens, word!(NextDraft.draft))?;
    param(p.stays <= 1, word!(NextDraft.stays))
}

//! What the registers are known to be before each op of a run, and so how far it writes and whether it must
//! fail.
//!
//! ACCEPT depends on data that earlier ops may have written: what it leaves in some registers is anybody's
//! guess here.

use std::collections::BTreeSet;

use hexflash_abi::op::{Op, Operand, gated_delta_net, params, ssm_conv};
use hexflash_abi::program::OpDesc;
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::validate::Program;
use hexflash_abi::{ErrorCode, Fault};

/// What must come of an op, for the registers that it meets. Ids are another matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Fine,
    Fails(Fault),
    /// It may fail for a register.
    Unknown,
}

/// An op about to run.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Rows of the token axis, at most.
    pub tokens: u32,
    pub fate: Fate,
    /// Whether an ACCEPT has run, which may also have ended the program.
    pub accepted: bool,
}

/// Register values, as far as they are known.
struct Known([Option<u32>; 16]);

impl Known {
    fn get(&self, register: Register) -> Option<u32> {
        self.0[register as usize]
    }

    fn set(&mut self, register: Register, value: Option<u32>) {
        self.0[register as usize] = value;
    }
}

/// What SET_TOKENS must come to, by the register's values plus its constant: overflow is found first, then
/// each block by itself, then the sum.
fn set_tokens(program: &Program<'_>, blocks: &[Known], register: Register, plus: u32) -> Fate {
    let fails = |register: Register| Fate::Fails(Fault::new(ErrorCode::BadRegister, register.wire()));
    let header = program.header;
    let sums: Option<Vec<_>> =
        blocks.iter().map(|known| Some(known.get(register)?.checked_add(plus))).collect();
    let Some(sums) = sums else { return Fate::Unknown };
    let Some(sums) = sums.into_iter().collect::<Option<Vec<_>>>() else { return fails(register) };
    for (&n, known) in sums.iter().zip(blocks) {
        if n == 0 || n > header.max_tokens {
            return fails(Register::NTokens);
        }
        match known.get(Register::NPast) {
            Some(past) if n > header.n_ctx - past => return fails(Register::NPast),
            Some(_) => {}
            None => return Fate::Unknown,
        }
    }
    if sums.iter().sum::<u32>() > header.max_tokens { fails(Register::NTokens) } else { Fate::Fine }
}

/// What NEXT_DRAFT makes of the registers of one block; `None` if it ends the program.
fn next_draft(
    program: &Program<'_>,
    block: &mut Known,
    params::NextDraft { draft, stays }: params::NextDraft,
) -> (Fate, Option<()>) {
    let fails = |register: Register| Fate::Fails(Fault::new(ErrorCode::BadRegister, register.wire()));
    let (Some(past), Some(drafts)) = (block.get(Register::NPast), block.get(Register::NDraft)) else {
        // No program has both this and ACCEPT.
        return (Fate::Unknown, Some(()));
    };
    if draft >= drafts {
        let enough = stays == 1 || past.checked_sub(draft.saturating_sub(1)).is_some();
        return if enough { (Fate::Fine, None) } else { (fails(Register::NPast), Some(())) };
    }
    let past = past + u32::from(draft > 0 && stays == 0);
    block.set(Register::NPast, Some(past));
    block.set(Register::NTokens, Some(1));
    let fate = if past < program.header.n_ctx { Fate::Fine } else { fails(Register::NPast) };
    (fate, Some(()))
}

/// Whether COPY_SLOT finds its snapshots, and each but once where it writes them.
fn copy_slot(program: &Program<'_>, op: &OpDesc, blocks: &[Known]) -> Fate {
    let saves = op.params::<params::CopySlot>().restore == 0;
    let operand = if saves { op.dst[0] } else { op.src[0] };
    let count = program.tensor(operand).map_or(0, |t| t.ne[3]);
    let snapshots: Vec<_> = blocks.iter().filter_map(|known| known.get(Register::Snapshot)).collect();
    let distinct: BTreeSet<_> = snapshots.iter().collect();
    if snapshots.iter().any(|&snapshot| snapshot >= count) || saves && distinct.len() < snapshots.len() {
        return Fate::Fails(Fault::new(ErrorCode::BadRegister, Register::Snapshot.wire()));
    }
    Fate::Fine
}

/// The moments of a run with these register blocks, which are within the program's bounds. There are none of
/// ops behind a NEXT_DRAFT that ends the program.
pub fn course(program: &Program<'_>, blocks: &[StepRegisters]) -> Vec<Moment> {
    let mut all: Vec<_> = blocks.iter().map(|block| Known(block.values.map(Some))).collect();
    let (mut accepted, mut moments) = (false, Vec::new());
    for op in program.ops {
        // Behind an op that must fail they may be any numbers.
        let add = |sum: u32, known: &Known| Some(sum.saturating_add(known.get(Register::NTokens)?));
        let tokens = all.iter().try_fold(0, add);
        let tokens = tokens.unwrap_or(program.header.max_tokens);
        let fails = |register: Register| Fate::Fails(Fault::new(ErrorCode::BadRegister, register.wire()));
        let opcode = Op::parse(op.opcode).unwrap();
        let mut goes_on = Some(());
        let fate = match opcode {
            Op::NextDraft => match &mut all[..] {
                [only] => {
                    let (fate, on) = next_draft(program, only, op.params());
                    goes_on = on;
                    fate
                }
                several => Fate::Fails(Fault::new(ErrorCode::BadCount, several.len() as u32)),
            },
            Op::GatedDeltaNet | Op::SsmConv => {
                // Tokens are on axis 2 of a tape of deltas, and on axis 1 of one of rows.
                let (operand, axis) = match opcode {
                    Op::SsmConv => (ssm_conv::TAPE_X, 1),
                    _ => (gated_delta_net::TAPE_DELTA, 2),
                };
                let tape = program.tensor(operand.of(&op.src, &op.dst)).map_or(0, |tape| tape.ne[axis]);
                let commits: Option<Vec<_>> = all.iter().map(|known| known.get(Register::NCommit)).collect();
                match commits {
                    Some(commits) if commits.iter().any(|&commit| commit > tape) => fails(Register::NCommit),
                    None => Fate::Unknown,
                    // The first parameter of both says whether rows go onto the tape, unless they fold.
                    Some(_) if op.params[0] == 0 => Fate::Fine,
                    Some(_) => {
                        let taped = all.iter().filter(|known| known.get(Register::Fold) == Some(0));
                        let rows: Option<Vec<_>> = taped.map(|known| known.get(Register::NTokens)).collect();
                        match rows {
                            Some(rows) if rows.iter().any(|&n| n > tape) => fails(Register::NTokens),
                            Some(_) => Fate::Fine,
                            None => Fate::Unknown,
                        }
                    }
                }
            }
            // Of one block: see `Model`.
            Op::Accept => match (all[0].get(Register::NLeft), all[0].get(Register::DraftMax)) {
                (Some(0), _) => fails(Register::NLeft),
                // With nothing to draft it may still end here.
                (_, Some(0)) => Fate::Unknown,
                _ => Fate::Fine,
            },
            Op::SetTokens => {
                let params: params::SetTokens = op.params();
                set_tokens(program, &all, Register::parse(params.register).unwrap(), params.plus)
            }
            Op::CopySlot => copy_slot(program, op, &all),
            _ => Fate::Fine,
        };
        moments.push(Moment { tokens, fate, accepted });
        if goes_on.is_none() {
            break;
        }
        match opcode {
            Op::Accept => {
                accepted = true;
                let known = &mut all[0];
                let params: params::Accept = op.params();
                let guess = [Register::NPast, Register::NAccept, Register::NCommit, Register::NDraft];
                guess.into_iter().chain([Register::NLeft]).for_each(|register| known.set(register, None));
                known.set(Register::NTokens, Some(params.block));
                known.set(Register::Round, known.get(Register::Round).map(|n| n.wrapping_add(1)));
            }
            Op::SetTokens => {
                let params: params::SetTokens = op.params();
                for known in &mut all {
                    let value = Register::parse(params.register).and_then(|register| known.get(register));
                    known.set(Register::NTokens, value.and_then(|value| value.checked_add(params.plus)));
                }
            }
            _ => {}
        }
    }
    moments
}

/// Whether these are registers that ACCEPT may have made of those that a run began with, over `accepts`
/// ACCEPTs.
pub fn follows(program: &Program<'_>, from: &StepRegisters, to: &StepRegisters, accepts: u32) -> bool {
    let change = |register| to.get(register).wrapping_sub(from.get(register));
    let emitted = change(Register::NPast);
    let rounds = change(Register::Round);
    let kept = to.get(Register::NCommit);
    let in_bounds = if to.halted() {
        to.get(Register::Halt) <= 2 && to.get(Register::NPast) <= program.header.n_ctx
    } else {
        // Nothing ends a program early but a halt.
        rounds == accepts && hexflash_abi::validate::check_step(program.header, &[*to]).is_ok()
    };
    in_bounds
        && (1..=accepts).contains(&rounds)
        && (rounds..=rounds * program.header.max_tokens).contains(&emitted)
        && emitted == change(Register::NLeft).wrapping_neg()
        && (1..=emitted).contains(&kept)
        && to.get(Register::NAccept) == kept - 1
        && to.get(Register::NTokens) <= program.header.max_tokens
        && change(Register::DraftMax) == 0
        && to.values[Register::ALL.len()..].iter().all(|&word| word == 0)
}

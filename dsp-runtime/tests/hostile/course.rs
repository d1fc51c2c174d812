//! What the registers are known to be before each op of a run, and so how far it writes and whether it must
//! fail.
//!
//! ACCEPT depends on data that earlier ops may have written: what it leaves in some registers is anybody's
//! guess here.

use hexflash_abi::op::{Op, Operand, gated_delta_net, params, ssm_conv};
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

/// The moments of a run with these registers, which are within the program's bounds.
pub fn course(program: &Program<'_>, registers: &StepRegisters) -> Vec<Moment> {
    let mut known = Known(registers.values.map(Some));
    let (mut accepted, mut moments) = (false, Vec::new());
    for op in program.ops {
        let tokens = known.get(Register::NTokens).unwrap_or(program.header.max_tokens);
        let fails = |register: Register| Fate::Fails(Fault::new(ErrorCode::BadRegister, register.wire()));
        let opcode = Op::parse(op.opcode).unwrap();
        let fate = match opcode {
            Op::GatedDeltaNet | Op::SsmConv => {
                // Tokens are on axis 2 of a tape of deltas, and on axis 1 of one of rows.
                let (operand, axis) = match opcode {
                    Op::SsmConv => (ssm_conv::TAPE_X, 1),
                    _ => (gated_delta_net::TAPE_DELTA, 2),
                };
                let tape = program.tensor(operand.of(&op.src, &op.dst)).map_or(0, |tape| tape.ne[axis]);
                match known.get(Register::NCommit) {
                    Some(commit) if commit > tape => fails(Register::NCommit),
                    Some(_) => Fate::Fine,
                    None => Fate::Unknown,
                }
            }
            Op::Accept => match (known.get(Register::NLeft), known.get(Register::DraftMax)) {
                (Some(0), _) => fails(Register::NLeft),
                // With nothing to draft it may still end here.
                (_, Some(0)) => Fate::Unknown,
                _ => Fate::Fine,
            },
            Op::SetTokens => {
                let params: params::SetTokens = op.params();
                let register = Register::parse(params.register).unwrap();
                let sum = known.get(register).map(|value| value.checked_add(params.plus));
                match (sum, known.get(Register::NPast)) {
                    (None, _) => Fate::Unknown,
                    (Some(None), _) => fails(register),
                    (Some(Some(n)), _) if n == 0 || n > program.header.max_tokens => fails(Register::NTokens),
                    (Some(Some(n)), Some(past)) if n > program.header.n_ctx - past => fails(Register::NPast),
                    (Some(Some(_)), Some(_)) => Fate::Fine,
                    (Some(Some(_)), None) => Fate::Unknown,
                }
            }
            _ => Fate::Fine,
        };
        moments.push(Moment { tokens, fate, accepted });
        match opcode {
            Op::Accept => {
                accepted = true;
                let params: params::Accept = op.params();
                let guess = [Register::NPast, Register::NAccept, Register::NCommit, Register::NDraft];
                guess.into_iter().chain([Register::NLeft]).for_each(|register| known.set(register, None));
                known.set(Register::NTokens, Some(params.block));
                known.set(Register::Round, known.get(Register::Round).map(|n| n.wrapping_add(1)));
            }
            Op::SetTokens => {
                let params: params::SetTokens = op.params();
                let value = Register::parse(params.register).and_then(|register| known.get(register));
                known.set(Register::NTokens, value.and_then(|value| value.checked_add(params.plus)));
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

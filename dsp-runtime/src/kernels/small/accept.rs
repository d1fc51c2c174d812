//! ACCEPT, SET_TOKENS and NEXT_DRAFT: what moves the step registers while a program runs.
//!
//! ACCEPT ends the verify part of a speculative round. Token 0 of the block is the anchor, which had been
//! emitted before; `best[i]` is what the target puts after token i. Drafts are kept as long as they are just
//! that, and the target's own token after the last of them comes on top, so that what is emitted is what
//! plain greedy decoding emits. A stop token, the budget and the end of the context cut it exactly.

use hexflash_abi::accept::{DRAFTED, EMITTED, HALT, HEAD, REPORTS, ROUND};
use hexflash_abi::op::{accept as abi, params};
use hexflash_abi::registers::{Halt, Register};
use hexflash_abi::{ErrorCode, Fault};

use crate::op_run::OpRun;

/// ACCEPT: best{t}, tokens{t}, stops{s} -> out{4 + max_tokens, 2}, anchor{1}, I32 all.
///
/// With e tokens emitted: `n_past += e`, `n_commit = e`, `n_accept = e - 1`, `n_left -= e`, `round += 1`; for
/// the draft that follows, `n_tokens = block` and `n_draft` is at most `draft_max` and no more than the
/// budget has use for. Where nothing may follow, `halt` says why.
///
/// # Errors
/// [`ErrorCode::BadRegister`]: no budget. [`ErrorCode::BadCount`]: several register blocks, of which a round
/// moves one.
pub fn accept(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let (best, tokens, stops) =
        (run.operand(abi::BEST)?, run.operand(abi::TOKENS)?, run.operand(abi::STOPS)?);
    let (out, anchor) = (run.operand(abi::OUT)?, run.operand(abi::ANCHOR)?);
    let params::Accept { block, n_ctx } = run.params();
    let (block, n_ctx) = (block as usize, n_ctx as usize);
    // The shape rule: best and tokens lie along the token axis, and a row of out has room for a token of
    // each.
    let n = run.step.rows();
    let registers = run.step.only_mut()?;
    let left = registers.get(Register::NLeft) as usize;
    if left == 0 {
        return Err(Fault::new(ErrorCode::BadRegister, Register::NLeft.wire()));
    }
    let round = registers.get(Register::Round);
    let row = round as usize % REPORTS;
    // SAFETY: only the dispatcher's thread runs this op, so that nobody else uses `out`; `set_int` checks the
    // indices.
    let write = |word: usize, value: i32| unsafe { out.set_int([word, row, 0, 0], value) };

    let (mut emitted, mut stopped, mut last) = (0, false, 0);
    while emitted < n.min(left) && !stopped {
        last = best.int([emitted, 0, 0, 0]);
        write(HEAD + emitted, last);
        emitted += 1;
        stopped = (0..stops.ne[0]).any(|i| stops.int([i, 0, 0, 0]) == last);
        if emitted == n || tokens.int([emitted, 0, 0, 0]) != last {
            break;
        }
    }
    // SAFETY: only the dispatcher's thread runs this op, so that nobody else uses `anchor`; `set_int` checks
    // the indices.
    unsafe { anchor.set_int([0; 4], last) };

    let (past, left) = (registers.get(Register::NPast) as usize + emitted, left - emitted);
    let halt = if stopped || left == 0 || past >= n_ctx {
        Halt::Finished
    } else if n_ctx - past < block {
        Halt::NoRoom
    } else {
        Halt::Running
    };
    write(ROUND, round as i32);
    write(DRAFTED, n as i32 - 1);
    write(EMITTED, emitted as i32);
    write(HALT, halt.wire() as i32);

    let most = (registers.get(Register::DraftMax) as usize).min(block - 1);
    let draft = left.saturating_sub(1).min(most).max(1);
    for (register, value) in [
        (Register::NPast, past),
        (Register::NTokens, block),
        (Register::NAccept, emitted - 1),
        (Register::NCommit, emitted),
        (Register::NDraft, draft),
        (Register::NLeft, left),
        (Register::Round, round.wrapping_add(1) as usize),
        (Register::Halt, halt as usize),
    ] {
        registers.set(register, value as u32);
    }
    Ok(())
}

/// SET_TOKENS: `n_tokens` of every block becomes a register's value plus a constant.
///
/// # Errors
/// [`ErrorCode::BadRegister`] with the register's number; the caller checks the new value against the
/// program.
pub fn set_tokens(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let p: params::SetTokens = run.params();
    let bad = Fault::new(ErrorCode::BadRegister, p.register);
    let register = Register::parse(p.register).ok_or(bad)?;
    for block in run.step.blocks_mut() {
        let tokens = block.get(register).checked_add(p.plus).ok_or(bad)?;
        block.set(Register::NTokens, tokens);
    }
    Ok(())
}

/// NEXT_DRAFT: the step becomes the one token from which draft number `draft` of a chain is made, at the
/// position after that of the draft before it, or with `stays` at the same. If `n_draft` drafts have been
/// made, the registers become those of the step that verifies them instead: `n_past` as before the chain, and
/// `n_tokens` one more than `n_draft`. No op runs after that.
///
/// # Errors
/// [`ErrorCode::BadRegister`]: fewer tokens than drafts that are said to have been made.
/// [`ErrorCode::BadCount`]: several register blocks.
pub fn next_draft(run: &mut OpRun<'_>) -> Result<(), Fault> {
    let params::NextDraft { draft, stays } = run.params();
    // How far the drafts before this one are from the first.
    let moved = if stays == 0 { draft } else { 0 };
    let registers = run.step.only_mut()?;
    let (past, drafts) = (registers.get(Register::NPast), registers.get(Register::NDraft));
    let goes_on = draft < drafts;
    let (past, tokens) = match goes_on {
        true => (past.checked_add(u32::from(moved > 0)), Some(1)),
        false => (past.checked_sub(moved.saturating_sub(1)), drafts.checked_add(1)),
    };
    for (register, value) in [(Register::NPast, past), (Register::NTokens, tokens)] {
        let bad = Fault::new(ErrorCode::BadRegister, register.wire());
        registers.set(register, value.ok_or(bad)?);
    }
    if !goes_on {
        run.step.end();
    }
    Ok(())
}

#[cfg(test)]
mod tests;

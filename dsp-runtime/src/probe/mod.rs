//! Answers to questions that no program asks: see [`hexflash_abi::probe`].
//!
//! Each is a kernel: it uses VTCM and the workers' queues as others do, and leaves nothing behind.

mod data;
#[cfg(target_arch = "hexagon")]
mod loops;
#[cfg(not(target_arch = "hexagon"))]
#[path = "no_loops.rs"]
mod loops;
mod matrix;
mod order;
mod packets;

use hexflash_abi::Fault;
use hexflash_abi::message::{Answer, Probe};
use hexflash_abi::probe::{ANSWER_WORDS, Loop, Outcome, Question};

use data::Data;

use crate::platform::Platform;
use crate::pool::Workers;
use crate::vtcm::VtcmPlan;

/// VTCM that a question needs.
///
/// # Errors
/// [`hexflash_abi::ErrorCode::VtcmTooSmall`] with the bytes needed.
pub fn plan(question: Question, probe: &Probe, workers: usize, vtcm_bytes: usize) -> Result<VtcmPlan, Fault> {
    let shared = match question {
        Question::MatrixUnit => matrix::BYTES,
        Question::OneQueue | Question::TwoQueues => probe.data.len as usize,
        Question::Packets => packets::BYTES,
    };
    VtcmPlan { shared, own: 0 }.fit(workers, vtcm_bytes)
}

/// The answer. `has_unit` says whether the platform lends a matrix unit to this thread, which dispatches.
///
/// # Errors
/// A DMA engine that failed: the session must end.
///
/// # Safety
/// 1. `probe` has passed [`Probe::question`], which gave `question`, and `plan` is [`plan`]'s for it.
/// 2. The bytes of the probe's data are valid for reading at `data`, which is a multiple of 128; the host may
///    write there at any time.
pub unsafe fn answer<P: Platform>(
    pool: &mut impl Workers,
    platform: &P,
    question: Question,
    probe: &Probe,
    data: *const u8,
    plan: VtcmPlan,
    has_unit: bool,
) -> Result<Answer, Fault> {
    let (data, bytes) = (Data(data), probe.data.len as usize);
    let given = match question {
        Question::MatrixUnit if !has_unit => Err(Outcome::NoMatrixUnit),
        // SAFETY: so many bytes are readable at `data` (point 2), those of the pairs that the number names
        // (point 1).
        Question::MatrixUnit => Ok(unsafe { matrix::ask(pool, probe.number as usize, data, plan)? }),
        // SAFETY: so many bytes are readable at `data` (point 2), at least those of two short transfers
        // (point 1).
        Question::OneQueue => Ok(unsafe { order::one_queue(pool, probe.number, data, bytes, plan)? }),
        Question::TwoQueues => {
            // SAFETY: as for one queue.
            unsafe { order::two_queues(pool, platform, probe.number, data, bytes, plan)? }
                .ok_or(Outcome::OneThread)
        }
        Question::Packets => match Loop::parse(probe.number) {
            Some(kind) => packets::ask(pool, platform, kind, plan)?.ok_or(Outcome::NoPackets),
            None => Err(Outcome::NoPackets),
        },
    };
    Ok(match given {
        Ok(words) => Answer { outcome: Outcome::Answered.wire(), words },
        Err(outcome) => Answer { outcome: outcome.wire(), words: [0; ANSWER_WORDS] },
    })
}

//! Messages that come as calls of FastRPC's instead of packets: for systems whose DSP never sees a packet
//! (qualcomm/fastrpc#377). FastRPC's thread leaves the message here, and waits for the response; the
//! session's thread, which holds scratchpad and vector unit, answers.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::queue::MAX_MESSAGE;
use hexflash_dsp::platform::Platform;

use super::{Idle, MessageEnd, QurtPlatform, news};
use crate::rpc::AeeError;

/// State of the mailbox in which nothing is.
const EMPTY: u32 = 0;
const REQUEST: u32 = 1;
const RESPONSE: u32 = 2;
/// Nobody will answer any more.
const CLOSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(CLOSED);

/// A message and its length. Locked by who writes or reads it, which is one at a time: [`STATE`] says whose
/// turn it is.
static LETTER: spin::Mutex<([u8; MAX_MESSAGE], usize)> = spin::Mutex::new(([0; MAX_MESSAGE], 0));

fn turn(state: u32) {
    // Release: pairs with the loads of who waits for its turn.
    STATE.store(state, Ordering::Release);
    QurtPlatform::PLAIN.futex_wake(&STATE);
}

/// Delivers a message, and waits for the response: its bytes. There is one caller at a time.
///
/// # Errors
/// [`AeeError::BAD_PARAMETER`] for a message that is too long, or no room for the response;
/// [`AeeError::BAD_STATE`] if nobody answers.
pub(in super::super) fn exchange(request: &[u8], response: &mut [u8]) -> Result<usize, AeeError> {
    if STATE.load(Ordering::Acquire) != EMPTY {
        return Err(AeeError::BAD_STATE);
    }
    {
        let mut letter = LETTER.lock();
        letter.0.get_mut(..request.len()).ok_or(AeeError::BAD_PARAMETER)?.copy_from_slice(request);
        letter.1 = request.len();
    }
    // The session may have ended meanwhile.
    let begin = STATE.compare_exchange(EMPTY, REQUEST, Ordering::AcqRel, Ordering::Acquire);
    begin.map_err(|_| AeeError::BAD_STATE)?;
    news::tell();
    while STATE.load(Ordering::Acquire) == REQUEST {
        QurtPlatform::PLAIN.futex_wait(&STATE, REQUEST);
    }
    let taken = STATE.compare_exchange(RESPONSE, EMPTY, Ordering::AcqRel, Ordering::Acquire);
    taken.map_err(|_| AeeError::BAD_STATE)?;
    let letter = LETTER.lock();
    response.get_mut(..letter.1).ok_or(AeeError::BAD_PARAMETER)?.copy_from_slice(&letter.0[..letter.1]);
    Ok(letter.1)
}

/// The session's end of the mailbox, open until it is dropped. (One session per process.)
pub(in super::super) struct Mailbox(());

impl Mailbox {
    /// Opens it.
    pub(in super::super) fn open() -> Self {
        turn(EMPTY);
        Self(())
    }

    /// The next message: its length.
    ///
    /// # Errors
    /// [`MessageEnd::Idle`] if none came as long as `idle` says.
    pub(in super::super) fn read(
        &mut self,
        message: &mut [u8; MAX_MESSAGE],
        idle: Idle,
    ) -> Result<usize, MessageEnd> {
        let seen = news::seen();
        if STATE.load(Ordering::Acquire) != REQUEST {
            news::wait(seen, idle.most_us());
        }
        if STATE.load(Ordering::Acquire) != REQUEST {
            return Err(MessageEnd::Idle);
        }
        let letter = LETTER.lock();
        message[..letter.1].copy_from_slice(&letter.0[..letter.1]);
        Ok(letter.1)
    }

    /// Leaves the response.
    pub(in super::super) fn write(&mut self, message: &[u8]) -> Result<(), MessageEnd> {
        {
            let mut letter = LETTER.lock();
            letter.0.get_mut(..message.len()).ok_or(MessageEnd::Lost)?.copy_from_slice(message);
            letter.1 = message.len();
        }
        turn(RESPONSE);
        Ok(())
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        turn(CLOSED);
    }
}

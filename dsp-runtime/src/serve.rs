//! The message loop over the shared-memory ring: the `inproc` and `qemu` devices.

#[cfg(feature = "host")]
pub mod host;

use hexflash_abi::message::Response;
use hexflash_abi::queue::{MAX_MESSAGE, QueueError, Reader, Writer};
use hexflash_abi::sync::{AtomicU32, Ordering};
use zerocopy::IntoBytes;

use crate::platform::Platform;
use crate::session::Session;

/// Turns of the wait loop before the DSP side sleeps: the host's next step follows within microseconds.
const SPINS: u32 = 2_000;

/// Answers requests until `stop` is not 0. It is a word, because it may lie in memory into which the host can
/// write anything, and a `bool` may only be 0 or 1. The thread that sets it must ring the request doorbell
/// until this function has returned, because the function may be about to sleep on a word that a stop does
/// not change.
///
/// # Errors
/// [`QueueError::Corrupt`]: the host wrote nonsense into the queue memory, and the session is lost.
pub fn serve<P: Platform>(
    session: &mut Session<'_, '_, P>,
    platform: &P,
    requests: &mut Reader<'_>,
    responses: &mut Writer<'_>,
    stop: &AtomicU32,
) -> Result<(), QueueError> {
    let mut message = [0; MAX_MESSAGE];
    let mut idle = 0;
    loop {
        // Acquire: pairs with the release store of the thread that sets `stop`.
        if stop.load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        if let Some(len) = requests.read(&mut message)? {
            idle = 0;
            let response = session.handle(&message[..len]);
            if !send(&response, platform, responses, stop)? {
                return Ok(());
            }
        } else if idle < SPINS {
            idle += 1;
            platform.relax();
        } else {
            sleep(platform, requests, stop);
        }
    }
}

/// Sleeps until there is a request, or the doorbell rings after `stop` was set; may wake early.
pub fn sleep<P: Platform>(platform: &P, requests: &Reader<'_>, stop: &AtomicU32) {
    requests.set_waiting(true);
    // Look again: a packet written before the announcement rang no bell.
    if requests.doorbell().load(Ordering::SeqCst) == requests.seen() && stop.load(Ordering::SeqCst) == 0 {
        platform.futex_wait(requests.doorbell(), requests.seen());
    }
    requests.set_waiting(false);
}

/// Writes a response, waiting for room; `false` if told to stop meanwhile.
fn send<P: Platform>(
    response: &Response,
    platform: &P,
    responses: &mut Writer<'_>,
    stop: &AtomicU32,
) -> Result<bool, QueueError> {
    loop {
        match responses.write(response.as_bytes()) {
            Ok(wake) => {
                if wake {
                    platform.futex_wake(responses.doorbell());
                }
                return Ok(true);
            }
            // The host has more in flight than the ring holds and will read.
            Err(QueueError::Full) if stop.load(Ordering::Acquire) != 0 => return Ok(false),
            Err(QueueError::Full) => platform.relax(),
            Err(error) => return Err(error),
        }
    }
}

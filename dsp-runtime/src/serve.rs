//! The message loop over the shared-memory ring: the `inproc` and `qemu` devices.

use hexflash_abi::message::Response;
use hexflash_abi::queue::{MAX_MESSAGE, QueueError, Reader, Writer};
use hexflash_abi::sync::{AtomicBool, Ordering};
use zerocopy::IntoBytes;

use crate::platform::Platform;
use crate::session::Session;

/// Turns of the wait loop before the DSP side sleeps: the host's next step follows within microseconds.
const SPINS: u32 = 2_000;

/// Answers requests until `stop` is set. The thread that sets it must ring the request doorbell until this
/// function has returned, because the function may be about to sleep on a word that a stop does not change.
///
/// # Errors
/// [`QueueError::Corrupt`]: the host wrote nonsense into the queue memory, and the session is lost.
pub fn serve<P: Platform>(
    session: &mut Session<'_, '_, P>,
    platform: &P,
    requests: &mut Reader<'_>,
    responses: &mut Writer<'_>,
    stop: &AtomicBool,
) -> Result<(), QueueError> {
    let mut message = [0; MAX_MESSAGE];
    let mut idle = 0;
    loop {
        // Acquire: pairs with the release store of the thread that sets `stop`.
        if stop.load(Ordering::Acquire) {
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
pub fn sleep<P: Platform>(platform: &P, requests: &Reader<'_>, stop: &AtomicBool) {
    requests.set_waiting(true);
    // Look again: a packet written before the announcement rang no bell.
    if requests.doorbell().load(Ordering::SeqCst) == requests.seen() && !stop.load(Ordering::SeqCst) {
        platform.futex_wait(requests.doorbell(), requests.seen());
    }
    requests.set_waiting(false);
}

/// Writes a response, waiting for room; `false` if told to stop meanwhile.
fn send<P: Platform>(
    response: &Response,
    platform: &P,
    responses: &mut Writer<'_>,
    stop: &AtomicBool,
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
            Err(QueueError::Full) if stop.load(Ordering::Acquire) => return Ok(false),
            Err(QueueError::Full) => platform.relax(),
            Err(error) => return Err(error),
        }
    }
}

//! The host's ends of the queue that is ours on both sides (`inproc`, `qemu`), in the words of a device.

use hexflash_abi::message::Response;
use hexflash_abi::queue::{QueueError, Reader, Writer};
use zerocopy::{FromZeros, IntoBytes};

use super::DeviceError;

/// Sends a request; whether the DSP's side sleeps and is to be woken.
///
/// # Errors
/// [`DeviceError::QueueFull`], or [`DeviceError::Lost`] for a request that no queue takes.
pub(super) fn send(requests: &mut Writer<'_>, request: &[u8]) -> Result<bool, DeviceError> {
    requests.write(request).map_err(|error| match error {
        QueueError::Full => DeviceError::QueueFull,
        error => DeviceError::Lost { reason: format!("request queue: {error:?}") },
    })
}

/// The next response, if it is there.
///
/// # Errors
/// [`DeviceError::Lost`]: the queue's memory holds no response.
pub(super) fn receive(responses: &mut Reader<'_>) -> Result<Option<Response>, DeviceError> {
    let mut response = Response::new_zeroed();
    match responses.read(response.as_mut_bytes()) {
        Ok(None) => Ok(None),
        Ok(Some(len)) if len == size_of::<Response>() => Ok(Some(response)),
        Ok(Some(len)) => Err(DeviceError::Lost { reason: format!("a response of {len} bytes") }),
        Err(error) => Err(DeviceError::Lost { reason: format!("response queue: {error:?}") }),
    }
}

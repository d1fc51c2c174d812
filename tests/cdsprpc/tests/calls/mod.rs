//! A use of the device from its start to its end, and the calls in it that may fail.

use cdsprpc::standin::StandIn;
use hexflash::device::{Device, DeviceError};

/// Opens the device, uses it, closes it.
pub fn use_device(standin: &StandIn) -> Result<(), DeviceError> {
    let mut device = standin.open()?;
    let buffer = device.allocate(5000)?;
    buffer.memory.write(100, b"hello");
    device.reset()?;
    let buffer = device.allocate(5000)?;
    device.free(buffer)
}

/// Calls of the host whose failure ends the attempt, the call of theirs that fails, and what the message
/// names.
pub const FATAL: [(&str, u32, &str); 13] = [
    ("GET_DSP_INFO", 1, "remote_handle_control(GET_DSP_INFO)"),
    ("UNSIGNED_MODULE", 1, "remote_session_control(UNSIGNED_MODULE)"),
    ("remote_handle64_open", 1, "remote_handle64_open"),
    ("remote_handle64_invoke", 1, "remote_handle64_invoke(info)"),
    ("dspqueue_create", 1, "dspqueue_create"),
    ("dspqueue_export", 1, "dspqueue_export"),
    ("remote_handle64_invoke", 2, "remote_handle64_invoke(start)"),
    ("dspqueue_write", 1, "dspqueue_write"),
    ("dspqueue_read", 1, "dspqueue_read"),
    ("fastrpc_mmap", 1, "fastrpc_mmap"),
    ("dspqueue_write", 2, "dspqueue_write"),
    ("dspqueue_read", 2, "dspqueue_read"),
    ("remote_handle64_open", 2, "remote_handle64_open"),
];

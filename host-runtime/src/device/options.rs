//! Settings of devices.

#[cfg(unix)]
use std::path::PathBuf;
#[cfg(unix)]
use std::time::Duration;

use super::arch::Arch;
use super::float::Float;

/// Settings of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// Threads that run kernels; `None` for as many as the machine has cores, at most 8.
    pub threads: Option<usize>,
    /// Bytes of VTCM; `None` for 8 MiB, or for less where a DSP says that it has less.
    pub vtcm_bytes: Option<usize>,
    /// Sessions to split programs over; `None` for one, or for as many as a model needs where a device is
    /// [opened for a model](crate::engine::open_device).
    pub sessions: Option<usize>,
    /// Bytes that a session can map; `None` for what is [known](super::session_limits) of the device.
    pub session_bytes: Option<u64>,
    /// Device `qemu`: the version of the Hexagon that is emulated; `None` for v67, whose results are the bits
    /// of `inproc`.
    pub arch: Option<Arch>,
    /// The float arithmetic, where the device has a choice.
    pub float: Float,
    /// Device `qemu`: who gets a line for each op that begins and each transfer of a DMA engine; `None` for
    /// no trace.
    pub trace: Option<fn(&str)>,
    /// Whether programs will use the matrix unit (HMX). `htp` asks the DSP for it only then; `qemu` has one
    /// in any case where the emulated version has, and `inproc` a portable twin.
    pub matrix_unit: bool,
    /// Settings of the device `htp`; `None` for its defaults.
    #[cfg(unix)]
    pub htp: Option<Box<HtpOptions>>,
}

/// The clocks that a session asks for.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerProfile {
    /// The highest clocks, and no sleep between messages.
    #[default]
    Burst,
    /// High clocks that adapt.
    Balanced,
    /// Low clocks that adapt.
    Efficient,
}

/// Mover of data between memory and VTCM.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DmaBy {
    /// The DSP's user-DMA engines, for each op by itself.
    #[default]
    Engine,
    /// The kernel threads themselves.
    Threads,
    /// The DSP's user-DMA engines, which also fetch weights ahead of the ops that read them. Threads then
    /// sleep while transfers that they started are under way, and whether QuRT lets these go on is not known.
    EngineAhead,
}

/// Settings of the device `htp`.
#[cfg(unix)]
#[derive(Clone, Debug, Default)]
pub struct HtpOptions {
    /// The vendor's library; `None` to look where systems have it.
    pub vendor_library: Option<PathBuf>,
    /// Clocks while there is work.
    pub power: PowerProfile,
    /// Mover of data between memory and VTCM.
    pub dma: DmaBy,
    /// How long a step may take before the DSP counts as hung; `None` for half a minute.
    pub patience: Option<Duration>,
    /// The way of messages.
    pub transport: TransportChoice,
    /// Time for which a wait looks for an answer before the thread sleeps.
    pub poll: Duration,
    /// Whether to reserve a session other than the first, which other libraries in this process may use.
    pub reserve: bool,
}

/// The way of messages between host and DSP.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The queue; calls where no queue can be made, or the DSP stays silent on it.
    #[default]
    Auto,
    /// `dspqueue`: about 60 us there and back.
    Queue,
    /// A call of FastRPC's for each message, about 300 us: for systems whose DSP sees no packets, as with the
    /// driver of mainline Linux (qualcomm/fastrpc#377).
    Calls,
}

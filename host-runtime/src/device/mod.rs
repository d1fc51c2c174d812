//! Devices: where the DSP side runs. One trait, and the same messages, on all of them.

mod arch;
mod chips;
mod client;
mod error;
#[cfg(unix)]
mod fastrpc;
mod float;
#[cfg(unix)]
pub mod htp;
pub mod inproc;
mod interface;
mod limits;
mod link;
mod memory;
mod options;
#[cfg(target_os = "linux")]
pub mod qemu;
mod queue_ends;
mod sessions;
mod slots;

pub use crate::record::{MAX_SESSIONS, SessionSet};
pub use arch::Arch;
pub use chips::KnownChip;
pub use client::Client;
pub use error::DeviceError;
pub use float::Float;
pub use hexflash_abi::message::MatrixUnit;
pub use interface::{Buffer, CostUnit, Device, DeviceInfo, KeptAccess};
pub use limits::{CHIPS, Chip, SessionLimits};
pub use link::{Link, Offer};
pub use memory::{Memory, SharedMemory, Source};
pub use options::DeviceOptions;
pub use sessions::{DeviceSession, SplitDevice};

/// The names that [`open`] takes, each with a description in one line.
pub const DEVICES: &[(&str, &str)] = &[
    ("inproc", inproc::ABOUT),
    #[cfg(target_os = "linux")]
    ("qemu", qemu::ABOUT),
    #[cfg(unix)]
    ("htp", htp::ABOUT),
];

/// Opens the device called `name`.
///
/// # Errors
/// [`DeviceError::Unknown`], [`DeviceError::NoArch`], [`DeviceError::NoFloat`], [`DeviceError::NoTrace`], or
/// the device cannot be opened.
pub fn open(name: &str, options: &DeviceOptions) -> Result<Box<dyn Device>, DeviceError> {
    if options.arch.is_some() && matches!(name, "inproc" | "htp") {
        return Err(DeviceError::NoArch { device: name.to_owned() });
    }
    if options.trace.is_some() && matches!(name, "inproc" | "htp") {
        return Err(DeviceError::NoTrace { device: name.to_owned() });
    }
    options.float.check(name)?;
    match name {
        "inproc" => open_as::<inproc::Inproc>(options),
        #[cfg(target_os = "linux")]
        "qemu" => open_as::<qemu::Qemu>(options),
        #[cfg(unix)]
        "htp" => open_as::<htp::Htp>(options),
        _ => {
            let known: Vec<_> = DEVICES.iter().map(|(name, _)| *name).collect();
            Err(DeviceError::Unknown { name: name.to_owned(), known: known.join(", ") })
        }
    }
}

fn open_as<D: DeviceSession + 'static>(options: &DeviceOptions) -> Result<Box<dyn Device>, DeviceError> {
    match options.sessions {
        None | Some(1) => Ok(Box::new(D::open_session(options, 0)?)),
        Some(number) => Ok(Box::new(SplitDevice::<D>::open(options, number)?)),
    }
}

/// The version of the DSP that device `htp` runs on, as the vendor's library gives it: 0x73. No session is
/// opened.
///
/// # Errors
/// There is no such library, or the version cannot be asked for.
#[cfg(unix)]
pub fn htp_version(options: &DeviceOptions) -> Result<u32, DeviceError> {
    htp::arch(options)
}

/// What each session of a device can map: as the options say, else as its version can; `None` where
/// memory of this machine is all that limits it.
///
/// # Errors
/// The version cannot be asked for.
pub fn session_limits(device: &str, options: &DeviceOptions) -> Result<Option<SessionLimits>, DeviceError> {
    let known = match device {
        #[cfg(unix)]
        "htp" => Some(Chip::for_arch(htp::arch(options)?).limits),
        _ => None,
    };
    Ok(match options.session_bytes {
        None => known,
        Some(total) => {
            Some(SessionLimits { total, mapping: known.map_or(total, |known| known.mapping.min(total)) })
        }
    })
}

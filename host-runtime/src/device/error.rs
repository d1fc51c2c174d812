//! What can go wrong with a device, in the user's words.

use std::time::Duration;

use hexflash_abi::message::MessageKind;
use hexflash_abi::{ErrorCode, Fault, Seq, Status};

use crate::setting::Setting;

/// A device failed, or refused a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No such device.
    #[error("unknown device \"{name}\": this build has {known}; choose one{}", Setting::Device.with())]
    Unknown {
        /// The value that was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The device is not available on this machine as it is.
    #[error("device {device}: {reason}; {remedy}")]
    Unavailable {
        /// The name of the device.
        device: &'static str,
        /// What the device lacks.
        reason: String,
        /// What users can do.
        remedy: String,
    },
    /// The device has no choice of an architecture.
    #[error(
        "device {device} has no choice of an architecture{}: only qemu emulates one; leave it out",
        Setting::Arch.in_parentheses()
    )]
    NoArch {
        /// The name of the device.
        device: String,
    },
    /// The device has no choice of float arithmetic.
    #[error(
        "device {device} has no choice of float arithmetic{}: only inproc computes with qf32 in software; \
         leave it out",
        Setting::Float.in_parentheses()
    )]
    NoFloat {
        /// The name of the device.
        device: String,
    },
    /// The device has no trace.
    #[error(
        "device {device} has no trace{}: only qemu sees each op; leave it out",
        Setting::Trace.in_parentheses()
    )]
    NoTrace {
        /// The name of the device.
        device: String,
    },
    /// This machine has no Hexagon that hexflash could use.
    #[cfg(unix)]
    #[error(transparent)]
    NoHardware(super::fastrpc::error::HtpError),
    /// A call of FastRPC failed, or the process on the DSP did.
    #[cfg(unix)]
    #[error(transparent)]
    Htp(super::fastrpc::error::HtpError),
    /// A setting is out of range.
    #[error("{}{} must be {allowed}, not {found}", setting.words(), setting.in_parentheses())]
    Setting {
        /// The setting.
        setting: Setting,
        /// The values that are allowed.
        allowed: String,
        /// The value that was asked for.
        found: usize,
    },
    /// Shared memory could not be allocated.
    #[error(
        "cannot allocate {bytes} bytes of shared memory ({source}); use a smaller model or context{}",
        Setting::Context.in_parentheses()
    )]
    Memory {
        /// The bytes that were asked for.
        bytes: u64,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file that weights are read from has changed, or cannot be read any more.
    #[error(transparent)]
    Weights(std::io::Error),
    /// A thread could not be started.
    #[error("cannot start a device thread ({source}); lower {}", Setting::Threads)]
    Thread {
        /// The system's reason.
        source: std::io::Error,
    },
    /// Every buffer id is taken.
    #[error("the session has no free buffer id (limit {limit}); free a buffer first")]
    TooManyBuffers {
        /// The number of ids that a session has.
        limit: usize,
    },
    /// The request ring is full.
    #[error("too many requests in flight; read a response before sending the next request")]
    QueueFull,
    /// The device did not answer in time.
    #[error("the device did not answer within {} ms; it may hang: reset it and try again", .0.as_millis())]
    Timeout(Duration),
    /// The session ended.
    #[error("the device session ended unexpectedly ({reason}); reset the device and try again")]
    Lost {
        /// Why it ended, as far as it is known.
        reason: String,
    },
    /// Responses do not match requests.
    #[error("response {found} arrived for request {expected}: the session is out of step; reset the device")]
    OutOfOrder {
        /// The request whose response was expected.
        expected: Seq,
        /// The request that the response names.
        found: Seq,
    },
    /// The device refused or failed a request.
    #[error("{}: {}{}", what(*.request, *.status), why(.reason.as_deref(), .fault), hint(.fault))]
    Fault {
        /// The request.
        request: MessageKind,
        /// Refused before it ran, or failed while running.
        status: Status,
        /// Op, code and detail.
        fault: Fault,
        /// The fault in words, where it is known which op of which program it concerns.
        reason: Option<String>,
    },
}

/// What has become of a request.
fn what(request: MessageKind, status: Status) -> String {
    match status {
        Status::Refused => format!("the device refused {request}"),
        Status::Ok | Status::Failed => format!("{request} failed on the device"),
        Status::Fatal => format!("{request} failed on the device and ended its session"),
    }
}

/// The words for a fault, or the fault as it stands.
fn why(reason: Option<&str>, fault: &Fault) -> String {
    reason.map_or_else(|| fault.to_string(), str::to_owned)
}

impl DeviceError {
    /// The device refused or failed a request.
    pub(crate) fn fault(request: MessageKind, status: Status, fault: Fault) -> Self {
        Self::Fault { request, status, fault, reason: None }
    }

    /// The same error; if it is a fault, then with the words that `explain` finds for it.
    #[must_use]
    pub(crate) fn explained(self, explain: impl FnOnce(&Fault) -> Option<String>) -> Self {
        match self {
            Self::Fault { request, status, fault, reason } => {
                let reason = reason.or_else(|| explain(&fault));
                Self::Fault { request, status, fault, reason }
            }
            other => other,
        }
    }

    /// Why `bytes` bytes of weights are not in a device's memory: what their source says, or there is no
    /// room.
    pub(crate) fn of_weights(bytes: u64, source: std::io::Error) -> Self {
        if source.get_ref().is_some() { Self::Weights(source) } else { Self::Memory { bytes, source } }
    }

    /// Whether the device itself failed, so that starting it again may help. A request that it refuses would
    /// be refused again.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Fault { status, .. } => *status == Status::Fatal,
            Self::Timeout(_) | Self::Lost { .. } | Self::OutOfOrder { .. } => true,
            #[cfg(unix)]
            Self::Htp(_) => true,
            _ => false,
        }
    }

    /// Whether the device is absent on this machine, which is not a failure.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            #[cfg(unix)]
            Self::NoHardware(_) => true,
            _ => false,
        }
    }
}

/// What a user can do about a fault, where there is something.
fn hint(fault: &Fault) -> String {
    let text = match fault.code {
        ErrorCode::AbiVersion | ErrorCode::LayoutHash => {
            return format!(
                "; this host speaks ABI version {} (layout {:08x}): install host and DSP library of the \
                 same release",
                hexflash_abi::ABI_VERSION,
                hexflash_abi::LAYOUT_HASH as u32,
            );
        }
        ErrorCode::VtcmTooSmall => return format!("; raise {} or lower {}", Setting::Vtcm, Setting::Threads),
        ErrorCode::ProgramTooLarge => {
            return format!("; lower {}, or raise the device's program arena", Setting::Batch);
        }
        ErrorCode::DmaError | ErrorCode::DmaTimeout => {
            return format!(
                "; reset the device and try again, on htp with DMA by threads{}, and please report it",
                Setting::Dma.in_parentheses()
            );
        }
        ErrorCode::MapFailed => {
            return format!(
                "; use a smaller model or context{}, split it over sessions{}, or close other programs that \
                 use the device",
                Setting::Context.in_parentheses(),
                Setting::Sessions.in_parentheses()
            );
        }
        ErrorCode::NoMatrixUnit => {
            return format!(
                "; the device lends none, or it failed its test (`hexflash devices --hmx`): do without it{}",
                Setting::MatrixUnit.in_parentheses()
            );
        }
        ErrorCode::BadRowIndex => "; a token id is outside the model's vocabulary",
        _ => "",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_in_words() {
        let fault = Fault::new(ErrorCode::BadRowIndex, 99999).at(412);
        let error = |status| DeviceError::fault(MessageKind::Exec, status, fault);
        assert_eq!(
            error(Status::Failed).to_string(),
            "Exec failed on the device: op 412: row index out of range (row 99999); \
             a token id is outside the model's vocabulary"
        );
        let explained = error(Status::Refused).explained(|fault| Some(format!("op {} GET_ROWS", fault.op)));
        assert_eq!(
            explained.to_string(),
            "the device refused Exec: op 412 GET_ROWS; a token id is outside the model's vocabulary"
        );
        // The first explanation stays: it comes from where more is known.
        let again = explained.explained(|_| Some("another op".to_owned()));
        assert!(again.to_string().contains("op 412 GET_ROWS"), "{again}");
        let silent = DeviceError::QueueFull.explained(|_| Some("no fault".to_owned()));
        assert_eq!(silent.to_string(), DeviceError::QueueFull.to_string());
    }
}

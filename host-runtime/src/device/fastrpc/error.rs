//! Errors of a device behind FastRPC: the call, its code in words, and a remedy for users.

use std::borrow::Cow;
use std::path::PathBuf;

use super::aee::AeeCode;
use super::forms::Refusal;
use crate::setting::Setting;

/// Calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Asking for the DSP's version.
    Arch,
    /// Asking for the session's domain.
    EffectiveDomain,
    /// Reserving a session.
    ReserveSession,
    /// Asking for a process that runs unsigned libraries.
    UnsignedModule,
    /// Registering for the end of the process.
    Notifications,
    /// Loading the library on the DSP.
    Open,
    /// Asking the library what it is.
    Info,
    /// Executing a form of float instruction.
    Form,
    /// Starting the session.
    Start,
    /// Creating the queue.
    QueueCreate,
    /// Giving the queue a name for the DSP.
    QueueExport,
    /// Sending a message.
    QueueWrite,
    /// Receiving a message.
    QueueRead,
    /// Sending a message by a call, whose response it gives.
    Run,
    /// Allocating shared memory.
    Allocate,
    /// Asking for the file descriptor of shared memory.
    ToFd,
    /// Mapping shared memory on the DSP.
    Map,
}

impl Call {
    /// The function, as the vendor's documents have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arch => "remote_handle_control(GET_DSP_INFO)",
            Self::EffectiveDomain => "remote_session_control(GET_EFFECTIVE_DOMAIN_ID)",
            Self::ReserveSession => "remote_session_control(RESERVE_NEW_SESSION)",
            Self::UnsignedModule => "remote_session_control(UNSIGNED_MODULE)",
            Self::Notifications => "remote_session_control(REGISTER_STATUS_NOTIFICATIONS)",
            Self::Open => "remote_handle64_open",
            Self::Info => "remote_handle64_invoke(info)",
            Self::Form => "remote_handle64_invoke(form)",
            Self::Start => "remote_handle64_invoke(start)",
            Self::QueueCreate => "dspqueue_create",
            Self::QueueExport => "dspqueue_export",
            Self::QueueWrite => "dspqueue_write",
            Self::QueueRead => "dspqueue_read",
            Self::Run => "remote_handle64_invoke(run)",
            Self::Allocate => "rpcmem_alloc",
            Self::ToFd => "rpcmem_to_fd",
            Self::Map => "fastrpc_mmap",
        }
    }

    /// Purpose of the call, as the beginning of a message that it failed.
    const fn purpose(self) -> &'static str {
        match self {
            Self::Arch => "cannot find out which Hexagon this machine has",
            Self::EffectiveDomain | Self::ReserveSession => "cannot get a session on the DSP",
            Self::UnsignedModule => "the DSP does not let unsigned libraries run",
            Self::Notifications => "cannot watch the process on the DSP",
            Self::Open => "cannot load hexflash's library on the DSP",
            Self::Info => "the library on the DSP does not answer",
            Self::Form => "the DSP does not execute an instruction",
            Self::Start => "the session on the DSP does not start",
            Self::QueueCreate | Self::QueueExport => "cannot make the message queue",
            Self::QueueWrite => "cannot send to the DSP",
            Self::QueueRead => "cannot receive from the DSP",
            Self::Run => "cannot exchange a message with the DSP",
            Self::Allocate | Self::ToFd => "cannot get shared memory",
            Self::Map => "cannot map memory on the DSP",
        }
    }

    /// Remedy for users.
    fn remedy(self, code: AeeCode) -> Cow<'static, str> {
        let text = match (self, code.base()) {
            (Self::Open, AeeCode::UNABLE_TO_LOAD) => {
                "see that the library for this architecture lies in a folder that DSP_LIBRARY_PATH names, \
                 that it is of this release, and that the system lets unsigned libraries run"
            }
            (Self::Open, AeeCode::CONNECTION_REFUSED) => {
                "see that this user may use the DSP (on Android: adb shell; on Linux: the group of \
                 /dev/fastrpc-cdsp), and keep /vendor/lib64 out of LD_LIBRARY_PATH"
            }
            (Self::ReserveSession, _) => "close other programs that use the DSP, or use fewer sessions",
            (Self::UnsignedModule, _) => {
                "this chip or firmware wants signed libraries: use a device that allows unsigned ones, or \
                 sign the library"
            }
            (Self::Start, AeeCode::ITEM_BUSY) => {
                return format!("another program holds VTCM: close it, or lower {}", Setting::Vtcm).into();
            }
            (Self::Start | Self::Form, AeeCode::BUSY) => {
                return format!(
                    "another program holds the vector units: close it, or lower {}",
                    Setting::Threads
                )
                .into();
            }
            (Self::Start | Self::Info, _) => {
                return format!(
                    "lower {} or {}; if it stays so, restart the device",
                    Setting::Threads,
                    Setting::Vtcm
                )
                .into();
            }
            (Self::Allocate | Self::ToFd | Self::Map, _) => {
                return format!(
                    "use a smaller model or context{}, split it over sessions{}, or close other programs that \
                     use the DSP",
                    Setting::Context.in_parentheses(),
                    Setting::Sessions.in_parentheses()
                )
                .into();
            }
            (Self::QueueWrite | Self::QueueRead | Self::Run, _) => "reset the device and try again",
            (_, AeeCode::UNSUPPORTED) => "update the system: its DSP firmware is older than hexflash needs",
            _ => "see that no other program has all sessions of the DSP, and try again",
        };
        text.into()
    }
}

/// Remedy for users where the vendor's library cannot be opened, by what the system's loader says.
fn remedy_without_library(why: &str) -> &'static str {
    // Android's loader: the library is there, and not for this program.
    if why.contains("not accessible for the namespace") {
        "name it with uses-native-library in the app's manifest, or run the program over adb or in Termux"
    } else {
        "run on a Snapdragon device"
    }
}

/// A device behind FastRPC cannot be used, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HtpError {
    /// The vendor's library is not there.
    #[error(
        "{} {why}; {}, or name the library{}",
        library.display(),
        remedy_without_library(why),
        Setting::VendorLibrary.with()
    )]
    NoLibrary {
        /// The library.
        library: PathBuf,
        /// Why it cannot be opened.
        why: String,
    },
    /// The vendor's library lacks a function.
    #[error(
        "{} has no function {symbol}; it is too old for hexflash: update the system, or name another{}",
        library.display(),
        Setting::VendorLibrary.with()
    )]
    NoSymbol {
        /// The library.
        library: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// A call failed.
    #[error("{}: {} gave {code}; {}", call.purpose(), call.name(), call.remedy(*code))]
    Call {
        /// The call.
        call: Call,
        /// The code that the call gave.
        code: AeeCode,
    },
    /// The DSP does not execute what the library on it consists of.
    #[error("{0}; please report it, with the output of: hexflash doctor --report FILE")]
    Refused(Refusal),
    /// The DSP does not execute what the library on it consists of, and the one without cannot be used.
    #[error("{refusal}; the library without group {} does not start either: {error}", refusal.group())]
    NoPlain {
        /// Form that the DSP does not execute.
        refusal: Refusal,
        /// Reason why the other library does not start.
        error: Box<HtpError>,
    },
    /// The system gives no thread.
    #[error(
        "no thread for the device's calls ({error}); end other programs, or raise the limit of processes"
    )]
    NoThread {
        /// Reason that the system gives.
        error: String,
    },
    /// The library on the DSP does not come up.
    #[error(
        "remote_handle64_open has not come back for {seconds} s: the DSP's system does not load hexflash's \
         library; restart the device, and see that its firmware and vendor libraries are of one release"
    )]
    OpenHangs {
        /// Time that it was waited for.
        seconds: u64,
    },
    /// The DSP is older than any that hexflash runs on.
    #[error("this machine's Hexagon is v{found:x}; hexflash needs v68 or newer (Snapdragon 888 and later)")]
    TooOld {
        /// Architecture of the DSP, such as 0x66.
        found: u32,
    },
    /// The library on the DSP is of another build.
    #[error(
        "the library on the DSP speaks ABI version {version} (layout {layout:08x}), this host {} ({:08x}); \
         install host and DSP library of the same release",
        hexflash_abi::ABI_VERSION,
        hexflash_abi::LAYOUT_HASH as u32
    )]
    OtherBuild {
        /// ABI version of the library on the DSP.
        version: u32,
        /// Low word of the layout hash of the library on the DSP.
        layout: u32,
    },
    /// The library on the DSP is for a newer architecture than the DSP's.
    #[error(
        "the library on the DSP is built for v{library:x}, and this machine's Hexagon is v{found:x}; \
         install the library for it"
    )]
    OtherArch {
        /// Architecture that the library is built for, such as 0x75.
        library: u32,
        /// Architecture of the machine's DSP, such as 0x73.
        found: u32,
    },
}

impl HtpError {
    pub(crate) fn call(call: Call, code: i32) -> Self {
        Self::Call { call, code: AeeCode(code) }
    }

    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        Self::NoThread { error: error.to_string() }
    }

    /// Whether the error says that there is not as much VTCM.
    pub(crate) fn is_of_vtcm(&self) -> bool {
        matches!(self, Self::Call { call: Call::Start, code } if code.base() == AeeCode::ITEM_BUSY)
    }

    /// Whether the error says that there is no queue, on either side, so that another way may do.
    pub(crate) fn is_of_queue(&self) -> bool {
        match self {
            Self::Call { call: Call::QueueCreate | Call::QueueExport, .. } => true,
            Self::Call { call: Call::Start, code } => code.base() == AeeCode::NO_SUCH_MAP,
            _ => false,
        }
    }
}

/// Turns what a call gave into a result.
pub(crate) fn check(call: Call, code: i32) -> Result<(), HtpError> {
    if code == 0 { Ok(()) } else { Err(HtpError::call(call, code)) }
}

//! The library that FastRPC loads: its entry, the state behind the handle, and the end after a panic.
//!
//! One session per process: a process on the DSP belongs to one host process, and has one VTCM.

mod machine;
mod qurt;
mod session;

use hexflash_abi::{ABI_VERSION, LAYOUT_HASH};
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::pool::MAX_WORKERS;

use crate::rpc::{self, AeeError, Info, Interface, RemoteArg, Start};
use qurt::Profile;
use session::Running;

/// VTCM is granted in pages of this size.
const VTCM_UNIT: u32 = 4096;

/// The only handle that `open` gives. Not zero: nobody has it by accident.
const HANDLE: u64 = u64::from_le_bytes(*b"hexflash");

/// What the process has open.
struct Skel {
    open: bool,
    running: Option<Running>,
}

static SKEL: spin::Mutex<Skel> = spin::Mutex::new(Skel { open: false, running: None });

impl Skel {
    fn check(&self, handle: u64) -> Result<(), AeeError> {
        if self.open && handle == HANDLE { Ok(()) } else { Err(AeeError::BAD_PARAMETER) }
    }
}

impl Interface for Skel {
    fn open(&mut self, _uri: &[u8]) -> Result<u64, AeeError> {
        if core::mem::replace(&mut self.open, true) { Err(AeeError::ALREADY) } else { Ok(HANDLE) }
    }

    fn close(&mut self, handle: u64) -> Result<(), AeeError> {
        self.check(handle)?;
        if let Some(running) = self.running.take() {
            running.stop();
        }
        self.open = false;
        Ok(())
    }

    fn start(&mut self, handle: u64, start: &Start) -> Result<(), AeeError> {
        self.check(handle)?;
        if self.running.is_some() {
            return Err(AeeError::ALREADY);
        }
        let profile = Profile::parse(start.power).ok_or(AeeError::BAD_PARAMETER)?;
        let (dma, streams) = match start.dma {
            0 => (DmaMode::Engine, false),
            1 => (DmaMode::AtOnce, false),
            2 => (DmaMode::Engine, true),
            _ => return Err(AeeError::BAD_PARAMETER),
        };
        let sound = (1..=MAX_WORKERS as u32).contains(&start.threads)
            && start.vtcm_bytes > 0
            && start.vtcm_bytes.is_multiple_of(VTCM_UNIT)
            && start.matrix_unit <= 1
            && start.reserved == 0;
        if !sound {
            return Err(AeeError::BAD_PARAMETER);
        }
        self.running = Some(Running::start(start, profile, dma, streams)?);
        Ok(())
    }

    fn stop(&mut self, handle: u64) -> Result<(), AeeError> {
        self.check(handle)?;
        self.running.take().ok_or(AeeError::BAD_STATE)?.stop();
        Ok(())
    }

    fn info(&mut self) -> Info {
        Info {
            abi_version: ABI_VERSION,
            arch: machine::arch().into(),
            layout_hash: LAYOUT_HASH,
            power: self.running.as_ref().map_or(0, Running::power),
            matrix_unit: self.running.as_ref().map_or(0, Running::matrix_unit),
        }
    }
}

/// What FastRPC calls.
///
/// # Safety
/// Points 1 and 2 of [`rpc::invoke`], which FastRPC keeps: as many arguments as `sc` says, each valid for its
/// length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_skel_handle_invoke(handle: u64, sc: u32, args: *mut RemoteArg) -> i32 {
    // SAFETY: `args` points to as many arguments as `sc` says, each valid for its length (the caller's
    // contract, which is points 1 and 2 of `invoke`).
    match unsafe { rpc::invoke(&mut *SKEL.lock(), handle, sc, args) } {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

/// Nothing unwinds on the DSP: the process ends, and the host learns that the session is lost.
#[cfg(target_arch = "hexagon")]
#[unsafe(no_mangle)]
fn hexflash_skel_panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: the call takes nothing, ends the process and does not return.
    unsafe { qurt::abort() }
}

//! The library that FastRPC loads: its entry, the state behind the handle, and the panic handler.
//!
//! One session per process: a process on the DSP belongs to one host process, and has one VTCM.

mod qurt;
mod session;

use hexflash_abi::{ABI_VERSION, LAYOUT_HASH};
use hexflash_dsp::pool::MAX_WORKERS;

use crate::ARCH;
use crate::rpc::{self, AeeError, Info, Interface, RemoteArg, Start};
use session::Running;

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
        if !(1..=MAX_WORKERS as u32).contains(&start.threads) {
            return Err(AeeError::BAD_PARAMETER);
        }
        self.running = Some(Running::start(start)?);
        Ok(())
    }

    fn stop(&mut self, handle: u64) -> Result<(), AeeError> {
        self.check(handle)?;
        self.running.take().ok_or(AeeError::BAD_STATE)?.stop();
        Ok(())
    }

    fn info(&mut self) -> Info {
        Info { abi_version: ABI_VERSION, arch: ARCH, layout_hash: LAYOUT_HASH }
    }
}

/// What FastRPC calls.
///
/// # Safety
/// FastRPC passes as many valid arguments as `sc` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexflash_skel_handle_invoke(handle: u64, sc: u32, args: *mut RemoteArg) -> i32 {
    // SAFETY: the caller's promise is (1) and (2) of `invoke`.
    match unsafe { rpc::invoke(&mut *SKEL.lock(), handle, sc, args) } {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

/// Nothing unwinds on the DSP: the process ends, and the host learns that the session is lost.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { qurt::abort() }
}

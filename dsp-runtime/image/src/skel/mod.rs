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
use qurt::{Power, Profile, VectorUnit};
use session::Running;

/// VTCM is granted in pages of this size.
const VTCM_UNIT: u32 = 4096;

/// The only handle that `open` gives. Not zero: nobody has it by accident.
const HANDLE: u64 = u64::from_le_bytes(*b"hexflash");

/// What the process has open.
struct Skel {
    open: bool,
    running: Option<Running>,
    /// Code that the last `start` gave; 0 before the first.
    started: i32,
    /// Votes while forms are executed one by one: until a session starts, which has its own.
    power: Option<Power>,
}

static SKEL: spin::Mutex<Skel> =
    spin::Mutex::new(Skel { open: false, running: None, started: 0, power: None });

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
        self.power = None;
        self.open = false;
        Ok(())
    }

    fn start(&mut self, handle: u64, start: &Start) -> Result<(), AeeError> {
        self.check(handle)?;
        self.power = None;
        let outcome = self.run_session(start);
        self.started = outcome.map_or_else(AeeError::code, |()| 0);
        outcome
    }

    fn stop(&mut self, handle: u64) -> Result<(), AeeError> {
        self.check(handle)?;
        self.running.take().ok_or(AeeError::BAD_STATE)?.stop();
        Ok(())
    }

    fn run(&mut self, handle: u64, request: &[u8], response: &mut [u8]) -> Result<(), AeeError> {
        self.check(handle)?;
        self.running.as_ref().ok_or(AeeError::BAD_STATE)?;
        let written = qurt::exchange(request, response)?;
        if written == response.len() { Ok(()) } else { Err(AeeError::BAD_PARAMETER) }
    }

    fn form(&mut self, handle: u64, operands: &[u8], given: &mut [u8]) -> Result<(), AeeError> {
        self.check(handle)?;
        if self.running.is_none() && self.power.is_none() {
            let mut power = Power::new(Profile::Burst, false);
            // Without a matrix unit no vote is needed: what is refused makes it slower.
            let _ = power.raise();
            self.power = Some(power);
        }
        let _unit = VectorUnit::lock().ok_or(AeeError::BUSY)?;
        machine::execute(operands, given)
    }

    fn info(&mut self) -> Info {
        Info {
            abi_version: ABI_VERSION,
            arch: machine::arch().into(),
            layout_hash: LAYOUT_HASH,
            power: self.running.as_ref().map_or(0, Running::power),
            matrix_unit: self.running.as_ref().map_or(0, Running::matrix_unit),
            serving: self.running.is_some().into(),
            started: self.started,
            forms: machine::FORMS,
            reserved: 0,
        }
    }
}

impl Skel {
    fn run_session(&mut self, start: &Start) -> Result<(), AeeError> {
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
            && [Start::QUEUE, Start::CALLS].contains(&start.transport);
        if !sound {
            return Err(AeeError::BAD_PARAMETER);
        }
        self.running = Some(Running::start(start, profile, dma, streams)?);
        Ok(())
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
fn hexflash_skel_panic(info: &core::panic::PanicInfo<'_>) -> ! {
    qurt::log_error(format_args!("{info}"));
    // SAFETY: the call takes nothing, ends the process and does not return.
    unsafe { qurt::abort() }
}

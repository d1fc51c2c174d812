//! The other way to play the DSP (`dsp=qemu`): Hexagon code under emulation serves the queue.
//!
//! The emulator knows no QuRT, so the image has no skel: the methods are played here, and messages are
//! carried between the `dspqueue` and the image's own queue as they are, but for the descriptors of memory.
//! Both sides see the same memory: caches are not played.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use hexflash::device::qemu::{Qemu, Settings};
use hexflash::device::{Device, DeviceError, DeviceOptions};
use hexflash::testing::Target;
use hexflash_abi::message::{Map, Message, Request, Response};
use hexflash_abi::{ABI_VERSION, BufferId, Fd, LAYOUT_HASH};
use hexflash_fastrpc::aee;
use hexflash_fastrpc::queue::{MAX_BUFFERS, MAX_MESSAGE, Packet};
use hexflash_image::rpc::{AeeError, Info, Interface, Start};
use zerocopy::{FromBytes, IntoBytes};

use crate::queue::{self, Announced};
use crate::state::HOST;
use crate::views;

const HANDLE: u64 = u64::from_le_bytes(*b"emulated");
/// Longest wait for a message before a look at whether to stop.
const LOOK_US: u32 = 50_000;
/// For an answer. A host loses its patience before.
const PATIENCE: Duration = Duration::from_secs(3600);
/// A descriptor that no process has.
const NOBODYS: Fd = Fd(i32::MAX);

/// What the process has open.
pub(crate) struct Emulated {
    open: bool,
    running: Option<Running>,
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The only one.
pub(crate) fn library() -> MutexGuard<'static, Emulated> {
    static ONLY: Mutex<Emulated> = Mutex::new(Emulated { open: false, running: None });
    ONLY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulated {
    fn check(&self, handle: u64) -> Result<(), AeeError> {
        if self.open && handle == HANDLE { Ok(()) } else { Err(AeeError::BAD_PARAMETER) }
    }
}

impl Interface for Emulated {
    fn open(&mut self, _uri: &[u8]) -> Result<u64, AeeError> {
        if std::mem::replace(&mut self.open, true) { Err(AeeError::ALREADY) } else { Ok(HANDLE) }
    }

    fn close(&mut self, handle: u64) -> Result<(), AeeError> {
        self.check(handle)?;
        if self.running.is_some() {
            self.stop(handle)?;
        }
        self.open = false;
        Ok(())
    }

    fn start(&mut self, handle: u64, start: &Start) -> Result<(), AeeError> {
        self.check(handle)?;
        if self.running.is_some() {
            return Err(AeeError::ALREADY);
        }
        // Who does DMA is not asked: the emulator has no engines.
        let (threads, vtcm_bytes) = (Some(start.threads as usize), Some(start.vtcm_bytes as usize));
        let options = DeviceOptions { threads, vtcm_bytes, ..DeviceOptions::default() };
        let settings = Settings::from_options(&options).map_err(|_| AeeError::BAD_PARAMETER)?;
        let queue = queue::import(start.queue).map_err(|_| AeeError::NO_SUCH_MAP)?;
        let device = Qemu::with_settings(settings).map_err(|error| {
            eprintln!("hexflash-pd: {error}");
            queue.close();
            AeeError::FAILED
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            serve(&told, &queue, device);
            queue.close();
        });
        self.running = Some(Running { stop, thread });
        Ok(())
    }

    fn stop(&mut self, handle: u64) -> Result<(), AeeError> {
        self.check(handle)?;
        let Running { stop, thread } = self.running.take().ok_or(AeeError::BAD_STATE)?;
        stop.store(true, Ordering::SeqCst);
        thread.join().map_err(|_| AeeError::FAILED)
    }

    fn info(&mut self) -> Info {
        let (abi_version, layout_hash) = (ABI_VERSION, LAYOUT_HASH);
        Info { abi_version, arch: 0x67, layout_hash, power: 0, reserved: 0 }
    }
}

/// The image, and this process's descriptors of the host's memory. They stay open while it is mapped: the
/// image takes memory with the same descriptor for the same.
struct Carrier {
    device: Qemu,
    files: HashMap<BufferId, File>,
}

/// Carries messages until told to stop.
fn serve(stop: &AtomicBool, queue: &Announced, device: Qemu) {
    let mut carrier = Carrier { device, files: HashMap::new() };
    while !stop.load(Ordering::SeqCst) {
        let packet = match queue.receive(MAX_BUFFERS, MAX_MESSAGE, LOOK_US) {
            Ok(packet) => packet,
            Err(code) if code == aee::on_dsp(aee::EXPIRED) => continue,
            Err(_) => return,
        };
        match carrier.carry(&packet.message) {
            Ok(response) => {
                let packet = Packet { message: response.as_bytes().to_vec(), ..Packet::default() };
                // The host may leave answers unread, and the ring full.
                while let Err(code) = queue.send(&packet, LOOK_US) {
                    if code != aee::on_dsp(aee::EXPIRED) || stop.load(Ordering::SeqCst) {
                        return;
                    }
                }
            }
            Err(error) => {
                eprintln!("hexflash-pd: {error}");
                queue::end_process();
            }
        }
    }
}

impl Carrier {
    /// Gives a message to the image, and waits for its answer.
    fn carry(&mut self, message: &[u8]) -> Result<Response, DeviceError> {
        let request = Request::read_from_bytes(message).ok();
        let decoded =
            request.as_ref().and_then(|request| Some((request.seq, Message::decode(request).ok()?)));
        match decoded {
            Some((seq, Message::Map(map))) => {
                let file = host_file(map.fd, map.size);
                let fd = file.as_ref().map_or(NOBODYS, |file| Fd(file.as_raw_fd()));
                let response = self.forward(Message::Map(Map { fd, ..map }).encode(seq).as_bytes())?;
                if let (Ok(()), Some(file)) = (response.outcome(), file) {
                    self.files.insert(map.buffer, file);
                }
                Ok(response)
            }
            Some((_, Message::Unmap(unmap))) => {
                let response = self.forward(message)?;
                if response.outcome().is_ok() {
                    self.files.remove(&unmap.buffer);
                }
                Ok(response)
            }
            _ => self.forward(message),
        }
    }

    fn forward(&mut self, message: &[u8]) -> Result<Response, DeviceError> {
        self.device.submit_bytes(message)?;
        self.device.wait(PATIENCE)
    }
}

/// Memory of the host that it lets the DSP map.
fn host_file(fd: Fd, bytes: u64) -> Option<File> {
    let path = format!("/proc/{}/fd/{}", *HOST, fd.0);
    File::options().read(true).write(true).open(path).ok().filter(|_| views::is_announced(fd.0, bytes))
}

//! Where plans run: sessions of a device, each with a buffer for operands and one for the program.
//!
//! Besides ggml's limits a result must have the bits that `inproc` gives with one thread, the portable
//! vectors (in long cases AVX2, where the processor has AVX-512) and DMA that executes at once. Every device
//! does IEEE single precision in the same order: a difference is a bug. Code with HVX float rounds in its own
//! way: that of v68 to v75 as `inproc` does with qf32 arithmetic in software. From v79 on ggml's limits
//! decide, and settings must agree with each other.

use std::fmt;
use std::ops::{Range as Span, RangeInclusive};
use std::time::Duration;

#[cfg(target_os = "linux")]
use hexflash::device::qemu;
use hexflash::device::{Arch, Buffer, Device, DeviceError, Float, inproc, open};
use hexflash::device::{DeviceInfo, DeviceOptions};
use hexflash::record::Homes;
use hexflash_abi::message::{Message, Range, Run};
use hexflash_abi::registers::{Register, StepRegisters};
use hexflash_abi::validate::BufferInfo;
use hexflash_dsp::dma::DmaMode;
use hexflash_dsp::hvx::Isa;
use zerocopy::IntoBytes;

use super::plan::OpProgram;

/// How long a program may take: much longer than any does, also under emulation on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Larger operand buffers are given back after a run: every session of a lab has its own.
const KEPT: usize = 4 << 20;
/// Bytes that a process on a DSP of v73 can map in one piece.
const MAPPING: usize = 2 << 30;
/// Why a plan is not run there.
pub const TOO_LARGE: &str = "its operands take more than 2 GiB in one piece, which a DSP does not map";
/// Operations of a case above which its bits are those of faster vectors. With the portable ones long cases
/// take half of the time of all of FLASH_ATTN_EXT, and their kernels are those of shorter cases.
const LONG: u64 = 1 << 24;
/// Kernel threads that results must not depend on.
const THREADS: Span<usize> = 1..9;

/// When the software DMA engine executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dma {
    /// When a transfer is pushed
    AtOnce,
    /// When it is waited for
    AtWait,
    /// When any is waited for: all of them, newest first
    OutOfOrder,
}

impl From<Dma> for DmaMode {
    fn from(dma: Dma) -> Self {
        match dma {
            Dma::AtOnce => Self::AtOnce,
            Dma::AtWait => Self::AtWait,
            Dma::OutOfOrder => Self::OutOfOrder,
        }
    }
}

/// What results must not depend on; `None` for the device's own choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Kernel threads.
    pub threads: Option<usize>,
    /// When DMA executes.
    pub dma: Option<Dma>,
}

impl Setting {
    /// All of 1 to 8 threads with all ways of DMA, in an order in which neighbours differ in both.
    pub fn all() -> Vec<Self> {
        let dma = [Dma::AtOnce, Dma::AtWait, Dma::OutOfOrder];
        let of =
            |turn: usize| THREADS.map(move |n| Self { threads: Some(n), dma: Some(dma[(n + turn) % 3]) });
        (0..3).flat_map(of).collect()
    }

    /// Each of these numbers of threads, with the device's own DMA.
    pub fn threads(threads: RangeInclusive<usize>) -> Vec<Self> {
        threads.map(|n| Self { threads: Some(n), dma: None }).collect()
    }

    fn open(self, place: &LabDevice) -> Result<Box<dyn Device>, DeviceError> {
        let name = place.device.as_str();
        let options = DeviceOptions { threads: self.threads, ..place.options.clone() };
        let Some(dma) = self.dma.map(DmaMode::from) else { return open(name, &options) };
        match name {
            "inproc" => {
                let settings = inproc::Settings::from_options(&options)?;
                Ok(Box::new(inproc::Inproc::with_settings(inproc::Settings { dma, ..settings })?))
            }
            #[cfg(target_os = "linux")]
            "qemu" => {
                let settings = qemu::Settings::from_options(&options)?;
                Ok(Box::new(qemu::Qemu::with_settings(qemu::Settings { dma, ..settings })?))
            }
            // Where DMA is real there is nothing to choose.
            _ => open(name, &options),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.threads {
            None => f.write_str("default threads")?,
            Some(1) => f.write_str("1 thread")?,
            Some(n) => write!(f, "{n} threads")?,
        }
        match self.dma {
            None => Ok(()),
            Some(Dma::AtOnce) => f.write_str(", DMA at once"),
            Some(Dma::AtWait) => f.write_str(", DMA at the wait"),
            Some(Dma::OutOfOrder) => f.write_str(", DMA out of order"),
        }
    }
}

/// Where a lab's sessions are opened.
#[derive(Clone, Debug)]
pub struct LabDevice {
    /// Name of the device.
    pub device: String,
    /// Its options, but for those that a [`Setting`] has.
    pub options: DeviceOptions,
}

impl LabDevice {
    /// Whether there may be one session at a time: a process has one on a DSP.
    fn is_exclusive(&self) -> bool {
        self.device == "htp"
    }

    /// The vectors with which `inproc` gives its bits; `None` where floats have bits that it does not know.
    fn isa_of_twin(&self) -> Result<Option<Isa>, DeviceError> {
        match (self.device.as_str(), self.options.float) {
            (_, Float::Qf32) => Ok(Some(Isa::Qf32)),
            #[cfg(target_os = "linux")]
            ("qemu", Float::Own) => Ok(match qemu::arch(qemu::Settings::from_options(&self.options)?)? {
                Arch::V67 => Some(Isa::Portable),
                Arch::V68 | Arch::V69 | Arch::V73 | Arch::V75 => Some(Isa::Qf32),
                Arch::V79 | Arch::V81 => None,
            }),
            _ => Ok(Some(Isa::Portable)),
        }
    }

    /// The matrix unit that kernels may use there.
    fn matrix_unit(&self) -> Result<MatrixUnit, DeviceError> {
        match self.device.as_str() {
            "inproc" => Ok(MatrixUnit::Twin),
            #[cfg(target_os = "linux")]
            "qemu" => Ok(match qemu::arch(qemu::Settings::from_options(&self.options)?)? {
                Arch::V67 | Arch::V68 | Arch::V69 => MatrixUnit::None,
                Arch::V73 => MatrixUnit::Other,
                Arch::V75 | Arch::V79 | Arch::V81 => MatrixUnit::Twin,
            }),
            _ => Ok(MatrixUnit::None),
        }
    }
}

/// What a device has of a matrix unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatrixUnit {
    /// Nothing.
    None,
    /// One that sums as that of `inproc`, whose bits it must give.
    Twin,
    /// One that sums in another order.
    Other,
}

/// A device with memory.
struct LabMemory {
    device: Box<dyn Device>,
    data: Option<Buffer>,
    control: Option<Buffer>,
}

/// A buffer of at least `bytes`, in place of a smaller one.
fn room(device: &mut dyn Device, slot: &mut Option<Buffer>, bytes: usize) -> Result<Buffer, DeviceError> {
    if let Some(buffer) = slot.take_if(|b| b.memory.len() < bytes) {
        device.free(buffer)?;
    }
    match slot {
        Some(buffer) => Ok(buffer.clone()),
        None => {
            // Room for the next case, where the buffer is kept for it: a DSP maps 2 GiB at most.
            let bytes = if bytes > KEPT { bytes } else { bytes.next_power_of_two().max(1 << 20) };
            let buffer = device.allocate(bytes as u64)?;
            Ok(slot.insert(buffer).clone())
        }
    }
}

impl LabMemory {
    fn new(device: Box<dyn Device>) -> Self {
        Self { device, data: None, control: None }
    }

    fn run(
        &mut self,
        plan: &OpProgram,
        registers: &StepRegisters,
    ) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let device = &mut *self.device;
        let data = room(device, &mut self.data, plan.image.len())?;
        let recorded = plan.record(data.id).finish()?;
        let info = |b: &Buffer| BufferInfo { size: b.memory.len() as u64, read_only: false };
        let homes = Homes { activations: data.id, kept_at: 0, handed: data.id };
        let block = recorded.block(0, &homes, |id| (id == data.id).then(|| info(&data)))?;
        let registers_at = block.len().next_multiple_of(64);
        let blocks = plan.blocks(registers);
        let bytes = size_of_val(&blocks[..]);
        let control = room(device, &mut self.control, registers_at + bytes)?;

        data.memory.write(0, &plan.image);
        control.memory.write(0, &block);
        control.memory.write(registers_at, blocks.as_bytes());
        let range =
            |len: usize, offset: usize| Range { buffer: control.id, len: len as u32, offset: offset as u64 };
        let registers = range(bytes, registers_at);
        let run = Run { block: range(block.len(), 0), registers };
        device.call(&Message::Run(run), TIMEOUT)?;
        let mut after = vec![0; plan.image.len()];
        data.memory.read(0, &mut after);
        if data.memory.len() > KEPT {
            drop(data);
            self.data.take().map_or(Ok(()), |buffer| device.free(buffer))?;
        }
        Ok(after)
    }
}

/// Sessions of one device in some settings.
pub struct Lab {
    place: LabDevice,
    info: DeviceInfo,
    sessions: Vec<(Setting, Option<LabMemory>)>,
    /// Those that run the present case.
    chosen: Span<usize>,
    each: bool,
    /// What gives the bits; `None` where the device rounds in its own way.
    twin: Option<LabMemory>,
    /// What gives the bits of long cases, if that is not `twin`.
    twin_of_long: Option<LabMemory>,
    /// Whether the present case is long.
    is_long: bool,
    matrix_unit: MatrixUnit,
    /// What gives the bits of programs for the matrix unit, where it sums as that of `inproc`.
    matrix_twin: Option<LabMemory>,
}

impl Lab {
    /// Opens a device. With several settings the cases take turns, or each runs in all of them if `each`.
    ///
    /// # Errors
    /// What the device says.
    pub fn open(place: LabDevice, settings: &[Setting], each: bool) -> Result<Self, DeviceError> {
        let usual =
            inproc::Settings::from_options(&DeviceOptions { threads: Some(1), ..DeviceOptions::default() })?;
        let inproc = |isa| {
            let settings = inproc::Settings { isa, dma: DmaMode::AtOnce, ..usual };
            Ok::<_, DeviceError>(LabMemory::new(Box::new(inproc::Inproc::with_settings(settings)?)))
        };
        let matrix_unit = place.matrix_unit()?;
        let has_twin = matrix_unit == MatrixUnit::Twin;
        let isa = place.isa_of_twin()?;
        let matrix_twin = has_twin.then(|| inproc(isa.unwrap_or(Isa::Portable))).transpose()?;
        let twin = isa.map(inproc).transpose()?;
        // The device `inproc` takes the best vectors: the next best are another back end, and may be faster
        // than the portable one.
        let next_best = Isa::available().collect::<Vec<_>>().into_iter().rev().nth(1);
        let is_faster = |other: &Isa| isa == Some(Isa::Portable) && *other != Isa::Portable;
        let twin_of_long = next_best.filter(is_faster).map(inproc).transpose()?;
        let first = settings[0].open(&place)?;
        let info = first.info().clone();
        let mut sessions: Vec<_> = settings.iter().map(|s| (*s, None)).collect();
        sessions[0].1 = Some(LabMemory::new(first));
        let chosen = 0..if each { sessions.len() } else { 1 };
        Ok(Self {
            place,
            info,
            sessions,
            chosen,
            each,
            twin,
            twin_of_long,
            is_long: false,
            matrix_unit,
            matrix_twin,
        })
    }

    /// The device, for messages.
    pub fn description(&self) -> String {
        let (info, n) = (&self.info, self.sessions.len());
        let settings = match (n, self.each) {
            (1, _) => format!("{} threads", info.threads),
            (_, false) => format!("{n} settings of threads and DMA in turn"),
            (_, true) => format!("each in {n} settings of threads and DMA"),
        };
        format!("{} ({}), {settings}", info.name, info.description)
    }

    /// Whether the device is an emulator.
    pub fn emulates(&self) -> bool {
        self.place.device == "qemu"
    }

    /// Whether kernels may use a matrix unit there.
    pub fn lends_matrix_unit(&self) -> bool {
        self.matrix_unit != MatrixUnit::None
    }

    /// Chooses the setting for a case by its seed, the same one whatever other cases are run, and the vectors
    /// that give the bits by its operations.
    pub fn turn(&mut self, seed: u64, operations: u64) {
        self.is_long = operations > LONG;
        if !self.each {
            let turn = (seed % self.sessions.len() as u64) as usize;
            self.chosen = turn..turn + 1;
        }
    }

    /// What gives the bits of a plan. Around the products of a matrix unit vectors only convert and scale,
    /// which has the same bits on every chip. What they compute between products rounds in their own way.
    fn twin_of(&mut self, plan: &OpProgram) -> Option<&mut LabMemory> {
        if !self.lends_matrix_unit() || !plan.is_for_matrix_unit() {
            let other = self.twin_of_long.as_mut().filter(|_| self.is_long);
            return other.or(self.twin.as_mut());
        }
        let rounds_alike = self.twin.is_some() || !plan.has_floats_beside_matrix_unit();
        self.matrix_twin.as_mut().filter(|_| rounds_alike)
    }

    /// Runs a plan's program in one `Run` message and returns the memory after it. What was not to be written
    /// is unchanged, the rest has the twin's bits, or where there is no twin the same bits in all settings.
    ///
    /// # Errors
    /// The program is refused or fails, writes where it must not, or gives other bits; in words.
    pub fn run(&mut self, plan: &OpProgram, registers: &StepRegisters) -> Result<Vec<u8>, String> {
        if self.place.is_exclusive() && plan.image.len() > MAPPING {
            return Err(TOO_LARGE.to_owned());
        }
        let n_tokens = plan.blocks(registers).iter().map(|block| block.get(Register::NTokens)).sum();
        let mut want = match self.twin_of(plan) {
            Some(twin) => Some(twin.run(plan, registers).map_err(|e| format!("inproc, 1 thread: {e}"))?),
            None => None,
        };
        for i in self.chosen.clone() {
            if self.place.is_exclusive() {
                self.sessions
                    .iter_mut()
                    .enumerate()
                    .filter(|(other, _)| *other != i)
                    .for_each(|(_, s)| s.1 = None);
            }
            let (setting, slot) = &mut self.sessions[i];
            let blame = |why: String| format!("{setting}: {why}");
            let session = match slot {
                Some(session) => session,
                None => {
                    slot.insert(LabMemory::new(setting.open(&self.place).map_err(|e| blame(e.to_string()))?))
                }
            };
            let after = session.run(plan, registers).map_err(|error| {
                // The device may be gone, and what it has mapped is not known.
                *slot = None;
                blame(error.to_string())
            })?;
            let want = want.get_or_insert_with(|| after.clone());
            if let Some(why) = plan.strayed(&after, n_tokens).or_else(|| plan.differs(want, &after)) {
                return Err(blame(why));
            }
        }
        want.ok_or_else(|| "no setting was chosen".to_owned())
    }
}

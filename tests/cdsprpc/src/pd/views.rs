//! What the DSP sees of the host's memory: a copy of its own, as if all of it lay in the caches, which is
//! brought up to date and written back only where the skel says so: who forgets that computes with old bytes,
//! or the host reads them. What one side loses by the other is reported: dropping lines loses what the DSP
//! wrote, or writing them back overwrites what the CPU wrote.
//!
//! To tell who wrote what, each view keeps the bytes as they were when both sides last agreed.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use hexflash_fastrpc::aee;
use hexflash_fastrpc::memory::{Mapped, nameless};
use rustix::mm::{MapFlags, ProtFlags};

use crate::guest;
use crate::state::{CONFIG, HOST, violation};

/// Bytes of a line of the DSP's second-level cache.
const LINE: usize = 128;
/// The DSP has 32 bits of addresses; the first and the last are left out.
const LOWEST: usize = 0x1000_0000;
const HIGHEST: usize = 0xf000_0000;
/// Where the DSP is emulated, its process has the same memory at the same addresses. The emulator takes some
/// for itself before.
const LOWEST_EMULATED: usize = 0x6000_0000;
/// Memory begins at multiples of this, which are pages of the emulated machine.
const PAGE: usize = hexflash_guest::wire::PAGE;

/// Most bytes that a process on the DSP can map, below v81.
const VMEM: u64 = 3_355_443_200;

struct View {
    fd: i32,
    /// What the CPU sees.
    memory: Mapped,
    base: usize,
    bytes: usize,
    /// `None` where both sides see the same memory: `check=0`.
    agreed: Option<Vec<u8>>,
}

#[derive(Default)]
struct Views {
    announced: Vec<(i32, usize)>,
    views: Vec<View>,
    /// Addresses in use, views and others.
    taken: Vec<Region>,
}

/// Memory that 32 bits can address.
struct Region {
    base: usize,
    bytes: usize,
    /// Whose memory it is: another process can map it, too.
    file: File,
}

static VIEWS: Mutex<Views> =
    Mutex::new(Views { announced: Vec::new(), views: Vec::new(), taken: Vec::new() });

fn views() -> std::sync::MutexGuard<'static, Views> {
    VIEWS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Views {
    /// Maps a file, or new memory, where there is room.
    fn low(&mut self, bytes: usize, access: ProtFlags, file: Option<File>) -> Option<usize> {
        let file = file.map_or_else(|| nameless(bytes), Ok).ok()?;
        let bytes = bytes.next_multiple_of(PAGE);
        self.taken.sort_unstable_by_key(|region| region.base);
        let mut at = if guest::is_on() { LOWEST_EMULATED } else { LOWEST };
        let mut gaps = Vec::new();
        for region in &self.taken {
            if region.base.saturating_sub(at) >= bytes {
                gaps.push(at);
            }
            at = at.max(region.base + region.bytes);
        }
        gaps.push(at);
        for at in gaps.into_iter().filter(|at| at + bytes <= HIGHEST) {
            let hint = std::ptr::without_provenance_mut::<c_void>(at);
            let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
            // SAFETY: a new mapping, at an address where there is none. The file is as long: files of host
            // memory, too, are multiples of `PAGE`.
            let mapped = unsafe { rustix::mm::mmap(hint, bytes, access, flags, &file, 0) };
            if let Ok(base) = mapped {
                self.taken.push(Region { base: base.expose_provenance(), bytes, file });
                return Some(at);
            }
        }
        None
    }

    fn free_low(&mut self, base: usize, bytes: usize) {
        self.taken.retain(|region| region.base != base);
        let at = std::ptr::with_exposed_provenance_mut(base);
        // SAFETY: mapped by `low`; who has the address uses it no more.
        let _ = unsafe { rustix::mm::munmap(at, bytes.next_multiple_of(PAGE)) };
    }
}

/// New memory that 32 bits can address.
pub(crate) fn low(bytes: usize, access: ProtFlags) -> Option<usize> {
    views().low(bytes, access, None)
}

/// Bytes and file of the memory that begins at an address.
pub(crate) fn file_at(base: usize) -> Option<(usize, RawFd)> {
    let views = views();
    let region = views.taken.iter().find(|region| region.base == base)?;
    Some((region.bytes, region.file.as_raw_fd()))
}

/// Whether so many bytes at an address are memory that [`low`] gave.
pub(crate) fn is_low(address: usize, bytes: usize) -> bool {
    let within = |region: &Region| region.base <= address && address + bytes <= region.base + region.bytes;
    views().taken.iter().any(within)
}

/// Frees it.
pub(crate) fn free_low(base: usize, bytes: usize) {
    views().free_low(base, bytes);
}

impl View {
    /// What the DSP sees, and what the CPU sees, of a line, for as long as the view is locked.
    fn line<'l>(&self, at: usize) -> (&'l mut [u8], &'l mut [u8]) {
        let bytes = LINE.min(self.bytes - at);
        // SAFETY: inside view and memory. No kernel runs and the host waits while lines are looked at; if the
        // host should write, the bytes are plain data.
        unsafe {
            let view = std::ptr::with_exposed_provenance_mut::<u8>(self.base + at);
            let memory = self.memory.base().as_ptr().add(at);
            (std::slice::from_raw_parts_mut(view, bytes), std::slice::from_raw_parts_mut(memory, bytes))
        }
    }

    fn clean(&mut self, start: usize, bytes: usize, flush: bool, invalidate: bool) {
        let Some(mut agreed) = self.agreed.take() else { return };
        self.clean_lines(&mut agreed, start, bytes, flush, invalidate);
        self.agreed = Some(agreed);
    }

    fn clean_lines(&self, all: &mut [u8], start: usize, bytes: usize, flush: bool, invalidate: bool) {
        let end = (start + bytes).next_multiple_of(LINE).min(self.bytes);
        let mut lines = start / LINE * LINE;
        while lines < end {
            let at = lines;
            lines += LINE;
            let (view, memory) = self.line(at);
            let agreed = &mut all[at..at + view.len()];
            let (by_dsp, by_cpu) = (*view != *agreed, *memory != *agreed);
            if by_dsp && flush {
                if by_cpu {
                    violation(&format!(
                        "fd {}: writing back the line at {at:#x} overwrites what the CPU wrote there",
                        self.fd
                    ));
                }
                memory.copy_from_slice(view);
            } else if by_dsp && invalidate {
                violation(&format!("fd {}: dropping the line at {at:#x} loses what the DSP wrote", self.fd));
            }
            if by_dsp && flush || invalidate {
                view.copy_from_slice(memory);
                agreed.copy_from_slice(view);
            }
        }
    }

    /// The first byte that the DSP wrote and that was not written back.
    fn dirty(&self) -> Option<usize> {
        let agreed = self.agreed.as_ref()?;
        let view = std::ptr::with_exposed_provenance::<u8>(self.base);
        // SAFETY: the view has `self.bytes` bytes, as `agreed` has, and no kernel runs while it is looked at.
        let bytes = unsafe { std::slice::from_raw_parts(view, self.bytes) };
        if bytes == agreed {
            return None;
        }
        bytes.iter().zip(agreed).position(|(a, b)| a != b)
    }
}

/// The host lets the DSP map memory.
pub(crate) fn announce(fd: i32, bytes: usize) {
    views().announced.push((fd, bytes));
}

/// It no longer does.
pub(crate) fn withdraw(fd: i32) -> i32 {
    let mut views = views();
    views.announced.retain(|&(other, _)| other != fd);
    if views.views.iter().any(|view| view.fd == fd) {
        drop(views);
        violation(&format!("fd {fd} was unmapped on the host while the DSP still had it mapped"));
        return aee::ITEM_BUSY;
    }
    0
}

/// Maps `bytes` of announced memory, all of it old news: nothing of it is in the caches.
pub(crate) fn map(fd: i32, bytes: usize) -> Option<*mut u8> {
    let mut views = views();
    let &(_, announced) = views.announced.iter().find(|&&(other, _)| other == fd)?;
    let mapped: usize = views.views.iter().map(|view| view.bytes).sum();
    let full = (mapped + bytes) as u64 > CONFIG.number("vmem").unwrap_or(VMEM);
    if full || bytes == 0 || bytes > announced || views.views.iter().any(|view| view.fd == fd) {
        return None;
    }
    let path = format!("/proc/{}/fd/{fd}", *HOST);
    let file = File::options().read(true).write(true).open(path).ok()?;
    let memory = Mapped::new(&file, bytes).ok()?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let same = CONFIG.number("check") == Some(0);
    let base = views.low(bytes, access, same.then_some(file))?;
    let view = std::ptr::with_exposed_provenance_mut::<u8>(base);
    let agreed = if same {
        None
    } else {
        // SAFETY: both have that many bytes; the view is new, and the host waits for the answer to its
        // message.
        unsafe {
            std::ptr::copy_nonoverlapping(memory.base().as_ptr(), view, bytes);
            Some(std::slice::from_raw_parts(view, bytes).to_vec())
        }
    };
    views.views.push(View { fd, memory, base, bytes, agreed });
    Some(view)
}

/// Ends a mapping.
pub(crate) fn unmap(base: usize, bytes: usize) -> i32 {
    let mut views = views();
    let Some(i) = views.views.iter().position(|view| view.base == base && view.bytes == bytes) else {
        drop(views);
        violation("memory was unmapped on the DSP that is not mapped");
        return aee::on_dsp(aee::NO_SUCH_MAP);
    };
    let view = views.views.swap_remove(i);
    views.free_low_after(&view);
    0
}

impl Views {
    fn free_low_after(&mut self, view: &View) {
        if let Some(at) = view.dirty() {
            violation(&format!(
                "fd {} was unmapped with bytes at {at:#x} that were not written back",
                view.fd
            ));
        }
        self.free_low(view.base, view.bytes);
    }
}

/// Whether so many bytes at an address are the host's memory, mapped here.
pub(crate) fn has(address: usize, bytes: usize) -> bool {
    views().views.iter().any(|view| view.base <= address && address + bytes <= view.base + view.bytes)
}

/// Cache maintenance by address.
pub(crate) fn clean(address: usize, bytes: usize, flush: bool, invalidate: bool) {
    let mut views = views();
    let inside = |view: &&mut View| view.base <= address && address + bytes <= view.base + view.bytes;
    match views.views.iter_mut().find(inside) {
        Some(view) => view.clean(address - view.base, bytes, flush, invalidate),
        None => {
            violation(&format!("cache maintenance of {bytes} bytes at {address:#x}, which are not mapped"))
        }
    }
}

/// Cache maintenance of all that is mapped.
pub(crate) fn clean_all(flush: bool, invalidate: bool) {
    for view in &mut views().views {
        view.clean(0, view.bytes, flush, invalidate);
    }
}

/// Nothing may be left at the end.
pub(crate) fn check_end() {
    let views = views();
    for view in &views.views {
        violation(&format!("fd {} is still mapped on the DSP at its end", view.fd));
    }
}

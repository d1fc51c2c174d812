//! A cache that is used where it lies: mapped, and kept as it is by a lease.
//!
//! A mapping costs no copy and no memory that the system cannot take back. But it shows every later change of
//! the file, and reading beyond the end of a file that has become shorter is a SIGBUS. A read lease
//! (fcntl(2), `F_SETLEASE`) prevents both. It is granted if no process has the file open for writing. From
//! then on, a process that wants to write to the file or to shorten it waits in the kernel until the lease is
//! given up. A thread checks whether one is waiting. It then copies the image into memory of this process,
//! puts the copy in the place of the mapping, under the same addresses and in one step, and gives up the
//! lease.
//!
//! The kernel lets the other process wait for `/proc/sys/fs/lease-break-time`, by default 45 seconds. The
//! copy takes well below a second per gigabyte that is in memory already. It is verified like every copy: if
//! the time was not enough, or there is no memory, the process ends with a line that says so.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use memmap2::{Mmap, MmapOptions};
use rustix::mm::MremapFlags;

use super::store::{FileStore, anonymous};

/// How often the thread checks whether another process wants to write, which may therefore wait this long.
const LOOK: Duration = Duration::from_millis(100);

/// File systems of this machine alone, by the numbers that statfs(2) gives: elsewhere, machines that know
/// nothing of the lease may write to a file. In this order: ext2 to ext4, XFS, Btrfs, F2FS, tmpfs, overlayfs.
const LOCAL: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// A file that cannot change as long as this value lives. A process that wants to write to it waits.
pub(super) struct Lease(File);

impl Lease {
    /// Takes a lease on a file that is open for reading. `None` if it is not granted: the file is open for
    /// writing, it belongs to another user, or its file system has no leases or is shared with other
    /// machines.
    pub(super) fn take(file: &File) -> Option<Self> {
        let kind = rustix::fs::fstatfs(file).ok()?.f_type as u64;
        let file = file.try_clone().ok().filter(|_| LOCAL.contains(&kind))?;
        // SAFETY: plain calls with a descriptor that `file` keeps open. The first has the kernel tell of a
        // break by a signal that is ignored by default, for that of leases ends processes.
        let granted = unsafe {
            libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) == 0
        };
        granted.then_some(Self(file))
    }

    /// Maps `bytes` bytes of the file from `at` on, a multiple of the size of a page.
    pub(super) fn map(&self, at: u64, bytes: usize) -> io::Result<Mmap> {
        // It may have become shorter before there was the lease.
        if self.0.metadata()?.len() < at + bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the file has these bytes, and keeps them while there is the lease; when it is given up, the
        // mapping has been replaced (see `Leased`).
        unsafe { MmapOptions::new().offset(at).len(bytes).map(&self.0) }
    }

    /// Whether another process waits for the lease to end.
    fn is_wanted(&self) -> bool {
        // SAFETY: a plain call with a descriptor that `self` keeps open.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) != libc::F_RDLCK }
    }
}

/// `F_SETSIG` of fcntl(2), the same on all of Linux; the `libc` crate has it for some systems only.
const F_SETSIG: libc::c_int = 10;

impl Drop for Lease {
    fn drop(&mut self) {
        // Other descriptors may keep the open file, and with it the lease.
        // SAFETY: a plain call with a descriptor that `self` keeps open.
        unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

/// A mapped image under a lease, with the thread that watches it.
pub(super) struct Leased {
    map: Mmap,
    stop: Option<Sender<()>>,
    guard: Option<JoinHandle<()>>,
}

impl Leased {
    /// Watches over `map`, the whole image in `file`, which is verified and has the lease.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn watch(lease: Lease, map: Mmap, file: FileStore) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let place = MappedRange { base: map.as_ptr() as usize, bytes: map.len() };
        let watch = move || {
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if lease.is_wanted() {
                    if let Err(why) = place.fill(&file) {
                        tracing::error!(
                            "weight cache {} is being changed by another program, and there is no copy \
                             ({why}); start again",
                            file.path.display()
                        );
                        // Kernels read the mapping all the time, and cannot be told that it is gone.
                        std::process::exit(1);
                    }
                    return;
                }
            }
        };
        let guard = std::thread::Builder::new().name("hexflash-lease".to_owned()).spawn(watch)?;
        Ok(Self { map, stop: Some(stop), guard: Some(guard) })
    }
}

impl Deref for Leased {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        // The thread must have ended before the addresses are given back.
        self.stop = None;
        if let Some(guard) = self.guard.take() {
            let _ = guard.join();
        }
    }
}

/// Where the image is mapped.
struct MappedRange {
    base: usize,
    bytes: usize,
}

impl MappedRange {
    /// Puts a copy of the image there in the place of the mapping.
    fn fill(&self, file: &FileStore) -> Result<(), String> {
        let mut copy = anonymous(self.bytes as u64).map_err(|error| error.to_string())?;
        file.copy_to(0, &mut copy).map_err(|error| error.to_string())?;
        let copy = copy.make_read_only().map_err(|error| error.to_string())?;
        let (from, to) = (copy.as_ptr().cast_mut().cast(), self.base as *mut _);
        // SAFETY: both are mappings of `bytes` bytes that begin with a page. The one at `from` belongs to
        // nobody else and is not used again. The one at `to` stays until `Leased` has joined this thread; who
        // reads it meanwhile finds the same bytes before and after, and waits if need be, for the kernel
        // changes it under the lock that faults take. Unmapping `to` later is right for the copy as well.
        let moved =
            unsafe { rustix::mm::mremap_fixed(from, self.bytes, self.bytes, MremapFlags::MAYMOVE, to) };
        moved.map_err(|error| error.to_string())?;
        std::mem::forget(copy);
        Ok(())
    }
}

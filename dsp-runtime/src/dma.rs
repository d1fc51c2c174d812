//! The DMA queue of a worker: typed descriptors, tickets, and completion that must be waited for.
//!
//! A DSP has one user-DMA engine per hardware thread, so each worker has a queue of its own. Descriptors of a queue
//! may complete in any order, early or late: a kernel may touch the bytes of a transfer only after
//! [`DmaQueue::wait`] on its ticket, and must not reuse a region that a transfer still reads. The software engine
//! shows a kernel that breaks this rule: it can execute at once, at the wait, or newest first.

use heapless::Deque;
use hexflash_abi::sync::{AtomicU32, Ordering};
use hexflash_abi::{ErrorCode, Fault};

/// A transfer: `rows` rows of `row_bytes`, each side with its stride. One row is a linear copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// First byte to read.
    pub src: *const u8,
    /// First byte to write.
    pub dst: *mut u8,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// Rows.
    pub rows: usize,
    /// Bytes from row to row at the source.
    pub src_stride: usize,
    /// Bytes from row to row at the destination.
    pub dst_stride: usize,
}

impl Transfer {
    /// A linear copy.
    pub const fn linear(src: *const u8, dst: *mut u8, bytes: usize) -> Self {
        Self { src, dst, row_bytes: bytes, rows: 1, src_stride: bytes, dst_stride: bytes }
    }

    /// Bytes moved.
    pub const fn bytes(&self) -> usize {
        self.row_bytes * self.rows
    }
}

/// Names a pushed transfer until it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a transfer that nobody waits for may not have happened"]
pub struct Ticket(u32);

/// When the software engine executes descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DmaMode {
    /// When they are pushed.
    #[default]
    AtOnce,
    /// When they are waited for, oldest first, and not before.
    AtWait,
    /// When any is waited for: all that are pending, newest first.
    OutOfOrder,
    /// Never: what a kernel costs where an engine does the copies. What it computes is meaningless.
    Never,
}

/// Transfers that may be in flight per queue. (Models run on small stacks.)
pub const DEPTH: usize = if cfg!(loom) { 2 } else { 32 };

/// A worker's DMA queue, executed in software.
#[derive(Debug)]
pub struct DmaQueue {
    mode: DmaMode,
    pending: Deque<(u32, Transfer), DEPTH>,
    next: u32,
    moved: u64,
}

// SAFETY: the pointers of pending transfers are used only by the worker that owns the queue.
unsafe impl Send for DmaQueue {}

impl DmaQueue {
    /// An idle queue.
    pub const fn new(mode: DmaMode) -> Self {
        Self { mode, pending: Deque::new(), next: 0, moved: 0 }
    }

    /// Bytes moved since the last call.
    pub fn take_moved(&mut self) -> u64 {
        core::mem::take(&mut self.moved)
    }

    /// Starts a transfer. When the queue is full, the oldest transfer is waited for first.
    ///
    /// # Safety
    /// Until the ticket has been waited for (or [`finish`](Self::finish) was called):
    /// 1. the source is readable and the destination writable, for every row;
    /// 2. nobody writes the source, and nobody reads or writes the destination.
    pub unsafe fn push(&mut self, transfer: Transfer) -> Ticket {
        let ticket = Ticket(self.next);
        self.next = self.next.wrapping_add(1);
        self.moved += transfer.bytes() as u64;
        if self.mode == DmaMode::Never {
            return ticket;
        }
        if self.mode == DmaMode::AtOnce {
            execute(&transfer);
            return ticket;
        }
        if self.pending.is_full()
            && let Some((_, oldest)) = self.pending.pop_front()
        {
            execute(&oldest);
        }
        // There is room: a full queue gave up its oldest entry.
        let _ = self.pending.push_back((ticket.0, transfer));
        ticket
    }

    /// Waits until the transfer is done. Waiting twice is allowed.
    ///
    /// # Errors
    /// What the engine reports; the software engine has nothing to report.
    #[inline]
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), Fault> {
        // The usual case, and all that is compiled into a kernel.
        if self.pending.is_empty() { Ok(()) } else { self.wait_for(ticket) }
    }

    #[inline(never)]
    fn wait_for(&mut self, ticket: Ticket) -> Result<(), Fault> {
        let is_pending = |(t, _): &(u32, Transfer)| *t == ticket.0;
        if !self.pending.iter().any(is_pending) {
            return Ok(());
        }
        match self.mode {
            DmaMode::AtOnce | DmaMode::Never => {}
            DmaMode::AtWait => {
                while let Some((t, transfer)) = self.pending.pop_front() {
                    execute(&transfer);
                    if t == ticket.0 {
                        break;
                    }
                }
            }
            DmaMode::OutOfOrder => {
                while let Some((_, transfer)) = self.pending.pop_back() {
                    execute(&transfer);
                }
            }
        }
        Ok(())
    }

    /// Waits for everything that is pending: the end of a kernel.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn finish(&mut self) -> Result<(), Fault> {
        while let Some(&(t, _)) = self.pending.back() {
            self.wait(Ticket(t))?;
        }
        Ok(())
    }
}

fn execute(t: &Transfer) {
    for row in 0..t.rows {
        // SAFETY: the promise of `push` (1, 2): readable, writable, and not touched by anybody else. Source and
        // destination of one transfer never overlap: one of them is a region of VTCM, the other is not.
        unsafe {
            copy(t.src.wrapping_add(row * t.src_stride), t.dst.wrapping_add(row * t.dst_stride), t.row_bytes);
        }
    }
}

/// # Safety
/// As [`core::ptr::copy_nonoverlapping`].
#[cfg(not(target_arch = "hexagon"))]
unsafe fn copy(src: *const u8, dst: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, bytes) };
}

/// Under emulation most of a run would be this copy, if the library's `memcpy` (a loop over words) or vectors (which
/// the emulator stores byte by byte) made it.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`].
#[cfg(target_arch = "hexagon")]
unsafe fn copy(src: *const u8, dst: *mut u8, bytes: usize) {
    const WORDS: usize = 16;
    let aligned = (src.addr() | dst.addr()) % size_of::<u64>() == 0;
    let blocks = if aligned { bytes / (WORDS * size_of::<u64>()) } else { 0 };
    let done = blocks * WORDS * size_of::<u64>();
    // SAFETY: the caller's promise; aligned as checked. Volatile, or the compiler would put a `memcpy` here.
    unsafe {
        let (from, to) = (src.cast::<u64>(), dst.cast::<u64>());
        for block in 0..blocks {
            for word in 0..WORDS {
                let i = block * WORDS + word;
                to.add(i).write_volatile(from.add(i).read_volatile());
            }
        }
        core::ptr::copy_nonoverlapping(src.add(done), dst.add(done), bytes - done);
    }
}

/// The first fault that any worker reports, kept for the response.
#[derive(Debug)]
pub struct FaultSlot {
    /// Zero for none, else the code.
    code: AtomicU32,
    detail: AtomicU32,
}

impl FaultSlot {
    /// No fault yet.
    #[allow(clippy::new_without_default, reason = "a slot is made on purpose")]
    pub fn new() -> Self {
        Self { code: AtomicU32::new(0), detail: AtomicU32::new(0) }
    }

    /// Keeps `fault` if it is the first. (Relaxed: the barrier at the end of a kernel orders it with the reader.)
    pub fn report(&self, fault: Fault) {
        if self.code.compare_exchange(0, fault.code.wire(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.detail.store(fault.detail, Ordering::Relaxed);
        }
    }

    /// Takes the fault, leaving none.
    pub fn take(&self) -> Result<(), Fault> {
        match self.code.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            code => {
                let code = ErrorCode::parse(code).unwrap_or(ErrorCode::Internal);
                Err(Fault::new(code, self.detail.load(Ordering::Relaxed)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [DmaMode; 3] = [DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder];

    /// Pushes a copy of each byte of `from` to the same place of `to`.
    fn push_all(queue: &mut DmaQueue, from: &[u8], to: &mut [u8]) -> Vec<Ticket> {
        let to = to.as_mut_ptr();
        // SAFETY: both live on, and nobody touches them before they are waited for.
        let push = |(i, b): (usize, &u8)| unsafe { queue.push(Transfer::linear(b, to.add(i), 1)) };
        from.iter().enumerate().map(push).collect()
    }

    #[test]
    fn modes_differ_in_when_bytes_arrive() {
        for (mode, at_push, at_wait) in [
            (DmaMode::AtOnce, [1, 2, 3], [1, 2, 3]),
            (DmaMode::AtWait, [0; 3], [1, 2, 0]),
            (DmaMode::OutOfOrder, [0; 3], [1, 2, 3]),
        ] {
            let (mut queue, from, mut to) = (DmaQueue::new(mode), [1, 2, 3], [0; 3]);
            let tickets = push_all(&mut queue, &from, &mut to);
            assert_eq!(to, at_push, "{mode:?}");
            queue.wait(tickets[1]).unwrap();
            assert_eq!(to, at_wait, "{mode:?}");
            // Twice is allowed, and changes nothing.
            queue.wait(tickets[1]).unwrap();
            assert_eq!(to, at_wait, "{mode:?}");
            queue.finish().unwrap();
            assert_eq!(to, from, "{mode:?}");
            queue.finish().unwrap();
        }
    }

    #[test]
    fn the_newest_goes_first_out_of_order() {
        let (mut queue, from, mut to) = (DmaQueue::new(DmaMode::OutOfOrder), [1, 2], [0; 1]);
        let to = to.as_mut_ptr();
        // SAFETY: all live on. Both write one byte, which no kernel may do: it shows who was last.
        let tickets = from.each_ref().map(|b| unsafe { queue.push(Transfer::linear(b, to, 1)) });
        queue.wait(tickets[1]).unwrap();
        // SAFETY: it lives, and nothing is pending.
        assert_eq!(unsafe { *to }, 1);
    }

    #[test]
    fn a_full_queue_gives_up_its_oldest_transfer() {
        for mode in MODES {
            let from: [u8; DEPTH + 5] = core::array::from_fn(|i| i as u8 + 1);
            let (mut queue, mut to) = (DmaQueue::new(mode), [0; DEPTH + 5]);
            let tickets = push_all(&mut queue, &from, &mut to);
            assert_eq!(to[..5], from[..5], "{mode:?}");
            assert!(mode == DmaMode::AtOnce || to[5..] == [0; DEPTH], "{mode:?}");
            // What was given up needs no waiting.
            queue.wait(tickets[0]).unwrap();
            queue.wait(tickets[DEPTH + 4]).unwrap();
            assert_eq!(to, from, "{mode:?}");
            assert_eq!(queue.take_moved(), from.len() as u64);
            assert_eq!(queue.take_moved(), 0);
        }
    }

    #[test]
    fn rows_keep_their_strides() {
        for mode in MODES {
            let (from, mut to) = ([1, 2, 0, 3, 4, 0], [0; 8]);
            let mut queue = DmaQueue::new(mode);
            let t = Transfer {
                src: from.as_ptr(),
                dst: to.as_mut_ptr(),
                row_bytes: 2,
                rows: 2,
                src_stride: 3,
                dst_stride: 5,
            };
            // SAFETY: rows of 2 bytes at 0 and 3 of `from`, at 0 and 5 of `to`.
            let ticket = unsafe { queue.push(t) };
            queue.wait(ticket).unwrap();
            assert_eq!(to, [1, 2, 0, 0, 0, 3, 4, 0], "{mode:?}");
            assert_eq!(queue.take_moved(), 4);
        }
    }

    #[test]
    fn the_first_fault_stays_until_it_is_taken() {
        let slot = FaultSlot::new();
        assert_eq!(slot.take(), Ok(()));
        let (first, second) = (Fault::new(ErrorCode::BadRowIndex, 7), Fault::new(ErrorCode::DmaError, 8));
        slot.report(first);
        slot.report(second);
        assert_eq!(slot.take(), Err(first));
        assert_eq!(slot.take(), Ok(()));
    }
}

//! The DMA queue of a worker: typed descriptors, tickets, and completion that must be waited for.
//!
//! A DSP has one user-DMA engine per hardware thread, so each worker has a queue of its own. Descriptors of a
//! queue may complete in any order, early or late: a kernel may touch the bytes of a transfer only after
//! [`DmaQueue::wait`] on its ticket, and must not reuse a region that a transfer still reads. The software
//! engine shows a kernel that breaks this rule: it can execute at once, at the wait, or newest first.
//!
//! A kernel's own transfers end with it ([`DmaQueue::finish`]). Those of the weight stream may go on while
//! later ops run ([`DmaQueue::push_ahead`]), until they are waited for or the queue is drained.

mod engine;
#[cfg(test)]
mod tests;

use heapless::Deque;
use hexflash_abi::sync::{AtomicU32, Ordering};
use hexflash_abi::{ErrorCode, Fault};

use engine::{Chain, Unfit, encode};
pub use engine::{
    Channel, Descriptor, Engine, NO_ENGINE, NOT_ADDRESSABLE, PATIENCE_US, Ring, State, StatusWord,
};

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

/// When transfers execute: at a chosen moment in the software engine, or in an engine of the platform.
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
    /// When the platform's own engine gets to it: see [`Platform::dma`](crate::platform::Platform::dma).
    Engine,
}

impl DmaMode {
    /// Whether weights are fetched ahead of the ops that read them: not where a thread does the copies when
    /// they are pushed, because all that this brings is that they leave its caches before they are used.
    pub const fn streams(self) -> bool {
        match self {
            Self::AtOnce | Self::Never => false,
            Self::AtWait | Self::OutOfOrder | Self::Engine => true,
        }
    }
}

/// Transfers that may be in flight per queue. (Models run on small stacks.)
pub const DEPTH: usize = if cfg!(loom) { 2 } else { 32 };

/// A worker's DMA queue.
#[derive(Debug)]
pub struct DmaQueue {
    mode: DmaMode,
    pending: Deque<(u32, Transfer), DEPTH>,
    next: u32,
    /// The newest transfer that ends with its kernel, if it may be under way.
    own: Option<Ticket>,
    moved: u64,
    /// Of [`DmaMode::Engine`].
    chain: Chain,
}

// SAFETY: only the raw pointers of pending transfers keep the queue from being `Send`. Whoever pushed a
// transfer has promised that its bytes stay valid, and alone, until it is done, on whichever thread that is
// (the contract of `push`).
unsafe impl Send for DmaQueue {}

impl DmaQueue {
    /// An idle queue in software.
    pub const fn new(mode: DmaMode) -> Self {
        Self { mode, pending: Deque::new(), next: 0, own: None, moved: 0, chain: Chain::NONE }
    }

    /// An idle queue on an engine of the platform's. Without one, every wait fails.
    pub fn on(channel: Option<Channel>) -> Self {
        Self { chain: Chain::new(channel), ..Self::new(DmaMode::Engine) }
    }

    /// Bytes moved since the last call.
    pub fn take_moved(&mut self) -> u64 {
        core::mem::take(&mut self.moved)
    }

    /// Starts a transfer of a kernel. When the queue is full, the oldest transfer is waited for first.
    ///
    /// # Safety
    /// Until the ticket has been waited for (or [`finish`](Self::finish) was called):
    /// 1. the source is readable and the destination writable, for every row;
    /// 2. nobody writes the source, and nobody reads or writes the destination;
    /// 3. no row's source overlaps its destination.
    pub unsafe fn push(&mut self, transfer: Transfer) -> Ticket {
        // SAFETY: the transfer may happen until its ticket has been waited for or `finish` was called (the
        // caller's contract). `finish` waits for the ticket that is kept here, and `drain` for every one.
        let ticket = unsafe { self.push_ahead(transfer) };
        self.own = Some(ticket);
        ticket
    }

    /// Starts a transfer that may go on when its kernel has ended. When the queue is full, the oldest
    /// transfer is waited for first.
    ///
    /// # Safety
    /// Points 1 to 3 of [`push`](Self::push), until the ticket has been waited for (or
    /// [`drain`](Self::drain) was called).
    pub unsafe fn push_ahead(&mut self, transfer: Transfer) -> Ticket {
        self.moved += transfer.bytes() as u64;
        if self.mode == DmaMode::Engine {
            // SAFETY: the transfer may happen until its ticket has been waited for (the caller's contract,
            // which `start` has too).
            return unsafe { self.start(&transfer) };
        }
        let ticket = Ticket(self.next);
        self.next = self.next.wrapping_add(1);
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
    /// [`ErrorCode::DmaError`], [`ErrorCode::DmaTimeout`] from an engine, which is of no use from then on;
    /// the software engine has nothing to report.
    #[inline]
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), Fault> {
        // The usual case, and all that is compiled into a kernel.
        if self.pending.is_empty() { Ok(()) } else { self.wait_for(ticket) }
    }

    /// Whether nobody has found the transfer done yet. (Pending tickets follow one another: transfers are
    /// taken from the ends.)
    fn is_pending(&self, ticket: Ticket) -> bool {
        self.pending.front().is_some_and(|(t, _)| (ticket.0.wrapping_sub(*t) as usize) < self.pending.len())
    }

    /// Whether the transfer is done, without waiting for it. A failed engine has done nothing.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        !self.is_pending(ticket) || self.mode == DmaMode::Engine && self.chain.is_done(ticket.0)
    }

    /// Whether an engine makes the transfers, and not this thread.
    pub fn by_engine(&self) -> bool {
        self.mode == DmaMode::Engine
    }

    /// Has a look at the engine. One that is emulated may go on only then.
    pub fn look(&self) {
        self.chain.look();
    }

    /// Whether an engine does `later`, which was pushed after `earlier`, before it. Waits until one of the
    /// two is done, but no longer than for a transfer, and not for an engine that has stopped: a wait tells
    /// why.
    pub fn overtakes(&self, later: Ticket, earlier: Ticket) -> bool {
        if !self.by_engine() {
            return false;
        }
        let start = self.chain.now_us();
        loop {
            let goes_on = self.chain.look() && self.chain.now_us().saturating_sub(start) <= PATIENCE_US;
            // In this order: an earlier one that is not done after the later one was has been overtaken.
            let (later, earlier) = (self.is_done(later), self.is_done(earlier));
            if later || earlier || !goes_on {
                return later && !earlier;
            }
        }
    }

    #[inline(never)]
    fn wait_for(&mut self, ticket: Ticket) -> Result<(), Fault> {
        if let Some(fault) = self.chain.fault() {
            return Err(fault);
        }
        if !self.is_pending(ticket) {
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
            DmaMode::Engine => {
                // A chain is done in order. After a failure what is pending stays so: every wait finds the
                // fault.
                while let Some(&(t, _)) = self.pending.front() {
                    self.chain.wait(t)?;
                    self.pending.pop_front();
                    if t == ticket.0 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands a transfer to the engine, in rows if a descriptor cannot say it as a whole; gives the last one's
    /// ticket.
    ///
    /// # Safety
    /// `transfer` may happen: points 1 to 3 of [`push`](Self::push).
    #[inline(never)]
    unsafe fn start(&mut self, transfer: &Transfer) -> Ticket {
        let last = Ticket(self.next.wrapping_sub(1));
        if transfer.bytes() == 0 {
            return last;
        }
        match encode(transfer) {
            // SAFETY: `words` are those of `transfer`, by `encode`, and the transfer may happen (the caller's
            // contract).
            Ok(words) => unsafe { self.link(transfer, words) },
            Err(Unfit::Size) if transfer.rows > 1 => {
                let mut last = last;
                for row in 0..transfer.rows {
                    let src = transfer.src.wrapping_add(row * transfer.src_stride);
                    let dst = transfer.dst.wrapping_add(row * transfer.dst_stride);
                    // SAFETY: this is one row of the transfer, whose rows may all happen until the last
                    // ticket has been waited for (the caller's contract).
                    last = unsafe { self.start(&Transfer::linear(src, dst, transfer.row_bytes)) };
                }
                last
            }
            Err(Unfit::Address | Unfit::Size) => {
                self.chain.fail(Fault::new(ErrorCode::DmaError, NOT_ADDRESSABLE));
                self.stand(transfer)
            }
        }
    }

    /// # Safety
    /// 1. `words` are those of `transfer`.
    /// 2. `transfer` may happen: points 1 to 3 of [`push`](Self::push).
    unsafe fn link(&mut self, transfer: &Transfer, words: [u32; 8]) -> Ticket {
        if let Some(&(oldest, _)) = self.pending.front().filter(|_| self.pending.is_full())
            && self.chain.wait(oldest).is_ok()
        {
            self.pending.pop_front();
        }
        if self.chain.fault().is_none() {
            // SAFETY: `words` describe a transfer that may happen (the caller's contract). The pending
            // tickets follow one another, and they are fewer than DEPTH: a full queue has given up its oldest
            // one above, or the chain has a fault. So the slot of `self.next` is not one of theirs, and its
            // last descriptor is done.
            unsafe { self.chain.link(self.next, words) };
        }
        self.stand(transfer)
    }

    /// Has a transfer pending, also one that was not started because the engine failed: its wait must say so.
    fn stand(&mut self, transfer: &Transfer) -> Ticket {
        let ticket = Ticket(self.next);
        self.next = self.next.wrapping_add(1);
        // Full only after a failure: then every wait fails, whatever the ticket.
        let _ = self.pending.push_back((ticket.0, *transfer));
        ticket
    }

    /// Waits for the transfers of a kernel, which ends.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn finish(&mut self) -> Result<(), Fault> {
        // Those before it are done when it is, or they were pushed ahead. Newest first, all are done at once.
        self.own.take().map_or(Ok(()), |newest| self.wait(newest))
    }

    /// Waits for everything that is pending.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn drain(&mut self) -> Result<(), Fault> {
        self.own = None;
        while let Some(&(t, _)) = self.pending.back() {
            self.wait(Ticket(t))?;
        }
        Ok(())
    }
}

fn execute(t: &Transfer) {
    for row in 0..t.rows {
        // SAFETY: `t` was given to `push`, and this is the one time that it is done, at the latest when its
        // ticket is waited for. Until then every row is readable at the source and writable at the
        // destination (point 1 of `push`), nobody else touches either (point 2), and they do not overlap
        // (point 3).
        unsafe {
            copy(t.src.wrapping_add(row * t.src_stride), t.dst.wrapping_add(row * t.dst_stride), t.row_bytes);
        }
    }
}

/// Bytes of a row from which the processor's own copy of strings is worth its start, some dozen cycles.
#[cfg(all(target_arch = "x86_64", feature = "host", not(any(fuzzing, miri))))]
const STRING: usize = 1024;

/// Weights come from memory here, and a copy that the processor makes itself asks for them furthest ahead: it
/// was measured to be 1.4 times as fast as vectors (EPYC, 2026). The library's `memcpy` is one or the other,
/// by its version. Builds for sanitizers and Miri do without, because these do not see what assembly copies.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`].
#[cfg(not(target_arch = "hexagon"))]
unsafe fn copy(src: *const u8, dst: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", feature = "host", not(any(fuzzing, miri))))]
    if bytes >= STRING && std::arch::is_x86_feature_detected!("ermsb") {
        // SAFETY: `src` is valid for reading `bytes`, `dst` for writing them, and they do not overlap (the
        // caller's contract). The instruction copies so many bytes upwards, as the flag of direction is clear
        // wherever Rust runs assembly, and changes no registers but these three.
        unsafe {
            core::arch::asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rsi") src => _,
                inout("rdi") dst => _,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    // SAFETY: `src` is valid for reading `bytes`, `dst` for writing them, and they do not overlap (the
    // caller's contract).
    unsafe { core::ptr::copy_nonoverlapping(src, dst, bytes) };
}

/// Under emulation most of a run would be this copy, if the library's `memcpy` (a loop over words) or vectors
/// (which the emulator stores byte by byte) made it.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`].
#[cfg(target_arch = "hexagon")]
unsafe fn copy(src: *const u8, dst: *mut u8, bytes: usize) {
    const WORDS: usize = 16;
    let aligned = (src.addr() | dst.addr()) % size_of::<u64>() == 0;
    let blocks = if aligned { bytes / (WORDS * size_of::<u64>()) } else { 0 };
    let done = blocks * WORDS * size_of::<u64>();
    // SAFETY: `bytes` are readable at `src`, writable at `dst`, and do not overlap (the caller's contract).
    // The loop takes the first `done` of them, in words to which both addresses are aligned (`blocks` is 0 if
    // they are not), and the last copy takes the rest. The words are volatile, or the compiler would put a
    // `memcpy` here.
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
pub struct FirstFault {
    /// Zero for none, else the code.
    code: AtomicU32,
    detail: AtomicU32,
}

impl FirstFault {
    /// No fault yet.
    #[allow(clippy::new_without_default, reason = "a slot is made on purpose")]
    pub fn new() -> Self {
        Self { code: AtomicU32::new(0), detail: AtomicU32::new(0) }
    }

    /// Keeps `fault` if it is the first. (Relaxed: the barrier at the end of a kernel orders it with the
    /// reader.)
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

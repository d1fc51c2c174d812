//! The user-DMA engine of a hardware thread: its descriptors, the ring that they lie in, and when one is
//! done.
//!
//! Descriptors are chained: each push appends one with `dmlink`, and the first to an end that was never
//! started, as clients do that are known to work. All transfers go through the second-level cache, so that
//! they see what the threads wrote. Layouts and status bits are those of the public sources; **nothing of
//! this has run on hardware**.

use core::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::{ErrorCode, Fault};

use super::{DEPTH, Transfer};

/// Descriptors of a ring: one per transfer in flight, and the end that the first is linked to.
const DESCRIPTORS: usize = DEPTH + 1;
const BEFORE_ALL: usize = DEPTH;
/// How long a transfer may take before the engine counts as hung, in microseconds: many times what all of
/// VTCM takes.
pub const PATIENCE_US: u64 = 1_000_000;
/// Detail of [`ErrorCode::DmaError`]: an address that the engine cannot have. No status word ends with these
/// bits.
pub const NOT_ADDRESSABLE: u32 = 3;
/// Detail of [`ErrorCode::DmaError`]: the platform has no engine for this worker.
pub const NO_ENGINE: u32 = 7;

/// A descriptor as the engine reads it, on a cache line's half of its own.
///
/// Words: next descriptor; length and flags; source; destination; and of those with two axes type, rows and
/// bytes per row, strides, offsets.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Descriptor(pub(super) [AtomicU32; 8]);

/// The descriptor has the second four words.
const TWO_AXES: u32 = 1 << 24;
/// Set by the engine.
const DONE: u32 = 1 << 31;

impl Descriptor {
    const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; 8])
    }

    /// Its address, if 32 bits can say it, as they can on a DSP.
    pub fn address(&self) -> Option<u32> {
        u32::try_from(core::ptr::from_ref(self).addr()).ok()
    }

    fn write(&self, words: [u32; 8]) {
        for (to, word) in self.0.iter().zip(words) {
            // Relaxed: the engine's `link` publishes them.
            to.store(word, Ordering::Relaxed);
        }
    }

    fn is_done(&self) -> bool {
        // Acquire: what the engine wrote before the bit is there.
        self.0[1].load(Ordering::Acquire) & DONE != 0
    }
}

/// A worker's descriptors, at an address that stays: engines are said not to take those on stacks.
#[derive(Debug)]
#[repr(C)]
pub struct Ring([Descriptor; DESCRIPTORS]);

impl Ring {
    /// Descriptors of an engine that was never started.
    pub const fn new() -> Self {
        Self([const { Descriptor::new() }; DESCRIPTORS])
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

/// What an engine is doing, as its status word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing: it has come to the end of its chain.
    Idle,
    /// A chain.
    Running,
    /// It met an error, and stopped there.
    Failed,
}

/// A status word: the state in the low two bits, the address of the present descriptor above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusWord(pub u32);

impl StatusWord {
    /// The state; the value that none has counts as a failure.
    pub const fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Idle,
            1 => State::Running,
            _ => State::Failed,
        }
    }
}

/// The registers of the engine of the hardware thread that calls.
pub trait Engine: Sync {
    /// Appends a descriptor to the chain that ends with `tail`, and starts the engine if it has come to that
    /// end (`dmlink`). What was stored before is visible to the engine.
    ///
    /// # Safety
    /// 1. `new` describes transfers that may happen: see [`DmaQueue::push`](super::DmaQueue::push).
    /// 2. Until it is done, nobody else writes it.
    unsafe fn link(&self, tail: &'static Descriptor, new: &'static Descriptor);
    /// The status word (`dmpoll`).
    fn poll(&self) -> StatusWord;
    /// Stops the engine between two bursts (`dmpause`).
    fn pause(&self);
    /// Monotonic microseconds.
    fn now_us(&self) -> u64;
}

/// An engine and the descriptors that it is given.
#[derive(Clone, Copy)]
pub struct Channel {
    /// The engine.
    pub engine: &'static dyn Engine,
    /// Its descriptors, which nobody else has.
    pub ring: &'static Ring,
}

/// A transfer that one descriptor cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// An address of more than 32 bits.
    Address,
    /// More bytes, rows or stride than its fields hold.
    Size,
}

/// The descriptor of a transfer, at the end of a chain.
pub(super) fn encode(t: &Transfer) -> Result<[u32; 8], Unfit> {
    let address = |at: usize| u32::try_from(at).map_err(|_| Unfit::Address);
    let (src, dst) = (address(t.src.addr())?, address(t.dst.addr())?);
    let dense = t.row_bytes == t.src_stride && t.row_bytes == t.dst_stride;
    if t.rows == 1 || dense {
        let bytes = u32::try_from(t.bytes()).ok().filter(|&bytes| bytes < 1 << 24).ok_or(Unfit::Size)?;
        return Ok([0, bytes, src, dst, 0, 0, 0, 0]);
    }
    let pair = |high: usize, low: usize| {
        let half = |n: usize| u16::try_from(n).map(u32::from).map_err(|_| Unfit::Size);
        Ok(half(high)? << 16 | half(low)?)
    };
    let (shape, strides) = (pair(t.rows, t.row_bytes)?, pair(t.dst_stride, t.src_stride)?);
    Ok([0, TWO_AXES, src, dst, 0, shape, strides, 0])
}

/// A chain of descriptors on an engine. Slots are numbered by tickets.
pub(super) struct Chain {
    channel: Option<Channel>,
    tail: usize,
    /// What ended it: the engine is not used again.
    fault: Option<Fault>,
}

impl core::fmt::Debug for Chain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Chain").field("tail", &self.tail).field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Chain {
    /// No engine: for queues in software.
    pub(super) const NONE: Self = Self { channel: None, tail: BEFORE_ALL, fault: None };

    /// A chain that was never started; without an engine it has failed.
    pub(super) fn new(channel: Option<Channel>) -> Self {
        if let Some(channel) = channel {
            channel.ring.0.iter().for_each(|descriptor| descriptor.write([0; 8]));
        }
        let fault = channel.is_none().then_some(Fault::new(ErrorCode::DmaError, NO_ENGINE));
        Self { channel, tail: BEFORE_ALL, fault }
    }

    /// What ended it.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Ends it: whatever is under way must not go on.
    pub(super) fn fail(&mut self, fault: Fault) {
        if let Some(channel) = &self.channel {
            channel.engine.pause();
        }
        self.fault.get_or_insert(fault);
    }

    /// Appends a descriptor in the slot of `ticket`.
    ///
    /// # Safety
    /// 1. `words` describe a transfer that may happen: see [`DmaQueue::push`](super::DmaQueue::push).
    /// 2. The descriptor that was last in the slot of `ticket` is done.
    pub(super) unsafe fn link(&mut self, ticket: u32, words: [u32; 8]) {
        let Some(Channel { engine, ring }) = self.channel else { return };
        let slot = ticket as usize % DEPTH;
        let (tail, new) = (&ring.0[self.tail], &ring.0[slot]);
        new.write(words);
        // SAFETY: `words`, which were written to `new`, describe a transfer that may happen (point 1). Nobody
        // else writes the slot: the ring is this channel's alone (`Channel::ring`), and this chain writes a
        // slot again only when its descriptor is done (point 2).
        unsafe { engine.link(tail, new) };
        self.tail = slot;
    }

    /// Whether the descriptor of `ticket` is done: its transfer is pending.
    pub(super) fn is_done(&self, ticket: u32) -> bool {
        self.channel.is_some_and(|channel| channel.ring.0[ticket as usize % DEPTH].is_done())
    }

    /// Whether the engine is at work.
    pub(super) fn look(&self) -> bool {
        let running = |channel: Channel| channel.engine.poll().state() == State::Running;
        self.fault.is_none() && self.channel.is_some_and(running)
    }

    /// The engine's time, 0 without one.
    pub(super) fn now_us(&self) -> u64 {
        self.channel.map_or(0, |channel| channel.engine.now_us())
    }

    /// Waits until the descriptor of `ticket` is done.
    ///
    /// # Errors
    /// [`ErrorCode::DmaError`] with the engine's status word, where it failed or came to its end without
    /// doing it; [`ErrorCode::DmaTimeout`] with the microseconds waited. The chain has ended then.
    pub(super) fn wait(&mut self, ticket: u32) -> Result<(), Fault> {
        match self.fault {
            None => self.wait_for(ticket).inspect_err(|&fault| self.fail(fault)),
            Some(fault) => Err(fault),
        }
    }

    fn wait_for(&self, ticket: u32) -> Result<(), Fault> {
        let Some(Channel { engine, ring }) = self.channel else { return Ok(()) };
        let descriptor = &ring.0[ticket as usize % DEPTH];
        if descriptor.is_done() {
            return Ok(());
        }
        let start = engine.now_us();
        loop {
            let status = engine.poll();
            // After the status: an engine that has stopped may have just done it.
            if descriptor.is_done() {
                return Ok(());
            }
            if status.state() != State::Running {
                return Err(Fault::new(ErrorCode::DmaError, status.0));
            }
            let waited = engine.now_us().saturating_sub(start);
            if waited > PATIENCE_US {
                return Err(Fault::new(ErrorCode::DmaTimeout, u32::try_from(waited).unwrap_or(u32::MAX)));
            }
            core::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(row_bytes: usize, rows: usize, src_stride: usize, dst_stride: usize) -> Transfer {
        let src = core::ptr::without_provenance(0x1234_5600);
        let dst = core::ptr::without_provenance_mut(0xd800_0080);
        Transfer { src, dst, row_bytes, rows, src_stride, dst_stride }
    }

    #[test]
    fn descriptors_are_those_of_the_public_sources() {
        let (src, dst) = (0x1234_5600, 0xd800_0080);
        let linear = |bytes| Ok([0, bytes, src, dst, 0, 0, 0, 0]);
        assert_eq!(encode(&transfer(4096, 1, 4096, 4096)), linear(4096));
        // Rows without gaps are one row; the strides of a single row mean nothing.
        assert_eq!(encode(&transfer(256, 16, 256, 256)), linear(4096));
        assert_eq!(encode(&transfer(1 << 20, 1, 1 << 30, 7)), linear(1 << 20));
        let two = encode(&transfer(0x120, 0x40, 0x800, 0x180));
        assert_eq!(two, Ok([0, 0x0100_0000, src, dst, 0, 0x0040_0120, 0x0180_0800, 0]));
    }

    #[test]
    fn what_the_fields_do_not_hold_is_not_cut_off() {
        for t in [
            transfer(1 << 24, 1, 0, 0),
            transfer(1 << 16, 2, 1, 2),
            transfer(8, 1 << 16, 16, 8),
            transfer(8, 2, 1 << 16, 8),
            transfer(8, 2, 8, 1 << 16),
        ] {
            assert_eq!(encode(&t), Err(Unfit::Size), "{t:?}");
        }
        #[cfg(target_pointer_width = "64")]
        {
            let far = core::ptr::without_provenance(1 << 32);
            assert_eq!(encode(&Transfer { src: far, ..transfer(8, 1, 8, 8) }), Err(Unfit::Address));
        }
    }

    #[test]
    fn status_words_are_told_apart() {
        let states = [0xabcd_ef00, 0xabcd_ef01, 0xabcd_ef02, 3].map(|word| StatusWord(word).state());
        assert_eq!(states, [State::Idle, State::Running, State::Failed, State::Failed]);
    }
}

//! The memory of a `dspqueue`, laid out as the public sources of FastRPC have it (header version 2).
//!
//! A header, then two rings of packets with a line of state for each of their ends. A packet is a 64-bit
//! header (`length | flags << 32 | buffers << 48 | sequence << 56`), 24 bytes per buffer, and the message;
//! padded to 8 bytes. It is never wrapped: where the end of the ring is too short, its header is written
//! there, too, and the packet begins at 0. Eight bytes stay free. Here a futex in the state lines stands for
//! the driver's signals.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex;

/// Longest ring.
pub const MAX_QUEUE: u32 = 16 << 20;
/// Most buffers of a packet.
pub const MAX_BUFFERS: u32 = 64;
/// Longest message.
pub const MAX_MESSAGE: u32 = 65_536;
/// Rings where no size is given.
pub const DEFAULT_BYTES: (u32, u32) = (65_536, 16_384);
const SECTION: u32 = 256;
const VERSION: u32 = 2;
const WAIT_COUNTS: u32 = 1;

/// Packet flags.
pub const MESSAGE: u32 = 1;
/// The packet names buffers.
pub const BUFFERS: u32 = 2;
/// Set by the host's library.
pub const USER_READY: u32 = 0x10;

/// A buffer of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Buffer {
    /// Its memory.
    pub fd: u32,
    /// Bytes; 0 for all.
    pub size: u32,
    /// First byte.
    pub offset: u32,
    /// What is to be done to the caches.
    pub flags: u32,
    /// Where it is mapped.
    pub address: u64,
}
const _: () = assert!(size_of::<Buffer>() == 24);

/// A packet as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Its flags.
    pub flags: u32,
    /// Its buffers.
    pub buffers: Vec<Buffer>,
    /// Its message.
    pub message: Vec<u8>,
}

impl Packet {
    /// What a caller of `dspqueue_write` hands over: `n` buffers, and a message of `bytes`.
    ///
    /// # Safety
    /// Both are as long as said, and valid for reading as long as the result is used; either may be null if
    /// it is empty.
    pub unsafe fn parts<'a>(
        (buffers, n): (*const Buffer, u32),
        (message, bytes): (*const u8, u32),
    ) -> (&'a [Buffer], &'a [u8]) {
        // SAFETY: where it is not empty, each is as long as said and valid for reading as long as the result
        // is used (the caller's contract).
        unsafe {
            let buffers = if n == 0 { &[] } else { std::slice::from_raw_parts(buffers, n as usize) };
            let message = if bytes == 0 { &[] } else { std::slice::from_raw_parts(message, bytes as usize) };
            (buffers, message)
        }
    }

    /// Hands it to a caller of `dspqueue_read`: the buffers with their number, the message with its length.
    ///
    /// # Safety
    /// All is valid for writing what the packet has; the first of a pair may be null if the packet has none
    /// of it.
    pub unsafe fn hand_out(
        &self,
        flags: *mut u32,
        (buffers, n): (*mut Buffer, *mut u32),
        (message, bytes): (*mut u8, *mut u32),
    ) {
        // SAFETY: `flags`, `n` and `bytes` are valid for writing, and where the packet has buffers or a
        // message, `buffers` and `message` are valid for writing as many (the caller's contract). The
        // packet's own memory lies elsewhere.
        unsafe {
            flags.write(self.flags);
            n.write(self.buffers.len() as u32);
            bytes.write(self.message.len() as u32);
            if !self.buffers.is_empty() {
                std::ptr::copy_nonoverlapping(self.buffers.as_ptr(), buffers, self.buffers.len());
            }
            if !self.message.is_empty() {
                std::ptr::copy_nonoverlapping(self.message.as_ptr(), message, self.message.len());
            }
        }
    }
}

/// What the memory of a queue with rings of these sizes looks like.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    rings: [[u32; 4]; 2],
    bytes: u32,
}

impl Layout {
    /// Rings of `request` and `response` bytes.
    pub fn new(request: u32, response: u32) -> Self {
        let mut at = SECTION;
        let rings = [request, response].map(|bytes| {
            let bytes = bytes.next_multiple_of(SECTION);
            let ring = [at, bytes, at + bytes, at + bytes + SECTION];
            at += bytes + 2 * SECTION;
            ring
        });
        Self { rings, bytes: at }
    }

    /// Bytes of the memory.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

/// The memory of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Memory(NonNull<u8>);

// SAFETY: `Memory` is an address. It is touched through atomics, and through rings whose two ends are each
// behind a lock of their owner, so that it may be used on any thread.
unsafe impl Send for Memory {}
// SAFETY: `&Memory` gives no more than a copy of `Memory` does: atomics, and rings whose two ends are each
// behind a lock of their owner.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes queue memory.
    ///
    /// # Safety
    /// It is shared memory of the layout's size, page-aligned, that stays mapped while this and its rings are
    /// used.
    pub unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        // SAFETY: callers use offsets of the layout, so that the word is inside the memory and aligned; it
        // stays mapped (the contract of `new`).
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(at as usize).cast()) }
    }

    /// Writes the header.
    pub fn initialise(&self, layout: &Layout) {
        let [q, p] = layout.rings;
        let header = [VERSION, 0, WAIT_COUNTS, q[0], q[1], q[2], q[3], p[0], p[1], p[2], p[3], 1];
        for (i, word) in header.into_iter().enumerate() {
            self.word(4 * i as u32).store(word, Ordering::SeqCst);
        }
    }

    /// The ring of requests, or of responses, as the header describes it.
    pub fn ring(&self, responses: bool) -> Ring {
        let at = if responses { 28 } else { 12 };
        let [ring, bytes, read, write] = [0, 4, 8, 12].map(|i| self.word(at + i).load(Ordering::SeqCst));
        Ring { memory: *self, ring, bytes, read, write }
    }

    /// Marks the queue as failed, and wakes all who wait.
    pub fn fail(&self, error: i32) {
        self.word(4).store(error as u32, Ordering::SeqCst);
        for ring in [self.ring(false), self.ring(true)] {
            for line in [ring.read, ring.write] {
                self.word(line + COUNT).fetch_add(1 << 31, Ordering::SeqCst);
                wake(self.word(line + COUNT));
                self.word(line + COUNT).fetch_add(1 << 31, Ordering::SeqCst);
            }
        }
    }

    /// The error that it failed with, or 0.
    pub fn error(&self) -> i32 {
        self.word(4).load(Ordering::SeqCst) as i32
    }
}

const POSITION: u32 = 0;
const COUNT: u32 = 4;
const WAITING: u32 = 8;

/// One direction.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    memory: Memory,
    ring: u32,
    bytes: u32,
    read: u32,
    write: u32,
}

/// What keeps a packet from being written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// No room, or no packet.
    WouldBlock,
    /// It can never be: too large for the ring, or nonsense in the memory.
    Bad,
}

impl Ring {
    fn state(&self, line: u32, word: u32) -> &AtomicU32 {
        self.memory.word(line + word)
    }

    /// Copies bytes in.
    fn put(&self, at: u32, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= self.bytes as usize);
        // SAFETY: `at + bytes.len()` is at most the ring's length, by the line above, and the ring is inside
        // the memory, which stays mapped (the contract of `Memory::new`). This part belongs to the writer
        // until it is published.
        unsafe {
            let to = self.memory.0.as_ptr().add((self.ring + at) as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies bytes out.
    fn get(&self, at: u32, bytes: usize) -> Vec<u8> {
        assert!(at as usize + bytes <= self.bytes as usize);
        let mut out = vec![0; bytes];
        // SAFETY: `at + bytes` is at most the ring's length, by the line above, and the ring is inside the
        // memory, which stays mapped (the contract of `Memory::new`). This part belongs to the reader until
        // it is given back.
        unsafe {
            let from = self.memory.0.as_ptr().add((self.ring + at) as usize);
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), bytes);
        }
        out
    }

    /// Writes a packet. There is one writer at a time.
    ///
    /// # Errors
    /// [`Stuck`], with nothing written.
    pub fn send(&self, packet: &Packet) -> Result<(), Stuck> {
        let length = 8 + 24 * packet.buffers.len() as u32 + packet.message.len() as u32;
        let padded = length.next_multiple_of(8);
        if padded > self.bytes - 8 {
            return Err(Stuck::Bad);
        }
        let at = self.state(self.write, POSITION).load(Ordering::SeqCst);
        let reader = self.state(self.read, POSITION).load(Ordering::SeqCst);
        if at >= self.bytes || reader >= self.bytes {
            return Err(Stuck::Bad);
        }
        let free = (reader + self.bytes - at - 1) % self.bytes / 8 * 8;
        let tail = self.bytes - at;
        if free < padded || tail < padded && free.saturating_sub(tail) < padded {
            return Err(Stuck::WouldBlock);
        }
        let count = self.state(self.write, COUNT).load(Ordering::SeqCst);
        let flags = packet.flags
            | if packet.message.is_empty() { 0 } else { MESSAGE }
            | if packet.buffers.is_empty() { 0 } else { BUFFERS };
        let header = u64::from(length)
            | u64::from(flags & 0xffff) << 32
            | (packet.buffers.len() as u64 & 0xff) << 48
            | u64::from(count & 0xff) << 56;
        self.put(at, &header.to_le_bytes());
        let start = if tail < padded { 0 } else { at };
        let mut body = header.to_le_bytes().to_vec();
        for b in &packet.buffers {
            for word in [b.fd, b.size, b.offset, b.flags] {
                body.extend(word.to_le_bytes());
            }
            body.extend(b.address.to_le_bytes());
        }
        body.extend(&packet.message);
        self.put(start, &body);
        self.state(self.write, POSITION).store((start + padded) % self.bytes, Ordering::SeqCst);
        self.state(self.write, COUNT).store(count.wrapping_add(1), Ordering::SeqCst);
        if self.state(self.read, WAITING).load(Ordering::SeqCst) > 0 {
            wake(self.state(self.write, COUNT));
        }
        Ok(())
    }

    /// Reads the next packet, if it fits. There is one reader at a time.
    ///
    /// # Errors
    /// [`Stuck`].
    pub fn receive(&self, max_buffers: u32, max_message: u32) -> Result<Packet, Stuck> {
        let mut at = self.state(self.read, POSITION).load(Ordering::SeqCst);
        let writer = self.state(self.write, POSITION).load(Ordering::SeqCst);
        if at == writer {
            return Err(Stuck::WouldBlock);
        }
        let header = |at: u32| self.get(at, 8).try_into().map(u64::from_le_bytes).map_err(|_| Stuck::Bad);
        if at >= self.bytes || !at.is_multiple_of(8) {
            return Err(Stuck::Bad);
        }
        let mut head = header(at)?;
        if (head as u32).next_multiple_of(8) > self.bytes - at {
            at = 0;
            head = header(0)?;
        }
        let (length, flags, count) = (head as u32, (head >> 32) as u32 & 0xffff, (head >> 48) as u32 & 0xff);
        if length.next_multiple_of(8) > self.bytes - at || length < 8 + 24 * count {
            return Err(Stuck::Bad);
        }
        let message = length - 8 - 24 * count;
        if count > max_buffers || message > max_message {
            return Err(Stuck::Bad);
        }
        let body = self.get(at + 8, length as usize - 8);
        let (buffers, message) = body.split_at(24 * count as usize);
        let buffers = buffers.chunks_exact(24).map(|b| {
            let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
            let address = u64::from(word(16)) | u64::from(word(20)) << 32;
            Buffer { fd: word(0), size: word(4), offset: word(8), flags: word(12), address }
        });
        let packet = Packet { flags, buffers: buffers.collect(), message: message.to_vec() };
        let next = (at + length.next_multiple_of(8)) % self.bytes;
        self.state(self.read, POSITION).store(next, Ordering::SeqCst);
        self.state(self.read, COUNT).fetch_add(1, Ordering::SeqCst);
        if self.state(self.write, WAITING).load(Ordering::SeqCst) > 0 {
            wake(self.state(self.read, COUNT));
        }
        Ok(packet)
    }

    /// Waits for a packet (`reading`) or for room, for no longer than `timeout`; may wake early.
    pub fn wait(&self, reading: bool, timeout: Duration, still: impl Fn() -> bool) {
        let (mine, other) = if reading { (self.read, self.write) } else { (self.write, self.read) };
        let word = self.state(other, COUNT);
        let seen = word.load(Ordering::SeqCst);
        self.state(mine, WAITING).fetch_add(1, Ordering::SeqCst);
        if still() {
            let timeout = rustix::fs::Timespec {
                tv_sec: timeout.as_secs() as i64,
                tv_nsec: timeout.subsec_nanos().into(),
            };
            // Whatever ends the sleep, the caller looks again.
            let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
        }
        self.state(mine, WAITING).fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts what was written, and wraps.
    pub fn written(&self) -> u32 {
        self.state(self.write, COUNT).load(Ordering::SeqCst)
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        let at = |line| self.state(line, POSITION).load(Ordering::SeqCst);
        at(self.read) == at(self.write)
    }
}

fn wake(word: &AtomicU32) {
    // It cannot fail on a word that exists.
    let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Mapped, nameless};

    fn queue(bytes: u32) -> (Mapped, Ring) {
        let layout = Layout::new(bytes, 256);
        let mapped = Mapped::new(&nameless(layout.bytes()).unwrap(), layout.bytes()).unwrap();
        // SAFETY: `mapped` is shared memory of the layout's size, at the start of a page, and the caller
        // keeps it as long as the ring.
        let memory = unsafe { Memory::new(mapped.base()) };
        memory.initialise(&layout);
        (mapped, memory.ring(false))
    }

    fn packet(n: usize, buffers: usize) -> Packet {
        let buffer = Buffer { fd: 7, size: 1, offset: 2, flags: 0x80, address: 1 << 40 };
        let flags = USER_READY | if n > 0 { MESSAGE } else { 0 } | if buffers > 0 { BUFFERS } else { 0 };
        Packet { flags, buffers: vec![buffer; buffers], message: (0..n).map(|i| i as u8).collect() }
    }

    #[test]
    fn packets_come_out_as_they_went_in_wherever_they_lie() {
        let (_mapped, ring) = queue(1024);
        for n in 0..600 {
            let sent = packet(n % 97, n % 4);
            ring.send(&sent).unwrap();
            assert_eq!(ring.receive(64, 200), Ok(sent), "{n}");
            assert_eq!(ring.receive(64, 200), Err(Stuck::WouldBlock));
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_and_a_large_packet_never_fits() {
        let (_mapped, ring) = queue(256);
        let mut sent = 0;
        while ring.send(&packet(24, 0)).is_ok() {
            sent += 1;
        }
        // 32 bytes each, and 8 of 256 stay free.
        assert_eq!(sent, 7);
        assert_eq!(ring.send(&packet(24, 0)), Err(Stuck::WouldBlock));
        assert_eq!(ring.send(&packet(256 - 15, 0)), Err(Stuck::Bad));
        for _ in 0..7 {
            ring.receive(0, 24).unwrap();
        }
        assert!(ring.is_empty());
        ring.send(&packet(24, 1)).unwrap();
        assert_eq!(ring.receive(0, 24), Err(Stuck::Bad));
        assert_eq!(ring.receive(1, 23), Err(Stuck::Bad));
        assert!(ring.receive(1, 24).is_ok());
    }

    #[test]
    fn the_header_is_that_of_the_public_sources() {
        let (mapped, ring) = queue(512);
        ring.send(&packet(3, 0)).unwrap();
        // SAFETY: the memory begins with 12 words of header, and the ring at byte 256 with a packet of 11
        // bytes; `mapped` is of the layout's size, and nobody writes it now.
        let (header, packet) = unsafe {
            (mapped.base().cast::<[u32; 12]>().read(), mapped.base().add(256).cast::<[u8; 11]>().read())
        };
        assert_eq!(header, [2, 0, 1, 256, 512, 768, 1024, 1280, 256, 1536, 1792, 1]);
        assert_eq!(packet, [11, 0, 0, 0, 0x11, 0, 0, 0, 0, 1, 2]);
    }
}

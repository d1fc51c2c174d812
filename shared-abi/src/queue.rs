//! The ring that carries messages where there is no `dspqueue`: the `inproc` and `qemu` devices.
//!
//! A queue is a header, then per direction a ring of packets and two state lines, one written by each side. A
//! packet is a 64-bit header and a body, padded to 8 bytes, never wrapped: where the end of the ring is too
//! short, the header is written there as a skip mark and the packet starts at 0. Both sides map the same
//! memory; neither trusts the other's words.
//!
//! One writer and one reader per ring. Waiting is the caller's business: [`Reader::doorbell`] is a word that
//! changes with every packet, fit for a futex; [`Writer::write`] says whether somebody waits on it.
//!
//! A reader sleeps only on a doorbell that it has looked at after it said that it waits, and a writer rings
//! only where it sees that; one of the two sees the other:
//!
//! ```text
//! reader   awake --nothing to read--> says that it waits --doorbell is as seen--> asleep
//!            ^                              |                                      |
//!            +------- doorbell differs -----+                                      |
//!            +--------------------------- woken, waits no more --------------------+
//! writer   writes the packet --> changes the doorbell --> reader waits? wakes it
//! ```
//!
//! # Compared with the vendor's queue
//!
//! The layout is that of `dspqueue_shared.h` of the public FastRPC sources, header version 2: the twelve
//! header words, the three words of a state line, the packet header
//! `len | flags << 32 | buffers << 48 | seq << 56`, the reader's wait count in the line that the reader
//! writes. What differs, and would have to change to talk to the vendor's own library:
//!
//! * Which section lies where is ours; the header says it in the vendor's words.
//! * Packets carry no buffers and only the flag `MESSAGE`; the vendor's host adds `USER_READY` (0x10).
//! * Equal positions mean full or empty as the packet counts say; the vendor keeps 8 bytes free instead.
//! * A packet takes half a ring at most, so that an empty ring has room for it wherever its position is. The
//!   vendor allows all but 8 bytes, and a writer may wait for room that no reader can make.
//! * The writer does not wait for room through the ring: its own wait count stays 0.
//! * No cache maintenance: both sides run on one coherent processor.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::sync::{self, AtomicU32, Ordering, fence};

/// Version word of the queue header.
pub const QUEUE_VERSION: u32 = 2;
/// Flag: readers count themselves in `wait_count` before they sleep.
pub const FLAG_WAIT_COUNTS: u32 = 1;
/// Alignment of every section of the queue memory.
pub const SECTION_ALIGN: usize = 256;
/// Largest message; smaller rings take packets of up to half their bytes.
pub const MAX_MESSAGE: usize = 1024;

/// Words of the queue header: version, error, flags; per ring its offset and length and the offsets of the
/// reader's and of the writer's state; number of queues.
const HEADER_WORDS: usize = 12;
/// Header word that is published last.
const VERSION: usize = 0;
/// Header word that either side may set when the session fails.
const ERROR: usize = 1;
const _: () = assert!(HEADER_WORDS * 4 <= SECTION_ALIGN);

const PACKET_HEADER: usize = 8;
/// Packet flag: carries a message.
const PACKET_MESSAGE: u32 = 1;

/// Where one direction lies in the queue memory, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    ring: usize,
    ring_bytes: usize,
    read_state: usize,
    write_state: usize,
}

impl Section {
    const fn header(&self) -> [u32; 4] {
        [self.ring as u32, self.ring_bytes as u32, self.read_state as u32, self.write_state as u32]
    }

    /// Largest packet: an empty ring has room for it before its position or after.
    const fn max_packet(&self) -> usize {
        self.ring_bytes / 2
    }
}

/// Geometry of a queue: a pure function of the two ring sizes, so that neither side reads offsets from
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    requests: Section,
    responses: Section,
}

impl QueueLayout {
    /// A queue whose rings hold `request_bytes` and `response_bytes`, rounded up to whole sections.
    pub const fn new(request_bytes: usize, response_bytes: usize) -> Self {
        let requests = Self::section(SECTION_ALIGN, request_bytes);
        let responses = Self::section(requests.write_state + SECTION_ALIGN, response_bytes);
        Self { requests, responses }
    }

    const fn section(at: usize, bytes: usize) -> Section {
        let ring_bytes = bytes.next_multiple_of(SECTION_ALIGN);
        let read_state = at + ring_bytes;
        Section { ring: at, ring_bytes, read_state, write_state: read_state + SECTION_ALIGN }
    }

    const fn header(&self) -> [u32; HEADER_WORDS] {
        let (q, p) = (self.requests.header(), self.responses.header());
        [QUEUE_VERSION, 0, FLAG_WAIT_COUNTS, q[0], q[1], q[2], q[3], p[0], p[1], p[2], p[3], 1]
    }

    /// Bytes of queue memory.
    pub const fn bytes(&self) -> usize {
        self.responses.write_state + SECTION_ALIGN
    }
}

/// Queue memory that both sides can see.
#[derive(Clone, Copy, Debug)]
pub struct QueueMemory<'m> {
    base: NonNull<u8>,
    layout: QueueLayout,
    memory: PhantomData<&'m ()>,
}

// SAFETY: the memory is only touched through atomics and through rings whose single writer and single reader
// are separate values; see `QueueMemory::new` for what its caller promises.
unsafe impl Send for QueueMemory<'_> {}

impl QueueMemory<'_> {
    /// Takes zeroed or initialised queue memory.
    ///
    /// # Safety
    /// 1. `base` is aligned to [`SECTION_ALIGN`] and valid for reads and writes of `layout.bytes()` for `'m`.
    /// 2. Per ring at most one [`Writer`] and one [`Reader`] exist at a time, over all who map the memory.
    /// 3. Nobody holds a Rust reference to the memory.
    pub const unsafe fn new(base: NonNull<u8>, layout: QueueLayout) -> Self {
        Self { base, layout, memory: PhantomData }
    }

    fn word(&self, byte: usize) -> &AtomicU32 {
        debug_assert!(byte.is_multiple_of(4) && byte + 4 <= self.layout.bytes());
        // SAFETY: (1) aligned, as is the base; (2) inside the memory (callers use offsets of the layout), per
        // `new` (1) alive for 'm; atomics allow concurrent access from the other side.
        unsafe { sync::word(self.base, byte) }
    }

    /// Writes the header of an empty queue. The creating side calls it once, before the other attaches.
    pub fn initialise(&self) {
        for section in [self.layout.requests, self.layout.responses] {
            for state in [section.read_state, section.write_state] {
                for word in 0..3 {
                    self.word(state + 4 * word).store(0, Ordering::Relaxed);
                }
            }
        }
        let header = self.layout.header();
        for (i, &word) in header.iter().enumerate().filter(|&(i, _)| i != VERSION) {
            self.word(4 * i).store(word, Ordering::Relaxed);
        }
        // Release: who sees the version sees the rest of the header.
        self.word(4 * VERSION).store(header[VERSION], Ordering::Release);
    }

    /// Whether the other side has initialised a queue of this very layout.
    pub fn is_initialised(&self) -> bool {
        // Acquire: pairs with the release in `initialise`.
        self.word(4 * VERSION).load(Ordering::Acquire) == QUEUE_VERSION
            && self.layout.header().iter().enumerate().all(|(i, &word)| {
                matches!(i, VERSION | ERROR) || self.word(4 * i).load(Ordering::Relaxed) == word
            })
    }
}

impl<'m> QueueMemory<'m> {
    /// The host's ends: it writes requests and reads responses.
    pub fn host_ends(self) -> (Writer<'m>, Reader<'m>) {
        (Writer::new(self, self.layout.requests), Reader::new(self, self.layout.responses))
    }

    /// The DSP's ends: it reads requests and writes responses.
    pub fn dsp_ends(self) -> (Reader<'m>, Writer<'m>) {
        (Reader::new(self, self.layout.requests), Writer::new(self, self.layout.responses))
    }
}

/// The reason why a ring operation did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// No room; try again when the reader has read.
    Full,
    /// The message can never fit.
    TooLarge,
    /// The other side wrote nonsense into the queue memory; the session is lost.
    Corrupt,
}

/// Words of a state line.
const POSITION: usize = 0;
const COUNT: usize = 4;
const WAITING: usize = 8;

/// High word of a packet header: flags, no buffers, sequence.
const fn header_high(message: usize, count: u32) -> u32 {
    (if message > 0 { PACKET_MESSAGE } else { 0 }) | (count & 0xff) << 24
}

/// The writing end of a ring.
pub struct Writer<'m> {
    memory: QueueMemory<'m>,
    section: Section,
    position: u32,
    count: u32,
}

/// The reading end of a ring.
pub struct Reader<'m> {
    memory: QueueMemory<'m>,
    section: Section,
    position: u32,
    count: u32,
}

impl<'m> Writer<'m> {
    fn new(memory: QueueMemory<'m>, section: Section) -> Self {
        Self { memory, section, position: 0, count: 0 }
    }

    /// Writes one message. Returns whether the reader sleeps and must be woken through its doorbell.
    ///
    /// # Errors
    /// [`QueueError`], with the ring unchanged.
    pub fn write(&mut self, message: &[u8]) -> Result<bool, QueueError> {
        let len = PACKET_HEADER + message.len();
        let padded = len.next_multiple_of(8);
        let ring = self.section.ring_bytes;
        if message.len() > MAX_MESSAGE || padded > self.section.max_packet() {
            return Err(QueueError::TooLarge);
        }
        // Acquire: the reader is done with the bytes before the position that it published, and whoever sees
        // a position sees the count that goes with it, or a later one.
        let read = self.state(self.section.read_state, POSITION).load(Ordering::Acquire) as usize;
        let read_count = self.state(self.section.read_state, COUNT).load(Ordering::Acquire);
        if read >= ring || !read.is_multiple_of(8) {
            return Err(QueueError::Corrupt);
        }
        let at = self.position as usize;
        let empty = read_count == self.count;
        let start = if at >= read || empty {
            // Free: at..ring, then 0..read; all if empty, and then `read`, loaded before the count, may be of
            // old. Equal positions mean full unless the counts say empty.
            if at == read && !empty {
                return Err(QueueError::Full);
            }
            let wrapped_end = if empty { at } else { read };
            if padded <= ring - at {
                at
            } else if padded <= wrapped_end {
                self.put_header(at, len, message.len());
                0
            } else {
                return Err(QueueError::Full);
            }
        } else if padded <= read - at {
            at
        } else {
            return Err(QueueError::Full);
        };
        self.put_header(start, len, message.len());
        // SAFETY: start + padded is inside the ring (checked above), which `QueueMemory::new` (1) vouches
        // for; the reader does not touch these bytes before the count below is published.
        unsafe { sync::copy_in(self.memory.base, self.section.ring + start + PACKET_HEADER, message) };
        self.position = ((start + padded) % ring) as u32;
        self.count = self.count.wrapping_add(1);
        self.state(self.section.write_state, POSITION).store(self.position, Ordering::Release);
        // SeqCst with the load of the waiting count: either we see the waiter, or it sees the new packet.
        self.state(self.section.write_state, COUNT).store(self.count, Ordering::SeqCst);
        Ok(self.state(self.section.read_state, WAITING).load(Ordering::SeqCst) > 0)
    }

    /// The word that the reader sleeps on.
    pub fn doorbell(&self) -> &AtomicU32 {
        self.state(self.section.write_state, COUNT)
    }

    fn put_header(&self, at: usize, len: usize, message: usize) {
        self.memory.word(self.section.ring + at).store(len as u32, Ordering::Relaxed);
        self.memory
            .word(self.section.ring + at + 4)
            .store(header_high(message, self.count), Ordering::Relaxed);
    }

    fn state(&self, line: usize, word: usize) -> &AtomicU32 {
        self.memory.word(line + word)
    }
}

impl<'m> Reader<'m> {
    fn new(memory: QueueMemory<'m>, section: Section) -> Self {
        Self { memory, section, position: 0, count: 0 }
    }

    /// Reads the next message into `out`; `None` if there is none yet.
    ///
    /// # Errors
    /// [`QueueError::Corrupt`] if the packet is not one that our writer could have written.
    pub fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, QueueError> {
        // Acquire: pairs with the publication of the count; the packet's bytes are visible.
        let pending = self.doorbell().load(Ordering::Acquire).wrapping_sub(self.count);
        if pending == 0 {
            return Ok(None);
        }
        let ring = self.section.ring_bytes;
        // More packets than fit: who drains the ring would otherwise read garbage up to 2^32 times.
        if pending as usize > ring / PACKET_HEADER {
            return Err(QueueError::Corrupt);
        }
        let mut at = self.position as usize;
        let mut len = self.memory.word(self.section.ring + at).load(Ordering::Relaxed) as usize;
        let padded = |len: usize| len.next_multiple_of(8);
        if len > MAX_MESSAGE + PACKET_HEADER {
            return Err(QueueError::Corrupt);
        }
        if padded(len) > ring - at {
            // A skip mark: the packet lies at the start.
            at = 0;
            len = self.memory.word(self.section.ring).load(Ordering::Relaxed) as usize;
        }
        // Read once above, checked here, used below: the writer may change the word under our feet.
        if !(PACKET_HEADER..=MAX_MESSAGE + PACKET_HEADER).contains(&len) || padded(len) > ring - at {
            return Err(QueueError::Corrupt);
        }
        let body = len - PACKET_HEADER;
        let high = self.memory.word(self.section.ring + at + 4).load(Ordering::Relaxed);
        if body > out.len() || high != header_high(body, self.count) {
            return Err(QueueError::Corrupt);
        }
        // SAFETY: at + len is inside the ring (checked above), which `QueueMemory::new` (1) vouches for. A
        // hostile writer may race with the copy; the bytes are plain data, checked by whoever decodes them.
        unsafe { sync::copy_out(self.memory.base, self.section.ring + at + PACKET_HEADER, &mut out[..body]) };
        self.position = ((at + padded(len)) % ring) as u32;
        self.count = self.count.wrapping_add(1);
        // Release: our reads of the packet are done before the writer may reuse its bytes. The count comes
        // first: a writer that sees the new position must not take an empty ring, where positions meet, for a
        // full one.
        self.memory.word(self.section.read_state + COUNT).store(self.count, Ordering::Release);
        self.memory.word(self.section.read_state + POSITION).store(self.position, Ordering::Release);
        Ok(Some(body))
    }

    /// The word that changes when a packet arrives: sleep on it while it equals [`seen`](Self::seen).
    pub fn doorbell(&self) -> &AtomicU32 {
        self.memory.word(self.section.write_state + COUNT)
    }

    /// Value of the doorbell when everything has been read.
    pub fn seen(&self) -> u32 {
        self.count
    }

    /// Announces that the reader is about to sleep (`true`) or is awake again (`false`).
    pub fn set_waiting(&self, waiting: bool) {
        // SeqCst, and a fence before the caller's next look at the doorbell, be that only an acquire: see
        // `Writer::write`.
        self.memory.word(self.section.read_state + WAITING).store(u32::from(waiting), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

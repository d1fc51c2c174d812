//! The ring: round trips at every length and position, two threads, lost wake-ups, and a hostile other side.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use hexflash_abi::queue::{
    FLAG_WAIT_COUNTS, MAX_MESSAGE, QUEUE_VERSION, QueueError, QueueLayout, QueueMemory, Reader,
    SECTION_ALIGN, Writer,
};
use proptest::collection::vec;
use proptest::prelude::*;

const CANARY: u32 = 0xa5a5_a5a5;
/// Canary sections before the queue and behind it.
const GUARD: usize = 2;

#[derive(Clone)]
#[repr(C, align(256))]
struct Line([u32; SECTION_ALIGN / 4]);

/// Queue memory between canaries, and the other side's view of it: plain words.
struct Memory {
    lines: Vec<Line>,
    layout: QueueLayout,
}

/// Byte offsets of one direction, as the queue's own header tells them.
#[derive(Clone, Copy)]
struct Offsets {
    ring: usize,
    ring_bytes: usize,
    read_state: usize,
    write_state: usize,
}

const POSITION: usize = 0;
const COUNT: usize = 4;
const WAITING: usize = 8;

impl Memory {
    fn new(request_bytes: usize, response_bytes: usize) -> Self {
        let layout = QueueLayout::new(request_bytes, response_bytes);
        let guard = vec![Line([CANARY; 64]); GUARD];
        let queue = vec![Line([0; 64]); layout.bytes() / SECTION_ALIGN];
        let memory = Self { lines: [guard.clone(), queue, guard].concat(), layout };
        memory.queue().initialise();
        memory
    }

    fn base(&self) -> *mut u8 {
        self.lines[GUARD..].as_ptr().cast_mut().cast()
    }

    fn queue(&self) -> QueueMemory<'_> {
        // SAFETY: aligned and alive for the borrow (1); each test takes one pair of ends at a time (2);
        // nothing else touches the queue's lines, but through the atomics of `word` (3).
        unsafe { QueueMemory::new(NonNull::new(self.base()).unwrap(), self.layout) }
    }

    fn word(&self, byte: usize) -> &AtomicU32 {
        assert!(byte + 4 <= self.layout.bytes());
        // SAFETY: the word is inside the queue, by the line above. Tests name multiples of 4, and the queue's
        // lines are aligned to more and alive for the borrow.
        unsafe { AtomicU32::from_ptr(self.base().add(byte).cast()) }
    }

    fn set(&self, byte: usize, value: u32) {
        self.word(byte).store(value, Ordering::SeqCst);
    }

    fn get(&self, byte: usize) -> u32 {
        self.word(byte).load(Ordering::SeqCst)
    }

    fn requests(&self) -> Offsets {
        let at = |word: usize| self.get(4 * word) as usize;
        Offsets { ring: at(3), ring_bytes: at(4), read_state: at(5), write_state: at(6) }
    }

    /// The two ends of the request ring.
    fn ends(&self) -> (Writer<'_>, Reader<'_>) {
        (self.queue().host_ends().0, self.queue().dsp_ends().0)
    }

    fn check_canaries(&self) {
        let guards = self.lines[..GUARD].iter().chain(&self.lines[self.lines.len() - GUARD..]);
        assert!(guards.flat_map(|line| line.0).all(|word| word == CANARY), "a write outside the queue");
    }
}

/// A message whose bytes depend on its length and its number. Every number is allowed.
fn message(len: usize, number: u32) -> Vec<u8> {
    (0..len).map(|i| (i as u32 * 31 + len as u32 * 7).wrapping_add(number) as u8).collect()
}

#[track_caller]
fn expect(reader: &mut Reader<'_>, message: &[u8]) {
    let mut out = [0xee; MAX_MESSAGE + 8];
    assert_eq!(reader.read(&mut out), Ok(Some(message.len())));
    assert_eq!(&out[..message.len()], message);
    assert!(out[message.len()..].iter().all(|&b| b == 0xee), "bytes past the message stay");
}

/// Moves both ends of an empty ring to `position`, by packets of 8 bytes.
fn advance(writer: &mut Writer<'_>, reader: &mut Reader<'_>, position: usize) {
    for _ in 0..position / 8 {
        writer.write(&[]).unwrap();
        expect(reader, &[]);
    }
}

#[test]
fn the_memory_is_laid_out_as_the_vendors_queue() {
    let memory = Memory::new(300, 1000);
    let words: Vec<_> = (0..12).map(|i| memory.get(4 * i)).collect();
    // version, error, flags; requests and responses {ring, bytes, reader's state, writer's state}; queues
    let expected = [2, 0, 1, 256, 512, 768, 1024, 1280, 1024, 2304, 2560, 1];
    assert_eq!(words, expected);
    assert_eq!((QUEUE_VERSION, FLAG_WAIT_COUNTS), (2, 1));
    assert_eq!(memory.layout.bytes(), 2816);

    let (mut writer, mut reader) = memory.ends();
    writer.write(b"0123456789").unwrap();
    // len 18 | MESSAGE << 32 | no buffers << 48 | seq 0 << 56, body, padding
    assert_eq!([memory.get(256), memory.get(260)], [18, 1]);
    assert_eq!([memory.get(264), memory.get(268)], [0x3332_3130, 0x3736_3534]);
    writer.write(&[]).unwrap();
    // No message, no flag; seq 1.
    assert_eq!([memory.get(280), memory.get(284)], [8, 1 << 24]);
    expect(&mut reader, b"0123456789");
    reader.set_waiting(true);
    // position, packet_count, wait_count: each line is written by one side.
    assert_eq!([memory.get(768), memory.get(772), memory.get(776)], [24, 1, 1]);
    assert_eq!([memory.get(1024), memory.get(1028), memory.get(1032)], [32, 2, 0]);
}

#[test]
fn a_queue_is_initialised_when_its_header_says_this_layout() {
    let memory = Memory::new(256, 512);
    assert!(memory.queue().is_initialised());
    for word in 0..12 {
        let old = memory.get(4 * word);
        memory.set(4 * word, old ^ 1);
        // The error word is news, not layout.
        assert_eq!(memory.queue().is_initialised(), word == 1, "header word {word}");
        memory.set(4 * word, old);
    }
    let zeroed = Memory::new(256, 512);
    zeroed.set(0, 0);
    assert!(!zeroed.queue().is_initialised());
}

#[test]
fn every_length_at_every_position() {
    for ring in [256, 512] {
        for position in (0..ring).step_by(8) {
            for len in 0..=ring / 2 - 8 {
                let memory = Memory::new(ring, 256);
                let (mut writer, mut reader) = memory.ends();
                advance(&mut writer, &mut reader, position);
                // An empty ring takes every message that it takes at all, wherever it stands.
                assert_eq!(writer.write(&message(len, 0)), Ok(false), "{len} bytes at {position} of {ring}");
                expect(&mut reader, &message(len, 0));
                assert_eq!(reader.read(&mut [0; MAX_MESSAGE]), Ok(None));
            }
        }
    }
}

#[test]
fn every_pair_of_lengths_at_every_position() {
    let ring = 256;
    for position in (0..ring).step_by(8) {
        for first in (0..=120).step_by(6) {
            for second in (0..=120).step_by(6) {
                let memory = Memory::new(ring, 256);
                let (mut writer, mut reader) = memory.ends();
                advance(&mut writer, &mut reader, position);
                let (first, second) = (message(first, 1), message(second, 2));
                writer.write(&first).unwrap();
                let fitted = writer.write(&second).is_ok();
                expect(&mut reader, &first);
                if !fitted {
                    writer.write(&second).unwrap();
                }
                expect(&mut reader, &second);
                memory.check_canaries();
            }
        }
    }
}

#[test]
fn full_and_empty() {
    let memory = Memory::new(256, 256);
    let (mut writer, mut reader) = memory.ends();
    for round in 0..5 {
        assert_eq!(reader.read(&mut [0; 64]), Ok(None));
        // 16 packets of 16 bytes fill the ring to the last byte.
        for i in 0..16 {
            assert_eq!(writer.write(&message(8, i)), Ok(false));
        }
        for _ in 0..3 {
            assert_eq!(writer.write(&[]), Err(QueueError::Full), "round {round}");
        }
        for i in 0..16 {
            expect(&mut reader, &message(8, i));
        }
    }
}

#[test]
fn too_large() {
    let memory = Memory::new(256, 256);
    let (mut writer, _) = memory.ends();
    assert_eq!(writer.write(&[0; 121]), Err(QueueError::TooLarge));
    assert_eq!(writer.write(&[0; 120]), Ok(false));
    let memory = Memory::new(65536, 256);
    let (mut writer, mut reader) = memory.ends();
    assert_eq!(writer.write(&[0; MAX_MESSAGE + 1]), Err(QueueError::TooLarge));
    writer.write(&message(MAX_MESSAGE, u32::MAX)).unwrap();
    expect(&mut reader, &message(MAX_MESSAGE, u32::MAX));
}

#[test]
fn both_directions_at_once() {
    let memory = Memory::new(256, 512);
    let ((mut requests, mut responses), (mut dsp_requests, mut dsp_responses)) =
        (memory.queue().host_ends(), memory.queue().dsp_ends());
    for i in 0..100 {
        requests.write(&message(48, i)).unwrap();
        expect(&mut dsp_requests, &message(48, i));
        dsp_responses.write(&message(64, i)).unwrap();
        expect(&mut responses, &message(64, i));
    }
    memory.check_canaries();
}

#[test]
fn the_doorbell_changes_with_every_packet() {
    let memory = Memory::new(256, 256);
    let (mut writer, mut reader) = memory.ends();
    for i in 0..100 {
        let before = reader.doorbell().load(Ordering::SeqCst);
        assert_eq!(before, reader.seen());
        writer.write(&message(8, i)).unwrap();
        assert_ne!(reader.doorbell().load(Ordering::SeqCst), reader.seen());
        assert!(std::ptr::eq(writer.doorbell(), reader.doorbell()));
        expect(&mut reader, &message(8, i));
    }
}

#[test]
fn write_tells_whether_the_reader_sleeps() {
    let memory = Memory::new(256, 256);
    let (mut writer, reader) = memory.ends();
    for waiting in [false, true, false, true] {
        reader.set_waiting(waiting);
        assert_eq!(writer.write(b"!"), Ok(waiting));
    }
}

#[test]
fn two_threads() {
    const MESSAGES: u32 = 100_000;
    let memory = Memory::new(1024, 256);
    let (mut writer, mut reader) = memory.ends();
    let len = |i: u32| (i.wrapping_mul(2_654_435_761) >> 20) as usize % 200;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..MESSAGES {
                while writer.write(&message(len(i), i)) == Err(QueueError::Full) {
                    std::thread::yield_now();
                }
            }
        });
        let mut out = [0; MAX_MESSAGE];
        for i in 0..MESSAGES {
            let n = loop {
                match reader.read(&mut out).expect("an honest writer") {
                    Some(n) => break n,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(out[..n], message(len(i), i), "message {i}");
        }
    });
    memory.check_canaries();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    /// Any mix of writes and reads behaves like a queue, and a ring that is empty is never full.
    #[test]
    fn like_a_queue(steps in vec((any::<bool>(), 0..=120usize), 1..200)) {
        let memory = Memory::new(256, 256);
        let (mut writer, mut reader) = memory.ends();
        let mut model = VecDeque::new();
        for (i, (write, len)) in steps.into_iter().enumerate() {
            let message = message(len, i as u32);
            if write {
                match writer.write(&message) {
                    Ok(_) => model.push_back(message),
                    Err(error) => prop_assert!(error == QueueError::Full && !model.is_empty()),
                }
            } else if let Some(expected) = model.pop_front() {
                expect(&mut reader, &expected);
            } else {
                prop_assert_eq!(reader.read(&mut [0; MAX_MESSAGE]), Ok(None));
            }
        }
        memory.check_canaries();
    }
}

/// The writer loads the reader's position and then its count, and the reader may store both in between: to
/// the writer the ring is empty, at a position of old.
#[test]
fn a_position_older_than_the_count_that_says_empty() {
    let ring = 256;
    for position in (0..ring).step_by(8) {
        for stale in (0..ring).step_by(8) {
            for len in (0..=120).step_by(24) {
                let memory = Memory::new(ring, 256);
                let (mut writer, mut reader) = memory.ends();
                advance(&mut writer, &mut reader, position);
                memory.set(memory.requests().read_state + POSITION, stale as u32);
                writer.write(&message(len, 5)).unwrap();
                expect(&mut reader, &message(len, 5));
            }
        }
    }
}

/// Words that rules of the ring change their mind about.
fn hostile_values(ring_bytes: u32) -> Vec<u32> {
    let near = [0, 1, 4, 7, 8, 9, 16, 31, 32, 33, MAX_MESSAGE as u32 + 8, MAX_MESSAGE as u32 + 9];
    let ends =
        [ring_bytes / 8, ring_bytes / 8 + 1, ring_bytes - 8, ring_bytes - 7, ring_bytes, ring_bytes + 8];
    [&near[..], &ends, &[1 << 24, 1 << 31, u32::MAX - 7, u32::MAX]].concat()
}

/// Reads until there is nothing left or the ring is found corrupt; the number of messages is bounded by the
/// ring.
fn drain(reader: &mut Reader<'_>, ring_bytes: usize) -> Result<usize, QueueError> {
    let mut out = [0xee; MAX_MESSAGE];
    let mut messages = 0;
    while let Some(len) = reader.read(&mut out)? {
        assert!(len <= MAX_MESSAGE);
        messages += 1;
        assert!(messages <= ring_bytes / 8, "more messages than the ring holds");
    }
    Ok(messages)
}

#[test]
fn a_hostile_writer_is_found_corrupt_or_read_safely() {
    for position in [0, 8, 128, 240, 248] {
        let probe = Memory::new(256, 256);
        let r = probe.requests();
        let header = r.ring + position;
        let victims =
            [header, header + 4, r.ring, r.ring + 4, r.write_state + POSITION, r.write_state + COUNT];
        for victim in victims {
            for value in hostile_values(r.ring_bytes as u32) {
                let memory = Memory::new(256, 256);
                let (mut writer, mut reader) = memory.ends();
                advance(&mut writer, &mut reader, position);
                writer.write(&message(24, 1)).unwrap();
                memory.set(victim, value);
                let _ = drain(&mut reader, r.ring_bytes);
                memory.check_canaries();
            }
        }
    }
}

#[test]
fn packets_that_no_writer_writes() {
    let corrupt = |word: usize, value: u32| {
        let memory = Memory::new(4096, 256);
        let (mut writer, mut reader) = memory.ends();
        writer.write(&message(24, 1)).unwrap();
        memory.set(memory.requests().ring + 4 * word, value);
        assert_eq!(reader.read(&mut [0; MAX_MESSAGE]), Err(QueueError::Corrupt), "word {word} = {value:#x}");
    };
    // Shorter than its header, longer than a message, longer than the ring.
    for len in [0, 7, MAX_MESSAGE as u32 + 9, 4096, u32::MAX] {
        corrupt(0, len);
    }
    // No message flag, unknown flag, buffers, another sequence number.
    for high in [0, 3, 1 | 1 << 16, 1 | 1 << 24] {
        corrupt(1, high);
    }
}

/// Short enough for a message, its flags and its sequence right: only the ring is too small for it.
#[test]
fn a_packet_longer_than_its_ring_is_corrupt() {
    for len in [257, 264, 8 + 512, 8 + MAX_MESSAGE as u32] {
        let memory = Memory::new(256, 256);
        let (mut writer, mut reader) = memory.ends();
        writer.write(&message(24, 1)).unwrap();
        memory.set(memory.requests().ring, len);
        assert_eq!(reader.read(&mut [0; MAX_MESSAGE]), Err(QueueError::Corrupt), "{len}");
    }
}

#[test]
fn a_message_larger_than_the_readers_buffer_is_corrupt() {
    let memory = Memory::new(256, 256);
    let (mut writer, mut reader) = memory.ends();
    writer.write(&message(49, 1)).unwrap();
    assert_eq!(reader.read(&mut [0; 48]), Err(QueueError::Corrupt));
}

#[test]
fn a_hostile_reader_is_found_corrupt_or_answered_safely() {
    let probe = Memory::new(256, 256);
    let r = probe.requests();
    for victim in [r.read_state + POSITION, r.read_state + COUNT, r.read_state + WAITING] {
        for value in hostile_values(r.ring_bytes as u32) {
            let memory = Memory::new(256, 256);
            let (mut writer, _reader) = memory.ends();
            for i in 0..40 {
                memory.set(victim, value);
                let written = writer.write(&message(i as usize * 3, i));
                let misplaced = value >= r.ring_bytes as u32 || value % 8 != 0;
                if victim == r.read_state + POSITION && misplaced {
                    assert_eq!(written, Err(QueueError::Corrupt));
                }
                memory.check_canaries();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    /// Any words anywhere, between any operations of both ends: no panic, no endless loop, nothing outside.
    #[test]
    fn hostile_memory(steps in vec((0..4u32, any::<prop::sample::Index>(), any::<u32>(), 0..32u32), 1..60)) {
        let memory = Memory::new(256, 256);
        let ring_bytes = memory.requests().ring_bytes;
        let (mut writer, mut reader) = memory.ends();
        for (action, place, value, shift) in steps {
            match action {
                0 => drop(writer.write(&message(value as usize % 140, value))),
                1 => drop(drain(&mut reader, ring_bytes)),
                // Small numbers as often as large ones.
                _ => memory.set(4 * place.index(memory.layout.bytes() / 4), value >> shift),
            }
        }
        memory.check_canaries();
    }
}

/// The protocol of sleeping, as a step machine over two shared words.
///
/// A reader announces itself, looks again, then sleeps on the doorbell (a futex: the kernel compares and
/// sleeps in one step). A writer publishes its packet, then looks for an announcement. All are in one total
/// order (SeqCst).
#[derive(Clone, Copy, Default)]
struct Protocol {
    doorbell: u32,
    waiting: bool,
    saw_packet: bool,
    asleep: bool,
}

type Step = fn(&mut Protocol);

const ANNOUNCE: Step = |p| p.waiting = true;
const LOOK: Step = |p| p.saw_packet = p.doorbell != 0;
const SLEEP: Step = |p| p.asleep = !p.saw_packet && p.doorbell == 0;
/// A sleep without the comparison.
const SLEEP_BLINDLY: Step = |p| p.asleep = !p.saw_packet;
const PUBLISH: Step = |p| p.doorbell += 1;
const WAKE: Step = |p| p.asleep &= !p.waiting;

/// Whether the reader can be left asleep with a packet, in some interleaving of the two sides' steps.
fn can_miss(state: Protocol, reader: &[Step], writer: &[Step]) -> bool {
    let then = |step: Step| {
        let mut next = state;
        step(&mut next);
        next
    };
    match (reader, writer) {
        ([], []) => state.asleep,
        _ => {
            reader.split_first().is_some_and(|(&step, rest)| can_miss(then(step), rest, writer))
                || writer.split_first().is_some_and(|(&step, rest)| can_miss(then(step), reader, rest))
        }
    }
}

#[test]
fn no_interleaving_misses_a_wake() {
    let start = Protocol::default();
    assert!(!can_miss(start, &[ANNOUNCE, LOOK, SLEEP], &[PUBLISH, WAKE]));
    // Two packets, one of which came before.
    assert!(!can_miss(start, &[ANNOUNCE, LOOK, SLEEP], &[PUBLISH, WAKE, PUBLISH, WAKE]));
}

#[test]
fn the_model_tells_protocols_that_miss_a_wake() {
    let start = Protocol::default();
    assert!(can_miss(start, &[LOOK, SLEEP, ANNOUNCE], &[PUBLISH, WAKE]), "announced after sleeping");
    assert!(can_miss(start, &[LOOK, ANNOUNCE, SLEEP_BLINDLY], &[PUBLISH, WAKE]), "looked before announcing");
    assert!(can_miss(start, &[ANNOUNCE, LOOK, SLEEP], &[WAKE, PUBLISH]), "looked for sleepers too early");
}

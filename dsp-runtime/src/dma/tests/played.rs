//! The queue on an engine that the test plays: it sets done bits and moves nothing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::super::*;

/// What the engine does with one descriptor in place of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slip {
    None,
    Error,
    Stop,
    Never,
    /// The descriptor behind it is done first.
    Overtaken,
}

struct Played {
    /// Descriptors in the order of their linking, with what their words were.
    linked: Mutex<Vec<(&'static Descriptor, [u32; 4])>>,
    done: AtomicUsize,
    paused: AtomicUsize,
    clock: AtomicU64,
    slip: (usize, Slip),
}

impl Played {
    fn new(at: usize, slip: Slip) -> &'static Self {
        Box::leak(Box::new(Self {
            linked: Mutex::default(),
            done: AtomicUsize::new(0),
            paused: AtomicUsize::new(0),
            clock: AtomicU64::new(0),
            slip: (at, slip),
        }))
    }

    fn queue(&'static self) -> DmaQueue {
        let ring = Box::leak(Box::new(Ring::new()));
        DmaQueue::on(Some(Channel { engine: self, ring }))
    }

    fn linked(&self) -> std::sync::MutexGuard<'_, Vec<(&'static Descriptor, [u32; 4])>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }
}

impl Engine for Played {
    unsafe fn link(&self, tail: &'static Descriptor, new: &'static Descriptor) {
        let mut linked = self.linked();
        let under_way = &linked[self.done()..];
        assert!(
            !under_way.iter().any(|(other, _)| std::ptr::eq(*other, new)),
            "written while it is under way"
        );
        if let Some((last, _)) = linked.last() {
            assert!(std::ptr::eq(*last, tail), "linked to what is not the end");
        }
        assert!(core::ptr::from_ref(new).addr().is_multiple_of(64));
        let words = [1, 2, 3, 5].map(|i| new.0[i].load(Ordering::Relaxed));
        assert_eq!(new.0[0].load(Ordering::Relaxed), 0, "the end of the chain");
        linked.push((new, words));
    }

    fn poll(&self) -> StatusWord {
        let (next, linked) = (self.done(), self.linked());
        let slip = if next == self.slip.0 { self.slip.1 } else { Slip::None };
        match (linked.get(next), slip) {
            (None, _) => StatusWord(0x10),
            (_, Slip::Stop) => StatusWord(0x20),
            (_, Slip::Error) => StatusWord(0x32),
            (_, Slip::Never) => StatusWord(0x41),
            (Some((descriptor, _)), Slip::Overtaken) => {
                let (behind, _) = &linked[next + 1];
                if behind.0[1].fetch_or(1 << 31, Ordering::Release) >> 31 == 1 {
                    descriptor.0[1].fetch_or(1 << 31, Ordering::Release);
                    self.done.fetch_add(2, Ordering::Relaxed);
                }
                StatusWord(1)
            }
            (Some((descriptor, _)), Slip::None) => {
                descriptor.0[1].fetch_or(1 << 31, Ordering::Release);
                self.done.fetch_add(1, Ordering::Relaxed);
                StatusWord(u32::from(linked.len() > next + 1))
            }
        }
    }

    fn pause(&self) {
        self.paused.fetch_add(1, Ordering::Relaxed);
    }

    fn now_us(&self) -> u64 {
        self.clock.fetch_add(1000, Ordering::Relaxed)
    }
}

fn linear(i: usize) -> Transfer {
    let at = 0x1000 * (i + 1);
    Transfer::linear(std::ptr::without_provenance(at), std::ptr::without_provenance_mut(at + 0x800), 64)
}

fn push(queue: &mut DmaQueue, transfer: Transfer) -> Ticket {
    // SAFETY: the queue is on a played engine, which neither reads nor writes the bytes of a transfer.
    unsafe { queue.push(transfer) }
}

#[test]
fn a_wait_is_for_all_up_to_its_ticket_and_no_more() {
    let engine = Played::new(0, Slip::None);
    let mut queue = engine.queue();
    let tickets: Vec<_> = (0..8).map(|i| push(&mut queue, linear(i))).collect();
    assert_eq!(engine.done(), 0, "it is the engine that does them");
    for (wait, done) in [(3, 4), (1, 4), (3, 4), (4, 5)] {
        queue.wait(tickets[wait]).unwrap();
        assert_eq!(engine.done(), done);
    }
    // Nothing to move: nothing to wait for but what is under way.
    let before = engine.linked().len();
    let empty = push(&mut queue, Transfer { row_bytes: 0, ..linear(1) });
    assert_eq!(engine.linked().len(), before);
    queue.wait(empty).unwrap();
    queue.finish().unwrap();
    assert_eq!(engine.done(), 8);
    assert_eq!(queue.take_moved(), 8 * 64);
}

#[test]
fn a_full_ring_waits_for_its_oldest_descriptor() {
    let engine = Played::new(0, Slip::None);
    let mut queue = engine.queue();
    for i in 0..3 * DEPTH + 5 {
        let _ = push(&mut queue, linear(i));
        assert_eq!(engine.done(), (i + 1).saturating_sub(DEPTH));
    }
    queue.finish().unwrap();
    let words: Vec<_> = engine.linked().iter().map(|(_, words)| words[1]).collect();
    assert_eq!(words, (0..3 * DEPTH + 5).map(|i| 0x1000 * (i as u32 + 1)).collect::<Vec<_>>());
}

#[test]
fn rows_that_no_descriptor_can_say_are_transfers_of_their_own() {
    let engine = Played::new(0, Slip::None);
    let mut queue = engine.queue();
    let wide = Transfer { row_bytes: 256, rows: 3, src_stride: 1 << 20, dst_stride: 0x300, ..linear(0) };
    let ticket = push(&mut queue, wide);
    queue.wait(ticket).unwrap();
    let words: Vec<_> = engine.linked().iter().map(|(_, words)| *words).collect();
    let row = |i: u32| [256 | 1 << 31, 0x1000 + (i << 20), 0x1800 + 0x300 * i, 0];
    let expected: Vec<_> = (0..3).map(row).map(|[w, src, dst, s]| [w & !(1 << 31), src, dst, s]).collect();
    assert_eq!(words, expected);
    assert_eq!((engine.done(), queue.take_moved()), (3, 768));
    queue.finish().unwrap();
}

#[test]
fn an_engine_that_fails_stops_or_hangs_is_a_fault_and_is_not_used_again() {
    for (slip, code, detail) in [
        (Slip::Error, ErrorCode::DmaError, Some(0x32)),
        (Slip::Stop, ErrorCode::DmaError, Some(0x20)),
        (Slip::Never, ErrorCode::DmaTimeout, None),
    ] {
        let engine = Played::new(5, slip);
        let mut queue = engine.queue();
        let tickets: Vec<_> = (0..8).map(|i| push(&mut queue, linear(i))).collect();
        queue.wait(tickets[4]).unwrap();
        let fault = queue.wait(tickets[6]).unwrap_err();
        assert_eq!(fault.code, code, "{slip:?}");
        match detail {
            Some(detail) => assert_eq!(fault.detail, detail),
            None => assert!((PATIENCE_US..2 * PATIENCE_US).contains(&fault.detail.into()), "{fault}"),
        }
        assert_eq!(engine.paused.load(Ordering::Relaxed), 1, "{slip:?}");
        // From then on all fails, and nothing is started.
        let later = push(&mut queue, linear(9));
        for ticket in [tickets[7], later] {
            assert_eq!(queue.wait(ticket), Err(fault));
        }
        for i in 0..2 * DEPTH {
            let _ = push(&mut queue, linear(i));
        }
        assert_eq!(queue.finish(), Err(fault));
        assert_eq!((engine.linked().len(), engine.done()), (8, 5), "{slip:?}");
    }
}

/// Also where the failure shows while room is made in a full ring.
#[test]
fn a_failure_that_a_push_meets_is_told_by_the_next_wait() {
    let engine = Played::new(0, Slip::Error);
    let mut queue = engine.queue();
    let tickets: Vec<_> = (0..DEPTH + 1).map(|i| push(&mut queue, linear(i))).collect();
    assert_eq!(engine.linked().len(), DEPTH);
    assert_eq!(queue.wait(tickets[DEPTH]).unwrap_err().detail, 0x32);
}

#[test]
fn no_engine_and_no_address_are_faults() {
    let mut queue = DmaQueue::on(None);
    let ticket = push(&mut queue, linear(0));
    assert_eq!(queue.wait(ticket), Err(Fault::new(ErrorCode::DmaError, NO_ENGINE)));
    let engine = Played::new(0, Slip::None);
    let mut queue = engine.queue();
    let far = Transfer { src: std::ptr::without_provenance(1 << 33), ..linear(0) };
    let ticket = push(&mut queue, far);
    assert_eq!(queue.wait(ticket), Err(Fault::new(ErrorCode::DmaError, NOT_ADDRESSABLE)));
    assert_eq!(engine.linked().len(), 0);
}

#[test]
fn who_overtakes_is_seen() {
    for (slip, overtaken, outcome) in [
        (Slip::None, false, Ok(())),
        (Slip::Overtaken, true, Ok(())),
        (Slip::Error, false, Err(ErrorCode::DmaError)),
        (Slip::Stop, false, Err(ErrorCode::DmaError)),
        (Slip::Never, false, Err(ErrorCode::DmaTimeout)),
    ] {
        let mut queue = Played::new(0, slip).queue();
        let [long, short] = [0, 1].map(|i| push(&mut queue, linear(i)));
        assert_eq!(queue.overtakes(short, long), overtaken, "{slip:?}");
        assert_eq!(queue.wait(short).map_err(|fault| fault.code), outcome, "{slip:?}");
        assert_eq!(queue.wait(long).map_err(|fault| fault.code), outcome, "{slip:?}");
    }
    let mut software = DmaQueue::new(DmaMode::OutOfOrder);
    let (from, mut to) = ([1_u8, 2], [0; 2]);
    let to = to.as_mut_ptr();
    // SAFETY: both arrays live on, and nobody looks at the byte that both write.
    let tickets = from.each_ref().map(|byte| unsafe { software.push(Transfer::linear(byte, to, 1)) });
    assert!(!software.by_engine() && !software.overtakes(tickets[1], tickets[0]));
    software.finish().unwrap();
}

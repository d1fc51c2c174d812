//! The queue in software, and on an engine that a test plays.

mod played;

use super::*;

const MODES: [DmaMode; 3] = [DmaMode::AtOnce, DmaMode::AtWait, DmaMode::OutOfOrder];

/// Pushes a copy of each byte of `from` to the same place of `to`.
fn push_all(queue: &mut DmaQueue, from: &[u8], to: &mut [u8]) -> Vec<Ticket> {
    let to = to.as_mut_ptr();
    // SAFETY: `to` has as many bytes as `from`, and the callers keep both until all is done. The transfers
    // happen in this thread, inside `push`, `wait` and `finish`, so that a test may look at the bytes between
    // these calls.
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
    // SAFETY: `to` points to the one byte of the array, which lives, and both transfers are done after a wait
    // in this mode.
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
        // SAFETY: two rows of 2 bytes lie at 0 and 3 of `from`, which has 6, and at 0 and 5 of `to`, which
        // has 8; nobody else uses them before the wait.
        let ticket = unsafe { queue.push(t) };
        queue.wait(ticket).unwrap();
        assert_eq!(to, [1, 2, 0, 0, 0, 3, 4, 0], "{mode:?}");
        assert_eq!(queue.take_moved(), 4);
    }
}

#[test]
fn the_first_fault_stays_until_it_is_taken() {
    let slot = FirstFault::new();
    assert_eq!(slot.take(), Ok(()));
    let (first, second) = (Fault::new(ErrorCode::BadRowIndex, 7), Fault::new(ErrorCode::DmaError, 8));
    slot.report(first);
    slot.report(second);
    assert_eq!(slot.take(), Err(first));
    assert_eq!(slot.take(), Ok(()));
}

/// Rows of all lengths around those from which copies are made in another way, at any address.
#[test]
fn rows_of_any_length_arrive_and_nothing_else() {
    let from: Vec<u8> = (0..4200u32).map(|i| (i % 251) as u8 + 1).collect();
    for bytes in [1, 1000, 1023, 1024, 1025, 4096, 4100] {
        for (src, dst) in [(0, 0), (64, 7), (3, 64), (5, 5)] {
            let (mut queue, mut to) = (DmaQueue::new(DmaMode::AtOnce), vec![0u8; 4200]);
            let row = &from[src..src + bytes];
            let target = to[dst..dst + bytes].as_mut_ptr();
            // SAFETY: both slices have so many bytes, in allocations of their own, and live on; nobody looks
            // at them before the queue is done.
            let ticket = unsafe { queue.push(Transfer::linear(row.as_ptr(), target, bytes)) };
            queue.wait(ticket).unwrap();
            assert!(to[dst..dst + bytes] == *row && to[..dst].iter().all(|&b| b == 0));
            assert!(to[dst + bytes..].iter().all(|&b| b == 0), "{bytes} bytes from {src} to {dst}");
        }
    }
}

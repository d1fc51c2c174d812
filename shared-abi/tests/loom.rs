//! The queue in all orders that its two threads may take: `cargo xtask loom`.
#![cfg(loom)]

use std::ptr::NonNull;

use hexflash_abi::queue::{QueueError, QueueLayout, QueueMemory, Reader, Writer};
use hexflash_abi::sync::{AtomicU32, Ordering};
use loom::thread;

/// Rings of 256 bytes.
const LAYOUT: QueueLayout = QueueLayout::new(256, 256);

/// A queue in words of loom, which nobody gives back: a model runs in one process thousands of times, and is
/// small.
fn queue() -> QueueMemory<'static> {
    let words: Vec<_> = (0..LAYOUT.bytes() / 4).map(|_| AtomicU32::new(0)).collect();
    let base = NonNull::from(words.leak()).cast();
    // SAFETY: an array of as many words as the layout has, for ever, with one writer and one reader per ring.
    let queue = unsafe { QueueMemory::new(base, LAYOUT) };
    queue.initialise();
    queue
}

fn model(preemptions: usize, work: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(work);
}

fn send(writer: &mut Writer<'_>, message: &[u8]) -> bool {
    loop {
        match writer.write(message) {
            Ok(wake) => return wake,
            Err(QueueError::Full) => thread::yield_now(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn receive(reader: &mut Reader<'_>) -> Vec<u8> {
    let mut message = [0; 128];
    loop {
        match reader.read(&mut message).unwrap() {
            Some(len) => return message[..len].to_vec(),
            None => thread::yield_now(),
        }
    }
}

/// Messages arrive whole and in order, whatever the ring's positions are. Two messages of 120 bytes fill it.
fn in_order(bytes: usize, messages: u8) {
    model(3, move || {
        let queue = queue();
        let ((mut writer, _), (mut reader, _)) = (queue.host_ends(), queue.dsp_ends());
        let sender = thread::spawn(move || {
            for n in 1..=messages {
                send(&mut writer, &vec![n; bytes]);
            }
        });
        for n in 1..=messages {
            assert_eq!(receive(&mut reader), vec![n; bytes]);
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_full_ring() {
    in_order(120, 3);
}

/// The second message wraps after a skip mark.
#[test]
fn a_ring_that_wraps() {
    in_order(90, 3);
}

/// Reading makes room, and never seems to take some: a ring with one message has room for another, also while
/// that one is read and its end is where the writer stands.
#[test]
fn reading_takes_no_room() {
    model(4, || {
        let queue = queue();
        let ((mut writer, _), (mut reader, _)) = (queue.host_ends(), queue.dsp_ends());
        writer.write(&[1; 120]).unwrap();
        assert_eq!(receive(&mut reader), [1; 120]);
        writer.write(&[2; 120]).unwrap();
        let receiver = thread::spawn(move || assert_eq!(receive(&mut reader), [2; 120]));
        writer.write(&[3; 120]).unwrap();
        receiver.join().unwrap();
    });
}

/// Either the writer is told to wake the reader, or the reader sees the message before it sleeps.
#[test]
fn no_wake_is_lost() {
    model(4, || {
        let queue = queue();
        let ((mut writer, _), (reader, _)) = (queue.host_ends(), queue.dsp_ends());
        let sender = thread::spawn(move || send(&mut writer, &[7; 8]));
        reader.set_waiting(true);
        // As the DSP side looks before it sleeps: see `hexflash_dsp::serve`.
        let seen = reader.doorbell().load(Ordering::SeqCst) != reader.seen();
        let told = sender.join().unwrap();
        assert!(seen || told, "the reader sleeps, and nobody wakes it");
    });
}

/// As above, with a second look that is no more than an acquire: the fence in `set_waiting` is what counts.
#[test]
fn a_futex_may_look_with_acquire() {
    model(4, || {
        let queue = queue();
        let ((mut writer, _), (reader, _)) = (queue.host_ends(), queue.dsp_ends());
        let sender = thread::spawn(move || send(&mut writer, &[7; 8]));
        reader.set_waiting(true);
        let seen = reader.doorbell().load(Ordering::Acquire) != reader.seen();
        let told = sender.join().unwrap();
        assert!(seen || told, "the reader sleeps, and nobody wakes it");
    });
}

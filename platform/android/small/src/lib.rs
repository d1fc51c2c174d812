//! The half of the small program that is a library, also a shared one, whose link is checked, too.

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Number that a thread collects, and sends when it ends.
struct Collected(Sender<u32>, u32);

impl Drop for Collected {
    fn drop(&mut self) {
        // Who asked has gone, and nobody misses the sum.
        let _ = self.0.send(self.1);
    }
}

thread_local! {
    static COLLECTED: RefCell<Option<Collected>> = const { RefCell::new(None) };
}

/// The sum of the numbers below `end`, for programs that load the library; `u32::MAX` after a panic.
#[unsafe(no_mangle)]
pub extern "C" fn hexflash_small_sum(end: u32) -> u32 {
    std::panic::catch_unwind(|| sum_by_threads(end)).unwrap_or(u32::MAX)
}

/// The sum of the numbers below `end`, by a thread for each of four parts: each keeps its sum in a
/// thread-local, and sends it when that is dropped.
pub fn sum_by_threads(end: u32) -> u32 {
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        for part in 0..4 {
            let sender = sender.clone();
            scope.spawn(move || {
                COLLECTED.set(Some(Collected(sender, 0)));
                for number in (part..end).step_by(4) {
                    COLLECTED.with_borrow_mut(|it| it.iter_mut().for_each(|it| it.1 += number));
                }
            });
        }
    });
    drop(sender);
    receiver.iter().sum()
}

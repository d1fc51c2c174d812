//! An allocator that counts, so that a test can say that answering a message allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counter any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: `layout` is one that an allocator may be given, not of size zero (the caller's contract,
        // which the system's allocator has too).
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: `p` was allocated by this allocator, which is the system's, with this layout (the caller's
        // contract).
        unsafe { System.dealloc(p, layout) }
    }
}

/// Allocations of this thread so far.
pub fn allocations() -> u64 {
    COUNT.get()
}

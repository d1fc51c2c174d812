//! Memory in which nothing is 0 by chance: behind a text of the host's that has no NUL there is none either.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

/// The allocator of this program. What it gives is filled, and so are some bytes behind it.
struct Filled;

#[global_allocator]
static ALLOCATOR: Filled = Filled;

const FILL: u8 = 0xa5;
/// Bytes behind each piece.
const BEHIND: usize = 16;
/// Largest piece that is filled as a whole: larger ones are no texts.
const WHOLE: usize = 1 << 16;

/// The layout of a piece and what is behind it.
fn longer(layout: Layout) -> Option<Layout> {
    Layout::from_size_align(layout.size().checked_add(BEHIND)?, layout.align()).ok()
}

// SAFETY: pieces come from `System`, with a layout that follows from the caller's alone, so that they go back
// with the one they came with; the caller's bytes are the first ones, aligned as it asked.
unsafe impl GlobalAlloc for Filled {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(longer) = longer(layout) else { return null_mut() };
        // SAFETY: the layout has `BEHIND` bytes at least.
        let at = unsafe { System.alloc(longer) };
        if !at.is_null() {
            let filled = if layout.size() <= WHOLE { 0 } else { layout.size() };
            // SAFETY: the piece has `longer.size()` bytes.
            unsafe { at.add(filled).write_bytes(FILL, longer.size() - filled) };
        }
        at
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if let Some(longer) = longer(layout) {
            // SAFETY: `alloc` has made the piece, with the layout that follows from the caller's.
            unsafe { System.dealloc(at, longer) };
        }
    }
}

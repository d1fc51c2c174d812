//! Memory between pages that nobody may touch: whoever leaves it is stopped there, reading or writing.
//!
//! ```text
//! forbidden page | canary | bytes, from a multiple of 128 | canary, less than 128 | forbidden page
//! ```
//! What is written into the canary is found by [`Guarded::is_whole`].

use std::ptr::NonNull;

use hexflash_abi::VECTOR_BYTES;

/// What memory is filled with at first, and what stays around it.
pub const CANARY: u8 = 0xa5;

/// Bytes between canaries and forbidden pages.
#[derive(Debug)]
pub struct Guarded {
    /// Everything, forbidden pages included.
    all: NonNull<u8>,
    all_bytes: usize,
    page: usize,
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: an owned mapping; what threads do with its bytes at the same time is up to whoever has the pointer.
unsafe impl Send for Guarded {}
// SAFETY: `&Guarded` gives the bytes to read; they are written through `&mut` or through the pointer of
// `base`, by unsafe code that answers for other threads.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// `size` bytes of canary.
    ///
    /// # Panics
    /// If the system has no memory left.
    pub fn new(size: usize) -> Self {
        let page = pages::size();
        let lines = size.next_multiple_of(VECTOR_BYTES);
        let all_bytes = lines.next_multiple_of(page) + 2 * page;
        let all = pages::map(all_bytes);
        // SAFETY: `all_bytes` from `all` on are mapped and nobody else's. They begin and end with a page, of
        // `page` bytes each, and `lines` is at most what lies between.
        let base = unsafe {
            all.add(page).write_bytes(CANARY, all_bytes - 2 * page);
            pages::forbid(all, page);
            pages::forbid(all.add(all_bytes - page), page);
            all.add(all_bytes - page - lines)
        };
        Self { all, all_bytes, page, base, size }
    }

    /// First byte, a multiple of 128.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The bytes as they are. Nothing else may write them meanwhile.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `size` bytes from `base` on lie between the forbidden pages, and `new` has written all of
        // them. Who writes them through the pointer of `base` answers for slices that live.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.size) }
    }

    /// The bytes, to be changed. Nothing else may use them meanwhile.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `size` bytes from `base` on lie between the forbidden pages, and `new` has written all of
        // them. They are borrowed exclusively, and who uses the pointer of `base` answers for slices that
        // live.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.size) }
    }

    /// Whether nobody has written around the bytes.
    pub fn is_whole(&self) -> bool {
        let open = self.all_bytes - 2 * self.page;
        let before = self.base.addr().get() - self.all.addr().get() - self.page;
        // SAFETY: `open` bytes lie between the forbidden pages, all written by `new`: these are the `before`
        // in front of the `size` bytes, and those that are left behind them.
        let (before, after) = unsafe {
            let (front, back) = (self.all.add(self.page), self.base.add(self.size));
            (
                std::slice::from_raw_parts(front.as_ptr(), before),
                std::slice::from_raw_parts(back.as_ptr(), open - before - self.size),
            )
        };
        [before, after].iter().all(|canary| canary.iter().all(|&b| b == CANARY))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: `pages::map` made `all`, with `all_bytes`. Who uses the pointer of `base` later than this
        // does so by unsafe code, which answers for it.
        unsafe { pages::unmap(self.all, self.all_bytes) };
    }
}

/// Pages of the system, through the C library: there the sanitizers see what is mapped and unmapped.
#[cfg(all(unix, not(miri)))]
mod pages {
    use std::ptr::{NonNull, null_mut};

    pub fn size() -> usize {
        // SAFETY: `sysconf` takes any number, and touches none of our memory.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("pages have a size")
    }

    pub fn map(bytes: usize) -> NonNull<u8> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: this asks for a new mapping at an address of the system's choice, and touches no other.
        let all = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
        assert_ne!(all, libc::MAP_FAILED, "no memory");
        NonNull::new(all.cast()).expect("the system maps nothing at 0")
    }

    /// # Safety
    /// `page` and `bytes` are whole pages of a mapping made by `map`, which nobody uses.
    pub unsafe fn forbid(page: NonNull<u8>, bytes: usize) {
        // SAFETY: these are mapped pages of `map`'s that hold nothing and that no reference points into (the
        // caller's contract).
        let failed = unsafe { libc::mprotect(page.as_ptr().cast(), bytes, libc::PROT_NONE) };
        assert_eq!(failed, 0, "a mapped page can be forbidden");
    }

    /// # Safety
    /// `all` was made by `map` with as many `bytes`, and is used no more.
    pub unsafe fn unmap(all: NonNull<u8>, bytes: usize) {
        // SAFETY: `all` and `bytes` are a mapping of `map`'s that is used no more (the caller's contract).
        // Nothing can be done about a failure.
        let _ = unsafe { libc::munmap(all.as_ptr().cast(), bytes) };
    }
}

/// Without pages to forbid there are only canaries.
#[cfg(not(all(unix, not(miri))))]
mod pages {
    use std::alloc::{Layout, alloc, dealloc};
    use std::ptr::NonNull;

    const PAGE: usize = 4096;

    pub fn size() -> usize {
        PAGE
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE).expect("a size that fits memory")
    }

    pub fn map(bytes: usize) -> NonNull<u8> {
        // SAFETY: the layout's size is not zero: `Guarded::new` asks for two pages at least.
        NonNull::new(unsafe { alloc(layout(bytes)) }).expect("no memory")
    }

    /// # Safety
    /// None.
    pub unsafe fn forbid(_page: NonNull<u8>, _bytes: usize) {}

    /// # Safety
    /// `all` was made by `map` with as many `bytes`, and is used no more.
    pub unsafe fn unmap(all: NonNull<u8>, bytes: usize) {
        // SAFETY: `alloc` made `all` with this same layout, and it is used no more (the caller's contract).
        unsafe { dealloc(all.as_ptr(), layout(bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_end_within_a_line_of_the_forbidden_page() {
        for size in [0, 1, 127, 128, 129, 4096, 100_000] {
            let mut memory = Guarded::new(size);
            assert_eq!(memory.base().addr().get() % VECTOR_BYTES, 0);
            let end = memory.base().addr().get() + size.next_multiple_of(VECTOR_BYTES);
            assert_eq!(end, memory.all.addr().get() + memory.all_bytes - memory.page);
            memory.bytes_mut().fill(0);
            assert!(memory.is_whole());
        }
    }

    #[test]
    fn writes_around_the_bytes_are_seen() {
        for offset in [-1, 100] {
            let memory = Guarded::new(100);
            // SAFETY: canary on both sides: a page is longer than a line, and 100 bytes are no whole line.
            unsafe { memory.base().offset(offset).write(0) };
            assert!(!memory.is_whole(), "{offset}");
        }
    }
}

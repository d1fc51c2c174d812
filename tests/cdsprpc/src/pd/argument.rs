//! Arguments of a call: each a copy that ends right before a page which nobody may touch, so that whoever
//! goes beyond its length is stopped there, reading or writing.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::param::page_size;

/// The bytes of an argument.
pub(crate) struct Argument {
    /// The pages: first those that may be touched, then one that may not.
    all: NonNull<u8>,
    all_bytes: usize,
    bytes: usize,
}

impl Argument {
    /// A copy of an argument's bytes.
    ///
    /// # Panics
    /// There is no memory.
    pub(crate) fn new(contents: &[u8]) -> Self {
        let open = contents.len().max(1).next_multiple_of(page_size());
        let all_bytes = open + page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the system's choice; it touches no other.
        let all = unsafe { rustix::mm::mmap_anonymous(null_mut(), all_bytes, access, MapFlags::PRIVATE) };
        let all = NonNull::new(all.expect("memory for an argument").cast::<u8>()).expect("no page is at 0");
        // SAFETY: the mapping's last page, in which nothing lies.
        unsafe {
            let last = all.as_ptr().add(open).cast::<c_void>();
            rustix::mm::mprotect(last, page_size(), MprotectFlags::empty()).expect("a mapped page");
        }
        let mut new = Self { all, all_bytes, bytes: contents.len() };
        new.bytes_mut().copy_from_slice(contents);
        new
    }

    /// The bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.all_bytes - page_size();
        // SAFETY: `bytes` bytes lie before the mapping's last page, zeroed or written, and are borrowed
        // exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.all.as_ptr().add(end - self.bytes), self.bytes) }
    }
}

impl Drop for Argument {
    fn drop(&mut self) {
        // SAFETY: `new` has made the mapping, of as many bytes, and nobody has a reference into it any more.
        let _ = unsafe { rustix::mm::munmap(self.all.as_ptr().cast(), self.all_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_ends_where_the_forbidden_page_begins() {
        for bytes in [0, 1, 31, 4096, page_size(), page_size() + 1] {
            let contents: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
            let mut argument = Argument::new(&contents);
            assert_eq!(argument.bytes_mut(), contents);
            let end = argument.bytes_mut().as_ptr_range().end.addr();
            assert_eq!(end, argument.all.addr().get() + argument.all_bytes - page_size());
        }
    }
}

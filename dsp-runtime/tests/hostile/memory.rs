//! Memory between canaries, with a shadow that shows every write.

use std::ptr::NonNull;

use crate::random::Random;

#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line([u8; 128]);

/// Lines of canary on each side: a page.
const GUARD: usize = 32;
const CANARY: u8 = 0xa5;

/// Bytes that a session may use, a page of canary before and after.
pub struct Guarded {
    lines: NonNull<[Line]>,
    size: usize,
    shadow: Vec<u8>,
}

// SAFETY: an owned allocation; what threads do with its bytes at the same time is the tests' business.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    pub fn new(size: usize) -> Self {
        let lines = vec![Line([CANARY; 128]); size.div_ceil(128) + 2 * GUARD].into_boxed_slice();
        let lines = NonNull::from(Box::leak(lines));
        Self { lines, size, shadow: vec![CANARY; size] }
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// First byte, aligned to 128.
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: the guard lies in front of it.
        unsafe { self.lines.cast::<Line>().add(GUARD).cast() }
    }

    /// The bytes as they are. Nothing else may write them meanwhile.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `size` bytes behind the guard.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.size) }
    }

    /// Writes as the host does.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.size);
        self.shadow[at..at + data.len()].copy_from_slice(data);
        // SAFETY: inside, per the assertion.
        unsafe { std::ptr::copy(data.as_ptr(), self.base().as_ptr().add(at), data.len()) };
    }

    /// Fills everything with floats, awkward ones among them, some small integers and some garbage.
    pub fn fill(&mut self, random: &mut Random) {
        let words = (0..self.size / 4).map(|_| match random.below(20) {
            0 => random.below(8) as u32,
            1 => random.next() as u32,
            _ => random.float(),
        });
        let data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        self.write(0, &data);
    }

    /// Whether the guards are whole.
    pub fn guarded(&self) -> bool {
        let all = self.lines.cast::<u8>().as_ptr();
        let (before, after) = (GUARD * 128, self.lines.len() * 128 - GUARD * 128 - self.size);
        // SAFETY: the lines before the bytes, and everything after the last of them.
        let guards = unsafe {
            [
                std::slice::from_raw_parts(all, before),
                std::slice::from_raw_parts(all.add(before + self.size), after),
            ]
        };
        guards.iter().all(|guard| guard.iter().all(|&b| b == CANARY))
    }

    /// The first byte that differs from the shadow where `may` does not allow it; then the shadow follows.
    pub fn stray_write(&mut self, may: &Marks) -> Option<usize> {
        // SAFETY: as in `bytes`; the shadow is another field.
        let now = unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.size) };
        let mut at = 0;
        let mut ranges = may.0.clone();
        ranges.sort_unstable();
        for (start, end) in ranges {
            if at < start && now[at..start] != self.shadow[at..start] {
                return (at..start).find(|&i| now[i] != self.shadow[i]);
            }
            at = at.max(end);
        }
        if now[at..] != self.shadow[at..] {
            return (at..self.size).find(|&i| now[i] != self.shadow[i]);
        }
        for &(start, end) in &may.0 {
            self.shadow[start..end].copy_from_slice(&now[start..end]);
        }
        None
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and nothing keeps a pointer past the test.
        drop(unsafe { Box::from_raw(self.lines.as_ptr()) });
    }
}

/// Byte ranges that may change.
#[derive(Clone, Default)]
pub struct Marks(pub Vec<(usize, usize)>);

impl Marks {
    /// Whether any range touches `start..end`.
    pub fn meets(&self, start: usize, end: usize) -> bool {
        self.0.iter().any(|&(s, e)| s < end && start < e)
    }
}

//! Memory between forbidden pages, with a shadow that shows every write.

use std::ptr::NonNull;

use hexflash_dsp::testing::guarded::{self, CANARY};

use crate::random::Random;

/// Bytes that a session may use, and what they are known to be.
pub struct Guarded {
    memory: guarded::Guarded,
    shadow: Vec<u8>,
}

impl Guarded {
    pub fn new(size: usize) -> Self {
        Self { memory: guarded::Guarded::new(size), shadow: vec![CANARY; size] }
    }

    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// First byte, aligned to 128.
    pub fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// The bytes as they are. Nothing else may write them meanwhile.
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// Whether nobody has written around the bytes.
    pub fn guarded(&self) -> bool {
        self.memory.is_whole()
    }

    /// Writes as the host does.
    pub fn write(&mut self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.size());
        self.shadow[at..at + data.len()].copy_from_slice(data);
        // SAFETY: `at + data.len()` is at most the memory's size, by the line above. `copy` allows `data` to
        // lie anywhere.
        unsafe { std::ptr::copy(data.as_ptr(), self.base().as_ptr().add(at), data.len()) };
    }

    /// Fills everything with floats, awkward ones among them, some small integers and some garbage.
    pub fn fill(&mut self, random: &mut Random) {
        let words = (0..self.size() / 4).map(|_| match random.below(20) {
            0 => random.below(8) as u32,
            1 => random.next() as u32,
            _ => random.float(),
        });
        let data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        self.write(0, &data);
    }

    /// The first byte that differs from the shadow where `may` does not allow it; then the shadow follows.
    pub fn stray_write(&mut self, may: &Marks) -> Option<usize> {
        let now = self.memory.bytes();
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
            return (at..self.size()).find(|&i| now[i] != self.shadow[i]);
        }
        for &(start, end) in &may.0 {
            self.shadow[start..end].copy_from_slice(&now[start..end]);
        }
        None
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

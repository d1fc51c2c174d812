//! Changes of an ELF file for 32 bits, in place. Each gives `None` where the file has no such place.

/// Place in the file's header: of the table of segments.
pub(super) const E_PHOFF: usize = 28;
/// Place in the file's header: the flags, which are the architecture.
pub(super) const E_FLAGS: usize = 36;
/// Place in the file's header: the number of segments, and the half word behind it.
pub(super) const E_PHNUM: usize = 44;
/// Bytes of a segment's header.
pub(super) const PROGRAM_HEADER: usize = 32;
/// Place in a segment's header: where its bytes begin in the file.
const P_OFFSET: usize = 4;
/// Place in a segment's header: its address.
pub(super) const P_VADDR: usize = 8;
/// Place in a segment's header: its bytes in the file.
const P_FILESZ: usize = 16;
/// Place in a segment's header: its bytes in memory.
pub(super) const P_MEMSZ: usize = 20;
/// Place in a segment's header: who may read, write and execute it.
pub(super) const P_FLAGS: usize = 24;
/// Bytes of an entry of the dynamic section.
const ENTRY: usize = 8;
/// Place of the value in such an entry, behind its tag.
pub(super) const VALUE: usize = 4;

pub(super) fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn set(data: &mut [u8], at: usize, word: u32) -> Option<()> {
    data.get_mut(at..at + 4)?.copy_from_slice(&word.to_le_bytes());
    Some(())
}

pub(super) fn add(data: &mut [u8], at: usize, more: u32) -> Option<()> {
    let sum = word(data, at)?.wrapping_add(more);
    set(data, at, sum)
}

/// The place of the header of segment `i`.
pub(super) fn segment(data: &[u8], i: usize) -> Option<usize> {
    Some(word(data, E_PHOFF)? as usize + PROGRAM_HEADER * i)
}

/// The place of an entry of the dynamic section, which is the third segment.
pub(super) fn tag(data: &[u8], tag: u32) -> Option<usize> {
    let dynamic = segment(data, 2)?;
    let (start, bytes) = (word(data, dynamic + P_OFFSET)? as usize, word(data, dynamic + P_FILESZ)? as usize);
    (start..start + bytes).step_by(ENTRY).find(|&at| word(data, at) == Some(tag))
}

pub(super) fn find(data: &[u8], bytes: &[u8]) -> Option<usize> {
    data.windows(bytes.len()).position(|window| window == bytes)
}

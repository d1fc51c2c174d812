//! Buffers on a platform that can map so many bytes and no more.

use core::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

use super::*;
use crate::platform::CacheOp;

/// Maps fd N at N MiB, `limit` bytes in all; keeps what is mapped.
struct Small {
    limit: u64,
    mapped: Mutex<Vec<(i32, u64)>>,
}

impl Small {
    fn new(limit: u64) -> Self {
        Self { limit, mapped: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(i32, u64)>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is mapped, by fd.
    fn mapped(&self) -> Vec<i32> {
        let mut fds: Vec<_> = self.lock().iter().map(|&(fd, _)| fd).collect();
        fds.sort_unstable();
        fds
    }
}

fn place(fd: Fd) -> NonNull<u8> {
    NonNull::without_provenance(core::num::NonZero::new((fd.0 as usize) << 20).unwrap())
}

impl Platform for Small {
    const LIMITED: bool = true;
    fn futex_wait(&self, _word: &AtomicU32, _expected: u32) {}
    fn futex_wake(&self, _word: &AtomicU32) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn map(&self, fd: Fd, size: u64) -> Result<NonNull<u8>, Fault> {
        let mut mapped = self.lock();
        assert!(!mapped.iter().any(|&(other, _)| other == fd.0), "fd {} is mapped twice", fd.0);
        if mapped.iter().map(|&(_, size)| size).sum::<u64>() + size > self.limit {
            return Err(Fault::new(ErrorCode::MapFailed, size as u32));
        }
        mapped.push((fd.0, size));
        Ok(place(fd))
    }
    fn unmap(&self, fd: Fd, base: NonNull<u8>, size: u64) {
        assert_eq!(base, place(fd));
        let mut mapped = self.lock();
        let before = mapped.len();
        mapped.retain(|&entry| entry != (fd.0, size));
        assert_eq!(mapped.len(), before - 1, "fd {} is not mapped", fd.0);
    }
    fn cache(&self, _op: CacheOp, _base: *const u8, _bytes: usize) {}
}

const INFO: BufferInfo = BufferInfo { size: 100, read_only: false };

/// A table with buffers 1 to `n` of 100 bytes, each of the fd of its number.
fn table(platform: &Small, n: u32) -> BufferTable {
    let mut table = BufferTable::new();
    for id in 1..=n {
        table.map(platform, BufferId(id), Fd(id as i32), INFO).unwrap();
    }
    table
}

fn ensure_mapped(table: &mut BufferTable, platform: &Small, ids: &[u32]) -> Result<(), ErrorCode> {
    table.ensure_mapped(platform, ids.iter().map(|&id| BufferId(id))).map_err(|fault| fault.code)
}

#[test]
fn what_was_not_used_for_longest_makes_room() {
    let platform = Small::new(300);
    let mut table = table(&platform, 3);
    assert_eq!(platform.mapped(), [1, 2, 3]);
    ensure_mapped(&mut table, &platform, &[1]).unwrap();
    table.map(&platform, BufferId(4), Fd(4), INFO).unwrap();
    assert_eq!(platform.mapped(), [1, 3, 4]);
    ensure_mapped(&mut table, &platform, &[2, 3]).unwrap();
    assert_eq!(platform.mapped(), [2, 3, 4]);
    // What is in use stays, whatever its age.
    ensure_mapped(&mut table, &platform, &[3, 1, 2]).unwrap();
    assert_eq!(platform.mapped(), [1, 2, 3]);
    let range = |buffer, offset| Range { buffer: BufferId(buffer), len: 1, offset };
    assert_eq!(table.range(range(1, 7)).unwrap().addr().get(), (1 << 20) + 7);
    for id in 1..=4 {
        table.unmap(&platform, BufferId(id)).unwrap();
    }
    assert!(platform.mapped().is_empty());
}

#[test]
fn what_does_not_fit_at_once_is_refused_and_the_rest_can_still_be_used() {
    let platform = Small::new(300);
    let mut table = table(&platform, 4);
    assert_eq!(ensure_mapped(&mut table, &platform, &[1, 2, 3, 4]), Err(ErrorCode::MapFailed));
    assert_eq!(ensure_mapped(&mut table, &platform, &[1, 9]), Err(ErrorCode::UnknownBuffer));
    for ids in [[1, 2, 3], [2, 3, 4], [4, 1, 2]] {
        ensure_mapped(&mut table, &platform, &ids).unwrap();
        let mut expected = ids.map(|id| id as i32);
        expected.sort_unstable();
        assert_eq!(platform.mapped(), expected);
    }
    let large = BufferInfo { size: 301, read_only: true };
    assert_eq!(table.map(&platform, BufferId(5), Fd(5), large).unwrap_err().code, ErrorCode::MapFailed);
    ensure_mapped(&mut table, &platform, &[1, 3]).unwrap();
    assert_eq!(platform.mapped(), [1, 3]);
}

/// Memory that is not mapped at the moment is still under its id.
#[test]
fn memory_has_one_id_unless_nobody_writes_it() {
    let platform = Small::new(100);
    let mut table = table(&platform, 2);
    assert_eq!(platform.mapped(), [2]);
    let again = table.map(&platform, BufferId(3), Fd(1), INFO).unwrap_err();
    assert_eq!((again.code, again.detail), (ErrorCode::BufferInUse, 1));
    assert!(platform.mapped().is_empty());
    let read_only = BufferInfo { read_only: true, ..INFO };
    table.map(&platform, BufferId(4), Fd(4), read_only).unwrap();
    ensure_mapped(&mut table, &platform, &[2]).unwrap();
    table.map(&platform, BufferId(5), Fd(4), read_only).unwrap();
    assert_eq!(table.map(&platform, BufferId(5), Fd(6), INFO).unwrap_err().code, ErrorCode::BufferInUse);
    assert_eq!(table.map(&platform, BufferId(64), Fd(6), INFO).unwrap_err().code, ErrorCode::UnknownBuffer);
}

#[test]
fn ranges_lie_inside_their_buffer() {
    let platform = Small::new(100);
    let mut table = BufferTable::new();
    table.map(&platform, BufferId(5), Fd(1), INFO).unwrap();
    let code = |buffer, offset, len| {
        table.range(Range { buffer: BufferId(buffer), len, offset }).map(drop).map_err(|f| f.code)
    };
    for (offset, len) in [(0, 100), (100, 0), (99, 1), (0, 0)] {
        assert_eq!(code(5, offset, len), Ok(()));
    }
    for (offset, len) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 1), (u64::MAX, 0), (1, u32::MAX)] {
        assert_eq!(code(5, offset, len), Err(ErrorCode::OutOfBounds));
    }
    for id in [0, 4, 6, 63, 64, u32::MAX] {
        assert_eq!(code(id, 0, 0), Err(ErrorCode::UnknownBuffer));
    }
}

//! A worker's part of the weight stream: the pieces that it has staged, in the ring that is its room in VTCM.

use heapless::Deque;

use super::{Stream, StreamedMatrix};
use crate::dma::{DEPTH, Ticket};

/// Pieces that a worker may have staged. The rest of its queue is for the transfers of ops.
const STAGED: usize = DEPTH * 3 / 4;

/// A piece of the stream: which part of which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The unit's number in the stream.
    pub unit: u32,
    /// First group of each strip, and how many.
    pub first: usize,
    /// See `first`.
    pub groups: usize,
}

/// A piece on its way to VTCM, or there.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// Which one.
    pub piece: Piece,
    /// Its place in the ring.
    pub offset: usize,
    /// Its bytes.
    pub bytes: usize,
    /// Its transfer.
    pub ticket: Ticket,
}

/// A transfer that a ring wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// First byte.
    pub src: *const u8,
    /// Where to, in the ring.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
}

/// What a worker's part of the stream has done since the counts were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Pieces that were staged.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Most bytes that were staged at once, over all workers.
    pub most_bytes: u64,
    /// Times that a worker found its engine done with all that it was given, though weights were left to
    /// fetch: memory may have been idle.
    pub dry: u64,
}

impl StreamCounts {
    /// The counts of one more worker.
    pub fn add(&mut self, other: Self) {
        self.pieces += other.pieces;
        self.bytes += other.bytes;
        self.most_bytes += other.most_bytes;
        self.dry += other.dry;
    }
}

/// A worker's ring.
///
/// Pieces lie one behind the other. One that would reach over the end lies at the start, and the room before
/// the end stays empty until the pieces before it are gone.
#[derive(Debug)]
pub struct WeightRing {
    staged: Deque<Staged, STAGED>,
    /// Bytes of the pieces.
    bytes: usize,
    /// First byte behind the newest piece.
    head: usize,
    /// The unit claimed last, as long as groups of it are not staged, with the first of these groups.
    claimed: Option<(u32, usize)>,
    /// The matrix that it belongs to.
    matrix: Option<StreamedMatrix>,
    counts: StreamCounts,
}

impl WeightRing {
    /// A ring without pieces.
    pub const fn new() -> Self {
        let counts = StreamCounts { pieces: 0, bytes: 0, most_bytes: 0, dry: 0 };
        Self { staged: Deque::new(), bytes: 0, head: 0, claimed: None, matrix: None, counts }
    }

    /// Forgets everything that was staged. Its transfers must be over.
    pub fn clear(&mut self) {
        self.staged.clear();
        (self.bytes, self.head, self.claimed, self.matrix) = (0, 0, None, None);
    }

    /// The first unit of which this worker has a part; `None` if it has nothing.
    pub fn first_unit(&self) -> Option<u32> {
        self.staged.front().map(|s| s.piece.unit).or(self.claimed.map(|(unit, _)| unit))
    }

    /// The oldest piece, if it belongs to a unit before `end`.
    pub fn front(&self, end: u32) -> Option<Staged> {
        self.staged.front().filter(|s| s.piece.unit < end).copied()
    }

    /// The newest piece.
    pub fn back(&self) -> Option<Staged> {
        self.staged.back().copied()
    }

    /// Gives back the room of the oldest piece.
    pub fn pop(&mut self) {
        if let Some(staged) = self.staged.pop_front() {
            self.bytes -= staged.bytes;
        }
    }

    /// Bytes that are staged.
    pub fn staged_bytes(&self) -> usize {
        self.bytes
    }

    /// What was done since the last call.
    pub fn take_counts(&mut self) -> StreamCounts {
        core::mem::take(&mut self.counts)
    }

    /// Counts that all staged transfers were found done while weights were left.
    pub fn note_dry(&mut self, stream: &Stream<'_>) {
        self.counts.dry += u64::from(self.claimed.is_some() || stream.has_more());
    }

    /// Stages pieces as long as there is room for them; `start` starts a transfer.
    pub fn fill(&mut self, stream: &Stream<'_>, mut start: impl FnMut(Wanted) -> Ticket) {
        while !self.staged.is_full() {
            let Some((matrix, unit, first)) = self.next(stream) else { return };
            let strip = (unit - matrix.first) as usize * matrix.unit_strips;
            let strips = matrix.unit_strips.min(matrix.strips - strip);
            let groups = matrix.piece_groups.min(matrix.groups - first);
            let bytes = strips * groups * matrix.group_bytes;
            let Some(offset) = self.place(bytes, stream.layout.bytes) else { return };
            let from = (strip * matrix.groups + first) * matrix.group_bytes;
            let ticket = start(Wanted { src: matrix.base.wrapping_add(from), offset, bytes });
            let staged = Staged { piece: Piece { unit, first, groups }, offset, bytes, ticket };
            // There is room: the loop's condition.
            let _ = self.staged.push_back(staged);
            (self.head, self.bytes) = (offset + bytes, self.bytes + bytes);
            self.claimed = (first + groups < matrix.groups).then_some((unit, first + groups));
            self.counts.pieces += 1;
            self.counts.bytes += bytes as u64;
            self.counts.most_bytes = self.counts.most_bytes.max(self.bytes as u64);
        }
    }

    /// The matrix, unit and first group of what is to be staged next. A unit is claimed if need be.
    fn next(&mut self, stream: &Stream<'_>) -> Option<(StreamedMatrix, u32, usize)> {
        // A ring without pieces may have been left so by another run, whose matrices were others.
        if self.first_unit().is_none() {
            self.matrix = None;
        }
        let (unit, first) = match self.claimed {
            Some(claimed) => claimed,
            None => (stream.claim()?, 0),
        };
        self.claimed = Some((unit, first));
        let known = self.matrix.filter(|m| (m.first..m.end).contains(&unit));
        self.matrix = known.or_else(|| stream.matrix(unit));
        Some((self.matrix?, unit, first))
    }

    /// Where there is room for `bytes` in a ring of `size`.
    fn place(&self, bytes: usize, size: usize) -> Option<usize> {
        let Some(oldest) = self.staged.front() else { return (bytes <= size).then_some(0) };
        if self.head > oldest.offset {
            let behind = (self.head + bytes <= size).then_some(self.head);
            behind.or((bytes <= oldest.offset).then_some(0))
        } else {
            // It has been round: the room ends with the oldest piece.
            (self.head + bytes <= oldest.offset).then_some(self.head)
        }
    }
}

impl Default for WeightRing {
    fn default() -> Self {
        Self::new()
    }
}

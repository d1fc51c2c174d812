//! Rings, and the time of a step whose weights are streamed.

mod clock;

use std::collections::HashSet;

use super::*;
use crate::dma::{DmaMode, DmaQueue, Transfer};
use crate::testing::random;

/// The matrices of a stream, in order.
struct List(Vec<StreamedMatrix>);

impl Matrices for List {
    fn holding(&self, unit: u32) -> Option<StreamedMatrix> {
        self.0.iter().find(|m| m.end > unit).copied()
    }
}

impl List {
    /// Matrices of `shapes`, strips and groups per strip, for a ring of `layout`, which gets their units.
    fn new(shapes: &[[usize; 2]], group_bytes: usize, layout: &mut RingLayout) -> Self {
        let most = layout.piece_bytes() / group_bytes;
        let matrix = |&[strips, groups]: &[usize; 2]| {
            let piece = if most > groups { most / groups * groups } else { most };
            let end = layout.push(strips.div_ceil(unit_strips(piece, groups))).unwrap();
            StreamedMatrix::new(
                std::ptr::without_provenance(0x1000),
                [strips, groups],
                piece,
                group_bytes,
                end,
            )
        };
        Self(shapes.iter().map(matrix).collect())
    }
}

/// A ticket, whose transfer moves nothing.
fn no_transfer() -> crate::dma::Ticket {
    let mut queue = DmaQueue::new(DmaMode::Never);
    // SAFETY: a queue in this mode does not execute transfers.
    unsafe { queue.push(Transfer::linear(std::ptr::null(), std::ptr::null_mut(), 0)) }
}

/// Two programs with a matrix each, one after the other in the same session: the second one's lies elsewhere.
#[test]
fn a_ring_takes_no_matrix_of_the_run_before() {
    let mut layout = RingLayout::behind(0, 1, 64 * VECTOR_BYTES);
    let mut list = List::new(&[[3, 2]], VECTOR_BYTES, &mut layout);
    let mut ring = WeightRing::new();
    for base in [0x1000, 0x8000] {
        list.0[0].base = std::ptr::without_provenance(base);
        // SAFETY: the test moves nothing.
        let stream = unsafe { Stream::new(&list, layout) };
        ring.fill(&stream, |wanted| {
            assert!((base..base + 6 * VECTOR_BYTES).contains(&wanted.src.addr()), "{:?}", wanted.src);
            no_transfer()
        });
        assert_eq!(ring.staged_bytes(), 6 * VECTOR_BYTES);
        while ring.front(layout.units).is_some() {
            ring.pop();
        }
    }
}

/// Random rings, matrices and turns of two workers: each group of each strip is staged once, in order, and no
/// piece lies over another or over the ring's end.
#[test]
fn every_group_is_staged_once_and_apart_from_the_others() {
    for seed in 0..300 {
        let mut random = random(seed, 4000, 0.0, 1.0).into_iter();
        let mut number = |n: usize| ((random.next().unwrap() * n as f32) as usize).min(n - 1);
        let group_bytes = VECTOR_BYTES * (1 + number(9));
        let vtcm = 2 * MIN_PIECES * group_bytes * (1 + number(12)) + number(3) * VECTOR_BYTES;
        let mut layout = RingLayout::behind(0, 2, vtcm);
        let shapes: Vec<[usize; 2]> = (0..1 + number(6)).map(|_| [1 + number(20), 1 + number(10)]).collect();
        let list = List::new(&shapes, group_bytes, &mut layout);
        // SAFETY: the test moves nothing.
        let stream = unsafe { Stream::new(&list, layout) };
        let (mut rings, mut seen) = ([WeightRing::new(), WeightRing::new()], HashSet::new());
        let mut staged: [Vec<(usize, usize)>; 2] = Default::default();
        for matrix in &list.0 {
            // As in a product: workers go on until nothing of this matrix is left to them.
            let mut left = [true; 2];
            while left.contains(&true) {
                let w = number(2);
                let (ring, places) = (&mut rings[w], &mut staged[w]);
                ring.fill(&stream, |wanted| {
                    assert!(wanted.bytes > 0 && wanted.bytes <= layout.piece_bytes());
                    let end = wanted.offset + wanted.bytes;
                    assert!(end <= layout.bytes && wanted.offset % VECTOR_BYTES == 0, "seed {seed}");
                    let apart = |&(from, to): &(usize, usize)| to <= wanted.offset || end <= from;
                    assert!(places.iter().all(apart), "seed {seed}: {wanted:?} {places:?}");
                    places.push((wanted.offset, end));
                    no_transfer()
                });
                assert_eq!(ring.staged_bytes(), places.iter().map(|(from, to)| to - from).sum::<usize>());
                left[w] = match ring.front(matrix.end) {
                    None => false,
                    Some(Staged { piece, offset, bytes, .. }) => {
                        assert!((matrix.first..matrix.end).contains(&piece.unit), "seed {seed}");
                        assert_eq!(places.remove(0), (offset, offset + bytes));
                        for group in piece.first..piece.first + piece.groups {
                            assert!(seen.insert((piece.unit, group)), "seed {seed}: {piece:?} came twice");
                        }
                        ring.pop();
                        true
                    }
                };
            }
            assert!(rings.iter().all(|ring| ring.first_unit().is_none_or(|unit| unit >= matrix.end)));
        }
        let groups: usize = list.0.iter().map(|m| (m.end - m.first) as usize * m.groups).sum();
        assert_eq!(seen.len(), groups, "seed {seed}");
        assert!(rings.iter().all(|ring| ring.first_unit().is_none() && ring.staged_bytes() == 0));
    }
}

#[test]
fn a_ring_that_was_cleared_is_as_new() {
    let mut layout = RingLayout::behind(0, 1, 64 * VECTOR_BYTES);
    let list = List::new(&[[9, 2], [3, 40]], VECTOR_BYTES, &mut layout);
    let mut ring = WeightRing::new();
    for _ in 0..2 {
        // SAFETY: the test moves nothing.
        let stream = unsafe { Stream::new(&list, layout) };
        ring.fill(&stream, |_| no_transfer());
        let first = ring.front(u32::MAX).unwrap();
        assert_eq!((first.piece, first.offset), (Piece { unit: 0, first: 0, groups: 2 }, 0));
        assert_eq!(ring.first_unit(), Some(0));
        ring.clear();
        assert_eq!((ring.first_unit(), ring.staged_bytes()), (None, 0));
    }
}

#[test]
fn a_stream_has_only_so_many_units() {
    let mut layout = RingLayout::behind(100, 3, 1000);
    assert_eq!(layout, RingLayout { base: 128, bytes: 256, units: 0 });
    assert_eq!(layout.push(MAX_UNITS as usize), Some(MAX_UNITS));
    assert_eq!(layout.push(1), None);
    assert_eq!(RingLayout::behind(0, 1, 0).push(usize::MAX), None);
    assert_eq!(RingLayout::behind(2000, 3, 1000).bytes, 0);
    assert_eq!(RingLayout::behind(0, 3, 64 << 20).bytes, MOST_BYTES);
}

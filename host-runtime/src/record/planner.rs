//! Memory of activations: those that are never alive together share it.

use hexflash_abi::VECTOR_BYTES;

/// From the first to the last op that uses an activation, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) bytes: u64,
    first: usize,
    last: usize,
}

impl Lifetime {
    pub(super) const fn unused(bytes: u64) -> Self {
        Self { bytes, first: usize::MAX, last: 0 }
    }

    /// The same life, without memory.
    pub(super) fn empty(self) -> Self {
        Self { bytes: 0, ..self }
    }

    pub(super) fn extend(&mut self, op: usize) {
        self.first = self.first.min(op);
        self.last = self.last.max(op);
    }

    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Where activations lie.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ActivationLayout {
    /// Byte offset per activation, a multiple of a vector.
    pub(super) offsets: Vec<u64>,
    /// Bytes in all.
    pub(super) bytes: u64,
}

impl ActivationLayout {
    /// Greedy by size: the largest first, each at the lowest offset where it meets no earlier one in time and
    /// space. Within a few percent of optimal for chains (Pisarchyk and Lee, "Efficient Memory Management for
    /// Deep Neural Net Inference", 2020).
    pub(super) fn plan(lifetimes: &[Lifetime]) -> Self {
        let mut order: Vec<usize> = (0..lifetimes.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(lifetimes[i].bytes), lifetimes[i].first));
        let mut offsets = vec![0; lifetimes.len()];
        let mut placed: Vec<usize> = Vec::new();
        let mut bytes = 0;
        for i in order {
            let size = lifetimes[i].bytes.next_multiple_of(VECTOR_BYTES as u64);
            let mut taken: Vec<(u64, u64)> = placed
                .iter()
                .filter(|&&p| lifetimes[p].meets(&lifetimes[i]))
                .map(|&p| (offsets[p], offsets[p] + lifetimes[p].bytes.next_multiple_of(VECTOR_BYTES as u64)))
                .collect();
            taken.sort_unstable();
            let mut at = 0;
            for (start, end) in taken {
                if start >= at + size {
                    break;
                }
                at = at.max(end);
            }
            offsets[i] = at;
            bytes = bytes.max(at + size);
            placed.push(i);
        }
        Self { offsets, bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lifetime(bytes: u64, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    #[test]
    fn a_chain_needs_two_slots() {
        let chain: Vec<_> = (0..10).map(|i| lifetime(1024, i, i + 1)).collect();
        assert_eq!(ActivationLayout::plan(&chain).bytes, 2048);
    }

    proptest! {
        /// Activations that are alive together never overlap.
        #[test]
        fn living_activations_are_apart(
            spans in prop::collection::vec((1u64..5000, 0usize..30, 0usize..8), 1..40),
        ) {
            let lifetimes: Vec<_> = spans.iter().map(|&(b, f, n)| lifetime(b, f, f + n)).collect();
            let plan = ActivationLayout::plan(&lifetimes);
            for (i, a) in lifetimes.iter().enumerate() {
                prop_assert!(plan.offsets[i] + a.bytes <= plan.bytes);
                prop_assert_eq!(plan.offsets[i] % VECTOR_BYTES as u64, 0);
                for (j, b) in lifetimes.iter().enumerate().skip(i + 1) {
                    let apart = plan.offsets[i] + a.bytes <= plan.offsets[j]
                        || plan.offsets[j] + b.bytes <= plan.offsets[i];
                    prop_assert!(apart || !a.meets(b));
                }
            }
        }
    }
}

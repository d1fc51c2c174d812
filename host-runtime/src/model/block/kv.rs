//! Caches of keys and values: the one place that knows their number format and geometry.

use hexflash_abi::DType;

use crate::model::graph::Graph;
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::scope::Scope;
use crate::record::{RecordError, Tensor, packed_bytes};

/// The number format of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFormat {
    /// Half precision.
    F16,
}

impl KvFormat {
    /// Type of keys, in tiles of 32 positions: attention has positions in the lanes of a vector.
    pub const fn keys(self) -> DType {
        match self {
            Self::F16 => DType::F16x32,
        }
    }

    /// Type of values, row by row.
    pub const fn values(self) -> DType {
        match self {
            Self::F16 => DType::F16,
        }
    }
}

/// The caches of an attention block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvCache {
    /// Number format.
    pub format: KvFormat,
    /// Width of a key.
    pub key_dim: u32,
    /// Width of a value.
    pub value_dim: u32,
    /// Key and value heads.
    pub n_head_kv: u32,
    /// Positions that a query sees, its own included; 0 for all.
    pub window: u32,
}

const KEYS: &str = "cache_k";
const VALUES: &str = "cache_v";

impl KvCache {
    /// Keys `{key_dim, n, n_head_kv, n_slots}`, for `n` positions.
    const fn keys(&self, n: u32, n_slots: u32) -> (DType, [u32; 4]) {
        (self.format.keys(), [self.key_dim, n, self.n_head_kv, n_slots])
    }

    /// Values `{value_dim, n, n_head_kv, n_slots}`, for `n` positions.
    const fn values(&self, n: u32, n_slots: u32) -> (DType, [u32; 4]) {
        (self.format.values(), [self.value_dim, n, self.n_head_kv, n_slots])
    }

    /// Declares the caches: for the whole context, or as KV rings where queries have a window and that is
    /// shorter.
    pub(super) fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        let n_slots = plan.n_slots();
        let n = plan.kv_ring(scope, self.window).unwrap_or_else(|| plan.n_ctx());
        plan.keep(scope, KEYS, Purpose::Kv, self.keys(n, n_slots))?;
        plan.keep(scope, VALUES, Purpose::Kv, self.values(n, n_slots))
    }

    /// The caches of keys and of values.
    pub(super) fn tensors(g: &mut Graph<'_>, scope: Scope) -> [Tensor; 2] {
        [KEYS, VALUES].map(|name| g.kept(&scope.label(name)))
    }

    /// The longest context whose caches, for `n_slots` sequences, programs can describe if they are no KV
    /// rings: the steps from head to head and from slot to slot have 32 bits.
    pub fn longest_context(&self, n_slots: u32) -> u32 {
        let fits = |n_ctx| {
            let caches = [self.keys(n_ctx, n_slots), self.values(n_ctx, n_slots)];
            caches.into_iter().all(|(dtype, ne)| packed_bytes(dtype, ne).is_ok())
        };
        // Halving the distance: the caches only grow with the context.
        let (mut most, mut step) = (0, 1u32 << 31);
        while step > 0 {
            if fits(most + step) {
                most += step;
            }
            step /= 2;
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_context_is_the_last_one_whose_caches_can_be_described() {
        for (key_dim, value_dim) in [(64, 64), (33, 512), (512, 1), (2, 2)] {
            let cache = KvCache { format: KvFormat::F16, key_dim, value_dim, n_head_kv: 2, window: 0 };
            for n_slots in [1, 8] {
                let longest = cache.longest_context(n_slots);
                let fits = |n_ctx| {
                    let caches = [cache.keys(n_ctx, n_slots), cache.values(n_ctx, n_slots)];
                    caches.map(|(dtype, ne)| packed_bytes(dtype, ne).is_ok()) == [true; 2]
                };
                assert!(
                    longest > 1 << 20 && fits(longest) && !fits(longest + 1),
                    "{key_dim} {value_dim}, {n_slots} slots: {longest}"
                );
            }
            // A single head is a single matrix, which may be of any size.
            assert_eq!(KvCache { n_head_kv: 1, ..cache }.longest_context(1), u32::MAX);
        }
    }
}

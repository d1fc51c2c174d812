//! Caches of keys and values: the one place that knows their geometry.

use hexflash_abi::DType;
use hexflash_abi::dtype::TILE_K;

use crate::model::cache_types::{CacheType, CacheTypes};
use crate::model::graph::Graph;
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::scope::Scope;
use crate::record::{RecordError, Tensor, packed_bytes};
use crate::setting::Setting;

/// The caches of an attention block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvCache {
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
    /// Keys `{key_dim, n, n_head_kv, n_slots}` and values `{value_dim, n, n_head_kv, n_slots}`, for `n`
    /// positions.
    fn shapes(&self, types: CacheTypes, n: u32, n_slots: u32) -> [(DType, [u32; 4]); 2] {
        let (keys, values) = (types.keys.keys(), types.values.values());
        [(keys, self.key_dim), (values, self.value_dim)]
            .map(|(dtype, width)| (dtype, [width, n, self.n_head_kv, n_slots]))
    }

    /// Declares the caches: for the whole context, or as KV rings where queries have a window and that is
    /// shorter.
    pub(super) fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        let types = plan.caches();
        self.check(types)?;
        let n = plan.kv_ring(scope, self.window).unwrap_or_else(|| plan.n_ctx());
        let [keys, values] = self.shapes(types, n, plan.n_slots());
        plan.keep(scope, KEYS, Purpose::Kv, keys)?;
        plan.keep(scope, VALUES, Purpose::Kv, values)
    }

    /// Refuses number formats that do not hold these heads.
    fn check(&self, types: CacheTypes) -> Result<(), RecordError> {
        let Self { key_dim, value_dim, .. } = *self;
        for (setting, cache, width) in
            [(Setting::KeyCache, types.keys, key_dim), (Setting::ValueCache, types.values, value_dim)]
        {
            if !cache.holds(width) {
                let reason =
                    format!("it holds heads in whole parts of {TILE_K} values, and these have {width}");
                return Err(RecordError::CacheType { setting, cache: cache.name(), reason });
            }
        }
        if types.keys == CacheType::Q4R && key_dim > value_dim {
            let (setting, cache) = (Setting::KeyCache, types.keys.name());
            let reason = format!("keys of {key_dim} values are wider than the output's {value_dim}");
            return Err(RecordError::CacheType { setting, cache, reason });
        }
        Ok(())
    }

    /// The caches of keys and of values.
    pub(super) fn tensors(g: &mut Graph<'_>, scope: Scope) -> [Tensor; 2] {
        [KEYS, VALUES].map(|name| g.kept(&scope.label(name)))
    }

    /// The longest context whose caches, for `n_slots` sequences, programs can describe if they are no KV
    /// rings: the steps from head to head and from slot to slot have 32 bits.
    pub fn longest_context(&self, types: CacheTypes, n_slots: u32) -> u32 {
        let fits = |n_ctx| {
            let caches = self.shapes(types, n_ctx, n_slots);
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
        for types in CacheType::ALL.map(CacheTypes::both) {
            for (key_dim, value_dim) in [(64, 64), (33, 512), (512, 1), (2, 2)] {
                let cache = KvCache { key_dim, value_dim, n_head_kv: 2, window: 0 };
                for n_slots in [1, 8] {
                    let longest = cache.longest_context(types, n_slots);
                    let fits = |n_ctx| {
                        let caches = cache.shapes(types, n_ctx, n_slots);
                        caches.map(|(dtype, ne)| packed_bytes(dtype, ne).is_ok()) == [true; 2]
                    };
                    assert!(
                        longest > 1 << 20 && fits(longest) && !fits(longest + 1),
                        "{types:?} {key_dim} {value_dim}, {n_slots} slots: {longest}"
                    );
                }
                // A single head is a single matrix, which may be of any size.
                assert_eq!(KvCache { n_head_kv: 1, ..cache }.longest_context(types, 1), u32::MAX);
            }
        }
    }

    /// Bytes per value, for heads of 128.
    #[test]
    fn caches_take_the_bits_that_their_types_promise() {
        let cache = KvCache { key_dim: 128, value_dim: 128, n_head_kv: 2, window: 0 };
        for (cache_type, bits) in [(CacheType::F16, 16.0), (CacheType::Q8_0, 8.5), (CacheType::Q4R, 4.25)] {
            let shapes = cache.shapes(CacheTypes::both(cache_type), 4096, 1);
            for (dtype, ne) in shapes {
                let values = ne.iter().map(|&n| f64::from(n)).product::<f64>();
                assert_eq!(packed_bytes(dtype, ne).unwrap() as f64 * 8.0 / values, bits, "{cache_type}");
            }
            let position = CacheTypes::both(cache_type).position_bytes(128, 128);
            assert_eq!(position as f64, 2.0 * 128.0 * bits / 8.0, "{cache_type}");
        }
    }

    #[test]
    fn heads_that_a_rotated_cache_does_not_hold_are_refused_by_name() {
        let refusal = |keys, values, key_dim, value_dim| {
            let cache = KvCache { key_dim, value_dim, n_head_kv: 1, window: 0 };
            cache.check(CacheTypes { keys, values }).err().map(|error| error.to_string())
        };
        let (f16, q4_r) = (CacheType::F16, CacheType::Q4R);
        for dim in [32, 64, 96, 128, 256] {
            assert_eq!(refusal(q4_r, q4_r, dim, dim), None);
        }
        assert_eq!(refusal(CacheType::Q8_0, f16, 80, 33), None);
        for (keys, values, d, dv, word) in
            [(q4_r, f16, 80, 80, "keys"), (f16, q4_r, 64, 80, "values"), (q4_r, f16, 128, 64, "wider")]
        {
            let line = refusal(keys, values, d, dv).unwrap();
            assert!(line.contains(word) && line.contains("q8_0 or f16"), "{line}");
        }
    }
}

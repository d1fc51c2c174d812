//! The number formats of caches of keys and values: the one place that knows them.

use std::fmt;
use std::str::FromStr;

use hexflash_abi::DType;
use hexflash_abi::dtype::{TILE_K, TILE_ROWS};

/// The number format of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheType {
    /// Half precision: 16 bits.
    #[default]
    F16,
    /// ggml's Q8_0, a scale per 32 values: 8.5 bits.
    Q8_0,
    /// Rotated vectors, 4 bits per value and 32 for all of a head: 4.125 to 5 bits.
    Q4R,
}

impl CacheType {
    /// Every format, the largest one first.
    pub const ALL: [Self; 3] = [Self::F16, Self::Q8_0, Self::Q4R];

    /// The name that people see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4R => "q4_r",
        }
    }

    /// Type of keys, in tiles of 32 positions: attention has positions in the lanes of a vector.
    pub(super) const fn keys(self) -> DType {
        match self {
            Self::F16 => DType::F16x32,
            Self::Q8_0 => DType::Q8_0Cache,
            Self::Q4R => DType::Q4RCache,
        }
    }

    /// Type of values.
    pub(super) const fn values(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::Q8_0 => DType::Q8_0Cache,
            Self::Q4R => DType::Q4RCache,
        }
    }

    /// Whether keys are held as shares of the first one of their strip, which must be there as long as they
    /// are.
    pub(super) const fn needs_first_of_strip(self) -> bool {
        match self {
            Self::F16 | Self::Q8_0 => false,
            Self::Q4R => true,
        }
    }

    /// Whether it holds vectors of this width: rotations are of 32 values and more.
    pub(super) const fn holds(self, width: u32) -> bool {
        match self {
            Self::F16 | Self::Q8_0 => true,
            Self::Q4R => width.is_multiple_of(TILE_K as u32),
        }
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no number format of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("caches are f16, q8_0 or q4_r")]
pub struct UnknownCacheType;

impl FromStr for CacheType {
    type Err = UnknownCacheType;

    fn from_str(name: &str) -> Result<Self, UnknownCacheType> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or(UnknownCacheType)
    }
}

/// The number formats of all caches, those of a draft model included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTypes {
    /// That of keys.
    pub keys: CacheType,
    /// That of values.
    pub values: CacheType,
}

impl CacheTypes {
    /// The same for keys and values.
    pub const fn both(cache: CacheType) -> Self {
        Self { keys: cache, values: cache }
    }

    /// Bytes of a position of a head with keys and values of these widths.
    pub fn position_bytes(self, key_dim: u32, value_dim: u32) -> u64 {
        let bytes = |dtype: DType, width: u32| match dtype.tile_group() {
            Some(group) => group.strip_bytes(width as usize) / TILE_ROWS,
            None => dtype.element_bytes().unwrap_or(0) * width as usize,
        };
        (bytes(self.keys.keys(), key_dim) + bytes(self.values.values(), value_dim)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for cache_type in CacheType::ALL {
            assert_eq!(cache_type.to_string().parse(), Ok(cache_type));
            assert!(UnknownCacheType.to_string().contains(cache_type.name()));
        }
        for name in ["", "F16", "q4_0", "bf16"] {
            assert_eq!(name.parse::<CacheType>(), Err(UnknownCacheType), "{name}");
        }
    }
}

//! Bounds on what a GGUF file may claim.
//!
//! A model file is downloaded from strangers, so every count in it is an allegation. Each bound is far above
//! what real models use and far below what would hurt; a count is also checked against the bytes left in the
//! file, so memory use stays proportional to bytes that exist.

/// Key-value pairs in one file. Real models have 25 to 100.
pub const MAX_KEYS: u64 = 1 << 16;

/// Tensors in one file. Dense models have a few hundred, mixtures of experts a few thousand.
pub const MAX_TENSORS: u64 = 1 << 17;

/// Bytes of a key. The format's own limit.
pub const MAX_KEY_LEN: u64 = (1 << 16) - 1;

/// Bytes of a tensor name. The format says 64; some converters build with larger names.
pub const MAX_TENSOR_NAME_LEN: u64 = 256;

/// Bytes of one string value. The longest in practice are chat templates and licences, tens of kilobytes.
pub const MAX_STRING_LEN: u64 = 16 << 20;

/// Elements of one array. The longest in practice are merge lists, about 450 thousand.
pub const MAX_ARRAY_LEN: u64 = 16 << 20;

/// Dimensions of a tensor; ggml has four.
pub const MAX_DIMS: u32 = 4;

/// Smallest `general.alignment` in bytes. The format demands a multiple of 8.
pub const MIN_ALIGNMENT: u64 = 8;

/// Largest `general.alignment` in bytes. Above a huge page nothing gains; a wild value would hide missing
/// data.
pub const MAX_ALIGNMENT: u64 = 2 << 20;

/// `general.alignment` in bytes where the key is absent.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// Shards of one model. The largest published splits have a few hundred files; each costs a mapping.
pub const MAX_SHARDS: u32 = 1024;

/// Layers a per-layer value is expanded to. A scalar is repeated per layer, so the count must not be free.
pub const MAX_LAYERS: usize = 1024;

/// Fewest bytes a key-value pair takes: length, one byte of key, type, one byte of value.
pub(super) const MIN_KEY_BYTES: u64 = 8 + 1 + 4 + 1;

/// Fewest bytes a tensor's entry takes: length, one byte of name, dimension count, one dimension, type,
/// offset.
pub(super) const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// Whether tensor data may be aligned to this many bytes.
pub(super) const fn is_alignment(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= MIN_ALIGNMENT && bytes <= MAX_ALIGNMENT
}

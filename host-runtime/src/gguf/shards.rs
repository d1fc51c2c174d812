//! Models split over several files: naming, the keys that describe the split, and their agreement.
//!
//! The first shard carries the model's metadata; the others carry tensors and the three `split.*` keys.

use std::path::{Path, PathBuf};

use super::error::{Cause, GgufError};
use super::limits::MAX_SHARDS;
use super::meta::Metadata;

const KEY_NO: &str = "split.no";
const KEY_COUNT: &str = "split.count";
const KEY_TENSORS: &str = "split.tensors.count";

/// What a shard says of the split it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardInfo {
    /// Position of this shard, from 0.
    no: u32,
    /// Number of shards, at least 2.
    count: u32,
    /// Tensors in all shards together, if said.
    tensors: Option<u32>,
}

impl ShardInfo {
    /// The split a file belongs to; `None` for a model in one file.
    pub(super) fn of(meta: &Metadata) -> Result<Option<ShardInfo>, GgufError> {
        let count = meta.u32_or(KEY_COUNT, 1)?;
        if count <= 1 {
            return Ok(None);
        }
        Ok(Some(ShardInfo { no: meta.require_u32(KEY_NO)?, count, tensors: meta.u32_opt(KEY_TENSORS)? }))
    }

    /// Paths of the shards after the first, all known to exist. `first` is the file that was opened.
    pub(super) fn siblings(&self, first: &Path) -> Result<Vec<PathBuf>, GgufError> {
        let fail = |cause| Err(GgufError::new(first, cause));
        let count = self.count;
        if count > MAX_SHARDS {
            return fail(Cause::TooMany { what: "shards", count: count.into(), limit: MAX_SHARDS.into() });
        }
        let prefix = first.file_name().and_then(|name| name_prefix(name.to_str()?, self.no, count));
        if self.no != 0 {
            let first = shard_name(prefix.unwrap_or("the file ending in "), 0, count);
            return fail(Cause::NotFirstShard { no: self.no, count, first });
        }
        let Some(prefix) = prefix else {
            return fail(Cause::ShardName { count, suffix: shard_name("", 0, count) });
        };
        let names: Vec<String> = (1..count).map(|no| shard_name(prefix, no, count)).collect();
        let missing: Vec<String> =
            names.iter().filter(|name| !first.with_file_name(name).exists()).cloned().collect();
        if !missing.is_empty() {
            return fail(Cause::MissingShards { count, missing });
        }
        Ok(names.iter().map(|name| first.with_file_name(name)).collect())
    }

    /// Checks that the shard with this metadata is number `no` of this same split.
    pub(super) fn check_member(&self, meta: &Metadata, path: &Path, no: u32) -> Result<(), GgufError> {
        for (key, expected) in [(KEY_COUNT, self.count), (KEY_NO, no)] {
            let found = meta.require_u32(key)?;
            if found != expected {
                let (expected, found) = (expected.into(), found.into());
                return Err(GgufError::new(path, Cause::ShardMismatch { key, expected, found }));
            }
        }
        Ok(())
    }

    /// Checks the number of tensors found in all shards together.
    pub(super) fn check_tensor_count(&self, path: &Path, found: usize) -> Result<(), GgufError> {
        match self.tensors {
            Some(said) if said as usize != found => {
                let (expected, said) = (found as u64, said.into());
                Err(GgufError::new(path, Cause::ShardMismatch { key: KEY_TENSORS, expected, found: said }))
            }
            _ => Ok(()),
        }
    }
}

/// File name of shard `no` (from 0); names count from 1.
fn shard_name(prefix: &str, no: u32, count: u32) -> String {
    format!("{prefix}-{:05}-of-{count:05}.gguf", no.saturating_add(1))
}

/// What precedes the shard suffix in a file name; `None` if the name is not that of this shard.
fn name_prefix(name: &str, no: u32, count: u32) -> Option<&str> {
    name.strip_suffix(&shard_name("", no, count))
}

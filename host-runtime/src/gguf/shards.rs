//! Models split over several files: naming, the keys that describe the split, and their agreement.
//!
//! The first shard carries the model's metadata; the others carry tensors and the three `split.*` keys.

use std::fmt;
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
        let name = first.file_name().and_then(|name| ShardName::parse(name.to_str()?));
        let prefix = name.filter(|name| (name.no, name.count) == (self.no, count)).map(|name| name.prefix);
        let shard_name = |prefix, no| ShardName { prefix, no, count }.to_string();
        if self.no != 0 {
            let first = shard_name(prefix.unwrap_or("the file ending in "), 0);
            return fail(Cause::NotFirstShard { no: self.no, count, first });
        }
        let Some(prefix) = prefix else {
            return fail(Cause::ShardName { count, suffix: shard_name("", 0) });
        };
        let names: Vec<String> = (1..count).map(|no| shard_name(prefix, no)).collect();
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

/// The file name of a shard: `PREFIX-00002-of-00003.gguf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardName<'a> {
    /// What precedes the numbers.
    pub prefix: &'a str,
    /// Position of the shard, from 0; names count from 1.
    pub no: u32,
    /// Number of shards.
    pub count: u32,
}

impl<'a> ShardName<'a> {
    /// Reads a file name; `None` if it is not that of a shard.
    pub fn parse(name: &'a str) -> Option<Self> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| -> Option<u32> {
            let five = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
            five.then(|| text.parse().ok()).flatten()
        };
        let (number, count) = (digits(number)?, digits(count)?);
        (1..=count).contains(&number).then(|| Self { prefix, no: number - 1, count })
    }
}

impl fmt::Display for ShardName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:05}-of-{:05}.gguf", self.prefix, self.no.saturating_add(1), self.count)
    }
}

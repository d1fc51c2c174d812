//! Downloads in a program that was built without them: a line that says how to have them.

use std::path::PathBuf;

use super::cache::Cache;
use super::error::HubError;
use super::{Request, Token};
use hexflash::cancel::Cancel;

/// Refuses what is not in the cache.
pub(super) fn fetch(
    cache: &Cache,
    request: &Request<'_>,
    _: Option<Token>,
    _: &Cancel,
) -> Result<PathBuf, HubError> {
    Err(HubError::NotBuilt { wanted: request.wanted(), cache: cache.root().to_owned() })
}

/// Refuses encoders, too.
pub(super) fn fetch_encoder(
    cache: &Cache,
    request: &Request<'_>,
    token: Option<Token>,
    cancel: &Cancel,
) -> Result<(), HubError> {
    fetch(cache, request, token, cancel).map(drop)
}

//! The chat template that `--chat-template` names.

use std::io;
use std::path::Path;

use super::{CliError, input};
use hexflash::chat::MAX_SOURCE;
use hexflash::text::CHATML;

/// The source of a template: that of the file `name`, or ChatML's for `chatml`.
pub(super) fn read(name: &Path) -> Result<String, CliError> {
    if name == Path::new("chatml") {
        return Ok(CHATML.to_owned());
    }
    let text = input::read(name, MAX_SOURCE).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    text.map_err(|source| CliError::Template { path: name.to_owned(), source })
}

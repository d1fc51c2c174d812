//! `/slots/{id}?action=...`: a sequence into a file, out of one, or forgotten.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path as Part, State};
use axum::http::Uri;
use hexflash::engine::SequenceCopy;
use serde_json::{Value, json};

use super::app::{App, Shared};
use super::error::ApiError;
use super::fields::{Fields, Whole};
use crate::id::random;
use crate::scheduler::task::{Done, Task};

/// Longest name of a file, in bytes: systems have this limit.
const MAX_NAME: usize = 255;

pub(super) async fn act(
    State(app): Shared,
    Part(slot): Part<String>,
    uri: Uri,
    Whole(body): Whole,
) -> Result<Json<Value>, ApiError> {
    let n = app.writer()?.slots;
    let folder =
        app.options.slot_save_path.clone().ok_or_else(|| ApiError::switched_off("--slot-save-path DIR"))?;
    let number = slot.parse::<usize>().ok().filter(|&slot| slot < n);
    let slot = number
        .ok_or_else(|| ApiError::invalid(format!("there is no slot {slot}; there are {n}, from 0 on")))?;
    let start = Instant::now();
    let ms = || start.elapsed().as_secs_f64() * 1e3;
    Ok(Json(match action(&uri) {
        "save" => {
            let name = file_name(&body)?;
            let Done::Copied(copy) = app.ask(slot, Task::CopyOut).await? else {
                return Err(ApiError::internal("the slot"));
            };
            let (tokens, path) = (copy.tokens().len(), folder.join(&name));
            let bytes = blocking(move || write(&path, &copy.to_bytes())).await?;
            json!({ "id_slot": slot, "filename": name, "n_saved": tokens, "n_written": bytes,
                "timings": { "save_ms": ms() } })
        }
        "restore" => {
            let name = file_name(&body)?;
            let path = folder.join(&name);
            let (copy, bytes) = blocking(move || read(&path)).await?;
            let tokens = copy.tokens().len();
            app.ask(slot, Task::CopyIn(Arc::new(copy))).await?;
            json!({ "id_slot": slot, "filename": name, "n_restored": tokens, "n_read": bytes,
                "timings": { "restore_ms": ms() } })
        }
        "erase" => {
            let Done::Erased(tokens) = app.ask(slot, Task::Erase).await? else {
                return Err(ApiError::internal("the slot"));
            };
            json!({ "id_slot": slot, "n_erased": tokens })
        }
        other => {
            return Err(ApiError::field("action", format!("\"{other}\" is none of save, restore, erase")));
        }
    }))
}

/// What the query asks for; nothing if it does not say.
fn action(uri: &Uri) -> &str {
    let mut fields = uri.query().unwrap_or_default().split('&');
    fields.find_map(|field| field.strip_prefix("action=")).unwrap_or_default()
}

impl App {
    /// Has the worker do something with a sequence as soon as that is at rest.
    async fn ask(&self, slot: usize, task: Task) -> Result<Done, ApiError> {
        let done = self.scheduler.ask(slot, task)?;
        done.await.map_err(|_| ApiError::ending())?.map_err(ApiError::from)
    }
}

/// Does what may wait for a disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::internal("the file"))?
}

/// The name of a file in the folder: one that leads nowhere else on any system.
fn file_name(body: &[u8]) -> Result<String, ApiError> {
    let name = Fields::parse(body)?.remove("filename");
    let is_plain = |c: char| !c.is_control() && !r#"/\:*?"<>|"#.contains(c);
    let fits = |name: &&str| {
        (1..=MAX_NAME).contains(&name.len())
            && name.chars().all(is_plain)
            && !name.starts_with('.')
            && !name.ends_with([' ', '.'])
    };
    let name = name.as_ref().and_then(Value::as_str).filter(fits).map(str::to_owned);
    name.ok_or_else(|| ApiError::field("filename", "give the plain name of a file, without folders"))
}

/// Writes a file as a whole, or not at all; its bytes.
fn write(path: &Path, bytes: &[u8]) -> Result<usize, ApiError> {
    // Two requests at once do not meet.
    let draft = with_extension(path, &format!("{:016x}.part", random()));
    let written = create(&draft).and_then(|mut file| file.write_all(bytes));
    let written = written.and_then(|()| fs::rename(&draft, path));
    if let Err(error) = written {
        // It may not be there.
        let _ = fs::remove_file(&draft);
        return Err(failed("written", path, &error));
    }
    Ok(bytes.len())
}

/// A new file that nobody else on this machine may read: it has a conversation in it.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn with_extension(path: &Path, extension: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{}.{extension}", name.chars().take(40).collect::<String>()))
}

/// The copy in a file, and how many bytes that has.
fn read(path: &Path) -> Result<(SequenceCopy, usize), ApiError> {
    let bytes = regular(path).and_then(|()| fs::read(path)).map_err(|error| failed("read", path, &error))?;
    let copy = SequenceCopy::from_bytes(&bytes).map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok((copy, bytes.len()))
}

/// Checks that something is a file. To open a pipe would wait for who writes into it, and a device may have
/// no end.
fn regular(path: &Path) -> io::Result<()> {
    match path.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> ApiError {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let message = format!("the file {name} cannot be {what}: {error}");
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => {
            ApiError::field("filename", format!("{message}; name one that was saved"))
        }
        _ => ApiError::unavailable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        let name = |name: &str| file_name(json!({ "filename": name }).to_string().as_bytes());
        for fine in ["a", "slot1.bin", "Gespräch 1.bin", "a..b"] {
            assert_eq!(name(fine).unwrap(), fine);
        }
        for wrong in ["", ".", "..", "../x", "a/b", "/etc/x", r"a\b", "C:x", "a\0b", ".x", "x.", "x\n", "*"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert!(name(&"x".repeat(256)).is_err() && file_name(b"").is_err() && file_name(b"{}").is_err());
    }
}

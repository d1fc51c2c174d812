//! Files onto the device: those that are not there already, in pieces that are each checked, so that a push that was cut
//! off goes on where it was.
//!
//! A file grows under the name `NAME.part`, and gets its own when its checksum is right. The device needs `sha256sum`,
//! `dd`, `truncate` and `df`, which Android's toybox has, and every Linux.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::adb::{Adb, copy, quoted};
use super::{DeployError, name};
use crate::cli::progress::Progress;
use crate::cli::say;

/// Bytes of a piece: a second or two over USB.
const PIECE: u64 = 16 << 20;
/// How often a piece is sent before the connection counts as bad.
const TRIES: u32 = 3;
/// What is left free on the device: it needs some for caches and logs.
const SPARE: u64 = 16 << 20;

/// A file to push.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    /// Its name below the device's folder.
    pub(super) name: String,
    bytes: u64,
}

impl File {
    /// A file that goes into `folder` (empty, or with a slash at its end) below the device's.
    pub(super) fn open(path: &Path, folder: &str) -> Result<Self, DeployError> {
        let read = |source| DeployError::Read { path: path.to_owned(), source };
        let bytes = fs::File::open(path).and_then(|file| file.metadata()).map_err(read)?.len();
        Ok(Self { path: path.to_owned(), name: format!("{folder}{}", name(path)?), bytes })
    }

    /// SHA-256 of its bytes from `at`, at most `bytes` of them.
    fn checksum(&self, at: u64, bytes: u64, progress: &Progress) -> Result<String, DeployError> {
        let mut hash = Sha256::new();
        let mut work = || {
            let mut file = fs::File::open(&self.path)?;
            file.seek(SeekFrom::Start(at))?;
            let (mut file, mut buffer, mut done) = (file.take(bytes), vec![0; 256 << 10], 0);
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(()),
                    n => {
                        hash.update(&buffer[..n]);
                        done += n as u64;
                        progress.set(done, bytes);
                    }
                }
            }
        };
        work().map_err(|source| DeployError::Read { path: self.path.clone(), source })?;
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// How a piece is called for `dd`: both sides in the same unit.
    fn piece(&self, number: u64) -> (u64, u64) {
        let at = number * PIECE;
        (at, PIECE.min(self.bytes - at))
    }
}

/// The folder on the device.
pub(super) struct Place<'a> {
    adb: &'a Adb,
    dir: &'a str,
}

/// The checksums in the output of `sha256sum`: the first word of each line.
fn checksums(output: &str) -> Vec<String> {
    let lines = output.lines().filter_map(|line| line.split_whitespace().next());
    lines.filter(|word| word.len() == 64).map(str::to_owned).collect()
}

impl<'a> Place<'a> {
    /// Makes the folder, and one for models in it if there are any.
    pub(super) fn make(adb: &'a Adb, dir: &'a str, models: bool) -> Result<Self, DeployError> {
        let place = Self { adb, dir };
        let models = if models { "/models" } else { "" };
        let test = quoted(&format!("{dir}/.hexflash-write"));
        let script = format!("mkdir -p {} && : > {test} && rm {test}", quoted(&format!("{dir}{models}")));
        adb.script(&script).map_err(|error| match error {
            DeployError::Remote { text, .. } => DeployError::ReadOnly { dir: dir.to_owned(), text },
            error => error,
        })?;
        Ok(place)
    }

    /// A file's path on the device, quoted.
    fn path(&self, name: &str) -> String {
        quoted(&format!("{}/{name}", self.dir))
    }

    /// The files that are not there, if there is room for them; counts the others.
    pub(super) fn wanted<'f>(&self, files: &'f [File], same: &mut u32) -> Result<Vec<&'f File>, DeployError> {
        let (mut wanted, mut needed) = (Vec::new(), 0);
        for file in files {
            let path = self.path(&file.name);
            // The size first: it needs no reading.
            let bytes = self.adb.script(&format!("[ -f {path} ] && wc -c < {path} || true"))?;
            let is_same = bytes.trim().parse() == Ok(file.bytes) && {
                let there = checksums(&self.adb.script(&format!("sha256sum < {path}"))?);
                let progress = Progress::bytes(format!("comparing {}", file.name));
                let here = file.checksum(0, file.bytes, &progress)?;
                progress.finish();
                there == [here]
            };
            if is_same {
                *same += 1;
            } else {
                wanted.push(file);
                needed += file.bytes.saturating_sub(self.part_bytes(file)?);
            }
        }
        if needed > 0 {
            let free = self.free()?;
            if free.is_some_and(|free| free < needed + SPARE) {
                let free = free.unwrap_or(0);
                return Err(DeployError::NoRoom { dir: self.dir.to_owned(), needed, free });
            }
        }
        Ok(wanted)
    }

    /// Bytes that are free; `None` if the device does not say.
    fn free(&self) -> Result<Option<u64>, DeployError> {
        let output = self.adb.script(&format!("df -Pk {}", quoted(self.dir)))?;
        let line = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let kib: Option<u64> = line.split_whitespace().nth(3).and_then(|word| word.parse().ok());
        Ok(kib.map(|kib| kib << 10))
    }

    /// Bytes of what an earlier push left.
    fn part_bytes(&self, file: &File) -> Result<u64, DeployError> {
        let part = self.path(&format!("{}.part", file.name));
        let bytes = self.adb.script(&format!("[ -f {part} ] && wc -c < {part} || echo 0"))?;
        Ok(bytes.trim().parse().unwrap_or(0))
    }

    /// Pieces of an earlier push that are right.
    fn good_pieces(&self, file: &File) -> Result<u64, DeployError> {
        let whole = self.part_bytes(file)?.min(file.bytes) / PIECE;
        if whole == 0 {
            return Ok(0);
        }
        let part = self.path(&format!("{}.part", file.name));
        let there = checksums(&self.adb.script(&format!(
            "i=0; while [ $i -lt {whole} ]; do {}; i=$((i+1)); done",
            piece_checksum(&part, "$i")
        ))?);
        let progress = Progress::bytes(format!("comparing {}", file.name));
        let mut good = 0;
        for there in there {
            let (at, bytes) = file.piece(good);
            if there != file.checksum(at, bytes, &progress)? {
                break;
            }
            good += 1;
        }
        progress.finish();
        Ok(good)
    }

    /// Pushes a file.
    pub(super) fn push(&self, file: &File) -> Result<(), DeployError> {
        let (part, path) = (self.path(&format!("{}.part", file.name)), self.path(&file.name));
        let mut next = self.good_pieces(file)?;
        if next > 0 {
            let (done, all) = ((next * PIECE) >> 20, file.bytes.div_ceil(1 << 20));
            say(format_args!("{}: going on at {done} of {all} MiB", file.name));
        }
        let progress = Progress::bytes(format!("pushing {}", file.name));
        while next * PIECE < file.bytes {
            self.push_piece(file, &part, next, &progress)?;
            next += 1;
        }
        progress.finish();
        let rights = if file.name == super::PROGRAM { 755 } else { 644 };
        let finish =
            format!("truncate -s {} {part} && chmod {rights} {part} && mv {part} {path}", file.bytes);
        self.adb.script(&finish).map_err(|error| self.told(error))?;
        Ok(())
    }

    /// Sends a piece until the device has it right.
    fn push_piece(
        &self,
        file: &File,
        part: &str,
        number: u64,
        progress: &Progress,
    ) -> Result<(), DeployError> {
        let (at, bytes) = file.piece(number);
        let expected = file.checksum(at, bytes, &Progress::bytes(""))?;
        let script = format!(
            "truncate -s {at} {part} && cat >> {part} && {}",
            piece_checksum(part, &number.to_string())
        );
        for _ in 0..TRIES {
            let mut from = fs::File::open(&file.path)
                .and_then(|mut from| from.seek(SeekFrom::Start(at)).map(|_| from))
                .map_err(|source| DeployError::Read { path: file.path.clone(), source })?;
            let output = self
                .adb
                .script_reading(&script, |to| {
                    copy(&mut from, to, bytes, |n| progress.set(at + n, file.bytes))
                })
                .map_err(|error| self.told(error))?;
            if checksums(&output) == [expected.as_str()] {
                return Ok(());
            }
            tracing::info!("{}: the piece at byte {at} arrived damaged, and is sent again", file.name);
        }
        Err(DeployError::Corrupt { file: file.name.clone(), at, tries: TRIES })
    }

    /// What a failure of the device means here.
    fn told(&self, error: DeployError) -> DeployError {
        match error {
            DeployError::Remote { text, .. } if text.contains("No space left") => {
                DeployError::Full { dir: self.dir.to_owned(), text }
            }
            DeployError::Remote { text, .. }
                if text.contains("Read-only") || text.contains("Permission denied") =>
            {
                DeployError::ReadOnly { dir: self.dir.to_owned(), text }
            }
            error => error,
        }
    }
}

/// The command that prints the checksum of a piece of a file.
fn piece_checksum(file: &str, number: &str) -> String {
    let blocks = PIECE >> 20;
    format!("dd if={file} bs=1048576 skip=$(({number}*{blocks})) count={blocks} 2>/dev/null | sha256sum")
}

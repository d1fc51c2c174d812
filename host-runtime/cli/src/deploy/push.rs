//! Files onto the device: those that are not there already, in pieces that are each checked, so that a push
//! that was cut off goes on where it was.
//!
//! A file grows under the name `NAME.part`, and gets its own when its checksum is right. The device needs
//! `sha256sum`, `dd`, `truncate` and `df`, which Android's toybox has, and every Linux.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::adb::{Adb, quoted};
use super::call::{Feed, hex};
use super::{DeployError, name};
use crate::output::say;
use crate::progress::Progress;

/// Bytes of a piece: a second or two over USB.
const CHUNK: u64 = 16 << 20;
/// How often a piece is sent before the connection counts as bad.
const TRIES: u32 = 3;
/// What is left free on the device: it needs some for caches and logs.
const SPARE: u64 = 16 << 20;
/// Bytes that `sha256sum` prints for its standard input: 64 digits, two blanks, a dash, a line break.
const LINE: usize = 68;
/// Digits of a fingerprint: enough that two models of one user never share one (48 bits).
const FINGERPRINT: usize = 12;

/// A file to push.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    /// Its name below the device's folder.
    pub(super) name: String,
    bytes: u64,
    /// SHA-256 of each piece.
    pieces: Vec<String>,
}

/// Opens a file here. Only regular ones: a pipe would keep us waiting for ever.
pub(super) fn open(path: &Path) -> Result<fs::File, DeployError> {
    let read = |source| DeployError::Read { path: path.to_owned(), source };
    if !path.metadata().map_err(read)?.is_file() {
        return Err(DeployError::NoFile { path: path.to_owned() });
    }
    fs::File::open(path).map_err(read)
}

/// What tells files of the same name apart: a few digits of the SHA-256 of all their contents.
pub(super) fn fingerprint(files: &[File]) -> String {
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.bytes.to_le_bytes());
        file.pieces.iter().for_each(|piece| hash.update(piece));
    }
    let mut digits = hex(hash);
    digits.truncate(FINGERPRINT);
    digits
}

impl File {
    /// Reads a file that goes into `folder` (empty, or with a slash at its end) below the device's.
    pub(super) fn read(path: &Path, folder: &str) -> Result<Self, DeployError> {
        let name = name(path)?;
        let progress = Progress::bytes(format!("reading {name}"));
        let file = open(path)?;
        let work = || {
            let bytes = file.metadata()?.len();
            let (mut file, mut buffer, mut pieces) = (file.take(bytes), vec![0; 256 << 10], Vec::new());
            for at in (0..bytes).step_by(CHUNK as usize) {
                let (mut hash, mut left) = (Sha256::new(), CHUNK.min(bytes - at));
                while left > 0 {
                    let n = left.min(buffer.len() as u64) as usize;
                    file.read_exact(&mut buffer[..n])?;
                    hash.update(&buffer[..n]);
                    left -= n as u64;
                }
                pieces.push(hex(hash));
                progress.set(at, bytes);
            }
            Ok((bytes, pieces))
        };
        let (bytes, pieces) =
            work().map_err(|source: io::Error| DeployError::Read { path: path.to_owned(), source })?;
        progress.finish();
        Ok(Self { path: path.to_owned(), name: format!("{folder}{name}"), bytes, pieces })
    }

    /// Where a piece begins, and its bytes.
    fn piece(&self, number: usize) -> (u64, u64) {
        let at = number as u64 * CHUNK;
        (at, CHUNK.min(self.bytes - at))
    }
}

/// The folder on the device.
pub(super) struct RemoteFolder<'a> {
    adb: &'a Adb,
    dir: &'a str,
}

/// The checksums in the output of `sha256sum`: the first word of each line.
fn checksums(output: &str) -> Vec<String> {
    let lines = output.lines().filter_map(|line| line.split_whitespace().next());
    lines.filter(|word| word.len() == 64).map(str::to_owned).collect()
}

impl<'a> RemoteFolder<'a> {
    /// Makes the folder, and those in it that files go into.
    pub(super) fn make(adb: &'a Adb, dir: &'a str, files: &[File]) -> Result<Self, DeployError> {
        let place = Self { adb, dir };
        let folders =
            files.iter().filter_map(|file| Some(format!("{dir}/{}", file.name.rsplit_once('/')?.0)));
        let folders: BTreeSet<_> = folders.chain([dir.to_owned()]).collect();
        let folders: Vec<_> = folders.iter().map(|folder| quoted(folder)).collect();
        let test = quoted(&format!("{dir}/.hexflash-write"));
        let script = format!("mkdir -p {} && : > {test} && rm {test}", folders.join(" "));
        adb.script("it made the folder", &script).map_err(|error| match error {
            DeployError::Remote { text, .. } => DeployError::ReadOnly { dir: dir.to_owned(), text },
            error => error,
        })?;
        Ok(place)
    }

    /// A file's path on the device, quoted.
    fn path(&self, name: &str) -> String {
        quoted(&format!("{}/{name}", self.dir))
    }

    /// The path that a file has until it is complete, quoted.
    fn part(&self, file: &File) -> String {
        self.path(&format!("{}.part", file.name))
    }

    /// The files that are not there, if there is room for them; counts the others.
    pub(super) fn wanted<'f>(&self, files: &'f [File], same: &mut u32) -> Result<Vec<&'f File>, DeployError> {
        let (mut wanted, mut needed) = (Vec::new(), 0);
        for file in files {
            let path = self.path(&file.name);
            // The size first: it needs no reading.
            let is_same = self.bytes(&path)? == Some(file.bytes)
                && self.good_pieces(file, &path, file.pieces.len())? == file.pieces.len();
            if is_same {
                *same += 1;
            } else {
                wanted.push(file);
                needed += file.bytes.saturating_sub(self.bytes(&self.part(file))?.unwrap_or(0));
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
        let output = self.adb.script("it looked for room", &format!("df -Pk {}", quoted(self.dir)))?;
        let line = output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let kib: Option<u64> = line.split_whitespace().nth(3).and_then(|word| word.parse().ok());
        Ok(kib.map(|kib| kib << 10))
    }

    /// Bytes of a file on the device, if there is one.
    fn bytes(&self, path: &str) -> Result<Option<u64>, DeployError> {
        let script = format!("[ -f {path} ] && wc -c < {path} || true");
        Ok(self.adb.script("it looked for what is there", &script)?.trim().parse().ok())
    }

    /// How many of a file's first pieces are right in `path` on the device, which has `most` of them.
    fn good_pieces(&self, file: &File, path: &str, most: usize) -> Result<usize, DeployError> {
        if most == 0 {
            return Ok(0);
        }
        let progress = Progress::bytes(format!("comparing {}", file.name));
        let script =
            format!("i=0; while [ $i -lt {most} ]; do {}; i=$((i+1)); done", piece_checksum(path, "$i"));
        let output = self.adb.script_telling(&format!("it compared {}", file.name), &script, |said| {
            progress.set((said / LINE) as u64 * CHUNK, file.bytes);
        })?;
        progress.finish();
        let there = checksums(&output);
        Ok(there.iter().zip(&file.pieces).take(most).take_while(|(there, here)| there == here).count())
    }

    /// Pushes a file.
    pub(super) fn push(&self, file: &File) -> Result<(), DeployError> {
        let (part, path) = (self.part(file), self.path(&file.name));
        let whole = self.bytes(&part)?.unwrap_or(0).min(file.bytes) / CHUNK;
        let next = self.good_pieces(file, &part, whole as usize)?;
        if next > 0 {
            let (at, of) = (file.piece(next).0 >> 20, file.bytes.div_ceil(1 << 20));
            say(format_args!("{}: going on at {at} of {of} MiB", file.name));
        }
        let progress = Progress::bytes(format!("pushing {}", file.name));
        for number in next..file.pieces.len() {
            self.push_piece(file, &part, number, &progress)?;
        }
        progress.finish();
        let rights = if file.name == super::PROGRAM { 755 } else { 644 };
        // A folder of that name would swallow the file.
        let finish = format!(
            "truncate -s {} {part} && chmod {rights} {part} && \
             if [ -d {path} ]; then echo {path} is a folder >&2; exit 1; fi && mv {part} {path}",
            file.bytes
        );
        let what = format!("it put {} in its place", file.name);
        self.adb.script(&what, &finish).map_err(|error| self.told(error))?;
        Ok(())
    }

    /// Sends a piece until the device has it right.
    fn push_piece(
        &self,
        file: &File,
        part: &str,
        number: usize,
        progress: &Progress,
    ) -> Result<(), DeployError> {
        let ((at, bytes), expected) = (file.piece(number), &file.pieces[number]);
        let script = format!(
            "truncate -s {at} {part} && cat >> {part} && {}",
            piece_checksum(part, &number.to_string())
        );
        for _ in 0..TRIES {
            let mut from = open(&file.path)?;
            from.seek(SeekFrom::Start(at))
                .map_err(|source| DeployError::Read { path: file.path.clone(), source })?;
            let (output, sent) = self
                .adb
                .script_reading(&format!("it took {}", file.name), &script, Feed { file: from, bytes }, |n| {
                    progress.set(at + n, file.bytes)
                })
                .map_err(|error| self.told(error))?;
            if sent.is_some_and(|sent| sent != *expected) {
                return Err(DeployError::Changed { path: file.path.clone() });
            }
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
    let blocks = CHUNK >> 20;
    format!("dd if={file} bs=1048576 skip=$(({number}*{blocks})) count={blocks} 2>/dev/null | sha256sum")
}

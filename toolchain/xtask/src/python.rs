//! Pythons of their own for checks that need packages of PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result};
use crate::process;

/// Installs the packages of a list where they are not there yet; the Python that has them.
pub fn install(wanted: &Path, into: &Path) -> Result<PathBuf> {
    let (python, mark) = (into.join("venv/bin/python"), into.join("installed.txt"));
    let list = fs::read(wanted).map_err(|error| Failure::on_disk("read", wanted, &error))?;
    if fs::read(&mark).is_ok_and(|installed| installed == list) {
        return Ok(python);
    }
    // What is there of another version is of no use.
    let _ = fs::remove_dir_all(into);
    fs::create_dir_all(into).map_err(|error| Failure::on_disk("create", into, &error))?;
    process::run(Command::new("python3").args(["-m", "venv"]).arg(into.join("venv")))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]);
    process::run(pip.arg("--requirement").arg(wanted))?;
    fs::write(&mark, list).map_err(|error| Failure::on_disk("write", &mark, &error))?;
    Ok(python)
}

//! `cargo xtask deny`: holds the dependencies of every workspace against `deny.toml`.
//!
//! Advisories come from a database that cargo-deny fetches from GitHub. Where it cannot be fetched, one that
//! was fetched before is used, and without any the output says that advisories were not checked.

use crate::failure::Result;
use crate::process;
use crate::setup::{self, Set};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of the workspaces. Each has a lock file of its own.
const WORKSPACES: [&str; 4] = [".", "tests/oracle", "tests/fuzz", "platform/android"];

/// Entries of `deny.toml` that only some of the workspaces need.
const NOT_EVERYWHERE: [&str; 5] = [
    "license-exception-not-encountered",
    "unmatched-skip",
    "unmatched-skip-root",
    "unnecessary-skip",
    "unused-wrapper",
];

/// The verb.
pub fn run() -> Result<()> {
    for set in [Set::Base, Set::Deny] {
        setup::ensure(set)?;
    }
    let root = process::workspace_root()?;
    let advisories = has_advisories(&root);
    for workspace in WORKSPACES {
        println!("{workspace}:");
        process::run(&mut check(&root, workspace, &[], &["licenses", "bans", "sources"]))?;
        if advisories {
            // All crates are here by now, and the database is as new as it gets.
            process::run(&mut check(&root, workspace, &["--offline"], &["advisories"]))?;
        }
    }
    if !advisories {
        println!(
            "advisories: NOT CHECKED, their database is not here and cannot be fetched; \
             repeat this where GitHub \
             can be reached"
        );
    }
    Ok(())
}

/// cargo-deny for a workspace.
fn check(root: &Path, workspace: &str, options: &[&str], checks: &[&str]) -> Command {
    let mut command = process::cargo();
    command.args(["deny", "--locked", "--workspace"]).args(options);
    command.arg("--manifest-path").arg(root.join(workspace).join("Cargo.toml"));
    command.arg("--config").arg(root.join("deny.toml"));
    command.args(["check", "--hide-inclusion-graph"]);
    for lint in NOT_EVERYWHERE {
        command.args(["--allow", lint]);
    }
    command.args(checks);
    command
}

/// Whether there is a database of advisories: a new one if it can be fetched.
fn has_advisories(root: &Path) -> bool {
    let mut fetch = process::cargo();
    fetch.current_dir(root).args(["deny", "fetch", "db"]).stdout(Stdio::null()).stderr(Stdio::null());
    // Nobody is there to type a password, and a connection that brings less than 1 kB/s for half a minute is
    // none.
    fetch.env("GIT_TERMINAL_PROMPT", "0");
    fetch.env("GIT_HTTP_LOW_SPEED_LIMIT", "1000").env("GIT_HTTP_LOW_SPEED_TIME", "30");
    let fetched = fetch.status().is_ok_and(|status| status.success());
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let databases = home.and_then(|home| home.join("advisory-dbs").read_dir().ok());
    fetched || databases.into_iter().flatten().flatten().any(|entry| entry.path().join("crates").is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Files of the repository with this name, but for what was built.
    fn files(dir: &Path, name: &str, found: &mut Vec<PathBuf>) {
        for entry in dir.read_dir().unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if entry.file_name() == name {
                found.push(path);
            } else if entry.file_type().unwrap().is_dir()
                && !["target", ".git"].iter().any(|n| path.ends_with(n))
            {
                files(&path, name, found);
            }
        }
    }

    #[test]
    fn every_lock_file_is_checked() {
        let root = process::workspace_root().unwrap();
        let mut found = Vec::new();
        files(&root, "Cargo.lock", &mut found);
        let found: BTreeSet<_> = found.into_iter().collect();
        assert_eq!(
            found,
            WORKSPACES.map(|dir| root.join(dir).join("Cargo.lock").components().collect()).into()
        );
    }

    /// Workspaces cannot inherit from one another, and nobody would notice one that is left behind.
    #[test]
    fn a_dependency_has_one_version_wherever_it_is_named() {
        let root = process::workspace_root().unwrap();
        let mut versions = BTreeMap::<String, BTreeSet<String>>::new();
        for workspace in WORKSPACES {
            let mut metadata = process::cargo();
            metadata.args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path"]);
            let text = process::output(metadata.arg(root.join(workspace).join("Cargo.toml"))).unwrap();
            let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
            let packages = metadata["packages"].as_array().unwrap().iter();
            let dependencies = packages.flat_map(|package| package["dependencies"].as_array().unwrap());
            for dependency in dependencies.filter(|dependency| dependency["path"].is_null()) {
                let [name, version] = ["name", "req"].map(|key| dependency[key].as_str().unwrap().to_owned());
                versions.entry(name).or_default().insert(version);
            }
        }
        assert!(versions.len() > 30, "{versions:?}");
        versions.retain(|_, versions| versions.len() > 1);
        assert!(versions.is_empty(), "{versions:?}");
    }
}

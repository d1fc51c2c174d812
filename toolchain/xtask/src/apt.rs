//! Installing Debian packages, as root, through sudo, or not at all.

use crate::failure::{Failure, Result};
use crate::process;
use std::process::Command;

/// Installs these packages. Does nothing but explain when there is no apt-get or no way to become root.
///
/// Nothing is ever removed to make room (`rustc-web` conflicts with Debian's own `rustc`): apt-get then
/// fails and says which package is in the way.
pub fn install(packages: &[&str]) -> Result<()> {
    let by_hand = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if process::find_program(&["apt-get"]).is_none() {
        return Err(Failure::unusable(
            "apt-get is not on this machine",
            format!("install the equivalents of: {}", packages.join(" ")),
        ));
    }
    let Some(become_root) = Root::find() else {
        return Err(Failure::unusable(
            "installing needs root, and sudo is not there",
            format!("run as root: apt-get update && {by_hand}"),
        ));
    };
    if !packages.iter().all(|package| has_candidate(package)) {
        // No package lists yet, or lists from before the package existed. The install below tells which.
        let _ = process::run(&mut become_root.apt_get(&["update", "-q"]));
    }
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends", "--no-remove"];
    arguments.extend(packages);
    let first = process::run(&mut become_root.apt_get(&arguments));
    // The lists may name versions that the mirror no longer has: refresh them and try once more.
    first
        .or_else(|_| {
            process::run(&mut become_root.apt_get(&["update", "-q"]))?;
            process::run(&mut become_root.apt_get(&arguments))
        })
        .map_err(|_| {
            Failure::unusable(
                format!("apt-get could not install {}", packages.join(" ")),
                format!("see its output above, then run as root: {by_hand}"),
            )
        })
}

/// Whether apt knows a version of this package that it could install.
fn has_candidate(package: &str) -> bool {
    let policy = process::output(Command::new("apt-cache").args(["policy", package]).env("LC_ALL", "C"));
    policy.is_some_and(|text| names_candidate(&text))
}

/// Whether the output of `apt-cache policy PACKAGE` has a version after `Candidate:`.
fn names_candidate(policy: &str) -> bool {
    policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate:"))
        .is_some_and(|version| version.trim() != "(none)")
}

/// How to run a command as root.
enum Root {
    /// We are root.
    Already,
    /// Through sudo.
    Sudo,
}

impl Root {
    fn find() -> Option<Self> {
        let user = process::output(Command::new("id").arg("-u"))?;
        if user.trim() == "0" {
            Some(Self::Already)
        } else {
            process::find_program(&["sudo"]).map(|_| Self::Sudo)
        }
    }

    /// An apt-get command that asks no questions and waits for another one to finish.
    fn apt_get(&self, arguments: &[&str]) -> Command {
        let mut command = match self {
            Self::Already => Command::new("env"),
            Self::Sudo => {
                let mut sudo = Command::new("sudo");
                sudo.arg("env");
                sudo
            }
        };
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"]);
        command.args(arguments);
        eprintln!("setup: {}", process::typed(&command));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_apts_policy() {
        assert!(names_candidate("lld-19:\n  Installed: (none)\n  Candidate: 1:19.1.7-3~deb12u1\n"));
        assert!(!names_candidate("lld-19:\n  Installed: (none)\n  Candidate: (none)\n"));
        assert!(!names_candidate(""));
    }
}

//! Child processes: how they are started, shown and judged.

use crate::failure::{Failure, Result};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{self, Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

/// The root of the workspace that this xtask belongs to.
///
/// `cargo run` sets `CARGO_MANIFEST_DIR` for the process; without it (the binary started by hand) the
/// nearest ancestor of the working directory that holds `toolchain/xtask` is taken.
pub fn workspace_root() -> Result<PathBuf> {
    let start = match env::var_os("CARGO_MANIFEST_DIR") {
        Some(manifest) => PathBuf::from(manifest),
        None => env::current_dir().map_err(|error| {
            Failure::unusable(format!("the working directory is unknown ({error})"), "change to the checkout")
        })?,
    };
    start
        .ancestors()
        .find(|dir| dir.join("toolchain/xtask/Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            Failure::unusable("this is not a checkout of hexflash", "run `cargo xtask` inside of one")
        })
}

/// Where cargo puts what it builds for the checkout `root`.
///
/// As with cargo itself, a relative `CARGO_TARGET_DIR` counts from the working directory.
pub fn target_dir(root: &Path) -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    path::absolute(target).map_err(|error| {
        Failure::unusable(format!("CARGO_TARGET_DIR is not a usable path ({error})"), "set it to a directory")
    })
}

/// Chooses the vector back ends that kernels are compiled for (`dsp-runtime/build.rs`).
pub const VECTORS: &str = "HEXFLASH_VECTORS";

/// The cargo that runs this xtask, so that no step uses another toolchain than the caller's.
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds the checkout `root` for tests that start its programs.
///
/// It builds the whole workspace: cargo resolves the features of one package alone in another way, and would
/// compile the DSP runtime and much else a second time, for minutes.
pub fn build(root: &Path) -> Result<()> {
    run(cargo().current_dir(root).args(["build", "--workspace"]))
}

/// Names the copy of this program that child processes are to start, where there is one.
const COPY: &str = "HEXFLASH_XTASK";
/// The copy that this process has made.
static OURS: OnceLock<PathBuf> = OnceLock::new();

/// Puts a copy of this program into `folder`, which [`xtask`] starts from then on.
///
/// Cargo would wait before it starts the program for whoever builds in the workspace, and one of the steps
/// may build it anew. A process that runs from such a copy goes on with that one.
pub fn copy_xtask(folder: &Path) -> Result<()> {
    if env::var_os(COPY).is_some() {
        return Ok(());
    }
    let copy = folder.join("xtask");
    // One that is running is not written over, but may be unlinked.
    let _ = fs::remove_file(&copy);
    let copied = env::current_exe().and_then(|program| fs::copy(program, &copy));
    copied.map_err(|error| Failure::on_disk("write", &copy, &error))?;
    OURS.get_or_init(|| copy);
    Ok(())
}

/// A verb of this xtask as a child process.
///
/// Without a copy it goes through cargo: a step before may have rebuilt the binary that is running.
pub fn xtask(arguments: &[&str]) -> Command {
    let mut command = match OURS.get().cloned().or_else(|| env::var_os(COPY).map(PathBuf::from)) {
        Some(copy) => {
            let mut command = Command::new(&copy);
            command.env(COPY, copy);
            command
        }
        None => {
            let mut command = cargo();
            command.args(["run", "--quiet", "--package", "xtask", "--"]);
            command
        }
    };
    command.args(arguments);
    command
}

/// The command as a person would type it, for messages.
pub fn typed(command: &Command) -> String {
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word.into_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(name).chain(command.get_args()).map(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs the command with its output shown, and turns anything but success into a failure.
pub fn run(command: &mut Command) -> Result<()> {
    let typed = typed(command);
    let status = command.status().map_err(|error| not_started(command, &error))?;
    judge(&typed, status)
}

/// Starts the command with its output shown.
pub fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|error| not_started(command, &error))
}

/// Turns anything but success of a command, which is named as it is typed, into a failure.
pub fn judge(typed: &str, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!("`{typed}` ended with {status}"), "its output above says why"))
}

/// Runs the command quietly and returns its standard output, or nothing when it could not run or failed.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The full path of the first of these programs that is found on `PATH`.
pub fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = env::split_paths(&path).collect();
    names.iter().find_map(|name| dirs.iter().map(|dir| dir.join(name)).find(|file| is_executable(file)))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file()
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::unusable(
        format!("`{}` could not be started ({error})", command.get_program().to_string_lossy()),
        "`cargo xtask setup` installs what is missing",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_so_that_they_can_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--", "a b", "it's", ""]);
        assert_eq!(typed(&command), r"cargo test -- 'a b' 'it'\''s' ''");
    }

    #[test]
    fn a_failing_child_is_a_failure_that_names_it() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_started() {
        assert!(run(&mut Command::new("hexflash-no-such-program")).is_err());
        assert!(output(&mut Command::new("hexflash-no-such-program")).is_none());
        assert!(find_program(&["hexflash-no-such-program", "sh"]).is_some_and(|sh| sh.ends_with("sh")));
    }
}

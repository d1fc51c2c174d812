//! adb: which device, and commands on it.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

use super::DeployError;

/// What a script's output ends with, and its exit code: without that the connection broke.
const END: &str = "hexflash-script-ended ";
/// Most bytes of a message of adb's that are shown.
const SHOWN: usize = 300;

/// A device that answers.
#[derive(Debug)]
pub(super) struct Adb {
    program: PathBuf,
    serial: String,
}

/// A word as the device's shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The last line of what adb or the device says, for messages of one line.
fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("nothing was said");
    line.chars().take(SHOWN).collect()
}

impl Adb {
    /// Finds the device to use: the one named, or the only one.
    pub(super) fn find(program: &Path, serial: Option<&str>) -> Result<Self, DeployError> {
        let output = Command::new(program).arg("devices").stdin(Stdio::null()).output();
        let output = output.map_err(|source| DeployError::NoAdb { adb: program.to_owned(), source })?;
        if !output.status.success() {
            return Err(DeployError::Adb { text: last_line(&output.stderr) });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let wanted = serial.map(str::to_owned).or_else(|| std::env::var("ANDROID_SERIAL").ok());
        let serial = choose(&text, wanted.as_deref())?;
        Ok(Self { program: program.to_owned(), serial })
    }

    /// A command on the device. Its standard input and output are bytes, not a terminal's.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-s", &self.serial, "shell", "-T"]).arg(line);
        command
    }

    /// Runs a script; gives what it printed.
    pub(super) fn script(&self, script: &str) -> Result<String, DeployError> {
        self.script_reading(script, |_| Ok(()))
    }

    /// Runs a script that reads what `feed` writes.
    pub(super) fn script_reading(
        &self,
        script: &str,
        feed: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<String, DeployError> {
        let mut command = self.shell(&format!("({script}); code=$?; echo; echo {END}$code"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let not_started = |source| DeployError::NoAdb { adb: self.program.clone(), source };
        let mut child = command.spawn().map_err(not_started)?;
        let mut fed = Ok(());
        if let Some(mut input) = child.stdin.take() {
            fed = feed(&mut input);
        }
        let output = child.wait_with_output().map_err(not_started)?;
        match ended(&output) {
            Some((0, text)) => match fed {
                Ok(()) => Ok(text),
                // It did not want all of it.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(text),
                Err(source) => Err(DeployError::Feed { source }),
            },
            Some((code, _)) => Err(DeployError::Remote { code, text: last_line(&output.stderr) }),
            None => Err(DeployError::Lost {
                serial: self.serial.clone(),
                text: last_line(&[&output.stdout[..], &output.stderr[..]].concat()),
            }),
        }
    }

    /// Becomes adb, which runs a command with our own input and output. So signals that are for us reach it,
    /// and nobody is left who could lose its exit code.
    #[cfg(unix)]
    pub(super) fn run(&self, line: &str) -> Result<ExitCode, DeployError> {
        let source = std::os::unix::process::CommandExt::exec(&mut self.shell(line));
        Err(DeployError::NoAdb { adb: self.program.clone(), source })
    }

    /// Runs a command with our own input and output; gives its exit code.
    #[cfg(not(unix))]
    pub(super) fn run(&self, line: &str) -> Result<ExitCode, DeployError> {
        let status = self.shell(line).status();
        let status = status.map_err(|source| DeployError::NoAdb { adb: self.program.clone(), source })?;
        Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
    }
}

/// The exit code of a script that came to its end, and its output.
fn ended(output: &Output) -> Option<(i32, String)> {
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let (text, code) = text.rsplit_once(END)?;
    Some((code.trim().parse().ok()?, text.to_owned()))
}

/// Chooses from the list of `adb devices`: a line for each, its serial number, a tab, its state.
fn choose(list: &str, wanted: Option<&str>) -> Result<String, DeployError> {
    let lines = list.lines().skip_while(|line| !line.starts_with("List of devices")).skip(1);
    let parts = lines.filter_map(|line| line.split_once(['\t', ' ']));
    let devices: Vec<_> = parts
        .map(|(serial, state)| (serial, state.trim()))
        .filter(|(serial, _)| !serial.is_empty())
        .collect();
    let names = || devices.iter().map(|(serial, _)| *serial).collect::<Vec<_>>().join(", ");
    let (serial, state) = match (wanted, devices.as_slice()) {
        (_, []) => return Err(DeployError::NoDevice),
        (Some(wanted), all) => match all.iter().find(|(serial, _)| *serial == wanted) {
            Some(&device) => device,
            None => return Err(DeployError::NotThere { serial: wanted.to_owned(), there: names() }),
        },
        (None, &[device]) => device,
        (None, _) => return Err(DeployError::Several { there: names() }),
    };
    let owned = serial.to_owned();
    match state {
        "device" => Ok(owned),
        "unauthorized" | "authorizing" => Err(DeployError::Unauthorized { serial: owned }),
        "offline" => Err(DeployError::Offline { serial: owned }),
        state => Err(DeployError::NotReady { serial: owned, state: state.to_owned() }),
    }
}

/// Copies `bytes` bytes from a file to a device, saying how far it is.
pub(super) fn copy(
    from: &mut impl Read,
    to: &mut dyn Write,
    mut bytes: u64,
    mut progress: impl FnMut(u64),
) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    let mut done = 0;
    while bytes > 0 {
        let piece = (buffer.len() as u64).min(bytes) as usize;
        from.read_exact(&mut buffer[..piece])?;
        to.write_all(&buffer[..piece])?;
        (bytes, done) = (bytes - piece as u64, done + piece as u64);
        progress(done);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_device_is_taken_and_several_are_not() {
        let head = "* daemon started successfully\nList of devices attached\n";
        let chosen = |lines: &str, wanted| match choose(&format!("{head}{lines}\n"), wanted) {
            Ok(serial) => serial,
            Err(error) => error.to_string(),
        };
        assert_eq!(chosen("R58\tdevice", None), "R58");
        assert_eq!(chosen("R58\tdevice\n10.0.0.2:5555\tdevice", Some("10.0.0.2:5555")), "10.0.0.2:5555");
        for (lines, wanted, cause) in [
            ("", None, "no device"),
            ("a\tdevice\nb\toffline", None, "a, b"),
            ("a\tdevice", Some("b"), "there is a"),
            ("a\tunauthorized", None, "unlock"),
            ("a\toffline", Some("a"), "offline"),
            ("a\tno permissions (udev); see [http://x]", None, "\"no permissions (udev); see [http://x]\""),
            ("a\trecovery", None, "\"recovery\""),
        ] {
            let text = chosen(lines, wanted);
            assert!(text.contains(cause) && text.contains("; "), "{lines:?}: {text}");
        }
    }

    #[test]
    fn words_reach_the_shell_as_they_are() {
        assert_eq!(quoted("/data/local-1.2"), "/data/local-1.2");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}

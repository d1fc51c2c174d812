//! adb: which device, and commands on it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use super::DeployError;
use super::call::{self, Failed, Feed, Heard, Progress};
use hexflash::gguf::Clean;

/// What a script's output ends with, and its exit code: without that the connection broke.
const END: &str = "hexflash-script-ended ";

/// A device that answers.
#[derive(Debug)]
pub(super) struct Adb {
    program: PathBuf,
    serial: String,
    /// How long it may make no progress.
    patience: Duration,
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

/// What adb or the device says, as a terminal can be given it.
pub(super) fn clean(text: &str) -> String {
    Clean(text).to_string()
}

/// The last line of what they say, for messages of one line.
fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    clean(text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("nothing was said"))
}

impl Adb {
    /// Finds the device to use: the one named, or the only one.
    pub(super) fn find(
        program: &Path,
        serial: Option<&str>,
        patience: Duration,
    ) -> Result<Self, DeployError> {
        let mut adb = Self { program: program.to_owned(), serial: String::new(), patience };
        let heard = adb.call("it listed its devices", Command::new(program).arg("devices"), None, |_| ())?;
        if !heard.status.success() {
            return Err(DeployError::Adb { text: last_line(&heard.stderr) });
        }
        // As adb has it: a variable that is empty is not set.
        let set = std::env::var_os("ANDROID_SERIAL").filter(|serial| !serial.is_empty());
        let wanted = serial.map(str::to_owned).or(set.map(|serial| serial.to_string_lossy().into_owned()));
        adb.serial = choose(&String::from_utf8_lossy(&heard.stdout), wanted.as_deref())?;
        Ok(adb)
    }

    /// Serial number of the device, as adb has it.
    pub(super) fn serial(&self) -> &str {
        &self.serial
    }

    /// Runs adb until its end; `what` says in an error what it did when it hung.
    fn call(
        &self,
        what: &str,
        command: &mut Command,
        feed: Option<Feed>,
        progress: impl FnMut(Progress),
    ) -> Result<Heard, DeployError> {
        call::call(command, feed, self.patience, progress).map_err(|failed| match failed {
            Failed::Start(source) => DeployError::NoAdb { adb: self.program.clone(), source },
            Failed::Hung => DeployError::Hung { what: what.to_owned(), seconds: self.patience.as_secs() },
            Failed::Endless => DeployError::Endless { what: what.to_owned(), adb: self.program.clone() },
        })
    }

    /// A command on the device. Its standard input and output are bytes, not a terminal's.
    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-s", &self.serial, "shell", "-T"]).arg(line);
        command
    }

    /// Runs a script; gives what it printed.
    pub(super) fn script(&self, what: &str, script: &str) -> Result<String, DeployError> {
        self.script_telling(what, script, |_| ())
    }

    /// Runs a script, telling how many bytes it has printed.
    pub(super) fn script_telling(
        &self,
        what: &str,
        script: &str,
        mut said: impl FnMut(usize),
    ) -> Result<String, DeployError> {
        let progress = |progress| {
            if let Progress::Said(bytes) = progress {
                said(bytes);
            }
        };
        let heard = self.call(what, &mut self.shell(&framed(script)), None, progress)?;
        self.printed(&heard)
    }

    /// Runs a script that reads what it is fed, telling how many bytes it took. Gives what it printed and, if
    /// it took all, the SHA-256 of what it was fed.
    pub(super) fn script_reading(
        &self,
        what: &str,
        script: &str,
        feed: Feed,
        mut fed: impl FnMut(u64),
    ) -> Result<(String, Option<String>), DeployError> {
        let progress = |progress| {
            if let Progress::Fed(bytes) = progress {
                fed(bytes);
            }
        };
        let heard = self.call(what, &mut self.shell(&framed(script)), Some(feed), progress)?;
        let text = self.printed(&heard)?;
        match heard.fed {
            Ok(sum) => Ok((text, Some(sum))),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok((text, None)),
            Err(source) => Err(DeployError::Feed { source }),
        }
    }

    /// What a script printed, if it came to its end and succeeded.
    fn printed(&self, heard: &Heard) -> Result<String, DeployError> {
        match ended(&heard.stdout) {
            Some((0, text)) => Ok(text),
            Some((code, _)) => Err(DeployError::Remote { code, text: last_line(&heard.stderr) }),
            None => Err(DeployError::Lost {
                serial: clean(&self.serial),
                text: last_line(&[&heard.stdout[..], &heard.stderr[..]].concat()),
            }),
        }
    }

    /// Runs a command and gives what it prints, for as long as it takes. What it complains of, and what it
    /// reads, is ours.
    pub(super) fn output(&self, line: &str) -> Result<String, DeployError> {
        let mut command = self.shell(line);
        let output = command.stdout(Stdio::piped()).spawn().and_then(std::process::Child::wait_with_output);
        let output = output.map_err(|source| DeployError::NoAdb { adb: self.program.clone(), source })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Becomes adb, which runs a command with our own input and output. So signals that are for us reach it,
    /// and nobody is left who could lose its exit code.
    #[cfg(unix)]
    pub(super) fn run(&self, line: &str) -> Result<ExitCode, DeployError> {
        let source = std::os::unix::process::CommandExt::exec(&mut self.shell(line));
        Err(DeployError::NoAdb { adb: self.program.clone(), source })
    }

    /// Runs a command with our own input and output, for as long as it takes; gives its exit code.
    #[cfg(not(unix))]
    pub(super) fn run(&self, line: &str) -> Result<ExitCode, DeployError> {
        let status = self.shell(line).status();
        let status = status.map_err(|source| DeployError::NoAdb { adb: self.program.clone(), source })?;
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        let signal: Option<i32> = None;
        let code = status.code().or(signal.map(|signal| 128 + signal));
        Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
    }
}

/// A script with a last line that says how it ended.
fn framed(script: &str) -> String {
    format!("({script}); code=$?; echo; echo {END}$code")
}

/// The exit code of a script that came to its end, and its output.
fn ended(stdout: &[u8]) -> Option<(i32, String)> {
    let text = String::from_utf8_lossy(stdout).replace('\r', "");
    let (text, code) = text.rsplit_once(END)?;
    Some((code.trim().parse().ok()?, text.to_owned()))
}

/// Chooses from the list of `adb devices`: a line for each, its serial number, a tab, its state. Both can
/// have blanks: devices that were found over the network are called `adb-SERIAL (2)._adb-tls-connect._tcp`.
fn choose(list: &str, wanted: Option<&str>) -> Result<String, DeployError> {
    let lines = list.lines().skip_while(|line| !line.starts_with("List of devices")).skip(1);
    let parts = lines.filter_map(|line| line.split_once('\t'));
    let devices: Vec<_> = parts
        .map(|(serial, state)| (serial, state.trim()))
        .filter(|(serial, _)| !serial.is_empty())
        .collect();
    let names = || clean(&devices.iter().map(|(serial, _)| *serial).collect::<Vec<_>>().join(", "));
    let (serial, state) = match (wanted, devices.as_slice()) {
        (_, []) => return Err(DeployError::NoDevice),
        (Some(wanted), all) => match all.iter().find(|(serial, _)| *serial == wanted) {
            Some(&device) => device,
            None => return Err(DeployError::NotThere { serial: clean(wanted), there: names() }),
        },
        (None, &[device]) => device,
        (None, _) => return Err(DeployError::Several { there: names() }),
    };
    match state {
        "device" => Ok(serial.to_owned()),
        "unauthorized" | "authorizing" => Err(DeployError::Unauthorized { serial: clean(serial) }),
        "offline" => Err(DeployError::Offline { serial: clean(serial) }),
        state => Err(DeployError::NotReady { serial: clean(serial), state: clean(state) }),
    }
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
        let found = "adb-R58-x (2)._adb-tls-connect._tcp";
        assert_eq!(chosen(&format!("{found}\tdevice"), None), found);
        for (lines, wanted, cause) in [
            ("", None, "no device"),
            ("a\tdevice\nb\toffline", None, "a, b"),
            ("a\tdevice", Some("b"), "there is a"),
            ("a\tunauthorized", None, "unlock"),
            ("a\toffline", Some("a"), "offline"),
            ("a\tno permissions (udev); see [http://x]", None, "\"no permissions (udev); see [http://x]\""),
            ("a\trecovery", None, "\"recovery\""),
            ("a\x1b[2J\t\x1b]0;x\x07", None, "a\\u{1b}[2J is not ready (adb says \"\\u{1b}]0;x\\u{7}\")"),
        ] {
            let text = chosen(lines, wanted);
            assert!(text.contains(cause) && text.contains("; "), "{lines:?}: {text}");
        }
    }

    #[test]
    fn only_the_last_line_is_shown_and_nothing_that_steers_a_terminal() {
        assert_eq!(
            last_line(b"first\n\x1b[31mred\x1b]0;title\x07 \n\n"),
            r"\u{1b}[31mred\u{1b}]0;title\u{7}"
        );
        assert_eq!(last_line(b"a\rb"), r"a\rb");
        assert_eq!(last_line(b"\n \n"), "nothing was said");
        assert!(last_line(&[b'x'; 100_000]).len() < 1000);
    }

    #[test]
    fn words_reach_the_shell_as_they_are() {
        assert_eq!(quoted("/data/local-1.2"), "/data/local-1.2");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}

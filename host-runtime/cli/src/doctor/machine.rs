//! What the machine says without the vendor's library: its system, its device nodes, its rules.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::private::property;
use super::steps::{Check, Outcome, Step};
use crate::{cores, deploy};
use hexflash::device::KnownChip;

/// Nodes by which programs reach the DSP: newer kernels have one for each DSP, older ones one for all.
const FASTRPC: [&str; 3] = ["/dev/fastrpc-cdsp", "/dev/fastrpc-cdsp-secure", "/dev/adsprpc-smd"];
/// The node that memory comes from which both sides see.
const HEAP: &str = "/dev/dma_heap/system";
/// Words by which a denial of SELinux is known to concern hexflash.
const OURS: [&str; 4] = ["hexflash", "rpc", "dma_heap", "dsp"];
/// Denials that are shown, the last ones.
const DENIALS: usize = 5;
/// How long a log may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The system and the chip. Nothing of it fails: the program runs.
pub(super) fn system() -> Step {
    let (mut text, details) = names();
    if std::env::consts::ARCH == "aarch64" {
        return Step::new(Check::System, Outcome::Ok, text).with(details);
    }
    text.push_str(
        ": this is no Snapdragon; for a phone on USB, give its serial number: hexflash doctor --serial SERIAL",
    );
    Step::new(Check::System, Outcome::Warning, text).with(details)
}

/// Names of the system and the chip, in one line, and numbers that tell more.
pub(super) fn names() -> (String, Vec<String>) {
    let [api, release, model] =
        ["ro.build.version.sdk", "ro.build.version.release", "ro.soc.model"].map(property);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut text = match (api.as_str(), release.as_str()) {
        ("", _) if cfg!(target_os = "linux") => format!("Linux on {}", std::env::consts::ARCH),
        ("", _) => format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH),
        (api, "") => format!("Android of API {api}"),
        (api, release) => format!("Android {release} (API {api})"),
    };
    if !kernel.is_empty() {
        text.push_str(&format!(", kernel {}", kernel.trim()));
    }
    if let Some(bytes) = page_bytes() {
        text.push_str(&format!(", pages of {} KiB", bytes >> 10));
    }
    let soc = |file: &str| fs::read_to_string(Path::new("/sys/devices/soc0").join(file)).unwrap_or_default();
    let machine = soc("machine");
    let chip = [model.as_str(), machine.trim()].into_iter().find(|chip| !chip.is_empty());
    match chip.map(|chip| (chip, KnownChip::of(chip))) {
        Some((chip, Some(KnownChip { name, arch }))) => {
            text.push_str(&format!("; Snapdragon {name} ({chip}), which has Hexagon v{arch:x}"));
        }
        Some((chip, None)) => text.push_str(&format!("; chip {chip}, which is not in the table")),
        None => {}
    }
    let platform = ("ro.board.platform", property("ro.board.platform"));
    let details = [platform, ("soc_id", soc("soc_id"))];
    let details = details.iter().filter(|(_, value)| !value.trim().is_empty());
    let details = details.map(|(name, value)| format!("{name} {}", value.trim()));
    (text, details.chain(cores::clusters()).collect())
}

fn page_bytes() -> Option<u64> {
    // SAFETY: `sysconf` takes no memory; it answers -1 where it does not know the number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()
}

/// Outcome of opening a device node.
enum Node {
    Opens,
    Missing,
    Refused(io::Error),
}

impl Node {
    /// Opens a node for reading, without waiting for anything.
    fn open(root: &Path, path: &str) -> Self {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        match options.open(root.join(path.trim_start_matches('/'))) {
            Ok(_) => Self::Opens,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Missing,
            Err(error) => Self::Refused(error),
        }
    }

    fn describe(&self, path: &str) -> String {
        match self {
            Self::Opens => format!("{path} opens"),
            Self::Missing => format!("{path} is missing"),
            Self::Refused(error) => format!("{path} does not open ({error})"),
        }
    }
}

/// The device nodes below a folder. They are no more than signs: the vendor's library may reach the DSP
/// through a service where programs may not open them.
pub(super) fn nodes(root: &Path) -> Step {
    let nodes = FASTRPC.map(|path| (path, Node::open(root, path)));
    let heap = Node::open(root, HEAP);
    let all: Vec<_> = nodes.iter().map(|(path, node)| node.describe(path)).collect();
    let mut details = all;
    details.push(heap.describe(HEAP));
    let there: Vec<_> = nodes.iter().filter(|(_, node)| !matches!(node, Node::Missing)).collect();
    let (outcome, text) = match there.iter().find(|(_, node)| matches!(node, Node::Opens)) {
        Some((path, _)) if matches!(heap, Node::Opens) => (Outcome::Ok, format!("{path} and {HEAP} open")),
        Some((path, _)) => {
            let text = format!("{path} opens, and {}: memory may come another way", heap.describe(HEAP));
            (Outcome::Warning, text)
        }
        None if there.is_empty() => (
            Outcome::Warning,
            "there is no node of FastRPC in /dev: this is no Snapdragon, or its kernel has no driver for the \
             DSP"
                .to_owned(),
        ),
        None => {
            let refused: Vec<_> = there.iter().map(|(path, node)| node.describe(path)).collect();
            let what = "run as a user who may: on Android over adb, on Linux in the node's group";
            (Outcome::Warning, format!("{}; {what}", refused.join(", ")))
        }
    };
    Step::new(Check::Nodes, outcome, text).with(details)
}

/// SELinux, and what it has lately forbidden, as far as this user may know.
pub(super) fn selinux() -> Step {
    let folder = Path::new("/sys/fs/selinux");
    let mode = match fs::read_to_string(folder.join("enforce")).as_deref().map(str::trim) {
        Ok("1") => "enforcing".to_owned(),
        Ok("0") => "permissive".to_owned(),
        _ => asked("getenforce", &[]).trim().to_ascii_lowercase(),
    };
    if mode.is_empty() {
        return Step::new(Check::Selinux, Outcome::Ok, "not in use, or not for this user to see");
    }
    let denials = denials();
    match denials.last() {
        None => {
            Step::new(Check::Selinux, Outcome::Ok, format!("{mode}; no denial that could concern the DSP"))
        }
        Some(last) => {
            let text = format!(
                "{mode}, and it denied lately: {last}; if a later check fails, run over adb or in Termux, \
                 which may more than other apps"
            );
            Step::new(Check::Selinux, Outcome::Warning, text).with(denials)
        }
    }
}

/// Denials that the logs have, where this user may read them.
pub(super) fn denials() -> Vec<String> {
    let mut found = denials_of(&asked("logcat", &["-d", "-t", "5000"]));
    found.extend(denials_of(&asked("dmesg", &[])));
    found.dedup();
    found.drain(..found.len().saturating_sub(DENIALS));
    found
}

/// Denials of a log that may concern hexflash.
fn denials_of(log: &str) -> Vec<String> {
    let is_ours = |line: &&str| line.contains("denied") && OURS.iter().any(|word| line.contains(word));
    let denials = log.lines().filter_map(|line| Some(&line[line.find("avc:")?..])).filter(is_ours);
    let mut found: Vec<_> = denials.map(|line| line.trim().to_owned()).collect();
    found.dedup();
    found
}

/// Output of a program; nothing if it is not there, fails or hangs.
fn asked(program: &str, arguments: &[&str]) -> String {
    deploy::said(Command::new(program).args(arguments), PATIENCE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_signs() {
        let dir = tempfile::TempDir::new().unwrap();
        let found = |outcome: Outcome, words: &str| {
            let step = nodes(dir.path());
            assert!(step.outcome == outcome && step.text.contains(words), "{step:?}");
            assert_eq!(step.details.len(), 4);
        };
        found(Outcome::Warning, "no node of FastRPC");
        fs::create_dir_all(dir.path().join("dev/dma_heap")).unwrap();
        fs::write(dir.path().join("dev/adsprpc-smd"), "").unwrap();
        found(Outcome::Warning, "/dev/adsprpc-smd opens, and /dev/dma_heap/system is missing");
        fs::write(dir.path().join("dev/dma_heap/system"), "").unwrap();
        found(Outcome::Ok, "/dev/adsprpc-smd and /dev/dma_heap/system open");
        // A loop of links cannot be opened, whoever asks.
        let node = dir.path().join("dev/fastrpc-cdsp");
        fs::remove_file(dir.path().join("dev/adsprpc-smd")).unwrap();
        std::os::unix::fs::symlink(&node, &node).unwrap();
        found(Outcome::Warning, "/dev/fastrpc-cdsp does not open (");
    }

    #[test]
    fn denials_that_concern_others_are_left_out() {
        let log = "11-29 avc: denied { read } for name=\"x\" scontext=u:r:other:s0\n\
             11-29 W hexflash: avc:  denied  { ioctl } for path=\"/dev/fastrpc-cdsp\" permissive=0\n\
             11-29 W hexflash: avc:  denied  { ioctl } for path=\"/dev/fastrpc-cdsp\" permissive=0\n\
             avc:  granted { read } for path=\"/dev/fastrpc-cdsp\"\n";
        let found = denials_of(log);
        assert_eq!(found, ["avc:  denied  { ioctl } for path=\"/dev/fastrpc-cdsp\" permissive=0"]);
    }

    #[test]
    fn a_program_that_is_not_there_says_nothing() {
        assert_eq!(asked("no-such-program-of-hexflash", &[]), "");
    }
}

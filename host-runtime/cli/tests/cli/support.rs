//! Running the command, and making the files that it is given.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf, Value};

#[cfg(target_os = "linux")]
#[path = "../../../../tests/emulated.rs"]
pub mod emulated;

#[cfg(target_os = "linux")]
use emulated::Expected;

/// What the command did. Failures print all of it.
#[derive(Debug)]
pub struct Outcome {
    #[allow(dead_code, reason = "read by Debug")]
    pub arguments: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The command itself; logging as users have it who never set anything.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hexflash"));
    command.args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// `hexflash ARGUMENTS`.
pub fn hexflash(arguments: &[&str]) -> Outcome {
    hexflash_reading(b"", arguments)
}

/// `hexflash ARGUMENTS` with `input` on standard input.
pub fn hexflash_reading(input: &[u8], arguments: &[&str]) -> Outcome {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that fails early does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    outcome(child.wait_with_output().unwrap(), arguments)
}

/// What a command did.
pub fn outcome(output: Output, arguments: &[&str]) -> Outcome {
    Outcome {
        arguments: arguments.join(" "),
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `hexflash run --no-repack-cache ARGUMENTS`.
pub fn run(arguments: &[&str]) -> Outcome {
    hexflash(&[&["run", "--no-repack-cache"], arguments].concat())
}

/// Writes a program of `text` that any thread may start at once.
///
/// A child process writes it: a file that this process has open for writing goes to children that other tests
/// start at that moment, and until they have started, the system runs it for nobody ("text file busy").
pub fn script(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", r#"cat >"$0" && chmod 755 "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}

/// Whether the emulator or the image for v67 is missing, so that a test that needs them is skipped, and says
/// so; where they are [expected](emulated::expected) to be built, it fails instead. What was built for other
/// sources counts as missing.
#[cfg(target_os = "linux")]
pub fn emulator_is_missing() -> bool {
    let expected = emulated::expected("v67");
    if expected == Expected::NotBuilt {
        return true;
    }
    let devices = hexflash(&["devices"]).stdout;
    let missing = devices.lines().any(|line| line.starts_with("qemu") && line.contains("not available"));
    if missing {
        assert_eq!(expected, Expected::Perhaps, "{devices}");
        // Written past the test harness, which hides what a passing test prints.
        let _ = writeln!(std::io::stderr(), "skipped: {devices}");
    }
    missing
}

impl Outcome {
    /// It did what was asked.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    /// It failed with exit code 1 after other lines, the last of which names a cause and a remedy.
    #[cfg(target_os = "linux")]
    #[track_caller]
    pub fn failed_after(mut self, cause: &str, remedy: &str) {
        self.stderr = format!("{}\n", self.stderr.lines().last().unwrap_or_default());
        self.failed(1, cause, remedy);
    }

    /// It failed with this code, and one line that names a cause and a remedy.
    #[track_caller]
    pub fn failed(self, code: i32, cause: &str, remedy: &str) {
        assert_eq!(self.code, Some(code), "exit code of {self:#?}");
        assert_eq!(self.stderr.lines().count(), 1, "one line: {self:#?}");
        assert!(self.stderr.starts_with("error: ") && self.stderr.ends_with('\n'), "{self:#?}");
        assert!(self.stderr.contains(cause), "no cause {cause:?} in {self:#?}");
        assert!(self.stderr.contains(remedy), "no remedy {remedy:?} in {self:#?}");
        assert_eq!(self.stdout, "", "{self:#?}");
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// A file of the repository's `models`.
pub fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name)
}

/// The path as an argument; all paths of these tests are UTF-8.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A change to a model file.
pub enum Change<'a> {
    /// Sets a key.
    Key(&'a str, Value),
    /// Removes a key.
    NoKey(&'a str),
    /// Replaces a tensor by zeros of another type or shape.
    Tensor(&'a str, GgmlType, &'a [u64]),
    /// Removes a tensor.
    NoTensor(&'a str),
    /// Adds a tensor that was not there.
    NewTensor(&'a str, GgmlType, &'a [u64], Vec<u8>),
}

/// Writes the shipped Q4_0 model with a change.
pub fn changed_model(path: &Path, change: &Change<'_>) {
    changed("tiny-hybrid-q4_0.gguf", path, std::slice::from_ref(change));
}

/// Writes a model of `models` with changes.
pub fn changed(name: &str, path: &Path, changes: &[Change<'_>]) {
    let model = Gguf::open(&model(name)).unwrap();
    let mut writer = GgufWriter::new();
    let removed = |key: &str| changes.iter().any(|c| matches!(c, Change::NoKey(name) if *name == key));
    for (key, value) in model.meta().iter().filter(|(key, _)| !removed(key)) {
        writer.kv(key, value.clone());
    }
    for change in changes {
        if let Change::Key(key, value) = change {
            writer.kv(key, value.clone());
        }
    }
    let of_tensor = |name: &str| {
        changes.iter().find(|c| matches!(c, Change::Tensor(n, ..) | Change::NoTensor(n) if *n == name))
    };
    for change in changes {
        if let Change::Tensor(name, ..) | Change::NoTensor(name) = change {
            assert!(model.tensor(name).is_some(), "there is no tensor {name} to change");
        }
    }
    for tensor in model.tensors() {
        match of_tensor(&tensor.name) {
            Some(Change::Tensor(name, kind, shape)) => {
                let zeros = vec![0; kind.tensor_bytes(shape).unwrap() as usize];
                writer.tensor(name, *kind, shape, zeros).unwrap();
            }
            Some(_) => {}
            None => {
                let data = Cow::Owned(model.data(tensor).unwrap());
                writer.tensor(&tensor.name, tensor.ggml_type, tensor.shape(), data).unwrap();
            }
        }
    }
    for change in changes {
        if let Change::NewTensor(name, kind, shape, data) = change {
            writer.tensor(name, *kind, shape, data.clone()).unwrap();
        }
    }
    writer.write_to(BufWriter::new(File::create(path).unwrap())).unwrap();
}

/// Writes a model of `models` in two parts, and gives their paths.
#[cfg(target_os = "linux")]
pub fn split(name: &str, dir: &Path) -> [PathBuf; 2] {
    let model = Gguf::open(&model(name)).unwrap();
    let tensors: Vec<_> = model.tensors().collect();
    let halves = tensors.split_at(tensors.len() / 2);
    let mut paths = Vec::new();
    for (no, half) in [halves.0, halves.1].into_iter().enumerate() {
        let mut writer = GgufWriter::new();
        if no == 0 {
            for (key, value) in model.meta().iter() {
                writer.kv(key, value.clone());
            }
        }
        writer.kv("split.no", no as u16).kv("split.count", 2u16);
        writer.kv("split.tensors.count", tensors.len() as i32);
        for tensor in half {
            let data = Cow::Owned(model.data(tensor).unwrap());
            writer.tensor(&tensor.name, tensor.ggml_type, tensor.shape(), data).unwrap();
        }
        let path = dir.join(format!("split-Q4_K_M-{:05}-of-00002.gguf", no + 1));
        writer.write_to(BufWriter::new(File::create(&path).unwrap())).unwrap();
        paths.push(path);
    }
    paths.try_into().unwrap()
}

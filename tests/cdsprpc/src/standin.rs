//! For tests: a stand-in of one's own. That is a copy of the library, which is then a library by itself, its
//! settings and its report. Nothing here is of use in the library that is copied.
//!
//! Everything here panics where the stand-in itself is broken or not built: a test cannot go on then.

use std::ffi::{CString, c_char};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use hexflash::device::htp::{Htp, HtpOptions, TransportChoice};
use hexflash::device::{DeviceError, DeviceOptions};
use libloading::os::unix::Library;
use tempfile::TempDir;

#[path = "../../emulated.rs"]
mod emulated;

use emulated::Expected;

/// A file that cargo built: in `deps` beside this program, where libraries are, beside it, or one folder up.
///
/// # Panics
/// If it is not there.
pub fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let folders = program.ancestors().skip(1).take(2);
    let libraries = program.with_file_name("deps");
    let mut files = [libraries.as_path()].into_iter().chain(folders).map(|dir| dir.join(name));
    let file = files.find(|file| file.is_file());
    file.unwrap_or_else(|| panic!("{name} is not there: cargo build -p hexflash-cdsprpc"))
}

/// How messages reach the DSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a queue that is imported without callbacks, which is usual.
    Queue,
    /// By one that the DSP imports with callbacks only.
    Callbacks,
    /// By calls.
    Invoke,
}

impl Way {
    /// The way of tests that name none: `HEXFLASH_HTP_WAY`, so that a run can try all of them on another.
    ///
    /// # Panics
    /// If it is none.
    pub fn of_run() -> Self {
        match std::env::var("HEXFLASH_HTP_WAY").as_deref() {
            Err(_) | Ok("queue") => Self::Queue,
            Ok("callbacks") => Self::Callbacks,
            Ok("invoke") => Self::Invoke,
            Ok(other) => panic!("HEXFLASH_HTP_WAY={other}: queue, callbacks or invoke"),
        }
    }

    /// Words for the DSP's settings.
    fn config(self) -> &'static str {
        if self == Self::Callbacks { "callbacks=1" } else { "" }
    }

    /// Choice that the host is told, and its option.
    fn transport(self) -> (TransportChoice, &'static str) {
        match self {
            Self::Queue | Self::Callbacks => (TransportChoice::Queue, "queue"),
            Self::Invoke => (TransportChoice::Calls, "invoke"),
        }
    }
}

/// Whether messages go through a queue in this run, so that its calls are made.
pub fn has_queue() -> bool {
    Way::of_run() != Way::Invoke
}

/// The call that sends a message, as settings name it.
pub fn sending() -> &'static str {
    if has_queue() { "dspqueue_write" } else { "run" }
}

/// The copy, open.
pub struct StandIn {
    dir: TempDir,
    /// Never closed, as the vendor's library is not.
    copy: &'static Library,
    way: Way,
    /// Settings that stay.
    fixed: String,
    config: String,
}

impl StandIn {
    /// A stand-in with settings as in [`hexflash_fastrpc::config`].
    ///
    /// # Panics
    /// As everything here.
    pub fn new(config: &str) -> Self {
        Self::changed(config, |_| {})
    }

    /// A stand-in whose DSP, of this version, is an emulator that runs the skel itself, whatever else is
    /// configured later; or nothing where the emulator or the skel is not built.
    ///
    /// # Panics
    /// As everything here; and where it is not built, but `HEXFLASH_EMULATED` says that it is.
    pub fn emulated(arch: &str) -> Option<Self> {
        Self::emulated_with(arch, &[])
    }

    /// A stand-in as [`Self::emulated`], where the plain library is built, too.
    ///
    /// # Panics
    /// As [`StandIn::emulated`].
    pub fn emulated_with_plain(arch: &str) -> Option<Self> {
        Self::emulated_with(arch, &["plain"])
    }

    fn emulated_with(arch: &str, others: &[&str]) -> Option<Self> {
        let version = format!("v{arch}");
        let all = [&[version.as_str()][..], others].concat();
        let expected = all.iter().map(|one| emulated::expected(one));
        if expected.clone().any(|one| one == Expected::NotBuilt) {
            return None;
        }
        let is_built = expected.clone().all(|one| one == Expected::Built);
        let skel = format!("libhexflash_skel_v{arch}.so");
        let program = std::env::current_exe().expect("a program has a path");
        let mut folders = program.ancestors().skip(1).take(4).map(|dir| dir.join("hexagon"));
        let complete = |folder: &PathBuf| {
            ["qemu-hexagon", "hexflash-guest", &skel].iter().all(|file| folder.join(file).is_file())
        };
        let Some(folder) = folders.find(complete) else {
            assert!(!is_built, "{skel} or its emulator is not built");
            // Written past the test harness, which hides what a passing test prints.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: {skel} or its emulator is not built: cargo xtask hexagon, cargo xtask setup emulator"
            );
            return None;
        };
        let mut standin = Self::new("");
        let skels = format!("{arch},{arch}_plain");
        standin.fixed = format!("dsp=qemu library={} arch={arch} skels={skels}", folder.display());
        standin.configure("");
        Some(standin)
    }

    /// A stand-in whose library file was changed before it was opened.
    ///
    /// # Panics
    /// As everything here.
    pub fn changed(config: &str, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut file = std::fs::read(built("libcdsprpc.so")).unwrap();
        change(&mut file);
        let path = dir.path().join("libcdsprpc.so");
        std::fs::write(&path, file).unwrap();
        // SAFETY: this is the library that this package builds. A test that changes its file answers for what
        // it then does when it is loaded.
        let library = unsafe { Library::new(&path) }.unwrap();
        let copy = Box::leak(Box::new(library));
        let (fixed, way) = (String::new(), Way::of_run());
        let mut standin = Self { dir, copy, way, fixed, config: String::new() };
        standin.configure(config);
        standin
    }

    /// Plays a DSP of another version, whatever else is configured later.
    ///
    /// # Panics
    /// As everything here.
    #[must_use]
    pub fn of_arch(mut self, arch: &str) -> Self {
        self.fixed = format!("arch={arch} skels={arch}");
        self.configure("");
        self
    }

    /// Takes another way for messages.
    ///
    /// # Panics
    /// As everything here.
    #[must_use]
    pub fn by(mut self, way: Way) -> Self {
        self.way = way;
        self.configure("");
        self
    }

    /// Other settings; calls are counted anew.
    ///
    /// # Panics
    /// As everything here.
    pub fn configure(&mut self, config: &str) {
        let (report, pd) = (self.dir.path().join("report"), built("hexflash-pd"));
        let (log, way) = (self.dir.path().join("log"), self.way.config());
        let (report, log, pd) = (report.display(), log.display(), pd.display());
        self.config = format!("report={report} log={log} pd={pd} {way} {} {config}", self.fixed);
        let line = CString::new(self.config.as_str()).unwrap();
        let configure =
            self.symbol::<unsafe extern "C" fn(*const c_char) -> i32>("hexflash_standin_configure");
        // SAFETY: the type is that of the function, and `line` is a text that ends with 0 and lives through
        // the call.
        assert_eq!(unsafe { configure(line.as_ptr()) }, 0, "{config}");
    }

    /// The settings, as a line.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The library's file.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("libcdsprpc.so")
    }

    /// The symbol of that name.
    ///
    /// # Panics
    /// If the library has none.
    pub fn symbol<T: Copy>(&self, name: &str) -> T {
        let name = CString::new(name).unwrap();
        // SAFETY: callers give the type of the function.
        *unsafe { self.copy.get::<T>(name.as_bytes_with_nul()) }.unwrap()
    }

    /// Options with which the device opens it.
    pub fn options(&self) -> DeviceOptions {
        let transport = self.way.transport().0;
        let htp = HtpOptions { vendor_library: Some(self.path()), transport, ..HtpOptions::default() };
        let (threads, vtcm_bytes) = (Some(2), Some(1 << 20));
        DeviceOptions { threads, vtcm_bytes, htp: Some(Box::new(htp)), ..DeviceOptions::default() }
    }

    /// The device on it.
    ///
    /// # Errors
    /// The device's.
    pub fn open(&self) -> Result<Htp, DeviceError> {
        Htp::open(&self.options())
    }

    /// Breaches of rules so far.
    pub fn violations(&self) -> Vec<String> {
        self.lines("report")
    }

    /// Lines of the DSP's log so far.
    pub fn log(&self) -> Vec<String> {
        self.lines("log")
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Memory, mappings, handles, queues, processes that are left.
    pub fn census(&self) -> [u32; 5] {
        let mut out = [0; 5];
        let census = self.symbol::<unsafe extern "C" fn(*mut [u32; 5])>("hexflash_standin_census");
        // SAFETY: the type is that of the function, and `out` has room for five words.
        unsafe { census(&raw mut out) };
        out
    }

    /// Nothing is left, and no rule was broken.
    ///
    /// # Panics
    /// If that is not so.
    #[track_caller]
    pub fn is_clean(&self) {
        assert_eq!(self.violations(), Vec::<String>::new());
        assert_eq!(self.census(), [0; 5]);
    }

    /// `hexflash ARGUMENTS` on this stand-in.
    ///
    /// # Panics
    /// If the program is not built.
    pub fn hexflash(&self, arguments: &[&str]) -> Command {
        self.hexflash_on("htp", arguments)
    }

    /// The same with another device for the target: the draft model may be on this one.
    pub fn hexflash_on(&self, device: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(built("hexflash-htp"));
        command.args(arguments).args(["--device", device, "--htp-library"]).arg(self.path());
        command.args(["--transport", self.way.transport().1]);
        command.env("HEXFLASH_STANDIN", &self.config).env_remove("RUST_LOG");
        command.env("HEXAGON_DMA_STATS", self.dma_stats());
        command
    }

    fn dma_stats(&self) -> PathBuf {
        self.dir.path().join("dma")
    }

    /// What emulators have counted of DMA, all of them that ran for [`hexflash`](Self::hexflash): descriptors
    /// and errors.
    ///
    /// # Panics
    /// If they have counted nothing.
    pub fn dma_counts(&self) -> [u64; 2] {
        let text = std::fs::read_to_string(self.dma_stats()).expect("the emulator's counts");
        ["descriptors ", "errors "].map(|name| {
            let numbers = text.split(name).skip(1).map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
            numbers.map(|number| number.expect("a number")).sum()
        })
    }
}

/// A model of the repository.
pub fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name)
}

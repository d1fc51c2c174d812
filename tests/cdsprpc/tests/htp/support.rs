//! A stand-in of one's own: a copy of the library, which is then a library by itself, its settings and its report.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use hexflash::device::DeviceOptions;
use hexflash::device::htp::{Htp, HtpOptions};
use libloading::os::unix::Library;
use tempfile::TempDir;

/// The file that cargo built: beside this test, or one folder up.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    folders.map(|dir| dir.join("libcdsprpc.so")).find(|file| file.is_file()).expect("libcdsprpc.so")
}

pub struct StandIn {
    dir: TempDir,
    library: Library,
    config: String,
}

impl StandIn {
    /// A stand-in with these settings.
    pub fn new(config: &str) -> Self {
        Self::changed(config, |_| {})
    }

    /// A stand-in whose library file was changed before it was opened.
    pub fn changed(config: &str, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut file = std::fs::read(built()).unwrap();
        change(&mut file);
        let path = dir.path().join("libcdsprpc.so");
        std::fs::write(&path, file).unwrap();
        // SAFETY: our own library.
        let library = unsafe { Library::new(&path) }.unwrap();
        let standin = Self { dir, library, config: String::new() };
        standin.configured(config)
    }

    fn configured(mut self, config: &str) -> Self {
        self.configure(config);
        self
    }

    /// Other settings; calls are counted anew.
    pub fn configure(&mut self, config: &str) {
        let report = self.dir.path().join("report");
        let pd = env!("CARGO_BIN_EXE_hexflash-pd");
        self.config = format!("report={} pd={pd} {config}", report.display());
        let line = CString::new(self.config.as_str()).unwrap();
        // SAFETY: the type is that of the function; a text that ends with 0.
        let code = unsafe {
            let function = self
                .library
                .get::<unsafe extern "C" fn(*const std::ffi::c_char) -> i32>(b"hexflash_standin_configure\0");
            function.unwrap()(line.as_ptr())
        };
        assert_eq!(code, 0, "{config}");
    }

    /// The settings, as a line.
    pub fn config(&self) -> &str {
        &self.config
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("libcdsprpc.so")
    }

    /// The symbol of that name.
    pub fn symbol<T: Copy>(&self, name: &str) -> T {
        let name = CString::new(name).unwrap();
        // SAFETY: callers give the type of the function.
        *unsafe { self.library.get::<T>(name.as_bytes_with_nul()) }.unwrap()
    }

    pub fn options(&self) -> DeviceOptions {
        let htp = HtpOptions { library: Some(self.path()), ..HtpOptions::default() };
        DeviceOptions { threads: Some(2), vtcm_bytes: Some(1 << 20), htp: Some(Box::new(htp)) }
    }

    pub fn open(&self) -> Result<Htp, hexflash::device::DeviceError> {
        Htp::open(&self.options())
    }

    /// Breaches so far.
    pub fn violations(&self) -> Vec<String> {
        let report = std::fs::read_to_string(self.dir.path().join("report")).unwrap_or_default();
        report.lines().map(str::to_owned).collect()
    }

    /// Memory, mappings, handles, queues, processes that are left.
    pub fn census(&self) -> [u32; 5] {
        let mut out = [0; 5];
        self.symbol::<unsafe extern "C" fn(*mut [u32; 5])>("hexflash_standin_census");
        // SAFETY: the type is that of the function; five words.
        unsafe {
            self.symbol::<unsafe extern "C" fn(*mut [u32; 5])>("hexflash_standin_census")(&raw mut out)
        };
        out
    }

    /// Nothing is left, and no rule was broken.
    #[track_caller]
    pub fn is_clean(&self) {
        assert_eq!(self.violations(), Vec::<String>::new());
        assert_eq!(self.census(), [0; 5]);
    }

    /// `hexflash ARGUMENTS` on this stand-in.
    pub fn hexflash(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hexflash-htp"));
        command.args(arguments).args(["--device", "htp", "--htp-library"]).arg(self.path());
        command.env("HEXFLASH_STANDIN", &self.config).env_remove("RUST_LOG");
        command
    }
}

/// A file of the repository.
pub fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name)
}

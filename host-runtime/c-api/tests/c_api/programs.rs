//! The examples, as programs that know the library and nothing else of hexflash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::{EXPECTED, PROMPT, TOKENS, library, model_path, root};

/// Standard output of a program.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    assert!(said.contains("generated_tokens"), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// Compiles a program in a folder, and gives its file.
fn compile(source: &Path, folder: &Path) -> PathBuf {
    let (program, library) = (folder.join("program"), library());
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"]).arg(include);
    compiler.arg("-o").arg(&program).arg(source).arg(&library);
    compiler.arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()));
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

#[test]
fn the_example_of_the_page_writes_the_librarys_text() {
    let page = fs::read_to_string(root().join("docs/c-library.md")).unwrap();
    let code = page.split("```").find_map(|block| block.strip_prefix("c\n")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("page.c");
    fs::write(&source, code).unwrap();
    let output = Command::new(compile(&source, dir.path())).current_dir(root()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), *EXPECTED);
}

#[test]
fn the_example_in_c_writes_the_librarys_text() {
    let dir = tempfile::tempdir().unwrap();
    let program = compile(&example("write.c"), dir.path());
    let text = output(Command::new(&program).args([&model_path(), PROMPT, &TOKENS.to_string()]));
    assert_eq!(text, *EXPECTED);

    let failed = Command::new(&program).args(["none.gguf", PROMPT]).output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && said.contains("cannot open the model: none.gguf"), "{said}");
}

/// Without Python it is left out, unless the variable says that there is one.
#[test]
fn the_example_in_python_writes_the_librarys_text() {
    let is_there = Command::new("python3").arg("--version").output().is_ok();
    if !is_there && std::env::var_os("HEXFLASH_PYTHON_REQUIRED").is_none() {
        eprintln!("left out: there is no python3");
        return;
    }
    let mut python = Command::new("python3");
    python.arg(example("write.py")).arg(library()).args([&model_path(), PROMPT, &TOKENS.to_string()]);
    assert_eq!(output(&mut python), *EXPECTED);
}

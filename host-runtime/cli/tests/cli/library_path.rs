//! The variables by which the vendor's library finds ours.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;

use super::support::text;

/// Whoever unpacks program and libraries into one folder need not set anything; what is set stays.
#[test]
fn the_programs_own_folder_is_named_where_it_has_libraries() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = dir.path().join("hexflash");
    // A link, as in `support::script`: a copy might still be open for writing in another test's child.
    fs::hard_link(env!("CARGO_BIN_EXE_hexflash"), &program).unwrap();
    let put = |set: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["-vv", "models"]).env("HF_HOME", dir.path()).env_remove("RUST_LOG");
        for name in ["DSP_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "CDSP_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        let output = command.envs(set.iter().map(|name| (name, "/elsewhere"))).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let log = String::from_utf8(output.stderr).unwrap();
        let folder =
            format!("the program's folder {} is put into ", text(&dir.path().canonicalize().unwrap()));
        log.split_once(&folder).map(|(_, rest)| rest.lines().next().unwrap().to_owned())
    };
    fs::write(dir.path().join("libother.so"), "").unwrap();
    assert_eq!(put(&[]), None);
    fs::write(dir.path().join("libhexflash_skel_v75.so"), "").unwrap();
    assert_eq!(put(&[]).unwrap(), "DSP_LIBRARY_PATH, ADSP_LIBRARY_PATH, CDSP_LIBRARY_PATH");
    assert_eq!(put(&["DSP_LIBRARY_PATH"]).unwrap(), "ADSP_LIBRARY_PATH, CDSP_LIBRARY_PATH");
    assert_eq!(put(&["DSP_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "CDSP_LIBRARY_PATH"]), None);
    // A link leads to the folder that it leads to.
    let elsewhere = TempDir::new().unwrap();
    symlink(&program, elsewhere.path().join("hexflash")).unwrap();
    let mut command = Command::new(elsewhere.path().join("hexflash"));
    let output = command.args(["-vv", "models"]).env_remove("RUST_LOG").output().unwrap();
    assert!(!String::from_utf8(output.stderr).unwrap().contains(text(elsewhere.path())));
}

//! Completions for shells, and pages for man.

use std::fs;
use std::process::Command;

use super::support::{hexflash, text};

#[test]
fn each_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = hexflash(&["completions", shell]).succeeded().stdout;
        for word in ["chat", "selftest", "model-draft"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    hexflash(&["completions", "csh"]).failed(2, "csh", "hexflash --help");
}

/// Bash completes with the script, as after a tab.
#[test]
fn bash_completes_commands_and_options() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("hexflash");
    fs::write(&script, hexflash(&["completions", "bash"]).succeeded().stdout).unwrap();
    let complete = |words: &str| {
        let asked = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _hexflash hexflash \"${{COMP_WORDS[COMP_CWORD]}}\" \"\"; echo \"${{COMPREPLY[@]}}\"",
            text(&script)
        );
        let output = Command::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("hexflash ch"), "chat");
    assert_eq!(complete("hexflash run --show"), "");
    assert_eq!(complete("hexflash chat --show"), "--show-drafts");
}

#[test]
fn each_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let said = hexflash(&["man", "--out", text(dir.path())]).succeeded().stderr;
    let pages: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 10 && said.starts_with(&format!("{} pages", pages.len())), "{said}");
    assert!(pages.iter().all(|page| fs::read_to_string(page).unwrap().contains(".SH SYNOPSIS")));
    let page = hexflash(&["man", "chat"]).succeeded().stdout;
    assert_eq!(page, fs::read_to_string(dir.path().join("hexflash-chat.1")).unwrap());
    hexflash(&["man", "tea"]).failed(2, "no command \"tea\"", "hexflash --help");
    hexflash(&["man", "--out", "/dev/null/x"]).failed(2, "cannot write the page", "--out");
}

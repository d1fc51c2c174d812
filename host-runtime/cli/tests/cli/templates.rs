//! Chat templates that try to end the command: it ends by itself, in time and within its memory.

use std::process::{Command, Stdio};

use crate::support::{Outcome, text};

/// `hexflash run` with this template, in 512 MB of memory that is written.
fn run(template: &str) -> Outcome {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), template).unwrap();
    let model = crate::support::model("tiny-hybrid-q8_0.gguf");
    let arguments = [
        "run",
        "--no-repack-cache",
        "-m",
        text(&model),
        "-n",
        "1",
        "--chat",
        "--chat-template",
        text(file.path()),
        "hello",
    ];
    let output = Command::new("sh")
        .args(["-c", "ulimit -d 524288 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_hexflash")])
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Outcome {
        arguments: template.chars().take(100).collect(),
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn hostile_templates_are_refused_in_one_line_with_exit_code_2() {
    let cases = [
        ("{{ 'not ' }}{{ ".to_owned() + &"not ".repeat(60_000) + "x }}", "follow one another"),
        ("{% if x %}".to_owned() + &"{% elif x %}".repeat(20_000) + "{% endif %}", "follow one another"),
        ("x".repeat(1 << 20), "there are more than 256 KiB"),
        ("{% set n = namespace() %}{% set n.a = n %}{{ n }}".to_owned(), "stored in another value"),
        ("{{ '%1000000000000d'|format(1) }}".to_owned(), "MiB of text"),
        (grown("n.s ~ n.s"), "steps"),
        (grown("[n.s, n.s]"), "items"),
        (grown("[n.s]").replace("40", "9999"), "deeper than"),
        (
            "{% for a in range(40000) %}{% for b in range(40000) %}{% endfor %}{% endfor %}".to_owned(),
            "steps",
        ),
        ("{{ raise_exception('\u{1b}[2Jtwo\nlines') }}".to_owned(), "refuses these messages: [2Jtwo lines"),
    ];
    for (template, cause) in cases {
        run(&template).failed(2, cause, "c");
    }
}

/// A text or list that is put into itself again and again.
fn grown(step: &str) -> String {
    format!(
        "{{% set n = namespace(s='x') %}}{{% for i in range(40) %}}{{% set n.s = {step} %}}{{% endfor \
         %}}{{{{ n.s }}}}"
    )
}

#[test]
fn a_count_of_nothing_is_what_it_is_in_python() {
    run("{{ 'abc'.count('') }}").succeeded();
}

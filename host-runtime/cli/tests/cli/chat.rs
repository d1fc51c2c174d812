//! `hexflash chat` with lines from a pipe: what is taken back leaves no trace in what follows.

use std::fs;

use super::support::{Outcome, hexflash, hexflash_reading, text};

const MODEL: [&str; 8] = ["--no-repack-cache", "--chat-template", "chatml", "--temp", "0", "-n", "12", "-c"];

/// A conversation of these lines.
fn chat(lines: &str, more: &[&str]) -> Outcome {
    hexflash_reading(lines.as_bytes(), &[&["chat"], &MODEL[..], &["512"], more].concat())
}

/// Answers to these lines; none of them has a line break in it.
fn answers(lines: &str, more: &[&str]) -> Vec<String> {
    let outcome = chat(lines, more).succeeded();
    outcome.stdout.split_inclusive('\n').map(str::to_owned).collect()
}

#[test]
fn the_first_answer_is_that_of_run() {
    let run = hexflash(&[&["run", "--chat", "fn push("], &MODEL[..], &["512"]].concat()).succeeded();
    assert_eq!(chat("fn push(\n", &[]).succeeded().stdout, run.stdout);
}

#[test]
fn what_is_taken_back_leaves_no_trace() {
    for more in [&[][..], &["--spec-type", "ngram-simple"]] {
        let plain = chat("fn push(\nlet x =\n", more).succeeded().stdout;
        let first = chat("fn push(\n", more).succeeded().stdout;
        let second = plain.strip_prefix(&first).unwrap();
        // Written anew, greedy text is the same; and so is what follows.
        let again = chat("fn push(\n/regenerate\nlet x =\n", more).succeeded().stdout;
        assert_eq!(again, format!("{first}{first}{second}"));
        let undone = chat("fn push(\nif a <\n/undo\nlet x =\n", more).succeeded().stdout;
        assert!(undone.starts_with(&first) && undone.ends_with(second), "{undone}");
        let cleared = chat("struct S\n/clear\nfn push(\n", more).succeeded().stdout;
        assert!(cleared.ends_with(&first), "{cleared}");
    }
}

#[test]
fn a_conversation_goes_on_in_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("talk.json");
    let file = text(&file);
    let whole = answers("fn push(\nlet x =\n", &[]).concat();
    let first = chat(&format!("fn push(\n/save {file}\n"), &[]).succeeded();
    assert!(first.stderr.contains("[2 messages are in "), "{}", first.stderr);
    let saved: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(saved["messages"][0]["content"], "fn push(");
    let second = chat(&format!("/load {file}\nlet x =\n"), &[]).succeeded();
    assert_eq!(first.stdout + &second.stdout, whole);
}

#[test]
fn several_lines_are_one_message() {
    let one = chat("a\\\nb\n", &[]).succeeded();
    let saved = tempfile::tempdir().unwrap();
    let file = saved.path().join("talk.json");
    chat(&format!("a\\\nb\n/save {}\n", text(&file)), &[]).succeeded();
    assert!(fs::read_to_string(&file).unwrap().contains(r"a\nb"));
    assert!(!one.stdout.is_empty());
}

#[test]
fn mistakes_are_told_and_the_conversation_goes_on() {
    let outcome = chat("/nonsense\n/undo\n/load /nowhere\n/stats\n\n/exit\nnever said\n", &[]).succeeded();
    assert_eq!(outcome.stdout, "");
    for part in
        ["no command /nonsense", "nothing was said yet", "cannot load /nowhere", "nothing was answered"]
    {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    let long = format!("{}\nfn push(\n", "word ".repeat(600));
    let outcome = chat(&long, &[]).succeeded();
    assert!(outcome.stderr.contains("the context room for 512; /undo or /clear"), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, chat("fn push(\n", &[]).succeeded().stdout);
    hexflash(&["chat", "--no-repack-cache"]).failed(2, "has no chat template", "--chat-template");
}

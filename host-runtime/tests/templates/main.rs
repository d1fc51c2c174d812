//! Chat templates from strangers: whatever they try, they end in time and in bounded memory, with a prompt or
//! an error of one line.

mod hostile;
mod public;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use hexflash::chat::{ChatError, ChatTemplate, Message, RenderOptions};

/// Longest that a template may take.
const TIME: Duration = Duration::from_secs(2);

fn apply(source: &str) -> Result<String, ChatError> {
    let template = ChatTemplate::new(source, "<s>", "</s>")?;
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", "hello"),
        Message::new("assistant", "Hi."),
    ];
    template
        .render(&messages, &RenderOptions::for_answer().with("tools", serde_json::json!([{"name": "look"}])))
}

/// What this process has worked so far.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name: fields 3 and on, of which 14 and 15 count hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// What became of a template: `rendered`, or the kind of error. Panics if it took too long, or gave a bad
/// message.
fn outcome(name: &str, source: &str) -> String {
    let (began, worked) = (Instant::now(), processor_time());
    let result = apply(source);
    let (time, work) = (began.elapsed(), processor_time().saturating_sub(worked));
    // A busy machine keeps a process waiting, which is not the template's fault. Without other work both are
    // the same.
    assert!(time < TIME || work < TIME, "{name} took {time:?}, of which it worked for {work:?}: {result:?}");
    match result {
        Ok(_) => "rendered".to_owned(),
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 1000 && !text.contains(char::is_control), "{name}: {text}");
            let debug = format!("{error:?}");
            debug.split([' ', '(']).next().unwrap_or_default().to_owned()
        }
    }
}

/// Runs in a process of its own, which [`hostile_templates_end_within_two_seconds_and_512_mb`] gives little
/// memory.
#[test]
#[ignore = "it is run by another test, with limits"]
fn renders_every_hostile_template() {
    let all = hostile::templates();
    let mut report = String::new();
    for (name, source) in &all {
        // If the process ends here, this is what is seen last.
        eprintln!("{name}");
        let _ = writeln!(report, "outcome {} of {name}", outcome(name, source));
    }
    print!("{report}");
}

#[cfg(target_os = "linux")]
#[test]
fn hostile_templates_end_within_two_seconds_and_512_mb() {
    use std::process::Command;

    // Memory that is written, and stacks in full: more than what is resident.
    let limited =
        "ulimit -d 524288 && exec \"$0\" --exact renders_every_hostile_template --ignored --nocapture";
    let output =
        Command::new("sh").arg("-c").arg(limited).arg(std::env::current_exe().unwrap()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last: Vec<_> = stderr.lines().rev().take(8).collect();
    assert!(output.status.success(), "{}: {last:#?}", output.status);
    let of = |kind: &str| stdout.lines().filter(|line| line.starts_with(&format!("outcome {kind} "))).count();
    let all = stdout.lines().filter(|line| line.starts_with("outcome ")).count();
    assert_eq!(all, hostile::templates().len());
    assert!(all >= 200, "{all}");
    // Each limit is met by some, and not everything is refused.
    for kind in ["rendered", "OutOfFuel", "TooLarge", "Syntax", "Render"] {
        assert!(of(kind) >= 10, "{kind}: {} of {all}\n{stdout}", of(kind));
    }
    assert!(of("Engine") <= 4, "panics of the engine\n{stdout}");
}

/// What ended the process before, or did not end: each is refused for what it is.
#[test]
fn the_first_finds_are_refused_in_one_line() {
    let rendered =
        [("{{ 'abc'.count('') }}", "4"), ("{{ 'abc'.count('b') }}", "1"), ("{{ ''.count('') }}", "1")];
    for (source, expected) in rendered {
        assert_eq!(apply(source).as_deref(), Ok(expected), "{source}");
    }
    let deep = 60_000;
    let syntax = [
        format!("{{{{ {}x }}}}", "not ".repeat(deep)),
        format!("{{{{ {}x }}}}", "-".repeat(deep)),
        format!("{{{{ x{} }}}}", "|upper".repeat(deep / 4)),
        format!("{{{{ x{} }}}}", ".b".repeat(deep)),
        format!("{{{{ x{} }}}}", "~x".repeat(deep)),
        format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(20_000)),
    ];
    for source in syntax {
        let error = apply(&source).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, ChatError::Syntax { line: 1, .. }) && text.contains("follow one another"),
            "{text}"
        );
    }
    let cases = [
        ("{% set n = namespace() %}{% set n.a = n %}{{ n }}", "cannot be stored in another value"),
        ("{{ '%1000000000000d'|format(1) }}", "MiB of text"),
        ("{{ '{:1000000000000}'.format(1) }}", "MiB of text"),
        ("{{ [1]|batch(1000000000000, 0) }}", "more than 50000 items"),
        ("{{ ('a' * 5000).replace('a', 'b' * 5000) }}", "MiB of text"),
        ("{{ ('a' * 5000)|replace('a', 'b' * 50000) }}", "steps"),
        ("{{ (range(5000)|list)|join('b' * 5000) }}", "MiB of text"),
        ("{{ 'a\nb'|indent(1000000000000) }}", "MiB of text"),
        (
            "{% set n = namespace(s='x') %}{% for i in range(25) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
            "steps",
        ),
        (
            "{% set n = namespace(s='x') %}{% for i in range(35) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
            "steps",
        ),
        (
            "{% set n = namespace(s=[]) %}{% for i in range(35) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
            "items",
        ),
        (
            "{% set n = namespace(s=[]) %}{% for i in range(5000) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
            "deeper than 160",
        ),
    ];
    for (source, cause) in cases {
        let text = apply(source).unwrap_err().to_string();
        assert!(text.contains(cause), "{source}: {text}");
        assert!(text.contains("choose another template") || text.contains("check the messages"), "{text}");
    }
}

/// Two megabytes in 2000 messages are half a million tokens.
#[test]
fn a_very_long_conversation_is_within_the_limits() {
    let template = ChatTemplate::new(
        "{% for m in messages %}{% if loop.index0 > 0 and messages[loop.index0 - 1].role == m.role %}{{ raise_exception('twice') }}\
         {% endif %}{{ '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>\n' }}{% endfor %}",
        "",
        "",
    )
    .unwrap();
    let turn =
        |i: usize| Message::new(if i.is_multiple_of(2) { "user" } else { "assistant" }, "word ".repeat(200));
    let messages: Vec<_> = (0..2000).map(turn).collect();
    let text = template.render(&messages, &RenderOptions::for_answer()).unwrap();
    assert!(text.len() > 2_000_000, "{}", text.len());
}

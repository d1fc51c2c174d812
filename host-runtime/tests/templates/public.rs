//! Templates that others publish, against Jinja2.
//!
//! `cargo xtask templates` fetches them, and has Jinja2 render each with each conversation of
//! `tests/templates/conversations.json`. What this crate makes of the same pair is compared byte for byte; a
//! pair that Jinja2 itself cannot render is not comparable. The same is done with small templates of an
//! expression each, from `tests/templates/expressions.json`. Pairs that are known to differ are in
//! `tests/templates/differences.json`, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use hexflash::chat::{ChatError, ChatTemplate, Message, RenderOptions};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What `strftime_now` tells, in seconds since 1970, as in `tests/templates/jinja.py`.
const NOW: i64 = 1_785_000_000;
/// The file with Jinja2's results.
const RESULTS: &str = "HEXFLASH_JINJA_RESULTS";
/// What the names of templates of one expression begin with.
const EXPRESSION: &str = "expression ";
/// Fewer templates than this are no comparison: an archive was not unpacked as expected.
const FEWEST: usize = 200;

/// A template, and what Jinja2 makes of it.
#[derive(Deserialize)]
struct Template {
    template: String,
    source: String,
    /// Why Jinja2 does not compile it.
    invalid: Option<String>,
    #[serde(default)]
    results: BTreeMap<String, Outcome>,
}

/// What became of a template and a conversation.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// A prompt.
    Text(String),
    /// The template's own words against the conversation.
    Refused(String),
    /// The template cannot be applied to it.
    Error(String),
}

/// Pairs that are known to differ, and why.
#[derive(Deserialize)]
struct Difference {
    templates: Vec<String>,
    conversations: Vec<String>,
    reason: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/templates")
}

fn read<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A message as the server hands it over: contents are texts, or parts.
fn message(json: &Value) -> Message {
    let mut fields = json.as_object().unwrap().clone();
    let parts = match fields["content"].take() {
        Value::Array(parts) => parts,
        text => {
            fields.insert("content".to_owned(), text);
            return serde_json::from_value(fields.into()).unwrap();
        }
    };
    fields.insert("content".to_owned(), "".into());
    let mut message: Message = serde_json::from_value(fields.into()).unwrap();
    message.parts = parts;
    message
}

fn outcome(template: &ChatTemplate, conversation: &Map<String, Value>) -> Outcome {
    let mut kwargs = conversation.clone();
    let messages: Vec<_> = kwargs["messages"].as_array().unwrap().iter().map(message).collect();
    kwargs.remove("messages");
    let add_generation_prompt = kwargs.remove("add_generation_prompt") == Some(true.into());
    let options = RenderOptions { add_generation_prompt, kwargs, now: Some(NOW) };
    match template.render(&messages, &options) {
        Ok(text) => Outcome::Text(text),
        Err(ChatError::Refused { message }) => Outcome::Refused(message),
        Err(error) => Outcome::Error(error.to_string()),
    }
}

/// Why the outcomes of a pair differ, if they do.
fn difference(jinja: &Outcome, ours: &Outcome) -> Option<String> {
    match (jinja, ours) {
        (Outcome::Text(a), Outcome::Text(b)) if a == b => None,
        (Outcome::Text(a), Outcome::Text(b)) => {
            let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            let from = (0..=same.saturating_sub(20)).rev().find(|&i| a.is_char_boundary(i)).unwrap_or(0);
            let near = |text: &str| text.get(from..).unwrap_or("").chars().take(60).collect::<String>();
            Some(format!("at byte {same}: Jinja2 {:?}, here {:?}", near(a), near(b)))
        }
        (Outcome::Text(_), other) => Some(format!("Jinja2 renders it, here {other:?}")),
        // Its words may be cut, and are on one line here.
        (Outcome::Refused(_), Outcome::Refused(_)) => None,
        (Outcome::Refused(words), other) => Some(format!("Jinja2 refuses it ({words}), here {other:?}")),
        (Outcome::Error(_), _) => None,
    }
}

#[test]
#[ignore = "`cargo xtask templates` fetches what it needs"]
fn public_templates_give_jinjas_bytes() {
    let path = std::env::var_os(RESULTS).expect(RESULTS);
    let conversations: BTreeMap<String, Map<String, Value>> = read("conversations.json");
    let known: Vec<Difference> = read("differences.json");
    let listed: BTreeSet<(String, String)> = known
        .iter()
        .inspect(|known| assert!(!known.reason.is_empty(), "{:?} has no reason", known.templates))
        .flat_map(|known| known.templates.iter().map(move |template| (template, known)))
        .flat_map(|(template, known)| known.conversations.iter().map(|it| (template.clone(), it.clone())))
        .collect();

    let (mut templates, mut compared, mut failed) = (0, 0, Vec::new());
    let mut differing = BTreeSet::new();
    for line in fs::read_to_string(path).unwrap().lines() {
        let jinja: Template = serde_json::from_str(line).unwrap();
        templates += usize::from(!jinja.template.starts_with(EXPRESSION));
        let compiled = ChatTemplate::new(&jinja.source, "<s>", "</s>");
        if let Some(reason) = &jinja.invalid {
            assert!(compiled.is_err(), "{}: Jinja2 does not compile it: {reason}", jinja.template);
            continue;
        }
        for (name, result) in &jinja.results {
            let ours = match &compiled {
                Ok(compiled) => outcome(compiled, &conversations[name]),
                Err(error) => Outcome::Error(error.to_string()),
            };
            compared += usize::from(!matches!(result, Outcome::Error(_)));
            if let Some(why) = difference(result, &ours) {
                let pair = (jinja.template.clone(), name.clone());
                if !listed.contains(&pair) {
                    failed.push(format!("{}, {name}: {why}", jinja.template));
                }
                differing.insert(pair);
            }
        }
    }
    println!("{compared} pairs of {templates} templates, {} known to differ", listed.len());
    for (template, conversation) in listed.difference(&differing) {
        failed.push(format!("{template}, {conversation}: it is listed, but no longer differs"));
    }
    assert!(templates >= FEWEST, "{templates} templates");
    assert!(failed.is_empty(), "{} pairs differ:\n{}", failed.len(), failed.join("\n"));
}

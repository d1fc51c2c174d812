//! Fields that ask for an answer of a form: `response_format`, `json_schema`, `grammar`, and those of vLLM.

use llguidance::api::TopLevelGrammar;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::Model;
use super::error::ApiError;
use crate::gbnf;
use crate::schema::Schema;
use crate::text::form::{Form, GRAMMAR};

/// What grammars in llguidance's language begin with, as with llama-server. All others are in GBNF.
const LARK: &str = "%llguidance";

/// Blanks between the parts of a JSON text. Without a bound, a model that has nothing to say writes blanks
/// until its tokens are used up.
const BLANKS: &str = r"[ \n\t]{1,20}";

/// Words for a kind of format that is not known.
const NO_KIND: &str = "none of text, json_object, json_schema";

/// Fields that ask for a form: OpenAI's, llama-server's and vLLM's, of which older ones have a name each.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub(super) struct FormFields {
    pub(super) response_format: Option<Format>,
    json_schema: Option<Value>,
    grammar: Option<String>,
    structured_outputs: Structured,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<String>,
    guided_whitespace_pattern: Option<String>,
}

/// OpenAI's field.
#[derive(Debug, Default, Deserialize, PartialEq)]
pub(super) struct Format {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<Named>,
    /// llama-server's, beside `json_object`.
    schema: Option<Value>,
}

/// A schema with its name.
#[derive(Debug, Deserialize, PartialEq)]
struct Named {
    schema: Value,
    strict: Option<bool>,
}

/// A format whose schema stands beside its kind, as newer interfaces have it.
#[derive(Deserialize)]
pub(super) struct FlatFormat {
    #[serde(rename = "type")]
    kind: String,
    schema: Option<Value>,
    strict: Option<bool>,
}

/// vLLM's field: one of these. What it may hold besides says how the form is compiled, or is refused by name.
#[derive(Debug, Default, Deserialize, PartialEq)]
struct Structured {
    json: Option<Value>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
    json_object: Option<bool>,
    whitespace_pattern: Option<String>,
    structural_tag: Option<Value>,
}

/// Most texts of a choice, and their bytes together: each is a branch of the grammar.
const MAX_CHOICES: usize = 4096;
const MAX_CHOICE_BYTES: usize = 256 << 10;

impl FormFields {
    /// The form that a request wants, if it wants one.
    pub(super) fn form(self, model: &Model) -> Result<Option<Form>, ApiError> {
        const OLD: [&str; 4] = ["guided_json", "guided_regex", "guided_choice", "guided_grammar"];
        let old = Structured {
            json: self.guided_json,
            regex: self.guided_regex,
            choice: self.guided_choice,
            grammar: self.guided_grammar,
            whitespace_pattern: self.guided_whitespace_pattern,
            ..Structured::default()
        };
        let mut found = Vec::new();
        found.extend(self.response_format.map_or(Ok(None), Format::form)?);
        found.extend(self.json_schema.map(|schema| of_json("json_schema", schema, false)).transpose()?);
        found.extend(given(self.grammar).map(|text| of_text(GRAMMAR, text, model)).transpose()?);
        found.extend(self.structured_outputs.forms(["structured_outputs"; 4], model)?);
        found.extend(old.forms(OLD, model)?);
        let mut found = found.into_iter();
        let Some((name, grammar, ignored)) = found.next() else { return Ok(None) };
        if let Some((other, ..)) = found.next() {
            return Err(ApiError::field(name, format!("there is {other}, too; ask for one of them")));
        }
        Ok(Some(Form::new(name, grammar, ignored)))
    }
}

/// A text that asks for something.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// A field, its grammar, and what of it answers are not kept to.
type Found = (&'static str, TopLevelGrammar, Option<String>);

/// The grammar of a schema, which may have options of its own for the compiler.
fn of_json(name: &'static str, schema: Value, is_strict: bool) -> Result<Found, ApiError> {
    let mut schema = Schema::of(schema);
    if is_strict {
        schema = schema.strict().map_err(|reason| ApiError::unsupported(name, &reason))?;
    }
    let ignored = schema.told();
    let mut schema = schema.value;
    if let Some(schema) = schema.as_object_mut() {
        schema.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": BLANKS }));
    }
    Ok((name, TopLevelGrammar::from_json_schema(schema), ignored))
}

impl FlatFormat {
    /// Format as chats have it; `name` is the field that this one stands in.
    pub(super) fn nested(self, name: &str) -> Result<Format, ApiError> {
        match (self.kind.as_str(), self.schema) {
            ("json_schema", Some(schema)) => Ok(Format::of_schema(schema, self.strict)),
            ("json_schema", None) => Err(ApiError::field(name, "the schema is missing in format")),
            ("text" | "json_object", _) => Ok(Format { kind: self.kind, ..Format::default() }),
            (kind, _) => Err(ApiError::unsupported(name, &format!("{kind} is {NO_KIND}"))),
        }
    }
}

impl Format {
    /// The format of texts that fit a schema.
    pub(super) fn of_schema(schema: Value, strict: Option<bool>) -> Self {
        let json_schema = Some(Named { schema, strict });
        Self { kind: "json_schema".to_owned(), json_schema, schema: None }
    }

    fn form(self) -> Result<Option<Found>, ApiError> {
        const NAME: &str = "response_format";
        let (schema, strict) = match (self.kind.as_str(), self.json_schema) {
            ("text", _) => return Ok(None),
            ("json_object", _) => (self.schema.unwrap_or_else(|| json!({ "type": "object" })), None),
            ("json_schema", Some(Named { schema, strict })) => (schema, strict),
            ("json_schema", None) => return Err(ApiError::field(NAME, "json_schema is missing in it")),
            (kind, _) => return Err(ApiError::unsupported(NAME, &format!("{kind} is {NO_KIND}"))),
        };
        of_json(NAME, schema, strict == Some(true)).map(Some)
    }
}

/// The grammar of a text in GBNF, or in llguidance's own language.
fn of_text(name: &'static str, text: String, model: &Model) -> Result<Found, ApiError> {
    if text.starts_with(LARK) {
        return Ok((name, TopLevelGrammar::from_lark(text), None));
    }
    let tokenizer = &model.card.text.tokenizer;
    let translated = gbnf::translate(&text, |token| tokenizer.id_of(token));
    let lark = translated.map_err(|error| ApiError::field(name, error.to_string()))?;
    Ok((name, TopLevelGrammar::from_lark(lark), None))
}

impl Structured {
    /// The forms that are asked for; `names` are the fields of a schema, a pattern, a choice and a grammar.
    fn forms(self, names: [&'static str; 4], model: &Model) -> Result<Vec<Found>, ApiError> {
        let [json, regex, choice, grammar] = names;
        if self.structural_tag.is_some() {
            return Err(ApiError::unsupported(
                "structural_tag",
                "give tools, or a form for the whole answer",
            ));
        }
        let schema = match self.json {
            // Clients send schemas as their text, too.
            Some(Value::String(text)) if text.is_empty() => None,
            Some(Value::String(text)) => {
                Some(serde_json::from_str(&text).map_err(|error| ApiError::field(json, error))?)
            }
            Some(Value::Object(fields)) if fields.is_empty() => None,
            schema => schema,
        };
        let any_object = || json!({ "type": "object" });
        let schema = schema.or_else(|| (self.json_object == Some(true)).then(any_object));
        let with_blanks = |mut schema: Value| {
            if let (Some(pattern), Some(fields)) = (&self.whitespace_pattern, schema.as_object_mut()) {
                fields.insert("x-guidance".to_owned(), json!({ "whitespace_pattern": pattern }));
            }
            schema
        };
        let mut found = Vec::new();
        found.extend(schema.map(|schema| of_json(json, with_blanks(schema), false)).transpose()?);
        found.extend(given(self.regex).map(|pattern| of_pattern(regex, &pattern)));
        let texts = self.choice.filter(|texts| !texts.is_empty());
        found.extend(texts.map(|texts| of_choice(choice, &texts)).transpose()?);
        found.extend(given(self.grammar).map(|text| of_text(grammar, text, model)).transpose()?);
        Ok(found)
    }
}

/// Texts that fit a pattern as a whole, whether it says so or not.
fn of_pattern(name: &'static str, pattern: &str) -> Found {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let is_anchor = |body: &&str| body.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0;
    let pattern = pattern.strip_suffix('$').filter(is_anchor).unwrap_or(pattern);
    (name, TopLevelGrammar::from_regex(pattern), None)
}

/// One of some texts.
fn of_choice(name: &'static str, texts: &[String]) -> Result<Found, ApiError> {
    if texts.len() > MAX_CHOICES || texts.iter().map(String::len).sum::<usize>() > MAX_CHOICE_BYTES {
        let reason = format!("give at most {MAX_CHOICES} texts, of {MAX_CHOICE_BYTES} bytes together");
        return Err(ApiError::field(name, reason));
    }
    // A text as grammars quote it is one as JSON does.
    let quoted: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    // As one word: rules with so many beginnings have a bound.
    let lark = format!("{LARK} {{}}\nstart: CHOICE\nCHOICE: {}\n", quoted.join(" | "));
    Ok((name, TopLevelGrammar::from_lark(lark), None))
}

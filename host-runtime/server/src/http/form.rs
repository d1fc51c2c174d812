//! Fields that ask for an answer of a form: `response_format`, `json_schema`, `grammar`, and those of vLLM.

use llguidance::api::TopLevelGrammar;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::Model;
use super::error::ApiError;
use super::fields::Fields;
use crate::gbnf;
use crate::schema::Schema;
use crate::text::form::{Form, GRAMMAR};

/// What grammars in llguidance's language begin with, as with llama-server. All others are in GBNF.
const LARK: &str = "%llguidance";

/// Blanks between the parts of a JSON text. Without a bound, a model that has nothing to say writes blanks
/// until its tokens are used up.
const BLANKS: &str = r"[ \n\t]{1,20}";

/// OpenAI's field.
#[derive(Deserialize)]
struct Format {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    json_schema: Option<Named>,
    /// llama-server's, beside `json_object`.
    #[serde(default)]
    schema: Option<Value>,
}

/// A schema with its name.
#[derive(Deserialize)]
struct Named {
    schema: Value,
    #[serde(default)]
    strict: Option<bool>,
}

/// vLLM's field: one of these. What it may hold besides says how the form is compiled, or is refused by name.
#[derive(Default, Deserialize)]
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

/// The form that a request wants, if it wants one.
pub(super) fn read(fields: &Fields, model: &Model) -> Result<Option<Form>, ApiError> {
    let wanted = [of_format(fields)?, of_schema(fields)?, of_grammar(fields, model)?];
    let mut wanted = wanted.into_iter().flatten().chain(of_structured(fields, model)?);
    let Some((name, grammar, ignored)) = wanted.next() else { return Ok(None) };
    if let Some((other, ..)) = wanted.next() {
        return Err(ApiError::field(name, format!("there is {other}, too; ask for one of them")));
    }
    Ok(Some(Form::new(name, grammar, ignored)))
}

/// The grammar of a schema, which may have options of its own for the compiler.
fn of_json(name: &'static str, schema: Value, is_strict: bool) -> Result<Wanted, ApiError> {
    let mut schema = Schema::of(schema);
    if is_strict {
        schema = schema.strict().map_err(|reason| ApiError::unsupported(name, &reason))?;
    }
    let ignored = schema.told();
    let mut schema = schema.value;
    if let Some(schema) = schema.as_object_mut() {
        schema.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": BLANKS }));
    }
    Ok(Some((name, TopLevelGrammar::from_json_schema(schema), ignored)))
}

/// A field, its grammar, and what of it answers are not kept to.
type Found = (&'static str, TopLevelGrammar, Option<String>);
type Wanted = Option<Found>;

fn of_format(fields: &Fields) -> Result<Wanted, ApiError> {
    const NAME: &str = "response_format";
    let Some(format) = fields.get::<Format>(NAME)? else { return Ok(None) };
    let is_strict = format.json_schema.as_ref().is_some_and(|named| named.strict == Some(true));
    let schema = match (format.kind.as_str(), format.json_schema) {
        ("text", _) => return Ok(None),
        ("json_object", _) => format.schema.unwrap_or_else(|| json!({ "type": "object" })),
        ("json_schema", Some(Named { schema, .. })) => schema,
        ("json_schema", None) => return Err(ApiError::field(NAME, "json_schema is missing in it")),
        (kind, _) => {
            return Err(ApiError::unsupported(
                NAME,
                &format!("{kind} is none of text, json_object, json_schema"),
            ));
        }
    };
    of_json(NAME, schema, is_strict)
}

fn of_schema(fields: &Fields) -> Result<Wanted, ApiError> {
    const NAME: &str = "json_schema";
    fields.get::<Value>(NAME)?.map_or(Ok(None), |schema| of_json(NAME, schema, false))
}

fn of_grammar(fields: &Fields, model: &Model) -> Result<Wanted, ApiError> {
    let text = fields.get::<String>(GRAMMAR)?.filter(|text| !text.is_empty());
    text.map_or(Ok(None), |text| of_text(GRAMMAR, text, model))
}

/// The grammar of a text in GBNF, or in llguidance's own language.
fn of_text(name: &'static str, text: String, model: &Model) -> Result<Wanted, ApiError> {
    if text.starts_with(LARK) {
        return Ok(Some((name, TopLevelGrammar::from_lark(text), None)));
    }
    let tokenizer = &model.card.text.tokenizer;
    let translated = gbnf::translate(&text, |token| tokenizer.id_of(token));
    let lark = translated.map_err(|error| ApiError::field(name, error.to_string()))?;
    Ok(Some((name, TopLevelGrammar::from_lark(lark), None)))
}

/// What vLLM's fields ask for: `structured_outputs`, and the older ones of a name each.
fn of_structured(fields: &Fields, model: &Model) -> Result<Vec<Found>, ApiError> {
    const NAME: &str = "structured_outputs";
    let mut all = Vec::new();
    if let Some(wanted) = fields.get::<Structured>(NAME)? {
        all.extend(wanted.forms([NAME; 4], model)?);
    }
    const OLD: [&str; 4] = ["guided_json", "guided_regex", "guided_choice", "guided_grammar"];
    let [json, regex, choice, grammar] = OLD;
    let old = Structured {
        json: fields.get(json)?,
        regex: fields.get(regex)?,
        choice: fields.get(choice)?,
        grammar: fields.get(grammar)?,
        whitespace_pattern: fields.get("guided_whitespace_pattern")?,
        ..Structured::default()
    };
    all.extend(old.forms(OLD, model)?);
    Ok(all)
}

impl Structured {
    /// The forms that are asked for; `names` are the fields of a schema, a pattern, a choice and a grammar.
    fn forms(self, names: [&'static str; 4], model: &Model) -> Result<Vec<Found>, ApiError> {
        let [json, regex, choice, grammar] = names;
        if self.structural_tag.is_some() {
            return Err(ApiError::unsupported(
                "structural_tag",
                "give tools, or one form for the whole answer",
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
        let wanted = [
            schema.map_or(Ok(None), |schema| of_json(json, with_blanks(schema), false))?,
            self.regex.filter(|pattern| !pattern.is_empty()).and_then(|pattern| of_pattern(regex, &pattern)),
            self.choice
                .filter(|texts| !texts.is_empty())
                .map_or(Ok(None), |texts| of_choice(choice, &texts))?,
            self.grammar
                .filter(|text| !text.is_empty())
                .map_or(Ok(None), |text| of_text(grammar, text, model))?,
        ];
        Ok(wanted.into_iter().flatten().collect())
    }
}

/// Texts that fit a pattern as a whole, whether it says so or not.
fn of_pattern(name: &'static str, pattern: &str) -> Wanted {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let is_anchor = |body: &&str| body.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0;
    let pattern = pattern.strip_suffix('$').filter(is_anchor).unwrap_or(pattern);
    Some((name, TopLevelGrammar::from_regex(pattern), None))
}

/// One of some texts.
fn of_choice(name: &'static str, texts: &[String]) -> Result<Wanted, ApiError> {
    if texts.len() > MAX_CHOICES || texts.iter().map(String::len).sum::<usize>() > MAX_CHOICE_BYTES {
        let reason = format!("give at most {MAX_CHOICES} texts, of {MAX_CHOICE_BYTES} bytes together");
        return Err(ApiError::field(name, reason));
    }
    // A text as grammars quote it is one as JSON does.
    let quoted: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    // As one word: rules with so many beginnings have a bound.
    let lark = format!("{LARK} {{}}\nstart: CHOICE\nCHOICE: {}\n", quoted.join(" | "));
    Ok(Some((name, TopLevelGrammar::from_lark(lark), None)))
}

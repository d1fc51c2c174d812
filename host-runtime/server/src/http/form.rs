//! Fields that ask for an answer of a form: `response_format`, `json_schema`, `grammar`.

use llguidance::api::TopLevelGrammar;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Model;
use super::body::Fields;
use super::error::ApiError;
use crate::gbnf;
use crate::grammar::{Grammar, Grammars};

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
}

/// The form that a request wants, if it wants one.
pub(super) fn read(fields: &Fields, model: &Model) -> Result<Option<Grammar>, ApiError> {
    let wanted = [of_format(fields)?, of_schema(fields)?, of_grammar(fields, model)?];
    let mut wanted = wanted.into_iter().flatten();
    let Some((name, grammar)) = wanted.next() else { return Ok(None) };
    if let Some((other, _)) = wanted.next() {
        return Err(ApiError::field(name, format!("there is {other}, too; ask for one of them")));
    }
    compile(grammar, name, model).map(Some)
}

/// Compiles the grammar that the field `name` asks for.
pub(super) fn compile(grammar: TopLevelGrammar, name: &str, model: &Model) -> Result<Grammar, ApiError> {
    let grammars = model.grammars.get_or_init(|| Grammars::new(model.card.text.tokenizer.clone()));
    let grammars = grammars.as_ref().map_err(|reason| ApiError::field(name, reason))?;
    grammars.compile(grammar).map_err(|reason| ApiError::field(name, reason))
}

/// The grammar of a schema, which may have options of its own for the compiler.
fn of_json(mut schema: Value) -> TopLevelGrammar {
    if let Some(schema) = schema.as_object_mut() {
        schema.entry("x-guidance").or_insert_with(|| json!({ "whitespace_pattern": BLANKS }));
    }
    TopLevelGrammar::from_json_schema(schema)
}

type Wanted = Option<(&'static str, TopLevelGrammar)>;

fn of_format(fields: &Fields) -> Result<Wanted, ApiError> {
    const NAME: &str = "response_format";
    let Some(format) = fields.get::<Format>(NAME)? else { return Ok(None) };
    let schema = match (format.kind.as_str(), format.json_schema) {
        ("text", _) => return Ok(None),
        ("json_object", _) => format.schema.unwrap_or_else(|| json!({ "type": "object" })),
        ("json_schema", Some(Named { schema })) => schema,
        ("json_schema", None) => return Err(ApiError::field(NAME, "json_schema is missing in it")),
        (kind, _) => {
            return Err(ApiError::unsupported(
                NAME,
                &format!("{kind} is none of text, json_object, json_schema"),
            ));
        }
    };
    Ok(Some((NAME, of_json(schema))))
}

fn of_schema(fields: &Fields) -> Result<Wanted, ApiError> {
    const NAME: &str = "json_schema";
    Ok(fields.get::<Value>(NAME)?.map(|schema| (NAME, of_json(schema))))
}

fn of_grammar(fields: &Fields, model: &Model) -> Result<Wanted, ApiError> {
    const NAME: &str = "grammar";
    match fields.get::<String>(NAME)?.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) if text.starts_with(LARK) => Ok(Some((NAME, TopLevelGrammar::from_lark(text)))),
        Some(text) => {
            let tokenizer = &model.card.text.tokenizer;
            let translated = gbnf::translate(&text, |token| tokenizer.id_of(token));
            let lark = translated.map_err(|error| ApiError::field(NAME, error.to_string()))?;
            Ok(Some((NAME, TopLevelGrammar::from_lark(lark))))
        }
    }
}

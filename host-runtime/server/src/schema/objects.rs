//! Objects whose schema does not say whether they may have further properties.
//!
//! JSON Schema leaves them open, and a model that may go on with keys of its own invention does so until its
//! tokens are used up. Who lists properties means these, as llama-server's grammar has it: what says nothing
//! is closed, and `additionalProperties: true` keeps an object open.

use serde_json::{Map, Value, json};

/// Keywords by which a schema says itself which properties there may be, or leaves it to another schema.
const DECIDE: [&str; 12] = [
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
    "dependencies",
    "dependentSchemas",
    "$ref",
    "$recursiveRef",
    "$dynamicRef",
    "anyOf",
    "oneOf",
    "if",
];

/// Most schemas of an `allOf` in one of another.
const MAX_DEPTH: usize = 16;

/// Properties that a schema lists, and those that have to be there.
#[derive(Default)]
struct Listed {
    /// Whether there is a list, which may be empty.
    any: bool,
    names: Vec<String>,
    required: Vec<String>,
    least: u64,
}

impl Listed {
    /// Adds those of a schema and of its `allOf`; `None` where others may be listed elsewhere.
    fn add(&mut self, fields: &Map<String, Value>, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH || DECIDE.iter().any(|name| fields.contains_key(*name)) {
            return None;
        }
        if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
            self.any = true;
            self.names.extend(properties.keys().cloned());
        }
        let required = fields.get("required").and_then(Value::as_array);
        self.required.extend(required.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        self.least = self.least.max(fields.get("minProperties").and_then(Value::as_u64).unwrap_or(0));
        for part in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.add(part.as_object()?, depth + 1)?;
        }
        Some(())
    }
}

/// Closes an object that says nothing of further properties.
pub(super) fn close(fields: &mut Map<String, Value>) {
    let mut listed = Listed::default();
    if listed.add(fields, 0).is_none() || !listed.any {
        return;
    }
    let Listed { mut names, required, least, .. } = listed;
    names.sort_unstable();
    names.dedup();
    // Such an object can be only with properties that are not listed.
    if required.iter().any(|name| !names.contains(name)) || least > names.len() as u64 {
        return;
    }
    if fields.contains_key("allOf")
        && let Some(own) = fields.entry("properties").or_insert_with(|| json!({})).as_object_mut()
    {
        for name in names {
            own.entry(name).or_insert_with(|| json!({}));
        }
    }
    fields.insert("additionalProperties".to_owned(), false.into());
}

/// Whether the schemas in the list `name` of a schema say but a part of what holds for an object.
pub(super) fn are_parts(fields: &Map<String, Value>, name: &str) -> bool {
    const OTHERS: [&str; 6] =
        ["properties", "patternProperties", "additionalProperties", "allOf", "anyOf", "oneOf"];
    let has_others = OTHERS.iter().any(|other| *other != name && fields.contains_key(*other));
    let several = fields.get(name).and_then(Value::as_array).is_some_and(|parts| parts.len() > 1);
    has_others || (name == "allOf" && several)
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use super::*;

    /// What becomes of a schema at an address in it.
    fn at(schema: &Value, address: &str) -> Value {
        Schema::of(schema.clone()).value.pointer(address).cloned().unwrap_or_default()
    }

    #[test]
    fn objects_that_list_their_properties_have_no_others() {
        let a = json!({ "properties": { "a": { "properties": { "b": {} } } } });
        assert_eq!(at(&a, "/additionalProperties"), false);
        assert_eq!(at(&a, "/properties/a/additionalProperties"), false);
        for (name, within) in [("items", "/items"), ("anyOf", "/anyOf/0"), ("$defs", "/$defs/x")] {
            let whole = match name {
                "items" => json!({ "type": "array", "items": a }),
                "anyOf" => json!({ "anyOf": [a, { "type": "null" }] }),
                _ => json!({ "$ref": "#/$defs/x", "$defs": { "x": a } }),
            };
            assert_eq!(at(&whole, &format!("{within}/additionalProperties")), false, "{whole}");
        }
        // No properties at all is a list, too.
        assert_eq!(at(&json!({ "type": "object", "properties": {} }), "/additionalProperties"), false);
    }

    #[test]
    fn objects_stay_open_where_they_say_so_or_have_to_be() {
        let properties = json!({ "a": { "type": "integer" } });
        for (name, value) in [
            ("additionalProperties", json!(true)),
            ("additionalProperties", json!({ "type": "string" })),
            ("patternProperties", json!({ "^x": {} })),
            ("unevaluatedProperties", json!(true)),
            ("required", json!(["a", "b"])),
            ("minProperties", json!(2)),
            ("anyOf", json!([{ "required": ["a"] }, { "required": ["b"] }])),
        ] {
            let schema = json!({ "type": "object", "properties": properties, name: value });
            assert_ne!(at(&schema, "/additionalProperties"), false, "{schema}");
        }
        assert_eq!(at(&json!({ "type": "object" }), "/additionalProperties"), Value::Null);
        let parts = json!({ "type": "string", "allOf": [{ "minLength": 1 }, { "maxLength": 2 }] });
        assert_eq!(at(&parts, "/additionalProperties"), Value::Null);
    }

    #[test]
    fn what_is_put_together_is_closed_as_a_whole() {
        let base = json!({ "properties": { "a": { "type": "integer" } }, "required": ["a"] });
        let more = json!({ "properties": { "b": { "type": "string" } } });
        for schema in [
            json!({ "allOf": [{ "$ref": "#/$defs/base" }, more], "$defs": { "base": base } }),
            json!({ "allOf": [base, more] }),
            json!({ "allOf": [base], "properties": more["properties"] }),
            json!({ "$ref": "#/$defs/base", "properties": more["properties"], "$defs": { "base": base } }),
        ] {
            let value = Schema::of(schema.clone()).value;
            assert_eq!(value["additionalProperties"], false, "{schema}");
            let names: Vec<_> = value["properties"].as_object().unwrap().keys().collect();
            assert!(["a", "b"].iter().all(|name| names.iter().any(|it| it == name)), "{value}");
            assert_eq!(value["allOf"][0].get("additionalProperties"), None, "{value}");
        }
    }

    /// References that lead to each other, many times each.
    #[test]
    fn circles_of_parts_end() {
        for n in [1, 2, 30] {
            let all: Vec<Value> = (0..n).map(|i| json!({ "$ref": format!("#/$defs/{}", i % 2) })).collect();
            let part = json!({ "allOf": all, "properties": { "a": {} } });
            let schema = json!({ "allOf": all, "$defs": { "0": part, "1": part } });
            assert!(Schema::of(schema).value.to_string().len() < 1 << 22);
        }
    }
}

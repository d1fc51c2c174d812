//! JSON schemas as clients send them, made into such as the grammar's compiler takes.
//!
//! What it does not know is written in other words where these say the same, and left out where they cannot:
//! an answer then keeps to less than was asked for, and whoever asked is told.

mod objects;
mod pattern;

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

/// Formats that answers are kept to. All others are annotations, as JSON Schema has it.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Keywords that restrict values and that the compiler does not know.
const IGNORED: [&str; 14] = [
    "not",
    "if",
    "propertyNames",
    "contains",
    "uniqueItems",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$recursiveRef",
    "$dynamicRef",
    "$recursiveAnchor",
    "$dynamicAnchor",
];

/// Keywords that mean nothing without one of the others.
const COMPANIONS: [&str; 4] = ["then", "else", "minContains", "maxContains"];

/// Keywords whose value is a schema, a list of schemas, or an object of schemas.
const ONE: [&str; 4] = ["additionalProperties", "additionalItems", "items", "contains"];
const LISTS: [&str; 2] = ["prefixItems", "items"];
/// Keywords whose value is a list of schemas that describe the same value.
const COMBINED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// Most values of which lists without repetition are enumerated: four have 65 such lists, five 326.
const MAX_UNIQUE: usize = 4;

/// How the names of definitions begin that are made here.
const MADE: &str = "hexflash.";

/// A schema that the compiler takes.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) value: Value,
    /// Keywords that answers are not kept to, each once.
    pub(crate) ignored: BTreeSet<String>,
}

impl Schema {
    /// The schema that says the same as `schema`, as far as it can.
    pub(crate) fn of(schema: Value) -> Self {
        let mut references =
            References { root: schema.clone(), made: HashMap::new(), open: Vec::new(), copied: MAX_COPIED };
        let mut ignored = BTreeSet::new();
        let mut value = adapted(schema, Role::Whole, &mut references, &mut ignored);
        let mut made = Map::new();
        while let Some((name, part)) = references.open.pop() {
            made.insert(name, adapted(part, Role::Whole, &mut references, &mut ignored));
        }
        if let (false, Some(root)) = (made.is_empty(), value.as_object_mut())
            && let Some(all) = root.entry("$defs").or_insert_with(|| json!({})).as_object_mut()
        {
            all.extend(made);
        }
        Self { value, ignored }
    }

    /// The schema as it was given.
    ///
    /// # Errors
    /// In words: there is something in it that answers would not be kept to.
    pub(crate) fn strict(self) -> Result<Self, String> {
        match self.told() {
            None => Ok(self),
            Some(all) => Err(format!("strict answers cannot be kept to {all}; drop them, or drop strict")),
        }
    }

    /// The names of what is ignored, if anything is.
    pub(crate) fn told(&self) -> Option<String> {
        let all: Vec<&str> = self.ignored.iter().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// Definitions that references lead to. The compiler knows paths of plain names only, so that what has
/// another address becomes a definition with such a name.
struct References {
    root: Value,
    /// Names by address.
    made: HashMap<String, String>,
    /// Definitions that were not adapted yet.
    open: Vec<(String, Value)>,
    /// Values that may still be copied to the places of references.
    copied: usize,
}

/// Most values that are copied to the places of references: each copy may have references of its own.
const MAX_COPIED: usize = 1 << 14;

/// How many values are in one, itself included; no more than `most` are counted, and one.
fn size(value: &Value, most: usize) -> usize {
    let sum = |all: usize, part: &Value| if all > most { all } else { all + size(part, most - all) };
    match value {
        Value::Array(items) => items.iter().fold(1, sum),
        Value::Object(fields) => fields.values().fold(1, sum),
        _ => 1,
    }
}

impl References {
    /// A reference that the compiler finds; the same one if there is nothing at its address.
    fn plain(&mut self, reference: &str) -> String {
        let Some(address) = self.address(reference).map(str::to_owned) else { return reference.to_owned() };
        let is_plain = address.is_empty() || (address.starts_with('/') && !address.contains(['~', '%']));
        if is_plain {
            return format!("#{address}");
        }
        if let Some(name) = self.made.get(&address) {
            return format!("#/$defs/{name}");
        }
        let Some(part) = self.target(&address).cloned() else { return reference.to_owned() };
        let name = format!("{MADE}{}", self.made.len());
        self.made.insert(address, name.clone());
        self.open.push((name.clone(), part));
        format!("#/$defs/{name}")
    }

    /// The address of a reference within the schema; `None` if it leads out of it.
    fn address<'r>(&self, reference: &'r str) -> Option<&'r str> {
        let own = self.root.get("$id").and_then(Value::as_str).unwrap_or_default();
        reference.strip_prefix(own).unwrap_or(reference).strip_prefix('#')
    }

    /// What is at an address.
    fn target(&self, address: &str) -> Option<&Value> {
        if address.is_empty() || address.starts_with('/') {
            self.root.pointer(&decoded(address))
        } else {
            anchored(&self.root, address)
        }
    }

    /// A part of a whole with what it refers to in the place of its reference: what stands elsewhere is
    /// closed as a whole.
    fn in_place(&mut self, part: Value) -> Value {
        let Value::Object(mut fields) = part else { return part };
        let target = fields.get("$ref").and_then(Value::as_str).and_then(|reference| {
            let target = self.target(self.address(reference)?)?;
            // A chain of references may be a circle.
            let is_end = target.as_object().is_some_and(|target| !target.contains_key("$ref"));
            is_end.then_some((target, size(target, self.copied)))
        });
        if let Some((target, size)) = target {
            let target = target.as_object().filter(|_| size <= self.copied).cloned();
            self.copied = self.copied.saturating_sub(size);
            let Some(target) = target else { return fields.into() };
            fields.remove("$ref");
            let own = std::mem::replace(&mut fields, target);
            fields.remove("$defs");
            if own.is_empty() {
                return fields.into();
            }
            // Annotations beside the reference are those of this place.
            let words = ["title", "description", "default", "examples", "deprecated"];
            if own.keys().all(|key| words.contains(&key.as_str())) {
                return fields.into();
            }
            return json!({ "allOf": [own, fields] });
        }
        fields.into()
    }
}

/// A fragment of an address without its `%`.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = if byte == b'%' { behind.get(..2) } else { None };
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The part of a schema that has this name for itself.
fn anchored<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => {
            let is_it = fields.get("$anchor").is_some_and(|anchor| anchor == name);
            if is_it { Some(value) } else { fields.values().find_map(|field| anchored(field, name)) }
        }
        Value::Array(items) => items.iter().find_map(|item| anchored(item, name)),
        _ => None,
    }
}

/// What a schema says of the value that it describes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// All.
    Whole,
    /// A part: others describe the same value, too. The number is how many schemas of parts it is in.
    Part(usize),
}

/// Most parts in one another: references may make a circle of them.
const MAX_PARTS: usize = 16;

/// A schema, with all that is in it, as the compiler takes it.
fn adapted(schema: Value, role: Role, references: &mut References, ignored: &mut BTreeSet<String>) -> Value {
    let Value::Object(mut fields) = schema else { return schema };
    // Properties beside a reference are no more than a part of what holds.
    if fields.contains_key("properties")
        && let Some(reference) = fields.remove("$ref")
        && let Some(all) = fields.entry("allOf").or_insert_with(|| json!([])).as_array_mut()
    {
        all.push(json!({ "$ref": reference }));
    }
    for name in COMBINED {
        let depth = match role {
            Role::Part(depth) => depth + 1,
            Role::Whole if objects::are_parts(&fields, name) => 1,
            Role::Whole => 0,
        };
        let parts = fields.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten();
        for part in parts {
            let taken = part.take();
            *part = match depth {
                0 => adapted(taken, Role::Whole, references, ignored),
                1..=MAX_PARTS => adapted(references.in_place(taken), Role::Part(depth), references, ignored),
                _ => adapted(taken, Role::Part(depth), references, ignored),
            };
        }
    }
    if role == Role::Whole {
        objects::close(&mut fields);
    }
    if let Some(Value::String(reference)) = fields.get_mut("$ref") {
        *reference = references.plain(reference);
    }
    if fields.get("format").and_then(Value::as_str).is_some_and(|format| !FORMATS.contains(&format)) {
        fields.remove("format");
    }
    if let Some(Value::String(pattern)) = fields.get_mut("pattern") {
        let (plain, is_exact) = pattern::without_word_boundaries(pattern);
        *pattern = plain;
        if !is_exact {
            ignored.insert("\\b in pattern".to_owned());
        }
    }
    rewrite_unique(&mut fields);
    rewrite_not(&mut fields);
    rewrite_names(&mut fields);
    if fields.get("minContains").is_some_and(|least| least == 0) && !fields.contains_key("maxContains") {
        fields.remove("contains");
    }
    for name in IGNORED {
        if fields.remove(name).is_some() && !name.ends_with("Anchor") {
            ignored.insert(name.to_owned());
        }
    }
    COMPANIONS.iter().for_each(|name| drop(fields.remove(*name)));
    let mut whole = |part: Value| adapted(part, Role::Whole, references, ignored);
    for (name, field) in &mut fields {
        let name = name.as_str();
        let value = field.take();
        *field = match value {
            Value::Object(_) if ONE.contains(&name) => whole(value),
            Value::Array(parts) if LISTS.contains(&name) => parts.into_iter().map(&mut whole).collect(),
            Value::Object(parts) if NAMED.contains(&name) => {
                Value::Object(parts.into_iter().map(|(name, part)| (name, whole(part))).collect())
            }
            other => other,
        };
    }
    Value::Object(fields)
}

/// Lists without repetition: of few values they are all named, and one value cannot be there twice.
fn rewrite_unique(fields: &mut Map<String, Value>) {
    let Some(unique) = fields.get("uniqueItems") else { return };
    let bound = |name: &str| fields.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let most = bound("maxItems").unwrap_or(usize::MAX);
    if *unique == false || most <= 1 {
        fields.remove("uniqueItems");
        return;
    }
    let is_alone = fields.get("type").is_some_and(|kind| kind == "array")
        && !["prefixItems", "contains", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not", "if"]
            .iter()
            .any(|name| fields.contains_key(*name));
    let items = fields.get("items").and_then(Value::as_object);
    let values = items.filter(|items| items.keys().all(|key| matches!(key.as_str(), "enum" | "type")));
    let values = values.and_then(|items| items.get("enum")?.as_array());
    let Some(values) = values.filter(|values| is_alone && values.len() <= MAX_UNIQUE) else { return };
    let least = bound("minItems").unwrap_or(0);
    let mut all = vec![Vec::new()];
    let mut begin = 0;
    while begin < all.len() {
        let list: Vec<Value> = all[begin].clone();
        let longer = values.iter().filter(|value| list.len() < most && !list.contains(value));
        let longer: Vec<Vec<Value>> =
            longer.map(|value| list.iter().chain([value]).cloned().collect()).collect();
        all.extend(longer);
        begin += 1;
    }
    let lists: Vec<Value> = all.into_iter().filter(|list| list.len() >= least).map(Value::from).collect();
    for name in ["uniqueItems", "items", "minItems", "maxItems"] {
        fields.remove(name);
    }
    fields.insert("enum".to_owned(), lists.into());
}

/// `not` where what is left can be named: types, and values of an `enum`.
fn rewrite_not(fields: &mut Map<String, Value>) {
    let Some(not) = fields.get("not").and_then(Value::as_object) else { return };
    let mut keys = not.keys().map(String::as_str);
    let forbidden: Vec<Value> = match (keys.next(), keys.next()) {
        (Some("type" | "enum"), None) => not.values().flat_map(listed).collect(),
        (Some("const"), None) => not.values().cloned().collect(),
        _ => return,
    };
    let key = if not.contains_key("type") { "type" } else { "enum" };
    let own = match (key, fields.get(key)) {
        (_, Some(own)) => listed(own),
        ("type", None) => TYPES.iter().map(|&kind| kind.into()).collect(),
        _ => return,
    };
    // An integer is a number, too.
    let is_number = |kind: &Value| kind == "number";
    if key == "type" && forbidden.iter().any(|kind| kind == "integer") && own.iter().any(is_number) {
        return;
    }
    let no_numbers = key == "type" && forbidden.iter().any(is_number);
    let left: Vec<Value> = own
        .into_iter()
        .filter(|value| !forbidden.contains(value))
        .filter(|value| !no_numbers || value != "integer")
        .collect();
    if left.is_empty() {
        return;
    }
    fields.remove("not");
    fields.insert(key.to_owned(), left.into());
}

/// A value or a list of values as a list.
fn listed(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(all) => all.clone(),
        one => vec![one.clone()],
    }
}

/// `propertyNames` where they are listed, or have a pattern, and no properties have schemas of their own.
fn rewrite_names(fields: &mut Map<String, Value>) {
    if fields.contains_key("properties") || fields.contains_key("patternProperties") {
        return;
    }
    let Some(names) = fields.get("propertyNames").and_then(Value::as_object) else { return };
    let mut keys = names.keys().map(String::as_str).filter(|key| *key != "type");
    let rest = fields.get("additionalProperties").cloned().unwrap_or_else(|| true.into());
    let (key, schemas) = match (keys.next(), keys.next(), names.get("enum"), names.get("pattern")) {
        (Some("enum"), None, Some(Value::Array(all)), _) => {
            let one = |name: &Value| Some((name.as_str()?.to_owned(), rest.clone()));
            ("properties", all.iter().filter_map(one).collect::<Map<_, _>>())
        }
        (Some("pattern"), None, _, Some(Value::String(pattern))) if !pattern.contains("\\b") => {
            ("patternProperties", Map::from_iter([(pattern.clone(), rest)]))
        }
        _ => return,
    };
    fields.remove("propertyNames");
    fields.insert(key.to_owned(), schemas.into());
    fields.insert("additionalProperties".to_owned(), false.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: Value, expected: &Value, ignored: &[&str]) {
        let schema = Schema::of(schema);
        assert_eq!(
            (&schema.value, schema.ignored.iter().map(String::as_str).collect::<Vec<_>>()),
            (expected, ignored.to_vec())
        );
    }

    #[test]
    fn formats_that_are_unknown_are_annotations() {
        let string = |format: &str| json!({ "type": "string", "format": format });
        check(string("date"), &string("date"), &[]);
        check(string("phone-number"), &json!({ "type": "string" }), &[]);
        // A property may have the name of a keyword, and values are no schemas.
        let other = json!({ "properties": { "format": { "type": "string" }, "not": {} },
            "additionalProperties": true, "const": { "not": 1 } });
        check(other.clone(), &other, &[]);
    }

    #[test]
    fn lists_without_repetition_are_named_where_they_are_few() {
        let items = json!({ "enum": ["a", "b"] });
        check(
            json!({ "type": "array", "items": items, "uniqueItems": true, "minItems": 1 }),
            &json!({ "type": "array", "enum": [["a"], ["b"], ["a", "b"], ["b", "a"]] }),
            &[],
        );
        let one = json!({ "type": "array", "maxItems": 1 });
        check(json!({ "type": "array", "maxItems": 1, "uniqueItems": true }), &one, &[]);
        let many = json!({ "type": "array", "items": { "type": "integer" } });
        let mut unique = many.clone();
        unique["uniqueItems"] = true.into();
        check(unique, &many, &["uniqueItems"]);
    }

    #[test]
    fn what_is_not_wanted_is_left_out_where_the_rest_can_be_named() {
        check(json!({ "enum": [1, 2, 3], "not": { "const": 2 } }), &json!({ "enum": [1, 3] }), &[]);
        check(
            json!({ "not": { "type": ["null", "number"] } }),
            &json!({ "type": ["boolean", "object", "array", "string"] }),
            &[],
        );
        check(json!({ "type": "string", "not": { "const": "x" } }), &json!({ "type": "string" }), &["not"]);
        check(
            json!({ "propertyNames": { "pattern": "^x" }, "additionalProperties": { "type": "null" } }),
            &json!({ "patternProperties": { "^x": { "type": "null" } }, "additionalProperties": false }),
            &[],
        );
        check(
            json!({ "propertyNames": { "enum": ["a"] } }),
            &json!({ "properties": { "a": true }, "additionalProperties": false }),
            &[],
        );
    }

    #[test]
    fn what_cannot_be_kept_to_is_told_and_refused_where_it_must_be() {
        let schema = || {
            let a = json!({ "if": {}, "then": {}, "contains": { "type": "null" }, "minContains": 2 });
            json!({ "properties": { "a": a }, "unevaluatedProperties": false })
        };
        check(schema(), &json!({ "properties": { "a": {} } }), &["contains", "if", "unevaluatedProperties"]);
        let reason = Schema::of(schema()).strict().unwrap_err();
        assert!(reason.contains("contains, if, unevaluatedProperties"), "{reason}");
        assert!(Schema::of(json!({ "type": "string", "format": "odd" })).strict().is_ok());
    }

    #[test]
    fn references_are_found_by_any_address() {
        let schema = json!({
            "$id": "https://example.org/x.json",
            "properties": {
                "a": { "$ref": "#/$defs/a~1b" }, "b": { "$ref": "#/$defs/c%20d~0" }, "c": { "$ref": "#named" },
                "d": { "$ref": "https://example.org/x.json#/$defs/plain" }, "e": { "$ref": "#/nowhere~1" },
            },
            "$defs": {
                "a/b": { "items": { "$ref": "#/$defs/a~1b" } }, "c d~": { "type": "null" }, "plain": {},
                "n": { "$anchor": "named", "type": "string" },
            },
        });
        let value = Schema::of(schema).value;
        for (name, expected) in [
            ("a", &json!({ "items": { "$ref": value["properties"]["a"]["$ref"] } })),
            ("b", &json!({ "type": "null" })),
            ("c", &json!({ "$anchor": "named", "type": "string" })),
            ("d", &json!({})),
        ] {
            let reference = value["properties"][name]["$ref"].as_str().unwrap();
            assert_eq!(value.pointer(&reference[1..]), Some(expected), "{reference}");
        }
        assert_eq!(value["properties"]["e"]["$ref"], "#/nowhere~1");
    }
}

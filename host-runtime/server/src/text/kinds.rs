//! Kinds of values: those that a schema allows, and numbers that are integers in another notation.

use serde_json::Value;

/// Most references and combinations that are followed within a schema: they may lead in a circle.
const MAX_KINDS_DEPTH: usize = 16;

/// The kinds of values that a schema allows.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kinds {
    pub(crate) text: bool,
    pub(crate) null: bool,
    /// Anything but texts and `null`.
    pub(crate) others: bool,
    boolean: bool,
    integer: bool,
    number: bool,
    array: bool,
    object: bool,
}

impl Kinds {
    /// `None` where the schema `part` of `root` does not tell.
    pub(crate) fn of(part: &Value, root: &Value, depth: usize) -> Option<Self> {
        if depth > MAX_KINDS_DEPTH {
            return None;
        }
        let mut kinds = Self::default();
        if let Some(kind) = part.get("type") {
            match kind {
                Value::String(kind) => kinds.add(kind),
                Value::Array(all) => all.iter().filter_map(Value::as_str).for_each(|kind| kinds.add(kind)),
                _ => return None,
            }
            return Some(kinds);
        }
        if let Some(value) = part.get("const") {
            kinds.add(kind_of(value));
            return Some(kinds);
        }
        if let Some(values) = part.get("enum").and_then(Value::as_array) {
            values.iter().for_each(|value| kinds.add(kind_of(value)));
            return Some(kinds);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(parts) = part.get(key).and_then(Value::as_array) {
                for part in parts {
                    kinds.join(Self::of(part, root, depth + 1)?);
                }
                return Some(kinds);
            }
        }
        if let Some(parts) = part.get("allOf").and_then(Value::as_array) {
            return parts.iter().find_map(|part| Self::of(part, root, depth + 1));
        }
        let at = part.get("$ref")?.as_str()?.strip_prefix('#')?;
        Self::of(root.pointer(at)?, root, depth + 1)
    }

    fn add(&mut self, kind: &str) {
        match kind {
            "string" => self.text = true,
            "null" => self.null = true,
            "boolean" => self.boolean = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "array" => self.array = true,
            "object" => self.object = true,
            _ => {}
        }
        self.others = self.boolean || self.integer || self.number || self.array || self.object;
    }

    fn join(&mut self, other: Self) {
        let Self { text, null, others, boolean, integer, number, array, object } = other;
        self.text |= text;
        self.null |= null;
        self.others |= others;
        self.boolean |= boolean;
        self.integer |= integer;
        self.number |= number;
        self.array |= array;
        self.object |= object;
    }

    /// Whether they have the kind of a value.
    pub(crate) fn have(self, value: &Value) -> bool {
        match value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Number(_) if self.number => true,
            Value::Number(number) => self.integer && !number.is_f64(),
            Value::String(_) => false,
            Value::Array(_) => self.array,
            Value::Object(_) => self.object,
        }
    }

    /// A number without a fraction as an integer where only integers are allowed.
    pub(crate) fn narrowed(self, value: Value) -> Value {
        match value.as_f64() {
            Some(_) if self.integer && !self.number => whole(value),
            _ => value,
        }
    }
}

/// A value in which numbers without a fraction are integers: `5.0` is 5.
pub(crate) fn whole(value: Value) -> Value {
    /// Up to here all integers are exact as floats.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) if float.fract() == 0.0 && float.abs() <= EXACT => (float as i64).into(),
            _ => number.into(),
        },
        Value::Array(items) => items.into_iter().map(whole).collect(),
        other => other,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

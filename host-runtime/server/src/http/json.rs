//! Objects with more fields.

use serde_json::Value;

/// `value` with another field.
pub(crate) fn with(mut value: Value, name: &str, field: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert(name.to_owned(), field);
    }
    value
}

/// `value` with the fields of `more`.
pub(crate) fn merged(mut value: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (value.as_object_mut(), more) {
        object.extend(more);
    }
    value
}

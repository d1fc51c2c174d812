//! Metadata of a model: typed access whose errors name the file, the key and both types.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::{Cause, FilePart, GgufError};
use super::limits::MAX_LAYERS;
use super::value::{Array, StringArray, Value};

/// Result of an accessor.
type Result<T> = std::result::Result<T, GgufError>;

/// A model's key-value pairs, owned and independent of the mapped file.
///
/// Integers convert between widths and signs where the value fits, since converters disagree on them; nothing
/// else converts. Accessors returning an `Option` give `None` for an absent key only: a present key of a
/// wrong type is always an error.
#[derive(Debug)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), entries: Vec::new(), index: HashMap::new() }
    }

    /// Adds a pair; false, and nothing added, if the key is there already.
    pub(super) fn insert(&mut self, key: &str, value: Value) -> bool {
        if self.index.contains_key(key) {
            return false;
        }
        self.index.insert(key.to_owned(), self.entries.len());
        self.entries.push((key.to_owned(), value));
        true
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value of `key`, whatever its type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// An integer that fits in a `u32`.
    pub fn u32_opt(&self, key: &str) -> Result<Option<u32>> {
        const EXPECTED: &str = "u32";
        let Some(n) = self.typed(key, EXPECTED, Value::as_integer)? else { return Ok(None) };
        let place = || FilePart::Key(key.to_owned());
        self.fit(n, EXPECTED, place).map(Some)
    }

    /// An integer that fits in a `u32`; `default` where the key is absent.
    pub fn u32_or(&self, key: &str, default: u32) -> Result<u32> {
        Ok(self.u32_opt(key)?.unwrap_or(default))
    }

    /// An integer that fits in a `u32`, from a key that must be there.
    pub fn require_u32(&self, key: &str) -> Result<u32> {
        self.required(key, self.u32_opt(key)?)
    }

    /// A float.
    pub fn f32_opt(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "f32", Value::as_f32)
    }

    /// A float; `default` where the key is absent.
    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.f32_opt(key)?.unwrap_or(default))
    }

    /// A float from a key that must be there.
    pub fn require_f32(&self, key: &str) -> Result<f32> {
        self.required(key, self.f32_opt(key)?)
    }

    /// A float or an integer, as an `f64`, which rounds integers above 2^53.
    pub fn number_opt(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "number", |value| {
            value.as_f32().map(f64::from).or_else(|| value.as_integer().map(|n| n as f64))
        })
    }

    /// A boolean.
    pub fn bool_opt(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "bool", Value::as_bool)
    }

    /// A boolean; `default` where the key is absent.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.bool_opt(key)?.unwrap_or(default))
    }

    /// A string.
    pub fn str_opt(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "string", Value::as_str)
    }

    /// A string from a key that must be there.
    pub fn require_str(&self, key: &str) -> Result<&str> {
        self.required(key, self.str_opt(key)?)
    }

    /// An array of integers that each fit in a `u32`.
    pub fn array_u32(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.integers(key, "array of u32", "u32")
    }

    /// An array of integers that each fit in an `i32`.
    pub fn array_i32(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.integers(key, "array of i32", "i32")
    }

    /// An array of floats.
    pub fn array_f32(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.typed(key, "array of f32", |v| match v.as_array()? {
            Array::F32(v) => Some(v.clone()),
            Array::F64(v) => Some(v.iter().map(|&f| f as f32).collect()),
            _ => None,
        })
    }

    /// An array of booleans.
    pub fn array_bool(&self, key: &str) -> Result<Option<Vec<bool>>> {
        self.typed(key, "array of bool", |v| {
            if let Array::Bool(v) = v.as_array()? { Some(v.clone()) } else { None }
        })
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&StringArray>> {
        self.typed(
            key,
            "array of string",
            |v| if let Array::String(v) = v.as_array()? { Some(v) } else { None },
        )
    }

    /// An array of strings from a key that must be there.
    pub fn require_strings(&self, key: &str) -> Result<&StringArray> {
        self.required(key, self.strings(key)?)
    }

    /// A value per layer, stored as one scalar for all `layers` or as an array of exactly that length.
    pub fn u32_per_layer(&self, key: &str, layers: usize) -> Result<Option<Vec<u32>>> {
        if layers > MAX_LAYERS {
            return Err(self.fail(Cause::TooMany {
                what: "layers",
                count: layers as u64,
                limit: MAX_LAYERS as u64,
            }));
        }
        match self.get(key) {
            Some(Value::Array(_)) => {
                let values = self.integers(key, "u32 or array of u32", "u32")?;
                match values.as_ref().map_or(layers, Vec::len) {
                    found if found == layers => Ok(values),
                    found => {
                        Err(self.fail(Cause::WrongLength { key: key.to_owned(), expected: layers, found }))
                    }
                }
            }
            _ => Ok(self.u32_opt(key)?.map(|n| vec![n; layers])),
        }
    }

    /// The value of `key` as `convert` sees it; an error if it is there but `convert` refuses it.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wrong = || self.fail(Cause::WrongType { key: key.to_owned(), expected, found: value.kind() });
        convert(value).ok_or_else(wrong).map(Some)
    }

    fn integers<T: TryFrom<i128>>(
        &self,
        key: &str,
        expected: &'static str,
        element: &'static str,
    ) -> Result<Option<Vec<T>>> {
        let Some(values) = self.typed(key, expected, |v| v.as_array()?.integers())? else { return Ok(None) };
        let place = |i| move || FilePart::Element(key.to_owned(), i);
        values.zip(0..).map(|(n, i)| self.fit(n, element, place(i))).collect::<Result<_>>().map(Some)
    }

    fn fit<T: TryFrom<i128>>(
        &self,
        n: i128,
        expected: &'static str,
        place: impl Fn() -> FilePart,
    ) -> Result<T> {
        T::try_from(n).map_err(|_| self.fail(Cause::OutOfRange { place: place(), expected, value: n }))
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.fail(Cause::MissingKey { key: key.to_owned() }))
    }

    fn fail(&self, cause: Cause) -> GgufError {
        GgufError::new(&self.path, cause)
    }
}

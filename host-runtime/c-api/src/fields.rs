//! Settings in JSON, read strictly: a key that nobody knows, or a value of the wrong kind, is named.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::boundary::Outcome;
use crate::failure::Failure;

/// Keys of an object that were not taken yet.
pub(crate) struct Fields {
    /// Name of the argument.
    name: &'static str,
    left: Map<String, Json>,
    /// Keys that were asked for.
    known: Vec<&'static str>,
}

impl Fields {
    /// The keys of an argument; none where it is missing or empty.
    ///
    /// # Errors
    /// It is no JSON, or no object.
    pub(crate) fn parse(name: &'static str, text: Option<&str>) -> Outcome<Self> {
        let text = text.filter(|text| !text.trim().is_empty()).unwrap_or("{}");
        let left = match serde_json::from_str(text) {
            Ok(Json::Object(left)) => left,
            Ok(_) => return Err(Failure::input(format!("{name} must be a JSON object, such as {{}}"))),
            Err(error) => {
                return Err(Failure::input(format!(
                    "{name} is no JSON ({error}); give an object, such as {{}}"
                )));
            }
        };
        Ok(Self { name, left, known: Vec::new() })
    }

    /// The value of a key; `None` where it is missing or null.
    ///
    /// # Errors
    /// It has another kind.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Outcome<Option<T>> {
        self.known.push(key);
        match self.left.shift_remove(key) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => match serde_json::from_value(value) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(self.wrong(key, &error.to_string())),
            },
        }
    }

    /// The value of a key that has to be one of several words.
    ///
    /// # Errors
    /// It is another one.
    pub(crate) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Outcome<Option<T>> {
        let Some(word) = self.take::<String>(key)? else { return Ok(None) };
        match words.iter().find(|(known, _)| *known == word) {
            Some(&(_, value)) => Ok(Some(value)),
            None => {
                let known: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
                Err(self.wrong(key, &format!("{word:?} is none of {}", known.join(", "))))
            }
        }
    }

    /// Failure over the value of a key.
    pub(crate) fn wrong(&self, key: &str, why: &str) -> Failure {
        Failure::input(format!("{} has a wrong value of {key:?}: {why}", self.name))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// There are keys that nobody asked for.
    pub(crate) fn end(self) -> Outcome {
        let Some(key) = self.left.keys().next() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(Failure::input(format!("{} has an unknown key {key:?}; known are {known}", self.name)))
    }
}

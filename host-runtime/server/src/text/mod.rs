//! What stands in the texts of conversations: thoughts, calls of tools, answers of a form. It knows models
//! and their chat templates, and nothing of HTTP or of the interfaces that clients speak.

pub(crate) mod blocks;
pub(crate) mod calls;
pub(crate) mod family;
pub(crate) mod form;
pub(crate) mod generic;
pub(crate) mod harmony;
pub(crate) mod history;
pub(crate) mod kinds;
mod literal;
pub(crate) mod parser;
pub(crate) mod part;
mod python;
pub(crate) mod refusal;
mod tags;
pub(crate) mod thoughts;
pub(crate) mod tools;
pub(crate) mod turns;

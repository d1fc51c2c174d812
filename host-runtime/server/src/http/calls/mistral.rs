//! Calls of Mistral's models, each after the tag `[TOOL_CALLS]`.

use super::super::family::ARGS;
use super::{Call, json};

/// Between a name and an id, which some templates have between name and arguments.
const CALL_ID: &str = "[CALL_ID]";

/// The calls in what stands behind a tag: a list of objects, or a name and its arguments.
pub(super) fn calls(block: &str) -> Option<Vec<Call>> {
    if block.starts_with(['[', '{']) {
        return json::calls(block);
    }
    let (head, arguments) = match block.split_once(ARGS) {
        Some(parts) => parts,
        None => block.split_at(block.find('{')?),
    };
    let name = head.split(CALL_ID).next()?;
    json::named(name, arguments).map(|call| vec![call])
}

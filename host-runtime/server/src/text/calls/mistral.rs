//! Calls of Mistral's models, each after the tag `[TOOL_CALLS]`.

use super::json;
use crate::text::part::Call;
use crate::text::tags::{ARGS, CALL_ID};

/// The calls in what stands behind a tag: a list of objects, or a name and its arguments.
pub(super) fn calls(block: &str, may_lack_ends: bool) -> Option<Vec<Call>> {
    if block.starts_with(['[', '{']) {
        return json::calls(block, may_lack_ends);
    }
    let (head, arguments) = match block.split_once(ARGS) {
        Some(parts) => parts,
        None => block.split_at(block.find('{')?),
    };
    let name = head.split(CALL_ID).next()?;
    json::named(name, arguments, may_lack_ends).map(|call| vec![call])
}

//! Repetitions in which regular parts stand beside each other, such as `(text | tag)*` with a text of one or
//! more characters: two texts in a row could be cut anywhere, so that none could be a lexeme.
//!
//! Let R be the regular alternatives and Y the others. Then `(R | Y)*` is `R* (Y R*)*`, where only one run
//! of R stands between two of Y.

use super::lexemes::regular;
use super::{Grammar, Node, NodeId};

/// Most rules that only name another one, from a repetition to its alternatives.
const MAX_HOPS: usize = 16;

/// Writes such repetitions anew, with the same meaning.
pub(super) fn separate(grammar: &mut Grammar) {
    let regular = regular(grammar);
    for (part, &is_regular) in regular.iter().enumerate() {
        let &Node::Repeat { of, least: least @ (0 | 1), most: None } = &grammar.nodes[part] else { continue };
        let Some(alternatives) = alternatives(grammar, of).filter(|_| !is_regular) else { continue };
        // What was written anew is not regular.
        let is_run = |one: &NodeId| regular.get(*one).is_some_and(|&is_regular| is_regular);
        let (runs, others): (Vec<_>, Vec<_>) = alternatives.into_iter().partition(is_run);
        if runs.is_empty() || others.is_empty() {
            continue;
        }
        let mut add = |node| {
            grammar.nodes.push(node);
            grammar.nodes.len() - 1
        };
        let some = |of, least| Node::Repeat { of, least, most: None };
        let one = add(Node::Choice(runs));
        let run = add(some(one, 0));
        let other = add(Node::Choice(others));
        let turn = add(Node::Sequence(vec![other, run]));
        // A rule, which is written once however often it is named.
        let turn_rule = grammar.rules.len();
        let named = add(Node::Rule(turn_rule));
        let turns = add(some(named, 0));
        let anew = if least == 0 {
            Node::Sequence(vec![run, turns])
        } else {
            let first = add(some(one, 1));
            let begun = add(Node::Sequence(vec![first, turns]));
            let without = add(some(named, 1));
            Node::Choice(vec![begun, without])
        };
        grammar.nodes[part] = anew;
        grammar.rules.push(turn);
    }
}

/// The alternatives of which a part is one, if it is.
fn alternatives(grammar: &Grammar, mut part: NodeId) -> Option<Vec<NodeId>> {
    for _ in 0..MAX_HOPS {
        match &grammar.nodes[part] {
            Node::Choice(all) => return Some(all.clone()),
            Node::Rule(rule) => part = grammar.rules[*rule],
            Node::One(_) | Node::Token(_) | Node::Sequence(_) | Node::Repeat { .. } => return None,
        }
    }
    None
}

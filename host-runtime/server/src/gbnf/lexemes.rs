//! Which parts of a grammar are lexemes.
//!
//! A part can be a lexeme if it is regular. `llguidance` reads lexemes as far as any of those that may come
//! goes on. So a lexeme must not go on over a character that, in another reading of the same text, comes
//! after the end of it or of another lexeme. Where one would, it is taken apart; lexemes of one character
//! never do.

use super::automaton::{Alphabet, Automaton, Bits};
use super::{Grammar, Node, NodeId};

/// Largest and deepest part that is a lexeme, with the rules that it names put in.
const MAX_SIZE: usize = 4000;
const MAX_HEIGHT: usize = 80;
/// How often all parts are looked at until nothing changes any more.
const MAX_SWEEPS: usize = 200;
/// How often lexemes are compared. What is left to compare then is taken apart.
const MAX_ROUNDS: usize = 24;
/// Places of automata that are compared, all in all.
const MAX_STEPS: usize = 2_000_000;

/// What the parts of a grammar are.
pub(super) struct Lexemes {
    /// Whether a part is a lexeme wherever it is not within a larger one.
    is_lexeme: Vec<bool>,
    /// Of lexemes that are used: whether they may be empty.
    pub(super) nullable: Vec<bool>,
    /// Lexemes, and the parts that are none, that the root leads to.
    pub(super) used: Vec<NodeId>,
}

impl Lexemes {
    pub(super) fn is_lexeme(&self, part: NodeId) -> bool {
        self.is_lexeme[part]
    }
}

/// The parts of a part.
fn parts(grammar: &Grammar, part: NodeId) -> &[NodeId] {
    match &grammar.nodes[part] {
        Node::One(_) | Node::Token(_) => &[],
        Node::Rule(rule) => std::slice::from_ref(&grammar.rules[*rule]),
        Node::Sequence(parts) | Node::Choice(parts) => parts,
        Node::Repeat { of, .. } => std::slice::from_ref(of),
    }
}

/// Chooses lexemes; `None` if that takes too long.
pub(super) fn choose(grammar: &Grammar) -> Option<Lexemes> {
    let mut is_lexeme = regular(grammar);
    for (is_lexeme, node) in is_lexeme.iter_mut().zip(&grammar.nodes) {
        // What names a rule is none by itself, so that the rule is one lexeme wherever it is named.
        *is_lexeme &= !matches!(node, Node::Rule(_));
    }
    let alphabet = Alphabet::of(grammar);
    // A grammar that is regular is one lexeme, behind which nothing comes.
    if !is_lexeme[grammar.root] {
        let mut automata: Vec<Option<Automaton>> = grammar.nodes.iter().map(|_| None).collect();
        let mut steps = MAX_STEPS;
        for round in 0.. {
            // Parts that are too large for an automaton are taken apart first.
            let used = loop {
                let used = used(grammar, &is_lexeme);
                let mut changed = false;
                for &part in &used {
                    if is_lexeme[part] && automata[part].is_none() {
                        automata[part] = Automaton::of(grammar, part, &alphabet);
                        is_lexeme[part] = automata[part].is_some();
                        changed |= !is_lexeme[part];
                    }
                }
                if !changed {
                    break used;
                }
            };
            let follow = follow(grammar, &is_lexeme, &used, &automata, &alphabet)?;
            let lexemes: Vec<(NodeId, &Automaton)> = used
                .iter()
                .filter(|&&part| is_lexeme[part])
                .filter_map(|&part| Some((part, automata[part].as_ref()?)))
                .collect();
            let begins: Vec<Bits> =
                lexemes.iter().map(|(_, automaton)| automaton.begins(&alphabet)).collect();
            let mut apart = Vec::new();
            for (b, (part, long)) in lexemes.iter().enumerate() {
                let overruns = |(a, (short, one)): (usize, &(NodeId, &Automaton))| {
                    begins[a].meets(&begins[b])
                        && (round >= MAX_ROUNDS
                            || one.is_overrun_by(long, &follow[*short], &mut steps).unwrap_or(true))
                };
                if !long.is_one() && lexemes.iter().enumerate().any(overruns) {
                    apart.push(*part);
                }
            }
            if apart.is_empty() {
                break;
            }
            apart.into_iter().for_each(|part| is_lexeme[part] = false);
        }
    }
    let used = used(grammar, &is_lexeme);
    let nullable = nullable(grammar)?;
    Some(Lexemes { is_lexeme, nullable, used })
}

/// Which parts can be lexemes: those that are regular, and neither too large nor too deep.
pub(super) fn regular(grammar: &Grammar) -> Vec<bool> {
    // Size and height of the parts that are known to be regular.
    let mut known: Vec<Option<(usize, usize)>> = vec![None; grammar.nodes.len()];
    for _ in 0..MAX_SWEEPS {
        let mut changed = false;
        for part in 0..grammar.nodes.len() {
            if known[part].is_some() || matches!(grammar.nodes[part], Node::Token(_)) {
                continue;
            }
            let parts = parts(grammar, part);
            let sum = parts.iter().try_fold((1, 0), |(size, height), &part| {
                let (more, high) = known[part]?;
                Some((size + more, usize::max(height, high)))
            });
            known[part] = sum
                .map(|(size, height)| (size, height + 1))
                .filter(|&(size, height)| size <= MAX_SIZE && height <= MAX_HEIGHT);
            changed |= known[part].is_some();
        }
        if !changed {
            break;
        }
    }
    known.into_iter().map(|known| known.is_some()).collect()
}

/// The parts that the root leads to without going into a lexeme.
fn used(grammar: &Grammar, is_lexeme: &[bool]) -> Vec<NodeId> {
    let mut seen = vec![false; grammar.nodes.len()];
    let mut open = vec![grammar.root];
    seen[grammar.root] = true;
    let mut all = Vec::new();
    while let Some(part) = open.pop() {
        all.push(part);
        if is_lexeme[part] {
            continue;
        }
        for &part in parts(grammar, part) {
            if !std::mem::replace(&mut seen[part], true) {
                open.push(part);
            }
        }
    }
    all.sort_unstable();
    all
}

/// Sweeps over parts until nothing changes; whether that was soon enough. Every second sweep goes backwards,
/// so that chains of rules in any order need few of them.
fn sweep(used: &[NodeId], mut visit: impl FnMut(NodeId) -> bool) -> bool {
    for i in 0..MAX_SWEEPS {
        let mut changed = false;
        if i % 2 == 0 {
            used.iter().for_each(|&part| changed |= visit(part));
        } else {
            used.iter().rev().for_each(|&part| changed |= visit(part));
        }
        if !changed {
            return true;
        }
    }
    false
}

/// Which parts may be empty.
fn nullable(grammar: &Grammar) -> Option<Vec<bool>> {
    let mut nullable = vec![false; grammar.nodes.len()];
    let all: Vec<NodeId> = (0..grammar.nodes.len()).collect();
    let ended = sweep(&all, |part| {
        let mut parts = parts(grammar, part).iter().map(|&part| nullable[part]);
        let now = match &grammar.nodes[part] {
            Node::One(_) | Node::Token(_) => false,
            Node::Rule(_) | Node::Choice(_) => parts.any(|nullable| nullable),
            Node::Sequence(_) => parts.all(|nullable| nullable),
            Node::Repeat { least, .. } => *least == 0 || parts.any(|nullable| nullable),
        };
        now != std::mem::replace(&mut nullable[part], now)
    });
    ended.then_some(nullable)
}

/// The characters that may follow each of the parts that are used.
fn follow(
    grammar: &Grammar,
    is_lexeme: &[bool],
    used: &[NodeId],
    automata: &[Option<Automaton>],
    alphabet: &Alphabet,
) -> Option<Vec<Bits>> {
    let nullable = nullable(grammar)?;
    let mut first: Vec<Bits> = grammar.nodes.iter().map(|_| alphabet.none()).collect();
    for &part in used {
        if let (true, Some(automaton)) = (is_lexeme[part], &automata[part]) {
            first[part] = automaton.begins(alphabet);
        }
    }
    let begun = sweep(used, |part| {
        let mut changed = false;
        if !is_lexeme[part] {
            let is_sequence = matches!(grammar.nodes[part], Node::Sequence(_));
            for &inner in parts(grammar, part) {
                let begins = first[inner].clone();
                changed |= first[part].add(&begins);
                if is_sequence && !nullable[inner] {
                    break;
                }
            }
        }
        changed
    });
    let mut follow: Vec<Bits> = grammar.nodes.iter().map(|_| alphabet.none()).collect();
    let followed = sweep(used, |part| {
        let mut changed = false;
        if is_lexeme[part] {
            return false;
        }
        let mut after = follow[part].clone();
        if let Node::Repeat { of, most, .. } = &grammar.nodes[part]
            && *most != Some(1)
        {
            after.add(&first[*of]);
        }
        let is_sequence = matches!(grammar.nodes[part], Node::Sequence(_));
        for &inner in parts(grammar, part).iter().rev() {
            changed |= follow[inner].add(&after);
            if is_sequence {
                if !nullable[inner] {
                    after = alphabet.none();
                }
                after.add(&first[inner]);
            }
        }
        changed
    });
    (begun && followed).then_some(follow)
}

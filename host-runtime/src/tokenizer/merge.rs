//! Merging of neighbours, the best pair first: what BPE by rank and BPE by score have in common.
//!
//! A text begins as a row of symbols, its characters or bytes. The caller's rule says which two neighbours
//! merge, how early and into which token; it is asked once for each two that come to stand side by side.
//! Pairs wait in a queue, and one that has changed since it was found is passed over when its turn comes.
//! Hence n symbols take O(n log n) steps whatever the text is, where searching all pairs for the best one
//! each time would take O(n²).

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A run of text; the first of those that were merged stands for all.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    /// Where it begins in the text, in bytes.
    start: usize,
    /// Bytes; 0 once it belongs to another symbol.
    len: usize,
    /// The token, as far as the caller has said one or merging has made one.
    pub(super) id: Option<u32>,
    previous: Option<usize>,
    next: Option<usize>,
}

impl Symbol {
    /// The part of `text` that the symbol stands for.
    pub(super) fn of<'t>(&self, text: &'t str) -> &'t str {
        &text[self.start..self.start + self.len]
    }

    /// The part of `text` that the symbol and the one behind it stand for.
    pub(super) fn with<'t>(&self, next: &Self, text: &'t str) -> &'t str {
        &text[self.start..next.start + next.len]
    }
}

/// Two neighbours that merge.
struct Pair<P> {
    priority: P,
    /// The left one; the right one is its neighbour.
    left: usize,
    /// Bytes of both when they were found; another sum means that one of them has changed.
    len: usize,
    /// The token that they become.
    id: u32,
}

impl<P: Ord> Ord for Pair<P> {
    /// The greatest pair is merged first: that with the highest priority, of equal ones the leftmost.
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority.cmp(&other.priority).then(other.left.cmp(&self.left))
    }
}

impl<P: Ord> PartialOrd for Pair<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P: Ord> PartialEq for Pair<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<P: Ord> Eq for Pair<P> {}

/// A text while it is merged. Its memory serves one text after the other.
pub(super) struct Merger<P> {
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair<P>>,
}

impl<P: Ord> Merger<P> {
    /// No text yet.
    pub(super) fn new() -> Self {
        Self { symbols: Vec::new(), pairs: BinaryHeap::new() }
    }

    /// Begins another text.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
    }

    /// Appends `len` bytes of text, at least one, as a symbol.
    pub(super) fn push(&mut self, len: usize, id: Option<u32>) {
        let at = self.symbols.len();
        let previous = at.checked_sub(1);
        let start = previous.map_or(0, |previous| {
            let last = &mut self.symbols[previous];
            last.next = Some(at);
            last.start + last.len
        });
        self.symbols.push(Symbol { start, len, id, previous, next: None });
    }

    /// Merges until no two neighbours merge any more. `rule` has a priority and a token for those that do.
    pub(super) fn merge(&mut self, rule: impl Fn(&Symbol, &Symbol) -> Option<(P, u32)>) {
        let Self { symbols, pairs } = self;
        pairs.extend((0..symbols.len()).filter_map(|left| pair(symbols, left, &rule)));
        while let Some(Pair { left, len, id, .. }) = pairs.pop() {
            let first = symbols[left];
            let Some(right) = first.next else { continue };
            let second = symbols[right];
            // The left one belongs to another symbol, or one of them has grown.
            if first.len == 0 || first.len + second.len != len {
                continue;
            }
            symbols[left] = Symbol { len, id: Some(id), next: second.next, ..first };
            symbols[right].len = 0;
            if let Some(next) = second.next {
                symbols[next].previous = Some(left);
            }
            pairs.extend(first.previous.and_then(|previous| pair(symbols, previous, &rule)));
            pairs.extend(pair(symbols, left, &rule));
        }
    }

    /// The symbols that are left, in order.
    pub(super) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        // Merged symbols have no length, and the others follow each other.
        self.symbols.iter().filter(|symbol| symbol.len > 0)
    }
}

/// A symbol and the one behind it, if there is one and they merge.
fn pair<P>(
    symbols: &[Symbol],
    left: usize,
    rule: impl Fn(&Symbol, &Symbol) -> Option<(P, u32)>,
) -> Option<Pair<P>> {
    let first = &symbols[left];
    let second = &symbols[first.next?];
    let (priority, id) = rule(first, second)?;
    Some(Pair { priority, left, len: first.len + second.len, id })
}

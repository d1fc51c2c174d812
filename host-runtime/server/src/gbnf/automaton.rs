//! Automata of regular parts of a grammar, which tell whether the longest match of a part is the only one.

use super::{Chars, Grammar, Node, NodeId};

/// Most places of an automaton. Parts that need more are no lexemes.
const MAX_PLACES: usize = 256;

/// A set of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(n: usize) -> Self {
        Self(vec![0; n.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    pub(super) fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    /// Adds the numbers of another set; whether there was a new one.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            changed |= *theirs & !*mine != 0;
            *mine |= theirs;
        }
        changed
    }

    pub(super) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(mine, theirs)| mine & theirs != 0)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            // Each step takes the lowest bit away.
            let some = |word: u64| Some(word).filter(|&word| word != 0);
            let words = std::iter::successors(some(word), move |word| some(word & (word - 1)));
            words.map(move |word| 64 * i + word.trailing_zeros() as usize)
        })
    }
}

/// The characters of a grammar in classes: its parts have all characters of a class or none.
pub(super) struct Alphabet {
    /// Where classes begin, but for the first.
    borders: Vec<u32>,
}

impl Alphabet {
    pub(super) fn of(grammar: &Grammar) -> Self {
        let chars = grammar.nodes.iter().filter_map(|node| match node {
            Node::One(chars) => Some(chars),
            Node::Token(_) | Node::Rule(_) | Node::Sequence(_) | Node::Choice(_) | Node::Repeat { .. } => {
                None
            }
        });
        let mut borders: Vec<u32> =
            chars.flat_map(|chars| chars.0.iter().flat_map(|&(from, to)| [from, to + 1])).collect();
        borders.sort_unstable();
        borders.dedup();
        Self { borders }
    }

    pub(super) fn none(&self) -> Bits {
        Bits::new(self.borders.len() + 1)
    }

    pub(super) fn classes(&self, chars: &Chars) -> Bits {
        let mut classes = self.none();
        for &(from, to) in &chars.0 {
            let class = |code: u32| self.borders.partition_point(|&border| border <= code);
            (class(from)..=class(to)).for_each(|class| classes.insert(class));
        }
        classes
    }
}

/// An automaton whose places are the characters of a part (Glushkov's). Repetitions that are counted have no
/// end in it, so that it reads all that the part does, and more.
pub(super) struct Automaton {
    /// The characters that lead to each place.
    classes: Vec<Bits>,
    /// The places that may follow each place.
    next: Vec<Bits>,
    first: Bits,
    last: Bits,
}

/// First and last places of a part.
struct Ends {
    nullable: bool,
    first: Bits,
    last: Bits,
}

impl Automaton {
    /// The automaton of a part that is regular and not deep; `None` if it is too large.
    pub(super) fn of(grammar: &Grammar, part: NodeId, alphabet: &Alphabet) -> Option<Self> {
        let none = Bits::new(MAX_PLACES);
        let mut automaton = Self { classes: Vec::new(), next: Vec::new(), first: none.clone(), last: none };
        let Ends { first, last, .. } = automaton.build(grammar, part, alphabet)?;
        Some(Self { first, last, ..automaton })
    }

    fn build(&mut self, grammar: &Grammar, part: NodeId, alphabet: &Alphabet) -> Option<Ends> {
        let none = || Bits::new(MAX_PLACES);
        match &grammar.nodes[part] {
            Node::One(chars) => {
                let place = self.classes.len();
                if place == MAX_PLACES {
                    return None;
                }
                self.classes.push(alphabet.classes(chars));
                self.next.push(none());
                let mut one = none();
                one.insert(place);
                Some(Ends { nullable: false, first: one.clone(), last: one })
            }
            Node::Token(_) => None,
            Node::Rule(rule) => self.build(grammar, grammar.rules[*rule], alphabet),
            Node::Sequence(parts) => {
                let mut all = Ends { nullable: true, first: none(), last: none() };
                for &part in parts {
                    let ends = self.build(grammar, part, alphabet)?;
                    self.connect(&all.last, &ends.first);
                    if all.nullable {
                        all.first.add(&ends.first);
                    }
                    if ends.nullable {
                        all.last.add(&ends.last);
                    } else {
                        all.last = ends.last;
                    }
                    all.nullable &= ends.nullable;
                }
                Some(all)
            }
            Node::Choice(parts) => {
                let mut all = Ends { nullable: false, first: none(), last: none() };
                for &part in parts {
                    let ends = self.build(grammar, part, alphabet)?;
                    all.first.add(&ends.first);
                    all.last.add(&ends.last);
                    all.nullable |= ends.nullable;
                }
                Some(all)
            }
            &Node::Repeat { of, least, most } => {
                let ends = self.build(grammar, of, alphabet)?;
                if most != Some(1) {
                    self.connect(&ends.last, &ends.first);
                }
                Some(Ends { nullable: ends.nullable || least == 0, ..ends })
            }
        }
    }

    fn connect(&mut self, from: &Bits, to: &Bits) {
        from.iter().for_each(|place| {
            self.next[place].add(to);
        });
    }

    /// The characters that it can begin with.
    pub(super) fn begins(&self, alphabet: &Alphabet) -> Bits {
        let mut all = alphabet.none();
        self.first.iter().for_each(|place| {
            all.add(&self.classes[place]);
        });
        all
    }

    /// Whether it reads one character and no more.
    pub(super) fn is_one(&self) -> bool {
        self.next.iter().all(|next| next.iter().next().is_none())
    }

    /// Whether a text that is complete here, together with a character of `follow`, which may come after it,
    /// is the beginning of what `other` reads: then `other` would take that character. `steps` is how much
    /// may be looked at; `None` if that is not enough.
    pub(super) fn is_overrun_by(&self, other: &Self, follow: &Bits, steps: &mut usize) -> Option<bool> {
        let table = self.classes.len() * other.classes.len();
        *steps = steps.checked_sub(table.div_ceil(64))?;
        let mut seen = Bits::new(table);
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut reach = |mine: &Bits, theirs: &Bits, open: &mut Vec<(usize, usize)>| {
            for a in mine.iter() {
                for b in theirs.iter() {
                    let number = a * other.classes.len() + b;
                    *steps = steps.checked_sub(1)?;
                    if !seen.has(number) && self.classes[a].meets(&other.classes[b]) {
                        seen.insert(number);
                        open.push((a, b));
                    }
                }
            }
            Some(())
        };
        reach(&self.first, &other.first, &mut open)?;
        while let Some((a, b)) = open.pop() {
            if self.last.has(a) && other.next[b].iter().any(|next| other.classes[next].meets(follow)) {
                return Some(true);
            }
            reach(&self.next[a], &other.next[b], &mut open)?;
        }
        Some(false)
    }
}

//! An answer as a list of blocks, one after the other, as Anthropic's interface and OpenAI's newer one have
//! it: thoughts, text, calls.

use super::part::{Call, Part};
use crate::id::id;

/// A block of an answer.
#[derive(Debug)]
pub(crate) enum Block {
    Thought(String),
    Text(String),
    Call(Call),
}

/// A block with its name.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) id: String,
    pub(crate) block: Block,
}

/// What happens to a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It begins, still empty; a call has its name.
    Opened,
    /// So much is added.
    Grew(String),
    /// It is complete.
    Closed,
}

/// The blocks of an answer so far.
#[derive(Default)]
pub(crate) struct Blocks {
    all: Vec<Named>,
    /// Whether the last one is complete.
    closed: bool,
}

/// How the names of blocks begin.
pub(crate) struct Prefixes {
    pub(crate) thought: &'static str,
    pub(crate) text: &'static str,
    pub(crate) call: &'static str,
}

impl Blocks {
    pub(crate) fn all(&self) -> &[Named] {
        &self.all
    }

    /// The next part of the answer, with what it changes: the number of a block, the block as it is then, and
    /// what has happened to it.
    pub(crate) fn push(
        &mut self,
        part: Part,
        prefixes: &Prefixes,
        mut tell: impl FnMut(usize, &Named, Change),
    ) {
        let last = self.all.last().filter(|_| !self.closed).map(|named| &named.block);
        let is_same = matches!(
            (&part, last),
            (Part::Thought(_), Some(Block::Thought(_))) | (Part::Text(_), Some(Block::Text(_)))
        );
        if !is_same {
            self.close(&mut tell);
            let (prefix, block) = match &part {
                Part::Thought(_) => (prefixes.thought, Block::Thought(String::new())),
                Part::Text(_) => (prefixes.text, Block::Text(String::new())),
                Part::Call(call) => {
                    (prefixes.call, Block::Call(Call { name: call.name.clone(), arguments: String::new() }))
                }
            };
            self.all.push(Named { id: id(prefix), block });
            self.closed = false;
            self.tell(&mut tell, Change::Opened);
        }
        let (Part::Thought(more) | Part::Text(more) | Part::Call(Call { arguments: more, .. })) = part;
        if let Some(last) = self.all.last_mut() {
            let (Block::Thought(text) | Block::Text(text) | Block::Call(Call { arguments: text, .. })) =
                &mut last.block;
            text.push_str(&more);
        }
        self.tell(&mut tell, Change::Grew(more));
    }

    /// Nothing more comes for the last block.
    pub(crate) fn close(&mut self, mut tell: impl FnMut(usize, &Named, Change)) {
        if !self.closed && !self.all.is_empty() {
            self.closed = true;
            self.tell(&mut tell, Change::Closed);
        }
    }

    fn tell(&self, tell: &mut impl FnMut(usize, &Named, Change), change: Change) {
        if let Some((last, before)) = self.all.split_last() {
            tell(before.len(), last, change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIXES: Prefixes = Prefixes { thought: "rs_", text: "msg_", call: "fc_" };

    #[test]
    fn parts_of_a_kind_are_one_block_and_each_call_is_one() {
        let call = || Part::Call(Call { name: "f".to_owned(), arguments: "{}".to_owned() });
        let text = |text: &str| Part::Text(text.to_owned());
        let mut blocks = Blocks::default();
        let mut seen = String::new();
        let mut tell = |i: usize, _: &Named, change: Change| {
            seen += &match change {
                Change::Opened => format!("({i}"),
                Change::Grew(more) => format!("+{more}"),
                Change::Closed => ")".to_owned(),
            };
        };
        for part in [Part::Thought("a".to_owned()), text("b"), text("c"), call(), call()] {
            blocks.push(part, &PREFIXES, &mut tell);
        }
        blocks.close(&mut tell);
        blocks.close(&mut tell);
        assert_eq!(seen, "(0+a)(1+b+c)(2+{})(3+{})");
        let ids = blocks.all().iter().map(|named| named.id.split('_').next().unwrap());
        assert_eq!(ids.collect::<Vec<_>>(), ["rs", "msg", "fc", "fc"]);
    }
}

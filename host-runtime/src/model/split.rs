//! How the layers of a model are split over sessions of a device, where it does not fit one.

use super::scope::{EMBEDDING, enters, layer_of};
use crate::record::SessionSet;

/// The sessions that read the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingReaders {
    /// The first one, for the tokens.
    First,
    /// The last one, too: as LM head, or for the draft.
    FirstAndLast,
}

/// Consecutive layers for each session: the first also embeds, the last also has the LM head and the draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// First layer of each session.
    first: Vec<usize>,
}

impl Split {
    /// Everything in one session.
    pub fn one() -> Self {
        Self { first: vec![0] }
    }

    /// About the same bytes of `weights` (labels and bytes) for each of `sessions` sessions, of which each
    /// begins with one of the first `starts` of the `layers`; `None` if there are not so many. The first has
    /// `beside` bytes of weights that are not the model's.
    pub fn balanced<'a>(
        layers: usize,
        starts: usize,
        embedding: EmbeddingReaders,
        (weights, beside): (impl Iterator<Item = (&'a str, u64)>, u64),
        sessions: usize,
    ) -> Option<Self> {
        if !(1..=starts).contains(&sessions) {
            return None;
        }
        // Embedding, layers, head.
        let mut bytes = vec![0; layers + 2];
        bytes[0] = beside;
        for (label, size) in weights {
            match layer_of(label) {
                Some(layer) => bytes[1 + layer] += size,
                None if label == EMBEDDING => {
                    bytes[0] += size;
                    bytes[1 + layers] += match embedding {
                        EmbeddingReaders::First => 0,
                        EmbeddingReaders::FirstAndLast => size,
                    };
                }
                None if enters(label) => bytes[0] += size,
                None => bytes[1 + layers] += size,
            }
        }
        let total: u64 = bytes.iter().sum();
        let mut first = vec![0];
        let mut before = bytes[0];
        for layer in 0..starts {
            let (n, size) = (first.len(), bytes[1 + layer]);
            let share = (u128::from(total) * n as u128 / sessions as u128) as u64;
            // One more session begins where its share is nearer to this layer's start than to its end, or
            // where only as many of them are left as sessions.
            let due = before + size / 2 > share || starts - layer <= sessions - n;
            if n < sessions && layer > first[n - 1] && due {
                first.push(layer);
            }
            before += size;
        }
        Some(Self { first })
    }

    /// Sessions.
    pub fn sessions(&self) -> usize {
        self.first.len()
    }

    /// The last session.
    pub fn last(&self) -> usize {
        self.first.len() - 1
    }

    /// The session of a layer.
    pub fn session_of(&self, layer: usize) -> usize {
        self.first.partition_point(|&first| first <= layer) - 1
    }

    /// Whether another session begins with the layer.
    pub fn begins(&self, layer: usize) -> bool {
        layer > 0 && self.first.contains(&layer)
    }

    /// The sessions that read a weight of the file.
    pub fn readers(&self, label: &str, embedding: EmbeddingReaders) -> SessionSet {
        let last = SessionSet::one(self.last());
        match (layer_of(label), embedding) {
            (Some(layer), _) => SessionSet::one(self.session_of(layer)),
            (None, EmbeddingReaders::First) if label == EMBEDDING => SessionSet::one(0),
            (None, EmbeddingReaders::FirstAndLast) if label == EMBEDDING => SessionSet::one(0).with(last),
            (None, _) if enters(label) => SessionSet::one(0),
            (None, _) => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(layers: usize, sessions: usize, embedding: u64) -> Option<Split> {
        let labels: Vec<_> = (0..layers).map(|i| format!("blk.{i}.ffn_down.weight")).collect();
        let weights = labels.iter().map(|label| (label.as_str(), 100));
        Split::balanced(
            layers,
            layers,
            EmbeddingReaders::FirstAndLast,
            (weights.chain([(EMBEDDING, embedding)]), 0),
            sessions,
        )
    }

    #[test]
    fn shares_are_even() {
        assert_eq!(split(24, 1, 0), Some(Split::one()));
        assert_eq!(split(24, 2, 0).unwrap().first, [0, 12]);
        assert_eq!(split(24, 3, 0).unwrap().first, [0, 8, 16]);
        // A large embedding is in both the first and the last session.
        assert_eq!(split(24, 3, 400).unwrap().first, [0, 7, 17]);
    }

    #[test]
    fn each_session_has_a_layer() {
        for layers in 1..9 {
            for sessions in 1..=layers {
                for embedding in [0, 1000, 100_000] {
                    let split = split(layers, sessions, embedding).unwrap();
                    assert_eq!(split.sessions(), sessions);
                    assert!(split.first.windows(2).all(|pair| pair[0] < pair[1]), "{split:?}");
                    let owners: Vec<_> = (0..layers).map(|layer| split.session_of(layer)).collect();
                    assert_eq!((owners[0], owners[layers - 1]), (0, sessions - 1));
                }
            }
            assert_eq!(split(layers, layers + 1, 0), None);
        }
    }

    #[test]
    fn layers_that_stay_together_do() {
        let weights: Vec<_> = (0..9).map(|i| (format!("blk.{i}.ffn_down.weight"), 100)).collect();
        let split = |starts, sessions| {
            let weights = weights.iter().map(|(label, size)| (label.as_str(), *size));
            Split::balanced(9, starts, EmbeddingReaders::First, (weights, 0), sessions)
                .map(|split| split.first)
        };
        assert_eq!(split(9, 3), Some(vec![0, 3, 6]));
        assert_eq!(split(5, 3), Some(vec![0, 3, 4]));
        assert_eq!(split(3, 3), Some(vec![0, 1, 2]));
        assert_eq!(split(1, 1), Some(vec![0]));
        assert_eq!(split(2, 3), None);
    }

    #[test]
    fn weights_are_where_they_are_read() {
        let split = split(4, 2, 0).unwrap();
        let at = |label| split.readers(label, EmbeddingReaders::FirstAndLast).iter().collect::<Vec<_>>();
        assert_eq!(at("blk.1.attn_norm.weight"), [0]);
        assert_eq!(at("blk.2.attn_norm.weight"), [1]);
        assert_eq!(at(EMBEDDING), [0, 1]);
        assert_eq!(at("output_norm.weight"), [1]);
        assert_eq!(split.readers(EMBEDDING, EmbeddingReaders::First), SessionSet::one(0));
    }
}

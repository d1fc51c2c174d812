//! Parts of a long list: one run takes one of them, and runs of all parts take the whole list.

use std::str::FromStr;

/// The part of a list whose places leave `turn` when they are divided by `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    turn: u64,
    of: u64,
}

impl Part {
    /// The first of so many parts.
    pub const fn first(of: u64) -> Self {
        Self { turn: 0, of }
    }

    /// Whether what has this place in the list belongs to the part.
    pub fn has(self, place: u64) -> bool {
        place % self.of == self.turn
    }
}

impl FromStr for Part {
    type Err = &'static str;

    /// Reads `I/N`; I counts from 0, and any larger number, such as that of a day, stands for what it leaves.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (turn, of) = text.split_once('/').ok_or("wanted: I/N, such as 0/4")?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| "wanted: two whole numbers, such as 0/4");
        match (number(turn)?, number(of)?) {
            (_, 0) => Err("a list has one part at least"),
            (turn, of) => Ok(Self { turn: turn % of, of }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_the_list() {
        for place in 0..9 {
            let parts = ["0/4", "1/4", "2/4", "7/4"].map(|text| text.parse::<Part>().unwrap().has(place));
            assert_eq!(parts.iter().filter(|has| **has).count(), 1, "{place}");
        }
        assert!((0..9).all(|place| Part::first(1).has(place)));
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in ["", "1", "/", "1/0", "-1/4", "a/b", "1/4/2"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }
}

//! Questions about a processor that only a session can ask: in which order the matrix unit adds, whether
//! transfers of the DMA engines overtake one another, how many cycles packets take.
//!
//! A `Probe` message carries one of them, with a number and a range of memory. Nothing that a session keeps
//! is changed by it, and no memory that the host sees is written: the answer is in the response.

use crate::wire::Fingerprint;

wire_enum! {
    /// A question.
    pub enum Question: u32 {
        /// The results of [`RESULTS`] sums by the matrix unit, two halves in each word. The number is how
        /// many pairs of matrix tiles are multiplied, by one packet, from 1 to [`MOST_PAIRS`]. The data are
        /// as many tiles of A, as many of W, and a table, which has a tile's bytes. Result `i` is that in
        /// row `i` and column `i`.
        MatrixUnit = 1 "matrix unit",
        /// The number is how many pairs of transfers are pushed to one queue, from 1 to [`MOST_ROUNDS`]: all
        /// of the data but its last [`SHORT_BYTES`], and then those, to the end of the same place. Words: how
        /// many pairs were; in how many of them the short one was seen to be done first; in how many the
        /// place has the end of the long one, which was therefore written last; 1 if a DMA engine made them,
        /// 0 if threads did.
        OneQueue = 2 "one queue",
        /// A pair as of [`Self::OneQueue`], but the short transfer is pushed to another worker's queue, when
        /// the long one is under way, and to a place of its own: the third word is 0.
        TwoQueues = 3 "two queues",
        /// The number is a [`Loop`]. Words: packets; cycles, on an emulator packets as it counts them;
        /// nanoseconds.
        Packets = 4 "packets",
    }
}

wire_enum! {
    /// Packets of a loop.
    pub enum Loop: u32 {
        /// Four additions each.
        Scalar = 1 "scalar",
        /// Two vector operations each.
        Vectors = 2 "vectors",
        /// A vector operation and a load from VTCM each.
        Loads = 3 "vectors with loads",
    }
}

wire_enum! {
    /// The fate of a question.
    pub enum Outcome: u32 {
        /// There is an answer.
        Answered = 1 "answered",
        /// The session has no matrix unit.
        NoMatrixUnit = 2 "no matrix unit",
        /// No second thread came: the session has one, or the others were busy.
        OneThread = 3 "no second thread",
        /// The processor is no Hexagon, whose packets could be counted.
        NoPackets = 4 "no packets",
    }
}

/// Words of an answer.
pub const ANSWER_WORDS: usize = 5;
/// Results of [`Question::MatrixUnit`].
pub const RESULTS: usize = 2 * ANSWER_WORDS;
/// Most pairs of matrix tiles.
pub const MOST_PAIRS: u32 = 4;
/// Bytes of a matrix tile.
pub const TILE_BYTES: u32 = 2048;
/// Most pairs of transfers.
pub const MOST_ROUNDS: u32 = 64;
/// Bytes of the short transfer of a pair.
pub const SHORT_BYTES: u32 = 256;
/// Most bytes of both.
pub const MOST_BYTES: u32 = 1 << 20;

/// The bounds, in the hash.
pub(crate) const FINGERPRINT: Fingerprint = Fingerprint::new("probe")
    .value("words", ANSWER_WORDS as u64)
    .value("pairs", MOST_PAIRS as u64)
    .value("rounds", MOST_ROUNDS as u64)
    .value("short", SHORT_BYTES as u64)
    .value("bytes", MOST_BYTES as u64);

impl Question {
    /// Bytes of the data about so many pairs of matrix tiles.
    pub const fn matrix_bytes(pairs: u32) -> u32 {
        (2 * pairs + 1) * TILE_BYTES
    }

    /// Whether this number goes with it.
    pub const fn takes_number(self, number: u32) -> bool {
        match self {
            Self::MatrixUnit => number >= 1 && number <= MOST_PAIRS,
            Self::OneQueue | Self::TwoQueues => number >= 1 && number <= MOST_ROUNDS,
            Self::Packets => Loop::parse(number).is_some(),
        }
    }

    /// Whether data of so many bytes go with it and its number.
    pub const fn takes_bytes(self, number: u32, bytes: u32) -> bool {
        match self {
            Self::MatrixUnit => bytes == Self::matrix_bytes(number),
            Self::OneQueue | Self::TwoQueues => {
                bytes >= 2 * SHORT_BYTES && bytes <= MOST_BYTES && bytes.is_multiple_of(SHORT_BYTES)
            }
            Self::Packets => bytes == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_bytes_are_those_of_the_question() {
        let takes = |question: Question, number, bytes| {
            question.takes_number(number) && question.takes_bytes(number, bytes)
        };
        for pairs in 1..=MOST_PAIRS {
            let bytes = (2 * pairs + 1) * 2048;
            assert!(takes(Question::MatrixUnit, pairs, bytes));
            assert!(!takes(Question::MatrixUnit, pairs, bytes + 2048));
        }
        for (number, bytes) in [(0, 2048), (5, 11 * 2048), (u32::MAX, 0), (1 << 31, 2048)] {
            assert!(!takes(Question::MatrixUnit, number, bytes), "{number}");
        }
        for question in [Question::OneQueue, Question::TwoQueues] {
            assert!(takes(question, 1, 512) && takes(question, MOST_ROUNDS, MOST_BYTES));
            for (number, bytes) in
                [(0, 512), (65, 512), (1, 0), (1, 256), (1, 640), (1, MOST_BYTES + 256), (1, u32::MAX)]
            {
                assert!(!takes(question, number, bytes), "{number} {bytes}");
            }
        }
        assert!(Loop::ALL.iter().all(|kind| takes(Question::Packets, kind.wire(), 0)));
        assert!(!takes(Question::Packets, 0, 0) && !takes(Question::Packets, 4, 0));
        assert!(!takes(Question::Packets, 1, 1));
    }
}

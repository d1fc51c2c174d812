//! Questions to a session that no program asks: the order of transfers, and the cycles of packets.

use std::fmt;

use hexflash_abi::message::{Answer, Message, Probe, Range};
use hexflash_abi::probe::{Loop, Outcome, Question, SHORT_BYTES};

use crate::device::{Device, DeviceError};

/// Pairs of transfers in one question.
const ROUNDS: u32 = 32;
/// Bytes of the long transfer of a pair: microseconds, in which a short one could pass.
const LONG_BYTES: u32 = 64 << 10;

/// Asks with some bytes of memory, of which there may be none.
pub(super) fn about(
    device: &mut dyn Device,
    question: Question,
    number: u32,
    bytes: &[u8],
) -> Result<Answer, DeviceError> {
    let patience = device.patience();
    let ask = |device: &mut dyn Device, data| {
        let message = Message::Probe(Probe { question: question.wire(), number, data });
        device.call(&message, patience).map(|response| response.answer())
    };
    if bytes.is_empty() {
        return ask(device, Range::default());
    }
    let buffer = device.allocate(bytes.len() as u64)?;
    buffer.memory.write(0, bytes);
    let data = Range { buffer: buffer.id, len: bytes.len() as u32, offset: 0 };
    let answer = ask(device, data)?;
    device.free(buffer)?;
    Ok(answer)
}

/// The fate of pairs of transfers, the second of which is much shorter and was pushed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferOrder {
    /// Pairs.
    pub pairs: u32,
    /// Those whose short transfer was seen to be done first.
    pub seen: u32,
    /// Those whose long transfer was the last to write a place of both.
    pub written_last: u32,
    /// Whether a DMA engine made them, and not a thread.
    pub by_engine: bool,
}

impl fmt::Display for TransferOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pairs, seen, written_last, by_engine } = *self;
        match (seen, written_last) {
            (0, 0) => write!(f, "in order, {pairs} of {pairs} pairs")?,
            (_, 0) => write!(f, "overtaken, {seen} of {pairs} pairs")?,
            _ => write!(
                f,
                "overtaken, {} of {pairs} pairs ({seen} by their marks, {written_last} in memory)",
                seen.max(written_last)
            )?,
        }
        write!(f, " of {} KiB and {SHORT_BYTES} bytes", LONG_BYTES >> 10)?;
        f.write_str(if by_engine { "" } else { ", by threads" })
    }
}

/// A reason why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The session has one thread, or others were busy.
    OneThread,
    /// The processor has no packets.
    NoPackets,
    /// The counter of cycles stands still.
    NoCycles,
    /// An answer that means nothing.
    Unclear,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneThread => "no second thread took part",
            Self::NoPackets => "this processor has no packets",
            Self::NoCycles => "its counter of cycles stands still",
            Self::Unclear => "its answer means nothing",
        })
    }
}

/// The words of an answer.
fn words(answer: &Answer) -> Result<[u32; 5], Absence> {
    match Outcome::parse(answer.outcome) {
        Some(Outcome::Answered) => Ok(answer.words),
        Some(Outcome::OneThread) => Err(Absence::OneThread),
        Some(Outcome::NoPackets) => Err(Absence::NoPackets),
        Some(Outcome::NoMatrixUnit) | None => Err(Absence::Unclear),
    }
}

fn transfer_order(answer: &Answer) -> Result<TransferOrder, Absence> {
    let [pairs, seen, written_last, engine, _] = words(answer)?;
    let sound = pairs > 0 && seen <= pairs && written_last <= pairs && engine <= 1;
    let order = TransferOrder { pairs, seen, written_last, by_engine: engine == 1 };
    sound.then_some(order).ok_or(Absence::Unclear)
}

/// Asks for the order of transfers in one queue, or in two ([`Question::OneQueue`], [`Question::TwoQueues`]).
///
/// # Errors
/// The device failed.
pub fn transfers(
    device: &mut dyn Device,
    question: Question,
) -> Result<Result<TransferOrder, Absence>, DeviceError> {
    // The two parts differ in every byte.
    let mut data = vec![0x5a; LONG_BYTES as usize];
    data.resize((LONG_BYTES + SHORT_BYTES) as usize, 0xa5);
    Ok(transfer_order(&about(device, question, ROUNDS, &data)?))
}

/// The cost of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopCost {
    /// Packets of the loop.
    pub packets: u32,
    /// Cycles; packets as an emulator counts them.
    pub cycles: u32,
    /// Nanoseconds.
    pub ns: u32,
}

impl LoopCost {
    /// Cycles of a packet.
    pub fn per_packet(&self) -> f64 {
        f64::from(self.cycles) / f64::from(self.packets)
    }

    /// Cycles of a microsecond: the clock in MHz.
    pub fn clock_mhz(&self) -> Option<f64> {
        (self.ns > 0).then(|| 1000.0 * f64::from(self.cycles) / f64::from(self.ns))
    }
}

fn loop_cost(answer: &Answer) -> Result<LoopCost, Absence> {
    let [packets, cycles, ns, ..] = words(answer)?;
    match (packets, cycles) {
        (0, _) => Err(Absence::Unclear),
        (_, 0) => Err(Absence::NoCycles),
        _ => Ok(LoopCost { packets, cycles, ns }),
    }
}

/// Asks for the cycles of a loop.
///
/// # Errors
/// The device failed.
pub fn packets(device: &mut dyn Device, kind: Loop) -> Result<Result<LoopCost, Absence>, DeviceError> {
    Ok(loop_cost(&about(device, Question::Packets, kind.wire(), &[])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceOptions, open};

    const ANSWERED: u32 = Outcome::Answered.wire();

    #[test]
    fn orders_are_told() {
        let said = |words: [u32; 5]| {
            transfer_order(&Answer { outcome: ANSWERED, words }).map(|order| order.to_string())
        };
        let of = "of 64 KiB and 256 bytes";
        assert_eq!(said([32, 0, 0, 1, 0]), Ok(format!("in order, 32 of 32 pairs {of}")));
        assert_eq!(said([32, 0, 0, 0, 0]), Ok(format!("in order, 32 of 32 pairs {of}, by threads")));
        assert_eq!(said([32, 5, 0, 1, 0]), Ok(format!("overtaken, 5 of 32 pairs {of}")));
        let both = format!("overtaken, 9 of 32 pairs (2 by their marks, 9 in memory) {of}");
        assert_eq!(said([32, 2, 9, 1, 0]), Ok(both));
        for words in [[0; 5], [32, 33, 0, 1, 0], [32, 0, 33, 1, 0], [32, 0, 0, 2, 0]] {
            assert_eq!(said(words), Err(Absence::Unclear), "{words:?}");
        }
        for (outcome, absence) in [(0, Absence::Unclear), (3, Absence::OneThread), (4, Absence::NoPackets)] {
            assert_eq!(transfer_order(&Answer { outcome, words: [0; 5] }), Err(absence));
        }
    }

    #[test]
    fn cycles_are_told() {
        let cost = |words: [u32; 5]| loop_cost(&Answer { outcome: ANSWERED, words });
        let two = cost([1000, 2040, 1457, 0, 0]).unwrap();
        assert!((two.per_packet() - 2.04).abs() < 1e-9);
        assert!((two.clock_mhz().unwrap() - 1400.1).abs() < 0.1);
        assert_eq!(cost([1000, 1000, 0, 0, 0]).unwrap().clock_mhz(), None);
        assert_eq!(cost([1000, 0, 5, 0, 0]), Err(Absence::NoCycles));
        assert_eq!(cost([0, 7, 5, 0, 0]), Err(Absence::Unclear));
    }

    #[test]
    fn inproc_answers_what_it_can() {
        for threads in [1, 2] {
            let options = DeviceOptions { threads: Some(threads), ..DeviceOptions::default() };
            let mut device = open("inproc", &options).unwrap();
            let order = transfers(&mut *device, Question::OneQueue).unwrap().unwrap();
            assert_eq!((order.pairs, order.seen, order.written_last, order.by_engine), (ROUNDS, 0, 0, false));
            match transfers(&mut *device, Question::TwoQueues).unwrap() {
                // A busy machine may keep the second thread away.
                Err(absence) => assert_eq!(absence, Absence::OneThread),
                Ok(order) => assert!(threads > 1 && order.seen == 0, "{order}"),
            }
            for &kind in Loop::ALL {
                assert_eq!(packets(&mut *device, kind).unwrap(), Err(Absence::NoPackets));
            }
        }
    }
}

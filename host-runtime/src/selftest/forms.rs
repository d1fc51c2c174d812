//! Float instructions, one by one.

use hexflash_abi::forms::Given;

use super::table::{FormVectors, Lane};
use crate::device::{Device, DeviceError};

/// Answer of a device that was asked for a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormAnswer {
    /// What the table has.
    Expected,
    /// Something else, in these lanes.
    Other(Vec<OtherLane>),
    /// The code on the device has no such instruction.
    Absent,
    /// The process on the device has ended, or did not answer.
    Ended(String),
}

/// A lane whose words are others than those of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLane {
    /// Its place in the table.
    pub number: usize,
    /// The lane.
    pub lane: Lane,
    /// What came out.
    pub given: Vec<u32>,
}

impl OtherLane {
    /// The words that it takes, gives and should give, as part of a sentence about a processor.
    pub fn difference(&self) -> String {
        let words =
            |words: &[u32]| words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ");
        let Lane { takes, gives } = &self.lane;
        format!("of {} it makes {}, and not {}", words(takes), words(&self.given), words(gives))
    }
}

impl std::fmt::Display for OtherLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lane {}: {}", self.number, self.difference())
    }
}

/// The lanes in which a device has given something else.
pub fn others(vectors: &FormVectors, given: &Given) -> Vec<OtherLane> {
    let lanes = vectors.lanes.iter().enumerate().map(|(number, lane)| {
        let given = given.iter().take(lane.gives.len()).map(|words| words[number]).collect::<Vec<_>>();
        OtherLane { number, lane: lane.clone(), given }
    });
    lanes.filter(|other| other.given != other.lane.gives).collect()
}

/// Asks a device for a form; a session that ends over it is started again.
///
/// # Errors
/// It cannot be started again.
pub fn ask(device: &mut dyn Device, vectors: &FormVectors) -> Result<FormAnswer, DeviceError> {
    match device.form(&vectors.operands()) {
        Ok(None) => Ok(FormAnswer::Absent),
        Ok(Some(given)) => Ok(match others(vectors, &given) {
            others if others.is_empty() => FormAnswer::Expected,
            others => FormAnswer::Other(others),
        }),
        Err(error) => {
            device.reset()?;
            Ok(FormAnswer::Ended(error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;
    use hexflash_abi::forms::WORDS;

    /// What a device would give that computes as this table says.
    fn given(vectors: &FormVectors) -> Given {
        let mut given = [[0; WORDS]; 2];
        for (i, lane) in vectors.lanes.iter().enumerate() {
            lane.gives.iter().enumerate().for_each(|(k, word)| given[k][i] = *word);
        }
        given
    }

    #[test]
    fn a_wrong_word_in_any_lane_is_named() {
        for vectors in Table::built_in().unwrap().forms {
            let right = given(&vectors);
            assert_eq!(others(&vectors, &right), []);
            for (i, lane) in vectors.lanes.iter().enumerate() {
                for k in 0..lane.gives.len() {
                    let mut planted = vectors.clone();
                    planted.lanes[i].gives[k] ^= 1;
                    let found = others(&planted, &right);
                    assert_eq!(found.len(), 1, "{}", vectors.form);
                    let text = found[0].to_string();
                    assert!(text.starts_with(&format!("lane {i}: ")), "{text}");
                    assert!(text.contains(&format!("{:08x}", lane.gives[k])), "{text}");
                }
            }
        }
    }
}

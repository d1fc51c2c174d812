//! What the stand-in plays: which chip, which limits, and what fails when. A line of words, `key=value` each.
//!
//! | word | meaning |
//! |---|---|
//! | `arch=75` | version of the DSP, in hexadecimal as the chips are named |
//! | `skels=73,75` | libraries that the DSP finds |
//! | `sessions=2`, `vmem=BYTES`, `mapping=BYTES` | limits: sessions, mapped bytes of one, bytes of one mapping |
//! | `hvx=4`, `vtcm=BYTES` | the DSP's resources |
//! | `unsigned=0` | refuses unsigned libraries |
//! | `callbacks=1` | the DSP imports no queue without callbacks |
//! | `idle=CODE` | what its reads give where there is nothing |
//! | `silent=1` | it never sees a packet |
//! | `highest=N` | highest priority that its threads may have, which is the lowest number |
//! | `without=NAME,NAME` | functions that its image lacks, of those that a library can do without |
//! | `hang-open=MS` | opening a library takes so long |
//! | `NAME=CODE@N`, `NAME=CODE@N+` | the Nth call of the function fails with the code; and all after it |
//! | `dsp.dma=CODE@N` | what becomes of the DSP's Nth DMA transfer: 2 an error, 1 it never ends, 0 the engine stops before it (not with `dsp=qemu`, whose engines are the emulator's) |
//! | `crash=N`, `crash-answer=N`, `hang=N` | the process on the DSP ends when it reads message N, or has answered it in its own memory; or stops |
//! | `crash-every=N` | each process ends when it reads its Nth message |
//! | `late=N,MS` | message N is answered MS milliseconds late |
//! | `wanted=N` | somebody else asks for VTCM while message N is handled |
//! | `check=0` | both sides see the same memory, which is faster and finds no breaches of coherence |
//! | `forget=flush`, `invalidate`, `power` or `start` | the DSP plays a skel that leaves that out |
//! | `dsp=qemu`, `library=FOLDER` | the skel of that folder under the emulator, instead of one compiled for this machine |
//! | `forget=lock`, `forget=wait` | there: vectors without a vector context; DMA that nobody waits for |
//! | `refuse=GROUP` | there: the processor has none of a group of float instructions (`hexflash_abi::forms`); one of them ends the process |
//! | `sums=differences` | there: IEEE sums of floats are differences |
//! | `engines=shuffle` | there: when the emulator's DMA engines move data, as its HEXAGON_DMA says; `late` otherwise |
//! | `report=FILE`, `pd=FILE` | where breaches go; the program of the DSP's process |

use std::collections::HashMap;
use std::path::PathBuf;

/// A call that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The code that it gives.
    pub code: i32,
    /// The first call that fails, from 1.
    pub from: u32,
    /// Whether all calls after it fail, too.
    pub onward: bool,
}

/// The settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    words: HashMap<String, String>,
    failures: HashMap<String, Planned>,
}

impl Config {
    /// Reads a line of words.
    ///
    /// # Errors
    /// The word that means nothing.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut config = Self::default();
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| word.to_owned())?;
            if let Some((code, at)) = value.split_once('@') {
                let planned = (|| {
                    let code = match code.strip_prefix("0x") {
                        Some(hex) => u32::from_str_radix(hex, 16).ok()? as i32,
                        None => code.parse().ok()?,
                    };
                    let from = at.trim_end_matches('+').parse().ok()?;
                    Some(Planned { code, from, onward: at.ends_with('+') })
                })();
                config.failures.insert(key.to_owned(), planned.ok_or_else(|| word.to_owned())?);
            } else {
                config.words.insert(key.to_owned(), value.to_owned());
            }
        }
        Ok(config)
    }

    /// The line that [`parse`](Self::parse) reads.
    pub fn line(&self) -> String {
        let words = self.words.iter().map(|(key, value)| format!("{key}={value}"));
        let failures = self.failures.iter().map(|(name, p)| {
            format!("{name}={:#x}@{}{}", p.code as u32, p.from, if p.onward { "+" } else { "" })
        });
        words.chain(failures).collect::<Vec<_>>().join(" ")
    }

    /// Sets a word.
    pub fn set(&mut self, key: &str, value: impl ToString) {
        self.words.insert(key.to_owned(), value.to_string());
    }

    /// Removes a word.
    pub fn remove(&mut self, key: &str) {
        self.words.remove(key);
    }

    /// A number, decimal.
    ///
    /// # Panics
    /// If it is none: a test is wrong.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.words.get(key).map(|value| value.parse().unwrap_or_else(|_| panic!("{key}={value}: no number")))
    }

    /// A code, hexadecimal with `0x` in front.
    ///
    /// # Panics
    /// If it is none: a test is wrong.
    pub fn code(&self, key: &str) -> Option<i32> {
        let value = self.words.get(key)?.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        Some(value.unwrap_or_else(|| panic!("{key}: no code")) as i32)
    }

    /// Whether a name is in a list.
    pub fn lists(&self, key: &str, name: &str) -> bool {
        self.text(key).is_some_and(|list| list.split(',').any(|one| one == name))
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.words.get(key).map(String::as_str)
    }

    /// A file.
    pub fn file(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    /// Version of the DSP: 0x75 if nothing is said.
    ///
    /// # Panics
    /// If it is no number.
    pub fn arch(&self) -> u32 {
        self.text("arch").map_or(0x75, |arch| u32::from_str_radix(arch, 16).expect("arch=NN"))
    }

    /// What the `count`th call (from 1) of a function gives, if it fails.
    pub fn failure(&self, name: &str, count: u32) -> Option<i32> {
        let planned = self.failures.get(name)?;
        (count == planned.from || planned.onward && count > planned.from).then_some(planned.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_fails_when() {
        let config = Config::parse("arch=79 dspqueue_write=0xc@3 rpcmem_alloc=2@2+").unwrap();
        assert_eq!(config.arch(), 0x79);
        let write: Vec<_> = (1..5).map(|n| config.failure("dspqueue_write", n)).collect();
        assert_eq!(write, [None, None, Some(0xc), None]);
        let alloc: Vec<_> = (1..5).map(|n| config.failure("rpcmem_alloc", n)).collect();
        assert_eq!(alloc, [None, Some(2), Some(2), Some(2)]);
        assert_eq!(Config::parse(&config.line()), Ok(config));
        assert_eq!(Config::parse("arch=75 nonsense"), Err("nonsense".to_owned()));
        assert_eq!(Config::parse("x=y@1"), Err("x=y@1".to_owned()));
    }
}

//! Which processors the host's threads run on: phones have big cores and little ones, and the system does not
//! know that a thread that waits for the DSP is in a hurry.

use std::str::FromStr;

use super::CliError;

/// Processors as a mask has them: the lowest bit is the first one. More than a machine's kernel knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cores(u128);

impl FromStr for Cores {
    type Err = String;

    /// A mask, hexadecimal, with or without `0x`.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        match u128::from_str_radix(digits, 16) {
            Ok(mask) if mask != 0 && !digits.starts_with('+') => Ok(Self(mask)),
            _ => Err("give a mask in hexadecimal with a bit for each processor, as f0 for 4 to 7".to_owned()),
        }
    }
}

impl Cores {
    /// Parses `--cpu-range`: the first processor and the last, as `4-7`.
    pub(super) fn range(text: &str) -> Result<Self, String> {
        let bounds = text.split_once('-');
        let bounds = bounds.and_then(|(lo, hi)| Some((lo.parse::<u32>().ok()?, hi.parse::<u32>().ok()?)));
        match bounds {
            Some((lo, hi)) if lo <= hi && hi < u128::BITS => {
                Ok(Self((lo..=hi).fold(0, |mask, i| mask | 1 << i)))
            }
            _ => Err("give the first processor and the last, as 4-7".to_owned()),
        }
    }

    /// Binds this thread, and those that it starts from here on, to these processors.
    ///
    /// # Errors
    /// None of them is a processor that this process may use.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn take(self) -> Result<(), CliError> {
        use rustix::thread::{CpuSet, sched_setaffinity};
        let mut set = CpuSet::new();
        (0..u128::BITS as usize).filter(|i| self.0 >> i & 1 == 1).for_each(|i| set.set(i));
        sched_setaffinity(None, &set)
            .map_err(|error| CliError::Cores { mask: self.0, why: error.to_string() })
    }

    /// Refuses: the system has no call for it.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn take(self) -> Result<(), CliError> {
        Err(CliError::Cores { mask: self.0, why: "this system has no call for it".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_ranges() {
        assert_eq!("f0".parse(), Ok(Cores(0xf0)));
        assert_eq!("0xF0".parse(), Ok(Cores(0xf0)));
        assert_eq!(Cores::range("4-7"), Ok(Cores(0xf0)));
        assert_eq!(Cores::range("127-127"), Ok(Cores(1 << 127)));
        for bad in ["", "0", "0x", "g", "-1", "+f"] {
            assert!(bad.parse::<Cores>().is_err(), "{bad}");
        }
        for bad in ["", "4", "7-4", "0-128", "a-b", "-1-2", "4-"] {
            assert!(Cores::range(bad).is_err(), "{bad}");
        }
    }
}

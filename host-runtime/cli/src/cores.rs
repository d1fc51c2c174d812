//! Which processors the host's threads run on: phones have big cores and little ones, and the system does not
//! know that a thread that waits for the DSP is in a hurry.

use std::fs;
use std::path::Path;
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

/// Folder in which Linux describes the processors.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Neighbouring processors with the same highest clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cluster {
    first: u32,
    last: u32,
    khz: u64,
}

/// The clusters of processors as text, with the option that takes the fastest; `None` where all are alike, or
/// the system does not tell.
pub(super) fn clusters() -> Option<String> {
    described(&clusters_in(Path::new(PROCESSORS)))
}

/// The clusters in the order of their numbers.
fn clusters_in(folder: &Path) -> Vec<Cluster> {
    let khz = |i: u32| -> Option<u64> {
        let file = folder.join(format!("cpu{i}/cpufreq/cpuinfo_max_freq"));
        fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    let mut clusters: Vec<Cluster> = Vec::new();
    for (i, khz) in (0..u128::BITS).map_while(|i| Some((i, khz(i)?))) {
        match clusters.last_mut().filter(|cluster| cluster.khz == khz) {
            Some(cluster) => cluster.last = i,
            None => clusters.push(Cluster { first: i, last: i, khz }),
        }
    }
    clusters
}

fn described(clusters: &[Cluster]) -> Option<String> {
    let fastest = clusters.iter().max_by_key(|cluster| cluster.khz).filter(|_| clusters.len() > 1)?;
    let all = clusters.iter().map(|Cluster { first, last, khz }| {
        format!("{first} to {last} with up to {:.2} GHz", *khz as f64 / 1e6)
    });
    let Cluster { first, last, .. } = fastest;
    Some(format!(
        "processors {}; --cpu-range {first}-{last} takes the fastest",
        all.collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_neighbours_with_one_clock() {
        let folder = tempfile::tempdir().unwrap();
        let set = |khz: &[&str]| {
            for (i, khz) in khz.iter().enumerate() {
                let own = folder.path().join(format!("cpu{i}/cpufreq"));
                fs::create_dir_all(&own).unwrap();
                fs::write(own.join("cpuinfo_max_freq"), format!("{khz}\n")).unwrap();
            }
            described(&clusters_in(folder.path()))
        };
        assert_eq!(set(&[]), None);
        assert_eq!(set(&["2000000"; 4]), None);
        let text =
            set(&["2016000", "2016000", "2803200", "2803200", "2803200", "2803200", "2803200", "3187200"]);
        let wanted = "processors 0 to 1 with up to 2.02 GHz, 2 to 6 with up to 2.80 GHz, 7 to 7 with up to \
                      3.19 GHz; --cpu-range 7-7 takes the fastest";
        assert_eq!(text.as_deref(), Some(wanted));
        // One that does not tell ends the list.
        assert_eq!(set(&["1", "none"]), None);
    }

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

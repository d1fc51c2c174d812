//! What users set, by environment variables.

use std::str::FromStr;

use hexflash::device::htp::HtpOptions;
use hexflash::device::{Arch, DEVICES, DeviceOptions, MAX_SESSIONS};
use hexflash_abi::program::Numerics;

/// The device, and its settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the device.
    pub device: String,
    /// Its settings.
    pub settings: DeviceOptions,
    /// Sessions, each a device of its own.
    pub sessions: usize,
    /// What the device's matrix unit (HMX) multiplies.
    pub numerics: Numerics,
    /// Whether to tell, when a program is done with a device, where the time went.
    pub times: bool,
}

impl Options {
    /// Reads the settings that `variable` has.
    ///
    /// # Errors
    /// In one line: the variable, what is wrong with it, and what it may be.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let device = variable("HEXFLASH_DEVICE").unwrap_or_else(|| "inproc".to_owned());
        if !DEVICES.iter().any(|(name, _)| *name == device) {
            let names: Vec<_> = DEVICES.iter().map(|(name, _)| *name).collect();
            return Err(format!("HEXFLASH_DEVICE is {device:?}: it may be {}", names.join(", ")));
        }
        let threads = number(&variable, "HEXFLASH_THREADS", "a number of kernel threads")?;
        let vtcm_bytes = number(&variable, "HEXFLASH_VTCM", "a number of bytes")?;
        let session_bytes = number(&variable, "HEXFLASH_SESSION_BYTES", "a number of bytes")?;
        let arch: Option<Arch> = number(&variable, "HEXFLASH_ARCH", "such as v73")?;
        let htp = variable("HEXFLASH_HTP_LIBRARY").map(|library| {
            Box::new(HtpOptions { vendor_library: Some(library.into()), ..HtpOptions::default() })
        });
        let numerics = variable("HEXFLASH_NUMERICS").map_or(Ok(Numerics::Exact), |name| {
            let known = Numerics::ALL.iter().copied().find(|numerics| numerics.name() == name);
            known.ok_or_else(|| {
                let names: Vec<_> = Numerics::ALL.iter().map(|numerics| numerics.name()).collect();
                format!("HEXFLASH_NUMERICS is {name:?}: it must be {}", names.join(", "))
            })
        })?;
        let settings = DeviceOptions {
            threads,
            vtcm_bytes,
            session_bytes,
            arch,
            matrix_unit: numerics.wants_matrix_unit(),
            htp,
            ..DeviceOptions::default()
        };
        let times =
            number(&variable, "HEXFLASH_TIMES", "0 or 1")?.map_or(Ok(false), |times: u32| match times {
                0 | 1 => Ok(times == 1),
                _ => Err(format!("HEXFLASH_TIMES is {times}: it must be 0 or 1")),
            })?;
        let several = format!("a number from 1 to {MAX_SESSIONS}");
        let sessions = number(&variable, "HEXFLASH_SESSIONS", &several)?.unwrap_or(1);
        if !(1..=MAX_SESSIONS).contains(&sessions) {
            return Err(format!("HEXFLASH_SESSIONS is {sessions}: it must be {several}"));
        }
        Ok(Self { device, settings, sessions, numerics, times })
    }
}

/// The value of a variable, if it is set.
fn number<T: FromStr>(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
    what: &str,
) -> Result<Option<T>, String> {
    let Some(text) = variable(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{name} is {text:?}: it must be {what}"))
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn read(set: &'static [(&'static str, &'static str)]) -> Result<Options, String> {
        Options::read(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_variables_kernels_run_in_this_process() {
        let options = read(&[]).unwrap();
        assert_eq!((options.device.as_str(), options.settings.threads), ("inproc", None));
    }

    #[test]
    fn variables_set_the_device() {
        let options =
            read(&[("HEXFLASH_DEVICE", "qemu"), ("HEXFLASH_THREADS", "3"), ("HEXFLASH_ARCH", "v73")]);
        let options = options.unwrap();
        assert_eq!((options.device.as_str(), options.settings.threads), ("qemu", Some(3)));
        assert!(options.settings.arch.is_some());
    }

    #[test]
    fn the_matrix_unit_is_asked_for_by_the_class_of_programs() {
        let unit = |options: Options| (options.numerics.name(), options.settings.matrix_unit);
        assert_eq!(unit(read(&[]).unwrap()), ("exact", false));
        assert_eq!(unit(read(&[("HEXFLASH_NUMERICS", "fast")]).unwrap()), ("fast", true));
        assert_eq!(unit(read(&[("HEXFLASH_NUMERICS", "hmx")]).unwrap()), ("hmx", true));
    }

    #[test]
    fn wrong_values_are_named() {
        for (set, named) in [
            (&[("HEXFLASH_DEVICE", "gpu")], "inproc"),
            (&[("HEXFLASH_THREADS", "many")], "HEXFLASH_THREADS"),
            (&[("HEXFLASH_VTCM", "8M")], "a number of bytes"),
            (&[("HEXFLASH_ARCH", "9")], "v73"),
            (&[("HEXFLASH_TIMES", "2")], "0 or 1"),
            (&[("HEXFLASH_NUMERICS", "quick")], "exact, fast, hmx"),
            (&[("HEXFLASH_SESSIONS", "0")], "from 1 to"),
        ] {
            let message = read(set).unwrap_err();
            assert!(message.contains(named) && !message.contains('\n'), "{message}");
        }
    }
}

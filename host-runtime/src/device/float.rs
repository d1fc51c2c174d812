//! The float arithmetic that a device computes with, where there is a choice.

use std::fmt;
use std::str::FromStr;

use hexflash_dsp::hvx::Isa;

use super::DeviceError;

/// The float arithmetic of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Float {
    /// The device's own: IEEE single precision on `inproc`, that of the Hexagon elsewhere.
    #[default]
    Own,
    /// That of v68 to v75, in software on `inproc`, if that was built with the feature `qf32`: the bits of
    /// `qemu` with these versions.
    Qf32,
}

impl Float {
    /// The vectors with which `inproc` computes so.
    pub(super) fn isa(self) -> Result<Isa, DeviceError> {
        match self {
            Self::Own => Isa::available().last().ok_or_else(|| DeviceError::Unavailable {
                device: "inproc",
                reason: "this program was built for a newer processor than this one".to_owned(),
                remedy: "build it here, or with HEXFLASH_VECTORS=all, which gives a program for all \
                         processors"
                    .to_owned(),
            }),
            #[cfg(feature = "qf32")]
            Self::Qf32 => Ok(Isa::Qf32),
            #[cfg(not(feature = "qf32"))]
            Self::Qf32 => Err(DeviceError::Unavailable {
                device: "inproc",
                reason: "this program was built without the float arithmetic of v73".to_owned(),
                remedy: "build it with --features qf32".to_owned(),
            }),
        }
    }

    /// Refuses devices that have no choice.
    pub(super) fn check(self, device: &str) -> Result<(), DeviceError> {
        if self == Self::Own || device == "inproc" {
            Ok(())
        } else {
            Err(DeviceError::NoFloat { device: device.to_owned() })
        }
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::Qf32 => "qf32",
        })
    }
}

impl FromStr for Float {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Self::Own),
            "qf32" => Ok(Self::Qf32),
            _ => Err("the arithmetics are own, qf32".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for float in [Float::Own, Float::Qf32] {
            assert_eq!(float.to_string().parse(), Ok(float));
        }
        assert!("ieee".parse::<Float>().unwrap_err().contains("own, qf32"));
    }

    #[test]
    fn inproc_alone_has_a_choice() {
        assert!(Float::Qf32.check("inproc").is_ok());
        let refusal = Float::Qf32.check("qemu").unwrap_err().to_string();
        assert!(refusal.contains("qemu") && refusal.contains("qf32"), "{refusal}");
        assert!(Float::Own.check("htp").is_ok());
    }
}

//! The float arithmetic that a device computes with, where there is a choice.

use std::fmt;
use std::str::FromStr;

use hexflash_dsp::hvx::Isa;

use super::{Arch, DeviceError};

/// The float arithmetic of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Float {
    /// The device's own: IEEE single precision on `inproc`; on `qemu` that of the image, whose operations the
    /// compiler may have merged.
    #[default]
    Own,
    /// That of v73 and v75, operation by operation as the kernels' source has them: `inproc` computes it in
    /// software, if it was built with the feature `qf32`; `qemu` runs an image in which nothing was merged.
    /// Both give the same bits.
    Qf32,
}

impl Float {
    /// The vectors with which `inproc` computes so.
    pub(super) fn isa(self) -> Result<Isa, DeviceError> {
        match self {
            Self::Own => Ok(Isa::detect()),
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
    pub(super) fn check(self, device: &str, arch: Option<Arch>) -> Result<(), DeviceError> {
        let fits = match (self, device) {
            (Self::Own, _) | (Self::Qf32, "inproc") => true,
            (Self::Qf32, "qemu") => matches!(arch, Some(Arch::V73 | Arch::V75)),
            (Self::Qf32, _) => false,
        };
        if fits { Ok(()) } else { Err(DeviceError::NoFloat { device: device.to_owned() }) }
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
    fn v73_and_v75_alone_have_qf32() {
        let fits = |device, arch| Float::Qf32.check(device, arch).is_ok();
        assert!(fits("inproc", None) && fits("qemu", Some(Arch::V73)) && fits("qemu", Some(Arch::V75)));
        assert!(!fits("qemu", None) && !fits("qemu", Some(Arch::V67)) && !fits("qemu", Some(Arch::V79)));
        let refusal = Float::Qf32.check("htp", None).unwrap_err().to_string();
        assert!(refusal.contains("htp") && refusal.contains("qf32"), "{refusal}");
        assert!(Float::Own.check("htp", None).is_ok());
    }
}

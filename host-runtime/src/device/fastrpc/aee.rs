//! FastRPC's error codes in words.

/// A code as a call of FastRPC returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AeeCode(pub i32);

/// Codes without offset, with their names and what they mean.
const KNOWN: &[(u32, &str, &str)] = &[
    (0x1, "EFAILED", "failed, without a reason"),
    (0x2, "ENOMEMORY", "no memory"),
    (0x6, "EUNABLETOLOAD", "the library cannot be loaded"),
    (0xc, "EEXPIRED", "not in time"),
    (0xd, "EBADSTATE", "not possible in this state"),
    (0xe, "EBADPARM", "an argument was refused"),
    (0x10, "EBADITEM", "corrupt"),
    (0x14, "EUNSUPPORTED", "not supported"),
    (0x1a, "EALREADY", "already done"),
    (0x20, "EITEMBUSY", "in use by somebody else"),
    (0x27, "ENOSUCH", "no such thing"),
    (0x2e, "EINTERRUPTED", "interrupted: the session ended"),
    (0x48, "ENOSUCHMAP", "not mapped"),
    (0x68, "ECONNRESET", "the process on the DSP ended"),
    (0x6c, "EUNSUPPORTEDAPI", "the firmware does not know the call"),
    (0x72, "ECONNREFUSED", "the DSP refuses the connection"),
    (0x85, "EBADMAPREFCNT", "a mapping is still in use"),
    (0x14b, "EQURTTHREADCREATE", "a thread could not be started"),
    (0x183, "EBUSY", "all are in use"),
    (0x200, "ERPC", "the transport failed"),
    (0x204, "EWOULDBLOCK", "nothing there, or no room"),
    (0xffff_ffff, "EUNKNOWN", "unknown"),
];

impl AeeCode {
    /// Offset that a DSP adds to its codes.
    const DSP_OFFSET: u32 = 0x8000_0400;

    /// The call failed, and nothing says why.
    pub const FAILED: u32 = 0x1;
    /// Out of memory.
    pub const NO_MEMORY: u32 = 0x2;
    /// A library cannot be loaded.
    pub const UNABLE_TO_LOAD: u32 = 0x6;
    /// The call took too long.
    pub const EXPIRED: u32 = 0xc;
    /// The call is not possible now.
    pub const BAD_STATE: u32 = 0xd;
    /// An argument was refused.
    pub const BAD_PARAMETER: u32 = 0xe;
    /// The call is not supported.
    pub const UNSUPPORTED: u32 = 0x14;
    /// In use by another client.
    pub const ITEM_BUSY: u32 = 0x20;
    /// Memory is not mapped, or there is no such queue.
    pub const NO_SUCH_MAP: u32 = 0x48;
    /// The process on the DSP ended.
    pub const CONNECTION_RESET: u32 = 0x68;
    /// The connection was refused.
    pub const CONNECTION_REFUSED: u32 = 0x72;
    /// All are in use.
    pub const BUSY: u32 = 0x183;
    /// There is nothing to read, or no room to write.
    pub const WOULD_BLOCK: u32 = 0x204;

    /// Whether the code came from the DSP.
    pub const fn is_of_dsp(self) -> bool {
        let word = self.0 as u32;
        word > Self::DSP_OFFSET && word < Self::DSP_OFFSET + 0x1000
    }

    /// The code without the DSP's offset.
    pub const fn base(self) -> u32 {
        if self.is_of_dsp() { self.0 as u32 - Self::DSP_OFFSET } else { self.0 as u32 }
    }

    /// The code's name and meaning, if it is known.
    pub fn words(self) -> Option<(&'static str, &'static str)> {
        KNOWN.iter().find(|known| known.0 == self.base()).map(|&(_, name, meaning)| (name, meaning))
    }
}

impl std::fmt::Display for AeeCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if self.is_of_dsp() { ", from the DSP" } else { "" };
        match self.words() {
            Some((name, meaning)) => write!(f, "error {:#x} (AEE_{name}: {meaning}{side})", self.0),
            None => write!(f, "error {:#x} (not a known code{side})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_sides_have_the_same_words() {
        assert_eq!(AeeCode(2).to_string(), "error 0x2 (AEE_ENOMEMORY: no memory)");
        let dsp = AeeCode(0x8000_0402_u32 as i32);
        assert_eq!(dsp.to_string(), "error 0x80000402 (AEE_ENOMEMORY: no memory, from the DSP)");
        assert_eq!((dsp.base(), dsp.is_of_dsp()), (AeeCode::NO_MEMORY, true));
        assert_eq!(AeeCode(0x2e).base(), 0x2e);
        assert_eq!(AeeCode(77).to_string(), "error 0x4d (not a known code)");
        assert_eq!(AeeCode(-1).words().map(|w| w.0), Some("EUNKNOWN"));
        assert!(KNOWN.is_sorted_by(|a, b| a.0 < b.0));
    }
}

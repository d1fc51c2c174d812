//! Votes for clocks and power: raised when there is work, withdrawn when there has been none for a while.

use core::ffi::c_void;

use super::sys::{self, PowerRequest};

/// How much power a session may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Profile {
    /// The highest clocks, and no sleep between messages.
    Burst,
    /// High clocks that adapt.
    Balanced,
    /// Low clocks that adapt.
    Efficient,
}

impl Profile {
    /// The profile of that number, as `start` has it.
    pub(in super::super) const fn parse(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Burst),
            1 => Some(Self::Balanced),
            2 => Some(Self::Efficient),
            _ => None,
        }
    }

    /// Corners of core and bus: target, least and most; whether they adapt; whether sleep is off.
    const fn votes(self) -> ([u8; 3], bool, bool) {
        // Voltage corners of the published interface.
        const SVS2: u8 = 1;
        const SVS: u8 = 2;
        const NOMINAL: u8 = 4;
        const TURBO: u8 = 6;
        const MAX: u8 = 255;
        match self {
            Self::Burst => ([MAX, MAX, MAX], false, true),
            Self::Balanced => ([NOMINAL, SVS, TURBO], true, false),
            Self::Efficient => ([SVS, SVS2, NOMINAL], true, false),
        }
    }
}

/// Kinds of requests.
const HVX: u8 = 2;
const APP_TYPE: u8 = 3;
const DCVS_V3: u8 = 12;
/// Where what goes with the kind begins.
const BODY: usize = 8;

fn request(kind: u8, fields: &[(usize, u8)]) -> PowerRequest {
    let mut request = PowerRequest([0; 120]);
    request.0[0] = kind;
    for &(at, value) in fields {
        request.0[BODY + at] = value;
    }
    request
}

/// The clocks of a profile, or none wanted.
fn clocks(profile: Option<Profile>) -> PowerRequest {
    let ([target, least, most], adapt, awake) = match profile {
        Some(profile) => profile.votes(),
        // Corner 0 withdraws the vote.
        None => ([0; 3], true, false),
    };
    const CORE: usize = 8;
    const BUS: usize = 28;
    let adjust_up_and_down = 1;
    request(
        DCVS_V3,
        &[
            (0, 1),
            (1, adapt.into()),
            (2, if adapt { adjust_up_and_down } else { 0 }),
            (CORE, 1),
            (CORE + 4, target),
            (CORE + 5, least),
            (CORE + 6, most),
            (BUS, 1),
            (BUS + 4, target),
            (BUS + 5, least),
            (BUS + 6, most),
            (76, 1),
            (77, awake.into()),
        ],
    )
}

/// A session's votes, withdrawn when it is dropped.
pub(in super::super) struct Power {
    profile: Profile,
    raised: bool,
    /// The first vote that was refused. The session works without, only slower.
    refused: i32,
}

impl Power {
    /// No votes yet.
    pub(in super::super) fn new(profile: Profile) -> Self {
        const COMPUTE: u8 = 4;
        let mut power = Self { profile, raised: false, refused: 0 };
        power.vote(request(APP_TYPE, &[(0, COMPUTE)]));
        power
    }

    fn vote(&mut self, mut request: PowerRequest) {
        static CONTEXT: u8 = 0;
        let context = (&raw const CONTEXT).cast_mut().cast::<c_void>();
        // SAFETY: the context is only an address that nobody else uses; the request lives through the call.
        let error = unsafe { sys::HAP_power_set(context, &raw mut request) };
        if self.refused == 0 {
            self.refused = error;
        }
    }

    /// There is work.
    pub(in super::super) fn raise(&mut self) {
        if !core::mem::replace(&mut self.raised, true) {
            self.vote(clocks(Some(self.profile)));
            self.vote(request(HVX, &[(0, 1)]));
        }
    }

    /// There is none.
    pub(in super::super) fn lower(&mut self) {
        if core::mem::replace(&mut self.raised, false) {
            self.vote(request(HVX, &[(0, 0)]));
            self.vote(clocks(None));
        }
    }

    /// The error of the first vote that was refused, or 0.
    pub(in super::super) fn refused(&self) -> i32 {
        self.refused
    }
}

impl Drop for Power {
    fn drop(&mut self) {
        self.lower();
    }
}

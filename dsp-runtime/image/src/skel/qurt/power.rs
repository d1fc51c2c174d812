//! Votes for clocks and power: raised when there is work, withdrawn when there has been none for a while.

use core::ffi::c_void;

use super::super::machine;
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
const HMX: u8 = 13;
/// The matrix unit with its own clock, from v75 on.
const HMX_V2: u8 = 14;
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

/// Clocks of a profile, with bus corners that are protected, from v79 on: without this they do not count
/// there, and memory is slower.
fn all_clocks(profile: Option<Profile>) -> PowerRequest {
    let mut request = clocks(profile);
    if let Some(include) = sys::sysmon_set_dcvs_v3_protected_bus_corners() {
        // SAFETY: the request lives through the call, which writes inside of it. A refusal leaves the request
        // as it is, a vote for the other corners.
        unsafe { include(&raw mut request, 1) };
    }
    request
}

/// Power for the matrix unit, or none wanted.
fn matrix_power(kind: u8, profile: Profile, up: bool) -> PowerRequest {
    // The corners are 16 bits wide. Only the highest has a number that is known; for other profiles the DSP
    // chooses the clock.
    const HIGHEST: u8 = 0xff;
    let (set_power, set_clock) = (1, u8::from(up && profile == Profile::Burst));
    let corner = if set_clock == 1 { HIGHEST } else { 0 };
    match kind {
        HMX_V2 => {
            let mut fields = [(0, 0); 9];
            fields[..3].copy_from_slice(&[(0, set_power), (1, up.into()), (2, set_clock)]);
            // Target, least and most.
            for (field, at) in fields[3..].iter_mut().zip(4..) {
                *field = (at, corner);
            }
            request(kind, &fields)
        }
        kind => request(kind, &[(0, up.into())]),
    }
}

/// A session's votes, withdrawn when it is dropped.
pub(in super::super) struct Power {
    profile: Profile,
    raised: bool,
    /// The first vote that was refused. The session works without, only slower.
    refused: i32,
    matrix_unit: MatrixVote,
}

/// The vote for the matrix unit: an instruction of a unit without power can stop the whole DSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatrixVote {
    /// There is none.
    None,
    /// It is cast together with the others. The kind of request that was granted, if one was.
    Wanted(Option<u8>),
}

impl Power {
    /// No votes yet.
    pub(in super::super) fn new(profile: Profile, matrix_unit: bool) -> Self {
        const COMPUTE: u8 = 4;
        let matrix_unit = if matrix_unit { MatrixVote::Wanted(None) } else { MatrixVote::None };
        let mut power = Self { profile, raised: false, refused: 0, matrix_unit };
        power.vote(request(APP_TYPE, &[(0, COMPUTE)]));
        power
    }

    /// A vote without which the session works, only slower.
    fn vote(&mut self, request: PowerRequest) {
        let error = Self::cast(request);
        if self.refused == 0 {
            self.refused = error;
        }
    }

    /// Casts a vote; what it gives.
    fn cast(mut request: PowerRequest) -> i32 {
        static CONTEXT: u8 = 0;
        let context = (&raw const CONTEXT).cast_mut().cast::<c_void>();
        // SAFETY: the context is only an address that nobody else uses; the request lives through the call.
        unsafe { sys::HAP_power_set(context, &raw mut request) }
    }

    /// Asks for the matrix unit's power: as newer DSPs are asked, and as all are, which some of the newer
    /// want. What the last answer was.
    fn raise_matrix_unit(&mut self) -> i32 {
        let newer = machine::arch() >= 0x75;
        let mut error = 0;
        for kind in [HMX_V2, HMX].into_iter().skip(usize::from(!newer)) {
            error = Self::cast(matrix_power(kind, self.profile, true));
            if error == 0 {
                self.matrix_unit = MatrixVote::Wanted(Some(kind));
                break;
            }
        }
        error
    }

    /// Withdraws the vote for the matrix unit, if there is one.
    fn lower_matrix_unit(&mut self) {
        if let MatrixVote::Wanted(granted) = &mut self.matrix_unit
            && let Some(kind) = granted.take()
        {
            // Nothing uses the unit any more. A refusal would change nothing about that.
            let _ = Self::cast(matrix_power(kind, self.profile, false));
        }
    }

    /// Does without the matrix unit from here on.
    pub(in super::super) fn forget_matrix_unit(&mut self) {
        self.lower_matrix_unit();
        self.matrix_unit = MatrixVote::None;
    }

    /// There is work. The error is the matrix unit's: it is wanted, and has no power.
    pub(in super::super) fn raise(&mut self) -> Result<(), i32> {
        if !core::mem::replace(&mut self.raised, true) {
            self.vote(all_clocks(Some(self.profile)));
            self.vote(request(HVX, &[(0, 1)]));
        }
        match self.matrix_unit {
            MatrixVote::None | MatrixVote::Wanted(Some(_)) => Ok(()),
            MatrixVote::Wanted(None) => match self.raise_matrix_unit() {
                0 => Ok(()),
                error => Err(error),
            },
        }
    }

    /// There is none.
    pub(in super::super) fn lower(&mut self) {
        if core::mem::replace(&mut self.raised, false) {
            self.lower_matrix_unit();
            self.vote(request(HVX, &[(0, 0)]));
            self.vote(all_clocks(None));
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

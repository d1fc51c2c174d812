//! Where the parts of a program are: which of a device's sessions.

/// Most sessions of a device.
pub const MAX_SESSIONS: usize = 8;

/// Some of a device's sessions, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSet(u32);

impl SessionSet {
    /// No session.
    pub const NONE: Self = Self(0);

    /// One of them.
    pub const fn one(session: usize) -> Self {
        Self(1 << session)
    }

    /// The first `sessions`.
    pub const fn all(sessions: usize) -> Self {
        Self((1 << sessions) - 1)
    }

    /// Those of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether `session` is one of them.
    pub const fn contains(self, session: usize) -> bool {
        self.0 >> session & 1 == 1
    }

    /// The lowest.
    pub const fn first(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    /// All but the lowest.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(self.0 & self.0.wrapping_sub(1))
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_SESSIONS).filter(move |&session| self.contains(session))
    }
}

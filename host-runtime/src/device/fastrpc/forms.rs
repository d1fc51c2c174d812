//! The float instructions that a session asks the DSP for before it starts.
//!
//! Our code for v68 to v75 has instructions that no library has that is known to run on phones. A processor
//! that does not execute one ends the process, or gives another word. So each is executed alone, by a call of
//! its own: what ends the process is known by the call that does not come back.

use std::fmt;

use hexflash_abi::forms::{Form, Group};

use super::aee::AeeCode;
use crate::selftest::OtherLane;

/// A form that the DSP does not execute as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The form.
    pub form: Form,
    /// Behaviour of the DSP instead.
    pub how: How,
}

/// Ways not to execute a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The call fails with this code: the process has ended.
    Fails(AeeCode),
    /// It gives other words, in this lane first. Boxed, because errors are to be small.
    Gives(Box<OtherLane>),
}

impl Refusal {
    /// The group that the form belongs to, with all of which the session does without.
    pub fn group(&self) -> &'static str {
        self.form.group().map_or("none", Group::name)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the DSP does not execute `{}` (group {}): ", self.form, self.group())?;
        match &self.how {
            How::Fails(code) => write!(f, "the process has ended ({code})"),
            How::Gives(other) => f.write_str(&other.difference()),
        }
    }
}

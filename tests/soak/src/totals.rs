//! What was done so far.

use std::time::Duration;

use hexflash::generate::{Finish, Generated};
use serde::Serialize;

use crate::plan::Kind;

/// Counts over a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Sessions opened, by device: inproc, qemu, htp.
    pub sessions: [u64; 3],
    /// Generations that were equal to plain decoding.
    pub generations: u64,
    /// Tokens of them.
    pub tokens: u64,
    /// Drafts that were verified, and those accepted.
    pub drafted: u64,
    /// Accepted ones.
    pub accepted: u64,
    /// Generations that somebody interrupted.
    pub interrupted: u64,
    /// How often a device was started again in the middle of a generation.
    pub restarts: u64,
    /// Generations that ended with the error that was planned, their text so far being right.
    pub lost: u64,
    /// Sessions that could not be opened, as was planned.
    pub refused: u64,
    /// Longest generation, in seconds.
    pub longest_seconds: f64,
}

impl Totals {
    /// Another session.
    pub fn open(&mut self, kind: Kind) {
        self.sessions[kind as usize] += 1;
    }

    /// Another generation.
    pub fn add(&mut self, found: &Generated, time: Duration) {
        self.generations += 1;
        self.tokens += found.tokens.len() as u64;
        self.interrupted += u64::from(found.finish_reason == Finish::Interrupted);
        self.restarts += u64::from(found.stats.restarts);
        if let Some(speculation) = &found.stats.speculation {
            self.drafted += speculation.drafted as u64;
            self.accepted += speculation.accepted as u64;
        }
        self.longest_seconds = self.longest_seconds.max(time.as_secs_f64());
    }
}
